#include "import/onnx/import.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "import/onnx/call.hpp"
#include "support/error.hpp"
#include "support/mapped_file.hpp"

namespace cuvil::onnx {

namespace {

const std::map<std::string, Lowering, std::less<>>& table() {
  static const auto rows = [] {
    std::map<std::string, Lowering, std::less<>> t;
    for (const auto& family :
         {pointwise_rows(), shape_rows(), reduction_rows(), order_rows(), network_rows(), quantization_rows(),
          control_rows(), conversion_rows(), recurrent_rows(), attention_rows(), image_rows(), training_rows(),
          signal_rows(), random_rows(), einsum_rows(), detection_rows(), microsoft_rows(), ml_rows()}) {
      for (const Row& row : family) t.emplace(row.op, row.lower);
    }
    return t;
  }();
  return rows;
}

// Names of sizes in a file may be any text; symbols are identifiers.
std::string identifier(std::string_view param) {
  std::string name;
  for (char c : param) name += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "d" + name;
  return name;
}

// "s0 - 1" computes, "batch-size" is a name.
bool looks_computed(std::string_view text) {
  if (text.find_first_of("+*/%()") != std::string_view::npos) return true;
  return text.find(" - ") != std::string_view::npos;
}

using FunctionName = std::tuple<std::string_view, std::string_view, std::string_view>;  // domain, name, overload

class Importer : public Surroundings {
 public:
  Importer(const Source& source, const ImportOptions& options) : source_(source), options_(options) {}

  Graph run() {
    ModelProto model = read_model(source_.bytes);
    for (const FunctionProto& f : model.functions) functions_[{f.domain, f.name, f.overload}] = &f;
    Missing missing;
    find_missing(model.graph.nodes, missing);
    for (const FunctionProto& f : model.functions) find_missing(f.nodes, missing);
    refuse(missing);
    Level level;
    Scope scope;
    level_ = &level;
    scope_ = &scope;
    scope.level = &level;
    scope.opsets = &model.opsets;
    add_initializers(model.graph);
    for (const ValueInfoProto& input : model.graph.inputs) read_input(input);
    add_inputs();
    for (const auto& [name, shape] : options_.input_shapes) {
      if (!known_inputs_.count(name)) throw CompileError("the model has no input '" + name + "'");
    }
    for (const NodeProto& node : model.graph.nodes) add_node(node);
    for (const ValueInfoProto& output : model.graph.outputs) {
      level.graph.add_output(std::string(output.name), find(output.name, "the outputs"));
    }
    if (level.graph.outputs().empty()) throw CompileError("malformed ONNX file: the graph has no outputs");
    return std::move(level.graph);
  }

  Dim new_symbol(int64_t least) override {
    std::string name;
    do {
      name = "u" + std::to_string(next_symbol_++);
    } while (!symbol_names_.insert(name).second);
    level_->symbols.insert(name);
    return Dim::symbol(name, least);
  }

  std::vector<Value*> inline_graph(const GraphProto& graph, const std::vector<Value*>& inputs) override {
    Scope scope;
    scope.outer = scope_;
    scope.level = level_;
    scope.opsets = scope_->opsets;
    scope.attributes = scope_->attributes;
    if (inputs.size() != graph.inputs.size()) {
      throw CompileError("the graph '" + std::string(graph.name) + "' takes " + std::to_string(graph.inputs.size()) +
                         " inputs, not " + std::to_string(inputs.size()));
    }
    for (size_t i = 0; i < inputs.size(); ++i) scope.values[std::string(graph.inputs[i].name)] = inputs[i];
    Within within(*this, scope);
    add_initializers(graph);
    for (const NodeProto& node : graph.nodes) add_node(node);
    std::vector<Value*> outputs;
    for (const ValueInfoProto& output : graph.outputs) outputs.push_back(find(output.name, "the outputs"));
    return outputs;
  }

