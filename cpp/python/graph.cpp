// Graph as Python sees it: an opaque handle with a text form.
#include "ir/graph.hpp"

#include <pybind11/stl.h>

#include <sstream>

#include "driver/debug.hpp"
#include "ir/text.hpp"
#include "python/bindings.hpp"
#include "tools/opt.hpp"

namespace cuvil::python {

void bind_graph(py::module_& m) {
  py::class_<Graph>(m, "Graph")
      .def(
          "text", [](const Graph& g, bool sources) { return print(g, PrintOptions{.sources = sources}); },
          py::arg("sources") = false)
      .def(
          "write_reproducer", [](const Graph& g) { return write_reproducer(g); },
          "Writes the graph without its weights to a temporary file, as an InternalError does; its path.")
      .def_property_readonly("input_names",
                             [](const Graph& g) {
                               std::vector<std::string> names;
                               for (const auto& v : g.inputs()) names.push_back(v->name);
                               return names;
                             })
      .def_property_readonly(
          "input_shapes",
          [](const Graph& g) {
            std::vector<std::vector<std::string>> shapes;
            for (const auto& v : g.inputs()) {
              shapes.emplace_back();
              for (const Dim& d : v->type.shape) shapes.back().push_back(d.str());
            }
            return shapes;
          },
          "Sizes as text.")
      .def_property_readonly("output_names", [](const Graph& g) {
        std::vector<std::string> names;
        for (const auto& o : g.outputs()) names.push_back(o.name);
        return names;
      });
  m.def(
      "opt",
      [](const std::vector<std::string>& arguments, const std::string& input) {
        std::istringstream in(input);
        std::ostringstream out, err;
        int status = run_opt(arguments, in, out, err);
        return std::make_tuple(status, out.str(), err.str());
      },
      py::arg("arguments"), py::arg("input") = "", "cuvil-opt: (exit status, output, errors).");
  m.def(
      "parse_graph", [](const std::string& text) { return parse_graph(text); }, py::arg("text"),
      "Reads a graph's text form.");
}

}  // namespace cuvil::python
