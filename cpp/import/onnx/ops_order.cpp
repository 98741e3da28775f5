// Operators that read or write by position, and those that put elements in order.
#include "import/onnx/call.hpp"

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

void compress(Call& c) {
  Value* x = c.input(0);
  Value* condition = c.input(1);
  bool flat = !c.attribute("axis");
  if (flat) x = c.b.reshape(x, {x->type.num_elements()});
  const auto axis = static_cast<int>(flat ? 0 : c.axis("axis", 0, x));
  c.set(c.b.gather(x, positions_of_true(c, condition), axis));
}

void non_zero(Call& c) {
  Value* x = c.input(0);
  const Shape shape = x->type.shape;
  Value* mask = x->type.dtype == DType::boolean ? x : c.b.binary(Fn::Ne, x, c.zero(x->type.dtype));
  Value* found = positions_of_true(c, c.b.reshape(mask, {x->type.num_elements()}));
  const Shape row = {Dim(1), found->type.shape[0]};
  std::vector<Value*> rows;
  Dim step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    Value* at = c.b.div(found, c.b.dim_value(step));
    rows.insert(rows.begin(), c.b.reshape(c.b.binary(Fn::Mod, at, c.b.dim_value(shape[axis])), row));
    step = step * shape[axis];
  }
  // A scalar counts as a vector of one element.
  if (rows.empty()) rows.push_back(c.b.reshape(found, row));
  c.set(c.b.concat(rows, 0));
}

// The distinct elements, or slices along an axis, in sorted or first-seen order.
void unique(Call& c) {
  Value* x = c.input(0);
  const bool flat = !c.attribute("axis");
  if (flat) x = c.b.reshape(x, {x->type.num_elements()});
  const int64_t rank = x->type.rank(), axis = flat ? 0 : c.axis("axis", 0, x);
  std::vector<int64_t> front;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != axis) front.push_back(i);
  }
  front.insert(front.begin(), axis);
  const Dim n = x->type.shape[static_cast<size_t>(axis)];
  Dim width = 1;
  for (int64_t i = 1; i < rank; ++i) width = width * x->type.shape[static_cast<size_t>(front[static_cast<size_t>(i)])];
  c.require(width.is_constant(), "slices must have a constant number of elements");
  Value* rows = c.b.reshape(c.b.transpose(x, front), {n, width});
  // Stable sorts by each column, the last first, put rows in lexicographic order.
  Value* order = c.b.iota({n}, 0, DType::i64);
  for (int64_t column = width.value(); column-- > 0;) {
    Value* keys = c.b.gather(c.b.reshape(c.b.slice_axis(rows, 1, column, column + 1), {n}), order, 0);
    order = c.b.gather(order, c.b.sort_indices(keys, 0, n, false), 0);
  }
  Value* sorted = c.b.gather(rows, order, 0);
  Value* before = c.b.gather(
      sorted, c.b.binary(Fn::Max, c.b.sub(c.b.iota({n}, 0, DType::i64), c.number(DType::i64, 1)), c.zero(DType::i64)),
      0);
  Value* differs = c.b.reduce(ReduceFn::Max, c.b.binary(Fn::Ne, sorted, before), {1}, false);
  Value* starts = c.b.binary(Fn::Or, differs, c.b.binary(Fn::Eq, c.b.iota({n}, 0, DType::i64), c.zero(DType::i64)));
  Value* group = c.b.node(Op::Scan, {c.b.cast(starts, DType::i64)},
                          {{"fn", ReduceFn::Sum}, {"axis", int64_t{0}}, {"exclusive", false}, {"reverse", false}});
  group = c.b.sub(group, c.number(DType::i64, 1));
  Value* first_of_group = positions_of_true(c, starts);
  const Dim count = first_of_group->type.shape[0];
  // Sorting is stable, so the first of a group is the first that was seen.
  Value* first = c.b.gather(order, first_of_group, 0);
  Value* inverse = c.b.scatter(c.b.broadcast(c.zero(DType::i64), {n}), order, group, 0);
  Value* counts = c.b.scatter(c.b.broadcast(c.zero(DType::i64), {count}), group,
                              c.b.broadcast(c.number(DType::i64, 1), {n}), 0, ReduceFn::Sum);
  if (!c.integer("sorted", 1)) {
    Value* seen = c.b.sort_indices(first, 0, count, false);
    Value* rank_of = c.b.scatter(c.b.broadcast(c.zero(DType::i64), {count}), seen, c.b.iota({count}, 0, DType::i64), 0);
    first = c.b.gather(first, seen, 0);
    counts = c.b.gather(counts, seen, 0);
    inverse = c.b.gather(rank_of, inverse, 0);
  }
  c.set(c.b.gather(x, first, static_cast<int>(axis)));
  c.set(first);
  c.set(inverse);
  c.set(counts);
}

}  // namespace

Value* positions_of_true(Call& c, Value* mask) {
  Value* count = c.b.reduce(ReduceFn::Sum, c.b.cast(mask, DType::i64), {0}, true);
  fold_if_constant(c, count);
  std::optional<std::vector<Dim>> known = c.sizes_of(count);
  const Dim n = known ? known->front() : c.run_time_sizes(count, 0).front();
  // Sorting is stable, so those that are true come first and in order.
  return c.b.sort_indices(c.b.cast(mask, DType::u8), 0, n, true);
}

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
      {"Unique", unique},
  };
}

}  // namespace cuvil::onnx
