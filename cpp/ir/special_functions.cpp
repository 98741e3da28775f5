// Gamma and error functions and their relatives, in f64.
#include <cmath>
#include <limits>

#include "ir/elementary.hpp"

namespace cuvil {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value* number(Builder& b, double v) {
  return b.scalar(DType::f64, v);
}

// erfc(a) exp(a²) for a ≥ 1.
Value* error_tail(Builder& b, Value* a) {
  Value* p = polynomial(b, a,
                        {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687,
                         4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2,
                         9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2});
  Value* q = monic_polynomial(
      b, a,
      {1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2,
       1.82390916687909736289e3, 2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2});
  // Beyond 8: in powers of 1/a, whose own range has no bound.
  Value* i = b.unary(Fn::Reciprocal, a);
  Value* r = polynomial(b, i,
                        {2.97886665372100240670, 7.40974269950448939160, 6.16021097993053585195, 5.01905042251180477414,
                         1.27536670759978104416, 5.64189583547755073984e-1});
  Value* s = polynomial(b, i,
                        {3.36907645100081516050, 9.60896809063285878198, 1.70814450747565897222e1,
                         1.20489539808096656605e1, 9.39603524938001434673, 2.26052863220117276590, 1.0});
  return b.select(b.binary(Fn::Lt, a, 8.0), b.div(p, q), b.mul(i, b.div(r, s)));
}

Value* gaussian(Builder& b, Value* x) {
  return b.unary(Fn::Exp, b.unary(Fn::Neg, b.mul(x, x)));
}

}  // namespace

Value* complementary_error(Builder& b, Value* x) {
  Value* a = b.unary(Fn::Abs, x);
  Value* tail = b.mul(gaussian(b, a), error_tail(b, b.binary(Fn::Max, a, 1.0)));
  Value* far = b.select(b.binary(Fn::Lt, x, 0.0), b.sub(number(b, 2), tail), tail);
  Value* near = b.sub(number(b, 1), b.unary(Fn::Erf, x));
  Value* y = b.select(b.binary(Fn::Lt, a, 1.0), near, far);
  // exp(-x²) underflows to 0 there, and the tail to 0 · 0.
  y = b.select(b.binary(Fn::Gt, x, 28.0), number(b, 0), y);
  return b.select(b.binary(Fn::Lt, x, -28.0), number(b, 2), y);
}

Value* scaled_complementary_error(Builder& b, Value* x) {
  Value* near = b.mul(b.unary(Fn::Exp, b.mul(x, x)), complementary_error(b, b.binary(Fn::Min, x, 1.0)));
  Value* y = b.select(b.binary(Fn::Lt, x, 1.0), near, error_tail(b, b.binary(Fn::Max, x, 1.0)));
  return b.select(b.binary(Fn::Eq, x, kInfinity), number(b, 0), y);
}

namespace {

// The y ≥ 0 with erfc(y) = complement = 1 - a: a start within a percent (Giles), then steps of Newton's method.
Value* inverse_positive(Builder& b, Value* a, Value* complement) {
  Value* w = b.unary(Fn::Neg, b.unary(Fn::Log, b.mul(complement, b.binary(Fn::Add, a, 1.0))));
  Value* near = polynomial(b, b.binary(Fn::Sub, w, 2.5),
                           {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                            -0.00125372503, -0.00417768164, 0.246640727, 1.50140941});
  Value* far = polynomial(b, b.binary(Fn::Sub, b.unary(Fn::Sqrt, w), 3.0),
                          {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
                           0.00943887047, 1.00167406, 2.83297682});
  Value* farthest = b.unary(Fn::Sqrt, b.sub(w, b.binary(Fn::Mul, b.unary(Fn::Log, b.binary(Fn::Mul, w, M_PI)), 0.5)));
  Value* y = b.mul(a, b.select(b.binary(Fn::Lt, w, 5.0), near, far));
  y = b.select(b.binary(Fn::Gt, w, 30.0), farthest, y);
  Value* small = b.binary(Fn::Lt, a, 0.5);
  for (int i = 0; i < 3; ++i) {
    Value* error = b.select(small, b.sub(b.unary(Fn::Erf, y), a), b.sub(complement, complementary_error(b, y)));
    Value* step = b.div(error, b.binary(Fn::Mul, gaussian(b, y), M_2_SQRTPI));
    // Halley's correction.
    y = b.sub(y, b.div(step, b.binary(Fn::Add, b.mul(y, step), 1.0)));
  }
  return b.select(b.binary(Fn::Eq, complement, 0.0), number(b, kInfinity), y);
}

}  // namespace

