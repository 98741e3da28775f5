// sin and cos.
//
// x = n · π/2 + r, |r| ≤ π/4, then an odd or even polynomial in r. Up to a limit (2^27, double: 2^20) r comes from
// subtracting n times the parts of π/2 (Cody and Waite; for float in double). Beyond, from x · 2/π modulo 4 with as
// many digits of 2/π as the exponent asks for (Payne and Hanek): the product of x, or half of it, with a digit is exact
// in double, and so is its remainder modulo 4. One function per type holds both ways and the branch between them.
#include <llvm/IR/Module.h>

#include <cmath>
#include <string>

#include "codegen/scalar_math.hpp"
#include "codegen/scalar_math_coefficients.hpp"
#include "codegen/scalar_math_emitter.hpp"

namespace cuvil {
namespace {

using llvm::Value;

constexpr int digit_bits = 24;
constexpr int float_digits = 8;                                                // 104 + 24 + 58 bits
constexpr int double_digits = sizeof coefficients::two_over_pi / sizeof(int);  // 970 + 53 + 117 bits
// The double's digits are scaled up and x down, so that the last digit is no denormal.
constexpr int double_scale = 200;

struct Reduced {
  Value* r;         // in the type of x
  Value* quadrant;  // integer, modulo 4
};

// From an integer-valued r and a double n to the type of x.
Reduced narrow(MathEmitter& e, MathEmitter& d, Value* r, Value* n) {
  Value* quadrant = d.bits(d.add(n, d.magic()));
  if (e.wide()) return {r, quadrant};
  return {e.b.CreateFPTrunc(r, e.type), e.b.CreateTrunc(quadrant, e.int_type)};
}

Reduced reduce_small(MathEmitter& e, MathEmitter& d, Value* x) {
  Value* r = e.wide() ? x : e.b.CreateFPExt(x, d.type);
  Value* n = d.sub(d.mad(r, d.c(0x1.45f306dc9c883p-1), d.magic()), d.magic());
  const auto subtract = [&](const auto& parts) {
    for (double part : parts) r = d.mad(n, d.c(-part), r);
  };
  if (e.wide()) {
    subtract(coefficients::half_pi_f64);
  } else {
    subtract(coefficients::half_pi_f32);
  }
  return narrow(e, d, r, n);
}

llvm::GlobalVariable* digit_table(llvm::Module& module, bool wide) {
  const char* name = wide ? "cuvil.two_over_pi.f64" : "cuvil.two_over_pi.f32";
  if (llvm::GlobalVariable* known = module.getNamedGlobal(name)) return known;
  llvm::SmallVector<double, 64> values;
  for (int i = 0; i < (wide ? double_digits : float_digits); ++i) {
    values.push_back(
        std::ldexp(double(coefficients::two_over_pi[i]), -digit_bits * (i + 1) + (wide ? double_scale : 0)));
  }
  llvm::Constant* table = llvm::ConstantDataArray::get(module.getContext(), llvm::ArrayRef<double>(values));
  return new llvm::GlobalVariable(module, table->getType(), true, llvm::GlobalValue::InternalLinkage, table, name);
}

// Adds a loop over the digits at the builder's block; the builder ends in the block after it.
Reduced reduce_large(MathEmitter& e, MathEmitter& d, Value* x) {
  llvm::IRBuilderBase& b = e.b;
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::GlobalVariable* table = digit_table(*function->getParent(), e.wide());
  llvm::SmallVector<Value*, 2> parts;
  if (e.wide()) {
    const MathEmitter::Pair halves = d.halves(d.mul(x, d.c(std::ldexp(1.0, -double_scale))));
    parts = {halves.high, halves.low};
  } else {
    parts = {b.CreateFPExt(x, d.type)};
  }

  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b.getContext(), "digits", function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "reduced", function);
  b.CreateBr(body);
  b.SetInsertPoint(body);
  llvm::PHINode* index = b.CreatePHI(b.getInt64Ty(), 2);
  llvm::PHINode* turns = b.CreatePHI(d.type, 2);     // quarter turns seen, modulo 4
  llvm::PHINode* fraction = b.CreatePHI(d.type, 2);  // of a quarter turn
  llvm::PHINode* lost = b.CreatePHI(d.type, 2);      // what rounding took from the fraction
  Value* digit = b.CreateLoad(b.getDoubleTy(), b.CreateGEP(b.getDoubleTy(), table, index));
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(d.type)) {
    digit = b.CreateVectorSplat(vector->getNumElements(), digit);
  }
  Value *n = turns, *s = fraction, *low = lost;
  for (Value* part : parts) {
    Value* product = d.mul(part, digit);
    Value* fours = d.round(d.mul(product, d.c(0.25)));
    const MathEmitter::Pair sum = d.two_sum(s, d.sub(product, d.mul(fours, d.c(4))));
    Value* whole = d.round(sum.high);
    n = d.add(n, whole);
    s = d.sub(sum.high, whole);
    low = d.add(low, sum.low);
  }
  Value* next = b.CreateAdd(index, b.getInt64(1));
  index->addIncoming(b.getInt64(0), before);
  index->addIncoming(next, body);
  turns->addIncoming(d.c(0), before);
  turns->addIncoming(n, body);
  fraction->addIncoming(d.c(0), before);
  fraction->addIncoming(s, body);
  lost->addIncoming(d.c(0), before);
  lost->addIncoming(low, body);
  b.CreateCondBr(b.CreateICmpULT(next, b.getInt64(e.wide() ? double_digits : float_digits)), body, after);
  b.SetInsertPoint(after);
  return narrow(e, d, d.mul(d.add(s, low), d.c(0x1.921fb54442d18p+0)), n);
}

