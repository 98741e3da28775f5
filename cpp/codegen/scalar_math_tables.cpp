// Tables of 8 and 16 floats that are looked up in registers.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <numeric>

#include "codegen/scalar_math_emitter.hpp"

namespace cuvil {

using llvm::Value;

Value* look_up(llvm::IRBuilderBase& b, const float (&table)[16], Value* index) {
  auto part = [&](unsigned from, unsigned count) {
    return llvm::ConstantDataVector::get(b.getContext(), llvm::ArrayRef<float>(table).slice(from, count));
  };
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(index->getType())->getNumElements();
  if (lanes == 16) return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {part(0, 16), index});
  // The permutation reads three bits of the index; the fourth, moved to the sign, blends without a comparison.
  Value* low = b.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {part(0, 8), index});
  Value* high = b.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {part(8, 8), index});
  Value* upper = b.CreateShl(index, llvm::ConstantInt::get(index->getType(), 28));
  return b.CreateSelect(b.CreateICmpSLT(upper, llvm::Constant::getNullValue(upper->getType())), high, low);
}

Value* look_up(llvm::IRBuilderBase& b, const float (&table)[8], Value* index) {
  Value* entries = llvm::ConstantDataVector::get(b.getContext(), llvm::ArrayRef<float>(table));
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {entries, index});
}

Value* in_registers(llvm::IRBuilderBase& b, Value* x, unsigned lanes, llvm::function_ref<Value*(Value*)> function) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector == nullptr) {
    Value* filled = llvm::PoisonValue::get(llvm::FixedVectorType::get(x->getType(), lanes));
    return b.CreateExtractElement(function(b.CreateInsertElement(filled, x, uint64_t{0})), uint64_t{0});
  }
  const unsigned count = vector->getNumElements();
  if (count == lanes) return function(x);
  llvm::SmallVector<Value*> parts;
  for (unsigned from = 0; from < count; from += lanes) {
    llvm::SmallVector<int> elements(lanes, -1);
    std::iota(elements.begin(), elements.begin() + std::min(lanes, count - from), static_cast<int>(from));
    parts.push_back(function(b.CreateShuffleVector(x, elements)));
  }
  Value* all = parts.size() == 1 ? parts[0] : llvm::concatenateVectors(b, parts);
  llvm::SmallVector<int> elements(count);
  std::iota(elements.begin(), elements.end(), 0);
  return b.CreateShuffleVector(all, elements);
}

}  // namespace cuvil
