// Reductions over segments of an axis, and histograms: each element is added to the bin it belongs to.
#include <cmath>
#include <limits>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

Value* index_constant(Call& c, int64_t v) {
  return c.b.scalar_int(DType::i64, v);
}

Value* running_sum(Call& c, Value* x) {
  return c.b.node(Op::Scan, {x},
                  {{"fn", ReduceFn::Sum}, {"axis", int64_t{0}}, {"exclusive", false}, {"reverse", false}});
}

// The segment of each of n positions: how many of the starts lie at or before it, less one.
Value* segment_of_each(Call& c, Value* starts, const Dim& n) {
  const Shape shape{n, starts->type.shape[0]};
  Value* begun = c.b.binary(Fn::Le, c.b.unsqueeze(starts, {0}), c.b.iota(shape, 0, DType::i64));
  return c.b.sub(c.b.reduce(ReduceFn::Sum, c.b.cast(begun, DType::i64), {1}, false), index_constant(c, 1));
}

// Elements (rows) folded into their segments, from `start`.
Value* fold_segments(Call& c, Value* rows, Value* segments, const Dim& count, ReduceFn fn, double start) {
  Shape shape = rows->type.shape;
  shape[0] = count;
  Value* base = c.b.broadcast(c.number(rows->type.dtype, start), shape);
  if (rows->type.shape[0] == Dim(0)) return base;
  return c.b.scatter(base, segments, rows, 0, fn);
}

// A vector, shaped to broadcast against rows.
Value* per_row(Call& c, Value* v, const Value* rows) {
  Shape shape(rows->type.shape.size(), Dim(1));
  shape[0] = v->type.shape[0];
  return c.b.reshape(v, shape);
}

// weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
void embedding_bag(Call& c) {
  const DType t = c.work_dtype();
  Value* indices = c.b.cast(c.tensor(1), DType::i64);
  Value* offsets = c.b.cast(c.tensor(2), DType::i64);
  const int64_t mode = c.integer(4, "mode", 0), padding = c.integer(8, "padding_idx", -1);
  const Dim n = indices->type.shape[0], bags = c.result_shape()[0];
  for (size_t output = 1; output < c.node().outputs.size(); ++output) {
    if (c.is_used(output)) c.fail("only its first result is supported");
  }
  if (c.boolean(7, "include_last_offset")) offsets = c.b.slice_axis(offsets, 0, 0, bags);
  Value* segments = segment_of_each(c, offsets, n);
  Value* rows = c.b.cast(c.b.gather(c.tensor(0), indices, 0), t);
  Value* counts = c.b.full({n}, t, 1);
  if (Value* weights = c.optional_tensor(6, "per_sample_weights"))
    rows = c.b.mul(rows, per_row(c, c.b.cast(weights, t), rows));
  const double start = mode == 2 ? -std::numeric_limits<double>::infinity() : 0;
  if (padding >= 0) {
    Value* counted = c.b.binary(Fn::Ne, indices, index_constant(c, padding));
    rows = c.b.select(per_row(c, counted, rows), rows, c.b.scalar(t, start));
    counts = c.b.cast(counted, t);
  }
  Value* y = fold_segments(c, rows, segments, bags, mode == 2 ? ReduceFn::Max : ReduceFn::Sum, start);
  if (mode != 0) {
    Value* size = per_row(c, fold_segments(c, counts, segments, bags, ReduceFn::Sum, 0), y);
    Value* empty = c.b.binary(Fn::Eq, size, 0.0);
    y = mode == 1 ? c.b.div(y, c.b.binary(Fn::Max, size, 1.0)) : c.b.select(empty, c.b.scalar(t, 0), y);
  }
  c.set(y);
}

// data, reduce, lengths, indices, offsets, axis, unsafe, initial
void segment_reduce(Call& c) {
  const DType t = c.work_dtype();
  Value* data = c.wide(0);
  if (c.integer(99, "axis", 0) != 0) c.fail("segments of another axis than the first are not supported");
  const std::string name = c.text(1, "reduce", "");
  Value* lengths = c.optional_tensor(2, "lengths");
  Value* offsets = c.optional_tensor(4, "offsets");
  const Dim count = c.result_shape()[0];
  Value* starts;
  if (lengths) {
    lengths = c.b.cast(lengths, DType::i64);
    starts = c.b.sub(running_sum(c, lengths), lengths);
  } else if (offsets) {
    offsets = c.b.cast(offsets, DType::i64);
    starts = c.b.slice_axis(offsets, 0, 0, count);
    lengths = c.b.sub(c.b.slice_axis(offsets, 0, 1, count + 1), starts);
  } else {
    c.fail("needs lengths or offsets");
  }
  const double infinity = std::numeric_limits<double>::infinity();
  ReduceFn fn = ReduceFn::Sum;
  double start = 0;
  if (name == "max") {
    fn = ReduceFn::Max;
    start = -infinity;
  } else if (name == "min") {
    fn = ReduceFn::Min;
    start = infinity;
  } else if (name == "prod") {
    fn = ReduceFn::Prod;
    start = 1;
  }
  if (c.has(99, "initial")) start = c.real(99, "initial");
  Value* y = fold_segments(c, data, segment_of_each(c, starts, data->type.shape[0]), count, fn, start);
  if (name == "mean") {
    // Nothing has no mean, unless it starts from something.
    Value* size = per_row(c, c.b.cast(lengths, t), y);
    Value* mean = c.b.div(y, size);
    y = c.has(99, "initial") ? c.b.select(c.b.binary(Fn::Eq, size, 0.0), y, mean) : mean;
  }
  c.set(y);
}

