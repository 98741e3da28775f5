// (x - z) * W in i32, for x of u8 or i8 and constants z and W: x * W - z * (sums of W's columns), where the product is
// of u8 and i8 and its sum of i32. Arithmetic on i32 wraps, so the two are equal for any operands.
#include <algorithm>
#include <optional>

#include "ir/builder.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

// An operand x - zero, of 8 bits before it was widened, perhaps with a border of zeros around it.
struct Narrow {
  Value* x = nullptr;
  int64_t zero = 0;
  Node* border = nullptr;
};

std::optional<Narrow> narrow_operand(Value* v) {
  Narrow n;
  if (is_op(v, Op::Pad) && v->producer->get<double>("value") == 0) {
    n.border = v->producer;
    v = v->producer->operand(0);
  }
  if (is_op(v, Op::Pointwise) && v->producer->fn() == Fn::Sub) {
    const Tensor* zero = constant_of(v->producer->operand(1));
    if (!zero || zero->num_elements() != 1) return std::nullopt;
    n.zero = zero->get_int(0);
    v = v->producer->operand(0);
  }
  if (!is_op(v, Op::Cast) || v->type.dtype != DType::i32) return std::nullopt;
  n.x = v->producer->operand(0);
  const DType t = n.x->type.dtype;
  const bool in_range = t == DType::u8 ? n.zero >= 0 && n.zero <= 255 : n.zero >= -128 && n.zero <= 127;
  return (t == DType::u8 || t == DType::i8) && in_range ? std::optional(n) : std::nullopt;
}

// The weights as i8 or i16, if they are of that range; of two i16 products, not even the largest may overflow.
std::optional<Tensor> narrow_weights(const Tensor& w, DType type) {
  const int64_t low = type == DType::i8 ? -128 : -256, high = type == DType::i8 ? 127 : 256;
  Tensor narrow(type, w.shape());
  for (int64_t i = 0; i < w.num_elements(); ++i) {
    const int64_t value = w.get_int(i);
    if (value < low || value > high) return std::nullopt;
    narrow.set_int(i, value);
  }
  return narrow;
}

// Sums over all that one output channel (conv) or column (matmul) is multiplied with, times -zero.
Tensor correction(const Node& product, const Tensor& w, int64_t zero) {
  const bool conv = product.op == Op::Conv;
  const int64_t columns = conv ? w.shape()[0] : w.shape()[1];
  const int64_t run = conv ? w.num_elements() / std::max<int64_t>(1, columns) : 1;
  std::vector<int64_t> sums(static_cast<size_t>(columns), 0);
  for (int64_t i = 0; i < w.num_elements(); ++i) sums[static_cast<size_t>(i / run % columns)] += w.get_int(i);
  std::vector<int64_t> shape{columns};
  if (conv) {
    shape.insert(shape.begin(), 1);
    shape.resize(product.type().shape.size(), 1);
  }
  Tensor out(DType::i32, shape);
  for (int64_t i = 0; i < columns; ++i) out.set_int(i, static_cast<int32_t>(-zero * sums[static_cast<size_t>(i)]));
  return out;
}

Value* product_of_words(Builder& b, const Node& product, const Narrow& a, Tensor narrow_w) {
  Value* x = b.cast(a.x, DType::i32);
  if (a.zero != 0) x = b.sub(x, b.scalar_int(DType::i32, a.zero));
  x = b.cast(x, DType::i16);
  if (a.border) x = b.pad(x, a.border->dims("low"), a.border->dims("high"), 0);
  return b.node(product.op, {b.cast(x, DType::i32), b.cast(b.constant(std::move(narrow_w)), DType::i32)},
                product.attributes);
}

Value* product_of_bytes(Builder& b, const Node& product, const Narrow& a, const Tensor& w, Tensor narrow_w) {
  Value* x = a.x;
  int64_t zero = a.zero;
  if (x->type.dtype == DType::i8) {  // u8 by a shift of both x and its zero
    x = b.cast(b.binary(Fn::Add, b.cast(x, DType::i32), b.scalar_int(DType::i32, 128)), DType::u8);
    zero += 128;
  }
  if (a.border) x = b.pad(x, a.border->dims("low"), a.border->dims("high"), static_cast<double>(zero));
  Value* y = b.node(product.op, {b.cast(x, DType::i32), b.cast(b.constant(std::move(narrow_w)), DType::i32)},
                    product.attributes);
  return zero == 0 ? y : b.add(y, b.constant(correction(product, w, zero)));
}

}  // namespace

void narrow_products(Graph& graph, const TransformOptions& options) {
  if (options.dot == 0) return;
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (Node* node : nodes) {
    if ((node->op != Op::Conv && node->op != Op::Matmul) || node->type().dtype != DType::i32) continue;
    const Tensor* w = constant_of(node->operand(1));
    if (!w || w->num_elements() == 0 || (node->op == Op::Matmul && w->rank() != 2)) continue;
    const int64_t inner = node->op == Op::Conv ? w->shape()[1] : w->shape()[0];
    if (inner % options.dot != 0) continue;
    std::optional<Narrow> a = narrow_operand(node->operand(0));
    const bool bytes = options.dot == 4;
    std::optional<Tensor> narrow_w = a ? narrow_weights(*w, bytes ? DType::i8 : DType::i16) : std::nullopt;
    if (!narrow_w) continue;
    Builder b(graph);
    b.set_source(node->source);
    b.set_position(node);
    graph.replace_all_uses(node->result.get(), bytes ? product_of_bytes(b, *node, *a, *w, std::move(*narrow_w))
                                                     : product_of_words(b, *node, *a, std::move(*narrow_w)));
  }
  graph.erase_dead_nodes();
}

}  // namespace cuvil
