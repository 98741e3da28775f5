#include "ir/dim.hpp"

#include <algorithm>
#include <numeric>

#include "support/error.hpp"

namespace cuvil {

namespace {

int compare_factors(const std::vector<DimAtomPtr>& a, const std::vector<DimAtomPtr>& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (int c = a[i]->compare(*b[i])) return c;
  }
  return 0;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) throw CompileError("a tensor size overflows 64 bits");
  return r;
}
int64_t checked_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) throw CompileError("a tensor size overflows 64 bits");
  return r;
}

int64_t floor_div_int(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}
int64_t floor_mod_int(int64_t a, int64_t b) {
  return a - floor_div_int(a, b) * b;
}

}  // namespace

namespace {

// c·(a % b) + c·b·(a // b) = c·a
Dim join_quotient_and_remainder(Dim d) {
  for (const DimTerm& mod : d.terms()) {
    if (mod.factors.size() != 1 || mod.factors[0]->kind != DimAtom::Kind::Mod) continue;
    const DimAtom& m = *mod.factors[0];
    auto b = m.b.constant();
    if (!b) continue;
    for (const DimTerm& div : d.terms()) {
      if (div.factors.size() != 1 || div.factors[0]->kind != DimAtom::Kind::FloorDiv) continue;
      const DimAtom& f = *div.factors[0];
      if (div.coefficient != mod.coefficient * *b || f.a != m.a || f.b != m.b) continue;
      std::vector<DimTerm> rest;
      for (const DimTerm& t : d.terms()) {
        if (&t != &mod && &t != &div) rest.push_back(t);
      }
      for (DimTerm t : m.a.terms()) {
        t.coefficient *= mod.coefficient;
        rest.push_back(std::move(t));
      }
      return from_terms(std::move(rest));
    }
  }
  return d;
}

}  // namespace

Dim from_terms(std::vector<DimTerm> terms) {
  std::sort(terms.begin(), terms.end(),
            [](const DimTerm& a, const DimTerm& b) { return compare_factors(a.factors, b.factors) < 0; });
  Dim result;
  for (DimTerm& term : terms) {
    if (!result.terms_.empty() && compare_factors(result.terms_.back().factors, term.factors) == 0) {
      result.terms_.back().coefficient = checked_add(result.terms_.back().coefficient, term.coefficient);
    } else {
      result.terms_.push_back(std::move(term));
    }
  }
  std::erase_if(result.terms_, [](const DimTerm& t) { return t.coefficient == 0; });
  return join_quotient_and_remainder(std::move(result));
}

namespace {

Dim from_atom(DimAtom atom) {
  return from_terms({{1, {std::make_shared<const DimAtom>(std::move(atom))}}});
}

Dim single(const DimTerm& term) {
  return from_terms({term});
}

// The quotient of two monomials, if exact.
std::optional<DimTerm> divide_monomial(const DimTerm& a, const DimTerm& b) {
  if (b.coefficient == 0 || a.coefficient % b.coefficient != 0) return std::nullopt;
  DimTerm q{a.coefficient / b.coefficient, {}};
  size_t j = 0;
  for (const DimAtomPtr& factor : a.factors) {
    if (j < b.factors.size() && factor->compare(*b.factors[j]) == 0) {
      ++j;
    } else {
      q.factors.push_back(factor);
    }
  }
  if (j != b.factors.size()) return std::nullopt;
  return q;
}

struct Bounds {
  std::optional<int64_t> lo, hi;
};

std::optional<int64_t> mul_bound(std::optional<int64_t> a, std::optional<int64_t> b) {
  int64_t r = 0;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &r)) return std::nullopt;
  return r;
}
std::optional<int64_t> add_bound(std::optional<int64_t> a, std::optional<int64_t> b) {
  int64_t r = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &r)) return std::nullopt;
  return r;
}

Bounds bounds_of(const Dim& d);

