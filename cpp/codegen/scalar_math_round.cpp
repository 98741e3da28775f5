// Rounding, remainders, and conversions of the 16-bit formats.
#include <llvm/IR/Module.h>

#include "codegen/scalar_math.hpp"
#include "codegen/scalar_math_emitter.hpp"

namespace cuvil {
namespace {

using llvm::Value;

// fmod of floats in double. Each step takes the leading 29 bits off the quotient: their product with the divisor is
// exact, and so is the difference. The quotient has at most 277 bits; a step may leave a remainder below 0 or not below
// the divisor, which the next step or the two selections after the last mend.
Value* float_rem(llvm::IRBuilderBase& b, bool fma, Value* x, Value* y) {
  constexpr int steps = 11;
  MathEmitter d(b, fma, type_like(x->getType(), b.getDoubleTy()));
  Value* dividend = b.CreateFPExt(x, d.type);
  Value* divisor = d.abs(b.CreateFPExt(y, d.type));
  Value* inverse = d.div(d.c(1), divisor);
  Value* r = d.abs(dividend);
  for (int i = 0; i < steps; ++i) {
    Value* q = d.from_bits(b.CreateAnd(d.bits(d.mul(r, inverse)), d.ci(~((int64_t{1} << 24) - 1))));
    r = d.sub(r, d.mul(d.trunc(q), divisor));
  }
  r = b.CreateSelect(b.CreateFCmpOLT(r, d.c(0)), d.add(r, divisor), r);
  r = b.CreateSelect(b.CreateFCmpOGE(r, divisor), d.sub(r, divisor), r);
  Value* divides_nothing =
      b.CreateAnd(b.CreateFCmpOEQ(divisor, d.infinity()), b.CreateFCmpOLT(d.abs(dividend), d.infinity()));
  r = b.CreateSelect(divides_nothing, d.abs(dividend), r);
  return b.CreateFPTrunc(d.copysign(r, dividend), x->getType());
}

// fmod of two doubles as a function: shift and subtract, exact for any quotient.
llvm::Function* double_rem_function(llvm::Module& module) {
  constexpr const char* name = "cuvil.rem.f64";
  if (llvm::Function* known = module.getFunction(name)) return known;
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* type = llvm::Type::getDoubleTy(context);
  auto* function = llvm::Function::Create(llvm::FunctionType::get(type, {type, type}, false),
                                          llvm::GlobalValue::InternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::NoInline);
  const auto block = [&](const char* label) { return llvm::BasicBlock::Create(context, label, function); };
  llvm::BasicBlock *entry = block(""), *grow = block("grow"), *shrink = block("shrink"), *halve = block("halve");
  llvm::BasicBlock *done = block("done"), *trivial = block("trivial");
  llvm::IRBuilder<> b(entry);
  MathEmitter e(b, false, type);
  Value *x = function->getArg(0), *y = function->getArg(1);
  Value *ax = e.abs(x), *ay = e.abs(y);
  Value* ordinary = b.CreateAnd(b.CreateFCmpOLT(ax, e.infinity()), b.CreateFCmpOGT(ay, e.c(0)));
  ordinary = b.CreateAnd(ordinary, b.CreateFCmpOLT(ay, e.infinity()));
  b.CreateCondBr(ordinary, grow, trivial);

  b.SetInsertPoint(trivial);  // x where y is infinite and x finite, else NaN
  Value* whole = b.CreateAnd(b.CreateFCmpOEQ(ay, e.infinity()), b.CreateFCmpOLT(ax, e.infinity()));
  b.CreateRet(b.CreateSelect(whole, x, e.nan()));

  b.SetInsertPoint(grow);  // the largest divisor · 2^k that may still fit
  llvm::PHINode* multiple = b.CreatePHI(type, 2);
  Value* doubled = e.add(multiple, multiple);
  multiple->addIncoming(ay, entry);
  multiple->addIncoming(doubled, grow);
  b.CreateCondBr(b.CreateFCmpOLE(multiple, e.mul(ax, e.c(0.5))), grow, shrink);

  b.SetInsertPoint(shrink);
  llvm::PHINode* rest = b.CreatePHI(type, 2);
  llvm::PHINode* step = b.CreatePHI(type, 2);
  Value* less = b.CreateSelect(b.CreateFCmpOGE(rest, step), e.sub(rest, step), rest);
  b.CreateCondBr(b.CreateFCmpOGT(step, ay), halve, done);
  b.SetInsertPoint(halve);
  Value* half = e.mul(step, e.c(0.5));
  b.CreateBr(shrink);
  rest->addIncoming(ax, grow);
  rest->addIncoming(less, halve);
  step->addIncoming(multiple, grow);
  step->addIncoming(half, halve);

  b.SetInsertPoint(done);
  b.CreateRet(e.copysign(less, x));
  return function;
}

}  // namespace

Value* ScalarMath::floor(Value* x) {
  return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
}

Value* ScalarMath::ceil(Value* x) {
  return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
}

Value* ScalarMath::trunc(Value* x) {
  return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
}

Value* ScalarMath::round(Value* x) {
  return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
}

Value* ScalarMath::rem(Value* x, Value* y) {
  if (x->getType()->getScalarType()->isFloatTy()) return float_rem(builder_, fma_, x, y);
  llvm::Function* function = double_rem_function(*builder_.GetInsertBlock()->getModule());
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector == nullptr) return builder_.CreateCall(function, {x, y});
  Value* result = llvm::PoisonValue::get(vector);
  for (uint64_t i = 0; i < vector->getNumElements(); ++i) {
    Value* lane =
        builder_.CreateCall(function, {builder_.CreateExtractElement(x, i), builder_.CreateExtractElement(y, i)});
    result = builder_.CreateInsertElement(result, lane, i);
  }
  return result;
}

