#include "import/aten/import.hpp"

#include <algorithm>
#include <set>

#include "import/aten/call.hpp"
#include "import/common/control_flow.hpp"
#include "support/error.hpp"

namespace cuvil::aten {

namespace {

const std::map<std::string, Lowering>& table() {
  static const std::map<std::string, Lowering> rows = [] {
    std::map<std::string, Lowering> t;
    for (const auto& family : {pointwise_rows(), shape_rows(), reduction_rows(), scatter_rows(), order_rows(),
                               network_rows(), creation_rows(), data_size_rows(), special_rows(), pooling_rows(),
                               view_rows(), resize_rows(), distance_rows(), segment_rows()}) {
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

bool is_built_in(const std::string& target) {
  return target == "getitem" || target == "if" || target == "loop" || target == "sizes" || target == "compare" ||
         target == "check_equal" || target == "aten._assert_async.msg";
}

using Missing = std::map<std::string, std::vector<const Node*>>;

void find_missing(const ExportedGraph& exported, Missing& missing) {
  for (const Node& node : exported.nodes) {
    for (const auto& region : node.regions) find_missing(*region, missing);
    if (is_built_in(node.target) || computes_sizes(node) || is_assertion(node)) continue;
    if (!table().count(node.target)) missing[node.target].push_back(&node);
  }
}

void check_supported(const ExportedGraph& exported) {
  Missing missing;
  find_missing(exported, missing);
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

class Importer {
 public:
  explicit Importer(const ExportedGraph& exported) : exported_(exported) {
    for (const Symbol& s : exported.symbols) symbols_.emplace(s.name, Dim::symbol(s.name, s.min, s.max));
  }

  Graph run() {
    Level level;
    for (const Input& input : exported_.inputs) {
      level.values[input.name] = {level.graph.add_input(input.label, bound(type_of(input.meta)))};
    }
    input_symbols_ = bound_;
    add_body(exported_, level);
    for (const auto& [name, node] : exported_.outputs) level.graph.add_output(name, output_of(level, name, node));
    return std::move(level.graph);
  }

 private:
  // A graph being built: the model's, or a region's.
  struct Level {
    Graph graph;
    Builder b{graph};
    Values values;
    SymbolNames symbols;  // made here
    std::map<std::string, std::set<size_t>> used_outputs;
  };

  Dim parse(const std::string& text) const {
    return Dim::parse(text, [&](const std::string& name) {
      auto it = symbols_.find(name);
      if (it == symbols_.end()) throw CompileError("size symbol '" + name + "' has no range");
      return it->second;
    });
  }

  Type type_of(const Meta& meta) const {
    Type type{dtype_of(meta.dtype), {}};
    for (const std::string& s : meta.sizes) type.shape.push_back(parse(s));
    return type;
  }

  std::vector<Type> types_of(const Node& node) {
    std::vector<Type> types;
    for (const Meta& meta : node.outputs) types.push_back(bound(type_of(meta)));
    return types;
  }

  bool depends_on_data(const Shape& shape) const {
    return std::any_of(shape.begin(), shape.end(), [&](const Dim& d) {
      const std::vector<Dim> symbols = d.symbols();
      return std::any_of(symbols.begin(), symbols.end(),
                         [&](const Dim& s) { return !input_symbols_.count(s.symbol_name()); });
    });
  }

  // Notes that a tensor of this type gives values to symbols.
  Type bound(Type type) {
    for (const Dim& d : type.shape) {
      if (d.is_symbol()) bound_.insert(d.symbol_name());
    }
    return type;
  }

  // PyTorch gives a size that depends on data a symbol of its own, where the importer knows an expression.
  void name_sizes(const Node& node, const std::vector<Value*>& results) {
    for (size_t i = 0; i < results.size() && i < node.outputs.size(); ++i) {
      const std::vector<std::string>& sizes = node.outputs[i].sizes;
      if (!results[i] || results[i]->type.shape.size() != sizes.size()) continue;
      for (size_t axis = 0; axis < sizes.size(); ++axis) {
        auto it = symbols_.find(sizes[axis]);
        if (it == symbols_.end() || !bound_.insert(sizes[axis]).second) continue;
        it->second = results[i]->type.shape[axis];
      }
    }
  }

  static Value* output_of(const Level& level, const std::string& name, const std::string& node) {
    auto it = level.values.find(node);
    if (it == level.values.end() || it->second.empty() || !it->second[0]) {
      throw CompileError("output '" + name + "' (" + node + ") is not a tensor that the model computes");
    }
    return it->second[0];
  }

  void add_body(const ExportedGraph& body, Level& level) {
    for (const Weight& w : body.weights) {
      level.b.set_source(w.name);
      level.values[w.name] = {level.b.constant(w.tensor)};
    }
    for (const Node& node : body.nodes) {
      if (node.target == "getitem")
        level.used_outputs[node.args.at(0).text].insert(static_cast<size_t>(node.args.at(1).integer));
    }
    for (const Node& node : body.nodes) add_node(node, level);
  }

  void add_node(const Node& node, Level& level) {
    if (node.target == "aten._assert_async.msg") return add_check(node, level);
    if ((computes_sizes(node) && !is_built_in(node.target)) || is_assertion(node)) return;
    Builder& b = level.b;
    Call call(b, node, level.values, symbols_, level.used_outputs[node.name]);
    b.set_source(node.name + " (" + node.target + (node.source.empty() ? "" : ", " + node.source) + ")");
    if (node.target == "getitem") {
      const auto& tuple = level.values.at(node.args.at(0).text);
      auto i = static_cast<size_t>(call.integer(1));
      if (i >= tuple.size() || !tuple[i]) call.fail("this output is not computed");
      level.values[node.name] = {tuple[i]};
      return;
    }
    try {
      if (node.target == "if") {
        call.results = branch(node, call, level);
      } else if (node.target == "loop") {
        call.results = loop(node, call, level);
      } else if (node.target == "sizes") {
        bind_sizes(call, level);
      } else if (node.target == "compare") {
        call.set(compare(call));
      } else if (node.target == "check_equal") {
        b.node(Op::CheckEqual, {},
               {{"lhs", std::vector<Dim>{call.size(0)}},
                {"rhs", std::vector<Dim>{call.size(1)}},
                {"message", call.text(2, nullptr, "")}});
      } else {
        table().at(node.target)(call);
      }
    } catch (const CompileError& e) {
      std::string what = e.what();
      if (what.find("node '") == 0) throw;
      call.fail(what);
    }
    name_sizes(node, call.results);
    // PyTorch's own shapes and dtypes are the truth to which every lowering is held.
    for (size_t i = 0; i < call.results.size() && i < node.outputs.size(); ++i) {
      Value* v = call.results[i];
      if (!v || !node.outputs[i].is_tensor) continue;
      if (v->type.dtype != call.result_dtype(i)) v = call.results[i] = b.cast(v, call.result_dtype(i));
      Shape wanted = call.result_shape(i);
      if (same_sizes(v->type.shape, wanted)) continue;
      if (v->type.shape.size() == wanted.size() && (depends_on_data(v->type.shape) || depends_on_data(wanted))) {
        b.node(Op::CheckEqual, {}, {{"lhs", v->type.shape}, {"rhs", wanted}});
      } else {
        throw InternalError("node '" + node.name + "' (" + node.target + "): imported as " + v->type.str() +
                            ", but PyTorch gives " + shape_str(wanted));
      }
    }
    level.values[node.name] = call.results;
  }

  // The region's inputs are `own` (an empty name: no node uses it) and then the operands, which are captured unless
  // they are constants.
  BuiltRegion build_region(const ExportedGraph& region, const std::vector<std::string>& own,
                           const std::vector<Type>& own_types, const std::vector<Value*>& operands, Level& outer,
                           std::vector<Value*>& captured) {
    Level level;
    level.b.set_source(outer.b.source());
    for (size_t i = 0; i < own.size(); ++i) {
      Value* v = level.graph.add_input(own[i], own_types[i]);
      if (!own[i].empty()) level.values[own[i]] = {v};
    }
    std::map<const Value*, Value*> inside;
    for (Value* v : captured) inside[v] = level.graph.add_input(v->name, v->type);
    const size_t first = region.inputs.size() - operands.size();
    for (size_t i = 0; i < operands.size(); ++i) {
      Value* v = operands[i];
      Value*& here = inside[v];
      if (const Tensor* t = constant_of(v)) {
        if (!here) here = level.b.constant(*t);
      } else if (!here) {
        here = level.graph.add_input(v->name, v->type);
        captured.push_back(v);
      }
      level.values[region.inputs[first + i].name] = {here};
    }
    add_body(region, level);
    for (const auto& [name, node] : region.outputs) level.graph.add_output("", output_of(level, name, node));
    note_symbols(level);
    bind_outer_symbols(level.graph, level.symbols, outer.b, captured);
    level.graph.name = "region";
    return {std::make_shared<Graph>(std::move(level.graph)), std::move(level.symbols)};
  }

  static void note_symbols(Level& level) {
    for (const auto& node : level.graph.nodes()) {
      const char* attribute = node->op == Op::Sizes ? "dims" : node->op == Op::Result ? "shape" : nullptr;
      if (!attribute) continue;
      for (const Dim& d : node->dims(attribute)) {
        if (d.is_symbol()) level.symbols.insert(d.symbol_name());
      }
    }
  }

  std::vector<Value*> branch(const Node& node, Call& c, Level& level) {
    Value* condition = c.b.reshape(c.tensor(0), {});
    const std::vector<Value*> operands = c.tensors(1);
    std::vector<Value*> captured;
    BuiltRegion then = build_region(*node.regions.at(0), {}, {}, operands, level, captured);
    BuiltRegion otherwise = build_region(*node.regions.at(1), {}, {}, operands, level, captured);
    return add_if(c.b, condition, captured, std::move(then), std::move(otherwise), types_of(node));
  }

  std::vector<Value*> loop(const Node& node, Call& c, Level& level) {
    const ExportedGraph& region = *node.regions.at(0);
    Value* trips = c.operand(0, DType::i64);
    Value* condition = c.b.reshape(c.tensor(1), {});
    const std::vector<Value*> initial = c.tensors(2), operands = c.tensors(3);
    std::vector<std::string> own = {region.inputs.at(0).name, ""};
    std::vector<Type> types = {{DType::i64, {}}, {DType::boolean, {}}};
    for (size_t i = 0; i < initial.size(); ++i) {
      own.push_back(region.inputs.at(i + 1).name);
      types.push_back(bound(type_of(region.inputs[i + 1].meta)));
    }
    std::vector<Value*> captured;
    BuiltRegion body = build_region(region, own, types, operands, level, captured);
    return add_loop(c.b, c.b.reshape(trips, {}), condition, initial, captured, std::move(body), types_of(node));
  }

  void bind_sizes(Call& c, Level& level) {
    std::vector<Dim> symbols = c.sizes(1);
    bound({DType::i64, symbols});
    const auto count = static_cast<int64_t>(symbols.size());
    level.b.node(Op::Sizes, {level.b.cast(level.b.reshape(c.tensor(0), {count}), DType::i64)}, {{"dims", symbols}});
  }

  static Value* compare(Call& c) {
    auto fn = fn_from_name(c.text(0, nullptr, ""));
    CUVIL_CHECK(fn, "no such comparison of sizes");
    return c.b.binary(*fn, c.b.dim_value(c.size(1)), c.b.dim_value(c.size(2)));
  }

  // The condition becomes a size, of which the check is made.
  void add_check(const Node& node, Level& level) {
    Builder& b = level.b;
    Call call(b, node, level.values, symbols_, level.used_outputs[node.name]);
    b.set_source(node.name + " (" + node.target + (node.source.empty() ? "" : ", " + node.source) + ")");
    const Dim holds = Dim::symbol("check" + std::to_string(checks_++), 0, 1);
    Value* condition = b.cast(b.cast(call.tensor(0), DType::boolean), DType::i64);
    b.node(Op::Sizes, {b.reshape(condition, {1})}, {{"dims", std::vector<Dim>{holds}}});
    b.node(Op::CheckEqual, {},
           {{"lhs", std::vector<Dim>{holds}},
            {"rhs", std::vector<Dim>{Dim(1)}},
            {"message", call.text(1, nullptr, "a check of the model fails")}});
  }

  const ExportedGraph& exported_;
  std::map<std::string, Dim> symbols_;
  SymbolNames input_symbols_;
  SymbolNames bound_;  // those that have a value where they are first used
  int checks_ = 0;
};

}  // namespace

std::vector<std::string> supported_targets() {
  std::vector<std::string> targets;
  for (const auto& [target, lowering] : table()) targets.push_back(target);
  return targets;
}

Graph import_graph(const ExportedGraph& exported) {
  check_supported(exported);
  return Importer(exported).run();
}

}  // namespace cuvil::aten