Bounds bounds_of(const DimAtom& atom) {
  switch (atom.kind) {
    case DimAtom::Kind::Symbol: {
      if (atom.is_loop) {
        Bounds extent = bounds_of(atom.b);
        return {0, add_bound(extent.hi, -1)};
      }
      return {atom.min == INT64_MIN ? std::nullopt : std::optional(atom.min),
              atom.max == Dim::kUnbounded ? std::nullopt : std::optional(atom.max)};
    }
    case DimAtom::Kind::FloorDiv: {
      Bounds a = bounds_of(atom.a), b = bounds_of(atom.b);
      Bounds r;
      if (a.lo)
        r.lo = *a.lo >= 0 ? (b.hi ? floor_div_int(*a.lo, *b.hi) : 0)
                          : floor_div_int(*a.lo, std::max<int64_t>(1, b.lo.value_or(1)));
      if (a.hi)
        r.hi = *a.hi >= 0 ? floor_div_int(*a.hi, std::max<int64_t>(1, b.lo.value_or(1)))
                          : (b.hi ? floor_div_int(*a.hi, *b.hi) : -1);
      return r;
    }
    case DimAtom::Kind::Mod: {
      Bounds b = bounds_of(atom.b);
      return {0, add_bound(b.hi, -1)};
    }
    case DimAtom::Kind::Min: {
      Bounds a = bounds_of(atom.a), b = bounds_of(atom.b);
      Bounds r;
      if (a.lo && b.lo) r.lo = std::min(*a.lo, *b.lo);
      if (a.hi && b.hi)
        r.hi = std::min(*a.hi, *b.hi);
      else
        r.hi = a.hi ? a.hi : b.hi;
      return r;
    }
    case DimAtom::Kind::Max: {
      Bounds a = bounds_of(atom.a), b = bounds_of(atom.b);
      Bounds r;
      if (a.hi && b.hi) r.hi = std::max(*a.hi, *b.hi);
      if (a.lo && b.lo)
        r.lo = std::max(*a.lo, *b.lo);
      else
        r.lo = a.lo ? a.lo : b.lo;
      return r;
    }
  }
  return {};
}

Bounds bounds_of(const Dim& d) {
  Bounds sum{0, 0};
  for (const DimTerm& term : d.terms()) {
    Bounds product{1, 1};
    for (const DimAtomPtr& factor : term.factors) {
      Bounds f = bounds_of(*factor);
      if (f.lo && *f.lo >= 0 && product.lo && *product.lo >= 0) {
        product = {mul_bound(product.lo, f.lo), mul_bound(product.hi, f.hi)};
      } else if (f.lo && f.hi && product.lo && product.hi) {
        std::optional<int64_t> corners[4] = {mul_bound(product.lo, f.lo), mul_bound(product.lo, f.hi),
                                             mul_bound(product.hi, f.lo), mul_bound(product.hi, f.hi)};
        product = {INT64_MAX, INT64_MIN};
        for (const auto& corner : corners) {
          if (!corner) {
            product = {};
            break;
          }
          product = {std::min(*product.lo, *corner), std::max(*product.hi, *corner)};
        }
      } else {
        product = {};
      }
    }
    Bounds scaled = term.coefficient >= 0 ? product : Bounds{product.hi, product.lo};
    sum = {add_bound(sum.lo, mul_bound(scaled.lo, term.coefficient)),
           add_bound(sum.hi, mul_bound(scaled.hi, term.coefficient))};
  }
  return sum;
}

bool provably_nonnegative(const Dim& d);

// Substitutes for loop variables the ends that make `d` smallest, innermost extents first, then uses interval bounds.
bool provably_nonnegative(const Dim& d) {
  if (auto lo = bounds_of(d).lo; lo && *lo >= 0) return true;
  for (const Dim& symbol : d.symbols()) {
    const DimAtom& atom = *symbol.terms()[0].factors[0];
    if (!atom.is_loop) continue;
    auto coefficient = d.coefficient_of(symbol);
    if (!coefficient || coefficient->contains(symbol)) continue;
    Dim rest = d - *coefficient * symbol;
    if (provably_nonnegative(*coefficient)) return provably_nonnegative(rest);
    if (provably_nonnegative(-*coefficient)) return provably_nonnegative(rest + *coefficient * (atom.b - 1));
    return false;
  }
  return false;
}

struct Division {
  Dim quotient, remainder;
};

