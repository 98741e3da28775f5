#include "python/call.hpp"

#include <array>
#include <new>

#include "python/borrow.hpp"
#include "python/results.hpp"
#include "support/error.hpp"

namespace cuvil::python {

namespace {

// `count` elements on the stack when they are few, as for nearly every model; else on the heap.
template <typename T, size_t kInline>
class Scratch {
 public:
  explicit Scratch(size_t count) : data_(count <= kInline ? inline_.data() : new T[count]) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (data_ != inline_.data()) delete[] data_;
  }
  T* get() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  std::array<T, kInline> inline_;
  T* data_;
};

constexpr const char* kCapsuleName = "cuvil.callable";

PyObject* run_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  auto* callable = static_cast<Callable*>(PyCapsule_GetPointer(self, kCapsuleName));
  if (!callable) return nullptr;
  try {
    return callable->call(arguments, count, nullptr);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

std::string plural(size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

}  // namespace

Callable::Callable(std::shared_ptr<const CompiledModel> model) : model_(std::move(model)) {
  for (const TensorInfo& output : model_->outputs) output_axes_ += output.type.shape.size();
}

PyObject* Callable::call(PyObject* const* arguments, Py_ssize_t count, runtime::KernelLog* log) {
  const size_t input_count = model_->inputs.size(), output_count = model_->outputs.size();
  if (static_cast<size_t>(count) != input_count) {
    throw InputFault("expected " + plural(input_count, "input") + ", got " + std::to_string(count));
  }
  Scratch<BorrowedTensor, 4> inputs(input_count);
  Scratch<const void*, 32> input_data(input_count);
  Scratch<const int64_t*, 32> input_shapes(input_count);
  for (size_t i = 0; i < input_count; ++i) {
    const TensorInfo& info = model_->inputs[i];
    inputs[i].borrow(arguments[i], info.name, info.type);
    input_data[i] = inputs[i].data();
    input_shapes[i] = inputs[i].shape();
  }

  Scratch<int64_t, 32> symbols(model_->symbols.size());
  Scratch<int64_t, 64> output_axes(output_axes_);
  Scratch<int64_t*, 32> output_shapes(output_count);
  int64_t* axes = output_axes.get();
  for (size_t i = 0; i < output_count; ++i) {
    output_shapes[i] = axes;
    axes += model_->outputs[i].type.shape.size();
  }
  int64_t arena_bytes = 0, detail[4] = {};
  int32_t status = model_->plan(input_shapes.get(), symbols.get(), output_shapes.get(), &arena_bytes, detail);
  if (status != CUVIL_OK) throw_fault(status, detail, input_shapes.get());

  const ResultKind kind = kind_of(arguments, count);
  Scratch<Result, 4> results(output_count);
  Scratch<void*, 32> output_data(output_count);
  for (size_t i = 0; i < output_count; ++i) {
    const Type& type = model_->outputs[i].type;
    results[i].allocate(kind, type.dtype, output_shapes[i], type.rank());
    output_data[i] = results[i].data();
  }

  Py_BEGIN_ALLOW_THREADS;
  status = runtime::run(model_->run, arenas_, arena_bytes, input_data.get(), output_data.get(), model_->weights,
                        symbols.get(), detail, log);
  Py_END_ALLOW_THREADS;
  if (status != CUVIL_OK) throw_fault(status, detail, input_shapes.get());

  if (output_count == 1) return results[0].take(kind);
  py::tuple tuple(output_count);
  for (size_t i = 0; i < output_count; ++i)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), results[i].take(kind));
  return tuple.release().ptr();
}

void Callable::throw_fault(int32_t status, const int64_t* detail, const int64_t* const* shapes) const {
  switch (status) {
    case CUVIL_E_SIZE:
    case CUVIL_E_RANGE: {
      const size_t input = static_cast<size_t>(detail[0]);
      CUVIL_CHECK(input < model_->inputs.size(), "a size check names an input that does not exist");
      const TensorInfo& info = model_->inputs[input];
      const std::string axis = std::to_string(detail[1]), limit = std::to_string(detail[2]);
      const std::string actual = std::to_string(detail[3]);
      const std::string got = type_text(info.type.dtype, shapes[input], info.type.rank());
      const std::string reason = status == CUVIL_E_SIZE ? "axis " + axis + " must be " + limit + ", not " + actual
                                                        : "axis " + axis + " is " + actual + ", its bound is " + limit;
      throw ShapeFault("input '" + info.name + "': expected " + info.type.str() + ", got " + got + " (" + reason + ")");
    }
    case CUVIL_E_INDEX: {
      const size_t kernel = static_cast<size_t>(detail[2]);
      std::string where;
      if (kernel < model_->kernels.size()) {
        const KernelInfo& info = model_->kernels[kernel];
        where = " in kernel " + info.name;
        if (!info.sources.empty()) where += ", from " + info.sources.front();
      }
      throw InputFault("index " + std::to_string(detail[0]) + " lies outside an axis of size " +
                       std::to_string(detail[1]) + where);
    }
    case CUVIL_E_MEMORY:
      PyErr_SetString(PyExc_MemoryError,
                      ("cannot allocate " + std::to_string(detail[0]) + " bytes of intermediate memory").c_str());
      throw py::error_already_set();
    default:
      internal_error(__FILE__, __LINE__, "compiled code returned status " + std::to_string(status));
  }
}

std::map<std::string, int64_t> Callable::symbol_values(const std::vector<std::vector<int64_t>>& input_shapes) const {
  if (input_shapes.size() != model_->inputs.size()) {
    throw InputFault("expected the shapes of " + plural(model_->inputs.size(), "input"));
  }
  std::vector<const int64_t*> shapes;
  for (size_t i = 0; i < input_shapes.size(); ++i) {
    if (input_shapes[i].size() != model_->inputs[i].type.shape.size()) {
      throw InputFault("input '" + model_->inputs[i].name + "': wrong rank");
    }
    shapes.push_back(input_shapes[i].data());
  }
  std::vector<int64_t> symbols(model_->symbols.size()), axes(output_axes_);
  std::vector<int64_t*> output_shapes;
  int64_t* next = axes.data();
  for (const TensorInfo& output : model_->outputs) {
    output_shapes.push_back(next);
    next += output.type.shape.size();
  }
  int64_t arena_bytes = 0, detail[4] = {};
  const int32_t status = model_->plan(shapes.data(), symbols.data(), output_shapes.data(), &arena_bytes, detail);
  if (status != CUVIL_OK) throw_fault(status, detail, shapes.data());
  std::map<std::string, int64_t> values;
  for (size_t i = 0; i < symbols.size(); ++i) values[model_->symbols[i].symbol_name()] = symbols[i];
  return values;
}

PyObject* Callable::make_function(PyObject* owner, Callable* callable) {
  static PyMethodDef definition = {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_function)),
                                   METH_FASTCALL,
                                   "run(*inputs): a tensor, or a tuple if the model has several outputs."};
  PyObject* capsule = PyCapsule_New(
      callable, kCapsuleName, [](PyObject* self) { Py_XDECREF(static_cast<PyObject*>(PyCapsule_GetContext(self))); });
  if (!capsule) return nullptr;
  Py_INCREF(owner);
  PyCapsule_SetContext(capsule, owner);
  PyObject* function = PyCFunction_NewEx(&definition, capsule, nullptr);
  Py_DECREF(capsule);
  return function;
}

}  // namespace cuvil::python
