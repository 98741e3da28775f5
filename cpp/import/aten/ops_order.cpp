// Operators that put elements in order, and what follows from it.
#include <numeric>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

// NaN counts as the largest number, and equal elements keep their order: what PyTorch promises of a stable sort holds
// for every sort here.
void sort_along(Call& c, int axis, const Dim& count, bool descending) {
  Value* x = c.tensor(0);
  if (x->type.rank() == 0) {
    c.set(count == Dim(0) ? c.b.slice_axis(c.b.reshape(x, {1}), 0, 0, 0) : x);
    c.set(c.b.scalar_int(DType::i64, 0));
    return;
  }
  Builder::Sorted sorted = c.b.sort(x, axis, count, descending);
  c.set(sorted.values);
  c.set(sorted.indices);
}

Dim size_along(const Value* x, int axis) {
  return x->type.rank() == 0 ? Dim(1) : x->type.shape[static_cast<size_t>(axis)];
}

// The position of the arguments differs: sort.stable has `stable` first.
template <size_t first>
void sort(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(first, "dim", x, -1);
  sort_along(c, axis, size_along(x, axis), c.boolean(first + 1, "descending"));
}
template <size_t first>
void argsort(Call& c) {
  sort<first>(c);
  c.results.erase(c.results.begin());
}

void top_k(Call& c) {
  sort_along(c, c.axis(2, "dim", c.tensor(0), -1), c.size(1, "k"), c.boolean(3, "largest", true));
}

// The element at one position of the sorted axis, and where it was.
void set_ranked(Call& c, const Builder::Sorted& sorted, int axis, Value* position, bool keep) {
  for (Value* from : {sorted.values, sorted.indices}) {
    Value* v = c.b.gather_elements(from, position, axis);
    c.set(keep ? v : c.b.squeeze(v, {axis}));
  }
}

void set_scalar(Call& c, Value* x) {
  c.set(x);
  c.set(c.b.scalar_int(DType::i64, 0));
}

void kth_value(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(2, "dim", x, -1);
  if (x->type.rank() == 0) {
    set_scalar(c, x);
    return;
  }
  const Dim k = c.size(1, "k");
  Builder::Sorted sorted = c.b.sort(x, axis, k, false);
  for (Value* from : {sorted.values, sorted.indices}) {
    Value* v = c.b.slice_axis(from, axis, k - 1, k);
    c.set(c.boolean(3, "keepdim") ? v : c.b.squeeze(v, {axis}));
  }
}

// How many elements along the axis are NaN, which are the last of the sorted axis.
Value* count_nan(Call& c, Value* x, int axis) {
  Shape shape = x->type.shape;
  shape[static_cast<size_t>(axis)] = 1;
  if (!is_float(x->type.dtype)) return c.b.full(shape, DType::i64, 0);
  return c.b.reduce(ReduceFn::Sum, c.b.cast(c.b.unary(Fn::IsNan, x), DType::i64), {axis}, true);
}

// The lower of the two middle elements. A NaN is the median of whatever it is in; or, if they are ignored, of NaN only.
void set_median(Call& c, Value* x, int axis, bool keep, bool ignore_nan) {
  const Dim n = x->type.shape[static_cast<size_t>(axis)];
  Builder::Sorted sorted = c.b.sort(x, axis, n, false);
  Value* missing = count_nan(c, x, axis);
  Value* size = c.b.dim_value(n);
  Value* zero = c.b.scalar_int(DType::i64, 0);
  Value* position;
  auto middle = [&](Value* count) {
    Value* last = c.b.binary(Fn::Max, c.b.sub(count, c.b.scalar_int(DType::i64, 1)), zero);
    return c.b.div(last, c.b.scalar_int(DType::i64, 2));
  };
  if (ignore_nan) {
    position = middle(c.b.sub(size, missing));
  } else {
    Value* first_nan = c.b.sub(size, missing);
    position = c.b.select(c.b.binary(Fn::Gt, missing, zero), first_nan, middle(size));
  }
  set_ranked(c, sorted, axis, position, keep);
}

template <bool ignore_nan>
void median_along(Call& c) {
  Value* x = c.tensor(0);
  if (x->type.rank() == 0) {
    set_scalar(c, x);
    return;
  }
  set_median(c, x, c.axis(1, "dim", x, -1), c.boolean(2, "keepdim"), ignore_nan);
}
template <bool ignore_nan>
void median(Call& c) {
  Value* x = c.tensor(0);
  if (x->type.num_elements() == Dim(0)) c.fail("the median of nothing is not supported");
  set_median(c, c.b.reshape(x, {x->type.num_elements()}), 0, false, ignore_nan);
  c.results.pop_back();
}

