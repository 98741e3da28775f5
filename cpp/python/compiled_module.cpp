// Compiled models with control flow or sizes that depend on data, as Python sees them: the interface of CompiledModel.
#include <pybind11/stl.h>

#include "driver/module.hpp"
#include "python/bindings.hpp"
#include "python/borrow.hpp"
#include "python/describe.hpp"
#include "python/results.hpp"
#include "support/error.hpp"

namespace cuvil::python {

namespace {

py::object to_python(const Tensor& t, const ResultKind& kind) {
  Result result;
  result.allocate(kind, t.dtype(), t.shape().data(), t.rank());
  if (t.num_bytes()) std::memcpy(result.data(), t.data(), t.num_bytes());
  return py::reinterpret_steal<py::object>(result.take(kind));
}

void check_shapes(const std::vector<TensorInfo>& infos, const std::vector<Tensor>& inputs) {
  Graph signature;
  std::vector<std::vector<int64_t>> shapes;
  for (size_t i = 0; i < infos.size(); ++i) {
    signature.add_input(infos[i].name, infos[i].type);
    shapes.push_back(inputs[i].shape());
  }
  try {
    bind_symbols(signature, shapes);
  } catch (const CompileError& e) {
    throw ShapeFault(e.what());
  }
}

py::object call(const CompiledModule& module, const py::args& arguments, runtime::KernelLog* log) {
  const std::vector<TensorInfo>& infos = module.inputs();
  if (arguments.size() != infos.size()) {
    throw InputFault("expected " + std::to_string(infos.size()) + " inputs, got " + std::to_string(arguments.size()));
  }
  std::vector<PyObject*> objects;
  for (py::handle h : arguments) objects.push_back(h.ptr());
  std::vector<BorrowedTensor> borrowed(infos.size());
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < infos.size(); ++i) {
    borrowed[i].borrow(objects[i], infos[i].name, infos[i].type);
    const BorrowedTensor& b = borrowed[i];
    inputs.emplace_back(infos[i].type.dtype, std::vector<int64_t>(b.shape(), b.shape() + b.rank()), b.data(), nullptr);
  }
  check_shapes(infos, inputs);
  std::vector<Tensor> outputs;
  try {
    py::gil_scoped_release nogil;
    outputs = module.run(inputs, log);
  } catch (const RunError& e) {
    throw InputFault(e.what());
  }
  const ResultKind kind = kind_of(objects.data(), static_cast<Py_ssize_t>(objects.size()));
  if (outputs.size() == 1) return to_python(outputs[0], kind);
  py::tuple results(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) results[i] = to_python(outputs[i], kind);
  return results;
}

py::object profile(const CompiledModule& module, const py::args& arguments) {
  return profiled(1 << 16, [&](runtime::KernelLog* log) { call(module, arguments, log); });
}

// Sum over the segments of a number that each model has.
template <typename F>
int64_t total(const CompiledModule& module, F f) {
  int64_t sum = 0;
  for (const CompiledModule::Segment& s : module.segments()) sum += f(s);
  return sum;
}

}  // namespace

void bind_compiled_module(py::module_& m) {
  using Self = const CompiledModule&;
  py::class_<CompiledModule>(m, "CompiledModule")
      .def("run", [](Self self, const py::args& inputs) { return call(self, inputs, nullptr); })
      .def("profile", profile)
      .def("save",
           [](Self, const std::string&) {
             throw CompileError(
                 "models with control flow or sizes that depend on data can't be saved to a file yet; compile them in "
                 "the process that runs them");
           })
      .def_property_readonly("inputs", [](Self self) { return tensor_infos(self.inputs()); })
      .def_property_readonly("outputs", [](Self self) { return tensor_infos(self.outputs()); })
      .def_property_readonly("symbols", [](Self) { return std::vector<std::string>(); })
      .def_property_readonly("target",
                             [](Self self) { return self.segments().empty() ? "" : self.segments()[0].model->target; })
      .def(
          "kernels",
          [](Self self, const std::map<std::string, int64_t>& symbols) {
            py::list rows;
            for (const auto& s : self.segments()) append_kernel_rows(rows, *s.model, symbols);
            return rows;
          },
          py::arg("symbols") = std::map<std::string, int64_t>())
      .def("symbol_values",
           [](Self, const std::vector<std::vector<int64_t>>&) { return std::map<std::string, int64_t>(); })
      .def(
          "arena_bytes", [](Self, const std::map<std::string, int64_t>&) { return py::none(); },
          py::arg("symbols") = std::map<std::string, int64_t>())
      .def_property_readonly("arena_text",
                             [](Self self) {
                               std::string text;
                               for (const auto& s : self.segments()) {
                                 text += (text.empty() ? "" : ", ") + s.model->memory.arena_bytes.str();
                               }
                               return "max(" + text + ")";
                             })
      .def_property_readonly(
          "weight_bytes", [](Self self) { return total(self, [](auto& s) { return s.model->memory.weight_bytes; }); })
      .def_property_readonly("code_bytes",
                             [](Self self) { return total(self, [](auto& s) { return s.model->memory.code_bytes; }); })
      .def_property_readonly("idle_arena_bytes",
                             [](Self self) { return total(self, [](auto& s) { return s.arenas->idle_bytes(); }); })
      .def("trim",
           [](Self self) {
             for (const auto& s : self.segments()) s.arenas->trim();
           })
      .def_property_readonly("tuning", [](Self) { return py::list(); })
      .def_property_readonly("compile_times", [](Self self) {
        std::vector<std::pair<std::string, double>> times;
        for (const auto& s : self.segments()) {
          for (size_t i = 0; i < s.model->compile_times.size(); ++i) {
            const auto& t = s.model->compile_times[i];
            if (i >= times.size()) times.emplace_back(t.step, 0.0);
            times[i].second += t.seconds;
          }
        }
        return times;
      });
}

}  // namespace cuvil::python
