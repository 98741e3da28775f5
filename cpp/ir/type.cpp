#include "ir/type.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace cuvil {

bool Type::is_static() const {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is_constant(); });
}

Dim Type::num_elements() const {
  Dim n = 1;
  for (const Dim& d : shape) n = n * d;
  return n;
}

std::string shape_str(const Shape& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + shape[i].str();
  return s + "]";
}

std::string Type::str() const {
  return std::string(name_of(dtype)) + shape_str(shape);
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  size_t skip = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Dim& x = longer[skip + i];
    const Dim& y = shorter[i];
    if (x == y || y == Dim(1)) continue;
    if (x != Dim(1)) throw CompileError("shapes " + shape_str(a) + " and " + shape_str(b) + " do not broadcast");
    result[skip + i] = y;
  }
  return result;
}

}  // namespace cuvil
