// The ATen graph, handed over by Python in one call as plain lists, dicts and tuples.
#include <pybind11/stl.h>

#include "import/aten/call.hpp"
#include "import/aten/import.hpp"
#include "python/bindings.hpp"
#include "support/error.hpp"

namespace cuvil::python {

namespace {

aten::Argument argument_from(const py::handle& h) {
  using Kind = aten::Argument::Kind;
  aten::Argument a;
  if (h.is_none()) return a;
  if (py::isinstance<py::bool_>(h)) {
    a.kind = Kind::Bool;
    a.boolean = h.cast<bool>();
  } else if (py::isinstance<py::int_>(h)) {
    a.kind = Kind::Int;
    a.integer = h.cast<int64_t>();
  } else if (py::isinstance<py::float_>(h)) {
    a.kind = Kind::Float;
    a.real = h.cast<double>();
  } else if (py::isinstance<py::str>(h)) {
    a.kind = Kind::String;
    a.text = h.cast<std::string>();
  } else if (py::isinstance<py::list>(h)) {
    a.kind = Kind::List;
    for (py::handle item : h.cast<py::list>()) a.list.push_back(argument_from(item));
  } else if (py::isinstance<py::tuple>(h)) {
    // ("node" | "size" | "dtype", text)
    auto pair = h.cast<std::pair<std::string, std::string>>();
    a.kind = pair.first == "node" ? Kind::Node : pair.first == "size" ? Kind::Size : Kind::DType;
    a.text = pair.second;
  } else {
    throw CompileError("cannot import an argument of type " + py::str(py::type::of(h)).cast<std::string>());
  }
  return a;
}

aten::Meta meta_from(const py::handle& h) {
  aten::Meta meta;
  if (h.is_none()) return meta;
  auto pair = h.cast<std::pair<std::string, std::vector<std::string>>>();
  meta.is_tensor = true;
  meta.dtype = pair.first;
  meta.sizes = pair.second;
  return meta;
}

// Keeps the Python object that owns the memory; dropping it takes the GIL.
std::shared_ptr<const void> keep_alive(py::object object, const void* data) {
  auto* held = new py::object(std::move(object));
  return {data, [held](const void*) {
            if (!Py_IsInitialized()) return;
            py::gil_scoped_acquire gil;
            delete held;
          }};
}

aten::ExportedGraph graph_from(const py::dict& d) {
  aten::ExportedGraph g;
  for (py::handle h : d["symbols"].cast<py::list>()) {
    auto [name, min, max] = h.cast<std::tuple<std::string, int64_t, int64_t>>();
    g.symbols.push_back({name, min, max});
  }
  for (py::handle h : d["inputs"].cast<py::list>()) {
    auto t = h.cast<py::tuple>();
    g.inputs.push_back({t[0].cast<std::string>(), meta_from(t[1]), t[2].cast<std::string>()});
  }
  for (py::handle h : d["weights"].cast<py::list>()) {
    auto t = h.cast<py::tuple>();  // name, address, dtype, shape, owner
    const void* data = reinterpret_cast<const void*>(t[1].cast<uintptr_t>());
    Tensor tensor(aten::dtype_of(t[2].cast<std::string>()), t[3].cast<std::vector<int64_t>>(), data,
                  keep_alive(t[4], data));
    g.weights.push_back({t[0].cast<std::string>(), std::move(tensor)});
  }
  for (py::handle h : d["nodes"].cast<py::list>()) {
    auto t = h.cast<py::tuple>();  // name, target, source, args, kwargs, outputs, regions
    aten::Node node;
    node.name = t[0].cast<std::string>();
    node.target = t[1].cast<std::string>();
    node.source = t[2].cast<std::string>();
    for (py::handle a : t[3].cast<py::list>()) node.args.push_back(argument_from(a));
    for (auto [key, a] : t[4].cast<py::dict>()) node.kwargs.emplace(key.cast<std::string>(), argument_from(a));
    for (py::handle m : t[5].cast<py::list>()) node.outputs.push_back(meta_from(m));
    if (t.size() > 6) {
      for (py::handle r : t[6].cast<py::list>()) {
        node.regions.push_back(std::make_shared<const aten::ExportedGraph>(graph_from(r.cast<py::dict>())));
      }
    }
    g.nodes.push_back(std::move(node));
  }
  g.outputs = d["outputs"].cast<std::vector<std::pair<std::string, std::string>>>();
  return g;
}

Graph import_aten(const py::dict& d) {
  const aten::ExportedGraph g = graph_from(d);
  py::gil_scoped_release nogil;
  return aten::import_graph(g);
}

}  // namespace

void bind_import_aten(py::module_& m) {
  m.def("import_aten", import_aten, py::arg("graph"),
        "Imports an exported PyTorch graph (see cuvil/_torch.py for its form).");
  m.def("aten_targets", aten::supported_targets, "Names of the ATen operators import_aten takes.");
}

}  // namespace cuvil::python
