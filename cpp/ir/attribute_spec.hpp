// The attribute column of the op table, taken apart.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace cuvil {

struct AttributeSpec {
  std::string_view name;
  std::string_view type;  // as in the table: int, float, string, bool, ints, dims, dim, dtype, fn, reduce, tensor
  bool optional = false;
};

const std::vector<AttributeSpec>& attribute_specs(Op op);

/// The table's word for the type that is held.
std::string_view attribute_type(const Attribute& attribute);

}  // namespace cuvil
