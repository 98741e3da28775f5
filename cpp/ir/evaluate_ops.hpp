// Parts of the reference evaluator, one function per family of ops.
#pragma once

#include <array>
#include <vector>

#include "ir/evaluate.hpp"

namespace cuvil {

struct EvaluationContext {
  const Node& node;
  const std::vector<Tensor>& operands;
  const Bindings& bindings;

  int64_t size(const Dim& d) const;
  std::vector<int64_t> sizes(const std::vector<Dim>& dims) const;
  /// The node's result type with its sizes evaluated.
  std::vector<int64_t> result_shape() const { return sizes(node.type().shape); }
  const Tensor& operand(size_t i) const { return operands[i]; }
};

Tensor evaluate_leaf(const EvaluationContext& context);
Tensor evaluate_pointwise(const EvaluationContext& context);
Tensor evaluate_index(const EvaluationContext& context);
Tensor evaluate_reduce(const EvaluationContext& context);
Tensor evaluate_contract(const EvaluationContext& context);
/// Scatters and sorts: where the order of elements matters.
Tensor evaluate_order(const EvaluationContext& context);

/// An index counted from the end if negative; throws CompileError if it lies outside an axis of this size.
int64_t checked_index(const EvaluationContext& context, int64_t index, int64_t size);

std::vector<int64_t> element_strides(const std::vector<int64_t>& shape);

/// Calls f(linear index, offsets…) for every index of `shape` in row-major order; offset k moves by strides[k][axis].
template <size_t N, typename F>
void for_each_index(const std::vector<int64_t>& shape, const std::array<std::vector<int64_t>, N>& strides,
                    std::array<int64_t, N> offsets, F f) {
  int64_t total = 1;
  for (int64_t d : shape) total *= d;
  if (total == 0) return;
  size_t rank = shape.size();
  std::vector<int64_t> index(rank, 0);
  for (int64_t i = 0; i < total; ++i) {
    f(i, offsets);
    for (size_t axis = rank; axis-- > 0;) {
      ++index[axis];
      for (size_t k = 0; k < N; ++k) offsets[k] += strides[k][axis];
      if (index[axis] < shape[axis]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= strides[k][axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

/// Strides by which an operand of `from` is walked over the broadcast shape `to`.
std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& from, const std::vector<int64_t>& to);

}  // namespace cuvil
