#include "ir/linear_algebra.hpp"

#include "support/error.hpp"

namespace cuvil {

Value* determinant(Builder& b, Value* x) {
  constexpr int64_t kLargest = 64;
  const Shape shape = x->type.shape;
  if (shape.size() < 2 || shape[shape.size() - 1] != shape[shape.size() - 2]) {
    throw CompileError("needs square matrices, not " + x->type.str());
  }
  const Dim size = shape.back();
  if (!size.is_constant() || size.value() > kLargest) {
    throw CompileError("matrices must have a constant size of at most " + std::to_string(kLargest));
  }
  const Shape outer(shape.begin(), shape.end() - 2);
  const Dim batch = Type{x->type.dtype, outer}.num_elements();
  const DType t = x->type.dtype;
  Value* zero = b.scalar(t, 0);
  Value* product = b.full({batch, 1, 1}, t, 1);
  Value* m = b.reshape(x, {batch, size, size});
  for (int64_t n = size.value(); n > 0; --n) {
    Value* column = b.unary(Fn::Abs, b.slice_axis(m, 2, 0, 1));
    Value* row = b.reduce(ReduceFn::ArgMax, column, {1}, true);  // [b, 1, 1]
    Value* pivot_row = b.gather_elements(m, b.broadcast(row, {batch, 1, n}), 1);
    Value* pivot = b.slice_axis(pivot_row, 2, 0, 1);
    Value* in_place = b.binary(Fn::Eq, row, b.scalar_int(DType::i64, 0));
    product = b.mul(product, b.select(in_place, pivot, b.unary(Fn::Neg, pivot)));
    if (n == 1) break;
    Value* index = b.iota({1, n, 1}, 1, DType::i64);
    Value* swapped = b.select(b.binary(Fn::Eq, index, row), b.slice_axis(m, 1, 0, 1), m);
    Value* rest = b.slice_axis(swapped, 1, 1, n);
    Value* factor = b.div(b.slice_axis(rest, 2, 0, 1), pivot);
    factor = b.select(b.binary(Fn::Eq, pivot, zero), zero, factor);
    m = b.sub(b.slice_axis(rest, 2, 1, n), b.mul(factor, b.slice_axis(pivot_row, 2, 1, n)));
  }
  return b.reshape(product, outer);
}

}  // namespace cuvil
