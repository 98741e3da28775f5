// exp, expm1, sigmoid, tanh.
//
// e^x = 2^n · e^r with n = round(x / ln 2), after Cody and Waite; e^r = 1 + r + r² · q(r).
#include "codegen/scalar_math.hpp"
#include "codegen/scalar_math_coefficients.hpp"
#include "codegen/scalar_math_emitter.hpp"

namespace cuvil {
namespace {

using llvm::Value;

// p · 2^n for any n a clamped argument leads to. Two factors, because 2^n itself may not be a normal number; the first
// product is exact, so a denormal result is rounded once.
Value* scale(MathEmitter& e, Value* p, Value* n) {
  Value* half = e.b.CreateAShr(n, e.ci(1));
  return e.mul(e.mul(p, e.power_of_two(half)), e.power_of_two(e.b.CreateSub(n, half)));
}

// Outside of these e^x is 0 or infinity, and inside, n fits scale().
double lowest(const MathEmitter& e) {
  return e.wide() ? -746 : -104;
}
double highest(const MathEmitter& e) {
  return e.wide() ? 710 : 89;
}

Value* full_exp(MathEmitter& e, Value* x) {
  const ExpReduction reduced = reduce_exp(e, e.at_most(e.at_least(x, lowest(e)), highest(e)));
  return scale(e, e.add(reduced_expm1(e, reduced.r), e.c(1)), reduced.n);
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), in halves so that 2^n does not overflow before the result does.
Value* full_expm1(MathEmitter& e, Value* x) {
  const ExpReduction reduced = reduce_exp(e, e.at_most(e.at_least(x, e.wide() ? -40 : -20), highest(e)));
  Value* half_power = e.power_of_two(e.b.CreateSub(reduced.n, e.ci(1)));
  Value* half = e.mad(half_power, reduced_expm1(e, reduced.r), e.sub(half_power, e.c(0.5)));
  return e.copysign(e.add(half, half), x);  // the sign matters for -0
}

}  // namespace

ExpReduction reduce_exp(MathEmitter& e, Value* x) {
  const double* ln2 = e.wide() ? coefficients::ln2_f64 : coefficients::ln2_f32;
  Value* shifted = e.mad(x, e.c(0x1.71547652b82fep+0), e.magic());
  Value* n = e.sub(shifted, e.magic());
  Value* r = e.mad(n, e.c(-ln2[0]), x);
  r = e.mad(n, e.c(-ln2[1]), r);
  return {e.b.CreateSub(e.bits(shifted), e.bits(e.magic())), r};
}

Value* reduced_expm1(MathEmitter& e, Value* r) {
  Value* q = e.wide() ? e.polynomial(coefficients::exp_f64, r) : e.polynomial(coefficients::exp_f32, r);
  return e.mad(e.mul(r, r), q, r);
}

Value* normal_exp(MathEmitter& e, Value* x) {
  const ExpReduction reduced = reduce_exp(e, x);
  return e.mul(e.add(reduced_expm1(e, reduced.r), e.c(1)), e.power_of_two(reduced.n));
}

Value* exp_of_sum(MathEmitter& e, Value* high, Value* low) {
  Value* limited = e.at_most(e.at_least(high, lowest(e)), highest(e));
  ExpReduction reduced = reduce_exp(e, limited);
  Value* in_range = e.b.CreateFCmpOEQ(limited, high);
  reduced.r = e.add(reduced.r, e.b.CreateSelect(in_range, low, e.c(0)));
  return scale(e, e.add(reduced_expm1(e, reduced.r), e.c(1)), reduced.n);
}

Value* ScalarMath::exp(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  return full_exp(e, x);
}

Value* ScalarMath::expm1(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  return full_expm1(e, x);
}

// With z = e^-|x|, which never overflows, and q = z / (1 + z): 1 - q for x >= 0, z - zq below. In these forms the
// rounding of q counts little where the result's last place is small beside it.
Value* ScalarMath::sigmoid(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  Value* z = full_exp(e, e.neg(e.abs(x)));
  Value* q = e.div(z, e.add(z, e.c(1)));
  Value* whole = builder_.CreateSelect(builder_.CreateFCmpOLT(x, e.c(0)), z, e.c(1));
  return e.mad(e.neg(whole), q, whole);
}

Value* ScalarMath::tanh(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  Value* magnitude = e.abs(x);
  if (e.wide()) {  // t / (t + 2) with t = e^2|x| - 1
    Value* limited = e.at_most(magnitude, 20);
    Value* t = full_expm1(e, e.add(limited, limited));
    return e.copysign(e.div(t, e.add(t, e.c(2))), x);
  }
  Value* limited = e.at_most(magnitude, 10);
  Value* large = e.add(normal_exp(e, e.add(limited, limited)), e.c(1));
  large = e.copysign(e.sub(e.c(1), e.div(e.c(2), large)), x);
  Value* square = e.mul(x, x);
  Value* small = e.mad(e.mul(square, x), e.polynomial(coefficients::tanh_f32, square), x);
  small = builder_.CreateSelect(builder_.CreateFCmpOLT(magnitude, e.c(0x1p-12)), x, small);  // keeps -0
  return builder_.CreateSelect(builder_.CreateFCmpOLT(magnitude, e.c(0.6)), small, large);
}

}  // namespace cuvil
