#include "python/describe.hpp"

#include <algorithm>
#include <chrono>

namespace cuvil::python {

namespace {

// A size as Python sees it: an int, or the text of an expression.
py::object dim_object(const Dim& d) {
  if (auto constant = d.constant()) return py::int_(*constant);
  return py::str(d.str());
}

py::tuple shape_object(const Shape& shape) {
  py::tuple t(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) t[i] = dim_object(shape[i]);
  return t;
}

}  // namespace

py::list tensor_infos(const std::vector<TensorInfo>& infos) {
  py::list list;
  for (const TensorInfo& info : infos) {
    list.append(py::make_tuple(info.name, std::string(name_of(info.type.dtype)), shape_object(info.type.shape)));
  }
  return list;
}

py::object evaluate(const Dim& d, const std::map<std::string, int64_t>& symbols) {
  for (const Dim& s : d.symbols()) {
    if (!symbols.count(s.symbol_name())) return py::none();
  }
  return py::int_(d.evaluate([&](const std::string& name) { return symbols.at(name); }));
}

void append_kernel_rows(py::list& rows, const CompiledModel& model, const std::map<std::string, int64_t>& symbols) {
  for (const KernelInfo& k : model.kernels) {
    py::dict row;
    row["name"] = k.name;
    row["description"] = k.description;
    row["ops"] = k.ops;
    row["sources"] = k.sources;
    row["flops"] = evaluate(k.flops, symbols);
    row["bytes"] = evaluate(k.bytes, symbols);
    rows.append(row);
  }
}

py::object profiled(size_t capacity, const std::function<void(runtime::KernelLog*)>& call) {
  std::vector<runtime::KernelSample> samples(capacity);
  runtime::KernelLog log = {samples.data(), static_cast<int64_t>(samples.size()), 0};
  const auto begin = std::chrono::steady_clock::now();
  call(&log);
  const auto end = std::chrono::steady_clock::now();
  py::list rows;
  for (int64_t i = 0; i < std::min(log.count, log.capacity); ++i) {
    const runtime::KernelSample& s = samples[static_cast<size_t>(i)];
    rows.append(py::make_tuple(s.kernel, s.begin_ns, s.end_ns));
  }
  return py::make_tuple(rows, std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
}

}  // namespace cuvil::python
