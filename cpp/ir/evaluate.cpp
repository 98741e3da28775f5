#include "ir/evaluate.hpp"

#include "ir/evaluate_ops.hpp"
#include "support/error.hpp"

namespace cuvil {

std::vector<int64_t> EvaluationContext::sizes(const std::vector<Dim>& dims) const {
  std::vector<int64_t> out;
  for (const Dim& d : dims) out.push_back(size(d));
  return out;
}

int64_t EvaluationContext::size(const Dim& d) const {
  return d.evaluate([&](const std::string& name) {
    auto it = bindings.find(name);
    if (it == bindings.end()) throw InternalError("size symbol " + name + " has no value");
    return it->second;
  });
}

Tensor evaluate_node(const Node& node, const std::vector<Tensor>& operands, const Bindings& bindings) {
  EvaluationContext context{node, operands, bindings};
  switch (info(node.op).kind) {
    case OpKind::Leaf:
      return evaluate_leaf(context);
    case OpKind::Pointwise:
      return evaluate_pointwise(context);
    case OpKind::Index:
      return evaluate_index(context);
    case OpKind::Contract:
      return evaluate_contract(context);
    case OpKind::Reduce:
      return evaluate_reduce(context);
    case OpKind::Other:
      return node.op == Op::Scan ? evaluate_reduce(context) : evaluate_order(context);
    case OpKind::Host:
      break;  // see procedure/execute.hpp
  }
  throw InternalError("not an op of a straight graph: " + std::string(info(node.op).name));
}

std::optional<Tensor> evaluate_constant(const Value* value, int64_t most_elements) {
  if (const Tensor* t = constant_of(value)) return *t;
  if (!value->producer || !value->type.is_static() || value->type.num_elements().value() > most_elements)
    return std::nullopt;
  if (value->producer->op == Op::DimValue || info(value->producer->op).kind == OpKind::Host) return std::nullopt;
  std::vector<Tensor> operands;
  for (const Value* operand : value->producer->operands) {
    std::optional<Tensor> t = evaluate_constant(operand, most_elements);
    if (!t) return std::nullopt;
    operands.push_back(std::move(*t));
  }
  return evaluate_node(*value->producer, operands, {});
}

Bindings bind_symbols(const Graph& graph, const std::vector<std::vector<int64_t>>& shapes) {
  if (shapes.size() != graph.inputs().size()) {
    throw CompileError("the graph takes " + std::to_string(graph.inputs().size()) + " inputs, not " +
                       std::to_string(shapes.size()));
  }
  Bindings bindings;
  auto value_of = [&](const std::string& name) { return bindings.at(name); };
  auto unknowns = [&](const Dim& d) {
    std::vector<Dim> list;
    for (const Dim& s : d.symbols()) {
      if (!bindings.count(s.symbol_name())) list.push_back(s);
    }
    return list;
  };
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].size() != graph.inputs()[i]->type.shape.size()) {
      throw CompileError("input '" + graph.inputs()[i]->name + "' has rank " + std::to_string(shapes[i].size()) +
                         ", expected " + graph.inputs()[i]->type.str());
    }
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < shapes.size(); ++i) {
      for (size_t axis = 0; axis < shapes[i].size(); ++axis) {
        const Dim& d = graph.inputs()[i]->type.shape[axis];
        std::vector<Dim> unknown = unknowns(d);
        if (unknown.size() != 1) continue;
        auto c = d.coefficient_of(unknown[0]);
        if (!c || !c->is_constant()) continue;
        int64_t rest = (d - *c * unknown[0]).evaluate(value_of);
        bindings[unknown[0].symbol_name()] = (shapes[i][axis] - rest) / c->value();
        progress = true;
      }
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t axis = 0; axis < shapes[i].size(); ++axis) {
      const Dim& d = graph.inputs()[i]->type.shape[axis];
      std::string where = "input '" + graph.inputs()[i]->name + "', axis " + std::to_string(axis) + ": ";
      if (!unknowns(d).empty()) throw CompileError(where + "size " + d.str() + " cannot be solved for its symbols");
      int64_t expected = d.evaluate(value_of), actual = shapes[i][axis];
      if (expected != actual) {
        throw CompileError(where + "expected " + d.str() + (d.is_constant() ? "" : " = " + std::to_string(expected)) +
                           ", got " + std::to_string(actual));
      }
      if (!d.is_symbol()) continue;
      const DimAtom& atom = *d.terms()[0].factors[0];
      if (actual < atom.min || actual > atom.max) {
        throw CompileError(where + "size " + std::to_string(actual) + " of " + d.str() + " is outside its range");
      }
    }
  }
  return bindings;
}

std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<std::vector<int64_t>> shapes;
  for (const Tensor& t : inputs) shapes.push_back(t.shape());
  Bindings bindings = bind_symbols(graph, shapes);
  std::map<const Value*, Tensor> values;
  std::map<const Value*, int> uses;
  for (const auto& node : graph.nodes()) {
    for (const Value* operand : node->operands) ++uses[operand];
  }
  for (const auto& output : graph.outputs()) ++uses[output.value];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value* v = graph.inputs()[i].get();
    if (inputs[i].dtype() != v->type.dtype) {
      throw CompileError("input '" + v->name + "': expected dtype " + std::string(name_of(v->type.dtype)) + ", got " +
                         std::string(name_of(inputs[i].dtype())));
    }
    values[v] = inputs[i];
  }
  for (const auto& node : graph.nodes()) {
    std::vector<Tensor> operands;
    for (const Value* operand : node->operands) operands.push_back(values.at(operand));
    values[node->result.get()] = evaluate_node(*node, operands, bindings);
    // Values are dropped after their last use, so that large models fit.
    for (const Value* operand : node->operands) {
      if (--uses[operand] == 0) values.erase(operand);
    }
  }
  std::vector<Tensor> outputs;
  for (const auto& output : graph.outputs()) outputs.push_back(values.at(output.value));
  return outputs;
}

}  // namespace cuvil
