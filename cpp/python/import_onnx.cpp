// ONNX models from a path or from bytes.
#include <pybind11/stl.h>

#include "import/onnx/import.hpp"
#include "python/bindings.hpp"
#include "python/borrow.hpp"

namespace cuvil::python {

namespace {

using InputShapes = std::map<std::string, std::vector<std::string>>;
using InputValues = std::map<std::string, py::object>;
using InputSizes = std::map<std::pair<std::string, int64_t>, int64_t>;

onnx::ImportOptions options_of(const InputShapes& shapes, const InputValues& values, const InputSizes& sizes) {
  onnx::ImportOptions options{shapes, {}, sizes};
  for (const auto& [name, value] : values) options.input_values.emplace(name, copy_of(value.ptr(), name));
  return options;
}

Graph import_onnx_file(const std::string& path, const InputShapes& shapes, const InputValues& values,
                       const InputSizes& sizes) {
  const onnx::ImportOptions options = options_of(shapes, values, sizes);
  py::gil_scoped_release nogil;
  return onnx::import_file(path, options);
}

Graph import_onnx_bytes(const py::bytes& bytes, const InputShapes& shapes, const InputValues& values,
                        const InputSizes& sizes) {
  const onnx::ImportOptions options = options_of(shapes, values, sizes);
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes.ptr(), &data, &size) != 0) throw py::error_already_set();
  // The weights borrow from the bytes object, which is released under the GIL.
  auto* held = new py::bytes(bytes);
  std::shared_ptr<const void> owner(data, [held](const void*) {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    delete held;
  });
  py::gil_scoped_release nogil;
  return onnx::import_bytes({data, static_cast<size_t>(size)}, std::move(owner), options);
}

}  // namespace

void bind_import_onnx(py::module_& m) {
  m.def("import_onnx_file", import_onnx_file, py::arg("path"), py::arg("input_shapes") = InputShapes(),
        py::arg("input_values") = InputValues(), py::arg("input_sizes") = InputSizes());
  m.def("import_onnx_bytes", import_onnx_bytes, py::arg("model"), py::arg("input_shapes") = InputShapes(),
        py::arg("input_values") = InputValues(), py::arg("input_sizes") = InputSizes());
}

}  // namespace cuvil::python
