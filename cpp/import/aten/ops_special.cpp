// Functions of mathematics beyond the primitives, and what looks into how floats are stored.
#include <cmath>
#include <limits>

#include "import/aten/call.hpp"
#include "ir/elementary.hpp"

namespace cuvil::aten {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <Value* (*function)(Builder&, Value*)>
void elementary(Call& c) {
  c.set(function(c.b, c.wide(0)));
}
template <Value* (*function)(Builder&, Value*, Value*)>
void elementary2(Call& c) {
  c.set(function(c.b, c.wide(0), c.wide(1)));
}
template <Value* (*function)(Builder&, Value*)>
void in_double(Call& c) {
  c.set(function(c.b, c.operand(0, DType::f64)));
}
template <Value* (*function)(Builder&, Value*, Value*)>
void in_double2(Call& c) {
  c.set(function(c.b, c.operand(0, DType::f64), c.operand(1, DType::f64)));
}

void poly_gamma(Call& c) {
  c.set(polygamma(c.b, c.integer(0, "n"), c.operand(1, DType::f64)));
}

void sign_of(Call& c) {
  Value* x = c.tensor(0);
  if (is_float(x->type.dtype)) {
    c.set(sign_bit(c.b, x));
  } else if (is_signed_int(x->type.dtype)) {
    c.set(c.b.binary(Fn::Lt, x, c.b.scalar_int(x->type.dtype, 0)));
  } else {
    c.set(c.b.full(x->type.shape, DType::boolean, 0));
  }
}

// The number if only one operand is NaN.
template <Fn fn>
void extremum_of_numbers(Call& c) {
  const DType t = c.result_dtype();
  Value* x = c.operand(0, t);
  Value* y = c.operand(1, t);
  Value* r = c.b.binary(fn, x, y);
  if (is_float(t)) {
    r = c.b.select(c.b.unary(Fn::IsNan, x), y, r);
    r = c.b.select(c.b.unary(Fn::IsNan, y), x, r);
  }
  c.set(r);
}

void load_exponent(Call& c) {
  const DType t = c.result_dtype();
  c.set(c.b.mul(c.operand(0, t), c.b.binary(Fn::Pow, c.b.scalar(t, 2), c.operand(1, t))));
}

void round_decimals(Call& c) {
  Value* x = c.tensor(0);
  const int64_t decimals = c.integer(99, "decimals", 0);
  if (!is_float(x->type.dtype)) {
    if (decimals < 0) c.fail("rounding integers to tens is not supported");
    c.set(x);
    return;
  }
  Value* wide = c.b.cast(x, c.work_dtype());
  const double power = std::pow(10.0, static_cast<double>(std::llabs(decimals)));
  Value* y = c.b.unary(Fn::Round, c.b.binary(decimals < 0 ? Fn::Div : Fn::Mul, wide, power));
  c.set(c.b.binary(decimals < 0 ? Fn::Mul : Fn::Div, y, power));
}

// Of real numbers.
void angle(Call& c) {
  const DType t = c.result_dtype();
  Value* x = c.operand(0, t);
  Value* y = c.b.select(c.b.binary(Fn::Lt, x, 0.0), c.b.scalar(t, M_PI), c.b.scalar(t, 0));
  c.set(c.b.select(c.b.unary(Fn::IsNan, x), x, y));
}

// Mantissa in [0.5, 1), exponent. Exact: the mantissa is multiplied by powers of two only.
void split_exponent(Call& c) {
  Value* x = c.tensor(0);
  const DType work = x->type.dtype == DType::f64 ? DType::f64 : DType::f32;
  Value* mantissa = c.b.unary(Fn::Abs, c.b.cast(x, work));
  Value* zero = c.b.scalar_int(DType::i32, 0);
  Value* exponent = zero;
  auto step = [&](Value* condition, int by) {
    mantissa = c.b.select(condition, c.b.binary(Fn::Mul, mantissa, std::ldexp(1.0, -by)), mantissa);
    exponent = c.b.add(exponent, c.b.select(condition, c.b.scalar_int(DType::i32, by), zero));
  };
  const int widest = work == DType::f64 ? 512 : 64;
  // Twice the widest step: exponents reach beyond 2 · widest, and lower for subnormal numbers.
  step(c.b.binary(Fn::Ge, mantissa, std::ldexp(1.0, widest)), widest);
  step(c.b.binary(Fn::Lt, mantissa, std::ldexp(1.0, -widest)), -widest);
  for (int by = widest; by > 0; by /= 2) {
    step(c.b.binary(Fn::Ge, mantissa, std::ldexp(1.0, by - 1)), by);
    step(c.b.binary(Fn::Lt, mantissa, std::ldexp(1.0, -by)), -by);
  }
  Value* as_is = c.b.binary(Fn::Or, c.b.binary(Fn::Eq, x, 0.0),
                            c.b.binary(Fn::Or, c.b.unary(Fn::IsNan, x), c.b.unary(Fn::IsInf, x)));
  c.set(c.b.select(as_is, x, c.b.cast(copy_sign(c.b, mantissa, c.b.cast(x, work)), x->type.dtype)));
  c.set(c.b.select(as_is, zero, exponent));
}

// The neighbour is where rounding takes x (1 ± 1.25 half units in the last place), computed in f64.
void next_after(Call& c) {
  const DType t = c.result_dtype();
  if (t == DType::f64) c.fail("nextafter in float64 is not supported");
  Value* x = c.operand(0, DType::f64);
  Value* to = c.operand(1, DType::f64);
  const int bits = t == DType::f32 ? 24 : t == DType::f16 ? 11 : 8;
  const double smallest_normal = std::ldexp(1.0, t == DType::f16 ? -14 : -126);
  const double smallest = smallest_normal * std::ldexp(1.0, 1 - bits);
  Value* up = c.b.binary(Fn::Gt, to, x);
  Value* distance = c.b.binary(Fn::Mul, c.b.unary(Fn::Abs, x), 1.25 * std::ldexp(1.0, -bits));
  distance = c.b.select(c.b.binary(Fn::Lt, c.b.unary(Fn::Abs, x), smallest_normal), c.b.scalar(DType::f64, smallest),
                        distance);
  Value* y = c.b.select(up, c.b.add(x, distance), c.b.sub(x, distance));
  const double largest = (1 - std::ldexp(1.0, -bits)) * std::ldexp(1.0, t == DType::f16 ? 16 : 127);
  const double bound = t == DType::f16 ? largest : 2 * largest;
  y = c.b.select(c.b.unary(Fn::IsInf, x), copy_sign(c.b, c.b.scalar(DType::f64, bound), x), y);
  y = c.b.select(c.b.binary(Fn::Eq, x, to), to, y);
  Value* any_nan = c.b.binary(Fn::Or, c.b.unary(Fn::IsNan, x), c.b.unary(Fn::IsNan, to));
  c.set(c.b.select(any_nan, c.b.add(x, to), y));
}

// log Σ exp of all elements up to each, with the running maximum taken out.
void log_cumulative_sum(Call& c) {
  const DType work = c.work_dtype();
  Value* x = c.operand(0, work);
  if (x->type.rank() == 0 || x->type.num_elements() == Dim(0)) {
    c.set(x);
    return;
  }
  const int axis = c.axis(1, "dim", x);
  const auto at = static_cast<size_t>(axis);
  // Every element against those up to it.
  Shape here(x->type.shape.size() + 1, Dim(1)), there = here;
  here[at] = there[at + 1] = x->type.shape[at];
  Value* reached = c.b.binary(Fn::Le, c.b.iota(there, axis + 1, DType::i64), c.b.iota(here, axis, DType::i64));
  Value* terms = c.b.select(reached, c.b.unsqueeze(x, {axis}), c.b.scalar(work, -kInfinity));
  Value* top = c.b.reduce(ReduceFn::Max, terms, {axis + 1}, true);
  Value* shift = c.b.select(c.b.unary(Fn::IsInf, top), c.b.scalar(work, 0), top);
  Value* sum = c.b.reduce(ReduceFn::Sum, c.b.unary(Fn::Exp, c.b.sub(terms, shift)), {axis + 1}, true);
  c.set(c.b.squeeze(c.b.add(c.b.unary(Fn::Log, sum), shift), {axis + 1}));
}

// Chebyshev's polynomials of the four kinds, by their closed forms: cos and sin of multiples of θ = arccos x within
// [-1, 1], hyperbolic functions outside.
enum class Kind { T, U, V, W };

template <Kind kind, bool shifted>
void chebyshev(Call& c) {
  Builder& b = c.b;
  Value* x = c.operand(0, DType::f64);
  Value* n = b.unary(Fn::Trunc, c.operand(1, DType::f64));
  if (shifted) x = b.binary(Fn::Sub, b.binary(Fn::Mul, x, 2.0), 1.0);
  auto number = [&](double v) { return b.scalar(DType::f64, v); };
  Value* negative = b.binary(Fn::Lt, x, 0.0);
  Value* a = b.unary(Fn::Abs, x);
  Value* odd = b.binary(Fn::Ne, b.binary(Fn::Mod, n, 2.0), 0.0);
  Value* sign = b.select(b.binary(Fn::And, odd, negative), number(-1), number(1));
  // By symmetry from |x|, where V and W change places.
  Value* angle = arc_cosine(b, b.binary(Fn::Min, a, 1.0));
  Value* area = area_hyperbolic_cosine(b, b.binary(Fn::Max, a, 1.0));
  Value* inside;
  Value* outside;
  Value* limit = number(1);
  auto half = [&](Value* v) { return b.binary(Fn::Mul, v, 0.5); };
  if constexpr (kind == Kind::T) {
    inside = b.unary(Fn::Cos, b.mul(n, angle));
    outside = hyperbolic_cosine(b, b.mul(n, area));
  } else if constexpr (kind == Kind::U) {
    Value* m = b.binary(Fn::Add, n, 1.0);
    inside = b.div(b.unary(Fn::Sin, b.mul(m, angle)), b.unary(Fn::Sin, angle));
    outside = b.div(hyperbolic_sine(b, b.mul(m, area)), hyperbolic_sine(b, area));
    limit = m;
  } else {
    Value* m = b.binary(Fn::Add, n, 0.5);
    Value* even_inside = b.div(b.unary(Fn::Cos, b.mul(m, angle)), b.unary(Fn::Cos, half(angle)));
    Value* even_outside = b.div(hyperbolic_cosine(b, b.mul(m, area)), hyperbolic_cosine(b, half(area)));
    Value* odd_inside = b.div(b.unary(Fn::Sin, b.mul(m, angle)), b.unary(Fn::Sin, half(angle)));
    Value* odd_outside = b.div(hyperbolic_sine(b, b.mul(m, area)), hyperbolic_sine(b, half(area)));
    Value* swapped = kind == Kind::V ? negative : b.unary(Fn::Not, negative);
    inside = b.select(swapped, odd_inside, even_inside);
    outside = b.select(swapped, odd_outside, even_outside);
    limit = b.select(swapped, b.binary(Fn::Mul, m, 2.0), number(1));
  }
  Value* y = b.select(b.binary(Fn::Lt, a, 1.0), inside, outside);
  y = b.mul(sign, b.select(b.binary(Fn::Eq, a, 1.0), limit, y));
  c.set(b.select(b.binary(Fn::Lt, n, 0.0), number(0), y));
}

template <Kind kind, bool shifted>
void add_chebyshev(std::vector<Row>& rows, const char* tensors, const char* scalar_x, const char* scalar_n) {
  for (const char* target : {tensors, scalar_x, scalar_n}) rows.push_back({target, chebyshev<kind, shifted>});
}

// Orthogonal polynomials of a constant degree by their recurrences r = (linear(x) q - k p) / divisor.
enum class Family { Hermite, HermiteE, Laguerre, Legendre };

template <Family family>
void orthogonal(Call& c) {
  constexpr int64_t kHighest = 512;
  if (c.is_tensor(1)) c.fail("needs a number as the degree, not a tensor");
  Builder& b = c.b;
  const auto n = static_cast<int64_t>(c.real(1));
  if (n > kHighest) c.fail("degrees beyond " + std::to_string(kHighest) + " are not supported");
  Value* x = c.operand(0, DType::f64);
  const Shape shape = x->type.shape;
  if (n < 1) {
    c.set(b.full(shape, DType::f64, n == 0));
    return;
  }
  Value* p = b.scalar(DType::f64, 1);
  Value* q = x;
  if (family == Family::Hermite) q = b.binary(Fn::Mul, x, 2.0);
  if (family == Family::Laguerre) q = b.sub(p, x);
  for (int64_t i = 1; i < n; ++i) {
    const auto k = static_cast<double>(i);
    Value* factor = x;
    double back = k;
    if (family == Family::Hermite) {
      factor = b.binary(Fn::Mul, x, 2.0);
      back = 2 * k;
    } else if (family == Family::Laguerre) {
      factor = b.sub(b.scalar(DType::f64, 2 * k + 1), x);
    } else if (family == Family::Legendre) {
      factor = b.binary(Fn::Mul, x, 2 * k + 1);
    }
    Value* r = b.sub(b.mul(factor, q), b.binary(Fn::Mul, p, back));
    if (family == Family::Laguerre || family == Family::Legendre) r = b.binary(Fn::Div, r, k + 1);
    p = q;
    q = r;
  }
  c.set(q);
}

}  // namespace

