// Operators that read or write by position.
#include <algorithm>
#include <limits>
#include <numeric>

#include "import/aten/call.hpp"
#include "support/error.hpp"

namespace cuvil::aten {

namespace {

using Fold = std::optional<ReduceFn>;

Value* as_vector(Call& c, Value* v) {
  return v->type.rank() == 0 ? c.b.reshape(v, {1}) : v;
}

Value* flattened(Call& c, Value* v) {
  return c.b.reshape(v, {v->type.num_elements()});
}

// What leaves every element as it is when folded into it.
Value* identity_of(Call& c, ReduceFn fn, DType t) {
  if (fn == ReduceFn::Sum || fn == ReduceFn::Prod) {
    bool one = fn == ReduceFn::Prod;
    return is_float(t) ? c.b.scalar(t, one) : c.b.scalar_int(t, one);
  }
  bool maximum = fn == ReduceFn::Max;
  if (is_float(t)) {
    double infinity = std::numeric_limits<double>::infinity();
    return c.b.scalar(t, maximum ? -infinity : infinity);
  }
  if (t == DType::boolean) return c.b.scalar_int(t, !maximum);
  const auto bits = static_cast<int>(size_of(t) * 8);
  if (is_unsigned_int(t)) return c.b.scalar_int(t, maximum ? 0 : bits == 64 ? -1 : (int64_t{1} << bits) - 1);
  int64_t high = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
  return c.b.scalar_int(t, maximum ? -high - 1 : high);
}

// On bool, sums and products are what PyTorch makes of them: or, and.
Fold fold_of(Fold fn, DType t) {
  if (!fn || t != DType::boolean) return fn;
  return *fn == ReduceFn::Sum ? ReduceFn::Max : *fn == ReduceFn::Prod ? ReduceFn::Min : *fn;
}

// Updates of the elements along an axis: by an index for each element, or one for each slice.
struct Target {
  Value* x;
  Value* index;
  int axis;
  bool by_element;

