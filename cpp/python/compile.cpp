// compile() and what it returns.
#include "driver/compile.hpp"

#include <pybind11/functional.h>

#include "driver/artifact.hpp"
#include "driver/module.hpp"
#include "python/bindings.hpp"
#include "python/call.hpp"
#include "python/describe.hpp"
#include "support/error.hpp"

namespace cuvil::python {

namespace {

std::vector<std::string> symbol_names(const Callable& self) {
  std::vector<std::string> names;
  for (const Dim& s : self.model().symbols) names.push_back(s.symbol_name());
  return names;
}

py::list tuning_rows(const Callable& self) {
  py::list rows;
  for (const TuningRecord& r : self.model().tuning) {
    py::dict row;
    row["kernel"] = r.kernel;
    row["terms"] = r.terms;
    row["estimated_cycles"] = r.estimated;
    row["microseconds"] = r.microseconds;
    row["chosen"] = r.chosen;
    rows.append(row);
  }
  return rows;
}

py::object profile(Callable& self, const py::args& inputs) {
  std::vector<PyObject*> arguments;
  for (py::handle h : inputs) arguments.push_back(h.ptr());
  py::object outputs;  // freed after the clock has stopped
  return profiled(2 * self.model().kernels.size() + 64, [&](runtime::KernelLog* log) {
    outputs =
        py::reinterpret_steal<py::object>(self.call(arguments.data(), static_cast<Py_ssize_t>(arguments.size()), log));
  });
}

py::object compile_graph(const Graph& graph, const std::string& target, int threads, const py::object& progress,
                         const std::string& precision, bool tune) {
  CompileOptions options;
  if (precision == "strict") {
    options.precision = Precision::Strict;
  } else if (precision != "default") {
    throw CompileError("precision is \"default\" or \"strict\", not \"" + precision + "\"");
  }
  options.tune = tune;
  options.target = target;
  options.compile_threads = threads;
  if (!progress.is_none()) {
    options.progress = [&progress](const std::string& step, double done) {
      py::gil_scoped_acquire gil;
      progress(step, done);
    };
  }
  if (has_host_ops(graph)) {
    std::unique_ptr<CompiledModule> module;
    {
      py::gil_scoped_release nogil;
      module = std::make_unique<CompiledModule>(graph, options);
    }
    return py::cast(std::move(module));
  }
  std::unique_ptr<Callable> model;
  {
    py::gil_scoped_release nogil;
    model = std::make_unique<Callable>(compile(graph.clone(), options));
  }
  return py::cast(std::move(model));
}

}  // namespace

void bind_compile(py::module_& m) {
  py::class_<Callable>(m, "CompiledModel")
      .def_property_readonly(
          "run",
          [](py::object self) {
            return py::reinterpret_steal<py::object>(Callable::make_function(self.ptr(), &self.cast<Callable&>()));
          })
      .def("profile", profile, "Runs once: ([(kernel, begin_ns, end_ns), ...], nanoseconds of the call)")
      .def(
          "save", [](const Callable& self, const std::string& path) { save_model(self.model(), path); },
          py::call_guard<py::gil_scoped_release>(), py::arg("path"))
      .def_property_readonly("inputs", [](const Callable& self) { return tensor_infos(self.model().inputs); })
      .def_property_readonly("outputs", [](const Callable& self) { return tensor_infos(self.model().outputs); })
      .def_property_readonly("symbols", symbol_names)
      .def_property_readonly("target", [](const Callable& self) { return self.model().target; })
      .def(
          "kernels",
          [](const Callable& self, const std::map<std::string, int64_t>& symbols) {
            py::list rows;
            append_kernel_rows(rows, self.model(), symbols);
            return rows;
          },
          py::arg("symbols") = std::map<std::string, int64_t>())
      .def("symbol_values", &Callable::symbol_values, py::arg("input_shapes"))
      .def(
          "arena_bytes",
          [](const Callable& self, const std::map<std::string, int64_t>& symbols) {
            return evaluate(self.model().memory.arena_bytes, symbols);
          },
          py::arg("symbols") = std::map<std::string, int64_t>())
      .def_property_readonly("arena_text", [](const Callable& self) { return self.model().memory.arena_bytes.str(); })
      .def_property_readonly("weight_bytes", [](const Callable& self) { return self.model().memory.weight_bytes; })
      .def_property_readonly("code_bytes", [](const Callable& self) { return self.model().memory.code_bytes; })
      .def_property_readonly("idle_arena_bytes", [](Callable& self) { return self.arenas().idle_bytes(); })
      .def(
          "trim", [](Callable& self) { self.arenas().trim(); }, "Frees the memory of idle arenas.")
      .def_property_readonly("tuning", tuning_rows)
      .def_property_readonly("compile_times", [](const Callable& self) {
        std::vector<std::pair<std::string, double>> times;
        for (const auto& t : self.model().compile_times) times.emplace_back(t.step, t.seconds);
        return times;
      });
  m.def(
      "load",
      [](const std::string& path, bool check_weights) {
        py::gil_scoped_release nogil;
        return std::make_unique<Callable>(load_model(path, check_weights));
      },
      py::arg("path"), py::arg("check_weights") = true);
  m.def("compile", compile_graph, py::arg("graph"), py::arg("target") = "", py::arg("threads") = 0,
        py::arg("progress") = py::none(), py::arg("precision") = "default", py::arg("tune") = false);
}

}  // namespace cuvil::python