  BuiltRegion make_region(const std::vector<Type>& inputs, std::vector<Value*>& captured, const Fill& fill) override {
    Level level;
    level.outer = level_;
    level.captured = &captured;
    level.b.set_source(level_->b.source());
    std::vector<Value*> own;
    for (const Type& type : inputs) own.push_back(level.graph.add_input("", type));
    for (Value* v : captured) level.own[v] = level.graph.add_input(v->name, v->type);
    level_ = &level;
    try {
      for (Value* v : fill(level.b, own)) level.graph.add_output("", v);
    } catch (...) {
      level_ = level.outer;
      throw;
    }
    level_ = level.outer;
    bind_outer_symbols(level.graph, level.symbols, level_->b, captured);
    level.graph.name = "region";
    return {std::make_shared<Graph>(std::move(level.graph)), std::move(level.symbols)};
  }

  void need_value(const Value* v, const std::string& why) override {
    Needed needed;
    find_needed(v, level_, needed);
    if (!needed.decidable || (needed.inputs.empty() && needed.axes.empty())) return;
    throw ValuesNeeded(why, {needed.inputs.begin(), needed.inputs.end()}, {needed.axes.begin(), needed.axes.end()},
                       input_order_);
  }

  Value* capture(Value* outer) override { return bring(outer, level_->outer, level_); }

 private:
  // A graph being built: the model's, or a region's.
  struct Level {
    Graph graph;
    Builder b{graph};
    KnownSizes known;
    Level* outer = nullptr;
    std::vector<Value*>* captured = nullptr;
    std::map<const Value*, Value*> own;  // by the value of the outer level
    std::set<std::string> symbols;       // made here
  };

  // Names that nodes see: a graph sees those around it, a function only its own.
  struct Scope {
    Scope* outer = nullptr;
    Level* level = nullptr;
    std::map<std::string, Value*, std::less<>> values;
    std::map<std::string, std::string, std::less<>>
        not_computed;  // outputs that a lowering leaves out, and their nodes
    const std::map<std::string, int64_t>* opsets = nullptr;
    const std::vector<AttributeProto>* attributes = nullptr;  // in a function: those of its call
  };

  class Within {
   public:
    Within(Importer& importer, Scope& scope) : importer_(importer), before_(std::exchange(importer.scope_, &scope)) {}
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    ~Within() { importer_.scope_ = before_; }

   private:
    Importer& importer_;
    Scope* before_;
  };

  // What decides a value: small inputs, and sizes of inputs.
  struct Needed {
    std::set<const Value*> seen;
    std::set<std::string> inputs;
    std::set<ValuesNeeded::Axis> axes;
    bool decidable = true;
  };

  void find_needed(const Value* v, const Level* level, Needed& needed) const {
    constexpr int64_t kMostElements = 4096;
    if (!needed.seen.insert(v).second) return;
    if (v->producer) {
      if (v->producer->op == Op::DimValue) {
        for (const Dim& s : v->producer->get<Dim>("value").symbols()) find_needed_size(s, level, needed);
      }
      for (const Value* operand : v->producer->operands) find_needed(operand, level, needed);
      return;
    }
    // A region's input stands for a value of the graph around it.
    for (const auto& [outer, own] : level->own) {
      if (own == v) return find_needed(outer, level->outer, needed);
    }
    const Dim n = v->type.num_elements();
    const bool small = v->type.rank() <= 1 && (!n.is_constant() || n.value() <= kMostElements);
    needed.decidable &= small && !level->outer;
    needed.inputs.insert(v->name);
  }

  void find_needed_size(const Dim& symbol, const Level* level, Needed& needed) const {
    for (; level; level = level->outer) {
      for (const auto& node : level->graph.nodes()) {
        if (node->op != Op::Sizes) continue;
        const std::vector<Dim>& bound = node->dims("dims");
        if (std::find(bound.begin(), bound.end(), symbol) != bound.end()) {
          return find_needed(node->operand(0), level, needed);
        }
      }
      if (level->outer) continue;
      for (const auto& input : level->graph.inputs()) {
        for (size_t axis = 0; axis < input->type.shape.size(); ++axis) {
          if (input->type.shape[axis] != symbol) continue;
          needed.axes.emplace(input->name, static_cast<int64_t>(axis));
          return;
        }
      }
    }
    needed.decidable = false;
  }

