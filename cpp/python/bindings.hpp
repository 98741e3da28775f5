// The Python module, one file per area. Each bind_* adds its classes and functions to the module.
#pragma once

#include <pybind11/pybind11.h>

namespace cuvil::python {

namespace py = pybind11;

/// Graph: text, inputs, outputs (graph.cpp).
void bind_graph(py::module_& m);
/// ATen graph handed over in one call (import_aten.cpp).
void bind_import_aten(py::module_& m);
/// ONNX path or bytes (import_onnx.cpp).
void bind_import_onnx(py::module_& m);
/// The reference evaluator (reference.cpp).
void bind_reference(py::module_& m);
/// compile(), CompiledModel and its descriptions (compile.cpp).
void bind_compile(py::module_& m);
/// CompiledModule (compiled_module.cpp).
void bind_compiled_module(py::module_& m);
/// Exceptions, and the translation of the compiler's C++ exceptions (errors.cpp). Comes first.
void bind_errors(py::module_& m);

}  // namespace cuvil::python
