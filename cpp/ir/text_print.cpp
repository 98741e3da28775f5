#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "ir/attribute_spec.hpp"
#include "ir/text.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

std::string float_str(double v, DType dtype) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char text[40];
  // The shortest that reads back as the same value of the dtype.
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, v);
    double back = std::strtod(text, nullptr);
    if (dtype == DType::f64 ? back == v : static_cast<float>(back) == static_cast<float>(v)) break;
  }
  std::string s = text;
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

std::string element_str(const Tensor& t, int64_t i) {
  if (is_float(t.dtype())) return float_str(t.get_double(i), t.dtype());
  if (t.dtype() == DType::boolean) return t.get_int(i) ? "true" : "false";
  if (t.dtype() == DType::u64) return std::to_string(static_cast<uint64_t>(t.get_int(i)));
  return std::to_string(t.get_int(i));
}

std::string tensor_str(const Tensor& t, const PrintOptions& options) {
  std::string s = "dense<" + t.type().str() + ": ";
  int64_t n = t.num_elements();
  size_t bytes = size_of(t.dtype());
  const auto* data = static_cast<const char*>(t.data());
  bool splat = n > 1;
  for (int64_t i = 1; splat && i < n; ++i) splat = std::memcmp(data, data + static_cast<size_t>(i) * bytes, bytes) == 0;
  if ((splat || options.stand_in_constants) && n > options.max_constant_elements)
    return s + "splat " + element_str(t, 0) + ">";
  if (n > options.max_constant_elements) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < t.num_bytes(); ++i) hash = (hash ^ static_cast<unsigned char>(data[i])) * 1099511628211u;
    char text[32];
    std::snprintf(text, sizeof text, "#%016llx", static_cast<unsigned long long>(hash));
    return s + text + ">";
  }
  for (int64_t i = 0; i < n; ++i) s += (i ? ", " : "") + element_str(t, i);
  return s + ">";
}

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : graph_(graph), options_(options) {}

  std::string run() {
    std::string symbols = symbols_str();
    std::string s = "graph " + graph_.name + "(";
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Value& v = *graph_.inputs()[i];
      s += (i ? ", " : "") + name_of(&v) + ": " + v.type.str();
    }
    s += ")" + symbols + " {\n";
    for (const auto& node : graph_.nodes()) s += "  " + node_str(*node) + "\n";
    s += "  return ";
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      s += (i ? ", " : "") + quoted(graph_.outputs()[i].name) + " = " + name_of(graph_.outputs()[i].value);
    }
    return s + "\n}\n";
  }

 private:
  static std::string quoted(const std::string& text) {
    std::string s = "\"";
    for (char c : text) {
      if (c == '"' || c == '\\') s += '\\';
      s += c == '\n' ? ' ' : c;
    }
    return s + "\"";
  }

  std::string name_of(const Value* v) {
    auto it = names_.find(v);
    if (it != names_.end()) return it->second;
    std::string base;
    for (char c : v->name) base += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ? c : '_';
    if (base.empty()) base = std::to_string(next_++);
    std::string name = "%" + base;
    for (int n = 1; !taken_.insert(name).second; ++n) name = "%" + base + "." + std::to_string(n);
    names_[v] = name;
    return name;
  }

  std::string symbols_str() {
    std::map<std::string, Dim> symbols;
    auto add = [&](const Dim& d) {
      for (const Dim& s : d.symbols()) symbols.emplace(s.symbol_name(), s);
    };
    for (const auto& input : graph_.inputs()) {
      for (const Dim& d : input->type.shape) add(d);
    }
    for (const auto& node : graph_.nodes()) visit_dims(*node, add);
    if (symbols.empty()) return "";
    std::string s = " symbols(";
    bool first = true;
    for (const auto& [name, symbol] : symbols) {
      const DimAtom& atom = *symbol.terms()[0].factors[0];
      s += (first ? "" : ", ") + name + " in " + std::to_string(atom.min) + "..";
      if (atom.max != Dim::kUnbounded) s += std::to_string(atom.max);
      first = false;
    }
    return s + ")";
  }

  std::string attribute_str(const Attribute& a) {
    return std::visit(
        [&](const auto& v) -> std::string {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, int64_t>)
            return std::to_string(v);
          else if constexpr (std::is_same_v<T, double>)
            return float_str(v, DType::f64);
          else if constexpr (std::is_same_v<T, bool>)
            return v ? "true" : "false";
          else if constexpr (std::is_same_v<T, std::string>)
            return quoted(v);
          else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
            std::string s = "[";
            for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
            return s + "]";
          } else if constexpr (std::is_same_v<T, std::vector<Dim>>)
            return shape_str(v);
          else if constexpr (std::is_same_v<T, Dim>)
            return v.str();
          else if constexpr (std::is_same_v<T, DType>)
            return std::string(cuvil::name_of(v));
          else if constexpr (std::is_same_v<T, Fn>)
            return std::string(info(v).name);
          else if constexpr (std::is_same_v<T, ReduceFn>)
            return std::string(cuvil::name_of(v));
          else if constexpr (std::is_same_v<T, Region>)
            return print(*v, options_);
          else
            return tensor_str(v, options_);
        },
        a);
  }

  std::string node_str(const Node& node) {
    std::string operands;
    for (size_t i = 0; i < node.operands.size(); ++i) operands += (i ? ", " : "") + name_of(node.operands[i]);
    std::string s = name_of(node.result.get()) + " = " + std::string(info(node.op).name) + "(" + operands + ")";
    std::string attributes;
    for (const AttributeSpec& spec : attribute_specs(node.op)) {
      auto it = node.attributes.find(spec.name);
      if (it == node.attributes.end()) continue;
      attributes += (attributes.empty() ? "" : ", ") + std::string(spec.name) + "=" + attribute_str(it->second);
    }
    if (!attributes.empty()) s += " {" + attributes + "}";
    s += " : " + node.type().str();
    if (options_.sources && !node.source.empty()) s += "  // " + node.source;
    return s;
  }

  const Graph& graph_;
  const PrintOptions& options_;
  std::map<const Value*, std::string> names_;
  std::set<std::string> taken_;
  int next_ = 0;
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  return Printer(graph, options).run();
}

}  // namespace cuvil
