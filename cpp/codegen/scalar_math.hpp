// Elementary functions as LLVM IR: polynomials on float or double, scalar or fixed vector, that call nothing.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace cuvil {

/// Emits elementary functions at the builder's insertion point. NaN, infinities, signed zeros and denormals give what
/// C99 Annex F says; no rounding mode but to-nearest-even is supported. Errors, in units in the last place, are bounds
/// checked by tests over the whole range:
///
///   float    exp, expm1, log, log1p, sin, cos, tanh, sigmoid, erf 2; pow 1
///   double   4 for all
///
/// `fma` tells whether the target has fused multiply-add, `permutes` which instructions may look up tables held in a
/// register; all widths of a call take the same path, so that its result doesn't depend on them. Operands of one call
/// have one type. sin, cos and double rem call functions that they add to the builder's module; everything else is
/// straight-line code in the current block.
class ScalarMath {
 public:
  enum class Permutes { none, avx2, avx512 };

  ScalarMath(llvm::IRBuilderBase& builder, bool fma, Permutes permutes = Permutes::none)
      : builder_(builder), fma_(fma), permutes_(permutes) {}

  llvm::Value* exp(llvm::Value* x);
  llvm::Value* expm1(llvm::Value* x);
  llvm::Value* log(llvm::Value* x);
  llvm::Value* log1p(llvm::Value* x);
  llvm::Value* sin(llvm::Value* x);
  llvm::Value* cos(llvm::Value* x);
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* sigmoid(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  llvm::Value* pow(llvm::Value* x, llvm::Value* y);

  llvm::Value* floor(llvm::Value* x);
  llvm::Value* ceil(llvm::Value* x);
  llvm::Value* trunc(llvm::Value* x);
  /// To nearest, ties to even.
  llvm::Value* round(llvm::Value* x);

  /// C fmod: exact, with the sign of the dividend.
  llvm::Value* rem(llvm::Value* x, llvm::Value* y);
  /// Python's %: exact up to one rounding, with the sign of the divisor.
  llvm::Value* mod(llvm::Value* x, llvm::Value* y);

  /// Conversions between float and the bits of the 16-bit formats (i16 or vector of i16), rounding to nearest even.
  /// Not every target converts these itself, and LLVM would call a library where it does not.
  llvm::Value* f16_to_f32(llvm::Value* bits);
  llvm::Value* f32_to_f16(llvm::Value* x);
  llvm::Value* bf16_to_f32(llvm::Value* bits);
  llvm::Value* f32_to_bf16(llvm::Value* x);

 private:
  llvm::IRBuilderBase& builder_;
  bool fma_;
  Permutes permutes_;
};

}  // namespace cuvil
