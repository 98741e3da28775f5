// Convolutions, products, normalisation, pooling, attention.
#include <cmath>
#include <numeric>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

std::vector<int64_t> both_sides(const std::vector<int64_t>& pads) {
  std::vector<int64_t> both = pads;
  both.insert(both.end(), pads.begin(), pads.end());
  return both;
}

struct ConvArguments {
  std::vector<int64_t> strides, pads, dilations;
  int64_t groups = 1;
  bool transposed = false;
};

void convolve(Call& c, const ConvArguments& arguments) {
  Value* x = c.tensor(0);
  Value* w = c.tensor(1);
  const size_t spatial = w->type.shape.size() - 2;
  const bool unbatched = x->type.shape.size() == spatial + 1;
  if (unbatched) x = c.b.unsqueeze(x, {0});
  const auto& [strides, pads, dilations, groups, transposed] = arguments;
  Value* y = nullptr;
  if (transposed) {
    if (!w->type.is_static()) c.fail("needs a weight of known sizes");
    Shape sizes = c.result_shape();
    sizes.erase(sizes.begin(), sizes.end() - static_cast<long>(spatial));
    y = c.b.conv_transpose(x, w, strides, pads, sizes, dilations, groups);
  } else {
    y = c.b.conv(x, w, strides, both_sides(pads), dilations, groups);
  }
  if (Value* bias = c.optional_tensor(2, "bias")) y = c.b.add(y, c.b.per_channel(bias, spatial + 2));
  c.set(unbatched ? c.b.squeeze(y, {0}) : y);
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
void convolution(Call& c) {
  const size_t spatial = c.tensor(1)->type.shape.size() - 2;
  convolve(c, {c.ints(3, "stride", spatial), c.ints(4, "padding", spatial), c.ints(5, "dilation", spatial),
               c.integer(8, "groups", 1), c.boolean(6, "transposed")});
}

// input, weight, bias, stride, padding, dilation, groups
void conv(Call& c) {
  const size_t spatial = c.tensor(1)->type.shape.size() - 2;
  auto each = [&](size_t position, const char* name, int64_t fallback) {
    return c.has(position, name) ? c.ints(position, name, spatial) : std::vector<int64_t>(spatial, fallback);
  };
  convolve(c, {each(3, "stride", 1), each(4, "padding", 0), each(5, "dilation", 1), c.integer(6, "groups", 1), false});
}

void matmul(Call& c) {
  c.set(c.b.product(c.tensor(0), c.tensor(1)));
}

void linear(Call& c) {
  Value* y = c.b.product(c.tensor(0), c.b.transpose_last(c.tensor(1)));
  if (Value* bias = c.optional_tensor(2, "bias")) y = c.b.add(y, bias);
  c.set(y);
}

// beta · input + alpha · (a × b)
void add_product(Call& c) {
  const DType t = c.work_dtype();
  Value* y = c.b.cast(c.b.product(c.tensor(1), c.tensor(2)), t);
  if (c.has(4, "alpha") && c.real(4, "alpha") != 1) y = c.b.mul(y, c.operand(4, t, "alpha"));
  Value* bias = c.wide(0);
  if (c.has(3, "beta")) {
    double beta = c.real(3, "beta");
    if (beta == 0) {
      c.set(y);
      return;
    }
    if (beta != 1) bias = c.b.mul(bias, c.operand(3, t, "beta"));
  }
  c.set(c.b.add(y, bias));
}

// Half types are normalised in f32, as PyTorch does.
Value* widened(Call& c, Value* v) {
  if (!v) return nullptr;
  return size_of(v->type.dtype) == 2 ? c.b.cast(v, DType::f32) : v;
}

// The second and third output of a normalisation: mean and 1 / sqrt(variance + eps), in their shapes.
void set_statistics(Call& c, Value* x, const std::vector<int64_t>& axes, double epsilon) {
  for (size_t output : {1, 2}) {
    if (!c.is_used(output)) {
      c.skip();
      continue;
    }
    Value* v = c.b.mean(x, axes, true);
    if (output == 2) {
      Value* centred = c.b.sub(x, v);
      v = c.b.unary(Fn::Rsqrt, c.b.binary(Fn::Add, c.b.mean(c.b.mul(centred, centred), axes, true), epsilon));
    }
    c.set(c.b.reshape(v, c.result_shape(output)));
  }
}

// input, normalized_shape, weight, bias, eps → (output, mean, rstd)
void layer_norm(Call& c) {
  Value* x = widened(c, c.tensor(0));
  auto axis = static_cast<int>(x->type.shape.size() - c.sizes(1).size());
  const double epsilon = c.real(4, "eps", 1e-5);
  c.set(c.b.layer_norm(x, axis, widened(c, c.optional_tensor(2, "weight")), widened(c, c.optional_tensor(3, "bias")),
                       epsilon));
  std::vector<int64_t> axes(x->type.shape.size() - static_cast<size_t>(axis));
  std::iota(axes.begin(), axes.end(), axis);
  set_statistics(c, x, axes, epsilon);
}

void rms_norm(Call& c) {
  Value* x = widened(c, c.tensor(0));
  size_t count = c.sizes(1).size(), rank = x->type.shape.size();
  std::vector<int64_t> axes(count);
  std::iota(axes.begin(), axes.end(), static_cast<int64_t>(rank - count));
  double epsilon =
      c.real(3, "eps", c.tensor(0)->type.dtype == DType::f64 ? 2.220446049250313e-16 : 1.1920928955078125e-07);
  Value* y = c.b.mul(x, c.b.unary(Fn::Rsqrt, c.b.binary(Fn::Add, c.b.mean(c.b.mul(x, x), axes, true), epsilon)));
  if (Value* scale = c.optional_tensor(2, "weight")) y = c.b.mul(y, widened(c, scale));
  c.set(y);
}

// input, weight, bias, running_mean, running_var, momentum, eps → (output, …)
void batch_norm_inference(Call& c) {
  const bool empty = c.tensor(0)->type.rank() < 2;
  c.set(empty ? c.tensor(0)
              : c.b.batch_norm(c.wide(0), widened(c, c.optional_tensor(1, "weight")),
                               widened(c, c.optional_tensor(2, "bias")), widened(c, c.tensor(3, "running_mean")),
                               widened(c, c.tensor(4, "running_var")), c.real(6, "eps", 1e-5)));
  // Empty: nothing is saved in inference.
  for (size_t output : {1, 2}) c.set(c.b.full(c.result_shape(output), c.result_dtype(output), 0));
}

// input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled
void batch_norm(Call& c) {
  if (c.boolean(5, "training")) c.fail("batch normalisation by the batch's statistics needs PyTorch's decompositions");
  if (c.tensor(0)->type.rank() < 2) {
    // PyTorch lets an empty vector pass.
    c.set(c.tensor(0));
    return;
  }
  c.set(c.b.batch_norm(c.wide(0), widened(c, c.optional_tensor(1, "weight")), widened(c, c.optional_tensor(2, "bias")),
                       widened(c, c.tensor(3, "running_mean")), widened(c, c.tensor(4, "running_var")),
                       c.real(7, "eps", 1e-5)));
}

// input, weight, bias, training, momentum, eps → (output, …): the batch's own statistics
void batch_norm_of_batch(Call& c) {
  Value* x = widened(c, c.tensor(0));
  std::vector<int64_t> axes{0};
  for (int64_t i = 2; i < x->type.rank(); ++i) axes.push_back(i);
  Value* centred = c.b.sub(x, c.b.mean(x, axes, true));
  Value* variance = c.b.mean(c.b.mul(centred, centred), axes, true);
  Value* y = c.b.mul(centred, c.b.unary(Fn::Rsqrt, c.b.binary(Fn::Add, variance, c.real(5, "eps", 1e-5))));
  const size_t rank = x->type.shape.size();
  if (Value* scale = widened(c, c.optional_tensor(1, "weight"))) y = c.b.mul(y, c.b.per_channel(scale, rank));
  if (Value* bias = widened(c, c.optional_tensor(2, "bias"))) y = c.b.add(y, c.b.per_channel(bias, rank));
  c.set(y);
  set_statistics(c, x, axes, c.real(5, "eps", 1e-5));
}

// input, weight, bias, N, C, HxW, groups, eps → (output, mean, rstd)
void native_group_norm(Call& c) {
  Value* x = widened(c, c.tensor(0));
  const int64_t groups = c.integer(6, "group");
  const double epsilon = c.real(7, "eps");
  c.set(c.b.group_norm(x, groups, widened(c, c.optional_tensor(1, "weight")), widened(c, c.optional_tensor(2, "bias")),
                       epsilon));
  Dim rest = 1;
  for (size_t i = 1; i < x->type.shape.size(); ++i) rest = rest * x->type.shape[i];
  Value* grouped = c.b.reshape(x, {x->type.shape[0], groups, *exact_div(rest, groups)});
  set_statistics(c, grouped, {2}, epsilon);
}
void group_norm(Call& c) {
  c.set(c.b.group_norm(widened(c, c.tensor(0)), c.integer(1, "num_groups"), widened(c, c.optional_tensor(2, "weight")),
                       widened(c, c.optional_tensor(3, "bias")), c.real(4, "eps", 1e-5)));
}

struct Pool {
  Value* x;
  bool unbatched;
  size_t spatial;
  std::vector<int64_t> window, strides;
};
Pool pool_of(Call& c, Value* x, size_t spatial) {
  bool unbatched = x->type.shape.size() == spatial + 1;
  if (unbatched) x = c.b.unsqueeze(x, {0});
  Pool p{x, unbatched, spatial, c.ints(1, "kernel_size", spatial), c.ints(2, "stride", spatial)};
  if (p.strides.empty()) p.strides = p.window;
  return p;
}
std::vector<int64_t> or_default(std::vector<int64_t> v, size_t n, int64_t value) {
  return v.empty() ? std::vector<int64_t>(n, value) : v;
}

template <int spatial>
void max_pool(Call& c) {
  Pool p = pool_of(c, c.tensor(0), spatial);
  std::vector<int64_t> pads = or_default(c.ints(3, "padding", spatial), spatial, 0);
  std::vector<int64_t> dilations = or_default(c.ints(4, "dilation", spatial), spatial, 1);
  if (c.is_used(1)) {
    max_pool_with_indices(c, c.tensor(0), p.window, p.strides, pads, dilations);
    return;
  }
  Value* y = c.b.max_pool(p.x, p.window, p.strides, both_sides(pads), dilations, c.boolean(5, "ceil_mode"));
  c.set(p.unbatched ? c.b.squeeze(y, {0}) : y);
  c.skip();
}

template <int spatial>
void avg_pool(Call& c) {
  Pool p = pool_of(c, c.wide(0), spatial);
  std::vector<int64_t> pads = or_default(c.ints(3, "padding", spatial), spatial, 0);
  Value* y = c.b.avg_pool(p.x, p.window, p.strides, both_sides(pads), c.boolean(4, "ceil_mode"),
                          c.boolean(5, "count_include_pad", true), c.integer(6, "divisor_override", 0));
  c.set(p.unbatched ? c.b.squeeze(y, {0}) : y);
}

// query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
void attention(Call& c) {
  Value* q = c.wide(0);
  Value* k = c.wide(1);
  Value* v = c.wide(2);
  if (c.real(4, "dropout_p", 0) != 0) c.fail("dropout in attention is for training");
  const Dim d = q->type.shape.back();
  double scale = 1;
  if (c.has(6, "scale")) {
    scale = c.real(6, "scale");
  } else if (d.is_constant()) {
    scale = 1 / std::sqrt(static_cast<double>(d.value()));
  } else {
    q = c.b.mul(q, c.b.unary(Fn::Rsqrt, c.b.cast(c.b.dim_value(d), q->type.dtype)));
  }
  if (c.boolean(7, "enable_gqa")) {
    // Each key and value head serves a group of query heads.
    auto spread = [&](Value* x) {
      size_t rank = x->type.shape.size(), heads = rank - 3;
      auto group = exact_div(q->type.shape[heads], x->type.shape[heads]);
      if (!group) c.fail("query heads are not a multiple of key heads");
      Shape ones = x->type.shape, wide, joined = x->type.shape;
      ones.insert(ones.begin() + static_cast<long>(heads) + 1, Dim(1));
      wide = ones;
      wide[heads + 1] = *group;
      joined[heads] = q->type.shape[heads];
      return c.b.reshape(c.b.broadcast(c.b.reshape(x, ones), wide), joined);
    };
    k = spread(k);
    v = spread(v);
  }
  c.set(c.b.attention(q, k, v, c.optional_tensor(3, "attn_mask"), c.boolean(5, "is_causal"), scale));
}

void glu(Call& c) {
  Value* x = c.wide(0);
  int axis = c.axis(1, "dim", x, -1);
  const Dim size = x->type.shape[static_cast<size_t>(axis)];
  Dim half = floor_div(size, 2);
  c.set(c.b.mul(c.b.slice_axis(x, axis, 0, half), c.b.unary(Fn::Sigmoid, c.b.slice_axis(x, axis, half, size))));
}

void pixel_shuffle(Call& c) {
  Value* x = c.tensor(0);
  int64_t r = c.integer(1, "upscale_factor");
  const Shape& s = x->type.shape;
  size_t n = s.size();
  Shape lead(s.begin(), s.end() - 3), split = lead;
  split.insert(split.end(), {floor_div(s[n - 3], r * r), r, r, s[n - 2], s[n - 1]});
  std::vector<int64_t> perm(lead.size());
  std::iota(perm.begin(), perm.end(), 0);
  auto base = static_cast<int64_t>(lead.size());
  for (int64_t p : {0, 3, 1, 4, 2}) perm.push_back(base + p);
  c.set(c.b.reshape(c.b.transpose(c.b.reshape(x, split), perm), c.result_shape()));
}

}  // namespace

