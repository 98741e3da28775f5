#include "driver/module.hpp"

#include "support/error.hpp"

namespace cuvil {

CompiledModule::CompiledModule(const Graph& graph, const CompileOptions& options) {
  Module module = partition(graph);
  procedure_ = std::move(module.main);
  for (const auto& input : graph.inputs()) inputs_.push_back({input->name, input->type});
  for (const auto& output : graph.outputs()) outputs_.push_back({output.name, output.value->type});
  const auto count = static_cast<double>(module.segments.size());
  int32_t kernels = 0;
  for (Graph& segment : module.segments) {
    CompileOptions own = options;
    if (options.progress) {
      const auto done = static_cast<double>(segments_.size());
      own.progress = [&, done](const std::string& step, double share) {
        options.progress(step, (done + share) / count);
      };
    }
    auto model = compile(std::move(segment), own);
    const auto own_kernels = static_cast<int32_t>(model->kernels.size());
    segments_.push_back({std::move(model), std::make_unique<runtime::ArenaCache>(), kernels});
    kernels += own_kernels;
  }
}

std::vector<Tensor> CompiledModule::run(const std::vector<Tensor>& inputs, runtime::KernelLog* log) const {
  return execute(procedure_, inputs, [&](int index, const std::vector<Tensor>& values) {
    return run_segment(segments_[static_cast<size_t>(index)], values, log);
  });
}

namespace {

[[noreturn]] void fail(const CompiledModel& model, int32_t status, const int64_t* detail) {
  auto text = [&](int i) { return std::to_string(detail[i]); };
  switch (status) {
    case CUVIL_E_SIZE:
    case CUVIL_E_RANGE: {
      const TensorInfo& info = model.inputs.at(static_cast<size_t>(detail[0]));
      throw RunError("'" + info.name + "' (" + info.type.str() + "): axis " + text(1) + " is " + text(3) + ", not " +
                     text(2));
    }
    case CUVIL_E_INDEX: {
      const KernelInfo& info = model.kernels.at(static_cast<size_t>(detail[2]));
      throw RunError("index " + text(0) + " lies outside an axis of size " + text(1) + " in kernel " + info.name +
                     (info.sources.empty() ? "" : ", from " + info.sources.front()));
    }
    case CUVIL_E_MEMORY:
      throw std::bad_alloc();
    default:
      internal_error(__FILE__, __LINE__, "compiled code returned status " + std::to_string(status));
  }
}

}  // namespace

std::vector<Tensor> CompiledModule::run_segment(const Segment& segment, const std::vector<Tensor>& inputs,
                                                runtime::KernelLog* log) const {
  const CompiledModel& model = *segment.model;
  std::vector<const void*> input_data;
  std::vector<const int64_t*> input_shapes;
  for (const Tensor& t : inputs) {
    input_data.push_back(t.data());
    input_shapes.push_back(t.shape().data());
  }
  std::vector<int64_t> symbols(model.symbols.size());
  std::vector<std::vector<int64_t>> shapes;
  for (const TensorInfo& output : model.outputs) shapes.emplace_back(output.type.shape.size());
  std::vector<int64_t*> output_shapes;
  for (auto& shape : shapes) output_shapes.push_back(shape.data());
  int64_t arena_bytes = 0, detail[4] = {};
  int32_t status = model.plan(input_shapes.data(), symbols.data(), output_shapes.data(), &arena_bytes, detail);
  if (status != CUVIL_OK) fail(model, status, detail);
  std::vector<Tensor> outputs;
  std::vector<void*> output_data;
  for (size_t i = 0; i < shapes.size(); ++i) {
    outputs.push_back(Tensor::uninitialized(model.outputs[i].type.dtype, std::move(shapes[i])));
    output_data.push_back(outputs.back().mutable_data());
  }
  const int64_t first = log ? log->count : 0;
  status = runtime::run(model.run, *segment.arenas, arena_bytes, input_data.data(), output_data.data(), model.weights,
                        symbols.data(), detail, log);
  if (status != CUVIL_OK) fail(model, status, detail);
  if (log) {
    for (int64_t i = first; i < std::min(log->count, log->capacity); ++i)
      log->samples[i].kernel += segment.first_kernel;
  }
  return outputs;
}

}  // namespace cuvil