// Counts, or sums of weights, between neighbouring edges; the last bin has its upper edge.
void set_histogram(Call& c, Value* x, Value* edges, const Argument* weights, bool density) {
  const DType t = x->type.dtype;
  const Dim bins = edges->type.shape[0] - 1, n = x->type.num_elements();
  x = c.b.reshape(x, {n});
  Value* rows = weights ? c.b.cast(c.b.reshape(c.tensor(99, "weight"), {n}), t) : c.b.full({n}, t, 1);
  Value* passed = c.b.binary(Fn::Le, c.b.unsqueeze(edges, {0}), c.b.unsqueeze(x, {1}));
  Value* bin = c.b.sub(c.b.reduce(ReduceFn::Sum, c.b.cast(passed, DType::i64), {1}, false), index_constant(c, 1));
  Value* last = c.b.squeeze(c.b.slice_axis(edges, 0, bins, bins + 1), {0});
  Value* on_last = c.b.binary(Fn::Eq, x, last);
  bin = c.b.sub(bin, c.b.cast(on_last, DType::i64));
  // What lies outside goes to a bin of its own.
  Value* size = c.b.dim_value(bins);
  Value* inside = c.b.binary(Fn::And, c.b.binary(Fn::Ge, bin, index_constant(c, 0)), c.b.binary(Fn::Lt, bin, size));
  bin = c.b.select(inside, bin, size);
  Value* y = c.b.slice_axis(fold_segments(c, rows, bin, bins + 1, ReduceFn::Sum, 0), 0, 0, bins);
  if (density) {
    Value* widths = c.b.sub(c.b.slice_axis(edges, 0, 1, bins + 1), c.b.slice_axis(edges, 0, 0, bins));
    y = c.b.div(c.b.div(y, c.b.reduce(ReduceFn::Sum, y, {0}, false)), widths);
  }
  c.set(y);
  c.set(edges);
}

// self, bins, range, weight, density
void histogram_by_count(Call& c) {
  Value* x = c.tensor(0);
  const DType t = x->type.dtype;
  const int64_t bins = c.integer(1, "bins", 100);
  const Dim n = x->type.num_elements();
  Value *low, *high;
  if (c.has(99, "range")) {
    const Argument* range = c.argument(99, "range");
    auto end = [&](size_t i) {
      const Argument& a = range->list.at(i);
      return c.b.scalar(t, a.kind == Argument::Kind::Float ? a.real : static_cast<double>(a.integer));
    };
    low = end(0);
    high = end(1);
  } else if (n == Dim(0)) {
    low = c.b.scalar(t, 0);
    high = c.b.scalar(t, 1);
  } else {
    Value* flat = c.b.reshape(x, {n});
    low = c.b.reduce(ReduceFn::Min, flat, {0}, false);
    high = c.b.reduce(ReduceFn::Max, flat, {0}, false);
  }
  Value* equal = c.b.binary(Fn::Eq, low, high);
  Value* lower = c.b.select(equal, c.b.binary(Fn::Sub, low, 0.5), low);
  Value* upper = c.b.select(equal, c.b.binary(Fn::Add, high, 0.5), high);
  // As linspace: from whichever end is nearer.
  Value* step = c.b.binary(Fn::Div, c.b.sub(upper, lower), static_cast<double>(bins));
  Value* i = c.b.iota({bins + 1}, 0, t);
  Value* from_end = c.b.sub(c.b.scalar(t, static_cast<double>(bins)), i);
  Value* edges = c.b.select(c.b.binary(Fn::Lt, i, static_cast<double>((bins + 1) / 2)),
                            c.b.add(lower, c.b.mul(step, i)), c.b.sub(upper, c.b.mul(step, from_end)));
  set_histogram(c, x, edges, c.argument(99, "weight"), c.boolean(99, "density"));
}

void histogram_by_edges(Call& c) {
  set_histogram(c, c.tensor(0), c.b.cast(c.tensor(1, "bins"), c.tensor(0)->type.dtype), c.argument(99, "weight"),
                c.boolean(99, "density"));
}

}  // namespace

std::vector<Row> segment_rows() {
  return {
      {"aten.embedding_bag.default", embedding_bag},      {"aten.embedding_bag.padding_idx", embedding_bag},
      {"aten._embedding_bag.default", embedding_bag},     {"aten._embedding_bag_forward_only.default", embedding_bag},
      {"aten.segment_reduce.default", segment_reduce},    {"aten.histogram.bin_ct", histogram_by_count},
      {"aten.histogram.bins_tensor", histogram_by_edges},
  };
}

}  // namespace cuvil::aten
