#include "import/common/control_flow.hpp"

#include <algorithm>

namespace cuvil {

namespace {

std::vector<Value*> results_of(Builder& b, Value* token, const std::vector<Type>& types) {
  std::vector<Value*> results;
  for (size_t i = 0; i < types.size(); ++i) {
    results.push_back(b.node(
        Op::Result, {token},
        {{"index", static_cast<int64_t>(i)}, {"dtype", types[i].dtype}, {"shape", std::vector<Dim>(types[i].shape)}}));
  }
  return results;
}

}  // namespace

bool mentions(const Dim& d, const SymbolNames& symbols) {
  const std::vector<Dim> own = d.symbols();
  return std::any_of(own.begin(), own.end(), [&](const Dim& s) { return symbols.count(s.symbol_name()) > 0; });
}

void bind_outer_symbols(Graph& region, const SymbolNames& own, Builder& outer, std::vector<Value*>& captured) {
  SymbolNames bound = own;
  for (const auto& input : region.inputs()) {
    for (const Dim& d : input->type.shape) {
      if (d.is_symbol()) bound.insert(d.symbol_name());
    }
  }
  std::vector<Dim> unbound;
  auto note = [&](const Dim& d) {
    for (const Dim& s : d.symbols()) {
      if (bound.insert(s.symbol_name()).second) unbound.push_back(s);
    }
  };
  for (const auto& node : region.nodes()) visit_dims(*node, note);
  for (const auto& input : region.inputs()) {
    for (const Dim& d : input->type.shape) note(d);
  }
  if (unbound.empty()) return;
  std::vector<Value*> values;
  for (const Dim& d : unbound) values.push_back(outer.reshape(outer.dim_value(d), {1}));
  Value* all = outer.concat(values, 0);
  captured.push_back(all);
  Value* passed = region.add_input("sizes", all->type);
  Node* first = region.nodes().empty() ? nullptr : region.nodes().front().get();
  region.add_node(Op::Sizes, {passed}, {{"dims", unbound}}, outer.source(), first);
}

std::vector<Value*> add_if(Builder& b, Value* condition, const std::vector<Value*>& captured, BuiltRegion then,
                           BuiltRegion otherwise, const std::vector<Type>& types) {
  for (size_t i = then.graph->inputs().size(); i < captured.size(); ++i) {
    then.graph->add_input(captured[i]->name, captured[i]->type);
  }
  std::vector<Value*> operands = {condition};
  operands.insert(operands.end(), captured.begin(), captured.end());
  Value* token = b.node(Op::If, std::move(operands),
                        {{"then", Region(std::move(then.graph))}, {"else", Region(std::move(otherwise.graph))}});
  return results_of(b, token, types);
}

std::vector<Value*> add_loop(Builder& b, Value* trips, Value* condition, const std::vector<Value*>& initial,
                             const std::vector<Value*>& captured, BuiltRegion body, const std::vector<Type>& types) {
  std::vector<Value*> operands = {trips, condition};
  operands.insert(operands.end(), initial.begin(), initial.end());
  operands.insert(operands.end(), captured.begin(), captured.end());
  Value* token = b.node(Op::Loop, std::move(operands),
                        {{"body", Region(std::move(body.graph))}, {"carried", static_cast<int64_t>(initial.size())}});
  return results_of(b, token, types);
}

}  // namespace cuvil
