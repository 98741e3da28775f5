#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include "ir/attribute_spec.hpp"
#include "ir/text.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph run() {
    Graph parsed = graph();
    skip_space();
    if (pos_ != text_.size()) fail("text after the graph");
    return parsed;
  }

 private:
  Graph graph() {
    Graph graph;
    expect("graph");
    graph.name = identifier();
    expect("(");
    // Bounds of symbols come after the inputs that use them, so they are read first.
    size_t inputs = pos_;
    skip_balanced();
    if (accept("symbols")) parse_symbols();
    expect("{");
    size_t body = pos_;
    pos_ = inputs;
    if (!accept(")")) {
      do {
        std::string name = value_name();
        expect(":");
        define(name, graph.add_input(given_name(name), type()));
      } while (accept(","));
      expect(")");
    }
    pos_ = body;
    while (!accept("return")) parse_node(graph);
    skip_space();
    if (pos_ < text_.size() && text_[pos_] != '}') {
      do {
        std::string name = quoted();
        expect("=");
        graph.add_output(name, use());
      } while (accept(","));
    }
    expect("}");
    return graph;
  }

  // Values of a region are its own; symbols may be those of the graph around it.
  Region region() {
    auto outer = std::exchange(values_, {});
    auto parsed = std::make_shared<const Graph>(graph());
    values_ = std::move(outer);
    return parsed;
  }

  [[noreturn]] void fail(const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < pos_ && i < text_.size(); ++i) {
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    throw CompileError("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what);
  }

  void skip_space() {
    while (pos_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[pos_]))) {
        ++pos_;
      } else if (text_.substr(pos_, 2) == "//") {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else {
        return;
      }
    }
  }

  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(pos_, token.size()) != token) return false;
    bool word = token.back() != '.' && is_word(token.back());
    if (word && pos_ + token.size() < text_.size() && is_word(text_[pos_ + token.size()])) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '" + std::string(token) + "'");
  }
  std::string identifier() {
    skip_space();
    std::string s;
    while (pos_ < text_.size() && is_word(text_[pos_])) s += text_[pos_++];
    if (s.empty()) fail("expected a name");
    return s;
  }
  std::string value_name() {
    expect("%");
    return "%" + identifier();
  }
  std::string quoted() {
    expect("\"");
    std::string s;
    while (pos_ < text_.size() && text_[pos_] != '"') {
      if (text_[pos_] == '\\') ++pos_;
      if (pos_ < text_.size()) s += text_[pos_++];
    }
    if (pos_ >= text_.size()) fail("unterminated string");
    ++pos_;
    return s;
  }
  // Numbers are given when printing to values without a name.
  static std::string given_name(const std::string& name) {
    return name.find_first_not_of("%0123456789") == std::string::npos ? "" : name.substr(1);
  }
  void skip_balanced() {
    int depth = 1;
    while (depth > 0) {
      if (pos_ >= text_.size()) fail("unbalanced '('");
      depth += text_[pos_] == '(';
      depth -= text_[pos_] == ')';
      ++pos_;
    }
  }

  void parse_symbols() {
    expect("(");
    do {
      std::string name = identifier();
      expect("in");
      int64_t low = integer();
      expect("..");
      skip_space();
      int64_t high = Dim::kUnbounded;
      if (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) high = integer();
      symbols_.insert_or_assign(name, Dim::symbol(name, low, high));
    } while (accept(","));
    expect(")");
  }

  int64_t integer() {
    skip_space();
    size_t begin = pos_;
    if (pos_ < text_.size() && text_[pos_] == '-') ++pos_;
    while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) ++pos_;
    if (pos_ == begin) fail("expected an integer");
    std::string s(text_.substr(begin, pos_ - begin));
    errno = 0;
    if (s[0] != '-' && s.size() > 18) return static_cast<int64_t>(std::strtoull(s.c_str(), nullptr, 10));
    int64_t v = std::strtoll(s.c_str(), nullptr, 10);
    if (errno) fail("the integer does not fit 64 bits");
    return v;
  }
  double real() {
    skip_space();
    double sign = accept("-") ? -1 : 1;
    if (accept("inf")) return sign * std::numeric_limits<double>::infinity();
    if (accept("nan")) return std::numeric_limits<double>::quiet_NaN();
    std::string s;
    while (pos_ < text_.size() &&
           (std::isdigit(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '.' || text_[pos_] == 'e' ||
            ((text_[pos_] == '-' || text_[pos_] == '+') && !s.empty() && s.back() == 'e'))) {
      s += text_[pos_++];
    }
    char* end = nullptr;
    double v = std::strtod(s.c_str(), &end);
    if (s.empty() || *end) fail("expected a number");
    return sign * v;
  }

  // A size expression: everything up to a comma or bracket outside parentheses.
  Dim dim() {
    skip_space();
    size_t begin = pos_;
    int depth = 0;
    while (pos_ < text_.size()) {
      char c = text_[pos_];
      if (depth == 0 && (c == ',' || c == ']' || c == '}' || c == ')')) break;
      depth += c == '(';
      depth -= c == ')';
      ++pos_;
    }
    std::string_view text = text_.substr(begin, pos_ - begin);
    try {
      return Dim::parse(text, [&](const std::string& name) {
        auto it = symbols_.find(name);
        if (it == symbols_.end()) fail("size symbol '" + name + "' is not declared");
        return it->second;
      });
    } catch (const CompileError& e) {
      if (std::string(e.what()).rfind("line ", 0) == 0) throw;
      pos_ = begin;
      fail(e.what());
    }
  }
  std::vector<Dim> dims() {
    std::vector<Dim> list;
    expect("[");
    if (accept("]")) return list;
    do {
      list.push_back(dim());
    } while (accept(","));
    expect("]");
    return list;
  }
  DType dtype() {
    std::string name = identifier();
    auto t = dtype_from_name(name);
    if (!t) fail("unknown dtype '" + name + "'");
    return *t;
  }
  Type type() {
    DType t = dtype();
    return {t, dims()};
  }

  Tensor tensor() {
    expect("dense");
    expect("<");
    Type t = type();
    expect(":");
    std::vector<int64_t> shape;
    for (const Dim& d : t.shape) {
      if (!d.is_constant() || d.value() < 0) fail("a constant's shape must be constant");
      shape.push_back(d.value());
    }
    int64_t n = 1;
    for (int64_t d : shape) {
      if (__builtin_mul_overflow(n, d, &n) || n > (int64_t{1} << 32)) fail("the constant is too large");
    }
    skip_space();
    if (pos_ < text_.size() && text_[pos_] == '#') fail("this constant was printed as a hash and cannot be read back");
    Tensor out(t.dtype, shape);
    bool splat = accept("splat");
    for (int64_t i = 0; i < (splat ? std::min<int64_t>(1, n) : n); ++i) {
      if (i) expect(",");
      if (is_float(t.dtype)) {
        out.set_double(i, real());
      } else if (t.dtype == DType::boolean) {
        bool yes = accept("true");
        if (!yes) expect("false");
        out.set_int(i, yes);
      } else {
        out.set_int(i, integer());
      }
    }
    size_t bytes = size_of(t.dtype);
    for (int64_t i = 1; splat && i < n; ++i) {
      std::memcpy(static_cast<char*>(out.mutable_data()) + static_cast<size_t>(i) * bytes, out.data(), bytes);
    }
    expect(">");
    return out;
  }

  Attribute attribute(std::string_view type) {
    if (type == "int") return integer();
    if (type == "float") return real();
    if (type == "bool") {
      if (accept("true")) return true;
      expect("false");
      return false;
    }
    if (type == "string") return quoted();
    if (type == "ints") {
      std::vector<int64_t> list;
      expect("[");
      if (accept("]")) return list;
      do {
        list.push_back(integer());
      } while (accept(","));
      expect("]");
      return list;
    }
    if (type == "dims") return dims();
    if (type == "dim") return dim();
    if (type == "dtype") return dtype();
    if (type == "tensor") return tensor();
    if (type == "graph") return region();
    std::string name = identifier();
    if (type == "fn") {
      if (auto fn = fn_from_name(name)) return *fn;
      fail("unknown function '" + name + "'");
    }
    if (auto fn = reduce_fn_from_name(name)) return *fn;
    fail("unknown reduction '" + name + "'");
  }

  void define(const std::string& name, Value* v) {
    if (!values_.emplace(name, v).second) fail("'" + name + "' is defined twice");
  }
  Value* use() {
    std::string name = value_name();
    auto it = values_.find(name);
    if (it == values_.end()) fail("'" + name + "' is not defined");
    return it->second;
  }

  void parse_node(Graph& graph) {
    std::string name = value_name();
    expect("=");
    size_t where = pos_;
    std::string op_name = identifier();
    auto op = op_from_name(op_name);
    if (!op) {
      pos_ = where;
      fail("unknown op '" + op_name + "'");
    }
    std::vector<Value*> operands;
    expect("(");
    if (!accept(")")) {
      do {
        operands.push_back(use());
      } while (accept(","));
      expect(")");
    }
    Attributes attributes;
    if (accept("{")) {
      do {
        std::string key = identifier();
        const AttributeSpec* found = nullptr;
        for (const AttributeSpec& spec : attribute_specs(*op)) {
          if (spec.name == key) found = &spec;
        }
        if (!found) fail("op '" + op_name + "' has no attribute '" + key + "'");
        expect("=");
        attributes[key] = attribute(found->type);
      } while (accept(","));
      expect("}");
    }
    for (const AttributeSpec& spec : attribute_specs(*op)) {
      if (!spec.optional && !attributes.count(std::string(spec.name))) {
        fail("op '" + op_name + "' needs attribute '" + std::string(spec.name) + "'");
      }
    }
    Node* node = nullptr;
    try {
      node = graph.add_node(*op, std::move(operands), std::move(attributes));
    } catch (const CompileError& e) {
      pos_ = where;
      fail(e.what());
    }
    node->result->name = given_name(name);
    if (accept(":")) {
      Type written = type();
      if (!(written == node->type())) fail("the type is " + node->type().str() + ", not " + written.str());
    }
    define(name, node->result.get());
  }

  std::string_view text_;
  size_t pos_ = 0;
  std::map<std::string, Dim> symbols_;
  std::map<std::string, Value*> values_;
};

}  // namespace

Graph parse_graph(std::string_view text) {
  return Parser(text).run();
}

}  // namespace cuvil
