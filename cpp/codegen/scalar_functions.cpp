#include "codegen/scalar_functions.hpp"

#include "codegen/llvm_compat.hpp"
#include "codegen/scalar_math.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

using llvm::Value;

bool is_half(DType t) {
  return t == DType::f16 || t == DType::bf16;
}

llvm::Constant* real(const Value* like, double v) {
  return llvm::ConstantFP::get(like->getType(), v);
}
llvm::Constant* integer(const Value* like, int64_t v) {
  return llvm::ConstantInt::getSigned(like->getType(), v);
}

Value* intrinsic(llvm::IRBuilderBase& b, llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> args) {
  return b.CreateIntrinsic(id, {args[0]->getType()}, args);
}

// NaN if either is NaN; max(-0, +0) = +0 as IEEE's maximum. The compiled compare-and-select is two instructions on x86,
// where llvm.maximum is five.
Value* float_extremum(llvm::IRBuilderBase& b, bool maximum, Value* x, Value* y) {
  // x > y ? x : y gives y if either is NaN; a NaN in x is put back.
  Value* take = maximum ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y);
  Value* r = b.CreateSelect(take, x, y);
  return b.CreateSelect(b.CreateFCmpUNO(x, x), x, r);
}

ScalarMath::Permutes permutes(const TargetDescription& target) {
  if (!target.triple.starts_with("x86_64") || !target.fma) return ScalarMath::Permutes::none;
  if (target.vector_bits == 512) return ScalarMath::Permutes::avx512;
  return target.vector_bits == 256 ? ScalarMath::Permutes::avx2 : ScalarMath::Permutes::none;
}

Value* emit_float(llvm::IRBuilderBase& b, Fn fn, llvm::ArrayRef<Value*> a, const TargetDescription& target) {
  ScalarMath math(b, target.fma, permutes(target));
  Value* x = a[0];
  Value* y = a.size() > 1 ? a[1] : nullptr;
  switch (fn) {
    case Fn::Identity:
      return x;
    case Fn::Neg:
      return b.CreateFNeg(x);
    case Fn::Abs:
      return intrinsic(b, llvm::Intrinsic::fabs, {x});
    case Fn::Sign: {
      Value* zero = real(x, 0);
      Value* s = b.CreateSelect(b.CreateFCmpOGT(x, zero), real(x, 1),
                                b.CreateSelect(b.CreateFCmpOLT(x, zero), real(x, -1), zero));
      return b.CreateSelect(b.CreateFCmpUNO(x, x), x, s);
    }
    case Fn::Floor:
      return math.floor(x);
    case Fn::Ceil:
      return math.ceil(x);
    case Fn::Trunc:
      return math.trunc(x);
    case Fn::Round:
      return math.round(x);
    case Fn::Sqrt:
      return intrinsic(b, llvm::Intrinsic::sqrt, {x});
    case Fn::Rsqrt:
      return b.CreateFDiv(real(x, 1), intrinsic(b, llvm::Intrinsic::sqrt, {x}));
    case Fn::Reciprocal:
      return b.CreateFDiv(real(x, 1), x);
    case Fn::Exp:
      return math.exp(x);
    case Fn::Expm1:
      return math.expm1(x);
    case Fn::Log:
      return math.log(x);
    case Fn::Log1p:
      return math.log1p(x);
    case Fn::Sin:
      return math.sin(x);
    case Fn::Cos:
      return math.cos(x);
    case Fn::Tanh:
      return math.tanh(x);
    case Fn::Sigmoid:
      return math.sigmoid(x);
    case Fn::Erf:
      return math.erf(x);
    case Fn::IsNan:
      return b.CreateFCmpUNO(x, x);
    case Fn::IsInf:
      return b.CreateFCmpOEQ(intrinsic(b, llvm::Intrinsic::fabs, {x}), llvm::ConstantFP::getInfinity(x->getType()));
    case Fn::Add:
      return b.CreateFAdd(x, y);
    case Fn::Sub:
      return b.CreateFSub(x, y);
    case Fn::Mul:
      return b.CreateFMul(x, y);
    case Fn::Div:
      return b.CreateFDiv(x, y);
    case Fn::Mod:
      return math.mod(x, y);
    case Fn::Rem:
      return math.rem(x, y);
    case Fn::Pow:
      return math.pow(x, y);
    case Fn::Max:
      return float_extremum(b, true, x, y);
    case Fn::Min:
      return float_extremum(b, false, x, y);
    case Fn::Eq:
      return b.CreateFCmpOEQ(x, y);
    case Fn::Ne:
      return b.CreateFCmpUNE(x, y);
    case Fn::Lt:
      return b.CreateFCmpOLT(x, y);
    case Fn::Le:
      return b.CreateFCmpOLE(x, y);
    case Fn::Gt:
      return b.CreateFCmpOGT(x, y);
    case Fn::Ge:
      return b.CreateFCmpOGE(x, y);
    default:
      throw InternalError("function " + std::string(info(fn).name) + " on floats");
  }
}