// The smallest of the most frequent elements, and its last position.
void mode(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(1, "dim", x, -1);
  if (x->type.rank() == 0) {
    set_scalar(c, x);
    return;
  }
  const Dim n = x->type.shape[static_cast<size_t>(axis)];
  const bool keep = c.boolean(2, "keepdim");
  Value* sorted = c.b.sort(x, axis, n, false).values;
  // One axis more: every element against every other.
  Value* each = c.b.unsqueeze(sorted, {axis + 1});
  Value* other = c.b.unsqueeze(sorted, {axis});
  Value* times = c.b.reduce(ReduceFn::Sum, c.b.cast(c.b.binary(Fn::Eq, each, other), DType::i64), {axis + 1}, false);
  Value* value = c.b.gather_elements(sorted, c.b.reduce(ReduceFn::ArgMax, times, {axis}, true), axis);
  Shape along(x->type.shape.size(), Dim(1));
  along[static_cast<size_t>(axis)] = n;
  Value* position = c.b.iota(along, axis, DType::i64);
  Value* here = c.b.select(c.b.binary(Fn::Eq, x, value), position, c.b.scalar_int(DType::i64, -1));
  Value* last = c.b.reduce(ReduceFn::Max, here, {axis}, true);
  for (Value* v : {value, last}) c.set(keep ? v : c.b.squeeze(v, {axis}));
}

// Counts per interval of equal width. Elements outside, and NaN, do not count; the last interval has its upper end.
void histogram(Call& c) {
  const DType t = c.result_dtype();
  Value* x = c.operand(0, t);
  x = c.b.reshape(x, {x->type.num_elements()});
  const int64_t bins = c.integer(1, "bins", 100);
  const double low = c.real(2, "min", 0), high = c.real(3, "max", 0);
  if (bins < 1 || low > high) c.fail("needs one bin or more, and min ≤ max");
  if (x->type.num_elements() == Dim(0)) {
    c.set(c.b.full({bins}, t, 0));
    return;
  }
  Value* from = c.b.scalar(t, low);
  Value* to = c.b.scalar(t, high);
  if (low == high) {
    from = c.b.reduce(ReduceFn::Min, x, {0}, false);
    to = c.b.reduce(ReduceFn::Max, x, {0}, false);
    Value* one_value = c.b.binary(Fn::Eq, from, to);
    from = c.b.select(one_value, c.b.binary(Fn::Sub, from, 1.0), from);
    to = c.b.select(one_value, c.b.binary(Fn::Add, to, 1.0), to);
  }
  Value* inside = c.b.binary(Fn::And, c.b.binary(Fn::Ge, x, from), c.b.binary(Fn::Le, x, to));
  Value* scaled = c.b.div(c.b.binary(Fn::Mul, c.b.sub(x, from), static_cast<double>(bins)), c.b.sub(to, from));
  Value* at = c.b.binary(Fn::Min, c.b.cast(scaled, DType::i64), c.b.scalar_int(DType::i64, bins - 1));
  // What does not count goes to a bin of its own.
  at = c.b.select(inside, at, c.b.scalar_int(DType::i64, bins));
  Value* counts =
      c.b.scatter(c.b.full({bins + 1}, DType::i64, 0), at, c.b.full(x->type.shape, DType::i64, 1), 0, ReduceFn::Sum);
  c.set(c.b.cast(c.b.slice_axis(counts, 0, 0, bins), t));
}

// How many elements of each row of `sorted` come before the value: those below it, or (right) not above it. A NaN comes
// after every number.
Value* positions_in(Call& c, Value* sorted, Value* values, bool right) {
  const int axis = static_cast<int>(sorted->type.rank()) - 1;
  const Dim n = sorted->type.shape.back();
  auto comes_before = [&](Value* element, Value* value) {
    Value* before = c.b.binary(right ? Fn::Le : Fn::Lt, element, value);
    return is_float(value->type.dtype) ? c.b.binary(Fn::Or, before, c.b.unary(Fn::IsNan, value)) : before;
  };
  constexpr int64_t kMostCounted = 64;
  if (!n.is_constant() || n.value() <= kMostCounted) {
    Value* before = comes_before(c.b.unsqueeze(sorted, {axis}), c.b.unsqueeze(values, {axis + 1}));
    return c.b.reduce(ReduceFn::Sum, c.b.cast(before, DType::i64), {axis + 1}, false);
  }
  // By halving, in as many steps as the size has bits.
  auto number = [&](int64_t v) { return c.b.scalar_int(DType::i64, v); };
  Value* found = c.b.full(values->type.shape, DType::i64, 0);
  int64_t step = 1;
  while (step * 2 <= n.value()) step *= 2;
  for (; step > 0; step /= 2) {
    Value* last = c.b.add(found, number(step - 1));
    Value* inside = c.b.binary(Fn::Lt, last, number(n.value()));
    Value* element = c.b.gather_elements(sorted, c.b.binary(Fn::Min, last, number(n.value() - 1)), axis);
    Value* more = c.b.binary(Fn::And, inside, comes_before(element, values));
    found = c.b.select(more, c.b.add(found, number(step)), found);
  }
  return found;
}