Value* any(llvm::IRBuilderBase& b, Value* condition) {
  return condition->getType()->isVectorTy() ? b.CreateOrReduce(condition) : condition;
}

Value* finish(MathEmitter& e, const Reduced& reduced, Value* x, bool cosine) {
  llvm::IRBuilderBase& b = e.b;
  Value* r = reduced.r;
  Value* square = e.mul(r, r);
  Value* odd = e.wide() ? e.polynomial(coefficients::sin_f64, square) : e.polynomial(coefficients::sin_f32, square);
  odd = e.mad(e.mul(square, r), odd, r);
  Value* even = e.wide() ? e.polynomial(coefficients::cos_f64, square) : e.polynomial(coefficients::cos_f32, square);
  even = e.mad(e.mul(square, square), even, e.mad(square, e.c(-0.5), e.c(1)));

  Value* quadrant = cosine ? b.CreateAdd(reduced.quadrant, e.ci(1)) : reduced.quadrant;
  Value* is_even = b.CreateICmpNE(b.CreateAnd(quadrant, e.ci(1)), e.ci(0));
  Value* sign = b.CreateShl(b.CreateAnd(quadrant, e.ci(2)), e.ci(e.wide() ? 62 : 30));
  Value* result = e.from_bits(b.CreateXor(e.bits(b.CreateSelect(is_even, even, odd)), sign));
  return cosine ? result : b.CreateSelect(b.CreateFCmpOEQ(x, e.c(0)), x, result);
}

llvm::Function* trig_function(llvm::Function& caller, llvm::Type* type, bool fma, bool cosine) {
  llvm::Module& module = *caller.getParent();
  std::string name = cosine ? "cuvil.cos" : "cuvil.sin";
  name += type->getScalarType()->isDoubleTy() ? ".f64" : ".f32";
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type)) {
    name += "x" + std::to_string(vector->getNumElements());
  }
  if (llvm::Function* known = module.getFunction(name)) return known;
  auto* function = llvm::Function::Create(llvm::FunctionType::get(type, {type}, false),
                                          llvm::GlobalValue::InternalLinkage, name, module);
  for (llvm::Attribute attribute : caller.getAttributes().getFnAttrs()) {  // the target's, such as the vector width
    if (attribute.isStringAttribute()) function->addFnAttr(attribute);
  }
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::NoInline);

  llvm::LLVMContext& context = module.getContext();
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "", function));
  MathEmitter e(b, fma, type);
  MathEmitter d(b, fma, type_like(type, b.getDoubleTy()));
  llvm::BasicBlock* large_block = llvm::BasicBlock::Create(context, "large", function);
  llvm::BasicBlock* join = llvm::BasicBlock::Create(context, "join", function);
  Value* x = function->getArg(0);
  const Reduced small = reduce_small(e, d, x);
  Value* is_large = b.CreateFCmpOGE(e.abs(x), e.c(e.wide() ? 0x1p20 : 0x1p27));
  llvm::BasicBlock* small_block = b.GetInsertBlock();
  b.CreateCondBr(any(b, is_large), large_block, join);
  b.SetInsertPoint(large_block);
  Reduced large = reduce_large(e, d, x);
  large.r = b.CreateSelect(is_large, large.r, small.r);
  large.quadrant = b.CreateSelect(is_large, large.quadrant, small.quadrant);
  large_block = b.GetInsertBlock();
  b.CreateBr(join);
  b.SetInsertPoint(join);
  llvm::PHINode* r = b.CreatePHI(e.type, 2);
  r->addIncoming(small.r, small_block);
  r->addIncoming(large.r, large_block);
  llvm::PHINode* quadrant = b.CreatePHI(e.int_type, 2);
  quadrant->addIncoming(small.quadrant, small_block);
  quadrant->addIncoming(large.quadrant, large_block);
  b.CreateRet(finish(e, {r, quadrant}, x, cosine));
  return function;
}

Value* call_trig(llvm::IRBuilderBase& b, bool fma, Value* x, bool cosine) {
  return b.CreateCall(trig_function(*b.GetInsertBlock()->getParent(), x->getType(), fma, cosine), {x});
}

}  // namespace

Value* ScalarMath::sin(Value* x) {
  return call_trig(builder_, fma_, x, false);
}

Value* ScalarMath::cos(Value* x) {
  return call_trig(builder_, fma_, x, true);
}

}  // namespace cuvil
