#include "import/onnx/import.hpp"

#include <filesystem>
#include <set>

#include "import/onnx/call.hpp"
#include "support/error.hpp"
#include "support/mapped_file.hpp"

namespace cuvil::onnx {

namespace {

const std::map<std::string, Lowering, std::less<>>& table() {
  static const auto rows = [] {
    std::map<std::string, Lowering, std::less<>> t;
    for (const auto& family :
         {pointwise_rows(), shape_rows(), reduction_rows(), order_rows(), network_rows(), quantization_rows()}) {
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

class Importer {
 public:
  Importer(const Source& source, const ImportOptions& options) : source_(source), options_(options), b_(graph_) {}

  Graph run() {
    ModelProto model = read_model(source_.bytes);
    auto it = model.opsets.find("");
    int64_t opset = it == model.opsets.end() ? 1 : it->second;
    check_supported(model.graph);
    if (model.graph.has_sparse_initializers) throw CompileError("sparse initialisers are not supported");
    for (std::string_view message : model.graph.initializers) {
      NamedTensor t = read_tensor(message, source_);
      if (values_.count(t.name))
        throw CompileError("malformed ONNX file: two initialisers have the name '" + t.name + "'");
      b_.set_source(t.name);
      values_[t.name] = b_.constant(std::move(t.tensor));
    }
    for (const ValueInfoProto& input : model.graph.inputs) add_input(input);
    for (const auto& [name, shape] : options_.input_shapes) {
      if (!known_inputs_.count(name)) throw CompileError("the model has no input '" + name + "'");
    }
    for (const NodeProto& node : model.graph.nodes) add_node(node, opset);
    for (const ValueInfoProto& output : model.graph.outputs) {
      graph_.add_output(std::string(output.name), find(output.name, "the outputs"));
    }
    if (graph_.outputs().empty()) throw CompileError("malformed ONNX file: the graph has no outputs");
    return std::move(graph_);
  }

 private:
  void check_supported(const GraphProto& graph) {
    std::map<std::string, std::vector<std::string>> missing;
    for (const NodeProto& node : graph.nodes) {
      if (node.domain.empty() && table().count(node.op_type)) continue;
      std::string op = (node.domain.empty() ? "" : std::string(node.domain) + ".") + std::string(node.op_type);
      missing[op].push_back(std::string(!node.name.empty() ? node.name : node.outputs.empty() ? "?" : node.outputs[0]));
    }
    if (missing.empty()) return;
    std::string message = "the model uses operators that are not supported:";
    for (const auto& [op, nodes] : missing) {
      message += "\n  " + op + " at";
      for (size_t i = 0; i < nodes.size() && i < 8; ++i) message += (i ? ", " : " ") + nodes[i];
      if (nodes.size() > 8) message += ", and " + std::to_string(nodes.size() - 8) + " more";
    }
    throw CompileError(message + "\nReplace them in the model, or split the model around them.");
  }

  void add_input(const ValueInfoProto& input) {
    std::string name(input.name);
    if (!known_inputs_.insert(name).second)
      throw CompileError("malformed ONNX file: two inputs have the name '" + name + "'");
    if (values_.count(name)) return;  // an initialiser gives it a value
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
        if (d.has_value && d.value < 0) throw CompileError(where + " has a negative size");
        type.shape.push_back(d.has_value ? Dim(d.value) : size_from_text(std::string(d.param), name, i));
      }
    }
    values_[name] = graph_.add_input(name, std::move(type));
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

  Value* find(std::string_view name, const std::string& user) {
    auto it = values_.find(name);
    if (auto missing = not_computed_.find(name); missing != not_computed_.end()) {
      throw CompileError("node '" + missing->second + "': its output '" + std::string(name) + "' is not supported yet");
    }
    if (it == values_.end() || !it->second)
      throw CompileError("malformed ONNX file: '" + std::string(name) + "' is used by " + user +
                         " before anything defines it");
    return it->second;
  }

  void add_node(const NodeProto& node, int64_t opset) {
    std::vector<Value*> inputs;
    std::string label(node.name.empty() ? node.op_type : node.name);
    for (std::string_view name : node.inputs)
      inputs.push_back(name.empty() ? nullptr : find(name, "node '" + label + "'"));
    Call call(b_, node, std::move(inputs), opset, source_, known_sizes_);
    b_.set_source(call.describe());
    try {
      table().find(node.op_type)->second(call);
      fold_small_results(call);
      propagate_sizes(call);
    } catch (const CompileError& e) {
      std::string what = e.what();
      if (what.rfind("node '", 0) == 0) throw;
      call.fail(what);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      Value* v = i < call.results.size() ? call.results[i] : nullptr;
      if (values_.count(node.outputs[i]) || not_computed_.count(node.outputs[i]))
        throw CompileError("malformed ONNX file: '" + std::string(node.outputs[i]) + "' is defined twice");
      // A missing value is only an error when somebody uses it.
      if (v) {
        values_[std::string(node.outputs[i])] = v;
      } else {
        not_computed_[std::string(node.outputs[i])] = call.describe();
      }
    }
  }

  const Source& source_;
  const ImportOptions& options_;
  Graph graph_;
  Builder b_;
  std::map<std::string, Value*, std::less<>> values_;
  std::map<std::string, std::string, std::less<>> not_computed_;  // outputs that a lowering leaves out, and their nodes
  std::set<std::string> known_inputs_;
  std::map<std::string, Dim> symbols_;  // by their text in the file
  std::set<std::string> symbol_names_;
  KnownSizes known_sizes_;
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
