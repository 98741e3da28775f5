// Runs a Procedure, whoever runs its segments: compiled code, or the reference evaluator.
#pragma once

#include <functional>
#include <vector>

#include "ir/evaluate.hpp"
#include "procedure/procedure.hpp"

namespace cuvil {

/// Runs segment `index` of the module on these inputs.
using RunSegment = std::function<std::vector<Tensor>(int index, const std::vector<Tensor>& inputs)>;

/// An input or a value found at run time does not fit what the model needs.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Tensors may share memory with inputs and with one another. Throws RunError, or CompileError for inputs that do not
/// fit their types.
std::vector<Tensor> execute(const Procedure& procedure, const std::vector<Tensor>& inputs, const RunSegment& run);

/// The whole graph by the reference evaluator, control flow included.
std::vector<Tensor> evaluate_with_control_flow(const Graph& graph, const std::vector<Tensor>& inputs);

}  // namespace cuvil
