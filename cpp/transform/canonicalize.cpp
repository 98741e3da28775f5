// Local rewrites that never change a result, NaN, infinities and signed zeros included.
#include <cmath>
#include <cstring>
#include <optional>

#include "ir/builder.hpp"
#include "support/error.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

// The value of a constant with one element, or of a broadcast of one.
std::optional<double> scalar_of(const Value* v) {
  while (is_op(v, Op::Broadcast) || is_op(v, Op::Reshape)) v = v->producer->operand(0);
  const Tensor* t = constant_of(v);
  if (!t || t->num_elements() != 1) return std::nullopt;
  return t->get_double(0);
}

bool is_power_of_two(double v) {
  int exponent = 0;
  return std::isnormal(v) && std::fabs(std::frexp(v, &exponent)) == 0.5 && std::abs(exponent) < 120;
}

Value* simplify_pointwise(Builder& b, const Node& node) {
  if (node.operands.size() != 2) return nullptr;
  Value* x = node.operand(0);
  auto c = scalar_of(node.operand(1));
  bool same = x->type == node.type();
  bool floating = is_float(x->type.dtype);
  if (c && same) {
    switch (node.fn()) {
      case Fn::Mul:
        if (*c == 1) return x;
        break;
      case Fn::Div:
        if (*c == 1) return x;
        if (floating && is_power_of_two(*c)) return b.binary(Fn::Mul, x, 1 / *c);
        break;
      case Fn::Sub:
        if (*c == 0 && !std::signbit(*c)) return x;
        break;
      case Fn::Add:
        if (*c == 0 && (!floating || std::signbit(*c))) return x;
        break;
      case Fn::Pow:
        if (*c == 1) return x;
        if (*c == 2) return b.mul(x, x);
        break;
      default:
        break;
    }
  }
  auto first = scalar_of(x);
  Value* y = node.operand(1);
  if (first && y->type == node.type()) {
    if (node.fn() == Fn::Mul && *first == 1) return y;
    if (node.fn() == Fn::Add && *first == 0 && (!floating || std::signbit(*first))) return y;
  }
  return nullptr;
}

// A broadcast operand that the op would broadcast by itself.
Value* drop_broadcasts(Builder& b, const Node& node) {
  std::vector<Value*> operands = node.operands;
  bool changed = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!is_op(operands[i], Op::Broadcast)) continue;
    std::vector<Value*> fewer = operands;
    fewer[i] = operands[i]->producer->operand(0);
    Shape shape;
    for (const Value* v : fewer) shape = broadcast_shapes(shape, v->type.shape);
    if (shape != node.type().shape) continue;
    operands = std::move(fewer);
    changed = true;
  }
  return changed ? b.node(node.op, operands, node.attributes) : nullptr;
}

// Two borders of one value are one border.
Value* merge_pads(Builder& b, const Node& outer, const Node& inner) {
  const auto &ol = outer.dims("low"), &oh = outer.dims("high"), &il = inner.dims("low"), &ih = inner.dims("high");
  double value = outer.get<double>("value"), same = inner.get<double>("value");
  if (std::memcmp(&value, &same, sizeof value) != 0) return nullptr;
  std::vector<Dim> low, high;
  for (size_t i = 0; i < ol.size(); ++i) {
    low.push_back(ol[i] + il[i]);
    high.push_back(oh[i] + ih[i]);
  }
  return b.pad(inner.operand(0), low, high, value);
}

Value* simplify(Builder& b, const Node& node) {
  Value* x = node.operands.empty() ? nullptr : node.operand(0);
  switch (node.op) {
    case Op::Pointwise:
      if (Value* v = simplify_pointwise(b, node)) return v;
      return drop_broadcasts(b, node);
    case Op::Cast:
      return x->type.dtype == node.type().dtype ? x : nullptr;
    case Op::BitCast:
      if (x->type.dtype == node.type().dtype) return x;
      // bool has two values only, so that what passed through it may have changed.
      if (is_op(x, Op::BitCast) && x->type.dtype != DType::boolean)
        return b.bitcast(x->producer->operand(0), node.type().dtype);
      return nullptr;
    case Op::Reshape:
      if (x->type.shape == node.type().shape) return x;
      if (is_op(x, Op::Reshape)) return b.reshape(x->producer->operand(0), node.type().shape);
      return nullptr;
    case Op::Transpose: {
      const auto& perm = node.ints("perm");
      bool identity = true;
      for (size_t i = 0; i < perm.size(); ++i) identity &= perm[i] == static_cast<int64_t>(i);
      if (identity) return x;
      if (!is_op(x, Op::Transpose)) return nullptr;
      std::vector<int64_t> composed;
      for (int64_t p : perm) composed.push_back(x->producer->ints("perm")[static_cast<size_t>(p)]);
      return b.transpose(x->producer->operand(0), composed);
    }
    case Op::Broadcast:
      if (x->type.shape == node.type().shape) return x;
      if (is_op(x, Op::Broadcast)) return b.broadcast(x->producer->operand(0), node.type().shape);
      return nullptr;
    case Op::Slice: {
      bool whole = x->type.shape == node.type().shape;
      for (size_t i = 0; whole && i < x->type.shape.size(); ++i)
        whole = node.dims("starts")[i] == Dim(0) && node.ints("steps")[i] == 1;
      return whole ? x : nullptr;
    }
    case Op::Pad:
      if (x->type.shape == node.type().shape) return x;
      return is_op(x, Op::Pad) ? merge_pads(b, node, *x->producer) : nullptr;
    case Op::Concat:
      return node.operands.size() == 1 ? x : nullptr;
    case Op::Reduce:
      if (!node.ints("axes").empty()) return nullptr;
      return node.reduce_fn() != ReduceFn::ArgMax && node.reduce_fn() != ReduceFn::ArgMin ? x : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

void canonicalize(Graph& graph, const TransformOptions&) {
  Builder b(graph);
  for (int round = 0; round < 8; ++round) {
    bool changed = false;
    std::vector<Node*> nodes;
    for (const auto& node : graph.nodes()) nodes.push_back(node.get());
    for (Node* node : nodes) {
      b.set_source(node->source);
      b.set_position(node);
      if (Value* better = simplify(b, *node)) {
        graph.replace_all_uses(node->result.get(), better);
        changed = true;
      }
    }
    graph.erase_dead_nodes();
    if (!changed) return;
  }
}

}  // namespace cuvil
