// Convolution by Winograd's minimal filtering: fewer multiplications, paid with additions around them.
#pragma once

#include <cstdint>

#include "ir/builder.hpp"

namespace cuvil {

/// F(m×m, 3×3): each tile of m×m outputs is computed from (m+2)×(m+2) inputs with (m+2)² instead of 9m² products per
/// pair of channels. After A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks" (2016); the
/// interpolation points are 0, ±1, ∞ for m = 2 and 0, ±1, ±2, ∞ for m = 4.
///
/// Rounding errors against float64, for inputs and outputs of one scale: m = 2 as small as the direct sum's, m = 4 up
/// to twenty times as large. An infinity or NaN reaches every output of the tiles that read it.
struct Winograd {
  int64_t m = 0;  // 2 or 4; 0: none
  int64_t tile() const { return m + 2; }
};

/// Which form computes a 3×3 convolution of stride 1 in the least time, by a model of its products, transforms and
/// weights; m = 0 for the direct form. `rows` × `columns` are the outputs of one image. With `strict`, only forms that
/// keep to the direct sum's errors and special values.
Winograd choose_winograd(int64_t in_channels, int64_t out_channels, int64_t rows, int64_t columns, int64_t lanes,
                         bool strict);

/// The convolution of x, [n, ic/B, h, w, B] with its border already added, with a filter [oc, ic, 3, 3] of f32; ic is a
/// multiple of B. The result is [n, ⌈oc/B⌉, h-2, w-2, B].
Value* winograd_conv(Builder& b, Value* x, const Tensor& filter, int64_t block, Winograd form);

}  // namespace cuvil
