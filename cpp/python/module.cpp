#include <pybind11/pybind11.h>

#include "python/bindings.hpp"
#include "runtime/thread_pool.hpp"

PYBIND11_MODULE(cuvil_native, m) {
  using namespace cuvil::python;
  m.doc() = "Cuvil's engine. Use the package cuvil instead: names here may change without notice.";
  m.attr("__version__") = CUVIL_VERSION;
  bind_errors(m);
  bind_graph(m);
  bind_import_aten(m);
  bind_import_onnx(m);
  bind_reference(m);
  bind_compile(m);
  bind_compiled_module(m);
  m.def("num_threads", &cuvil::runtime::num_threads);
  m.def("available_processors", &cuvil::runtime::available_processors);
  m.def("set_num_threads", &cuvil::runtime::set_num_threads, py::arg("count"), py::arg("oversubscribe") = false,
        py::call_guard<py::gil_scoped_release>());
}
