// (conv(x, W) [+ c]) · s → conv(x, W·s) [+ c·s], for constants W, c and a factor s per output channel. The factor then
// costs nothing at run time. Products are rounded at compile time instead of run time, which changes results by
// rounding only; so factors and weights that are not finite are left alone.
#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/builder.hpp"
#include "ir/evaluate.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

bool finite(const Tensor& t) {
  if (t.dtype() == DType::f32) {
    const auto* values = t.as<float>();
    return std::all_of(values, values + t.num_elements(), [](float v) { return std::isfinite(v); });
  }
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    if (!std::isfinite(t.get_double(i))) return false;
  }
  return true;
}

size_t channel_axis(const Node& anchor) {
  return anchor.op == Op::Conv ? 1 : anchor.type().shape.size() - 1;
}

// The factor as one value per output channel of the anchor, if it is constant along everything else.
std::optional<Tensor> per_channel(const Value* factor, const Node& anchor) {
  const Tensor* t = constant_of(factor);
  const Shape& shape = anchor.type().shape;
  size_t axis = channel_axis(anchor);
  if (!t || !shape[axis].is_constant() || t->rank() > static_cast<int>(shape.size())) return std::nullopt;
  int64_t channels = shape[axis].value();
  size_t skip = shape.size() - t->shape().size();
  for (size_t i = 0; i < t->shape().size(); ++i) {
    if (t->shape()[i] != 1 && skip + i != axis) return std::nullopt;
  }
  if (t->num_elements() == channels) return t->reshaped({channels});
  if (t->num_elements() != 1) return std::nullopt;
  Tensor wide(t->dtype(), {channels});
  for (int64_t i = 0; i < channels; ++i) wide.set_double(i, t->get_double(0));
  return wide;
}

Tensor scaled_weight(const Node& anchor, const Tensor& factor) {
  const Tensor& w = *constant_of(anchor.operand(1));
  Tensor out = Tensor::uninitialized(w.dtype(), w.shape());
  int64_t n = w.num_elements(), channels = factor.num_elements();
  // Conv weights have the output channel first, matrices last.
  int64_t run = anchor.op == Op::Conv && channels ? n / channels : 1;
  if (w.dtype() == DType::f32 && factor.dtype() == DType::f32) {
    const auto *from = w.as<float>(), *by = factor.as<float>();
    auto* to = out.mutable_as<float>();
    for (int64_t i = 0, channel = 0; i < n; channel = channel + 1 == channels ? 0 : channel + 1) {
      for (int64_t end = i + run; i < end; ++i) to[i] = from[i] * by[channel];
    }
    return out;
  }
  for (int64_t i = 0; i < n; ++i) out.set_double(i, w.get_double(i) * factor.get_double(i / run % channels));
  return out;
}

}  // namespace

void fold_batch_norm(Graph& graph, const TransformOptions&) {
  Graph::Users users = graph.users();
  auto single = [&](const Value* v) {
    auto it = users.find(v);
    return it != users.end() && it->second.size() == 1 && !graph.is_output(v);
  };
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (Node* node : nodes) {
    if (node->op != Op::Pointwise || node->fn() != Fn::Mul) continue;
    for (size_t side = 0; side < 2; ++side) {
      Value* product = node->operand(side);
      Value* factor = node->operand(1 - side);
      if (product->type != node->type() || !single(product)) continue;
      Value* shift = nullptr;
      if (is_op(product, Op::Pointwise) && product->producer->fn() == Fn::Add) {
        Node* add = product->producer;
        size_t anchor_side = constant_of(add->operand(1)) ? 0 : 1;
        shift = add->operand(1 - anchor_side);
        product = add->operand(anchor_side);
        if (!constant_of(shift) || product->type != node->type() || !single(product)) continue;
      }
      Node* anchor = product->producer;
      if (!anchor || (anchor->op != Op::Conv && anchor->op != Op::Matmul) || !constant_of(anchor->operand(1))) continue;
      if (anchor->op == Op::Matmul && anchor->operand(1)->type.rank() != 2) continue;
      std::optional<Tensor> s = per_channel(factor, *anchor);
      if (!s || !finite(*s) || !finite(*constant_of(anchor->operand(1)))) continue;
      Builder b(graph);
      b.set_position(node);
      b.set_source(anchor->source);
      Value* y = b.node(anchor->op, {anchor->operand(0), b.constant(scaled_weight(*anchor, *s))}, anchor->attributes);
      b.set_source(node->source);
      if (shift) y = b.add(y, b.mul(shift, factor));
      graph.replace_all_uses(node->result.get(), y);
      users = graph.users();
      break;
    }
  }
  graph.erase_dead_nodes();
}

}  // namespace cuvil
