// Arithmetic on one floating-point type as LLVM IR: the vocabulary the elementary functions are written in.
#pragma once

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <cstdint>

namespace cuvil {

/// `element`, or a vector of it with as many lanes as `shape`.
inline llvm::Type* type_like(llvm::Type* shape, llvm::Type* element) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape);
  return vector != nullptr ? llvm::FixedVectorType::get(element, vector->getNumElements()) : element;
}

/// Emits operations on float, double or a fixed vector of them, without any fast-math flag: every operation rounds
/// once, in the order written. Restores the builder's flags when it goes.
class MathEmitter {
 public:
  using Value = llvm::Value;

  MathEmitter(llvm::IRBuilderBase& builder, bool fma, llvm::Type* type) : b(builder), fma(fma), type(type), guard_(b) {
    b.clearFastMathFlags();
    int_type = type_like(type, llvm::Type::getIntNTy(type->getContext(), type->getScalarSizeInBits()));
  }

  bool wide() const { return type->getScalarType()->isDoubleTy(); }
  int mantissa_bits() const { return wide() ? 52 : 23; }
  int bias() const { return wide() ? 1023 : 127; }

  Value* c(double value) const { return llvm::ConstantFP::get(type, value); }
  Value* ci(int64_t value) const { return llvm::ConstantInt::get(int_type, static_cast<uint64_t>(value), true); }
  Value* infinity() const { return llvm::ConstantFP::getInfinity(type); }
  Value* nan() const { return llvm::ConstantFP::getQNaN(type); }

  Value* add(Value* x, Value* y) { return b.CreateFAdd(x, y); }
  Value* sub(Value* x, Value* y) { return b.CreateFSub(x, y); }
  Value* mul(Value* x, Value* y) { return b.CreateFMul(x, y); }
  Value* div(Value* x, Value* y) { return b.CreateFDiv(x, y); }
  Value* neg(Value* x) { return b.CreateFNeg(x); }
  /// x·y + z, fused where the target can.
  Value* mad(Value* x, Value* y, Value* z) {
    return fma ? b.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, y, z}) : add(mul(x, y), z);
  }
  Value* abs(Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  Value* copysign(Value* magnitude, Value* sign) {
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
  }
  Value* round(Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x); }
  Value* trunc(Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x); }
  /// min(x, limit) and max(x, limit) that keep NaN.
  Value* at_most(Value* x, double limit) { return b.CreateSelect(b.CreateFCmpOGT(x, c(limit)), c(limit), x); }
  Value* at_least(Value* x, double limit) { return b.CreateSelect(b.CreateFCmpOLT(x, c(limit)), c(limit), x); }

  Value* bits(Value* x) { return b.CreateBitCast(x, int_type); }
  Value* from_bits(Value* x) { return b.CreateBitCast(x, type); }

  /// The polynomial with these coefficients, lowest first, by Horner's rule.
  template <size_t N>
  Value* polynomial(const double (&coefficients)[N], Value* x) {
    Value* sum = c(coefficients[N - 1]);
    for (size_t i = N - 1; i-- > 0;) sum = mad(sum, x, c(coefficients[i]));
    return sum;
  }

  /// Adding and subtracting it rounds to an integer; its bits plus an integer are that integer as a float.
  Value* magic() const { return c(wide() ? 0x1.8p52 : 0x1.8p23); }
  /// float(n) for |n| < 2^22 (2^51 for double); cheaper than a conversion, which AVX2 lacks for 64 bits.
  Value* small_int_to_float(Value* n) { return sub(from_bits(b.CreateAdd(n, bits(magic()))), magic()); }
  /// 2^n for a normal result.
  Value* power_of_two(Value* n) { return from_bits(b.CreateShl(b.CreateAdd(n, ci(bias())), ci(mantissa_bits()))); }

  /// x·y = high + low exactly, for products that neither overflow nor lose bits at the bottom.
  struct Pair {
    Value* high;
    Value* low;
  };
  Pair two_product(Value* x, Value* y) {
    Value* high = mul(x, y);
    if (fma) return {high, mad(x, y, neg(high))};
    const Pair a = halves(x), d = halves(y);
    Value* low = sub(mul(a.high, d.high), high);
    low = add(add(low, mul(a.high, d.low)), mul(a.low, d.high));
    return {high, add(low, mul(a.low, d.low))};
  }
  /// x + y = high + low exactly.
  Pair two_sum(Value* x, Value* y) {
    Value* high = add(x, y);
    Value* y_part = sub(high, x);
    Value* x_part = sub(high, y_part);
    return {high, add(sub(x, x_part), sub(y, y_part))};
  }
  /// The same when |x| >= |y|.
  Pair fast_two_sum(Value* x, Value* y) {
    Value* high = add(x, y);
    return {high, sub(y, sub(high, x))};
  }

  /// Products of two halves are exact.
  Pair halves(Value* x) {
    const int64_t kept = wide() ? ~((int64_t{1} << 27) - 1) : ~((int64_t{1} << 12) - 1);
    Value* high = from_bits(b.CreateAnd(bits(x), ci(kept)));
    return {high, sub(x, high)};
  }

  llvm::IRBuilderBase& b;
  bool fma;
  llvm::Type* type;
  llvm::Type* int_type = nullptr;

 private:
  llvm::IRBuilderBase::FastMathFlagGuard guard_;
};