// Division that never traps: x / 0 = 0, MIN / -1 wraps.
Value* safe_division(llvm::IRBuilderBase& b, Value* x, Value* y, bool is_signed, bool remainder) {
  Value* zero = integer(x, 0);
  Value* by_zero = b.CreateICmpEQ(y, zero);
  Value* bad = by_zero;
  Value* minus_one = nullptr;
  if (is_signed) {
    minus_one = b.CreateICmpEQ(y, integer(x, -1));
    bad = b.CreateOr(by_zero, minus_one);
  }
  Value* divisor = b.CreateSelect(bad, integer(x, 1), y);
  Value* r = remainder ? (is_signed ? b.CreateSRem(x, divisor) : b.CreateURem(x, divisor))
                       : (is_signed ? b.CreateSDiv(x, divisor) : b.CreateUDiv(x, divisor));
  if (minus_one) r = b.CreateSelect(minus_one, remainder ? zero : b.CreateNeg(x), r);
  return b.CreateSelect(by_zero, zero, r);
}

// Square and multiply over all bits of the exponent; negative exponents give 0 unless the base is ±1.
Value* integer_power(llvm::IRBuilderBase& b, Value* x, Value* y, bool is_signed) {
  unsigned bits = x->getType()->getScalarSizeInBits();
  Value* result = integer(x, 1);
  Value* base = x;
  Value* rest = y;
  for (unsigned i = 0; i < bits; ++i) {
    Value* odd = b.CreateICmpNE(b.CreateAnd(rest, integer(x, 1)), integer(x, 0));
    result = b.CreateSelect(odd, b.CreateMul(result, base), result);
    base = b.CreateMul(base, base);
    rest = b.CreateLShr(rest, integer(x, 1));
  }
  if (!is_signed) return result;
  Value* one = integer(x, 1);
  Value* odd = b.CreateICmpNE(b.CreateAnd(y, one), integer(x, 0));
  Value* inverse = b.CreateSelect(
      b.CreateICmpEQ(x, one), one,
      b.CreateSelect(b.CreateICmpEQ(x, integer(x, -1)), b.CreateSelect(odd, integer(x, -1), one), integer(x, 0)));
  return b.CreateSelect(b.CreateICmpSLT(y, integer(x, 0)), inverse, result);
}

Value* emit_integer(llvm::IRBuilderBase& b, Fn fn, DType type, llvm::ArrayRef<Value*> a) {
  const bool is_signed = is_signed_int(type), is_bool = type == DType::boolean;
  Value* x = a[0];
  Value* y = a.size() > 1 ? a[1] : nullptr;
  auto compare = [&](llvm::CmpInst::Predicate s, llvm::CmpInst::Predicate u) {
    return b.CreateICmp(is_signed ? s : u, x, y);
  };
  switch (fn) {
    case Fn::Identity:
      return x;
    case Fn::Neg:
      return b.CreateNeg(x);
    case Fn::Abs:
      return is_signed ? b.CreateSelect(b.CreateICmpSLT(x, integer(x, 0)), b.CreateNeg(x), x) : x;
    case Fn::Sign: {
      Value* positive = b.CreateZExt(b.CreateICmpNE(x, integer(x, 0)), x->getType());
      return is_signed ? b.CreateSelect(b.CreateICmpSLT(x, integer(x, 0)), integer(x, -1), positive) : positive;
    }
    case Fn::Not:
      return b.CreateNot(x);
    case Fn::Add:
      return b.CreateAdd(x, y);
    case Fn::Sub:
      return b.CreateSub(x, y);
    case Fn::Mul:
      return b.CreateMul(x, y);
    case Fn::Div:
      return safe_division(b, x, y, is_signed, false);
    case Fn::Rem:
      return safe_division(b, x, y, is_signed, true);
    case Fn::Mod: {
      Value* r = safe_division(b, x, y, is_signed, true);
      if (!is_signed) return r;
      // A remainder whose sign is not the divisor's moves by one divisor.
      Value* nonzero = b.CreateICmpNE(r, integer(x, 0));
      Value* differ = b.CreateICmpSLT(b.CreateXor(r, y), integer(x, 0));
      return b.CreateSelect(b.CreateAnd(nonzero, differ), b.CreateAdd(r, y), r);
    }
    case Fn::Pow:
      return integer_power(b, x, y, is_signed);
    case Fn::Max:
      if (is_bool) return b.CreateOr(x, y);
      return b.CreateSelect(compare(llvm::CmpInst::ICMP_SGT, llvm::CmpInst::ICMP_UGT), x, y);
    case Fn::Min:
      if (is_bool) return b.CreateAnd(x, y);
      return b.CreateSelect(compare(llvm::CmpInst::ICMP_SLT, llvm::CmpInst::ICMP_ULT), x, y);
    case Fn::And:
      return b.CreateAnd(x, y);
    case Fn::Or:
      return b.CreateOr(x, y);
    case Fn::Xor:
      return b.CreateXor(x, y);
    case Fn::Shl:
    case Fn::Shr: {
      auto bits = static_cast<int64_t>(x->getType()->getScalarSizeInBits());
      Value* outside = b.CreateICmpUGE(y, integer(y, bits));
      bool arithmetic = fn == Fn::Shr && is_signed;
      Value* amount = b.CreateSelect(outside, integer(y, arithmetic ? bits - 1 : 0), y);
      Value* r = fn == Fn::Shl ? b.CreateShl(x, amount)
                 : arithmetic  ? b.CreateAShr(x, amount)
                               : b.CreateLShr(x, amount);
      return arithmetic ? r : b.CreateSelect(outside, integer(x, 0), r);
    }
    case Fn::Eq:
      return b.CreateICmpEQ(x, y);
    case Fn::Ne:
      return b.CreateICmpNE(x, y);
    case Fn::Lt:
      return compare(llvm::CmpInst::ICMP_SLT, llvm::CmpInst::ICMP_ULT);
    case Fn::Le:
      return compare(llvm::CmpInst::ICMP_SLE, llvm::CmpInst::ICMP_ULE);
    case Fn::Gt:
      return compare(llvm::CmpInst::ICMP_SGT, llvm::CmpInst::ICMP_UGT);
    case Fn::Ge:
      return compare(llvm::CmpInst::ICMP_SGE, llvm::CmpInst::ICMP_UGE);
    default:
      throw InternalError("function " + std::string(info(fn).name) + " on integers");
  }
}

}  // namespace

