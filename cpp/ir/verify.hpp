// The verifier: checks every invariant of a Graph that the type system of C++ does not.
#pragma once

#include "ir/graph.hpp"

namespace cuvil {

/// Topological order, operand counts and attribute types from the op table, inferred types equal to stored ones,
/// outputs defined, no dangling users. Throws InternalError naming `after` (the pass that ran last) and the node.
void verify(const Graph& graph, const char* after);

}  // namespace cuvil
