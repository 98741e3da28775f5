// Pooling over windows that differ in size, and pooling that tells where it found its maxima.
#include <numeric>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

Value* index_constant(Call& c, int64_t v) {
  return c.b.scalar_int(DType::i64, v);
}

// The windows of the trailing axes, gathered: positions[i] is an i64 matrix [windows, width] of positions on axis
// `lead` + i, all within the axis. The result is [lead…, windows…, widths…].
Value* gather_windows(Call& c, Value* x, const std::vector<Value*>& positions) {
  const size_t spatial = positions.size(), lead = x->type.shape.size() - spatial;
  // From the last axis on, so that earlier axes stay where they are: [lead…, w0, k0, w1, k1, …].
  for (size_t i = spatial; i-- > 0;) x = c.b.gather(x, positions[i], static_cast<int>(lead + i));
  std::vector<int64_t> perm(lead);
  std::iota(perm.begin(), perm.end(), 0);
  for (size_t part : {0, 1}) {
    for (size_t i = 0; i < spatial; ++i) perm.push_back(static_cast<int64_t>(lead + 2 * i + part));
  }
  return c.b.transpose(x, perm);
}

// [windows, width] of axis i, shaped to broadcast against [windows…, widths…].
Value* along_windows(Call& c, Value* v, size_t i, size_t spatial) {
  Shape shape(2 * spatial, Dim(1));
  shape[i] = v->type.shape[0];
  shape[spatial + i] = v->type.shape[1];
  return c.b.reshape(v, shape);
}

// Positions and which of them count.
struct Windows {
  std::vector<Value*> positions, inside;

  Value* all_inside(Call& c) const {
    Value* all = nullptr;
    for (size_t i = 0; i < inside.size(); ++i) {
      Value* one = along_windows(c, inside[i], i, inside.size());
      all = all ? c.b.binary(Fn::And, all, one) : one;
    }
    return all;
  }
  /// Row-major position on all axes of this extent.
  Value* joint(Call& c, const Shape& extent) const {
    Value* at = nullptr;
    for (size_t i = 0; i < positions.size(); ++i) {
      Value* one = along_windows(c, positions[i], i, positions.size());
      at = at ? c.b.add(c.b.mul(at, c.b.dim_value(extent[i])), one) : one;
    }
    return at;
  }
};

std::vector<int64_t> last_axes(const Value* v, size_t count) {
  std::vector<int64_t> axes(count);
  std::iota(axes.begin(), axes.end(), v->type.rank() - static_cast<int64_t>(count));
  return axes;
}

// The first maximum of each window (a NaN if there is one), and its position.
void set_maxima(Call& c, Value* x, const Windows& windows) {
  const size_t spatial = windows.positions.size(), lead = x->type.shape.size() - spatial;
  const Shape extent(x->type.shape.begin() + static_cast<long>(lead), x->type.shape.end());
  const DType t = x->type.dtype;
  Value* gathered = gather_windows(c, x, windows.positions);
  gathered = c.b.select(windows.all_inside(c), gathered, c.lowest(t));
  c.set(c.b.reduce(ReduceFn::Max, gathered, last_axes(gathered, spatial), false));
  if (!c.is_used(1)) {
    c.skip();
    return;
  }
  Shape flat(gathered->type.shape.begin(), gathered->type.shape.end() - static_cast<long>(spatial));
  Dim width = 1;
  for (size_t i = flat.size(); i < gathered->type.shape.size(); ++i) width = width * gathered->type.shape[i];
  flat.push_back(width);
  const int last = static_cast<int>(flat.size()) - 1;
  Value* first = c.b.reduce(ReduceFn::ArgMax, c.b.reshape(gathered, flat), {last}, true);
  Shape whole = gathered->type.shape;
  Value* joint = c.b.reshape(c.b.broadcast(windows.joint(c, extent), whole), flat);
  c.set(c.b.squeeze(c.b.gather_elements(joint, first, last), {last}));
}

// Window i of n over an axis: from floor(i size / n) to ceil((i + 1) size / n).
void add_adaptive_axis(Call& c, Windows& windows, const Dim& size, const Dim& n) {
  // No window is wider; the constant case has no need of one more where all are equally wide.
  Dim width = exact_div(size, n) ? *exact_div(size, n) : minimum(ceil_div(size, n) + 1, size);
  const Shape shape{n, width};
  Value* window = c.b.iota(shape, 0, DType::i64);
  Value* length = c.b.dim_value(size);
  Value* count = c.b.dim_value(n);
  Value* start = c.b.div(c.b.mul(window, length), count);
  Value* next = c.b.mul(c.b.add(window, index_constant(c, 1)), length);
  Value* end = c.b.div(c.b.add(next, c.b.sub(count, index_constant(c, 1))), count);
  Value* at = c.b.add(start, c.b.iota(shape, 1, DType::i64));
  windows.inside.push_back(c.b.binary(Fn::Lt, at, end));
  windows.positions.push_back(c.b.binary(Fn::Min, at, c.b.sub(length, index_constant(c, 1))));
}

