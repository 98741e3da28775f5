// The C interface, cuvil/cuvil.h.
#include <stdlib.h>
#include <string.h>

#include <new>

#include "cuvil/cuvil.h"
#include "runtime/artifact.hpp"
#include "runtime/metadata.hpp"
#include "runtime/run.hpp"
#include "runtime/thread_pool.hpp"

using cuvil::runtime::set_error;

struct cuvil_model {
  cuvil::runtime::MappedArtifact artifact;
  cuvil::runtime::Metadata metadata;
  cuvil::runtime::ArenaCache arenas;
};

namespace {

// The sizes and pointers of one call, on the stack when they are few.
class Scratch {
 public:
  explicit Scratch(size_t words) : data_(words <= kInline ? inline_ : static_cast<int64_t*>(malloc(words * 8))) {}
  ~Scratch() {
    if (data_ != inline_) free(data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  int64_t* take(size_t words) {
    int64_t* from = data_ + used_;
    used_ += words;
    return from;
  }
  template <typename T>
  T* take_pointers(size_t count) {
    return reinterpret_cast<T*>(take(count));
  }
  bool ok() const { return data_; }

 private:
  static constexpr size_t kInline = 128;
  int64_t inline_[kInline];
  int64_t* data_;
  size_t used_ = 0;
};

cuvil_status check_tensor(const char* kind, const cuvil_tensor& tensor, const cuvil_tensor_info& info) {
  if (tensor.dtype != info.dtype || tensor.rank != info.rank || (tensor.rank > 0 && !tensor.shape)) {
    return set_error(CUVIL_STATUS_SHAPE, "%s '%s' has dtype %d and rank %d, the model's dtype %d and rank %d", kind,
                     info.name, tensor.dtype, tensor.rank, info.dtype, info.rank);
  }
  return CUVIL_STATUS_OK;
}

cuvil_status fault(const cuvil_model* model, int32_t status, const int64_t* detail) {
  auto number = [](int64_t v) { return static_cast<long long>(v); };
  switch (status) {
    case CUVIL_E_SIZE:
      return set_error(CUVIL_STATUS_SHAPE, "input '%s': axis %lld must be %lld, not %lld",
                       model->metadata.inputs[detail[0]].name, number(detail[1]), number(detail[2]), number(detail[3]));
    case CUVIL_E_RANGE:
      return set_error(CUVIL_STATUS_SHAPE, "input '%s': axis %lld is %lld, its bound is %lld",
                       model->metadata.inputs[detail[0]].name, number(detail[1]), number(detail[3]), number(detail[2]));
    case CUVIL_E_INDEX:
      return set_error(CUVIL_STATUS_INDEX, "index %lld lies outside an axis of size %lld", number(detail[0]),
                       number(detail[1]));
    default:
      return set_error(CUVIL_STATUS_MEMORY, "cannot allocate %lld bytes of intermediate memory", number(detail[0]));
  }
}

size_t axes_of_outputs(const cuvil_model* model) {
  size_t axes = 0;
  for (int32_t i = 0; i < model->metadata.output_count; ++i)
    axes += static_cast<size_t>(model->metadata.outputs[i].rank);
  return axes;
}

// plan() for these inputs; `symbols` and `shapes` are written.
cuvil_status plan(const cuvil_model* model, const cuvil_tensor* inputs, const int64_t** input_shapes, int64_t* symbols,
                  int64_t* const* shapes, int64_t* arena_bytes) {
  const auto& m = model->metadata;
  for (int32_t i = 0; i < m.input_count; ++i) {
    if (cuvil_status s = check_tensor("input", inputs[i], m.inputs[i])) return s;
    input_shapes[i] = inputs[i].shape;
  }
  int64_t detail[4] = {};
  int32_t status = model->artifact.plan()(input_shapes, symbols, shapes, arena_bytes, detail);
  return status == CUVIL_OK ? CUVIL_STATUS_OK : fault(model, status, detail);
}

}  // namespace

extern "C" {

cuvil_status cuvil_model_load(const char* path, const cuvil_load_options* options, cuvil_model** out) {
  if (!path || !out) return set_error(CUVIL_STATUS_ARGUMENT, "a null pointer");
  *out = nullptr;
  if (options && options->size != sizeof(cuvil_load_options))
    return set_error(CUVIL_STATUS_ARGUMENT, "cuvil_load_options has a size this runtime does not know");
  void* memory = malloc(sizeof(cuvil_model));
  if (!memory) return set_error(CUVIL_STATUS_MEMORY, "out of memory");
  auto* model = new (memory) cuvil_model;
  cuvil_status status = cuvil::runtime::map_artifact(path, options, &model->artifact);
  if (!status) {
    status =
        cuvil::runtime::read_metadata(model->artifact.metadata(), model->artifact.metadata_bytes(), &model->metadata);
  }
  if (!status) status = cuvil::runtime::check_features(model->metadata.features, strlen(model->metadata.features));
  if (status) {
    cuvil_model_free(model);
  } else {
    *out = model;
  }
  return status;
}

void cuvil_model_free(cuvil_model* model) {
  if (!model) return;
  free(model->metadata.memory);
  cuvil::runtime::unmap_artifact(&model->artifact);
  model->~cuvil_model();
  free(model);
}

int32_t cuvil_model_input_count(const cuvil_model* model) {
  return model ? model->metadata.input_count : 0;
}

int32_t cuvil_model_output_count(const cuvil_model* model) {
  return model ? model->metadata.output_count : 0;
}

const cuvil_tensor_info* cuvil_model_input(const cuvil_model* model, int32_t index) {
  return model && index >= 0 && index < model->metadata.input_count ? &model->metadata.inputs[index] : nullptr;
}

const cuvil_tensor_info* cuvil_model_output(const cuvil_model* model, int32_t index) {
  return model && index >= 0 && index < model->metadata.output_count ? &model->metadata.outputs[index] : nullptr;
}

const char* cuvil_model_target(const cuvil_model* model) {
  return model ? model->metadata.target : "";
}

cuvil_status cuvil_model_output_shapes(const cuvil_model* model, const cuvil_tensor* inputs,
                                       int64_t* const* output_shapes) {
  if (!model || (!inputs && model->metadata.input_count) || !output_shapes)
    return set_error(CUVIL_STATUS_ARGUMENT, "a null pointer");
  const auto count = static_cast<size_t>(model->metadata.input_count);
  const auto symbols = static_cast<size_t>(model->metadata.symbol_count);
  Scratch scratch(count + symbols);
  if (!scratch.ok()) return set_error(CUVIL_STATUS_MEMORY, "out of memory");
  int64_t arena_bytes = 0;
  auto** input_shapes = scratch.take_pointers<const int64_t*>(count);
  return plan(model, inputs, input_shapes, scratch.take(symbols), output_shapes, &arena_bytes);
}

cuvil_status cuvil_model_run(cuvil_model* model, const cuvil_tensor* inputs, const cuvil_tensor* outputs) {
  if (!model || (!inputs && model->metadata.input_count) || (!outputs && model->metadata.output_count))
    return set_error(CUVIL_STATUS_ARGUMENT, "a null pointer");
  const auto& m = model->metadata;
  const auto in = static_cast<size_t>(m.input_count), out = static_cast<size_t>(m.output_count);
  const auto symbol_count = static_cast<size_t>(m.symbol_count);
  Scratch scratch(2 * in + 2 * out + symbol_count + axes_of_outputs(model));
  if (!scratch.ok()) return set_error(CUVIL_STATUS_MEMORY, "out of memory");
  auto** input_shapes = scratch.take_pointers<const int64_t*>(in);
  auto** input_data = scratch.take_pointers<const void*>(in);
  auto** output_shapes = scratch.take_pointers<int64_t*>(out);
  auto** output_data = scratch.take_pointers<void*>(out);
  int64_t* symbols = scratch.take(symbol_count);
  for (size_t i = 0; i < out; ++i) output_shapes[i] = scratch.take(static_cast<size_t>(m.outputs[i].rank));
  int64_t arena_bytes = 0;
  if (cuvil_status s = plan(model, inputs, input_shapes, symbols, output_shapes, &arena_bytes)) return s;
  for (size_t i = 0; i < in; ++i) input_data[i] = inputs[i].data;
  for (size_t i = 0; i < out; ++i) {
    if (cuvil_status s = check_tensor("output", outputs[i], m.outputs[i])) return s;
    for (int32_t axis = 0; axis < outputs[i].rank; ++axis) {
      if (outputs[i].shape[axis] == output_shapes[i][axis]) continue;
      return set_error(CUVIL_STATUS_SHAPE, "output '%s': axis %d is %lld, not %lld", m.outputs[i].name, axis,
                       static_cast<long long>(output_shapes[i][axis]), static_cast<long long>(outputs[i].shape[axis]));
    }
    output_data[i] = outputs[i].data;
  }
  int64_t detail[4] = {};
  int32_t status = cuvil::runtime::run(model->artifact.run(), model->arenas, arena_bytes, input_data, output_data,
                                       model->artifact.weights(), symbols, detail, nullptr);
  return status == CUVIL_OK ? CUVIL_STATUS_OK : fault(model, status, detail);
}

void cuvil_model_trim(cuvil_model* model) {
  if (model) model->arenas.trim();
}

const char* cuvil_error_message(void) {
  return cuvil::runtime::error_message();
}

void cuvil_set_num_threads(int32_t count) {
  cuvil::runtime::set_num_threads(count);
}

int32_t cuvil_num_threads(void) {
  return cuvil::runtime::num_threads();
}

uint32_t cuvil_abi_version(void) {
  return CUVIL_ABI_VERSION;
}

}  // extern "C"