  using Missing = std::map<std::string, std::vector<std::string>>;

  static std::string full_name(const NodeProto& node) {
    return (node.domain.empty() ? "" : std::string(node.domain) + ".") + std::string(node.op_type);
  }

  const FunctionProto* function_of(const NodeProto& node) const {
    auto it = functions_.find({node.domain, node.op_type, node.overload});
    return it == functions_.end() ? nullptr : it->second;
  }

  void find_missing(const std::vector<NodeProto>& nodes, Missing& missing) const {
    for (const NodeProto& node : nodes) {
      for (const AttributeProto& a : node.attributes) {
        if (!a.graph.empty()) find_missing(read_graph(a.graph).nodes, missing);
      }
      if (function_of(node) || table().count(full_name(node))) continue;
      missing[full_name(node)].push_back(std::string(!node.name.empty()     ? node.name
                                                     : node.outputs.empty() ? "?"
                                                                            : node.outputs[0]));
    }
  }

  static void refuse(const Missing& missing) {
    if (missing.empty()) return;
    std::string message = "the model uses operators that are not supported:";
    for (const auto& [op, nodes] : missing) {
      message += "\n  " + op + " at";
      for (size_t i = 0; i < nodes.size() && i < 8; ++i) message += (i ? ", " : " ") + nodes[i];
      if (nodes.size() > 8) message += ", and " + std::to_string(nodes.size() - 8) + " more";
    }
    throw CompileError(message + "\nReplace them in the model, or split the model around them.");
  }

  void add_initializers(const GraphProto& graph) {
    if (graph.has_sparse_initializers) throw CompileError("sparse initialisers are not supported");
    for (std::string_view message : graph.initializers) {
      NamedTensor t = read_tensor(message, source_);
      if (scope_->values.count(t.name) && !scope_->outer)
        throw CompileError("malformed ONNX file: two initialisers have the name '" + t.name + "'");
      if (scope_->values.count(t.name)) continue;  // the value passed in goes before a default
      level_->b.set_source(t.name);
      scope_->values[t.name] = level_->b.constant(std::move(t.tensor));
    }
  }

  void read_input(const ValueInfoProto& input) {
    std::string name(input.name);
    input_order_.push_back(name);
    if (!known_inputs_.insert(name).second)
      throw CompileError("malformed ONNX file: two inputs have the name '" + name + "'");
    if (scope_->values.count(name)) {  // an initialiser gives it a value
      input_order_.pop_back();
      return;
    }
    if (auto given = options_.input_values.find(name); given != options_.input_values.end()) {
      scope_->values[name] = level_->b.constant(given->second);
      return;
    }
    std::string where = "input '" + name + "'";
    if (!input.is_tensor) throw CompileError(where + " is not a tensor, which is not supported");
    Type type{dtype_of(input.elem_type, where), {}};
    auto wanted = options_.input_shapes.find(name);
    if (wanted != options_.input_shapes.end()) {
      if (input.has_shape && wanted->second.size() != input.dims.size()) {
        throw CompileError(where + ": input_spec has rank " + std::to_string(wanted->second.size()) + ", the model " +
                           std::to_string(input.dims.size()));
      }
      for (size_t i = 0; i < wanted->second.size(); ++i)
        type.shape.push_back(size_from_text(wanted->second[i], name, i));
    } else {
      if (!input.has_shape) throw CompileError(where + " has no shape in the file; give one in input_spec");
      for (size_t i = 0; i < input.dims.size(); ++i) {
        const DimProto& d = input.dims[i];
        // Some exporters write -1 for a size they do not know.
        const bool known = d.has_value && d.value >= 0;
        type.shape.push_back(known ? Dim(d.value) : size_from_text(d.has_value ? "" : std::string(d.param), name, i));
      }
    }
    inputs_.emplace_back(std::move(name), std::move(type));
  }