std::vector<Row> network_rows() {
  return {
      {"aten.convolution.default", convolution},
      {"aten.mm.default", matmul},
      {"aten.bmm.default", matmul},
      {"aten.mv.default", matmul},
      {"aten.dot.default", matmul},
      {"aten.matmul.default", matmul},
      {"aten.linear.default", linear},
      {"aten.addmm.default", add_product},
      {"aten.addmv.default", add_product},
      {"aten.baddbmm.default", add_product},
      {"aten.conv1d.default", conv},
      {"aten.conv2d.default", conv},
      {"aten.conv3d.default", conv},
      {"aten.batch_norm.default", batch_norm},
      {"aten.native_layer_norm.default", layer_norm},
      {"aten.layer_norm.default", layer_norm},
      {"aten.rms_norm.default", rms_norm},
      {"aten._fused_rms_norm.default", rms_norm},
      {"aten._native_batch_norm_legit_no_training.default", batch_norm_inference},
      {"aten._native_batch_norm_legit.no_stats", batch_norm_of_batch},
      {"aten.native_group_norm.default", native_group_norm},
      {"aten.group_norm.default", group_norm},
      {"aten.max_pool1d.default", max_pool<1>},
      {"aten.max_pool2d.default", max_pool<2>},
      {"aten.max_pool2d_with_indices.default", max_pool<2>},
      {"aten.max_pool3d_with_indices.default", max_pool<3>},
      {"aten.avg_pool1d.default", avg_pool<1>},
      {"aten.avg_pool2d.default", avg_pool<2>},
      {"aten.avg_pool3d.default", avg_pool<3>},
      {"aten.scaled_dot_product_attention.default", attention},
      {"aten.glu.default", glu},
      {"aten.pixel_shuffle.default", pixel_shuffle},
  };
}

}  // namespace cuvil::aten
