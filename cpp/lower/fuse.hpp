// Which values of the Graph go to memory, and which kernel computes each of them.
#pragma once

#include "lower/program.hpp"

namespace cuvil {

/// Fills program.buffers, constants and steps (kernels not yet scheduled).
void fuse(const Graph& graph, const TargetDescription& target, Program& program);

}  // namespace cuvil