  Value* write(Call& c, Value* base, Value* updates, Fold fn) const {
    fn = fold_of(fn, base->type.dtype);
    return by_element ? c.b.scatter_elements(base, index, updates, axis, fn)
                      : c.b.scatter(base, index, updates, axis, fn);
  }
};

Target elements_of(Call& c) {
  Value* x = as_vector(c, c.tensor(0));
  return {x, as_vector(c, c.tensor(2, "index")), c.axis(1, "dim", x), true};
}

Target slices_of(Call& c) {
  Value* x = as_vector(c, c.tensor(0));
  return {x, as_vector(c, c.tensor(2, "index")), c.axis(1, "dim", x), false};
}

// Updates may be larger than the indices; the rest of them is not used.
Value* updates_of(Call& c, const Target& t, size_t position, const char* name) {
  Value* updates = c.b.cast(as_vector(c, c.tensor(position, name)), t.x->type.dtype);
  if (!t.by_element) return updates;
  std::vector<Dim> starts(updates->type.shape.size(), Dim(0));
  std::vector<int64_t> steps(starts.size(), 1);
  return c.b.slice(updates, starts, t.index->type.shape, steps);
}

Value* repeated(Call& c, const Target& t, size_t position, const char* name) {
  Shape shape = t.index->type.shape;
  if (!t.by_element) {
    shape = t.x->type.shape;
    shape[static_cast<size_t>(t.axis)] = t.index->type.shape[0];
  }
  return c.b.broadcast(c.b.reshape(c.operand(position, t.x->type.dtype, name), {}), shape);
}

void finish(Call& c, Value* y) {
  c.set(c.b.reshape(y, c.tensor(0)->type.shape));
}

bool nothing_to_write(Call& c, const Target& t) {
  if (t.index->type.num_elements() != Dim(0)) return false;
  c.set(c.tensor(0));
  return true;
}

Fold simple_fold(Call& c, size_t position) {
  std::string name = c.text(position, "reduce", "");
  if (name == "add") return ReduceFn::Sum;
  if (name == "multiply") return ReduceFn::Prod;
  c.fail("reduce '" + name + "' is not supported");
}

template <bool folds>
void scatter_source(Call& c) {
  Target t = elements_of(c);
  if (nothing_to_write(c, t)) return;
  finish(c, t.write(c, t.x, updates_of(c, t, 3, "src"), folds ? simple_fold(c, 4) : Fold()));
}
template <bool folds>
void scatter_value(Call& c) {
  Target t = elements_of(c);
  if (nothing_to_write(c, t)) return;
  finish(c, t.write(c, t.x, repeated(c, t, 3, "value"), folds ? simple_fold(c, 4) : Fold()));
}
void scatter_add(Call& c) {
  Target t = elements_of(c);
  if (nothing_to_write(c, t)) return;
  finish(c, t.write(c, t.x, updates_of(c, t, 3, "src"), ReduceFn::Sum));
}

void write_reduced(Call& c, const Target& t, Value* updates, const std::string& name, bool include_self) {
  const DType dtype = t.x->type.dtype;
  const bool mean = name == "mean";
  ReduceFn fn = name == "amax" ? ReduceFn::Max : name == "amin" ? ReduceFn::Min : ReduceFn::Sum;
  if (name == "prod") fn = ReduceFn::Prod;
  if (fn == ReduceFn::Sum && name != "sum" && !mean) c.fail("reduce '" + name + "' is not supported");
  Value* base = t.x;
  if (!include_self) {
    ReduceFn folded = *fold_of(fn, dtype);
    base = t.write(c, base, c.b.broadcast(identity_of(c, folded, dtype), updates->type.shape), std::nullopt);
  }
  Value* y = t.write(c, base, updates, fn);
  if (mean) {
    Value* one = identity_of(c, ReduceFn::Prod, dtype);
    Value* start = c.b.broadcast(include_self ? one : identity_of(c, ReduceFn::Sum, dtype), t.x->type.shape);
    Value* count = t.write(c, start, c.b.broadcast(one, updates->type.shape), ReduceFn::Sum);
    count = c.b.binary(Fn::Max, count, one);
    if (is_float(dtype)) {
      y = c.b.div(y, count);
    } else {
      // Rounds towards negative infinity.
      y = c.b.div(c.b.sub(y, c.b.binary(Fn::Mod, y, count)), count);
    }
  }
  finish(c, y);
}

void scatter_reduce(Call& c) {
  Target t = elements_of(c);
  if (nothing_to_write(c, t)) return;
  write_reduced(c, t, updates_of(c, t, 3, "src"), c.text(4, "reduce", ""), c.boolean(5, "include_self", true));
}
void index_reduce(Call& c) {
  Target t = slices_of(c);
  if (nothing_to_write(c, t)) return;
  write_reduced(c, t, updates_of(c, t, 3, "source"), c.text(4, "reduce", ""), c.boolean(5, "include_self", true));
}

void index_add(Call& c) {
  Target t = slices_of(c);
  if (nothing_to_write(c, t)) return;
  Value* updates = updates_of(c, t, 3, "source");
  if (c.has(4, "alpha")) {
    const DType dtype = updates->type.dtype;
    Value* alpha = c.operand(4, dtype, "alpha");
    updates = dtype == DType::boolean ? c.b.binary(Fn::And, updates, alpha) : c.b.mul(updates, alpha);
  }
  finish(c, t.write(c, t.x, updates, ReduceFn::Sum));
}
void index_copy(Call& c) {
  Target t = slices_of(c);
  if (nothing_to_write(c, t)) return;
  finish(c, t.write(c, t.x, updates_of(c, t, 3, "source"), std::nullopt));
}
void index_fill(Call& c) {
  Target t = slices_of(c);
  if (nothing_to_write(c, t)) return;
  finish(c, t.write(c, t.x, repeated(c, t, 3, "value"), std::nullopt));
}

// x[i0, i1, …]: the indexed axes side by side. Indices with a slice between them put their own axes first.
struct Indexing {
  Value* x;
  size_t first = 0;
  std::vector<Value*> parts;
  std::vector<int64_t> back;  // the permutation that undoes the change of axes; empty: none
};

Indexing indexing_of(Call& c) {
  Indexing result{c.tensor(0), 0, {}, {}};
  const Argument* list = c.argument(1);
  std::vector<int64_t> axes;
  for (size_t i = 0; list && i < list->list.size(); ++i) {
    if (list->list[i].kind == Argument::Kind::None) continue;
    axes.push_back(static_cast<int64_t>(i));
    result.parts.push_back(c.list_tensor(1, i));
    if (result.parts.back()->type.dtype == DType::boolean)
      c.fail("a boolean index gives a size that depends on data, which is not supported yet");
  }
  if (axes.empty()) c.fail("no index");
  result.first = static_cast<size_t>(axes[0]);
  if (axes.back() - axes[0] + 1 == static_cast<int64_t>(axes.size())) return result;
  std::vector<int64_t> perm = axes;
  for (int64_t i = 0; i < result.x->type.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) perm.push_back(i);
  }
  result.first = 0;
  result.x = c.b.transpose(result.x, perm);
  result.back.resize(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result.back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}

void index(Call& c) {
  Indexing at = indexing_of(c);
  c.set(c.b.gather_joint(at.x, at.first, at.parts));
}

// x[mask] = values, for values that do not differ from one place to the other: where(mask, values, x).
bool put_by_mask(Call& c) {
  const Argument* list = c.argument(1);
  Value* x = c.tensor(0);
  Value* mask = nullptr;
  size_t axis = 0;
  for (size_t i = 0; list && i < list->list.size(); ++i) {
    if (list->list[i].kind == Argument::Kind::None) continue;
    if (mask) return false;
    mask = c.list_tensor(1, i);
    axis = i;
  }
  if (!mask || mask->type.dtype != DType::boolean) return false;
  const size_t rank = x->type.shape.size(), covered = mask->type.shape.size();
  Value* values = c.operand(2, x->type.dtype, "values");
  // Axes of x[mask]: those before the mask's, one for the mask's, those after.
  const size_t after = rank - axis - covered;
  Shape shape = values->type.shape;
  if (shape.size() > after) {
    if (shape[shape.size() - after - 1] != Dim(1))
      c.fail("values for each place of a boolean index are not supported; write torch.where or masked_scatter");
    Shape wide(shape.begin(), shape.end() - static_cast<long>(after) - 1);
    wide.resize(wide.size() + covered, Dim(1));
    wide.insert(wide.end(), shape.end() - static_cast<long>(after), shape.end());
    values = c.b.reshape(values, wide);
  }
  Shape places(axis, Dim(1));
  places.insert(places.end(), mask->type.shape.begin(), mask->type.shape.end());
  places.resize(rank, Dim(1));
  mask = c.b.reshape(mask, places);
  values = c.b.broadcast(values, x->type.shape);
  if (c.boolean(3, "accumulate")) {
    values = x->type.dtype == DType::boolean ? c.b.binary(Fn::Or, x, values) : c.b.add(x, values);
  }
  c.set(c.b.select(mask, values, x));
  return true;
}

void index_put(Call& c) {
  if (put_by_mask(c)) return;
  Indexing at = indexing_of(c);
  const DType dtype = at.x->type.dtype;
  // The values broadcast to what the index reads.
  Shape places, shape(at.x->type.shape.begin(), at.x->type.shape.begin() + static_cast<long>(at.first));
  for (const Value* part : at.parts) places = broadcast_shapes(places, part->type.shape);
  shape.insert(shape.end(), places.begin(), places.end());
  shape.insert(shape.end(), at.x->type.shape.begin() + static_cast<long>(at.first + at.parts.size()),
               at.x->type.shape.end());
  Value* values = c.operand(2, dtype, "values");
  while (values->type.shape.size() > shape.size() && values->type.shape[0] == Dim(1)) values = c.b.squeeze(values, {0});
  values = c.b.broadcast(values, shape);
  Fold fn = c.boolean(3, "accumulate") ? fold_of(ReduceFn::Sum, dtype) : Fold();
  Value* y = c.b.scatter_joint(at.x, at.first, at.parts, values, fn);
  c.set(at.back.empty() ? y : c.b.transpose(y, at.back));
}

void take(Call& c) {
  c.set(c.b.gather(flattened(c, c.tensor(0)), c.tensor(1, "index"), 0));
}
void put(Call& c) {
  Value* x = c.tensor(0);
  Value* index = flattened(c, c.tensor(1, "index"));
  Value* source = flattened(c, c.operand(2, x->type.dtype, "source"));
  Fold fn = c.boolean(3, "accumulate") ? fold_of(ReduceFn::Sum, x->type.dtype) : Fold();
  finish(c, c.b.scatter(flattened(c, x), index, source, 0, fn));
}

// The n-th place where the mask is true takes the n-th element of the source.
void masked_scatter(Call& c) {
  const Shape shape = c.result_shape();
  Value* x = c.b.broadcast(c.tensor(0), shape);
  Value* mask = flattened(c, c.b.broadcast(c.operand(1, DType::boolean, "mask"), shape));
  Value* source = flattened(c, c.tensor(2, "source"));
  if (mask->type.num_elements() == Dim(0) || source->type.num_elements() == Dim(0)) {
    c.set(x);
    return;
  }
  Value* number = c.b.node(Op::Scan, {c.b.cast(mask, DType::i64)},
                           {{"fn", ReduceFn::Sum}, {"axis", int64_t{0}}, {"exclusive", true}, {"reverse", false}});
  Value* from = c.b.select(mask, number, c.b.scalar_int(DType::i64, 0));
  c.set(c.b.reshape(c.b.select(mask, c.b.gather(source, from, 0), flattened(c, x)), shape));
}

// The elements from `start` on, `step` apart, replaced by the source's.
Value* replaced(Call& c, Value* x, Value* source, int axis, const Dim& start, int64_t step) {
  const auto at = static_cast<size_t>(axis);
  const Dim count = source->type.shape[at];
  if (count == Dim(0)) return x;
  if (step == 1) {
    std::vector<Value*> parts;
    if (start != Dim(0)) parts.push_back(c.b.slice_axis(x, axis, 0, start));
    parts.push_back(source);
    if (start + count != x->type.shape[at]) parts.push_back(c.b.slice_axis(x, axis, start + count, x->type.shape[at]));
    return c.b.concat(parts, axis);
  }
  Value* position = c.b.mul(c.b.iota({count}, 0, DType::i64), c.b.scalar_int(DType::i64, step));
  return c.b.scatter(x, c.b.add(position, c.b.dim_value(start)), source, axis);
}

void slice_scatter(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(2, "dim", x, 0);
  const Dim& size = x->type.shape[static_cast<size_t>(axis)];
  Dim start = c.optional_size(3, "start").value_or(Dim(0));
  if (auto v = start.constant(); v && *v < 0) start = size + start;
  start = minimum(maximum(start, 0), size);
  c.set(replaced(c, x, c.operand(1, x->type.dtype), axis, start, c.integer(5, "step", 1)));
}
void select_scatter(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(2, "dim", x);
  Dim at = c.size(3, "index");
  if (auto v = at.constant(); v && *v < 0) at = x->type.shape[static_cast<size_t>(axis)] + at;
  c.set(replaced(c, x, c.b.unsqueeze(c.operand(1, x->type.dtype), {axis}), axis, at, 1));
}

void diagonal_scatter(Call& c) {
  Value* x = c.tensor(0);
  Value* source = c.operand(1, x->type.dtype);
  int64_t offset = c.integer(2, "offset", 0);
  std::vector<int64_t> axes{c.axis(3, "dim1", x, 0), c.axis(4, "dim2", x, 1)}, perm = axes;
  for (int64_t i = 0; i < x->type.rank(); ++i) {
    if (i != axes[0] && i != axes[1]) perm.push_back(i);
  }
  std::vector<int64_t> back(perm.size()), last_first(source->type.shape.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  std::iota(last_first.begin(), last_first.end(), -1);
  Value* row = c.b.iota({source->type.shape.back()}, 0, DType::i64);
  auto shifted = [&](int64_t by) { return by > 0 ? c.b.add(row, c.b.scalar_int(DType::i64, by)) : row; };
  Value* y = c.b.scatter_joint(c.b.transpose(x, perm), 0, {shifted(-offset), shifted(offset)},
                               c.b.transpose(source, last_first));
  c.set(c.b.transpose(y, back));
}

}  // namespace

std::vector<Row> scatter_rows() {
  return {
      {"aten.scatter.src", scatter_source<false>},
      {"aten.scatter.reduce", scatter_source<true>},
      {"aten.scatter.value", scatter_value<false>},
      {"aten.scatter.value_reduce", scatter_value<true>},
      {"aten.scatter_add.default", scatter_add},
      {"aten.scatter_reduce.two", scatter_reduce},
      {"aten.index_reduce.default", index_reduce},
      {"aten.index_add.default", index_add},
      {"aten.index_copy.default", index_copy},
      {"aten.index_fill.int_Scalar", index_fill},
      {"aten.index_fill.int_Tensor", index_fill},
      {"aten.index.Tensor", index},
      {"aten.index_put.default", index_put},
      {"aten.take.default", take},
      {"aten.put.default", put},
      {"aten.masked_scatter.default", masked_scatter},
      {"aten.slice_scatter.default", slice_scatter},
      {"aten.select_scatter.default", select_scatter},
      {"aten.diagonal_scatter.default", diagonal_scatter},
  };
}

}  // namespace cuvil::aten
