// (x·s) * (W·t) → (x * W)·(s·t), for integers x and W behind a conversion to f32 and scales s (one number) and t (one
// number, or one per output channel): the product of a dequantised activation with dequantised weights is computed on
// the integers. Integer sums are exact, so the result changes by rounding only, towards the definition's.
#include <optional>

#include "ir/builder.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

struct Dequantized {
  Value* integers = nullptr;  // i32
  Value* scale = nullptr;
  Node* border = nullptr;  // zeros around it
};

std::optional<Dequantized> dequantized(Value* v) {
  Dequantized d;
  if (is_op(v, Op::Pad) && v->producer->get<double>("value") == 0) {
    d.border = v->producer;
    v = v->producer->operand(0);
  }
  if (!is_op(v, Op::Pointwise) || v->producer->fn() != Fn::Mul || v->type.dtype != DType::f32) return std::nullopt;
  for (size_t side : {0, 1}) {
    Value* wide = v->producer->operand(side);
    if (!is_op(wide, Op::Cast) || wide->type != v->type) continue;
    d.integers = wide->producer->operand(0);
    d.scale = v->producer->operand(1 - side);
    if (d.integers->type.dtype == DType::i32) return d;
  }
  return std::nullopt;
}

// The weights' scale against the result: null if it is not one number or one per output channel.
Value* result_scale(Builder& b, const Node& product, Value* scale) {
  if (scale->type.num_elements() == Dim(1)) return b.reshape(scale, {});
  const Shape& weights = product.operand(1)->type.shape;
  const size_t channel = product.op == Op::Conv ? 0 : weights.size() - 1;
  const size_t skip = weights.size() - scale->type.shape.size();
  for (size_t i = 0; i < scale->type.shape.size(); ++i) {
    if (scale->type.shape[i] != Dim(1) && skip + i != channel) return nullptr;
  }
  Shape shape(product.type().shape.size(), Dim(1));
  shape[product.op == Op::Conv ? 1 : shape.size() - 1] = weights[channel];
  return b.reshape(scale, shape);
}

// Whether sums of products of 8-bit values cannot leave i32.
bool sums_fit(const Node& product) {
  const Shape& w = product.operand(1)->type.shape;
  Dim factors = product.op == Op::Conv ? Dim(1) : w[w.size() - 2];
  for (size_t i = 1; product.op == Op::Conv && i < w.size(); ++i) factors = factors * w[i];
  constexpr int64_t most = (int64_t{1} << 31) / (255 * 255);
  return factors.is_constant() && factors.value() < most;
}

// Values of 8 bits, perhaps less a zero point.
bool is_narrow(const Value* v) {
  if (is_op(v, Op::Pointwise) && v->producer->fn() == Fn::Sub) v = v->producer->operand(0);
  return is_op(v, Op::Cast) && size_of(v->producer->operand(0)->type.dtype) == 1;
}

}  // namespace

void integer_products(Graph& graph, const TransformOptions& options) {
  if (options.dot == 0 || options.strict) return;
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (Node* node : nodes) {
    if ((node->op != Op::Conv && node->op != Op::Matmul) || node->type().dtype != DType::f32 || !sums_fit(*node))
      continue;
    auto x = dequantized(node->operand(0)), w = dequantized(node->operand(1));
    if (!x || !w || w->border || x->scale->type.num_elements() != Dim(1)) continue;
    if (!is_narrow(x->integers) || !is_narrow(w->integers)) continue;
    Builder b(graph);
    b.set_source(node->source);
    b.set_position(node);
    Value* scale = result_scale(b, *node, w->scale);
    if (!scale) continue;
    Value* left = x->integers;
    if (x->border) left = b.pad(left, x->border->dims("low"), x->border->dims("high"), 0);
    Value* sums = b.cast(b.node(node->op, {left, w->integers}, node->attributes), DType::f32);
    graph.replace_all_uses(node->result.get(), b.mul(sums, b.mul(b.reshape(x->scale, {}), scale)));
  }
  graph.erase_dead_nodes();
}

}  // namespace cuvil
