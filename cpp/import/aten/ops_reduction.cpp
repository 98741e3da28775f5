// Reductions, statistics and scans.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

// Axes of argument `position`; none given means all.
std::vector<int64_t> axes_of(Call& c, size_t position, const Value* x) {
  std::vector<int64_t> axes = c.has(position, "dim") ? c.ints(position, "dim") : std::vector<int64_t>{};
  if (axes.empty()) {
    axes.resize(x->type.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (x->type.rank() == 0) axes.clear();
  return axes;
}

Value* scalar_like(Call& c, DType t, double v) {
  return is_float(t) ? c.b.scalar(t, v) : c.b.scalar_int(t, static_cast<int64_t>(v));
}

void sum(Call& c) {
  DType t = c.result_dtype();
  Value* x = c.operand(0, t);
  c.set(c.b.reduce(ReduceFn::Sum, x, axes_of(c, 1, x), c.boolean(2, "keepdim")));
}
void sum_all(Call& c) {
  Value* x = c.operand(0, c.result_dtype());
  c.set(c.b.reduce(ReduceFn::Sum, x, axes_of(c, 99, x), false));
}
void mean(Call& c) {
  Value* x = c.operand(0, c.work_dtype());
  c.set(c.b.mean(x, axes_of(c, 1, x), c.boolean(2, "keepdim")));
}
void mean_all(Call& c) {
  Value* x = c.operand(0, c.work_dtype());
  std::vector<int64_t> axes(x->type.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  c.set(c.b.mean(x, axes, false));
}
template <ReduceFn fn>
void extremum(Call& c) {
  Value* x = c.tensor(0);
  c.set(c.b.reduce(fn, x, axes_of(c, 1, x), c.boolean(2, "keepdim")));
}
template <ReduceFn fn>
void extremum_all(Call& c) {
  Value* x = c.tensor(0);
  c.set(c.b.reduce(fn, x, axes_of(c, 99, x), false));
}
// (values, indices)
template <ReduceFn fn, ReduceFn position>
void extremum_with_index(Call& c) {
  Value* x = c.tensor(0);
  if (x->type.rank() == 0) {
    c.set(x);
    c.set(c.b.scalar_int(DType::i64, 0));
    return;
  }
  int64_t axis = c.axis(1, "dim", x);
  bool keep = c.boolean(2, "keepdim");
  c.set(c.b.reduce(fn, x, {axis}, keep));
  if (x->type.dtype == DType::boolean) x = c.b.cast(x, DType::u8);
  c.set(c.b.reduce(position, x, {axis}, keep));
}
template <ReduceFn fn>
void argument_of_extremum(Call& c) {
  Value* x = c.tensor(0);
  if (x->type.dtype == DType::boolean) x = c.b.cast(x, DType::u8);
  if (!c.has(1, "dim")) {
    Value* flat = c.b.reshape(x, {x->type.num_elements()});
    c.set(c.b.reshape(c.b.reduce(fn, flat, {0}, false), c.result_shape()));
    return;
  }
  if (x->type.rank() == 0) {
    c.set(c.b.scalar_int(DType::i64, 0));
    return;
  }
  c.set(c.b.reduce(fn, x, {c.axis(1, "dim", x)}, c.boolean(2, "keepdim")));
}
template <ReduceFn fn>
void truth(Call& c) {
  Value* x = c.operand(0, DType::boolean);
  Value* r = c.b.reduce(fn, x, axes_of(c, 1, x), c.boolean(2, "keepdim"));
  c.set(c.b.cast(r, c.result_dtype()));
}
void prod_all(Call& c) {
  Value* x = c.operand(0, c.result_dtype());
  c.set(c.b.reduce(ReduceFn::Prod, x, axes_of(c, 99, x), false));
}
void prod(Call& c) {
  Value* x = c.operand(0, c.result_dtype());
  c.set(x->type.rank() == 0 ? x : c.b.reduce(ReduceFn::Prod, x, {c.axis(1, "dim", x)}, c.boolean(2, "keepdim")));
}

struct Moments {
  Value* mean;
  Value* variance;
};
// Two passes: right even when the mean is large beside the deviation.
Moments moments(Call& c, Value* x, std::vector<int64_t> axes, double correction, bool keep) {
  Value* mean = c.b.mean(x, axes, true);
  Value* d = c.b.sub(x, mean);
  Dim count = 1;
  for (int64_t axis : axes) count = count * x->type.shape[static_cast<size_t>(axis < 0 ? axis + x->type.rank() : axis)];
  Value* n = c.b.cast(c.b.dim_value(count), x->type.dtype);
  Value* degrees = c.b.binary(Fn::Max, c.b.binary(Fn::Sub, n, correction), 0.0);
  Value* variance = c.b.div(c.b.reduce(ReduceFn::Sum, c.b.mul(d, d), axes, keep), degrees);
  return {keep ? mean : c.b.squeeze(mean, axes), variance};
}
double correction_of(Call& c) {
  return c.real(2, "correction", 1);
}
void var(Call& c) {
  Value* x = c.wide(0);
  c.set(moments(c, x, axes_of(c, 1, x), correction_of(c), c.boolean(3, "keepdim")).variance);
}
void var_mean(Call& c) {
  Value* x = c.wide(0);
  Moments m = moments(c, x, axes_of(c, 1, x), correction_of(c), c.boolean(3, "keepdim"));
  c.set(m.variance);
  c.set(m.mean);
}
template <ReduceFn fn>
void scan(Call& c) {
  Value* x = c.operand(0, c.work_dtype());
  if (x->type.rank() == 0) {
    c.set(x);
    return;
  }
  c.set(c.b.node(Op::Scan, {x},
                 {{"fn", fn}, {"axis", int64_t{c.axis(1, "dim", x)}}, {"exclusive", false}, {"reverse", false}}));
}
template <bool logarithm>
void softmax(Call& c) {
  Value* x = c.operand(0, c.work_dtype());
  c.set(x->type.rank() == 0 ? scalar_like(c, x->type.dtype, logarithm ? 0 : 1)
                            : c.b.softmax(x, c.axis(1, "dim", x), logarithm));
}
void logsumexp(Call& c) {
  Value* x = c.operand(0, c.work_dtype());
  std::vector<int64_t> axes = axes_of(c, 1, x);
  bool keep = c.boolean(2, "keepdim");
  Value* top = c.b.reduce(ReduceFn::Max, x, axes, true);
  // An infinite maximum would make inf - inf.
  Value* shift = c.b.select(c.b.unary(Fn::IsInf, top), c.b.scalar(x->type.dtype, 0), top);
  Value* total = c.b.reduce(ReduceFn::Sum, c.b.unary(Fn::Exp, c.b.sub(x, shift)), axes, true);
  Value* r = c.b.add(c.b.unary(Fn::Log, total), shift);
  c.set(keep ? r : c.b.squeeze(r, axes));
}

}  // namespace

std::vector<Row> reduction_rows() {
  return {
      {"aten.sum.dim_IntList", sum},
      {"aten.sum.default", sum_all},
      {"aten.mean.dim", mean},
      {"aten.mean.default", mean_all},
      {"aten.amax.default", extremum<ReduceFn::Max>},
      {"aten.amin.default", extremum<ReduceFn::Min>},
      {"aten.max.default", extremum_all<ReduceFn::Max>},
      {"aten.min.default", extremum_all<ReduceFn::Min>},
      {"aten.max.dim", extremum_with_index<ReduceFn::Max, ReduceFn::ArgMax>},
      {"aten.min.dim", extremum_with_index<ReduceFn::Min, ReduceFn::ArgMin>},
      {"aten.argmax.default", argument_of_extremum<ReduceFn::ArgMax>},
      {"aten.argmin.default", argument_of_extremum<ReduceFn::ArgMin>},
      {"aten.any.default", truth<ReduceFn::Max>},
      {"aten.any.dim", truth<ReduceFn::Max>},
      {"aten.any.dims", truth<ReduceFn::Max>},
      {"aten.all.default", truth<ReduceFn::Min>},
      {"aten.all.dim", truth<ReduceFn::Min>},
      {"aten.all.dims", truth<ReduceFn::Min>},
      {"aten.prod.default", prod_all},
      {"aten.prod.dim_int", prod},
      {"aten.var.correction", var},
      {"aten.var_mean.correction", var_mean},
      {"aten.cumsum.default", scan<ReduceFn::Sum>},
      {"aten.cumprod.default", scan<ReduceFn::Prod>},
      {"aten._softmax.default", softmax<false>},
      {"aten.softmax.int", softmax<false>},
      {"aten._log_softmax.default", softmax<true>},
      {"aten.log_softmax.int", softmax<true>},
      {"aten.logsumexp.default", logsumexp},
  };
}

}  // namespace cuvil::aten
