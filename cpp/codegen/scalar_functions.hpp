// Scalar functions of the Graph on LLVM values, scalar or vector.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "ir/dtype.hpp"
#include "ir/ops.hpp"
#include "target/target.hpp"

namespace cuvil {

/// Operands have the register form of `operand_type` (half types as f32, bool as i1), all scalar or all vectors of one
/// length.
llvm::Value* emit_function(llvm::IRBuilderBase& b, Fn fn, DType operand_type, llvm::ArrayRef<llvm::Value*> args,
                           const TargetDescription& target);

/// Conversion between register forms. Float to int truncates and saturates (NaN gives 0); to bool is != 0. Values of
/// half types are rounded to the type but stay f32 in registers.
llvm::Value* emit_conversion(llvm::IRBuilderBase& b, llvm::Value* v, DType from, DType to);

/// f32 rounded to the nearest value of a half type (ties to even), and back in f32; NaN stays NaN.
llvm::Value* round_to_half(llvm::IRBuilderBase& b, llvm::Value* v, DType half);

/// Between the bits of a half type (i16) and f32 in registers.
llvm::Value* half_bits_to_float(llvm::IRBuilderBase& b, llvm::Value* bits, DType half);
llvm::Value* float_to_half_bits(llvm::IRBuilderBase& b, llvm::Value* v, DType half);

}  // namespace cuvil
