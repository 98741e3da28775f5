// Packed forms of constant weights: a constant in the order in which kernels read it, behind index-like ops that give
// back the logical tensor. Lowering turns those ops into index expressions.
#pragma once

#include <functional>

#include "ir/builder.hpp"

namespace cuvil {

/// Evaluates `build` on a constant at once. The result is a constant of its own, so that constant folding has nothing
/// left to undo.
Tensor pack_constant(const Tensor& tensor, const std::function<Value*(Builder&, Value*)>& build);

/// Columns of a packed panel for `columns` outputs with `lanes` per vector: two vectors, fewer when there are not as
/// many columns, four when there is only one row to share them.
int64_t panel_columns(int64_t columns, int64_t lanes, bool one_row);

/// [k, n] as panels [n/nr][k/dot][nr][dot], zero-padded; dot divides k.
Value* pack_matrix(Builder& b, const Tensor& matrix, int64_t nr, int64_t dot = 1);

/// [oc, ic, k…] as panels [oc/nr][ic/bi][k…][bi/dot][nr][dot], zero-padded; bi divides ic, dot divides bi. With
/// `scale`, a vector [ic], each input channel's weights are multiplied by its element at run time.
Value* pack_filter(Builder& b, const Tensor& filter, int64_t nr, int64_t bi, Value* scale = nullptr, int64_t dot = 1);

}  // namespace cuvil
