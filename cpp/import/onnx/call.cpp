#include "import/onnx/call.hpp"

#include <algorithm>
#include <limits>

#include "ir/evaluate.hpp"
#include "support/error.hpp"

namespace cuvil::onnx {

namespace {

constexpr int64_t kMostSizes = 4096;  // of an integer tensor whose elements may be sizes
constexpr int64_t kMostNumbers = 16;  // of any other tensor whose value a lowering may ask for

}  // namespace

std::string Call::describe() const {
  std::string name(node_.name.empty() ? (node_.outputs.empty() ? std::string_view("?") : node_.outputs[0])
                                      : node_.name);
  return name + " (" + std::string(node_.op_type) + ")";
}

void Call::fail(const std::string& why) const {
  throw CompileError("node '" + describe() + "': " + why);
}

void Call::fail_unknown(size_t i) const {
  const std::string why = "input " + std::to_string(i) + " must be known at compile time";
  around.need_value(input(i), "node '" + describe() + "': " + why);
  fail(why);
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

const AttributeProto* Call::attribute(std::string_view name, AttributeProto::Type type) const {
  const AttributeProto* a = attribute(name);
  // Files of the first IR versions do not say the type.
  if (a && a->type != type && a->type != AttributeProto::Undefined) {
    fail("attribute '" + std::string(name) + "' has another type than the operator's");
  }
  return a;
}

int64_t Call::integer(std::string_view name, int64_t fallback) const {
  const AttributeProto* a = attribute(name, AttributeProto::Int);
  return a ? a->i : fallback;
}

double Call::real(std::string_view name, double fallback) const {
  const AttributeProto* a = attribute(name, AttributeProto::Float);
  return a ? static_cast<double>(a->f) : fallback;
}

std::string Call::text(std::string_view name, std::string_view fallback) const {
  const AttributeProto* a = attribute(name, AttributeProto::String);
  return std::string(a ? a->s : fallback);
}

std::vector<int64_t> Call::ints(std::string_view name, std::vector<int64_t> fallback) const {
  const AttributeProto* a = attribute(name, AttributeProto::Ints);
  return a ? a->ints : fallback;
}

std::vector<double> Call::reals(std::string_view name) const {
  const AttributeProto* a = attribute(name, AttributeProto::Floats);
  return a ? std::vector<double>(a->floats.begin(), a->floats.end()) : std::vector<double>{};
}

Tensor Call::tensor(std::string_view name) const {
  const AttributeProto* a = attribute(name, AttributeProto::TensorType);
  if (!a || a->tensor.empty()) fail("attribute '" + std::string(name) + "' is missing");
  return read_tensor(a->tensor, source_).tensor;
}

GraphProto Call::graph(std::string_view name) const {
  const AttributeProto* a = attribute(name, AttributeProto::GraphType);
  if (!a || a->graph.empty()) fail("attribute '" + std::string(name) + "' is missing");
  return read_graph(a->graph);
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
  const Tensor* t = constant_of(v);
  if (!t || t->num_elements() > kMostSizes) return std::nullopt;
  std::vector<Dim> sizes;
  for (int64_t i = 0; i < t->num_elements(); ++i) sizes.push_back(t->get_int(i));
  return sizes;
}

std::vector<Dim> Call::run_time_sizes(Value* v, int64_t least) {
  const Type& type = v->type;
  const Dim count = type.num_elements();
  if (!is_integer(type.dtype) || type.rank() > 1 || !count.is_constant() || count.value() > kMostSizes) {
    fail("sizes must be a vector of integers of known length, not " + type.str());
  }
  std::vector<Dim> symbols;
  for (int64_t i = 0; i < count.value(); ++i) symbols.push_back(around.new_symbol(least));
  b.node(Op::Sizes, {b.cast(b.reshape(v, {count}), DType::i64)}, {{"dims", symbols}});
  return symbols;
}

std::vector<Dim> Call::sizes(size_t i) {
  if (auto sizes = sizes_of(input(i))) return *sizes;
  // From then on they are known: operators that compute with them need not be run twice.
  return known_[input(i)] = run_time_sizes(input(i), std::numeric_limits<int64_t>::min() / 4);
}

Shape Call::shape(size_t i) {
  auto known = sizes_of(input(i));
  Shape shape = known ? *known : run_time_sizes(input(i), 0);
  for (const Dim& d : shape) {
    if (d.is_constant() && d.value() < 0) fail("input " + std::to_string(i) + " asks for the negative size " + d.str());
  }
  return shape;
}

Dim Call::size(size_t i) {
  std::vector<Dim> list = sizes(i);
  if (list.size() != 1) fail("input " + std::to_string(i) + " must have one element");
  return list[0];
}

std::vector<int64_t> Call::constants(size_t i) const {
  std::vector<int64_t> list;
  auto known = sizes_of(input(i));
  if (!known) fail_unknown(i);
  for (const Dim& d : *known) {
    if (!d.is_constant()) fail("input " + std::to_string(i) + " must be constant, but is " + d.str());
    list.push_back(d.value());
  }
  return list;
}

int64_t Call::constant(size_t i) const {
  std::vector<int64_t> list = constants(i);
  if (list.size() != 1) fail("input " + std::to_string(i) + " must have one element");
  return list[0];
}

double Call::constant_real(size_t i) const {
  const Tensor* t = constant_of(input(i));
  if (!t) fail_unknown(i);
  if (t->num_elements() != 1) fail("input " + std::to_string(i) + " must be one number");
  return t->get_double(0);
}

Value* value_of_sizes(Builder& b, KnownSizes& known, std::vector<Dim> sizes, bool scalar, DType dtype) {
  Value* v;
  bool constant = true;
  for (const Dim& d : sizes) constant &= d.is_constant();
  if (constant) {
    Tensor t(DType::i64, scalar ? std::vector<int64_t>{} : std::vector<int64_t>{static_cast<int64_t>(sizes.size())});
    for (size_t i = 0; i < sizes.size(); ++i) t.set_int(static_cast<int64_t>(i), sizes[i].value());
    v = b.constant(std::move(t));
  } else if (scalar) {
    v = b.dim_value(sizes[0]);
  } else {
    std::vector<Value*> parts;
    for (const Dim& d : sizes) parts.push_back(b.reshape(b.dim_value(d), {1}));
    v = b.concat(parts, 0);
  }
  v = b.cast(v, dtype);
  known[v] = std::move(sizes);
  return v;
}

// Everything small that is constant becomes a constant as soon as it is made. So values that lowerings ask for are
// found in one step, however long the chain that computes them.
void fold_small_results(Call& c) {
  for (const Value* v : c.inputs()) {
    const Tensor* t = v ? constant_of(v) : nullptr;
    if (v && (!t || t->num_elements() > kMostSizes)) return;
  }
  for (Value*& v : c.results) {
    if (v) fold_if_constant(c, v);
  }
}

void fold_if_constant(Call& c, Value*& v) {
  if (constant_of(v) || !v->type.is_static()) return;
  int64_t most = is_integer(v->type.dtype) ? kMostSizes : kMostNumbers;
  if (v->type.num_elements().value() > most) return;
  if (std::optional<Tensor> t = evaluate_constant(v, kMostSizes)) v = c.b.constant(std::move(*t));
}

bool Call::constant_flag(size_t i) const {
  const Tensor* t = constant_of(input(i));
  if (!t) fail_unknown(i);
  if (t->num_elements() != 1) fail("input " + std::to_string(i) + " must be one truth value");
  return t->get_int(0) != 0;
}

namespace {

// Comparison of sizes whose outcome does not depend on the sizes of the inputs.
std::optional<bool> decide(std::string_view op, const Dim& x, const Dim& y) {
  if (op == "Equal") {
    if (x == y) return true;
    if (provably_lt(x, y) || provably_lt(y, x)) return false;
    return std::nullopt;
  }
  if (op == "Greater") return decide("Less", y, x);
  if (op == "GreaterOrEqual") return decide("LessOrEqual", y, x);
  bool strict = op == "Less";
  if (strict ? provably_lt(x, y) : provably_le(x, y)) return true;
  if (strict ? provably_le(y, x) : provably_lt(y, x)) return false;
  return std::nullopt;
}

using Sizes = std::vector<Dim>;

// Lowering has checked that they broadcast.
template <typename F>
void elementwise(const Sizes& x, const Sizes& y, F f) {
  size_t n = x.size() == 1 ? y.size() : x.size();
  for (size_t i = 0; i < n; ++i) f(x[x.size() == 1 ? 0 : i], y[y.size() == 1 ? 0 : i]);
}

// Shapes are often repaired by where(shape == -1, …): the comparison is constant.
void propagate_comparison(Call& c, std::string_view op, const Sizes& x, const Sizes& y) {
  std::vector<bool> known;
  bool all = true;
  elementwise(x, y, [&](const Dim& p, const Dim& q) {
    std::optional<bool> result = decide(op, p, q);
    all &= result.has_value();
    known.push_back(result.value_or(false));
  });
  Value*& result = c.results[0];
  if (!all || !result->type.is_static()) return;
  std::vector<int64_t> shape;
  for (const Dim& d : result->type.shape) shape.push_back(d.value());
  Tensor t(DType::boolean, shape);
  for (size_t i = 0; i < known.size(); ++i) t.set_int(static_cast<int64_t>(i), known[i]);
  result = c.b.constant(std::move(t));
}

std::optional<Sizes> selected_sizes(Call& c) {
  const Tensor* condition = constant_of(c.input(0));
  auto x = c.sizes_of(c.input(1)), y = c.sizes_of(c.input(2));
  if (!condition || !x || !y) return std::nullopt;
  size_t n =
      c.results[0]->type.rank() == 0 ? 1 : static_cast<size_t>(c.results[0]->type.shape[0].constant().value_or(0));
  Sizes out;
  auto count = static_cast<size_t>(condition->num_elements());
  for (size_t i = 0; i < n; ++i) {
    bool first = condition->get_int(static_cast<int64_t>(count == 1 ? 0 : i)) != 0;
    const Sizes& from = first ? *x : *y;
    out.push_back(from[from.size() == 1 ? 0 : i]);
  }
  return out;
}

std::optional<Sizes> sliced_sizes(const std::vector<Sizes>& in) {
  for (size_t i = 1; i < in.size(); ++i) {
    if (in[i].size() != 1 || !in[i][0].is_constant()) return std::nullopt;
  }
  int64_t n = static_cast<int64_t>(in[0].size()), step = in.size() > 4 ? in[4][0].value() : 1;
  if (step < 1) return std::nullopt;
  auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n); };
  Sizes out;
  for (int64_t i = clamp(in[1][0].value()), limit = clamp(in[2][0].value()); i < limit; i += std::min(step, n)) {
    out.push_back(in[0][static_cast<size_t>(i)]);
  }
  return out;
}

std::optional<Sizes> gathered_sizes(const Sizes& from, const Sizes& at) {
  auto n = static_cast<int64_t>(from.size());
  Sizes out;
  for (const Dim& d : at) {
    if (!d.is_constant() || d.value() < -n || d.value() >= n) return std::nullopt;
    out.push_back(from[static_cast<size_t>(d.value() < 0 ? d.value() + n : d.value())]);
  }
  return out;
}

// The elements of the node's result, computed from those of its inputs.
std::optional<Sizes> result_sizes(std::string_view op, const std::vector<Sizes>& in) {
  Sizes out;
  auto each = [&](auto f) {
    elementwise(in[0], in[1], [&](const Dim& x, const Dim& y) { out.push_back(f(x, y)); });
    return out;
  };
  auto positive = [](const Dim& d) { return provably_le(1, d); };
  auto not_negative = [](const Dim& d) { return provably_le(0, d); };
  if (op == "Identity" || op == "Cast" || op == "Squeeze" || op == "Unsqueeze" || op == "Reshape" || op == "Flatten")
    return in[0];
  if (op == "Concat") {
    for (const Sizes& part : in) out.insert(out.end(), part.begin(), part.end());
    return out;
  }
  if (op == "Slice" && in.size() >= 3) return sliced_sizes(in);
  if (op == "Neg") {
    for (const Dim& d : in[0]) out.push_back(-d);
    return out;
  }
  if (op == "ReduceProd" || op == "ReduceSum") {
    Dim r = op == "ReduceProd" ? 1 : 0;
    for (const Dim& d : in[0]) r = op == "ReduceProd" ? r * d : r + d;
    return Sizes{r};
  }
  if (in.size() != 2) return std::nullopt;
  if (op == "Gather") return gathered_sizes(in[0], in[1]);
  if (op == "Add") return each([](const Dim& x, const Dim& y) { return x + y; });
  if (op == "Sub") return each([](const Dim& x, const Dim& y) { return x - y; });
  if (op == "Mul") return each([](const Dim& x, const Dim& y) { return x * y; });
  if (op == "Min") return each([](const Dim& x, const Dim& y) { return minimum(x, y); });
  if (op == "Max") return each([](const Dim& x, const Dim& y) { return maximum(x, y); });
  // ONNX truncates, floor_div floors.
  if (!std::all_of(in[0].begin(), in[0].end(), not_negative)) return std::nullopt;
  if (!std::all_of(in[1].begin(), in[1].end(), positive)) return std::nullopt;
  if (op == "Mod") return each([](const Dim& x, const Dim& y) { return floor_mod(x, y); });
  if (op == "Div") return each([](const Dim& x, const Dim& y) { return floor_div(x, y); });
  return std::nullopt;
}

}  // namespace

