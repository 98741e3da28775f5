// erf: x + x · p(x²) near 0; further out 1 - erfc(|x|), with erfc as e^p(|x|) in float and as e^-x² · p in double.
// Where tables can be looked up, a float takes one of 16 polynomials around multiples of a step instead.
#include "codegen/scalar_math.hpp"
#include "codegen/scalar_math_coefficients.hpp"
#include "codegen/scalar_math_emitter.hpp"

namespace cuvil {

llvm::Value* ScalarMath::erf(llvm::Value* x) {
  if (permutes_ != Permutes::none && x->getType()->getScalarType()->isFloatTy()) {
    return in_registers(builder_, x, permutes_ == Permutes::avx512 ? 16 : 8, [&](llvm::Value* part) {
      MathEmitter e(builder_, true, part->getType());
      return odd_by_table(e, part, coefficients::erf_table_f32, coefficients::erf_step_f32, 3.93);
    });
  }
  MathEmitter e(builder_, fma_, x->getType());
  llvm::Value* magnitude = e.abs(x);
  llvm::Value* square = e.mul(x, x);
  llvm::Value* limited = e.at_most(magnitude, e.wide() ? 6 : 3.95);  // erf is 1 from there on
  llvm::Value *small, *complement;
  if (e.wide()) {
    small = e.polynomial(coefficients::erf_small_f64, square);
    llvm::Value* u = e.div(e.sub(limited, e.c(2)), e.add(limited, e.c(2)));
    complement = e.mul(normal_exp(e, e.neg(e.mul(limited, limited))), e.polynomial(coefficients::erf_large_f64, u));
  } else {
    small = e.polynomial(coefficients::erf_small_f32, square);
    complement = normal_exp(e, e.polynomial(coefficients::erf_large_f32, limited));
  }
  small = e.mad(x, small, x);
  llvm::Value* large = e.copysign(e.sub(e.c(1), complement), x);
  return builder_.CreateSelect(builder_.CreateFCmpOLT(magnitude, e.c(e.wide() ? 1 : 0.925)), small, large);
}

}  // namespace cuvil
