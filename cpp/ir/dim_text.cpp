// Printing and parsing of Dims.
#include <cctype>

#include "ir/dim.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

std::string atom_str(const DimAtom& atom) {
  auto operand = [](const Dim& d) {
    return d.terms().size() > 1 || (d.is_constant() && d.value() < 0) ||
                   (d.terms().size() == 1 && d.terms()[0].factors.size() + (d.terms()[0].coefficient != 1) > 1)
               ? "(" + d.str() + ")"
               : d.str();
  };
  switch (atom.kind) {
    case DimAtom::Kind::Symbol:
      return atom.name;
    case DimAtom::Kind::FloorDiv:
      return "(" + operand(atom.a) + "//" + operand(atom.b) + ")";
    case DimAtom::Kind::Mod:
      return "(" + operand(atom.a) + "%" + operand(atom.b) + ")";
    case DimAtom::Kind::Min:
      return "min(" + atom.a.str() + ", " + atom.b.str() + ")";
    case DimAtom::Kind::Max:
      return "max(" + atom.a.str() + ", " + atom.b.str() + ")";
  }
  return "?";
}

class DimParser {
 public:
  DimParser(std::string_view text, const std::function<Dim(const std::string&)>& lookup)
      : text_(text), lookup_(lookup) {}

  Dim parse_all() {
    Dim d = sum();
    skip_space();
    if (pos_ != text_.size()) fail("unexpected text");
    return d;
  }

 private:
  [[noreturn]] void fail(const char* what) {
    throw CompileError("size expression '" + std::string(text_) + "': " + what + " at column " +
                       std::to_string(pos_ + 1));
  }
  void skip_space() {
    while (pos_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[pos_]))) ++pos_;
  }
  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(("expected '" + std::string(token) + "'").c_str());
  }
  Dim sum() {
    Dim d = product();
    while (true) {
      if (accept("+"))
        d = d + product();
      else if (accept("-"))
        d = d - product();
      else
        return d;
    }
  }
  Dim checked_divisor(Dim d) {
    if (!provably_le(1, d)) fail("a divisor that may not be positive");
    return d;
  }
  Dim product() {
    Dim d = factor();
    while (true) {
      if (accept("//"))
        d = floor_div(d, checked_divisor(factor()));
      else if (accept("%"))
        d = floor_mod(d, checked_divisor(factor()));
      else if (accept("*"))
        d = d * factor();
      else
        return d;
    }
  }
  Dim factor() {
    if (++depth_ > 200) fail("nested too deeply");
    Dim d = primary();
    --depth_;
    return d;
  }
  Dim primary() {
    if (accept("-")) return -factor();
    if (accept("(")) {
      Dim d = sum();
      expect(")");
      return d;
    }
    skip_space();
    if (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) {
      int64_t v = 0;
      while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) {
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, text_[pos_] - '0', &v)) {
          fail("a number that does not fit 64 bits");
        }
        ++pos_;
      }
      return v;
    }
    std::string name;
    while (pos_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_' || text_[pos_] == '.')) {
      name += text_[pos_++];
    }
    if (name.empty()) fail("expected a number or a name");
    if ((name == "min" || name == "max" || name == "ceildiv") && accept("(")) {
      Dim a = sum();
      expect(",");
      Dim b = sum();
      expect(")");
      if (name == "ceildiv") return ceil_div(a, checked_divisor(b));
      return name == "min" ? minimum(a, b) : maximum(a, b);
    }
    return lookup_(name);
  }

  std::string_view text_;
  const std::function<Dim(const std::string&)>& lookup_;
  size_t pos_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string Dim::str() const {
  if (terms_.empty()) return "0";
  std::string out;
  // Highest terms first; the constant, which canonical order puts first, last.
  for (size_t n = terms_.size(); n-- > 0;) {
    const DimTerm& term = terms_[n];
    int64_t c = term.coefficient;
    if (!out.empty()) {
      out += c < 0 ? " - " : " + ";
      if (c < 0) c = -c;
    }
    if (term.factors.empty()) {
      out += std::to_string(c);
      continue;
    }
    if (c == -1)
      out += "-";
    else if (c != 1)
      out += std::to_string(c) + "*";
    for (size_t i = 0; i < term.factors.size(); ++i) out += (i ? "*" : "") + atom_str(*term.factors[i]);
  }
  return out;
}

Dim Dim::parse(std::string_view text, const std::function<Dim(const std::string&)>& lookup) {
  return DimParser(text, lookup).parse_all();
}

}  // namespace cuvil