  void add_inputs() {
    std::map<std::string, Dim> fixed;
    for (const auto& [name, type] : inputs_) {
      for (size_t axis = 0; axis < type.shape.size(); ++axis) {
        auto it = options_.input_sizes.find({name, static_cast<int64_t>(axis)});
        const Dim& d = type.shape[axis];
        if (it != options_.input_sizes.end() && d.is_symbol()) fixed.insert_or_assign(d.symbol_name(), it->second);
      }
    }
    for (auto& [name, type] : inputs_) {
      for (Dim& d : type.shape) d = d.substitute(fixed);
      scope_->values[name] = level_->graph.add_input(name, std::move(type));
    }
  }

  Dim size_from_text(const std::string& text, const std::string& input, size_t axis) {
    if (text.empty()) return symbol_of(input + "_" + std::to_string(axis), true);
    bool number = text.find_first_not_of("0123456789") == std::string::npos && text.size() < 18;
    if (number) return std::stoll(text);
    if (looks_computed(text)) {
      try {
        return Dim::parse(text, [this](const std::string& name) { return symbol_of(name, false); });
      } catch (const CompileError&) {
        // Not an expression after all: a name with odd letters.
      }
    }
    return symbol_of(text, false);
  }

  // Equal texts share a symbol. A size of its own shares it with nothing, and neither do two texts that become one
  // identifier.
  Dim symbol_of(const std::string& text, bool own) {
    if (auto it = symbols_.find(text); !own && it != symbols_.end()) return it->second;
    std::string name = identifier(text);
    while (!symbol_names_.insert(name).second) name += "_";
    Dim symbol = Dim::symbol(name, 0);
    if (!own) symbols_.emplace(text, symbol);
    return symbol;
  }

  // The value of one level on a level inside it. What is known of it, a constant or sizes, is known there too.
  Value* bring(Value* v, Level* from, Level* to) {
    if (from == to) return v;
    v = bring(v, from, to->outer);
    auto [it, is_new] = to->own.emplace(v, nullptr);
    if (!is_new) return it->second;
    const KnownSizes& known = to->outer->known;
    if (const Tensor* t = constant_of(v)) {
      it->second = to->b.constant(*t);
    } else if (auto sizes = known.find(v); sizes != known.end()) {
      it->second = value_of_sizes(to->b, to->known, sizes->second, v->type.rank() == 0, v->type.dtype);
    } else {
      it->second = to->graph.add_input(v->name, v->type);
      to->captured->push_back(v);
    }
    return it->second;
  }

  Value* find(std::string_view name, const std::string& user) {
    for (Scope* scope = scope_; scope; scope = scope->outer) {
      if (auto missing = scope->not_computed.find(name); missing != scope->not_computed.end()) {
        throw CompileError("node '" + missing->second + "': its output '" + std::string(name) +
                           "' is not supported yet");
      }
      auto it = scope->values.find(name);
      if (it == scope->values.end()) continue;
      if (it->second) return bring(it->second, scope->level, level_);
      break;
    }
    throw CompileError("malformed ONNX file: '" + std::string(name) + "' is used by " + user +
                       " before anything defines it");
  }

  // In a function, attributes that refer to the call's have their values, or are left out where the call has none.
  NodeProto with_attributes(const NodeProto& node) const {
    NodeProto copy = node;
    copy.attributes.clear();
    for (const AttributeProto& a : node.attributes) {
      if (a.reference.empty()) {
        copy.attributes.push_back(a);
        continue;
      }
      for (const AttributeProto& given : *scope_->attributes) {
        if (given.name != a.reference) continue;
        copy.attributes.push_back(given);
        copy.attributes.back().name = a.name;
      }
    }
    return copy;
  }

