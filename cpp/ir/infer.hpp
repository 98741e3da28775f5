// Type inference: the result type of a node from its operands and attributes.
#pragma once

#include "ir/graph.hpp"

namespace cuvil {

/// Throws CompileError (naming the op, its source and the types) when operands or attributes do not fit.
Type infer_type(const Node& node);

}  // namespace cuvil
