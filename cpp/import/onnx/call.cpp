#include "import/onnx/call.hpp"

#include <algorithm>

#include "ir/evaluate.hpp"
#include "support/error.hpp"

namespace cuvil::onnx {

std::string Call::describe() const {
  std::string name(node_.name.empty() ? (node_.outputs.empty() ? std::string_view("?") : node_.outputs[0])
                                      : node_.name);
  return name + " (" + std::string(node_.op_type) + ")";
}

void Call::fail(const std::string& why) const {
  throw CompileError("node '" + describe() + "': " + why);
}

Value* Call::input(size_t i) const {
  Value* v = optional_input(i);
  if (!v) fail("input " + std::to_string(i) + " is missing");
  return v;
}

const AttributeProto* Call::attribute(std::string_view name) const {
  for (const AttributeProto& a : node_.attributes) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

int64_t Call::integer(std::string_view name, int64_t fallback) const {
  const AttributeProto* a = attribute(name);
  return a ? a->i : fallback;
}

double Call::real(std::string_view name, double fallback) const {
  const AttributeProto* a = attribute(name);
  return a ? static_cast<double>(a->f) : fallback;
}

std::string Call::text(std::string_view name, std::string_view fallback) const {
  const AttributeProto* a = attribute(name);
  return std::string(a ? a->s : fallback);
}

std::vector<int64_t> Call::ints(std::string_view name, std::vector<int64_t> fallback) const {
  const AttributeProto* a = attribute(name);
  return a ? a->ints : fallback;
}

Tensor Call::tensor(std::string_view name) const {
  const AttributeProto* a = attribute(name);
  if (!a || a->tensor.empty()) fail("attribute '" + std::string(name) + "' is missing");
  return read_tensor(a->tensor, source_).tensor;
}

int64_t Call::wrap_axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank)
    fail("axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank));
  return axis < 0 ? axis + rank : axis;
}

int64_t Call::axis(std::string_view name, int64_t fallback, const Value* of) const {
  return wrap_axis(integer(name, fallback), of->type.rank());
}

std::optional<std::vector<Dim>> Call::sizes_of(const Value* v) const {
  if (auto it = known_.find(v); it != known_.end()) return it->second;
  if (!is_integer(v->type.dtype) || v->type.rank() > 1) return std::nullopt;
  std::optional<Tensor> t = evaluate_constant(v, 4096);
  if (!t || t->num_elements() > 4096) return std::nullopt;
  std::vector<Dim> sizes;
  for (int64_t i = 0; i < t->num_elements(); ++i) sizes.push_back(t->get_int(i));
  return sizes;
}

std::vector<Dim> Call::sizes(size_t i) const {
  auto sizes = sizes_of(input(i));
  if (!sizes)
    fail("input " + std::to_string(i) + " must be known at compile time, up to the sizes of the model's inputs");
  return *sizes;
}

std::vector<int64_t> Call::constants(size_t i) const {
  std::vector<int64_t> list;
  for (const Dim& d : sizes(i)) {
    if (!d.is_constant()) fail("input " + std::to_string(i) + " must be constant, but is " + d.str());
    list.push_back(d.value());
  }
  return list;
}

double Call::constant_real(size_t i) const {
  std::optional<Tensor> t = evaluate_constant(input(i), 16);
  if (!t || t->num_elements() != 1) fail("input " + std::to_string(i) + " must be a constant number");
  return t->get_double(0);
}

Value* Call::from_sizes(std::vector<Dim> sizes, bool scalar) {
  Value* v;
  bool constant = true;
  for (const Dim& d : sizes) constant &= d.is_constant();
  if (constant) {
    Tensor t(DType::i64, scalar ? std::vector<int64_t>{} : std::vector<int64_t>{static_cast<int64_t>(sizes.size())});
    for (size_t i = 0; i < sizes.size(); ++i) t.set_int(static_cast<int64_t>(i), sizes[i].value());
    v = b.constant(std::move(t));
  } else if (scalar) {
    v = b.dim_value(sizes.at(0));
  } else {
    std::vector<Value*> parts;
    for (const Dim& d : sizes) parts.push_back(b.reshape(b.dim_value(d), {1}));
    v = b.concat(parts, 0);
  }
  known_[v] = std::move(sizes);
  return v;
}

// The node has been lowered to values already; where its elements are sizes, a simpler value takes the result's place.
void propagate_sizes(Call& c) {
  if (c.results.size() != 1 || !c.results[0] || !is_integer(c.results[0]->type.dtype) || c.results[0]->type.rank() > 1)
    return;
  const std::string op(c.node().op_type);
  if (constant_of(c.results[0])) return;
  std::vector<std::vector<Dim>> in;
  for (const Value* v : c.inputs()) {
    auto sizes = v ? c.sizes_of(v) : std::nullopt;
    if (!sizes) return;
    in.push_back(*sizes);
  }
  bool scalar = c.results[0]->type.rank() == 0;
  std::vector<Dim> out;
  auto elementwise = [&](auto f) {
    size_t n = std::max(in[0].size(), in[1].size());
    for (size_t i = 0; i < n; ++i) out.push_back(f(in[0][in[0].size() == 1 ? 0 : i], in[1][in[1].size() == 1 ? 0 : i]));
  };
  auto positive = [](const Dim& d) { return provably_le(1, d); };
  if (op == "Identity" || op == "Cast" || op == "Squeeze" || op == "Unsqueeze" || op == "Reshape" || op == "Flatten") {
    out = in.at(0);
  } else if (op == "Concat") {
    for (const auto& part : in) out.insert(out.end(), part.begin(), part.end());
  } else if (op == "Add" && in.size() == 2) {
    elementwise([](const Dim& x, const Dim& y) { return x + y; });
  } else if (op == "Sub" && in.size() == 2) {
    elementwise([](const Dim& x, const Dim& y) { return x - y; });
  } else if (op == "Mul" && in.size() == 2) {
    elementwise([](const Dim& x, const Dim& y) { return x * y; });
  } else if (op == "Div" && in.size() == 2) {
    for (const Dim& d : in[1]) {
      if (!positive(d)) return;
    }
    for (const Dim& d : in[0]) {
      if (!provably_le(0, d)) return;  // ONNX truncates, floor_div floors
    }
    elementwise([](const Dim& x, const Dim& y) { return floor_div(x, y); });
  } else if (op == "Mod" && in.size() == 2) {
    for (const Dim& d : in[1]) {
      if (!positive(d)) return;
    }
    elementwise([](const Dim& x, const Dim& y) { return floor_mod(x, y); });
  } else if ((op == "Min" || op == "Max") && in.size() == 2) {
    if (op == "Min")
      elementwise([](const Dim& x, const Dim& y) { return minimum(x, y); });
    else
      elementwise([](const Dim& x, const Dim& y) { return maximum(x, y); });
  } else if (op == "Gather" && in.size() == 2) {
    for (const Dim& at : in[1]) {
      if (!at.is_constant()) return;
      int64_t i = at.value() < 0 ? at.value() + static_cast<int64_t>(in[0].size()) : at.value();
      if (i < 0 || i >= static_cast<int64_t>(in[0].size())) return;
      out.push_back(in[0][static_cast<size_t>(i)]);
    }
  } else if (op == "Slice" && in.size() >= 3) {
    int64_t n = static_cast<int64_t>(in[0].size()), step = in.size() > 4 ? in[4].at(0).value() : 1;
    if (in[1].size() != 1 || !in[1][0].is_constant() || !in[2][0].is_constant() || step < 1) return;
    auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n); };
    for (int64_t i = clamp(in[1][0].value()); i < clamp(in[2][0].value()); i += step)
      out.push_back(in[0][static_cast<size_t>(i)]);
  } else {
    return;
  }
  if (scalar != (c.results[0]->type.rank() == 0) || (scalar && out.size() != 1)) return;
  c.results[0] = c.b.cast(c.from_sizes(std::move(out), scalar), c.results[0]->type.dtype);
}

}  // namespace cuvil::onnx
