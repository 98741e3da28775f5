// Operators that read or write by position, and those that put elements in order.
#include "import/onnx/call.hpp"
#include "ir/evaluate.hpp"

namespace cuvil::onnx {

namespace {

std::optional<ReduceFn> reduction_of(Call& c) {
  std::string name = c.text("reduction", "none");
  if (name == "none") return std::nullopt;
  if (name == "add") return ReduceFn::Sum;
  if (name == "mul") return ReduceFn::Prod;
  if (name == "max") return ReduceFn::Max;
  if (name == "min") return ReduceFn::Min;
  c.fail("reduction '" + name + "' is not supported");
}

void scatter_elements(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.scatter_elements(x, c.input(1), c.input(2), static_cast<int>(c.axis("axis", 0, x)), reduction_of(c)));
}

// The last axis of the indices holds one position for each of `depth` axes.
std::vector<Value*> positions(Call& c, Value* index, int64_t most) {
  int64_t last = index->type.rank() - 1;
  c.require(last >= 0 && index->type.shape.back().is_constant(), "the last axis of the indices must be constant");
  int64_t depth = index->type.shape.back().value();
  c.require(depth >= 1 && depth <= most, "the indices have more positions than the data has axes");
  index = c.b.cast(index, DType::i64);
  std::vector<Value*> parts;
  for (int64_t i = 0; i < depth; ++i)
    parts.push_back(c.b.squeeze(c.b.slice_axis(index, static_cast<int>(last), i, i + 1), {last}));
  return parts;
}

void scatter_nd(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.scatter_joint(x, 0, positions(c, c.input(1), x->type.rank()), c.input(2), reduction_of(c)));
}

void gather_nd(Call& c) {
  Value* x = c.input(0);
  Value* index = c.input(1);
  int64_t batch = c.integer("batch_dims", 0);
  c.require(batch >= 0 && batch < index->type.rank() && batch < x->type.rank(), "batch_dims is out of range");
  std::vector<Value*> at = positions(c, index, x->type.rank() - batch), parts;
  // A batch axis is walked together with the indices' own.
  const Shape shape(index->type.shape.begin(), index->type.shape.end() - 1);
  for (int64_t i = 0; i < batch; ++i) parts.push_back(c.b.iota(shape, static_cast<int>(i), DType::i64));
  parts.insert(parts.end(), at.begin(), at.end());
  c.set(c.b.gather_joint(x, 0, parts));
}

// A run of updates goes where each batch row says, round the end if circular.
void tensor_scatter(Call& c) {
  Value* x = c.input(0);
  Value* updates = c.input(1);
  std::string mode = c.text("mode", "linear");
  c.require(mode == "linear" || mode == "circular", "mode must be linear or circular");
  int64_t axis = c.axis("axis", -2, x);
  c.require(axis >= 1 && updates->type.rank() == x->type.rank(),
            "needs an axis after the batch, and updates of the same rank");
  const auto at_axis = static_cast<size_t>(axis);
  Shape along(x->type.shape.size(), Dim(1));
  along[at_axis] = updates->type.shape[at_axis];
  Value* at = c.b.iota(along, static_cast<int>(axis), DType::i64);
  if (Value* first = c.optional_input(2)) {
    Shape rows(x->type.shape.size(), Dim(1));
    rows[0] = first->type.num_elements();
    at = c.b.add(c.b.reshape(c.b.cast(first, DType::i64), rows), at);
  }
  if (mode == "circular") at = c.b.binary(Fn::Mod, at, c.b.dim_value(x->type.shape[at_axis]));
  at = c.b.broadcast(at, updates->type.shape);
  c.set(c.b.scatter_elements(x, at, updates, static_cast<int>(axis)));
}

void top_k(Call& c) {
  Value* x = c.input(0);
  const Dim count = c.opset() < 10 ? Dim(c.integer("k", -1)) : c.size(1);
  c.require(!count.is_constant() || count.value() >= 0, "k is missing or negative");
  Builder::Sorted top = c.b.sort(x, static_cast<int>(c.axis("axis", -1, x)), count, c.integer("largest", 1) != 0);
  c.set(top.values);
  c.set(top.indices);
}

constexpr int64_t kMostElements = int64_t{1} << 24;  // of a constant whose elements decide a size

Tensor constant_that_decides_size(Call& c, size_t i) {
  auto t = evaluate_constant(c.input(i), kMostElements);
  if (!t)
    c.fail("input " + std::to_string(i) + " must be known at compile time, because the result's size depends on it");
  return *t;
}

Value* positions_of(Call& c, const std::vector<int64_t>& list) {
  Tensor t(DType::i64, {static_cast<int64_t>(list.size())});
  for (size_t i = 0; i < list.size(); ++i) t.set_int(static_cast<int64_t>(i), list[i]);
  return c.b.constant(std::move(t));
}

void compress(Call& c) {
  Value* x = c.input(0);
  Tensor condition = constant_that_decides_size(c, 1);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < condition.num_elements(); ++i) {
    if (condition.get_int(i)) kept.push_back(i);
  }
  bool flat = !c.attribute("axis");
  if (flat) x = c.b.reshape(x, {x->type.num_elements()});
  c.set(c.b.gather(x, positions_of(c, kept), static_cast<int>(flat ? 0 : c.axis("axis", 0, x))));
}

void non_zero(Call& c) {
  Tensor x = constant_that_decides_size(c, 0);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    if (x.get_double(i) != 0) found.push_back(i);
  }
  const auto n = static_cast<int64_t>(found.size());
  Tensor out(DType::i64, {x.rank(), n});
  int64_t step = 1;
  for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
    const int64_t size = x.shape()[static_cast<size_t>(axis)];
    for (int64_t i = 0; i < n; ++i) out.set_int(axis * n + i, found[static_cast<size_t>(i)] / step % size);
    step *= size;
  }
  c.set(c.b.constant(std::move(out)));
}

}  // namespace

std::vector<Row> order_rows() {
  return {
      {"Compress", compress},
      {"GatherND", gather_nd},
      {"NonZero", non_zero},
      {"Scatter", scatter_elements},
      {"ScatterElements", scatter_elements},
      {"ScatterND", scatter_nd},
      {"TensorScatter", tensor_scatter},
      {"TopK", top_k},
  };
}

}  // namespace cuvil::onnx