std::vector<Row> special_rows() {
  std::vector<Row> rows{
      {"aten.acos.default", elementary<arc_cosine>},
      {"aten.asin.default", elementary<arc_sine>},
      {"aten.atan.default", elementary<arc_tangent>},
      {"aten.atan2.default", elementary2<arc_tangent2>},
      {"aten.sinh.default", elementary<hyperbolic_sine>},
      {"aten.cosh.default", elementary<hyperbolic_cosine>},
      {"aten.asinh.default", elementary<area_hyperbolic_sine>},
      {"aten.acosh.default", elementary<area_hyperbolic_cosine>},
      {"aten.atanh.default", elementary<area_hyperbolic_tangent>},
      {"aten.hypot.default", elementary2<hypotenuse>},
      {"aten.copysign.Tensor", elementary2<copy_sign>},
      {"aten.copysign.Scalar", elementary2<copy_sign>},
      {"aten.signbit.default", sign_of},
      {"aten.fmax.default", extremum_of_numbers<Fn::Max>},
      {"aten.fmin.default", extremum_of_numbers<Fn::Min>},
      {"aten.ldexp.Tensor", load_exponent},
      {"aten.round.decimals", round_decimals},
      {"aten.angle.default", angle},
      {"aten.frexp.Tensor", split_exponent},
      {"aten.nextafter.default", next_after},
      {"aten.logcumsumexp.default", log_cumulative_sum},
      {"aten.erfc.default", in_double<complementary_error>},
      {"aten.special_erfcx.default", in_double<scaled_complementary_error>},
      {"aten.erfinv.default", in_double<inverse_error>},
      {"aten.special_ndtri.default", in_double<inverse_normal>},
      {"aten.lgamma.default", in_double<log_gamma>},
      {"aten.digamma.default", in_double<digamma>},
      {"aten.polygamma.default", poly_gamma},
      {"aten.special_bessel_j0.default", in_double<bessel_j0>},
      {"aten.special_bessel_j1.default", in_double<bessel_j1>},
      {"aten.special_bessel_y0.default", in_double<bessel_y0>},
      {"aten.special_bessel_y1.default", in_double<bessel_y1>},
      {"aten.i0.default", in_double<bessel_i0>},
      {"aten.special_i0e.default", in_double<scaled_bessel_i0>},
      {"aten.special_i1.default", in_double<bessel_i1>},
      {"aten.special_i1e.default", in_double<scaled_bessel_i1>},
      {"aten.special_modified_bessel_i0.default", in_double<bessel_i0>},
      {"aten.special_modified_bessel_i1.default", in_double<bessel_i1>},
      {"aten.special_modified_bessel_k0.default", in_double<bessel_k0>},
      {"aten.special_modified_bessel_k1.default", in_double<bessel_k1>},
      {"aten.special_scaled_modified_bessel_k0.default", in_double<scaled_bessel_k0>},
      {"aten.special_scaled_modified_bessel_k1.default", in_double<scaled_bessel_k1>},
      {"aten.special_spherical_bessel_j0.default", in_double<spherical_bessel_j0>},
      {"aten.special_airy_ai.default", in_double<airy>},
      {"aten.special_hermite_polynomial_h.default", orthogonal<Family::Hermite>},
      {"aten.special_hermite_polynomial_h.n_scalar", orthogonal<Family::Hermite>},
      {"aten.special_hermite_polynomial_he.default", orthogonal<Family::HermiteE>},
      {"aten.special_hermite_polynomial_he.n_scalar", orthogonal<Family::HermiteE>},
      {"aten.special_laguerre_polynomial_l.default", orthogonal<Family::Laguerre>},
      {"aten.special_laguerre_polynomial_l.n_scalar", orthogonal<Family::Laguerre>},
      {"aten.special_legendre_polynomial_p.default", orthogonal<Family::Legendre>},
      {"aten.special_legendre_polynomial_p.n_scalar", orthogonal<Family::Legendre>},
      {"aten.special_zeta.default", in_double2<zeta>},
      {"aten.special_zeta.self_scalar", in_double2<zeta>},
      {"aten.special_zeta.other_scalar", in_double2<zeta>},
  };
#define CUVIL_CHEBYSHEV(letter, name)                                                                   \
  add_chebyshev<Kind::letter, false>(rows, "aten.special_chebyshev_polynomial_" name ".default",        \
                                     "aten.special_chebyshev_polynomial_" name ".x_scalar",             \
                                     "aten.special_chebyshev_polynomial_" name ".n_scalar");            \
  add_chebyshev<Kind::letter, true>(rows, "aten.special_shifted_chebyshev_polynomial_" name ".default", \
                                    "aten.special_shifted_chebyshev_polynomial_" name ".x_scalar",      \
                                    "aten.special_shifted_chebyshev_polynomial_" name ".n_scalar");
  CUVIL_CHEBYSHEV(T, "t")
  CUVIL_CHEBYSHEV(U, "u")
  CUVIL_CHEBYSHEV(V, "v")
  CUVIL_CHEBYSHEV(W, "w")
#undef CUVIL_CHEBYSHEV
  return rows;
}

}  // namespace cuvil::aten
