// Division of sizes, the one way all code does it.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "ir/dim.hpp"

namespace cuvil {

/// The value of a FloorDiv or Mod atom whose operands have the values x and y, both i64 scalars or vectors.
inline llvm::Value* emit_floor_division(llvm::IRBuilderBase& b, const DimAtom& atom, llvm::Value* x, llvm::Value* y) {
  const bool div = atom.kind == DimAtom::Kind::FloorDiv;
  if (!provably_le(1, atom.b)) {
    llvm::Value* one = llvm::ConstantInt::get(y->getType(), 1);
    y = b.CreateSelect(b.CreateICmpSLT(y, one), one, y);
  }
  if (provably_le(0, atom.a)) return div ? b.CreateUDiv(x, y) : b.CreateURem(x, y);
  llvm::Value* rem = b.CreateSRem(x, y);
  llvm::Value* negative = b.CreateICmpSLT(rem, llvm::Constant::getNullValue(rem->getType()));
  if (!div) return b.CreateSelect(negative, b.CreateAdd(rem, y), rem);
  return b.CreateSub(b.CreateSDiv(x, y), b.CreateZExt(negative, rem->getType()));
}

}  // namespace cuvil
