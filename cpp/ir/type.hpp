// The type of a value: element type and sizes.
#pragma once

#include <string>
#include <vector>

#include "ir/dim.hpp"
#include "ir/dtype.hpp"

namespace cuvil {

using Shape = std::vector<Dim>;

struct Type {
  DType dtype = DType::f32;
  Shape shape;

  int rank() const { return static_cast<int>(shape.size()); }
  bool is_static() const;
  Dim num_elements() const;
  /// "f32[b, 3, 224]"
  std::string str() const;
  friend bool operator==(const Type& a, const Type& b) { return a.dtype == b.dtype && a.shape == b.shape; }
};

/// NumPy broadcasting of shapes. Sizes must be equal or one of them 1; throws CompileError naming both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b);
std::string shape_str(const Shape& shape);

}  // namespace cuvil