// a = quotient · b + remainder, with 0 ≤ remainder < b, as far as it can be simplified.
Division divide(const Dim& a, const Dim& b) {
  if (b == Dim(1)) return {a, 0};
  auto ca = a.constant(), cb = b.constant();
  if (ca && cb) {
    CUVIL_CHECK(*cb > 0, "division of a size by " + std::to_string(*cb));
    return {floor_div_int(*ca, *cb), floor_mod_int(*ca, *cb)};
  }
  if (ca && *ca == 0) return {0, 0};
  // Terms that b divides leave whole.
  Dim whole, rest = a;
  if (b.terms().size() == 1) {
    for (const DimTerm& term : a.terms()) {
      if (term.factors.empty() && cb) {
        int64_t q = floor_div_int(term.coefficient, *cb);
        whole = whole + q;
        rest = rest - q * *cb;
      } else if (auto q = divide_monomial(term, b.terms()[0])) {
        whole = whole + single(*q);
        rest = rest - single(term);
      } else if (cb && term.coefficient / *cb != 0) {
        DimTerm part{term.coefficient / *cb, term.factors};
        whole = whole + single(part);
        rest = rest - single(part) * b;
      }
    }
  } else if (auto q = exact_div(a, b)) {
    return {*q, 0};
  }
  if (rest == Dim(0)) return {whole, 0};
  if (provably_nonnegative(rest) && provably_nonnegative(b - 1 - rest)) return {whole, rest};
  if (cb) {
    // rest = g · x + y with 0 ≤ y < g and g | b: rest // b = x // (b/g), rest % b = g · (x % (b/g)) + y.
    for (const DimTerm& term : rest.terms()) {
      if (term.factors.empty()) continue;
      int64_t g = std::gcd(term.coefficient, *cb);
      if (g <= 1 || g == *cb) continue;
      Dim x, y;
      for (const DimTerm& t : rest.terms()) {
        if (t.coefficient % g == 0) {
          x = x + single({t.coefficient / g, t.factors});
        } else if (t.factors.empty()) {
          x = x + floor_div_int(t.coefficient, g);
          y = y + floor_mod_int(t.coefficient, g);
        } else {
          y = y + single(t);
        }
      }
      if (provably_nonnegative(y) && provably_nonnegative(g - 1 - y)) {
        Division inner = divide(x, *cb / g);
        return {whole + inner.quotient, inner.remainder * g + y};
      }
    }
    // (x // c + k) // b = (x + k·c) // (c·b)
    const bool has_constant = rest.terms()[0].factors.empty();
    const DimTerm& last = rest.terms().back();
    if (rest.terms().size() == (has_constant ? 2u : 1u) && last.coefficient == 1 && last.factors.size() == 1) {
      const DimAtom& atom = *last.factors[0];
      if (atom.kind == DimAtom::Kind::FloorDiv && atom.b.is_constant()) {
        Dim k = has_constant ? rest.terms()[0].coefficient : 0;
        Dim quotient = floor_div(atom.a + k * atom.b, atom.b * b);
        DimAtom mod{DimAtom::Kind::Mod, {}, 0, Dim::kUnbounded, false, rest, b};
        return {whole + quotient, from_atom(std::move(mod))};
      }
      if (!has_constant && atom.kind == DimAtom::Kind::Mod && atom.b.is_constant() && atom.b.value() % *cb == 0) {
        // (x % (k·b)) % b = x % b; the quotient stays.
        DimAtom div{DimAtom::Kind::FloorDiv, {}, 0, Dim::kUnbounded, false, rest, b};
        return {whole + from_atom(std::move(div)), floor_mod(atom.a, b)};
      }
    }
  }
  DimAtom div{DimAtom::Kind::FloorDiv, {}, 0, Dim::kUnbounded, false, rest, b};
  DimAtom mod{DimAtom::Kind::Mod, {}, 0, Dim::kUnbounded, false, rest, b};
  return {whole + from_atom(std::move(div)), from_atom(std::move(mod))};
}

Dim extremum(DimAtom::Kind kind, const Dim& a, const Dim& b) {
  bool is_min = kind == DimAtom::Kind::Min;
  if (provably_le(a, b)) return is_min ? a : b;
  if (provably_le(b, a)) return is_min ? b : a;
  // An operand of an extremum of the same kind may already decide.
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    if (y.terms().size() != 1 || y.terms()[0].coefficient != 1 || y.terms()[0].factors.size() != 1) continue;
    const DimAtom& inner = *y.terms()[0].factors[0];
    if (inner.kind != kind) continue;
    for (const Dim& part : {inner.a, inner.b}) {
      if (is_min ? provably_le(part, x) : provably_le(x, part)) return y;
    }
  }
  return from_atom({kind, {}, 0, Dim::kUnbounded, false, a < b ? a : b, a < b ? b : a});
}

