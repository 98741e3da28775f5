// log, log1p, pow.
//
// x = 2^k · m with m in [sqrt(1/2), sqrt(2)); log(m) from f = m - 1. Float: f - f²/2 + f³ · p(f). Double: the series of
// atanh in s = f / (2 + f), arranged as in Tang's and fdlibm's logarithms so that the leading terms are exact.
#include "codegen/scalar_math.hpp"
#include "codegen/scalar_math_coefficients.hpp"
#include "codegen/scalar_math_emitter.hpp"

namespace cuvil {
namespace {

using llvm::Value;

// What a logarithm is where its argument is not a positive finite number.
Value* edges(MathEmitter& e, Value* result, Value* argument) {
  result = e.b.CreateSelect(e.b.CreateFCmpOEQ(argument, e.infinity()), argument, result);
  result = e.b.CreateSelect(e.b.CreateFCmpOEQ(argument, e.c(0)), e.neg(e.infinity()), result);
  return e.b.CreateSelect(e.b.CreateFCmpOGE(argument, e.c(0)), result, e.nan());
}

// log(x) for positive x as high + low with some 64 bits.
MathEmitter::Pair precise_log(MathEmitter& e, Value* x) {
  const LogReduction reduced = reduce_log_denormal(e, x);
  Value* k = e.small_int_to_float(reduced.exponent);
  Value* m = reduced.mantissa;
  Value* f = e.sub(m, e.c(1));

  // s = f / (m + 1)
  const MathEmitter::Pair divisor = e.two_sum(m, e.c(1));
  Value* s = e.div(f, divisor.high);
  const MathEmitter::Pair product = e.two_product(s, divisor.high);
  Value* rest = e.sub(e.sub(f, product.high), product.low);
  rest = e.sub(rest, e.mul(s, divisor.low));
  Value* s_low = e.div(rest, divisor.high);

  // s³ (2/3 + z q(z)), z = s²
  MathEmitter::Pair z = e.two_product(s, s);
  z.low = e.add(z.low, e.mul(e.add(s, s), s_low));
  Value* q = e.mul(z.high, e.polynomial(coefficients::pow_log_f64, z.high));
  constexpr double two_thirds = 2.0 / 3, two_thirds_low = 0x1.5555555555555p-55;
  MathEmitter::Pair a = e.fast_two_sum(e.c(two_thirds), q);
  a.low = e.add(a.low, e.c(two_thirds_low));
  MathEmitter::Pair w = e.two_product(z.high, a.high);
  w.low = e.add(w.low, e.add(e.mul(z.high, a.low), e.mul(z.low, a.high)));
  MathEmitter::Pair cubic = e.two_product(s, w.high);
  cubic.low = e.add(cubic.low, e.add(e.mul(s, w.low), e.mul(s_low, w.high)));

  // k ln 2 + 2s + cubic
  const MathEmitter::Pair first = e.fast_two_sum(e.add(s, s), cubic.high);
  const MathEmitter::Pair sum = e.two_sum(e.mul(k, e.c(coefficients::ln2_f64[0])), first.high);
  Value* low = e.add(cubic.low, e.add(s_low, s_low));
  low = e.add(e.add(low, first.low), e.mul(k, e.c(coefficients::ln2_f64[1])));
  return e.fast_two_sum(sum.high, e.add(sum.low, low));
}

// x^y from magnitude = |x|^y, which is right wherever |x| is neither 0, 1 nor infinite and y is neither 0 nor NaN.
Value* pow_edges(MathEmitter& e, Value* x, Value* y, Value* magnitude) {
  llvm::IRBuilderBase& b = e.b;
  Value* ax = e.abs(x);
  Value* is_zero = b.CreateFCmpOEQ(x, e.c(0));
  Value* is_edge = b.CreateOr(is_zero, b.CreateFCmpOEQ(ax, e.infinity()));
  Value* grows = b.CreateXor(is_zero, b.CreateFCmpOGT(y, e.c(0)));
  Value* result = b.CreateSelect(is_edge, b.CreateSelect(grows, e.infinity(), e.c(0)), magnitude);

  Value* is_integer = b.CreateFCmpOEQ(e.trunc(y), y);
  Value* half = e.mul(y, e.c(0.5));
  Value* is_odd = b.CreateAnd(is_integer, b.CreateFCmpONE(e.trunc(half), half));
  result = b.CreateSelect(is_odd, e.copysign(result, x), result);
  Value* negative = b.CreateAnd(b.CreateFCmpOLT(x, e.c(0)), b.CreateFCmpOGT(x, e.neg(e.infinity())));
  Value* undefined = b.CreateAnd(negative, b.CreateNot(is_integer));
  undefined = b.CreateOr(undefined, b.CreateFCmpUNO(x, y));
  result = b.CreateSelect(undefined, e.nan(), result);

  Value* is_one = b.CreateOr(b.CreateFCmpOEQ(x, e.c(1)), b.CreateFCmpOEQ(y, e.c(0)));
  Value* minus_one = b.CreateAnd(b.CreateFCmpOEQ(x, e.c(-1)), b.CreateFCmpOEQ(e.abs(y), e.infinity()));
  return b.CreateSelect(b.CreateOr(is_one, minus_one), e.c(1), result);
}

}  // namespace

LogReduction reduce_log(MathEmitter& e, Value* x) {
  Value* bits = e.bits(x);
  Value* exponent = e.b.CreateAShr(e.b.CreateSub(bits, e.bits(e.c(0x1.6a09e667f3bcdp-1))), e.ci(e.mantissa_bits()));
  Value* mantissa = e.from_bits(e.b.CreateSub(bits, e.b.CreateShl(exponent, e.ci(e.mantissa_bits()))));
  return {exponent, mantissa};
}

LogReduction reduce_log_denormal(MathEmitter& e, Value* x) {
  Value* is_small = e.b.CreateFCmpOLT(x, e.c(e.wide() ? 0x1p-1022 : 0x1p-126));
  Value* scaled = e.b.CreateSelect(is_small, e.mul(x, e.c(e.wide() ? 0x1p54 : 0x1p25)), x);
  LogReduction reduced = reduce_log(e, scaled);
  reduced.exponent = e.b.CreateSub(reduced.exponent, e.b.CreateSelect(is_small, e.ci(e.wide() ? 54 : 25), e.ci(0)));
  return reduced;
}

Value* reduced_log(MathEmitter& e, Value* k, Value* f) {
  Value* square = e.mul(f, f);
  if (!e.wide()) {
    Value* low = e.mul(k, e.c(coefficients::ln2_f32[1]));
    Value* tail = e.mad(e.mul(square, f), e.polynomial(coefficients::log_f32, f), low);
    tail = e.mad(square, e.c(-0.5), tail);
    return e.mad(k, e.c(coefficients::ln2_f32[0]), e.add(f, tail));
  }
  Value* s = e.div(f, e.add(f, e.c(2)));
  Value* z = e.mul(s, s);
  Value* tail = e.mul(z, e.polynomial(coefficients::log_f64, z));
  Value* half_square = e.mul(square, e.c(0.5));
  Value* inner = e.mad(s, e.add(half_square, tail), e.mul(k, e.c(coefficients::ln2_f64[1])));
  Value* correction = e.sub(e.sub(half_square, inner), f);
  return e.sub(e.mul(k, e.c(coefficients::ln2_f64[0])), correction);
}

Value* ScalarMath::log(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  const LogReduction reduced = reduce_log_denormal(e, x);
  Value* f = e.sub(reduced.mantissa, e.c(1));
  return edges(e, reduced_log(e, e.small_int_to_float(reduced.exponent), f), x);
}

// 1 + x = 2^k m, but f = m - 1 is computed from x itself: x / 2^k + (1 / 2^k - 1) loses nothing to the rounding of 1 +
// x. 1 / 2^k comes in two factors because it may be denormal.
Value* ScalarMath::log1p(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  Value* u = e.add(x, e.c(1));
  const LogReduction reduced = reduce_log(e, u);
  Value* half = builder_.CreateAShr(reduced.exponent, e.ci(1));
  Value* first = e.power_of_two(builder_.CreateNeg(half));
  Value* second = e.power_of_two(builder_.CreateSub(half, reduced.exponent));
  Value* f = e.mad(e.mul(x, first), second, e.sub(e.mul(first, second), e.c(1)));
  Value* result = reduced_log(e, e.small_int_to_float(reduced.exponent), f);
  return e.copysign(edges(e, result, u), x);  // the sign matters for -0
}

Value* ScalarMath::pow(Value* x, Value* y) {
  llvm::Type* type = x->getType();
  const bool narrow = type->getScalarType()->isFloatTy();
  llvm::Type* wide_type = type_like(type, builder_.getDoubleTy());
  MathEmitter e(builder_, fma_, wide_type);
  if (narrow) {
    x = builder_.CreateFPExt(x, wide_type);
    y = builder_.CreateFPExt(y, wide_type);
  }
  // Larger exponents give what this one gives, and products of smaller ones are finite.
  Value* exponent = e.at_most(e.at_least(y, -0x1p80), 0x1p80);
  Value* magnitude = e.abs(x);
  Value* result;
  if (narrow) {
    const LogReduction reduced = reduce_log(e, magnitude);
    Value* log = reduced_log(e, e.small_int_to_float(reduced.exponent), e.sub(reduced.mantissa, e.c(1)));
    result = exp_of_sum(e, e.mul(exponent, log), e.c(0));
  } else {
    const MathEmitter::Pair log = precise_log(e, magnitude);
    const MathEmitter::Pair product = e.two_product(exponent, log.high);
    result = exp_of_sum(e, product.high, e.add(product.low, e.mul(exponent, log.low)));
  }
  result = pow_edges(e, x, y, result);
  return narrow ? builder_.CreateFPTrunc(result, type) : result;
}

}  // namespace cuvil
