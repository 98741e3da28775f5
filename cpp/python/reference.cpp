// The reference evaluator on NumPy arrays.
#include <pybind11/stl.h>

#include "procedure/execute.hpp"
#include "python/bindings.hpp"
#include "python/borrow.hpp"
#include "python/tensor_kinds.hpp"
#include "support/error.hpp"

namespace cuvil::python {

namespace {

py::object to_numpy(const Tensor& t) {
  py::module_ numpy = py::module_::import("numpy");
  py::object array = numpy.attr("empty")(t.shape(), numpy_name(t.dtype()));
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) throw py::error_already_set();
  if (t.num_bytes() > 0) std::memcpy(view.buf, t.data(), t.num_bytes());
  PyBuffer_Release(&view);
  return array;
}

std::vector<py::object> evaluate_on_arrays(const Graph& graph, const std::vector<py::object>& arrays) {
  if (arrays.size() != graph.inputs().size()) {
    throw CompileError("the graph takes " + std::to_string(graph.inputs().size()) + " inputs, not " +
                       std::to_string(arrays.size()));
  }
  std::vector<std::unique_ptr<BorrowedTensor>> borrowed;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Value& v = *graph.inputs()[i];
    borrowed.push_back(std::make_unique<BorrowedTensor>());
    borrowed.back()->borrow(arrays[i].ptr(), v.name, v.type);
    const BorrowedTensor& b = *borrowed.back();
    inputs.emplace_back(v.type.dtype, std::vector<int64_t>(b.shape(), b.shape() + b.rank()), b.data(), nullptr);
  }
  std::vector<Tensor> outputs;
  {
    py::gil_scoped_release nogil;
    outputs = evaluate_with_control_flow(graph, inputs);
  }
  std::vector<py::object> results;
  for (const Tensor& t : outputs) results.push_back(to_numpy(t));
  return results;
}

}  // namespace

void bind_reference(py::module_& m) {
  py::object graph = m.attr("Graph");
  graph.attr("evaluate") =
      py::cpp_function(evaluate_on_arrays, py::name("evaluate"), py::is_method(graph), py::arg("inputs"),
                       py::doc("Outputs by the reference evaluator, as NumPy arrays."));
}

}  // namespace cuvil::python
