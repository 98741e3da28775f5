// Convolutions, products, normalisation, pooling.
#include <cmath>
#include <numeric>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

std::vector<int64_t> or_ones(std::vector<int64_t> v, size_t n) {
  return v.empty() ? std::vector<int64_t>(n, 1) : v;
}

// {low…, high…} from pads or auto_pad.
std::vector<int64_t> pads_of(Call& c, const Value* x, const std::vector<int64_t>& window,
                             const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations) {
  size_t spatial = window.size();
  std::string mode = c.text("auto_pad", "NOTSET");
  std::vector<int64_t> pads = c.ints("pads");
  if (mode == "NOTSET" || mode.empty()) {
    if (pads.empty()) pads.assign(2 * spatial, 0);
    if (pads.size() != 2 * spatial) c.fail("pads must have two entries per spatial axis");
    return pads;
  }
  pads.assign(2 * spatial, 0);
  if (mode == "VALID") return pads;
  for (size_t i = 0; i < spatial; ++i) {
    const Dim& size = x->type.shape[i + 2];
    int64_t reach = (window[i] - 1) * dilations[i] + 1, total;
    if (size.is_constant()) {
      int64_t out = (size.value() + strides[i] - 1) / strides[i];
      total = std::max<int64_t>(0, (out - 1) * strides[i] + reach - size.value());
    } else if (strides[i] == 1) {
      total = reach - 1;
    } else {
      c.fail("auto_pad of an axis whose size varies, with a stride, is not supported");
    }
    bool upper = mode == "SAME_UPPER";
    pads[i] = upper ? total / 2 : total - total / 2;
    pads[spatial + i] = total - pads[i];
  }
  return pads;
}

void conv(Call& c) {
  Value* x = c.input(0);
  Value* w = c.input(1);
  if (x->type.rank() < 3 || w->type.rank() != x->type.rank())
    c.fail("input and weight must have one rank of 3 or more");
  size_t spatial = x->type.shape.size() - 2;
  std::vector<int64_t> window, strides = or_ones(c.ints("strides"), spatial),
                               dilations = or_ones(c.ints("dilations"), spatial);
  if (strides.size() != spatial || dilations.size() != spatial)
    c.fail("strides and dilations must have one entry per spatial axis");
  for (size_t i = 0; i < spatial; ++i) {
    if (!w->type.shape[i + 2].is_constant()) c.fail("the kernel's size must be constant");
    window.push_back(w->type.shape[i + 2].value());
  }
  Value* y = c.b.conv(x, w, strides, pads_of(c, x, window, strides, dilations), dilations, c.integer("group", 1));
  if (Value* bias = c.optional_input(2)) y = c.b.add(y, c.b.per_channel(bias, y->type.shape.size()));
  c.set(y);
}

void gemm(Call& c) {
  Value* a = c.input(0);
  Value* b = c.input(1);
  if (c.opset() < 7 && a->type.rank() != 2) c.fail("needs matrices");
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

void batch_normalization(Call& c) {
  if (c.integer("training_mode", 0)) c.fail("training mode is not supported");
  c.set(c.b.batch_norm(c.input(0), c.input(1), c.input(2), c.input(3), c.input(4), c.real("epsilon", 1e-5)));
}

// (Y, Mean, InvStdDev); the statistics are in f32 for half types.
void layer_normalization(Call& c) {
  Value* x = c.input(0);
  DType t = x->type.dtype;
  auto wide = [&](Value* v) { return v && size_of(t) == 2 ? c.b.cast(v, DType::f32) : v; };
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
  Value* wide = size_of(t) == 2 ? c.b.cast(x, DType::f32) : x;
  std::vector<int64_t> axes;
  for (int64_t i = c.axis("axis", -1, x); i < x->type.rank(); ++i) axes.push_back(i);
  Value* factor =
      c.b.unary(Fn::Rsqrt, c.b.binary(Fn::Add, c.b.mean(c.b.mul(wide, wide), axes, true), c.real("epsilon", 1e-5)));
  c.set(c.b.mul(c.b.cast(c.b.mul(wide, factor), t), c.input(1)));
}

void instance_normalization(Call& c) {
  Value* x = c.input(0);
  Value* y = c.b.layer_norm(x, 2, nullptr, nullptr, c.real("epsilon", 1e-5));
  c.set(c.b.add(c.b.mul(y, c.b.per_channel(c.input(1), x->type.shape.size())),
                c.b.per_channel(c.input(2), x->type.shape.size())));
}

void group_normalization(Call& c) {
  Value* x = c.input(0);
  int64_t groups = c.integer("num_groups", 1);
  Value* scale = c.input(1);
  Value* bias = c.input(2);
  if (c.opset() < 21) {
    // One factor per group; spread it over the group's channels.
    auto spread = [&](Value* v) {
      Dim per = floor_div(x->type.shape.at(1), groups);
      return c.b.reshape(c.b.broadcast(c.b.reshape(v, {groups, 1}), {groups, per}), {x->type.shape[1]});
    };
    scale = spread(scale);
    bias = spread(bias);
  }
  c.set(c.b.group_norm(x, groups, scale, bias, c.real("epsilon", 1e-5)));
}

template <bool average>
void pool(Call& c) {
  Value* x = c.input(0);
  std::vector<int64_t> window = c.ints("kernel_shape");
  size_t spatial = window.size();
  if (x->type.shape.size() != spatial + 2) c.fail("kernel_shape must have one entry per spatial axis");
  if (!average && c.node().outputs.size() > 1 && !c.node().outputs[1].empty())
    c.fail("the indices of max pooling are not supported yet");
  std::vector<int64_t> strides = or_ones(c.ints("strides"), spatial), dilations = or_ones(c.ints("dilations"), spatial);
  std::vector<int64_t> pads = pads_of(c, x, window, strides, dilations);
  bool ceil_mode = c.integer("ceil_mode", 0);
  if (average) {
    for (int64_t d : dilations) {
      if (d != 1) c.fail("dilated average pooling is not supported yet");
    }
    c.set(c.b.avg_pool(x, window, strides, pads, ceil_mode, c.integer("count_include_pad", 0) != 0));
  } else {
    c.set(c.b.max_pool(x, window, strides, pads, dilations, ceil_mode));
  }
}

std::vector<int64_t> spatial_axes(const Value* x) {
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < x->type.rank(); ++i) axes.push_back(i);
  return axes;
}
void global_average_pool(Call& c) {
  c.set(c.b.mean(c.input(0), spatial_axes(c.input(0)), true));
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
      {"Gemm", gemm},
      {"GlobalAveragePool", global_average_pool},
      {"GlobalMaxPool", global_max_pool},
      {"GroupNormalization", group_normalization},
      {"InstanceNormalization", instance_normalization},
      {"LayerNormalization", layer_normalization},
      {"MatMul", matmul},
      {"MaxPool", pool<false>},
      {"RMSNormalization", rms_normalization},
  };
}

}  // namespace cuvil::onnx
