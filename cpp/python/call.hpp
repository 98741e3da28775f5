// Calls of a compiled model with Python objects.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driver/compile.hpp"
#include "runtime/run.hpp"

namespace cuvil::python {

namespace py = pybind11;

/// A compiled model with its idle arenas. Calls may run concurrently.
class Callable {
 public:
  explicit Callable(std::shared_ptr<const CompiledModel> model);

  const CompiledModel& model() const { return *model_; }
  runtime::ArenaCache& arenas() { return arenas_; }

  /// A tensor if the model has one output, else a tuple; a new reference. `log` may be null. Throws.
  PyObject* call(PyObject* const* arguments, Py_ssize_t count, runtime::KernelLog* log);

  /// The builtin function `run(*inputs)`, which keeps `owner` alive.
  static PyObject* make_function(PyObject* owner, Callable* callable);

  /// Values of the model's symbols for sizes that fit it; throws ShapeFault or InputFault.
  std::map<std::string, int64_t> symbol_values(const std::vector<std::vector<int64_t>>& input_shapes) const;

 private:
  [[noreturn]] void throw_fault(int32_t status, const int64_t* detail, const int64_t* const* shapes) const;

  std::shared_ptr<const CompiledModel> model_;
  runtime::ArenaCache arenas_;
  size_t output_axes_ = 0;  // sum of the outputs' ranks
};

/// Sets the Python error for the C++ exception in flight.
void set_python_error();

}  // namespace cuvil::python