Value* inverse_error(Builder& b, Value* x) {
  Value* a = b.unary(Fn::Abs, x);
  return copy_sign(b, inverse_positive(b, a, b.sub(number(b, 1), a)), x);
}

Value* inverse_normal(Builder& b, Value* x) {
  Value* upper = b.sub(number(b, 1), x);
  Value* complement = b.binary(Fn::Mul, b.binary(Fn::Min, x, upper), 2.0);
  Value* y = b.binary(Fn::Mul, inverse_positive(b, b.sub(number(b, 1), complement), complement), M_SQRT2);
  return b.select(b.binary(Fn::Lt, x, 0.5), b.unary(Fn::Neg, y), y);
}

Value* log_gamma(Builder& b, Value* x) {
  // Γ(x) Γ(1 - x) = π / sin(πx) for the left half, xⁿ… steps up to where Stirling's series is exact.
  Value* left = b.binary(Fn::Lt, x, 0.5);
  Value* z = b.select(left, b.sub(number(b, 1), x), x);
  Value* small = b.binary(Fn::Lt, z, 8.0);
  Value* product = z;
  for (int i = 1; i < 8; ++i) product = b.mul(product, b.binary(Fn::Add, z, i));
  Value* high = b.select(small, b.binary(Fn::Add, z, 8.0), z);
  Value* inverse = b.unary(Fn::Reciprocal, high);
  Value* series = b.mul(inverse, polynomial(b, b.mul(inverse, inverse),
                                            {-1.9175269175269175e-3, 8.417508417508417e-4, -5.952380952380953e-4,
                                             7.936507936507937e-4, -2.777777777777778e-3, 8.333333333333333e-2}));
  Value* y = b.sub(b.mul(b.binary(Fn::Sub, high, 0.5), b.binary(Fn::Sub, b.unary(Fn::Log, high), 1.0)),
                   number(b, 0.5 - 0.91893853320467274178));
  y = b.add(y, series);
  y = b.select(small, b.sub(y, b.unary(Fn::Log, product)), y);
  Value* sine = b.unary(Fn::Abs, sine_of_pi(b, x));
  Value* reflected = b.sub(b.unary(Fn::Log, b.div(number(b, M_PI), sine)), y);
  y = b.select(left, reflected, y);
  return b.select(b.unary(Fn::IsInf, x), number(b, kInfinity), y);
}

Value* digamma(Builder& b, Value* x) {
  Value* left = b.binary(Fn::Lt, x, 0.0);
  Value* z = b.select(left, b.sub(number(b, 1), x), x);
  Value* small = b.binary(Fn::Lt, z, 10.0);
  Value* sum = b.unary(Fn::Reciprocal, z);
  for (int i = 1; i < 10; ++i) sum = b.add(sum, b.unary(Fn::Reciprocal, b.binary(Fn::Add, z, i)));
  Value* high = b.select(small, b.binary(Fn::Add, z, 10.0), z);
  Value* inverse = b.unary(Fn::Reciprocal, high);
  Value* square = b.mul(inverse, inverse);
  Value* series =
      b.mul(square, polynomial(b, square,
                               {8.33333333333333333333e-2, -2.10927960927960927961e-2, 7.57575757575757575758e-3,
                                -4.16666666666666666667e-3, 3.96825396825396825397e-3, -8.33333333333333333333e-3,
                                8.33333333333333333333e-2}));
  Value* y = b.sub(b.sub(b.unary(Fn::Log, high), b.binary(Fn::Mul, inverse, 0.5)), series);
  y = b.select(small, b.sub(y, sum), y);
  Value* fraction = b.sub(x, b.unary(Fn::Round, x));
  Value* angle = b.binary(Fn::Mul, fraction, M_PI);
  Value* cotangent = b.div(b.unary(Fn::Cos, angle), b.unary(Fn::Sin, angle));
  y = b.select(left, b.sub(y, b.binary(Fn::Mul, cotangent, M_PI)), y);
  Value* pole = b.binary(Fn::And, left, b.binary(Fn::Eq, fraction, 0.0));
  y = b.select(pole, number(b, NAN), y);
  y = b.select(b.binary(Fn::Eq, x, kInfinity), x, y);
  return b.select(b.binary(Fn::Eq, x, 0.0), copy_sign(b, number(b, kInfinity), b.unary(Fn::Neg, x)), y);
}