void set_positions(Call& c, Value* sorted, Value* values, bool right) {
  const DType t = promote(sorted->type.dtype, values->type.dtype);
  const Shape shape = values->type.shape;
  sorted = c.b.cast(sorted, t);
  values = c.b.cast(values, t);
  if (sorted->type.rank() <= 1) values = c.b.reshape(values, {values->type.num_elements()});
  c.set(c.b.reshape(positions_in(c, sorted, values, right), shape));
}

void search_sorted(Call& c) {
  Value* sorted = c.tensor(0);
  if (Value* order = c.optional_tensor(99, "sorter"))
    sorted = c.b.gather_elements(sorted, order, static_cast<int>(sorted->type.rank()) - 1);
  Value* values = c.is_tensor(1) ? c.tensor(1) : c.operand(1, sorted->type.dtype);
  set_positions(c, sorted, values, c.boolean(99, "right") || c.text(99, "side", "left") == "right");
}
void bucketize(Call& c) {
  Value* sorted = c.tensor(1, "boundaries");
  Value* values = c.is_tensor(0) ? c.tensor(0) : c.operand(0, sorted->type.dtype);
  set_positions(c, sorted, values, c.boolean(99, "right"));
}

// Running extremum, and where it was last met. Like every scan, a fold over all elements up to each.
template <ReduceFn fn>
void running_extremum(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(1, "dim", x);
  if (x->type.rank() == 0) {
    set_scalar(c, x);
    return;
  }
  const Dim n = x->type.shape[static_cast<size_t>(axis)];
  const DType t = x->type.dtype;
  const bool as_number = t == DType::boolean;
  if (as_number) x = c.b.cast(x, DType::u8);
  Shape here(x->type.shape.size() + 1, Dim(1)), there = here;
  here[static_cast<size_t>(axis)] = n;
  there[static_cast<size_t>(axis) + 1] = n;
  Value* position = c.b.iota(there, axis + 1, DType::i64);
  Value* reached = c.b.binary(Fn::Le, position, c.b.iota(here, axis, DType::i64));
  // What has not been reached counts as the first element, which always has.
  Value* first = c.b.unsqueeze(c.b.slice_axis(x, axis, 0, 1), {axis});
  Value* other = c.b.unsqueeze(x, {axis});
  Value* values = c.b.reduce(fn, c.b.select(reached, other, first), {axis + 1}, false);
  Value* each = c.b.unsqueeze(values, {axis + 1});
  Value* equal = c.b.binary(Fn::Eq, other, each);
  if (is_float(x->type.dtype))
    equal = c.b.binary(Fn::Or, equal, c.b.binary(Fn::And, c.b.unary(Fn::IsNan, other), c.b.unary(Fn::IsNan, each)));
  Value* met = c.b.select(c.b.binary(Fn::And, reached, equal), position, c.b.scalar_int(DType::i64, 0));
  c.set(as_number ? c.b.cast(values, t) : values);
  c.set(c.b.reduce(ReduceFn::Max, met, {axis + 1}, false));
}

}  // namespace

std::vector<Row> order_rows() {
  return {
      {"aten.sort.default", sort<1>},
      {"aten.sort.stable", sort<2>},
      {"aten.argsort.default", argsort<1>},
      {"aten.argsort.stable", argsort<2>},
      {"aten.topk.default", top_k},
      {"aten.kthvalue.default", kth_value},
      {"aten.median.default", median<false>},
      {"aten.median.dim", median_along<false>},
      {"aten.nanmedian.default", median<true>},
      {"aten.nanmedian.dim", median_along<true>},
      {"aten.mode.default", mode},
      {"aten.histc.default", histogram},
      {"aten.searchsorted.Tensor", search_sorted},
      {"aten.searchsorted.Scalar", search_sorted},
      {"aten.bucketize.Tensor", bucketize},
      {"aten.bucketize.Scalar", bucketize},
      {"aten.cummax.default", running_extremum<ReduceFn::Max>},
      {"aten.cummin.default", running_extremum<ReduceFn::Min>},
  };
}

}  // namespace cuvil::aten