Value* half_bits_to_float(llvm::IRBuilderBase& b, Value* bits, DType half) {
  ScalarMath math(b, false);
  return half == DType::f16 ? math.f16_to_f32(bits) : math.bf16_to_f32(bits);
}

Value* float_to_half_bits(llvm::IRBuilderBase& b, Value* v, DType half) {
  ScalarMath math(b, false);
  return half == DType::f16 ? math.f32_to_f16(v) : math.f32_to_bf16(v);
}

Value* round_to_half(llvm::IRBuilderBase& b, Value* v, DType half) {
  return half_bits_to_float(b, float_to_half_bits(b, v, half), half);
}

Value* emit_function(llvm::IRBuilderBase& b, Fn fn, DType type, llvm::ArrayRef<Value*> args,
                     const TargetDescription& target) {
  if (fn == Fn::Select) return b.CreateSelect(args[0], args[1], args[2]);
  if (!is_float(type)) return emit_integer(b, fn, type, args);
  Value* v = emit_float(b, fn, args, target);
  return is_half(type) && info(fn).result == 's' ? round_to_half(b, v, type) : v;
}

Value* emit_conversion(llvm::IRBuilderBase& b, Value* v, DType from, DType to) {
  if (from == to) return v;
  auto typed = [&](llvm::Type* element) -> llvm::Type* {
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
    return vector ? llvm::FixedVectorType::get(element, vector->getNumElements()) : element;
  };
  auto* float_type = typed(b.getFloatTy());
  auto* double_type = typed(b.getDoubleTy());
  if (to == DType::boolean) {
    return is_float(from) ? b.CreateFCmpUNE(v, real(v, 0)) : b.CreateICmpNE(v, integer(v, 0));
  }
  if (is_float(to)) {
    Value* r = v;
    llvm::Type* wanted = to == DType::f64 ? double_type : float_type;
    if (is_float(from)) {
      if (v->getType() != wanted) r = to == DType::f64 ? b.CreateFPExt(v, wanted) : b.CreateFPTrunc(v, wanted);
    } else if (is_signed_int(from)) {
      r = b.CreateSIToFP(v, wanted);
    } else {
      r = b.CreateUIToFP(v, wanted);
    }
    return is_half(to) ? round_to_half(b, r, to) : r;
  }
  llvm::Type* wanted = typed(b.getIntNTy(static_cast<unsigned>(size_of(to) * 8)));
  if (is_float(from)) {
    auto id = is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b.CreateIntrinsic(id, {wanted, v->getType()}, {v});
  }
  return is_signed_int(from) ? b.CreateSExtOrTrunc(v, wanted) : b.CreateZExtOrTrunc(v, wanted);
}

}  // namespace cuvil