Dim substitute_atom(const DimAtom& atom, const std::map<std::string, Dim>& by_name) {
  switch (atom.kind) {
    case DimAtom::Kind::Symbol: {
      auto it = by_name.find(atom.name);
      return it == by_name.end() ? from_atom(atom) : it->second;
    }
    case DimAtom::Kind::FloorDiv:
      return floor_div(atom.a.substitute(by_name), atom.b.substitute(by_name));
    case DimAtom::Kind::Mod:
      return floor_mod(atom.a.substitute(by_name), atom.b.substitute(by_name));
    case DimAtom::Kind::Min:
      return minimum(atom.a.substitute(by_name), atom.b.substitute(by_name));
    case DimAtom::Kind::Max:
      return maximum(atom.a.substitute(by_name), atom.b.substitute(by_name));
  }
  return 0;
}

void collect_symbols(const Dim& d, std::vector<Dim>& out) {
  for (const DimTerm& term : d.terms()) {
    for (const DimAtomPtr& factor : term.factors) {
      if (factor->kind == DimAtom::Kind::Symbol) {
        Dim symbol = from_terms({{1, {factor}}});
        if (std::find(out.begin(), out.end(), symbol) == out.end()) out.push_back(symbol);
      } else {
        collect_symbols(factor->a, out);
        collect_symbols(factor->b, out);
      }
    }
  }
}

int64_t evaluate_atom(const DimAtom& atom, const std::function<int64_t(const std::string&)>& value_of) {
  if (atom.kind == DimAtom::Kind::Symbol) return value_of(atom.name);
  int64_t a = atom.a.evaluate(value_of), b = atom.b.evaluate(value_of);
  switch (atom.kind) {
    case DimAtom::Kind::FloorDiv:
    case DimAtom::Kind::Mod:
      b = std::max<int64_t>(b, 1);
      return atom.kind == DimAtom::Kind::FloorDiv ? floor_div_int(a, b) : floor_mod_int(a, b);
    case DimAtom::Kind::Min:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

}  // namespace

int DimAtom::compare(const DimAtom& other) const {
  if (this == &other) return 0;
  if (kind != other.kind) return kind < other.kind ? -1 : 1;
  if (kind == Kind::Symbol) {
    if (int c = name.compare(other.name)) return c < 0 ? -1 : 1;
    if (is_loop != other.is_loop) return is_loop ? 1 : -1;
    if (is_loop) return b.compare(other.b);
    if (min != other.min) return min < other.min ? -1 : 1;
    if (max != other.max) return max < other.max ? -1 : 1;
    return 0;
  }
  if (int c = a.compare(other.a)) return c;
  return b.compare(other.b);
}

Dim::Dim(int64_t constant) {
  if (constant != 0) terms_.push_back({constant, {}});
}

Dim Dim::symbol(std::string_view name, int64_t min, int64_t max) {
  if (min == max) return min;
  return from_atom({DimAtom::Kind::Symbol, std::string(name), min, max, false, 0, 0});
}

Dim Dim::loop_variable(std::string_view name, const Dim& extent) {
  if (extent == Dim(1)) return 0;
  return from_atom({DimAtom::Kind::Symbol, std::string(name), 0, kUnbounded, true, 0, extent});
}

bool Dim::is_constant() const {
  return terms_.empty() || (terms_.size() == 1 && terms_[0].factors.empty());
}

std::optional<int64_t> Dim::constant() const {
  if (!is_constant()) return std::nullopt;
  return terms_.empty() ? 0 : terms_[0].coefficient;
}

int64_t Dim::value() const {
  CUVIL_CHECK(is_constant(), "the size " + str() + " is not a constant");
  return *constant();
}

bool Dim::is_symbol() const {
  return terms_.size() == 1 && terms_[0].coefficient == 1 && terms_[0].factors.size() == 1 &&
         terms_[0].factors[0]->kind == DimAtom::Kind::Symbol;
}

const std::string& Dim::symbol_name() const {
  CUVIL_CHECK(is_symbol(), "the size " + str() + " is not a symbol");
  return terms_[0].factors[0]->name;
}

std::optional<int64_t> Dim::lower_bound() const {
  return bounds_of(*this).lo;
}
std::optional<int64_t> Dim::upper_bound() const {
  return bounds_of(*this).hi;
}

std::vector<Dim> Dim::symbols() const {
  std::vector<Dim> out;
  collect_symbols(*this, out);
  return out;
}

bool Dim::contains(const Dim& symbol) const {
  for (const Dim& s : symbols()) {
    if (s == symbol) return true;
  }
  return false;
}

Dim Dim::substitute(const std::map<std::string, Dim>& by_name) const {
  Dim sum;
  for (const DimTerm& term : terms_) {
    Dim product = term.coefficient;
    for (const DimAtomPtr& factor : term.factors) product = product * substitute_atom(*factor, by_name);
    sum = sum + product;
  }
  return sum;
}

std::optional<Dim> Dim::coefficient_of(const Dim& symbol) const {
  const DimAtom& wanted = *symbol.terms()[0].factors[0];
  Dim result;
  for (const DimTerm& term : terms_) {
    int count = 0;
    DimTerm rest{term.coefficient, {}};
    for (const DimAtomPtr& factor : term.factors) {
      if (factor->compare(wanted) == 0) {
        ++count;
      } else {
        if (factor->kind != DimAtom::Kind::Symbol && (factor->a.contains(symbol) || factor->b.contains(symbol))) {
          return std::nullopt;
        }
        rest.factors.push_back(factor);
      }
    }
    if (count > 1) return std::nullopt;
    if (count == 1) result = result + single(rest);
  }
  return result;
}

int64_t Dim::evaluate(const std::function<int64_t(const std::string&)>& value_of) const {
  int64_t sum = 0;
  for (const DimTerm& term : terms_) {
    int64_t product = term.coefficient;
    for (const DimAtomPtr& factor : term.factors) product = checked_mul(product, evaluate_atom(*factor, value_of));
    sum = checked_add(sum, product);
  }
  return sum;
}

int Dim::compare(const Dim& other) const {
  if (terms_.size() != other.terms_.size()) return terms_.size() < other.terms_.size() ? -1 : 1;
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (int c = compare_factors(terms_[i].factors, other.terms_[i].factors)) return c;
    if (terms_[i].coefficient != other.terms_[i].coefficient) {
      return terms_[i].coefficient < other.terms_[i].coefficient ? -1 : 1;
    }
  }
  return 0;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.terms_.empty()) return b;
  if (b.terms_.empty()) return a;
  std::vector<DimTerm> terms = a.terms_;
  terms.insert(terms.end(), b.terms_.begin(), b.terms_.end());
  return from_terms(std::move(terms));
}

