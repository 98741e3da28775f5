// exp, expm1, sigmoid, tanh.
//
// e^x = 2^n · e^r with n = round(x / ln 2), after Cody and Waite; e^r = 1 + r + r² · q(r). In float, AVX-512 has n in
// sixteenths and AVX2 in eighths, with their powers in a table; and AVX-512 takes tanh from tables.
#include <llvm/IR/IntrinsicsX86.h>

#include <bit>

#include "codegen/scalar_math.hpp"
#include "codegen/scalar_math_coefficients.hpp"
#include "codegen/scalar_math_emitter.hpp"

namespace cuvil {
namespace {

using llvm::Value;

// p · 2^n for the n that a clamped x leads to. Two factors, because 2^n itself may not be a normal number; the first
// product is exact, so a denormal result is rounded once.
Value* scale(MathEmitter& e, Value* p, Value* n, Value* x) {
  // 2^n / second = 2^(n + bias) / (second · 2^bias), on the exponents' bits.
  Value* negative = e.b.CreateICmpSLT(e.bits(x), e.ci(0));
  Value* second = e.b.CreateSelect(negative, e.c(e.wide() ? 0x1p-128 : 0x1p-32), e.c(2));
  Value* first = e.b.CreateShl(e.b.CreateAdd(n, e.ci(2 * e.bias())), e.ci(e.mantissa_bits()));
  return e.mul(e.mul(p, e.from_bits(e.b.CreateSub(first, e.bits(second)))), second);
}

// e^r for a reduced r.
Value* reduced_exp(MathEmitter& e, Value* r) {
  if (e.wide()) return e.add(reduced_expm1(e, r), e.c(1));
  return e.mad(e.mad(e.polynomial(coefficients::exp_f32, r), r, e.c(1)), r, e.c(1));
}

// Outside of these e^x is 0 or infinity, and inside, n fits scale().
double lowest(const MathEmitter& e) {
  return e.wide() ? -746 : -104;
}
double highest(const MathEmitter& e) {
  return e.wide() ? 710 : 89;
}

Value* full_exp(MathEmitter& e, Value* x) {
  Value* limited = e.at_most(e.at_least(x, lowest(e)), highest(e));
  const ExpReduction reduced = reduce_exp(e, limited);
  return scale(e, reduced_exp(e, reduced.r), reduced.n, x);
}

// e^x for x <= 0.
Value* negative_exp(MathEmitter& e, Value* x) {
  const ExpReduction reduced = reduce_exp(e, e.at_least(x, lowest(e)));
  const int shift = e.wide() ? 128 : 32;
  Value* first = e.power_of_two(e.b.CreateAdd(reduced.n, e.ci(shift)));
  return e.mul(e.mul(reduced_exp(e, reduced.r), first), e.c(e.wide() ? 0x1p-128 : 0x1p-32));
}

// p · 2^floor(n), rounded once.
Value* scale_by_instruction(MathEmitter& e, Value* p, Value* n) {
  Value* every = llvm::ConstantInt::getAllOnesValue(e.b.getInt16Ty());
  Value* round_to_nearest = e.b.getInt32(4);  // as the control register says
  return e.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {}, {p, n, p, every, round_to_nearest});
}

// e^x for -104 <= x <= 89 as 2^n · 2^(j/16) · e^r. Where 2^n · 2^(j/16) cannot overflow, it is formed while r is, which
// leaves fewer steps one after the other; a denormal result is then rounded twice.
Value* exp_by_table(MathEmitter& e, Value* x, bool overflows) {
  Value* magic = e.c(0x1.8p19);  // rounds to multiples of 1/16
  Value* shifted = e.mad(x, e.c(0x1.71547652b82fep+0), magic);
  Value* n = e.sub(shifted, magic);
  // Exact, and so near to the reduced argument that the rest counts only as a term of e^r.
  Value* r = e.mad(n, e.c(-coefficients::ln2_rounded_f32[0]), x);
  Value* rest = look_up(e.b, coefficients::exp2_table_rest_f32, e.bits(shifted));
  rest = e.mad(n, e.c(-coefficients::ln2_rounded_f32[1]), rest);
  rest = e.mad(e.mad(e.polynomial(coefficients::exp_narrow_f32, r), r, e.c(1)), r, rest);
  Value* power = look_up(e.b, coefficients::exp2_table_f32, e.bits(shifted));
  if (overflows) return scale_by_instruction(e, e.mad(power, rest, power), n);
  power = scale_by_instruction(e, power, n);
  return e.mad(power, rest, power);
}

// The same in eighths, by AVX2 and integer additions to exponents; `overflows` if x may be positive. As in scale(),
// a second factor takes what would leave the range of normal numbers.
Value* exp_by_short_table(MathEmitter& e, Value* x, bool overflows) {
  Value* magic = e.c(0x1.8p20);
  Value* shifted = e.mad(x, e.c(0x1.71547652b82fep+0), magic);
  Value* n = e.sub(shifted, magic);
  Value* r = e.mad(n, e.c(-coefficients::ln2_rounded_f32[0]), x);
  Value* rest = look_up(e.b, coefficients::exp2_eighths_rest_f32, e.bits(shifted));
  rest = e.mad(n, e.c(-coefficients::ln2_rounded_f32[1]), rest);
  rest = e.mad(e.mad(e.polynomial(coefficients::exp_eighths_f32, r), r, e.c(1)), r, rest);
  // 2^(j/8) · 2^bias, less the bits of j that the shifted bits of n carry below the exponent.
  float powers[8];
  for (uint32_t j = 0; j < 8; ++j) {
    powers[j] =
        std::bit_cast<float>(std::bit_cast<uint32_t>(coefficients::exp2_eighths_f32[j]) + (127U << 23) - (j << 20));
  }
  Value* power = e.b.CreateAdd(e.bits(look_up(e.b, powers, e.bits(shifted))), e.b.CreateShl(e.bits(shifted), e.ci(20)));
  Value* second = e.c(0x1p-32);
  if (overflows) second = e.b.CreateSelect(e.b.CreateICmpSLT(e.bits(x), e.ci(0)), second, e.c(2));
  power = e.from_bits(e.b.CreateSub(power, e.bits(second)));
  return e.mul(e.mad(power, rest, power), second);
}

// e^x for a float x in the range of full_exp, on a target that permutes.
Value* permuted_exp(MathEmitter& e, Value* x, bool overflows) {
  const bool long_table = llvm::cast<llvm::FixedVectorType>(e.type)->getNumElements() == 16;
  return long_table ? exp_by_table(e, x, overflows) : exp_by_short_table(e, x, overflows);
}

// With z = e^-|x|, which never overflows, and q = z / (1 + z): 1 - q for x >= 0, z - zq below. In these forms the
// rounding of q counts little where the result's last place is small beside it.
Value* sigmoid_of_exp(MathEmitter& e, Value* x, Value* z) {
  Value* q = e.div(z, e.add(z, e.c(1)));
  Value* whole = e.b.CreateSelect(e.b.CreateICmpSLT(e.bits(x), e.ci(0)), z, e.c(1));
  return e.mad(e.neg(whole), q, whole);
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
  return e.mul(reduced_exp(e, reduced.r), e.power_of_two(reduced.n));
}

Value* exp_of_sum(MathEmitter& e, Value* high, Value* low) {
  Value* limited = e.at_most(e.at_least(high, lowest(e)), highest(e));
  ExpReduction reduced = reduce_exp(e, limited);
  Value* in_range = e.b.CreateFCmpOEQ(limited, high);
  reduced.r = e.add(reduced.r, e.b.CreateSelect(in_range, low, e.c(0)));
  return scale(e, e.add(reduced_expm1(e, reduced.r), e.c(1)), reduced.n, high);
}

Value* ScalarMath::exp(Value* x) {
  if (permutes_ != Permutes::none && x->getType()->getScalarType()->isFloatTy()) {
    return in_registers(builder_, x, permutes_ == Permutes::avx512 ? 16 : 8, [&](Value* part) {
      MathEmitter e(builder_, true, part->getType());
      return permuted_exp(e, e.at_most(e.at_least(part, lowest(e)), highest(e)), true);
    });
  }
  MathEmitter e(builder_, fma_, x->getType());
  return full_exp(e, x);
}

Value* ScalarMath::expm1(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  return full_expm1(e, x);
}

Value* ScalarMath::sigmoid(Value* x) {
  if (permutes_ != Permutes::none && x->getType()->getScalarType()->isFloatTy()) {
    return in_registers(builder_, x, permutes_ == Permutes::avx512 ? 16 : 8, [&](Value* part) {
      MathEmitter e(builder_, true, part->getType());
      return sigmoid_of_exp(e, part, permuted_exp(e, e.at_least(e.neg(e.abs(part)), lowest(e)), false));
    });
  }
  MathEmitter e(builder_, fma_, x->getType());
  return sigmoid_of_exp(e, x, negative_exp(e, e.neg(e.abs(x))));
}

// v / (v + 1) with v = (e^2|x| - 1) / 2, as v - vq or 1 - q with q = min(v, 1) / (v + 1): the rounding of q counts
// little.
Value* ScalarMath::tanh(Value* x) {
  if (permutes_ == Permutes::avx512 && x->getType()->getScalarType()->isFloatTy()) {
    return in_registers(builder_, x, 16, [&](Value* part) {
      MathEmitter e(builder_, true, part->getType());
      return odd_by_table(e, part, coefficients::tanh_table_f32, coefficients::tanh_step_f32, 9.07);
    });
  }
  MathEmitter e(builder_, fma_, x->getType());
  Value* limited = e.at_most(e.abs(x), e.wide() ? 20 : 10);  // tanh is 1 from there on
  const ExpReduction reduced = reduce_exp(e, e.add(limited, limited));
  Value* half_power = e.power_of_two(e.b.CreateSub(reduced.n, e.ci(1)));
  Value* v = e.mad(half_power, reduced_expm1(e, reduced.r), e.sub(half_power, e.c(0.5)));
  Value* whole = e.at_most(v, 1);
  Value* q = e.div(whole, e.add(v, e.c(1)));
  return e.copysign(e.mad(e.neg(whole), q, whole), x);
}

}  // namespace cuvil