// The node has been lowered to values already; where its elements are sizes, a simpler value takes the result's place.
void propagate_sizes(Call& c) {
  if (c.results.size() != 1 || !c.results[0] || c.results[0]->type.rank() > 1 || c.inputs().empty()) return;
  if (constant_of(c.results[0])) return;
  const std::string_view op = c.node().op_type;
  DType dtype = c.results[0]->type.dtype;
  // Narrow and unsigned types would wrap around.
  bool holds_sizes = dtype == DType::i64 || dtype == DType::i32;
  std::optional<Sizes> out;
  if (op == "Where" && holds_sizes) {
    out = selected_sizes(c);
  } else {
    std::vector<Sizes> in;
    for (const Value* v : c.inputs()) {
      auto sizes = v ? c.sizes_of(v) : std::nullopt;
      if (!sizes) return;
      in.push_back(std::move(*sizes));
    }
    bool compares = op == "Equal" || op == "Less" || op == "LessOrEqual" || op == "Greater" || op == "GreaterOrEqual";
    if (compares) return propagate_comparison(c, op, in.at(0), in.at(1));
    if (!holds_sizes) return;
    bool all_axes = c.integer("noop_with_empty_axes", 0) == 0;
    if ((op == "ReduceProd" || op == "ReduceSum") && !all_axes) return;
    if (op == "ReduceProd" || op == "ReduceSum") in.resize(1);
    out = result_sizes(op, in);
  }
  if (!out) return;
  bool scalar = c.results[0]->type.rank() == 0;
  const Dim count = scalar ? Dim(1) : c.results[0]->type.shape[0];
  if (count != Dim(static_cast<int64_t>(out->size()))) return;
  c.results[0] = c.from_sizes(std::move(*out), scalar, dtype);
}

}  // namespace cuvil::onnx
