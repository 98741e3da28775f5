// Integer expressions over symbols: tensor sizes, and (during lowering) index expressions over loop variables.
//
// A Dim is immutable and always in canonical form: a polynomial with int64 coefficients over atoms, where an atom is a
// symbol or an irreducible floordiv/mod/min/max. Two equal polynomials print and compare equal, so `==` decides most
// questions about sizes. Divisions are simplified with the bounds of the symbols in them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cuvil {

class Dim;
struct DimAtom;
using DimAtomPtr = std::shared_ptr<const DimAtom>;

/// coefficient × product of factors; factors are sorted and repeated for powers.
struct DimTerm {
  int64_t coefficient = 0;
  std::vector<DimAtomPtr> factors;
};

class Dim {
 public:
  static constexpr int64_t kUnbounded = INT64_MAX;

  Dim(int64_t constant = 0);  // NOLINT(google-explicit-constructor): a size is most often a number

  /// A free symbol with inclusive bounds. Symbols are equal when their names and bounds are.
  static Dim symbol(std::string_view name, int64_t min = 1, int64_t max = kUnbounded);
  /// A loop variable in [0, extent).
  static Dim loop_variable(std::string_view name, const Dim& extent);

  bool is_constant() const;
  std::optional<int64_t> constant() const;
  /// The constant's value; throws InternalError for a symbolic Dim.
  int64_t value() const;
  bool is_symbol() const;
  /// Name of a bare symbol; throws InternalError otherwise.
  const std::string& symbol_name() const;

  const std::vector<DimTerm>& terms() const { return terms_; }

  /// Bounds by interval arithmetic; nullopt where unbounded.
  std::optional<int64_t> lower_bound() const;
  std::optional<int64_t> upper_bound() const;

  bool contains(const Dim& symbol) const;
  /// All distinct symbols (loop variables too), in order of first appearance.
  std::vector<Dim> symbols() const;
  /// Replaces bare symbols; the result is simplified again.
  Dim substitute(const std::map<std::string, Dim>& by_name) const;
  /// Coefficient polynomial of `symbol` if this expression is affine in it (symbol not inside an atom), else nullopt.
  std::optional<Dim> coefficient_of(const Dim& symbol) const;
  int64_t evaluate(const std::function<int64_t(const std::string&)>& value_of) const;

  std::string str() const;
  /// Parses what str() prints: + - * // % min(a,b) max(a,b) ceildiv(a,b), names, integers. Bounds come from
  /// `lookup`, which returns the symbol for a name. Throws CompileError.
  static Dim parse(std::string_view text, const std::function<Dim(const std::string&)>& lookup);

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  Dim operator-() const;
  friend bool operator==(const Dim& a, const Dim& b) { return a.compare(b) == 0; }
  friend bool operator<(const Dim& a, const Dim& b) { return a.compare(b) < 0; }
  /// Total order on canonical forms (not an order of the values).
  int compare(const Dim& other) const;

  friend Dim floor_div(const Dim& a, const Dim& b);
  friend Dim floor_mod(const Dim& a, const Dim& b);
  friend Dim minimum(const Dim& a, const Dim& b);
  friend Dim maximum(const Dim& a, const Dim& b);

 private:
  friend struct DimAtom;
  friend Dim from_terms(std::vector<DimTerm> terms);
  std::vector<DimTerm> terms_;  // sorted; no zero coefficients; the constant term, if any, first
};

/// Sum of terms, brought to canonical form.
Dim from_terms(std::vector<DimTerm> terms);

/// Rounds towards negative infinity. b must be positive; a symbolic one that turns out not to be counts as 1.
Dim floor_div(const Dim& a, const Dim& b);
/// In [0, b); b as in floor_div.
Dim floor_mod(const Dim& a, const Dim& b);
Dim ceil_div(const Dim& a, const Dim& b);
Dim round_up(const Dim& a, const Dim& b);
Dim minimum(const Dim& a, const Dim& b);
Dim maximum(const Dim& a, const Dim& b);
/// a / b when b divides a symbolically, else nullopt.
std::optional<Dim> exact_div(const Dim& a, const Dim& b);

/// True only if a ≤ b (a < b) for every value of the symbols within their bounds.
bool provably_le(const Dim& a, const Dim& b);
bool provably_lt(const Dim& a, const Dim& b);

struct DimAtom {
  enum class Kind { Symbol, FloorDiv, Mod, Min, Max };
  Kind kind = Kind::Symbol;
  std::string name;  // Symbol
  int64_t min = 0;   // Symbol: inclusive bounds
  int64_t max = Dim::kUnbounded;
  bool is_loop = false;  // Symbol: a loop variable in [0, b)
  Dim a, b;              // operands; for a loop variable b is its extent

  int compare(const DimAtom& other) const;
};

}  // namespace cuvil