Value* ScalarMath::mod(Value* x, Value* y) {
  Value* r = rem(x, y);
  MathEmitter e(builder_, fma_, x->getType());
  Value* zero = e.c(0);
  Value* is_zero = builder_.CreateFCmpOEQ(r, zero);
  Value* differs = builder_.CreateXor(builder_.CreateFCmpOLT(r, zero), builder_.CreateFCmpOLT(y, zero));
  Value* moved = builder_.CreateSelect(differs, e.add(r, y), r);
  return builder_.CreateSelect(is_zero, e.copysign(r, y), moved);
}

Value* ScalarMath::f16_to_f32(Value* bits) {
  MathEmitter e(builder_, fma_, type_like(bits->getType(), builder_.getFloatTy()));
  llvm::IRBuilderBase& b = builder_;
  Value* half = b.CreateZExt(bits, e.int_type);
  Value* sign = b.CreateShl(b.CreateAnd(half, e.ci(0x8000)), e.ci(16));
  Value* magnitude = b.CreateShl(b.CreateAnd(half, e.ci(0x7fff)), e.ci(13));
  Value* finite = e.bits(e.mul(e.from_bits(magnitude), e.c(0x1p112)));  // rebiases normal and denormal numbers alike
  Value* is_finite = b.CreateICmpULT(magnitude, e.ci(0x7c00 << 13));
  Value* value = b.CreateSelect(is_finite, finite, b.CreateOr(magnitude, e.ci(0x7f800000)));
  return e.from_bits(b.CreateOr(value, sign));
}

Value* ScalarMath::f32_to_f16(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  llvm::IRBuilderBase& b = builder_;
  Value* sign = b.CreateAnd(b.CreateLShr(e.bits(x), e.ci(16)), e.ci(0x8000));
  Value* magnitude = e.abs(x);
  Value* bits = e.bits(magnitude);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, e.ci(13)), e.ci(1));
  Value* normal = b.CreateAdd(b.CreateAdd(bits, odd), e.ci(0xfff - (112 << 23)));
  normal = b.CreateLShr(normal, e.ci(13));
  // One unit of a sum with 0.5 is one unit of a denormal.
  Value* denormal = b.CreateSub(e.bits(e.add(magnitude, e.c(0.5))), e.bits(e.c(0.5)));
  Value* result = b.CreateSelect(b.CreateFCmpOLT(magnitude, e.c(0x1p-14)), denormal, normal);
  result = b.CreateSelect(b.CreateFCmpOGE(magnitude, e.c(65520)), e.ci(0x7c00), result);
  result = b.CreateSelect(b.CreateFCmpUNO(x, x), e.ci(0x7e00), result);
  return b.CreateTrunc(b.CreateOr(result, sign), type_like(x->getType(), b.getInt16Ty()));
}

Value* ScalarMath::bf16_to_f32(Value* bits) {
  MathEmitter e(builder_, fma_, type_like(bits->getType(), builder_.getFloatTy()));
  return e.from_bits(builder_.CreateShl(builder_.CreateZExt(bits, e.int_type), e.ci(16)));
}

Value* ScalarMath::f32_to_bf16(Value* x) {
  MathEmitter e(builder_, fma_, x->getType());
  llvm::IRBuilderBase& b = builder_;
  Value* bits = e.bits(x);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, e.ci(16)), e.ci(1));
  Value* rounded = b.CreateLShr(b.CreateAdd(b.CreateAdd(bits, odd), e.ci(0x7fff)), e.ci(16));
  Value* nan = b.CreateOr(b.CreateLShr(bits, e.ci(16)), e.ci(0x40));
  return b.CreateTrunc(b.CreateSelect(b.CreateFCmpUNO(x, x), nan, rounded), type_like(x->getType(), b.getInt16Ty()));
}

}  // namespace cuvil
