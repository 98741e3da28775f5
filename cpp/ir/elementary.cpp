#include "ir/elementary.hpp"

#include <cmath>
#include <limits>

namespace cuvil {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Beyond it, 1 is lost beside x² in every float type.
constexpr double kLarge = 1e9;

}  // namespace

Value* polynomial(Builder& b, Value* x, const std::vector<double>& coefficients) {
  Value* y = b.scalar(x->type.dtype, coefficients.at(0));
  for (size_t i = 1; i < coefficients.size(); ++i) y = b.binary(Fn::Add, b.mul(y, x), coefficients[i]);
  return y;
}

Value* monic_polynomial(Builder& b, Value* x, const std::vector<double>& coefficients) {
  Value* y = b.binary(Fn::Add, x, coefficients.at(0));
  for (size_t i = 1; i < coefficients.size(); ++i) y = b.binary(Fn::Add, b.mul(y, x), coefficients[i]);
  return y;
}

Value* chebyshev_series(Builder& b, Value* x, const std::vector<double>& coefficients) {
  Value* current = b.scalar(x->type.dtype, coefficients.at(0));
  Value* last = b.scalar(x->type.dtype, 0);
  Value* before_last = last;
  for (size_t i = 1; i < coefficients.size(); ++i) {
    before_last = last;
    last = current;
    current = b.binary(Fn::Add, b.sub(b.mul(x, last), before_last), coefficients[i]);
  }
  return b.binary(Fn::Mul, b.sub(current, before_last), 0.5);
}

Value* sign_bit(Builder& b, Value* x) {
  Value* negative_zero = b.binary(Fn::And, b.binary(Fn::Eq, x, 0.0), b.binary(Fn::Lt, b.unary(Fn::Reciprocal, x), 0.0));
  return b.binary(Fn::Or, b.binary(Fn::Lt, x, 0.0), negative_zero);
}

Value* copy_sign(Builder& b, Value* magnitude, Value* sign) {
  Value* a = b.unary(Fn::Abs, magnitude);
  return b.select(sign_bit(b, sign), b.unary(Fn::Neg, a), a);
}

Value* arc_tangent(Builder& b, Value* x) {
  // By tan(a + b) to |z| < tan(π/8), then a rational approximation.
  Value* a = b.unary(Fn::Abs, x);
  Value* high = b.binary(Fn::Gt, a, 2.41421356237309504880);
  Value* middle = b.binary(Fn::Gt, a, 0.66);
  Value* shifted = b.div(b.binary(Fn::Sub, a, 1.0), b.binary(Fn::Add, a, 1.0));
  Value* z = b.select(high, b.unary(Fn::Neg, b.unary(Fn::Reciprocal, a)), b.select(middle, shifted, a));
  auto number = [&](double v) { return b.scalar(x->type.dtype, v); };
  Value* base = b.select(high, number(M_PI_2), b.select(middle, number(M_PI_4), number(0)));
  Value* w = b.mul(z, z);
  Value* p = polynomial(b, w,
                        {-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
                         -1.228866684490136173410e2, -6.485021904942025371773e1});
  Value* q = monic_polynomial(b, w,
                              {2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
                               4.853903996359136964868e2, 1.945506571482613964425e2});
  Value* y = b.add(base, b.add(b.mul(b.mul(z, w), b.div(p, q)), z));
  return copy_sign(b, y, x);
}

Value* arc_tangent2(Builder& b, Value* y, Value* x) {
  Value* ax = b.unary(Fn::Abs, x);
  Value* ay = b.unary(Fn::Abs, y);
  Value* steep = b.binary(Fn::Gt, ay, ax);
  Value* larger = b.binary(Fn::Max, ax, ay);
  Value* smaller = b.binary(Fn::Min, ax, ay);
  // 0/0 is 0 and ∞/∞ is 1 here.
  Value* one = b.scalar(x->type.dtype, 1);
  Value* equal = b.binary(Fn::And, b.binary(Fn::Eq, ax, ay), b.binary(Fn::Gt, ax, 0.0));
  Value* ratio = b.div(smaller, b.select(b.binary(Fn::Eq, larger, 0.0), one, larger));
  Value* r = arc_tangent(b, b.select(equal, one, ratio));
  r = b.select(steep, b.sub(b.scalar(x->type.dtype, M_PI_2), r), r);
  r = b.select(sign_bit(b, x), b.sub(b.scalar(x->type.dtype, M_PI), r), r);
  r = copy_sign(b, r, y);
  Value* sum = b.add(x, y);
  Value* any_nan = b.binary(Fn::Or, b.unary(Fn::IsNan, x), b.unary(Fn::IsNan, y));
  return b.select(any_nan, sum, r);
}

namespace {

// sqrt(1 - x²), exact to rounding near ±1.
Value* other_leg(Builder& b, Value* x) {
  Value* one = b.scalar(x->type.dtype, 1);
  return b.unary(Fn::Sqrt, b.mul(b.sub(one, x), b.add(one, x)));
}

}  // namespace

