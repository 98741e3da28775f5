// What compiled models say of themselves, as Python objects.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "driver/compile.hpp"
#include "runtime/run.hpp"

namespace cuvil::python {

namespace py = pybind11;

/// [(name, dtype, shape)]; a size is an int, or the text of an expression.
py::list tensor_infos(const std::vector<TensorInfo>& infos);
/// The value with the given symbols, or None when it depends on others.
py::object evaluate(const Dim& d, const std::map<std::string, int64_t>& symbols);
/// One dict per kernel.
void append_kernel_rows(py::list& rows, const CompiledModel& model, const std::map<std::string, int64_t>& symbols);

/// ([(kernel, begin ns, end ns)], ns in all) of one call that logs its kernels; at most `capacity` of them are kept.
py::object profiled(size_t capacity, const std::function<void(runtime::KernelLog*)>& call);

}  // namespace cuvil::python