namespace {

// For q > 0: the first terms, then the series of Euler and Maclaurin for the rest.
Value* positive_zeta(Builder& b, Value* s, Value* q) {
  constexpr int kTerms = 10;
  auto term = [&](Value* base) { return b.binary(Fn::Pow, base, b.unary(Fn::Neg, s)); };
  Value* sum = term(q);
  for (int i = 1; i < kTerms; ++i) sum = b.add(sum, term(b.binary(Fn::Add, q, i)));
  Value* w = b.binary(Fn::Add, q, kTerms);
  Value* power = term(w);
  sum = b.add(sum, b.mul(power, b.binary(Fn::Add, b.div(w, b.binary(Fn::Sub, s, 1.0)), 0.5)));
  Value* inverse = b.unary(Fn::Reciprocal, w);
  Value* factor = b.mul(b.mul(power, s), inverse);
  // B₂ₖ / (2k)!
  const double coefficients[] = {1.0 / 12,
                                 -1.0 / 720,
                                 1.0 / 30240,
                                 -1.0 / 1209600,
                                 1.0 / 47900160,
                                 -691.0 / 1307674368000.0,
                                 1.0 / 74724249600.0,
                                 -3617.0 / 10670622842880000.0};
  int k = 1;
  for (double coefficient : coefficients) {
    sum = b.add(sum, b.binary(Fn::Mul, factor, coefficient));
    factor = b.mul(b.mul(factor, b.binary(Fn::Add, s, k)), b.mul(b.binary(Fn::Add, s, k + 1), b.mul(inverse, inverse)));
    k += 2;
  }
  return b.select(b.binary(Fn::Eq, q, kInfinity), number(b, 0), sum);
}

}  // namespace

Value* zeta(Builder& b, Value* s, Value* q) {
  // Terms of negative q, for whole s: ζ(s, q) = ζ(s, f) + (-1)ˢ (ζ(s, 1 - f) - ζ(s, 1 - q)), where f = q - ⌊q⌋.
  Value* floor = b.unary(Fn::Floor, q);
  Value* f = b.sub(q, floor);
  Value* negative = b.binary(Fn::Lt, q, 0.0);
  Value* from = b.select(negative, f, q);
  Value* left = b.sub(positive_zeta(b, s, b.select(negative, b.sub(number(b, 1), f), number(b, 1))),
                      positive_zeta(b, s, b.select(negative, b.sub(number(b, 1), q), number(b, 1))));
  Value* odd = b.binary(Fn::Ne, b.binary(Fn::Mod, s, 2.0), 0.0);
  left = b.select(odd, b.unary(Fn::Neg, left), left);
  Value* y = positive_zeta(b, s, from);
  y = b.select(negative, b.add(y, left), y);
  Value* nan = number(b, NAN);
  Value* fractional = b.binary(Fn::Ne, s, b.unary(Fn::Floor, s));
  y = b.select(b.binary(Fn::And, negative, fractional), nan, y);
  Value* pole = b.binary(Fn::And, b.binary(Fn::Le, q, 0.0), b.binary(Fn::Eq, q, floor));
  y = b.select(pole, number(b, kInfinity), y);
  y = b.select(b.binary(Fn::Lt, s, 1.0), nan, y);
  return b.select(b.binary(Fn::Eq, s, 1.0), number(b, kInfinity), y);
}

Value* polygamma(Builder& b, int64_t n, Value* x) {
  if (n == 0) return digamma(b, x);
  double factor = std::tgamma(static_cast<double>(n) + 1) * (n % 2 ? 1 : -1);
  return b.binary(Fn::Mul, zeta(b, number(b, static_cast<double>(n) + 1), x), factor);
}

}  // namespace cuvil
