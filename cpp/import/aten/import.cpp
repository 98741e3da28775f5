#include "import/aten/import.hpp"

#include <set>

#include "import/aten/call.hpp"
#include "support/error.hpp"

namespace cuvil::aten {

namespace {

const std::map<std::string, Lowering>& table() {
  static const std::map<std::string, Lowering> rows = [] {
    std::map<std::string, Lowering> t;
    for (const auto& family : {pointwise_rows(), shape_rows(), reduction_rows(), scatter_rows(), order_rows(),
                               network_rows(), creation_rows(), special_rows(), pooling_rows(), view_rows(),
                               resize_rows(), distance_rows(), segment_rows()}) {
      for (const Row& row : family) t.emplace(row.target, row.lower);
    }
    return t;
  }();
  return rows;
}

// Nodes that only work on sizes; Python has handed over their values as expressions where they are used.
bool computes_sizes(const Node& node) {
  return !node.outputs.empty() && !node.outputs[0].is_tensor;
}

bool is_assertion(const Node& node) {
  return node.target.rfind("aten._assert", 0) == 0 || node.target.rfind("aten.sym_constrain", 0) == 0;
}

void check_supported(const ExportedGraph& exported) {
  std::map<std::string, std::vector<const Node*>> missing;
  for (const Node& node : exported.nodes) {
    if (node.target == "getitem" || computes_sizes(node) || is_assertion(node)) continue;
    if (!table().count(node.target)) missing[node.target].push_back(&node);
  }
  if (missing.empty()) return;
  std::string message = "the model uses operators that are not supported:";
  for (const auto& [target, nodes] : missing) {
    message += "\n  " + target + " at";
    for (size_t i = 0; i < nodes.size() && i < 8; ++i) {
      message += (i ? ", " : " ") + nodes[i]->name + (nodes[i]->source.empty() ? "" : " (" + nodes[i]->source + ")");
    }
    if (nodes.size() > 8) message += ", and " + std::to_string(nodes.size() - 8) + " more";
  }
  throw CompileError(message + "\nReplace them in the model, or split the model around them.");
}

// Equal as expressions, or at least at several values of the symbols: PyTorch may write a size in another way.
bool same_sizes(const Shape& a, const Shape& b) {
  if (a == b) return true;
  if (a.size() != b.size()) return false;
  for (int64_t sample : {2, 3, 7, 64, 223}) {
    for (size_t i = 0; i < a.size(); ++i) {
      int64_t shift = 0;
      std::map<std::string, int64_t> values;
      auto value_of = [&](const std::string& name) { return values.emplace(name, sample + 5 * shift++).first->second; };
      if (a[i].evaluate(value_of) != b[i].evaluate(value_of)) return false;
    }
  }
  return true;
}

// PyTorch's names for sizes that only a run tells.
bool depends_on_data(const Shape& shape) {
  for (const Dim& d : shape) {
    for (const Dim& symbol : d.symbols()) {
      if (symbol.symbol_name()[0] == 'u') return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> supported_targets() {
  std::vector<std::string> targets;
  for (const auto& [target, lowering] : table()) targets.push_back(target);
  return targets;
}

Graph import_graph(const ExportedGraph& exported) {
  check_supported(exported);
  std::map<std::string, Dim> symbols;
  for (const Symbol& s : exported.symbols) symbols.emplace(s.name, Dim::symbol(s.name, s.min, s.max));
  auto parse = [&](const std::string& text) {
    return Dim::parse(text, [&](const std::string& name) {
      auto it = symbols.find(name);
      if (it == symbols.end()) throw CompileError("size symbol '" + name + "' has no range");
      return it->second;
    });
  };
  Graph graph;
  Builder b(graph);
  Values values;
  for (const Input& input : exported.inputs) {
    Type type{dtype_of(input.meta.dtype), {}};
    for (const std::string& s : input.meta.sizes) type.shape.push_back(parse(s));
    values[input.name] = {graph.add_input(input.label, std::move(type))};
  }
  for (const Weight& w : exported.weights) {
    b.set_source(w.name);
    values[w.name] = {b.constant(w.tensor)};
  }
  std::map<std::string, std::set<size_t>> used_outputs;
  for (const Node& node : exported.nodes) {
    if (node.target == "getitem")
      used_outputs[node.args.at(0).text].insert(static_cast<size_t>(node.args.at(1).integer));
  }
  for (const Node& node : exported.nodes) {
    if (computes_sizes(node) || is_assertion(node)) continue;
    Call call(b, node, values, symbols, used_outputs[node.name]);
    b.set_source(node.name + " (" + node.target + (node.source.empty() ? "" : ", " + node.source) + ")");
    if (node.target == "getitem") {
      const auto& tuple = values.at(node.args.at(0).text);
      auto i = static_cast<size_t>(call.integer(1));
      if (i >= tuple.size() || !tuple[i]) call.fail("this output is not computed");
      values[node.name] = {tuple[i]};
      continue;
    }
    try {
      table().at(node.target)(call);
    } catch (const CompileError& e) {
      std::string what = e.what();
      if (what.find("node '" + node.name + "'") != std::string::npos) throw;
      call.fail(what);
    }
    // PyTorch's own shapes and dtypes are the truth to which every lowering is held.
    for (size_t i = 0; i < call.results.size() && i < node.outputs.size(); ++i) {
      Value* v = call.results[i];
      if (!v || !node.outputs[i].is_tensor) continue;
      if (v->type.dtype != call.result_dtype(i)) v = call.results[i] = b.cast(v, call.result_dtype(i));
      Shape wanted = call.result_shape(i);
      if (!same_sizes(v->type.shape, wanted)) {
        if (depends_on_data(wanted)) call.fail("a size depends on data, which is not supported yet");
        throw InternalError("node '" + node.name + "' (" + node.target + "): imported as " + v->type.str() +
                            ", but PyTorch gives " + shape_str(wanted));
      }
    }
    values[node.name] = call.results;
  }
  for (const auto& [name, node] : exported.outputs) {
    auto it = values.find(node);
    if (it == values.end() || it->second.empty() || !it->second[0]) {
      throw CompileError("output '" + name + "' (" + node + ") is not a tensor that the model computes");
    }
    graph.add_output(name, it->second[0]);
  }
  return graph;
}

}  // namespace cuvil::aten
