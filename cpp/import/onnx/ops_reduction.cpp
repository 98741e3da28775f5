// Reductions, softmax, scans.
#include <numeric>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

struct Reduction {
  Value* x;
  std::vector<int64_t> axes;
  bool keepdims;
  bool nothing = false;  // no axes and noop_with_empty_axes
};

// Axes are an attribute, then (ReduceSum from 13, the others from 18) an input; none means all.
Reduction reduction_of(Call& c) {
  Reduction r{c.input(0), {}, c.integer("keepdims", 1) != 0};
  if (c.optional_input(1)) {
    r.axes = c.constants(1);
  } else {
    r.axes = c.ints("axes");
  }
  if (r.axes.empty()) {
    if (c.integer("noop_with_empty_axes", 0)) {
      r.nothing = true;
    } else {
      r.axes.resize(r.x->type.shape.size());
      std::iota(r.axes.begin(), r.axes.end(), 0);
    }
  }
  return r;
}

Value* fold(Call& c, ReduceFn fn, const Reduction& r, Value* x) {
  return r.nothing ? x : c.b.reduce(fn, x, r.axes, r.keepdims);
}

template <ReduceFn fn>
void reduce(Call& c) {
  Reduction r = reduction_of(c);
  c.set(fold(c, fn, r, r.x));
}
void reduce_mean(Call& c) {
  Reduction r = reduction_of(c);
  if (r.nothing) {
    c.set(r.x);
    return;
  }
  c.set(c.b.mean(r.x, r.axes, r.keepdims));
}
void reduce_l1(Call& c) {
  Reduction r = reduction_of(c);
  c.set(fold(c, ReduceFn::Sum, r, c.b.unary(Fn::Abs, r.x)));
}
void reduce_sum_square(Call& c) {
  Reduction r = reduction_of(c);
  c.set(fold(c, ReduceFn::Sum, r, c.b.mul(r.x, r.x)));
}
void reduce_l2(Call& c) {
  Reduction r = reduction_of(c);
  c.set(c.b.unary(Fn::Sqrt, fold(c, ReduceFn::Sum, r, c.b.mul(r.x, r.x))));
}
void reduce_log_sum(Call& c) {
  Reduction r = reduction_of(c);
  c.set(c.b.unary(Fn::Log, fold(c, ReduceFn::Sum, r, r.x)));
}
void reduce_log_sum_exp(Call& c) {
  Reduction r = reduction_of(c);
  if (r.nothing) {
    c.set(r.x);
    return;
  }
  Value* top = c.b.reduce(ReduceFn::Max, r.x, r.axes, true);
  // An infinite maximum would make inf - inf.
  Value* shift = c.b.select(c.b.unary(Fn::IsInf, top), c.zero(r.x->type.dtype), top);
  Value* sum = c.b.reduce(ReduceFn::Sum, c.b.unary(Fn::Exp, c.b.sub(r.x, shift)), r.axes, true);
  Value* y = c.b.add(c.b.unary(Fn::Log, sum), shift);
  c.set(r.keepdims ? y : c.b.squeeze(y, r.axes));
}

template <ReduceFn fn>
void argument_of_extremum(Call& c) {
  Value* x = c.input(0);
  int64_t axis = c.axis("axis", 0, x);
  bool keep = c.integer("keepdims", 1);
  if (!c.integer("select_last_index", 0)) {
    c.set(c.b.reduce(fn, x, {axis}, keep));
    return;
  }
  // The last hit is the first one of the reversed axis.
  const Dim& n = x->type.shape[static_cast<size_t>(axis)];
  Value* back = c.b.slice_axis(x, static_cast<int>(axis), n - 1, -1, -1);
  Value* first = c.b.reduce(fn, back, {axis}, keep);
  c.set(c.b.sub(c.b.dim_value(n - 1), first));
}

// The axes before `axis` as rows, the others as columns.
Value* as_rows(Call& c, Value* x, int64_t axis) {
  Dim rows = 1, columns = 1;
  for (int64_t i = 0; i < x->type.rank(); ++i) {
    Dim& side = i < axis ? rows : columns;
    side = side * x->type.shape[static_cast<size_t>(i)];
  }
  return c.b.reshape(x, {rows, columns});
}

template <bool logarithm>
void softmax(Call& c) {
  Value* x = c.input(0);
  if (c.opset() >= 13) {
    c.set(c.b.softmax(x, static_cast<int>(c.axis("axis", -1, x)), logarithm));
    return;
  }
  // Earlier, everything from the axis on was one row.
  int64_t axis = c.axis("axis", 1, x);
  c.set(c.b.reshape(c.b.softmax(as_rows(c, x, axis), 1, logarithm), x->type.shape));
}

// 1 at the first maximum of each row, else 0.
void hardmax(Call& c) {
  Value* x = c.input(0);
  bool coerced = c.opset() < 13;
  int64_t axis = c.axis("axis", coerced ? 1 : -1, x);
  const Shape shape = x->type.shape;
  if (coerced) {
    x = as_rows(c, x, axis);
    axis = 1;
  }
  Shape along(x->type.shape.size(), Dim(1));
  along[static_cast<size_t>(axis)] = x->type.shape[static_cast<size_t>(axis)];
  Value* first = c.b.reduce(ReduceFn::ArgMax, x, {axis}, true);
  Value* here = c.b.binary(Fn::Eq, c.b.iota(along, static_cast<int>(axis), DType::i64), first);
  c.set(c.b.reshape(c.b.cast(here, x->type.dtype), shape));
}

template <ReduceFn fn>
void scan(Call& c) {
  Value* x = c.input(0);
  int64_t axis = c.wrap_axis(c.constant(1), x->type.rank());
  c.set(c.b.node(Op::Scan, {x},
                 {{"fn", fn},
                  {"axis", axis},
                  {"exclusive", c.integer("exclusive", 0) != 0},
                  {"reverse", c.integer("reverse", 0) != 0}}));
}

}  // namespace

std::vector<Row> reduction_rows() {
  return {
      {"ArgMax", argument_of_extremum<ReduceFn::ArgMax>},
      {"ArgMin", argument_of_extremum<ReduceFn::ArgMin>},
      {"CumProd", scan<ReduceFn::Prod>},
      {"CumSum", scan<ReduceFn::Sum>},
      {"Hardmax", hardmax},
      {"LogSoftmax", softmax<true>},
      {"ReduceL1", reduce_l1},
      {"ReduceL2", reduce_l2},
      {"ReduceLogSum", reduce_log_sum},
      {"ReduceLogSumExp", reduce_log_sum_exp},
      {"ReduceMax", reduce<ReduceFn::Max>},
      {"ReduceMean", reduce_mean},
      {"ReduceMin", reduce<ReduceFn::Min>},
      {"ReduceProd", reduce<ReduceFn::Prod>},
      {"ReduceSum", reduce<ReduceFn::Sum>},
      {"ReduceSumSquare", reduce_sum_square},
      {"Softmax", softmax<false>},
  };
}

}  // namespace cuvil::onnx
