// Interpolation: tensors read at positions between their elements.
#pragma once

#include "ir/builder.hpp"

namespace cuvil {

struct Interpolation {
  enum class Kind { Nearest, Linear, Cubic };
  enum class Round { PreferFloor, PreferCeil, Floor, Ceil };
  Kind kind = Kind::Nearest;
  Round round = Round::PreferFloor;  // Nearest: which of two neighbours equally near, or always the one below or above
  double cubic_a = -0.75;
  /// Below 1 the kernel is wider by its inverse, which keeps high frequencies out when shrinking.
  double antialias_scale = 1;
  bool exclude_outside = false;  // weights of positions outside are 0 and the others larger; else the edge repeats
};

/// x with the axis read at `positions`, f64 of one axis, in units of its elements. Weights are f32 (f64 for f64);
/// floats stay of their dtype, integers are rounded and saturated.
Value* interpolate_axis(Builder& b, Value* x, int axis, Value* positions, const Interpolation& how);

struct GridSampling {
  enum class Padding { Zeros, Border, Reflection };
  Interpolation::Kind kind = Interpolation::Kind::Linear;
  Padding padding = Padding::Zeros;
  bool align_corners = false;
};

/// x, [n, c, s…], read at grid, [n, t…, d], whose last axis holds a position on each of the d spatial axes, the last
/// axis first, with -1 and 1 its ends: [n, c, t…].
Value* grid_sample(Builder& b, Value* x, Value* grid, const GridSampling& how);

}  // namespace cuvil
