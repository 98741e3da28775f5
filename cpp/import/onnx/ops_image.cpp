// Operators that resample, cut and arrange images and volumes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "import/onnx/call.hpp"
#include "import/onnx/window.hpp"
#include "ir/resample.hpp"

namespace cuvil::onnx {

namespace {

std::vector<double> constant_numbers(Call& c, size_t i) {
  const Tensor* t = constant_of(c.input(i));
  if (!t) c.fail_unknown(i);
  std::vector<double> list;
  for (int64_t k = 0; k < t->num_elements(); ++k) list.push_back(t->get_double(k));
  return list;
}

// floor(size · factor); a float is a fraction whose denominator is a power of two.
Dim scaled(Call& c, const Dim& size, double factor) {
  c.require(factor > 0 && factor < 1e6, "a scale must be positive");
  int exponent = 0;
  double whole = factor;
  while (whole != std::floor(whole) && exponent < 40) {
    whole *= 2;
    ++exponent;
  }
  return floor_div(size * static_cast<int64_t>(whole), int64_t{1} << exponent);
}

struct Resizing {
  std::vector<Dim> sizes;
  std::vector<Value*> scales;                // f64
  std::vector<std::optional<double>> known;  // the same where constant
  std::vector<double> roi_start, roi_end;
};

// How the operator's four optional inputs and its axes say what to do on each axis.
Resizing resizing_of(Call& c, Value* x) {
  const Shape& shape = x->type.shape;
  const size_t rank = shape.size();
  const bool attributes = c.opset() < 9 && c.attribute("scales");
  const size_t scales_at = c.opset() < 11 ? 1 : 2;
  std::vector<int64_t> axes = c.ints("axes");
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  Resizing r{shape, std::vector<Value*>(rank, nullptr), std::vector<std::optional<double>>(rank, 1.0),
             std::vector<double>(rank, 0), std::vector<double>(rank, 1)};
  auto axis_of = [&](size_t i) { return static_cast<size_t>(c.wrap_axis(axes[i], static_cast<int64_t>(rank))); };
  auto present = [&](size_t i) {
    Value* v = c.optional_input(i);
    return v && v->type.num_elements() != Dim(0);
  };
  if (c.opset() >= 11 && c.text("coordinate_transformation_mode", "") == "tf_crop_and_resize") {
    const std::vector<double> roi = constant_numbers(c, 1);
    c.require(roi.size() == 2 * axes.size(), "roi must have two numbers per axis");
    for (size_t i = 0; i < axes.size(); ++i) {
      r.roi_start[axis_of(i)] = roi[i];
      r.roi_end[axis_of(i)] = roi[axes.size() + i];
    }
  }
  if (attributes || present(scales_at)) {
    const std::vector<double> scales = attributes ? c.reals("scales") : constant_numbers(c, scales_at);
    c.require(scales.size() == axes.size(), "needs one scale per axis");
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t axis = axis_of(i);
      r.known[axis] = scales[i];
      r.scales[axis] = c.b.scalar(DType::f64, scales[i]);
      r.sizes[axis] = scaled(c, shape[axis], scales[i]);
    }
    return r;
  }
  c.require(present(3), "needs scales or sizes");
  if (c.integer("antialias", 0) && !c.sizes_of(c.input(3))) c.fail_unknown(3);
  Shape wanted = c.shape(3);
  c.require(wanted.size() == axes.size(), "needs one size per axis");
  const std::string policy = c.text("keep_aspect_ratio_policy", "stretch");
  std::optional<double> common;
  if (policy != "stretch") {
    c.require(policy == "not_larger" || policy == "not_smaller", "keep_aspect_ratio_policy is not known");
    for (size_t i = 0; i < axes.size(); ++i) {
      c.require(shape[axis_of(i)].is_constant(), "keeping the aspect ratio needs constant input sizes");
      if (!wanted[i].is_constant()) c.fail_unknown(3);
      const double s = static_cast<double>(wanted[i].value()) / static_cast<double>(shape[axis_of(i)].value());
      common = !common ? s : policy == "not_larger" ? std::min(*common, s) : std::max(*common, s);
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t axis = axis_of(i);
    if (common) {
      r.known[axis] = common;
      r.scales[axis] = c.b.scalar(DType::f64, *common);
      r.sizes[axis] = static_cast<int64_t>(*common * static_cast<double>(shape[axis].value()) + 0.5);
      continue;
    }
    r.sizes[axis] = wanted[i];
    if (wanted[i] == shape[axis]) continue;
    r.known[axis] = std::nullopt;
    if (wanted[i].is_constant() && shape[axis].is_constant()) {
      r.known[axis] = static_cast<double>(wanted[i].value()) / static_cast<double>(shape[axis].value());
      r.scales[axis] = c.b.scalar(DType::f64, *r.known[axis]);
    } else {
      auto real = [&](const Dim& d) { return c.b.cast(c.b.dim_value(d), DType::f64); };
      r.scales[axis] = c.b.div(real(wanted[i]), real(shape[axis]));
    }
  }
  return r;
}

// Where each element of the result lies on the axis of the input, in f64.
Value* positions_on_axis(Call& c, const std::string& mode, const Resizing& r, size_t axis, const Dim& before) {
  Builder& b = c.b;
  const Dim& after = r.sizes[axis];
  Value* scale = r.scales[axis];
  auto number = [&](double v) { return b.scalar(DType::f64, v); };
  Value* n = b.cast(b.dim_value(before), DType::f64);
  Value* width = b.mul(scale, n);
  Value* i = b.iota({after}, 0, DType::f64);
  auto half_pixel = [&] { return b.sub(b.div(b.add(i, number(0.5)), scale), number(0.5)); };
  Value* single = b.binary(Fn::Eq, width, number(1));
  Value* steps = b.select(single, number(1), b.sub(width, number(1)));
  if (mode == "half_pixel") return half_pixel();
  if (mode == "asymmetric") return b.div(i, scale);
  if (mode == "tf_half_pixel_for_nn") return b.div(b.add(i, number(0.5)), scale);
  if (mode == "pytorch_half_pixel") return b.select(single, number(-0.5), half_pixel());
  if (mode == "align_corners") {
    return b.select(single, number(0), b.div(b.mul(i, b.sub(n, number(1))), steps));
  }
  if (mode == "half_pixel_symmetric") {
    Value* adjustment = b.div(b.cast(b.dim_value(after), DType::f64), width);
    return b.add(b.mul(b.mul(n, number(0.5)), b.sub(number(1), adjustment)), half_pixel());
  }
  if (mode == "tf_crop_and_resize") {
    const double start = r.roi_start[axis], span = r.roi_end[axis] - start;
    Value* last = b.sub(n, number(1));
    Value* along = b.div(b.mul(b.mul(i, number(span)), last), steps);
    return b.add(b.select(single, b.mul(last, number(span / 2)), along), b.mul(number(start), last));
  }
  c.fail("coordinate_transformation_mode '" + mode + "' is not known");
}

void resize(Call& c) {
  Value* x = c.input(0);
  const std::string mode = c.text("mode", "nearest");
  Interpolation how;
  if (mode == "nearest") {
    how.kind = Interpolation::Kind::Nearest;
  } else if (mode == "linear" || mode == "bilinear" || mode == "trilinear") {
    how.kind = Interpolation::Kind::Linear;
  } else if (mode == "cubic") {
    how.kind = Interpolation::Kind::Cubic;
  } else {
    c.fail("mode '" + mode + "' is not known");
  }
  const bool old = c.opset() < 11;  // also Upsample
  const std::string rounding = c.text("nearest_mode", old ? "floor" : "round_prefer_floor");
  how.round = rounding == "floor"               ? Interpolation::Round::Floor
              : rounding == "ceil"              ? Interpolation::Round::Ceil
              : rounding == "round_prefer_ceil" ? Interpolation::Round::PreferCeil
                                                : Interpolation::Round::PreferFloor;
  how.cubic_a = c.real("cubic_coeff_a", -0.75);
  how.exclude_outside = c.integer("exclude_outside", 0) != 0;
  const bool antialias = c.integer("antialias", 0) != 0;
  const std::string transformation = c.text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  const Resizing r = resizing_of(c, x);
  const double outside = c.real("extrapolation_value", 0);
  for (size_t axis = 0; axis < r.sizes.size(); ++axis) {
    const Dim before = x->type.shape[axis];
    const bool whole = r.roi_start[axis] == 0 && r.roi_end[axis] == 1;
    if (!r.scales[axis] || (r.known[axis] == 1.0 && r.sizes[axis] == before && whole)) continue;
    Value* positions = positions_on_axis(c, transformation, r, axis, before);
    if (antialias) {
      if (!r.known[axis]) c.fail("antialias needs sizes that are known at compile time");
      how.antialias_scale = *r.known[axis];
    }
    Value* y = interpolate_axis(c.b, x, static_cast<int>(axis), positions, how);
    if (transformation == "tf_crop_and_resize") {
      Value* last = c.b.cast(c.b.dim_value(before - 1), DType::f64);
      Value* off = c.b.binary(Fn::Or, c.b.binary(Fn::Lt, positions, c.b.scalar(DType::f64, 0)),
                              c.b.binary(Fn::Gt, positions, last));
      Shape along(r.sizes.size() - axis, Dim(1));
      along[0] = r.sizes[axis];
      y = c.b.select(c.b.reshape(off, along), c.number(y->type.dtype, outside), y);
    }
    x = y;
  }
  c.set(x);
}

void grid_sample_op(Call& c) {
  GridSampling how;
  const std::string mode = c.text("mode", "linear"), padding = c.text("padding_mode", "zeros");
  using Kind = Interpolation::Kind;
  how.kind = mode == "nearest" ? Kind::Nearest : mode == "cubic" || mode == "bicubic" ? Kind::Cubic : Kind::Linear;
  how.padding = padding == "border"       ? GridSampling::Padding::Border
                : padding == "reflection" ? GridSampling::Padding::Reflection
                                          : GridSampling::Padding::Zeros;
  how.align_corners = c.integer("align_corners", 0) != 0;
  c.set(grid_sample(c.b, c.input(0), c.input(1), how));
}

void affine_grid(Call& c) {
  Builder& b = c.b;
  Value* theta = c.input(0);
  const Shape size = c.shape(1);
  c.require(size.size() == 4 || size.size() == 5, "size must have 4 or 5 elements");
  const bool align = c.integer("align_corners", 0) != 0;
  const size_t spatial = size.size() - 2;
  const DType t = theta->type.dtype;
  const Shape places(size.begin() + 2, size.end());
  std::vector<Value*> columns;
  for (size_t i = spatial; i-- > 0;) {  // x, y, z
    const Dim& n = places[i];
    auto number = [&](const Dim& d) { return b.cast(b.dim_value(d), t); };
    Value* at = b.iota(places, static_cast<int>(i), t);
    Value* p;
    if (align) {
      p = b.sub(b.div(b.binary(Fn::Mul, at, 2), number(maximum(n - 1, 1))), b.scalar(t, 1));
    } else {
      p = b.sub(b.div(b.binary(Fn::Add, b.binary(Fn::Mul, at, 2), 1), number(n)), b.scalar(t, 1));
    }
    columns.push_back(b.reshape(p, {p->type.num_elements(), 1}));
  }
  columns.push_back(b.full({columns[0]->type.shape[0], 1}, t, 1));
  Value* y = b.matmul(b.concat(columns, 1), b.transpose_last(theta));
  Shape out = {size[0]};
  out.insert(out.end(), places.begin(), places.end());
  out.push_back(static_cast<int64_t>(spatial));
  c.set(b.reshape_checked(y, out));
}

void center_crop_pad(Call& c) {
  Value* x = c.input(0);
  const Shape wanted = c.shape(1);
  std::vector<int64_t> axes = c.ints("axes");
  if (axes.empty()) {
    axes.resize(x->type.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  c.require(axes.size() == wanted.size(), "needs one size per axis");
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(c.wrap_axis(axes[i], x->type.rank()));
    const Dim have = x->type.shape[axis];
    // What goes on each side when the difference is odd: a crop keeps more at the start, a pad adds more at the end.
    const Dim more = maximum(wanted[i] - have, 0), less = maximum(have - wanted[i], 0);
    const Dim start = floor_div(less, 2);
    x = c.b.slice_axis(x, static_cast<int>(axis), start, have - (less - start));
    std::vector<Dim> low(x->type.shape.size(), Dim(0)), high = low;
    low[axis] = floor_div(more, 2);
    high[axis] = more - low[axis];
    x = c.b.pad(x, low, high, 0);
    Shape shape = x->type.shape;
    shape[axis] = wanted[i];
    x = c.b.reshape_checked(x, shape);
  }
  c.set(x);
}

// Sums columns of windows into the image they came from.
void col2im(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  const std::vector<int64_t> image = c.constants(1), block = c.constants(2);
  const size_t spatial = image.size();
  c.require(block.size() == spatial && x->type.rank() == 3,
            "block_shape must fit image_shape, and the input have rank 3");
  const std::vector<int64_t> strides = per_axis(c, "strides", spatial), dilations = per_axis(c, "dilations", spatial);
  std::vector<int64_t> pads = c.ints("pads", std::vector<int64_t>(2 * spatial, 0));
  c.require(pads.size() == 2 * spatial, "needs two pads per axis");
  int64_t elements = 1;
  Shape columns = {x->type.shape[0], 0};
  for (int64_t k : block) {
    elements *= k;
    columns.emplace_back(k);
  }
  const Dim channels = floor_div(x->type.shape[1], elements);
  columns[1] = channels;
  Shape padded = {x->type.shape[0], channels};
  std::vector<Value*> positions;
  std::vector<int64_t> steps;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t whole = image[i] + pads[i] + pads[spatial + i];
    padded.emplace_back(whole);
    steps.push_back((whole - dilations[i] * (block[i] - 1) - 1) / strides[i] + 1);
    columns.emplace_back(steps.back());
  }
  x = b.reshape(x, columns);
  // Position of each (offset in the window, step) pair on its axis.
  for (size_t i = 0; i < spatial; ++i) {
    Shape shape(2 * spatial, Dim(1));
    shape[i] = block[i];
    shape[spatial + i] = steps[i];
    auto along = [&](size_t axis, int64_t factor) {
      return b.mul(b.iota(shape, static_cast<int>(axis), DType::i64), b.scalar_int(DType::i64, factor));
    };
    positions.push_back(b.add(along(i, dilations[i]), along(spatial + i, strides[i])));
  }
  Value* y = b.scatter_joint(b.full(padded, x->type.dtype, 0), 2, positions, x, ReduceFn::Sum);
  for (size_t i = 0; i < spatial; ++i) y = b.slice_axis(y, static_cast<int>(i + 2), pads[i], pads[i] + image[i]);
  c.set(y);
}

void lp_pool(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  const std::vector<int64_t> kernel = c.ints("kernel_shape");
  const Window window = window_of(c, x, kernel);
  const double p = c.opset() < 2 ? c.real("p", 2) : static_cast<double>(c.integer("p", 2));
  const DType t = x->type.dtype;
  Value* powers = b.binary(Fn::Pow, b.unary(Fn::Abs, x), b.scalar(t, p));
  int64_t count = 1;
  for (int64_t k : kernel) count *= k;
  // A mean that counts padding, times the window's size, is the sum.
  Value* sum = b.avg_pool(powers, kernel, window.strides, window.pads, c.integer("ceil_mode", 0) != 0, true, 1,
                          window.dilations);
  c.set(b.binary(Fn::Pow, sum, b.scalar(t, 1 / p)));
}

void global_lp_pool(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  const DType t = x->type.dtype;
  const double p = static_cast<double>(c.integer("p", 2));
  std::vector<int64_t> axes(static_cast<size_t>(x->type.rank()) - 2);
  std::iota(axes.begin(), axes.end(), 2);
  Value* sum = b.reduce(ReduceFn::Sum, b.binary(Fn::Pow, b.unary(Fn::Abs, x), b.scalar(t, p)), axes, true);
  c.set(b.binary(Fn::Pow, sum, b.scalar(t, 1 / p)));
}

void max_unpool(Call& c) {
  Builder& b = c.b;
  Value *x = c.input(0), *index = c.input(1);
  const Shape& shape = x->type.shape;
  const std::vector<int64_t> kernel = c.ints("kernel_shape");
  const size_t spatial = kernel.size();
  const std::vector<int64_t> strides = per_axis(c, "strides", spatial);
  const std::vector<int64_t> pads = c.ints("pads", std::vector<int64_t>(2 * spatial, 0));
  Shape natural = {shape[0], shape[1]};
  for (size_t i = 0; i < spatial; ++i) {
    natural.push_back((shape[i + 2] - 1) * strides[i] - pads[i] - pads[spatial + i] + kernel[i]);
  }
  // Indices count through the natural shape; a larger output_shape only pads.
  Value* flat = b.full({Type{DType::i64, natural}.num_elements()}, x->type.dtype, 0);
  Value* where = b.reshape(index, {index->type.num_elements()});
  Shape wanted = natural;
  if (c.optional_input(2)) {
    wanted = c.shape(2);
    c.require(wanted.size() == natural.size(), "output_shape must have the input's rank");
    flat = b.full({Type{DType::i64, wanted}.num_elements()}, x->type.dtype, 0);
    // In the wanted shape the same coordinates have another position.
    Value* rest = where;
    Value* moved = b.scalar_int(DType::i64, 0);
    Dim from = Type{DType::i64, natural}.num_elements(), to = Type{DType::i64, wanted}.num_elements();
    for (size_t i = 0; i < natural.size(); ++i) {
      from = *exact_div(from, natural[i]);
      to = *exact_div(to, wanted[i]);
      Value* at = b.div(rest, b.dim_value(from));
      rest = b.sub(rest, b.mul(at, b.dim_value(from)));
      moved = b.add(moved, b.mul(at, b.dim_value(to)));
    }
    where = moved;
  }
  Value* y = b.scatter(flat, where, b.reshape(x, {x->type.num_elements()}), 0);
  c.set(b.reshape(y, wanted));
}

void deform_conv(Call& c) {
  Builder& b = c.b;
  Value *x = c.input(0), *w = c.input(1), *offset = c.input(2);
  Value *bias = c.optional_input(3), *mask = c.optional_input(4);
  c.require(x->type.rank() == 4 && w->type.rank() == 4, "only images of two spatial axes are supported");
  const std::vector<int64_t> kernel = kernel_size(c, w);
  const int64_t kh = kernel[0], kw = kernel[1];
  const std::vector<int64_t> strides = per_axis(c, "strides", 2), dilations = per_axis(c, "dilations", 2);
  const std::vector<int64_t> pads = c.ints("pads", {0, 0, 0, 0});
  const int64_t groups = c.integer("group", 1), sets = c.integer("offset_group", 1);
  const Shape& xs = x->type.shape;
  const Dim oh = offset->type.shape[2], ow = offset->type.shape[3];
  c.require(xs[1].is_constant() && xs[1].value() % sets == 0, "the channels must be a multiple of offset_group");
  const int64_t per_set = xs[1].value() / sets;
  const DType t = x->type.dtype;
  const Shape places = {xs[0], sets, kh, kw, oh, ow};
  Value* moves = b.reshape(offset, {xs[0], sets, kh, kw, 2, oh, ow});
  Value* images = b.reshape(x, {xs[0] * sets, per_set, xs[2], xs[3]});
  auto position = [&](int which, size_t kernel_axis) {
    Value* move = b.reshape(b.slice_axis(moves, 4, which, which + 1), places);
    const auto axis = static_cast<int>(kernel_axis);
    Value* base =
        b.binary(Fn::Add, b.binary(Fn::Mul, b.iota(places, 4 + axis, t), static_cast<double>(strides[kernel_axis])),
                 static_cast<double>(-pads[kernel_axis]));
    Value* tap = b.binary(Fn::Mul, b.iota(places, 2 + axis, t), static_cast<double>(dilations[kernel_axis]));
    return b.add(b.add(base, tap), move);
  };
  // As a grid whose ends are the outer elements' centres.
  auto normalized = [&](Value* p, const Dim& size) {
    Value* half = b.binary(Fn::Mul, b.cast(b.dim_value(maximum(size - 1, 1)), t), 0.5);
    return b.reshape(b.sub(b.div(p, half), b.scalar(t, 1)), {xs[0] * sets, kh * kw, oh * ow, 1});
  };
  Value* grid = b.concat({normalized(position(1, 1), xs[3]), normalized(position(0, 0), xs[2])}, 3);
  GridSampling how;
  how.align_corners = true;
  Value* taps = grid_sample(b, images, grid, how);  // [n · sets, per_set, kh · kw, oh · ow]
  taps = b.reshape(taps, {xs[0], sets, per_set, kh * kw, oh * ow});
  if (mask) taps = b.mul(taps, b.reshape(mask, {xs[0], sets, 1, kh * kw, oh * ow}));
  const Dim in_group = floor_div(xs[1], groups), out = w->type.shape[0], out_group = floor_div(out, groups);
  taps = b.reshape(taps, {xs[0], groups, in_group * (kh * kw), oh * ow});
  Value* y = b.matmul(b.reshape(w, {1, groups, out_group, in_group * (kh * kw)}), taps);
  y = b.reshape(y, {xs[0], out, oh, ow});
  if (bias) y = b.add(y, b.per_channel(bias, 4));
  c.set(y);
}

void roi_align(Call& c) {
  Builder& b = c.b;
  Value *x = c.input(0), *rois = c.input(1), *batch = b.cast(c.input(2), DType::i64);
  const bool average = c.text("mode", "avg") == "avg";
  const bool half_pixel =
      c.text("coordinate_transformation_mode", c.opset() < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const int64_t oh = c.integer("output_height", 1), ow = c.integer("output_width", 1);
  const int64_t ratio = c.integer("sampling_ratio", 0);
  c.require(ratio > 0, "a sampling_ratio of 0 makes the number of samples depend on the boxes, which is not supported");
  const double scale = c.real("spatial_scale", 1);
  const DType t = x->type.dtype;
  const Dim n = rois->type.shape[0];
  const Shape& xs = x->type.shape;
  auto corner = [&](int64_t i) {
    Value* v = b.reshape(b.slice_axis(rois, 1, i, i + 1), {n, 1, 1, 1, 1});
    return b.binary(Fn::Sub, b.binary(Fn::Mul, v, scale), half_pixel ? 0.5 : 0.0);
  };
  const Shape places = {n, oh, ow, ratio, ratio};
  auto positions = [&](int64_t low, int64_t high, int axis, int64_t bins) {
    Value* start = corner(low);
    Value* span = b.sub(corner(high), start);
    if (!half_pixel) span = b.binary(Fn::Max, span, 1.0);
    Value* bin = b.binary(Fn::Div, span, static_cast<double>(bins));
    Value* inner = b.binary(Fn::Div, b.binary(Fn::Add, b.iota(places, axis + 2, t), 0.5), static_cast<double>(ratio));
    return b.add(start, b.mul(bin, b.add(b.iota(places, axis, t), inner)));
  };
  Value* y = positions(1, 3, 1, oh);
  Value* w = positions(0, 2, 2, ow);
  auto size = [&](size_t axis) { return b.cast(b.dim_value(xs[axis]), t); };
  auto outside = [&](Value* p, size_t axis) {
    return b.binary(Fn::Or, b.binary(Fn::Lt, p, b.scalar(t, -1)), b.binary(Fn::Gt, p, size(axis)));
  };
  Value* off = b.binary(Fn::Or, outside(y, 2), outside(w, 3));
  struct Axis {
    Value *low, *high, *fraction;
  };
  auto neighbours = [&](Value* p, size_t axis) {
    Value* last = b.dim_value(xs[axis] - 1);
    Value* real_last = b.cast(last, t);
    p = b.binary(Fn::Min, b.binary(Fn::Max, p, 0.0), real_last);
    Value* floor = b.unary(Fn::Floor, p);
    Value* low = b.cast(floor, DType::i64);
    return Axis{low, b.binary(Fn::Min, b.add(low, b.scalar_int(DType::i64, 1)), last), b.sub(p, floor)};
  };
  const Axis v = neighbours(y, 2), h = neighbours(w, 3);
  Value* channels_last = b.transpose(x, {0, 2, 3, 1});
  Value* image = b.reshape(batch, {n, 1, 1, 1, 1});
  auto column = [&](Value* p) {
    Shape shape = p->type.shape;
    shape.push_back(1);
    return b.reshape(p, shape);
  };
  auto one_less = [&](Value* f) { return b.sub(b.scalar(t, 1), f); };
  std::vector<Value*> terms;
  auto read = [&](Value* row, Value* col, Value* weight) {
    Value* at = b.gather_joint(channels_last, 0, {b.broadcast(image, places), row, col});
    terms.push_back(b.select(column(off), b.scalar(t, 0), b.mul(at, column(weight))));
  };
  read(v.low, h.low, b.mul(one_less(v.fraction), one_less(h.fraction)));
  read(v.low, h.high, b.mul(one_less(v.fraction), h.fraction));
  read(v.high, h.low, b.mul(v.fraction, one_less(h.fraction)));
  read(v.high, h.high, b.mul(v.fraction, h.fraction));
  Value* samples = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    samples = average ? b.add(samples, terms[i]) : b.binary(Fn::Max, samples, terms[i]);
  }
  Value* pooled = average ? b.mean(samples, {3, 4}, false) : b.reduce(ReduceFn::Max, samples, {3, 4}, false);
  c.set(b.transpose(pooled, {0, 3, 1, 2}));
}

}  // namespace

std::vector<Row> image_rows() {
  return {
      {"AffineGrid", affine_grid},
      {"CenterCropPad", center_crop_pad},
      {"Col2Im", col2im},
      {"DeformConv", deform_conv},
      {"GlobalLpPool", global_lp_pool},
      {"GridSample", grid_sample_op},
      {"LpPool", lp_pool},
      {"MaxUnpool", max_unpool},
      {"Resize", resize},
      {"RoiAlign", roi_align},
      {"Upsample", resize},
  };
}

}  // namespace cuvil::onnx