Windows adaptive_windows(Call& c, Value* x, size_t spatial) {
  Windows windows;
  const Shape out = c.result_shape();
  for (size_t axis = out.size() - spatial; axis < out.size(); ++axis)
    add_adaptive_axis(c, windows, x->type.shape[axis], out[axis]);
  return windows;
}

void adaptive_average(Call& c) {
  Value* x = c.wide(0);
  const Shape out = c.result_shape();
  const size_t rank = out.size(), spatial = c.sizes(1).size();
  bool global = true, divisible = true, empty = false;
  std::vector<int64_t> window;
  for (size_t axis = rank - spatial; axis < rank; ++axis) {
    global &= out[axis] == Dim(1);
    empty |= out[axis] == Dim(0);
    auto w = empty ? std::nullopt : exact_div(x->type.shape[axis], out[axis]);
    divisible &= w && w->is_constant();
    window.push_back(w && w->is_constant() ? w->value() : 0);
  }
  if (empty) {
    c.set(c.b.full(out, x->type.dtype, 0));
    return;
  }
  if (global) {
    c.set(c.b.mean(x, last_axes(x, spatial), true));
    return;
  }
  if (divisible) {
    c.set(c.b.avg_pool(x, window, window, std::vector<int64_t>(2 * window.size(), 0), false, true));
    return;
  }
  const DType work = x->type.dtype;
  Windows windows = adaptive_windows(c, x, spatial);
  Value* inside = windows.all_inside(c);
  Value* gathered = c.b.select(inside, gather_windows(c, x, windows.positions), c.b.scalar(work, 0));
  Value* count = c.b.reduce(ReduceFn::Sum, c.b.cast(inside, work), last_axes(inside, spatial), false);
  c.set(c.b.div(c.b.reduce(ReduceFn::Sum, gathered, last_axes(gathered, spatial), false), count));
}

void adaptive_max(Call& c) {
  Value* x = c.tensor(0);
  set_maxima(c, x, adaptive_windows(c, x, c.sizes(1).size()));
}

}  // namespace

void max_pool_with_indices(Call& c, Value* x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides,
                           const std::vector<int64_t>& pads, const std::vector<int64_t>& dilations) {
  Windows windows;
  const Shape out = c.result_shape();
  const size_t spatial = window.size();
  for (size_t i = 0; i < spatial; ++i) {
    const Dim& size = x->type.shape[x->type.shape.size() - spatial + i];
    const Shape shape{out[out.size() - spatial + i], window[i]};
    Value* at = c.b.add(c.b.mul(c.b.iota(shape, 0, DType::i64), index_constant(c, strides[i])),
                        c.b.mul(c.b.iota(shape, 1, DType::i64), index_constant(c, dilations[i])));
    at = c.b.sub(at, index_constant(c, pads[i]));
    Value* last = c.b.sub(c.b.dim_value(size), index_constant(c, 1));
    windows.inside.push_back(
        c.b.binary(Fn::And, c.b.binary(Fn::Ge, at, index_constant(c, 0)), c.b.binary(Fn::Le, at, last)));
    windows.positions.push_back(c.b.binary(Fn::Max, c.b.binary(Fn::Min, at, last), index_constant(c, 0)));
  }
  set_maxima(c, x, windows);
}

namespace {

// grad_output, input, …, indices: each gradient goes to where its maximum was.
void max_pool_backward(Call& c) {
  Value* gradient = c.tensor(0);
  Value* indices = c.tensor(7, "indices");
  const Shape shape = c.result_shape();
  const size_t lead = shape.size() - 2;
  auto planes = [&](const Shape& s) {
    Shape flat(s.begin(), s.begin() + static_cast<long>(lead));
    flat.push_back(s[lead] * s[lead + 1]);
    return flat;
  };
  Value* y = c.b.scatter_elements(
      c.b.full(planes(shape), gradient->type.dtype, 0), c.b.reshape(indices, planes(indices->type.shape)),
      c.b.reshape(gradient, planes(gradient->type.shape)), static_cast<int>(lead), ReduceFn::Sum);
  c.set(c.b.reshape(y, shape));
}

}  // namespace

std::vector<Row> pooling_rows() {
  return {
      {"aten._adaptive_avg_pool2d.default", adaptive_average},
      {"aten._adaptive_avg_pool3d.default", adaptive_average},
      {"aten.adaptive_avg_pool1d.default", adaptive_average},
      {"aten.adaptive_avg_pool2d.default", adaptive_average},
      {"aten.adaptive_max_pool2d.default", adaptive_max},
      {"aten.adaptive_max_pool3d.default", adaptive_max},
      {"aten.max_pool2d_with_indices_backward.default", max_pool_backward},
  };
}

}  // namespace cuvil::aten
