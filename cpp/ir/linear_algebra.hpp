// Linear algebra on small matrices, unrolled.
#pragma once

#include "ir/builder.hpp"

namespace cuvil {

/// The determinant of each [n, n] matrix of x, [b…, n, n] of floats, by elimination with partial pivoting. n must be
/// constant; throws CompileError when it is large.
Value* determinant(Builder& b, Value* x);

}  // namespace cuvil