/// Entries index mod 16 of a table, by the permutations of AVX2 or AVX-512F. The index is a vector of i32 that fills a
/// register of that instruction set.
llvm::Value* look_up(llvm::IRBuilderBase& b, const float (&table)[16], llvm::Value* index);
/// Entries index mod 8, for AVX2.
llvm::Value* look_up(llvm::IRBuilderBase& b, const float (&table)[8], llvm::Value* index);
/// function(x), for a function of full registers, `lanes` floats each: x may have any number of elements.
llvm::Value* in_registers(llvm::IRBuilderBase& b, llvm::Value* x, unsigned lanes,
                          llvm::function_ref<llvm::Value*(llvm::Value*)> function);

/// An odd function that tends to 1, from polynomials around the multiples of a step, lowest coefficient first, each for
/// all multiples; the first of them, around 0, lacks the term x. From `limit` on, which the last one covers, it is 1.
/// x is a vector of float that fills a register.
template <size_t N>
llvm::Value* odd_by_table(MathEmitter& e, llvm::Value* x, const float (&table)[N][16], double step, double limit) {
  llvm::Value* limited = e.at_most(e.abs(x), limit);
  llvm::Value* shifted = e.mad(limited, e.c(1 / step), e.magic());
  llvm::Value* t = e.mad(e.sub(shifted, e.magic()), e.c(-step), limited);
  llvm::Value* index = e.bits(shifted);
  llvm::Value* sum = look_up(e.b, table[N - 1], index);
  for (size_t i = N - 1; --i > 0;) sum = e.mad(sum, t, look_up(e.b, table[i], index));
  // t + t · p(t) for the first, so that it is rounded once; the others have constants above any t.
  llvm::Value* constant = look_up(e.b, table[0], index);
  constant = e.b.CreateSelect(e.b.CreateFCmpOGT(constant, t), constant, t);
  return e.copysign(e.mad(sum, t, constant), x);
}

/// x = n·ln 2 + r with |r| <= 0.3471.
struct ExpReduction {
  llvm::Value* n;  // integer
  llvm::Value* r;
};
ExpReduction reduce_exp(MathEmitter& e, llvm::Value* x);
/// e^r - 1 for a reduced r.
llvm::Value* reduced_expm1(MathEmitter& e, llvm::Value* r);
/// e^x where the result is a normal number: the caller has limited x.
llvm::Value* normal_exp(MathEmitter& e, llvm::Value* x);
/// e^(high + low) for any high; low is small beside high and taken as 0 where the result over- or underflows.
llvm::Value* exp_of_sum(MathEmitter& e, llvm::Value* high, llvm::Value* low);

/// x = 2^exponent · mantissa with sqrt(1/2) <= mantissa < sqrt(2); x is positive and normal.
struct LogReduction {
  llvm::Value* exponent;  // integer
  llvm::Value* mantissa;
};
LogReduction reduce_log(MathEmitter& e, llvm::Value* x);
/// The same for any positive x; others give an unspecified number.
LogReduction reduce_log_denormal(MathEmitter& e, llvm::Value* x);
/// log(2^exponent · (1 + f)) for a reduced 1 + f; exponent as a float.
llvm::Value* reduced_log(MathEmitter& e, llvm::Value* exponent, llvm::Value* f);

}  // namespace cuvil