  void add_node(const NodeProto& written) {
    std::optional<NodeProto> copy;
    if (scope_->attributes) copy = with_attributes(written);
    const NodeProto& node = copy ? *copy : written;
    std::vector<Value*> inputs;
    std::string label(node.name.empty() ? node.op_type : node.name);
    for (std::string_view name : node.inputs)
      inputs.push_back(name.empty() ? nullptr : find(name, "node '" + label + "'"));
    auto opset = scope_->opsets->find(std::string(node.domain));
    Call call(level_->b, node, std::move(inputs), opset == scope_->opsets->end() ? 1 : opset->second, source_,
              level_->known, *this);
    level_->b.set_source(call.describe());
    if (const FunctionProto* function = function_of(node)) {
      call.results = call_function(*function, node, call.inputs());
    } else {
      try {
        table().find(full_name(node))->second(call);
        fold_small_results(call);
        propagate_sizes(call);
      } catch (const CompileError& e) {
        std::string what = e.what();
        if (what.rfind("node '", 0) == 0) throw;
        call.fail(what);
      }
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      Value* v = i < call.results.size() ? call.results[i] : nullptr;
      if (scope_->values.count(node.outputs[i]) || scope_->not_computed.count(node.outputs[i]))
        throw CompileError("malformed ONNX file: '" + std::string(node.outputs[i]) + "' is defined twice");
      // A missing value is only an error when somebody uses it.
      if (v) {
        scope_->values[std::string(node.outputs[i])] = v;
      } else {
        scope_->not_computed[std::string(node.outputs[i])] = call.describe();
      }
    }
  }

  std::vector<Value*> call_function(const FunctionProto& function, const NodeProto& node,
                                    const std::vector<Value*>& inputs) {
    constexpr int kDeepest = 64;
    if (depth_ >= kDeepest) throw CompileError("the function '" + std::string(function.name) + "' calls itself");
    Scope scope;
    scope.level = level_;
    scope.opsets = &function.opsets;
    std::vector<AttributeProto> attributes = node.attributes;
    for (const AttributeProto& d : function.defaults) {
      bool given = std::any_of(attributes.begin(), attributes.end(), [&](const auto& a) { return a.name == d.name; });
      if (!given) attributes.push_back(d);
    }
    scope.attributes = &attributes;
    if (inputs.size() > function.inputs.size()) {
      throw CompileError("the function '" + std::string(function.name) + "' takes " +
                         std::to_string(function.inputs.size()) + " inputs, not " + std::to_string(inputs.size()));
    }
    for (size_t i = 0; i < function.inputs.size(); ++i) {
      scope.values[std::string(function.inputs[i])] = i < inputs.size() ? inputs[i] : nullptr;
    }
    Within within(*this, scope);
    ++depth_;
    for (const NodeProto& inner : function.nodes) add_node(inner);
    --depth_;
    std::vector<Value*> outputs;
    for (size_t i = 0; i < node.outputs.size() && i < function.outputs.size(); ++i) {
      outputs.push_back(find(function.outputs[i], "the outputs of function '" + std::string(function.name) + "'"));
    }
    return outputs;
  }

  const Source& source_;
  const ImportOptions& options_;
  std::map<FunctionName, const FunctionProto*> functions_;
  Level* level_ = nullptr;
  Scope* scope_ = nullptr;
  int depth_ = 0;
  std::set<std::string> known_inputs_;
  std::vector<std::pair<std::string, Type>> inputs_;
  std::vector<std::string> input_order_;  // of those that a call passes
  std::map<std::string, Dim> symbols_;    // by their text in the file
  std::set<std::string> symbol_names_;
  int next_symbol_ = 0;
};

}  // namespace

Graph import_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const ImportOptions& options) {
  Source source{bytes, std::move(owner), "", ""};
  return Importer(source, options).run();
}

Graph import_file(const std::string& path, const ImportOptions& options) {
  MappedFile file = map_file(path);
  std::string folder = std::filesystem::path(path).parent_path().string();
  Source source{file.bytes, file.owner, folder.empty() ? "." : folder, path};
  return Importer(source, options).run();
}

}  // namespace cuvil::onnx