Value* arc_sine(Builder& b, Value* x) {
  return b.binary(Fn::Mul, arc_tangent(b, b.div(x, b.binary(Fn::Add, other_leg(b, x), 1.0))), 2.0);
}

Value* arc_cosine(Builder& b, Value* x) {
  Value* one = b.scalar(x->type.dtype, 1);
  Value* half_tangent = b.unary(Fn::Sqrt, b.div(b.sub(one, x), b.add(one, x)));
  Value* y = b.binary(Fn::Mul, arc_tangent(b, half_tangent), 2.0);
  return b.select(b.binary(Fn::Gt, b.unary(Fn::Abs, x), 1.0), b.scalar(x->type.dtype, NAN), y);
}

Value* hyperbolic_sine(Builder& b, Value* x) {
  Value* a = b.unary(Fn::Abs, x);
  Value* e = b.unary(Fn::Expm1, a);
  Value* y = b.binary(Fn::Mul, b.add(e, b.div(e, b.binary(Fn::Add, e, 1.0))), 0.5);
  Value* root = b.unary(Fn::Exp, b.binary(Fn::Mul, a, 0.5));
  y = b.select(b.binary(Fn::Gt, a, 20.0), b.mul(b.binary(Fn::Mul, root, 0.5), root), y);
  return copy_sign(b, y, x);
}

Value* hyperbolic_cosine(Builder& b, Value* x) {
  Value* a = b.unary(Fn::Abs, x);
  Value* e = b.unary(Fn::Exp, a);
  Value* y = b.binary(Fn::Mul, b.add(e, b.unary(Fn::Reciprocal, e)), 0.5);
  Value* root = b.unary(Fn::Exp, b.binary(Fn::Mul, a, 0.5));
  return b.select(b.binary(Fn::Gt, a, 20.0), b.mul(b.binary(Fn::Mul, root, 0.5), root), y);
}

Value* area_hyperbolic_sine(Builder& b, Value* x) {
  Value* a = b.unary(Fn::Abs, x);
  Value* square = b.mul(a, a);
  Value* root = b.unary(Fn::Sqrt, b.binary(Fn::Add, square, 1.0));
  Value* y = b.unary(Fn::Log1p, b.add(a, b.div(square, b.binary(Fn::Add, root, 1.0))));
  Value* large = b.binary(Fn::Add, b.unary(Fn::Log, a), M_LN2);
  return copy_sign(b, b.select(b.binary(Fn::Gt, a, kLarge), large, y), x);
}

Value* area_hyperbolic_cosine(Builder& b, Value* x) {
  Value* t = b.binary(Fn::Sub, x, 1.0);
  Value* root = b.unary(Fn::Sqrt, b.mul(t, b.binary(Fn::Add, t, 2.0)));
  Value* y = b.unary(Fn::Log1p, b.add(t, root));
  Value* large = b.binary(Fn::Add, b.unary(Fn::Log, x), M_LN2);
  y = b.select(b.binary(Fn::Gt, x, kLarge), large, y);
  return b.select(b.binary(Fn::Lt, x, 1.0), b.scalar(x->type.dtype, NAN), y);
}

Value* area_hyperbolic_tangent(Builder& b, Value* x) {
  Value* a = b.unary(Fn::Abs, x);
  Value* ratio = b.div(b.binary(Fn::Mul, a, 2.0), b.sub(b.scalar(x->type.dtype, 1), a));
  return copy_sign(b, b.binary(Fn::Mul, b.unary(Fn::Log1p, ratio), 0.5), x);
}

Value* hypotenuse(Builder& b, Value* x, Value* y) {
  Value* ax = b.unary(Fn::Abs, x);
  Value* ay = b.unary(Fn::Abs, y);
  Value* larger = b.binary(Fn::Max, ax, ay);
  Value* ratio = b.div(b.binary(Fn::Min, ax, ay), larger);
  Value* h = b.mul(larger, b.unary(Fn::Sqrt, b.binary(Fn::Add, b.mul(ratio, ratio), 1.0)));
  h = b.select(b.binary(Fn::Eq, larger, 0.0), larger, h);
  Value* infinite = b.binary(Fn::Or, b.binary(Fn::Eq, ax, kInfinity), b.binary(Fn::Eq, ay, kInfinity));
  return b.select(infinite, b.scalar(x->type.dtype, kInfinity), h);
}

Value* sine_of_pi(Builder& b, Value* x) {
  Value* n = b.unary(Fn::Round, x);
  Value* s = b.unary(Fn::Sin, b.binary(Fn::Mul, b.sub(x, n), M_PI));
  Value* odd = b.binary(Fn::Ne, b.binary(Fn::Mod, n, 2.0), 0.0);
  return b.select(odd, b.unary(Fn::Neg, s), s);
}

}  // namespace cuvil
