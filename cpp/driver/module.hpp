// Models with control flow or sizes that depend on data: their segments compiled, run in the order of the procedure.
#pragma once

#include <memory>
#include <vector>

#include "driver/compile.hpp"
#include "procedure/execute.hpp"
#include "runtime/run.hpp"

namespace cuvil {

/// Immutable but for its idle arenas; runs may be concurrent.
class CompiledModule {
 public:
  /// Throws CompileError or InternalError.
  CompiledModule(const Graph& graph, const CompileOptions& options);

  /// Throws RunError for inputs that do not fit. `log` may be null; kernels are numbered through all segments.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, runtime::KernelLog* log = nullptr) const;

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  struct Segment {
    std::shared_ptr<const CompiledModel> model;
    std::unique_ptr<runtime::ArenaCache> arenas;
    int32_t first_kernel = 0;
  };
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  std::vector<Tensor> run_segment(const Segment& segment, const std::vector<Tensor>& inputs,
                                  runtime::KernelLog* log) const;

  Procedure procedure_;
  std::vector<Segment> segments_;
  std::vector<TensorInfo> inputs_, outputs_;
};

}  // namespace cuvil