Dim Dim::operator-() const {
  Dim r = *this;
  for (DimTerm& term : r.terms_) term.coefficient = checked_mul(term.coefficient, -1);
  return r;
}

Dim operator-(const Dim& a, const Dim& b) {
  return a + -b;
}

Dim operator*(const Dim& a, const Dim& b) {
  std::vector<DimTerm> terms;
  for (const DimTerm& x : a.terms_) {
    for (const DimTerm& y : b.terms_) {
      DimTerm product{checked_mul(x.coefficient, y.coefficient), x.factors};
      product.factors.insert(product.factors.end(), y.factors.begin(), y.factors.end());
      std::sort(product.factors.begin(), product.factors.end(),
                [](const DimAtomPtr& p, const DimAtomPtr& q) { return p->compare(*q) < 0; });
      terms.push_back(std::move(product));
    }
  }
  return from_terms(std::move(terms));
}

Dim floor_div(const Dim& a, const Dim& b) {
  return divide(a, b).quotient;
}
Dim floor_mod(const Dim& a, const Dim& b) {
  return divide(a, b).remainder;
}
Dim ceil_div(const Dim& a, const Dim& b) {
  return floor_div(a + b - 1, b);
}
Dim round_up(const Dim& a, const Dim& b) {
  return ceil_div(a, b) * b;
}
Dim minimum(const Dim& a, const Dim& b) {
  return extremum(DimAtom::Kind::Min, a, b);
}
Dim maximum(const Dim& a, const Dim& b) {
  return extremum(DimAtom::Kind::Max, a, b);
}

std::optional<Dim> exact_div(const Dim& a, const Dim& b) {
  if (b == Dim(0)) return std::nullopt;
  if (a == b) return Dim(1);
  Dim quotient, rest = a;
  // Polynomial long division by the leading term (the last in canonical order).
  for (int steps = 0; rest != Dim(0); ++steps) {
    if (steps > 64) return std::nullopt;
    auto q = divide_monomial(rest.terms().back(), b.terms().back());
    if (!q) return std::nullopt;
    quotient = quotient + single(*q);
    rest = rest - single(*q) * b;
  }
  return quotient;
}

bool provably_le(const Dim& a, const Dim& b) {
  return provably_nonnegative(b - a);
}
bool provably_lt(const Dim& a, const Dim& b) {
  return provably_nonnegative(b - a - 1);
}

}  // namespace cuvil
