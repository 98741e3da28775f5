// PyTorch's ATen graph (after decomposition) → Graph.
#pragma once

#include "import/aten/graph.hpp"
#include "ir/graph.hpp"

namespace cuvil::aten {

/// Throws CompileError: one message that lists every unsupported operator with the nodes that use it, or the node whose
/// arguments cannot be imported.
Graph import_graph(const ExportedGraph& exported);

/// Names of the operators import_graph takes, like "aten.add.Tensor".
std::vector<std::string> supported_targets();

}  // namespace cuvil::aten
