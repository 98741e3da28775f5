// Convolutions, products, normalisation, pooling.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "import/onnx/call.hpp"
#include "import/onnx/window.hpp"
#include "ir/linear_algebra.hpp"

namespace cuvil::onnx {

namespace {

Value* per_channel(Call& c, Value* v, const Value* x) {
  if (v->type.rank() != 1 || x->type.rank() < 2) c.fail("needs one number per channel, and channels on axis 1");
  return c.b.per_channel(v, x->type.shape.size());
}

void conv(Call& c) {
  Value* x = c.input(0);
  Value* w = c.input(1);
  if (x->type.rank() < 3 || w->type.rank() != x->type.rank())
    c.fail("input and weight must have one rank of 3 or more");
  Window window = window_of(c, x, kernel_size(c, w));
  int64_t groups = c.integer("group", 1);
  c.require(groups >= 1, "group must be positive");
  Value* y = c.b.conv(x, w, window.strides, window.pads, window.dilations, groups);
  if (Value* bias = c.optional_input(2)) y = c.b.add(y, per_channel(c, bias, y));
  c.set(y);
}

void conv_transpose(Call& c) {
  Value* x = c.input(0);
  Value* w = c.input(1);
  if (x->type.rank() < 3 || w->type.rank() != x->type.rank())
    c.fail("input and weight must have one rank of 3 or more");
  const std::vector<int64_t> kernel = kernel_size(c, w);
  const size_t spatial = kernel.size();
  const int64_t groups = c.integer("group", 1);
  c.require(groups >= 1 && x->type.shape[1].is_constant() && x->type.shape[1] == w->type.shape[0] &&
                x->type.shape[1].value() % groups == 0,
            "the weight's first size must be the input's channels, a multiple of group");
  const std::vector<int64_t> strides = per_axis(c, "strides", spatial), dilations = per_axis(c, "dilations", spatial);
  std::vector<int64_t> extra = c.ints("output_padding"), wanted = c.ints("output_shape"), pads = c.ints("pads");
  if (extra.empty()) extra.assign(spatial, 0);
  if (wanted.size() > spatial) wanted.erase(wanted.begin(), wanted.end() - static_cast<long>(spatial));
  const std::string mode = c.text("auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (pads.empty() || mode == "VALID" || same) pads.assign(2 * spatial, 0);
  c.require(extra.size() == spatial && pads.size() == 2 * spatial && (wanted.empty() || wanted.size() == spatial),
            "output_padding, output_shape and pads must fit the number of spatial axes");
  std::vector<int64_t> low(spatial);
  std::vector<Dim> sizes(spatial);
  for (size_t i = 0; i < spatial; ++i) {
    const Dim& n = x->type.shape[i + 2];
    const Dim full = (n - 1) * strides[i] + extra[i] + dilations[i] * (kernel[i] - 1) + 1;
    if (wanted.empty() && !same) {
      low[i] = pads[i];
      sizes[i] = full - pads[i] - pads[spatial + i];
      continue;
    }
    sizes[i] = wanted.empty() ? n * strides[i] : Dim(wanted[i]);
    const Dim total = full - sizes[i];
    c.require(total.is_constant(), "output_shape of an axis whose size varies is not supported");
    const int64_t cut = std::max<int64_t>(0, total.value());
    low[i] = mode == "SAME_UPPER" ? cut / 2 : cut - cut / 2;
  }
  Value* y = c.b.conv_transpose(x, w, strides, low, sizes, dilations, groups);
  if (Value* bias = c.optional_input(2)) y = c.b.add(y, per_channel(c, bias, y));
  c.set(y);
}

void gemm(Call& c) {
  Value* a = c.input(0);
  Value* b = c.input(1);
  c.require(a->type.rank() == 2 && b->type.rank() == 2, "needs matrices");
  if (c.integer("transA", 0)) a = c.b.transpose_last(a);
  if (c.integer("transB", 0)) b = c.b.transpose_last(b);
  double alpha = c.real("alpha", 1), beta = c.real("beta", 1);
  Value* y = c.b.matmul(a, b);
  DType t = y->type.dtype;
  if (alpha != 1) y = c.b.mul(y, c.number(t, alpha));
  if (Value* bias = c.optional_input(2); bias && beta != 0) {
    if (beta != 1) bias = c.b.mul(bias, c.number(t, beta));
    y = c.b.add(y, bias);
  }
  c.set(y);
}

void matmul(Call& c) {
  c.set(c.b.product(c.input(0), c.input(1)));
}

// Half types are computed in f32.
Value* widen(Call& c, Value* v) {
  return v && size_of(v->type.dtype) == 2 && is_float(v->type.dtype) ? c.b.cast(v, DType::f32) : v;
}

void batch_normalization(Call& c) {
  Value* x = c.input(0);
  if (!c.integer("spatial", 1)) c.fail("statistics per element (spatial = 0) are not supported");
  Value* wide = widen(c, x);
  Value* parts[4];
  for (size_t i = 0; i < 4; ++i) {
    parts[i] = c.b.cast(c.input(i + 1), wide->type.dtype);
    c.require(parts[i]->type.rank() == 1 && x->type.rank() >= 2,
              "needs one number per channel, and channels on axis 1");
  }
  const bool training = c.integer("training_mode", 0) != 0;
  Value *mean = parts[2], *variance = parts[3];
  if (training) {
    std::vector<int64_t> axes = {0};
    for (int64_t i = 2; i < x->type.rank(); ++i) axes.push_back(i);
    Value* centre = c.b.mean(wide, axes, true);
    Value* deviation = c.b.sub(wide, centre);
    mean = c.b.squeeze(centre, axes);
    variance = c.b.mean(c.b.mul(deviation, deviation), axes, false);
  }
  Value* y = c.b.batch_norm(wide, parts[0], parts[1], mean, variance, c.real("epsilon", 1e-5));
  c.set(c.b.cast(y, x->type.dtype));
  if (!training) return;
  const double keep = c.real("momentum", 0.9);
  auto running = [&](size_t i, Value* now) {
    Value* old = c.b.binary(Fn::Mul, parts[i - 1], keep);
    c.set(c.b.cast(c.b.add(old, c.b.binary(Fn::Mul, now, 1 - keep)), c.input(i)->type.dtype));
  };
  running(3, mean);
  running(4, variance);
}

// (Y, Mean, InvStdDev); the statistics are in f32 for half types.
void layer_normalization(Call& c) {
  Value* x = c.input(0);
  DType t = x->type.dtype;
  auto wide = [&](Value* v) { return widen(c, v); };
  auto axis = static_cast<int>(c.axis("axis", -1, x));
  double epsilon = c.real("epsilon", 1e-5);
  c.set(c.b.cast(c.b.layer_norm(wide(x), axis, wide(c.input(1)), wide(c.optional_input(2)), epsilon), t));
  if (c.node().outputs.size() < 2) return;
  std::vector<int64_t> axes;
  for (int64_t i = axis; i < x->type.rank(); ++i) axes.push_back(i);
  Value* mean = c.b.mean(wide(x), axes, true);
  Value* centred = c.b.sub(wide(x), mean);
  c.set(mean);
  c.set(c.b.unary(Fn::Rsqrt, c.b.binary(Fn::Add, c.b.mean(c.b.mul(centred, centred), axes, true), epsilon)));
}

void rms_normalization(Call& c) {
  Value* x = c.input(0);
  DType t = x->type.dtype;
  Value* wide = widen(c, x);
  std::vector<int64_t> axes;
  for (int64_t i = c.axis("axis", -1, x); i < x->type.rank(); ++i) axes.push_back(i);
  Value* factor =
      c.b.unary(Fn::Rsqrt, c.b.binary(Fn::Add, c.b.mean(c.b.mul(wide, wide), axes, true), c.real("epsilon", 1e-5)));
  c.set(c.b.mul(c.b.cast(c.b.mul(wide, factor), t), c.input(1)));
}

void instance_normalization(Call& c) {
  Value* x = c.input(0);
  c.require(x->type.rank() >= 3, "needs an input of rank 3 or more");
  Value* y = c.b.layer_norm(x, 2, nullptr, nullptr, c.real("epsilon", 1e-5));
  c.set(c.b.add(c.b.mul(y, per_channel(c, c.input(1), x)), per_channel(c, c.input(2), x)));
}

void group_normalization(Call& c) {
  Value* x = c.input(0);
  int64_t groups = c.integer("num_groups", 1);
  c.require(x->type.rank() >= 3 && groups >= 1, "needs an input of rank 3 or more, in groups");
  Value* scale = c.input(1);
  Value* bias = c.input(2);
  if (c.opset() < 21) {
    // One factor per group; spread it over the group's channels.
    auto spread = [&](Value* v) {
      Dim per = floor_div(x->type.shape[1], groups);
      return c.b.reshape(c.b.broadcast(c.b.reshape(v, {groups, 1}), {groups, per}), {x->type.shape[1]});
    };
    scale = spread(scale);
    bias = spread(bias);
  }
  c.require(scale->type.rank() == 1 && bias->type.rank() == 1, "scale and bias must be vectors");
  c.set(c.b.group_norm(x, groups, scale, bias, c.real("epsilon", 1e-5)));
}

// Positions of the largest elements in the whole input, counted along rows or, with storage_order, along columns.
Value* pool_indices(Call& c, Value* x, const Value* y, const Window& w) {
  Builder& b = c.b;
  std::vector<Value*> at = b.max_pool_positions(x, y, w.size, w.strides, w.pads, w.dilations);
  std::vector<Dim> sizes(x->type.shape.begin() + 2, x->type.shape.end());
  if (c.integer("storage_order", 0)) {
    std::reverse(at.begin(), at.end());
    std::reverse(sizes.begin(), sizes.end());
  }
  const Shape& shape = y->type.shape;
  Value* index = b.add(b.mul(b.iota(shape, 0, DType::i64), b.dim_value(shape[1])), b.iota(shape, 1, DType::i64));
  for (size_t i = 0; i < at.size(); ++i) index = b.add(b.mul(index, b.dim_value(sizes[i])), at[i]);
  return index;
}

template <bool average>
void pool(Call& c) {
  Value* x = c.input(0);
  Window w = window_of(c, x, c.ints("kernel_shape"));
  bool ceil_mode = c.integer("ceil_mode", 0);
  if (average) {
    bool whole = c.integer("count_include_pad", 0) != 0;
    c.set(c.b.avg_pool(x, w.size, w.strides, w.pads, ceil_mode, whole, 0, w.dilations));
  } else {
    Value* y = c.b.max_pool(x, w.size, w.strides, w.pads, w.dilations, ceil_mode);
    c.set(y);
    if (c.node().outputs.size() > 1 && !c.node().outputs[1].empty()) c.set(pool_indices(c, x, y, w));
  }
}

// x / (bias + alpha / size · sum of squares over a window of channels) ^ beta
void local_response_normalization(Call& c) {
  Value* x = c.input(0);
  int64_t size = c.integer("size", 0);
  c.require(x->type.rank() >= 2 && size >= 1 && size <= INT32_MAX, "needs channels and a positive size");
  size_t rank = x->type.shape.size();
  std::vector<Dim> low(rank, Dim(0)), high(rank, Dim(0));
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - (size - 1) / 2;
  std::vector<int64_t> window(rank - 1, 1), ones(rank - 1, 1);
  window[0] = size;
  Value* squares = c.b.pad(c.b.mul(x, x), low, high, 0);
  Value* sum = c.b.window_reduce(ReduceFn::Sum, squares, window, ones, ones);
  Value* scaled = c.b.binary(Fn::Mul, sum, c.real("alpha", 1e-4) / static_cast<double>(size));
  Value* base = c.b.binary(Fn::Add, scaled, c.real("bias", 1));
  c.set(c.b.div(x, c.b.binary(Fn::Pow, base, c.real("beta", 0.75))));
}

// x / ‖x‖ₚ along an axis; 0 where the norm is.
void lp_normalization(Call& c) {
  Value* x = c.input(0);
  int64_t axis = c.axis("axis", -1, x), p = c.integer("p", 2);
  c.require(p == 1 || p == 2, "p must be 1 or 2");
  Value* powers = p == 1 ? c.b.unary(Fn::Abs, x) : c.b.mul(x, x);
  Value* norm = c.b.reduce(ReduceFn::Sum, powers, {axis}, true);
  if (p == 2) norm = c.b.unary(Fn::Sqrt, norm);
  Value* zero = c.zero(x->type.dtype);
  c.set(c.b.select(c.b.binary(Fn::Eq, norm, zero), zero, c.b.div(x, norm)));
}

void mean_variance_normalization(Call& c) {
  Value* x = c.input(0);
  std::vector<int64_t> axes = c.ints("axes", {0, 2, 3});
  Value* centred = c.b.sub(x, c.b.mean(x, axes, true));
  Value* deviation = c.b.unary(Fn::Sqrt, c.b.mean(c.b.mul(centred, centred), axes, true));
  c.set(c.b.div(centred, c.b.binary(Fn::Add, deviation, 1e-9)));
}

std::vector<int64_t> spatial_axes(const Value* x) {
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < x->type.rank(); ++i) axes.push_back(i);
  return axes;
}
void global_average_pool(Call& c) {
  c.set(c.b.mean(c.input(0), spatial_axes(c.input(0)), true));
}
void det(Call& c) {
  c.set(determinant(c.b, c.input(0)));
}
void global_max_pool(Call& c) {
  c.set(c.b.reduce(ReduceFn::Max, c.input(0), spatial_axes(c.input(0)), true));
}

}  // namespace

std::vector<Row> network_rows() {
  return {
      {"AveragePool", pool<true>},
      {"BatchNormalization", batch_normalization},
      {"Conv", conv},
      {"ConvTranspose", conv_transpose},
      {"Det", det},
      {"Gemm", gemm},
      {"GlobalAveragePool", global_average_pool},
      {"GlobalMaxPool", global_max_pool},
      {"GroupNormalization", group_normalization},
      {"InstanceNormalization", instance_normalization},
      {"LRN", local_response_normalization},
      {"LayerNormalization", layer_normalization},
      {"LpNormalization", lp_normalization},
      {"MatMul", matmul},
      {"MaxPool", pool<false>},
      {"MeanVarianceNormalization", mean_variance_normalization},
      {"RMSNormalization", rms_normalization},
  };
}

}  // namespace cuvil::onnx
