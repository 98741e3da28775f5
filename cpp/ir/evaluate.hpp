// The reference evaluator: plain loops with wide accumulators (f32 sums in double) over every primitive op.
// It folds constants, and is the oracle of differential tests. Index-like ops are fast enough to pack weights with.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace cuvil {

/// Values of the symbols of the graph's Dims.
using Bindings = std::map<std::string, int64_t>;

/// One node on evaluated operands.
Tensor evaluate_node(const Node& node, const std::vector<Tensor>& operands, const Bindings& bindings);

/// The value of what depends on constants only, if it and all it depends on have at most `most_elements` elements.
std::optional<Tensor> evaluate_constant(const Value* value, int64_t most_elements);

/// The whole graph, without control flow (procedure/execute.hpp has it); inputs in graph order. Binds symbols from the
/// inputs' shapes, and throws CompileError when a shape, dtype or number of inputs does not fit.
std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs);

/// Symbols of `graph` from concrete input shapes; throws CompileError naming input, axis, expected and actual size.
Bindings bind_symbols(const Graph& graph, const std::vector<std::vector<int64_t>>& shapes);

}  // namespace cuvil
