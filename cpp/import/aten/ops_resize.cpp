// Resizing and sampling of images.
#include <cmath>
#include <functional>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

Value* index_constant(Call& c, int64_t v) {
  return c.b.scalar_int(DType::i64, v);
}

Value* clamped(Call& c, Value* at, const Dim& size) {
  at = c.b.binary(Fn::Max, at, index_constant(c, 0));
  return c.b.binary(Fn::Min, at, c.b.sub(c.b.dim_value(size), index_constant(c, 1)));
}

// How far apart in the input the output's elements are along an axis; `scale` is what the caller asked for, if
// anything.
Value* spacing(Call& c, DType t, const Dim& in, const Dim& out, std::optional<double> scale) {
  if (scale && *scale > 0) return c.b.scalar(t, 1 / *scale);
  return c.b.div(c.b.cast(c.b.dim_value(in), t), c.b.cast(c.b.dim_value(out), t));
}

Value* nearest_positions(Call& c, const Dim& in, const Dim& out, std::optional<double> scale, bool exact) {
  Value* at = c.b.iota({out}, 0, DType::f32);
  if (exact) at = c.b.binary(Fn::Add, at, 0.5);
  Value* source = c.b.cast(c.b.unary(Fn::Floor, c.b.mul(at, spacing(c, DType::f32, in, out, scale))), DType::i64);
  return clamped(c, source, in);
}

// The scale asked for on spatial axis i: a list in the .vec forms, else a number for each axis.
using ScaleOf = std::function<std::optional<double>(size_t)>;

ScaleOf scales_in_list(Call& c, size_t position) {
  return [&c, position](size_t i) -> std::optional<double> {
    const Argument* list = c.argument(position, "scale_factors");
    if (!list || i >= list->list.size()) return std::nullopt;
    const Argument& a = list->list[i];
    return a.kind == Argument::Kind::Float ? a.real : static_cast<double>(a.integer);
  };
}
ScaleOf scales_from(Call& c, size_t position) {
  return [&c, position](size_t i) -> std::optional<double> {
    if (!c.has(position + i)) return std::nullopt;
    return c.real(position + i);
  };
}

template <bool exact>
void nearest(Call& c, const ScaleOf& scale_of) {
  Value* x = c.tensor(0);
  Shape out = c.result_shape();
  for (size_t axis = 2; axis < out.size(); ++axis) {
    const Dim in = x->type.shape[axis];
    auto factor = exact_div(out[axis], in);
    std::optional<double> scale = scale_of(axis - 2);
    const bool whole =
        factor && factor->is_constant() && (!scale || *scale <= 0 || *scale == static_cast<double>(factor->value()));
    if (whole) {
      // A whole factor repeats elements.
      Shape ones = x->type.shape, wide, joined = x->type.shape;
      ones.insert(ones.begin() + static_cast<long>(axis) + 1, Dim(1));
      wide = ones;
      wide[axis + 1] = *factor;
      joined[axis] = out[axis];
      x = c.b.reshape(c.b.broadcast(c.b.reshape(x, ones), wide), joined);
    } else {
      x = c.b.gather(x, nearest_positions(c, in, out[axis], scale, exact), static_cast<int>(axis));
    }
  }
  c.set(x);
}
template <bool exact>
void nearest_vec(Call& c) {
  nearest<exact>(c, scales_in_list(c, 2));
}
template <bool exact>
void nearest_sized(Call& c) {
  nearest<exact>(c, scales_from(c, 2));
}

// To whole numbers in the range of bytes, halves up, for an image of those. PyTorch does it after each axis.
Value* rounded_if_bytes(Call& c, Value* x, DType t) {
  return t == DType::u8 ? c.b.clamp(c.b.unary(Fn::Floor, c.b.binary(Fn::Add, x, 0.5)), 0, 255) : x;
}

// Linear interpolation, one axis after the other.
void linear(Call& c, bool align_corners, const ScaleOf& scale_of) {
  Value* x = c.tensor(0);
  const DType t = x->type.dtype, work = is_float(t) && size_of(t) > 2 ? t : DType::f32;
  x = c.b.cast(x, work);
  const Shape out = c.result_shape();
  for (size_t axis = out.size(); axis-- > 2;) {
    const Dim in = x->type.shape[axis];
    if (in == out[axis]) continue;
    Value* at = c.b.iota({out[axis]}, 0, work);
    Value* source;
    if (align_corners) {
      Value* last_in = c.b.cast(c.b.dim_value(in - 1), work);
      Value* last_out = c.b.cast(c.b.dim_value(maximum(out[axis] - 1, 1)), work);
      source = c.b.mul(at, c.b.div(last_in, last_out));
    } else {
      source = c.b.mul(c.b.binary(Fn::Add, at, 0.5), spacing(c, work, in, out[axis], scale_of(axis - 2)));
      source = c.b.binary(Fn::Max, c.b.binary(Fn::Sub, source, 0.5), 0.0);
    }
    Value* lower = clamped(c, c.b.cast(source, DType::i64), in);
    Value* upper = clamped(c, c.b.add(lower, index_constant(c, 1)), in);
    Value* weight = c.b.sub(source, c.b.cast(lower, work));
    weight = c.b.clamp(weight, 0, 1);
    Shape along(x->type.shape.size(), Dim(1));
    along[axis] = out[axis];
    weight = c.b.reshape(weight, along);
    Value* rest = c.b.sub(c.b.scalar(work, 1), weight);
    const int a = static_cast<int>(axis);
    x = c.b.add(c.b.mul(c.b.gather(x, lower, a), rest), c.b.mul(c.b.gather(x, upper, a), weight));
    x = rounded_if_bytes(c, x, t);
  }
  c.set(c.b.cast(x, t));
}
void linear_vec(Call& c) {
  linear(c, c.boolean(2, "align_corners"), scales_in_list(c, 3));
}
void linear_sized(Call& c) {
  linear(c, c.boolean(2, "align_corners"), scales_from(c, 3));
}

// Antialiased: each output element is a weighted mean, by a filter as wide as the spacing. One product per axis with a
// matrix of weights.
template <int support>
double filter(double x) {
  x = std::fabs(x);
  if (support == 1) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

template <int support>
void antialiased(Call& c) {
  Value* x = c.tensor(0);
  const DType t = x->type.dtype, work = is_float(t) && size_of(t) > 2 ? t : DType::f32;
  x = c.b.cast(x, work);
  const Shape out = c.result_shape();
  const bool align_corners = c.boolean(2, "align_corners");
  const bool in_list = c.node().target.find(".vec") != std::string::npos;
  const ScaleOf scale_of = in_list ? scales_in_list(c, 3) : scales_from(c, 3);
  for (size_t axis : {out.size() - 1, out.size() - 2}) {
    if (!x->type.shape[axis].is_constant() || !out[axis].is_constant())
      c.fail("antialiased resizing needs known sizes");
    const int64_t in = x->type.shape[axis].value(), n = out[axis].value();
    std::optional<double> asked = scale_of(axis - 2);
    double scale = asked && *asked > 0 ? 1 / *asked : static_cast<double>(in) / static_cast<double>(n);
    if (align_corners) scale = n > 1 ? static_cast<double>(in - 1) / static_cast<double>(n - 1) : 0;
    const double stretch = std::max(scale, 1.0), reach = support * stretch;
    Tensor weights(work, {in, n});
    for (int64_t i = 0; i < n; ++i) {
      const double centre = scale * (static_cast<double>(i) + 0.5);
      const auto first = std::max<int64_t>(static_cast<int64_t>(centre - reach + 0.5), 0);
      const auto limit = std::min<int64_t>(static_cast<int64_t>(centre + reach + 0.5), in);
      double total = 0;
      for (int64_t j = first; j < limit; ++j)
        total += filter<support>((static_cast<double>(j) - centre + 0.5) / stretch);
      for (int64_t j = first; j < limit; ++j) {
        double w = filter<support>((static_cast<double>(j) - centre + 0.5) / stretch);
        weights.set_double(j * n + i, total != 0 ? w / total : w);
      }
    }
    Value* matrix = c.b.constant(std::move(weights));
    x = axis + 1 == out.size() ? c.b.product(x, matrix) : c.b.matmul(c.b.transpose_last(matrix), x);
    x = rounded_if_bytes(c, x, t);
  }
  c.set(c.b.cast(x, t));
}

// input [n, c, s…], grid [n, o…, d], interpolation, padding, align_corners
class GridSampler {
 public:
  explicit GridSampler(Call& call) : c_(call), b_(call.b) {
    Value* x = c_.tensor(0);
    Value* grid = c_.tensor(1);
    spatial_ = x->type.shape.size() - 2;
    result_ = c_.result_dtype();
    t_ = size_of(result_) == 2 ? DType::f32 : result_;
    padding_ = c_.integer(3);
    align_ = c_.boolean(4, "align_corners");
    // Channels last, so that what is gathered at a position lies together.
    std::vector<int64_t> perm{0};
    for (size_t i = 0; i < spatial_; ++i) perm.push_back(static_cast<int64_t>(i) + 2);
    perm.push_back(1);
    x_ = b_.transpose(b_.cast(x, t_), perm);
    places_.assign(grid->type.shape.begin(), grid->type.shape.end() - 1);
    const auto last = static_cast<int>(grid->type.shape.size()) - 1;
    for (size_t i = 0; i < spatial_; ++i) {
      // The grid's last axis is x, y, z; the input's axes are in the opposite order.
      const auto at = static_cast<int64_t>(spatial_ - 1 - i);
      grid_.push_back(b_.cast(b_.squeeze(b_.slice_axis(grid, last, at, at + 1), {last}), t_));
    }
  }

  void run() {
    const int64_t mode = c_.integer(2);
    Value* sum = nullptr;
    if (mode == 1) {
      std::vector<Value*> at;
      for (size_t i = 0; i < spatial_; ++i) at.push_back(b_.unary(Fn::Round, padded(position(i), i)));
      sum = fetch(at);
    } else if (mode == 0) {
      sum = weighted(2, [&](size_t i, std::vector<Value*>& at, std::vector<Value*>& weights) {
        Value* p = padded(position(i), i);
        Value* lower = b_.unary(Fn::Floor, p);
        Value* fraction = b_.sub(p, lower);
        at = {lower, b_.binary(Fn::Add, lower, 1.0)};
        weights = {b_.sub(b_.scalar(t_, 1), fraction), fraction};
      });
    } else {
      if (spatial_ != 2) c_.fail("bicubic sampling is for two dimensions");
      sum = weighted(4, [&](size_t i, std::vector<Value*>& at, std::vector<Value*>& weights) {
        Value* p = position(i);
        Value* lower = b_.unary(Fn::Floor, p);
        Value* fraction = b_.sub(p, lower);
        Value* rest = b_.sub(b_.scalar(t_, 1), fraction);
        for (double shift : {-1.0, 0.0, 1.0, 2.0}) at.push_back(padded(b_.binary(Fn::Add, lower, shift), i));
        weights = {far(b_.binary(Fn::Add, fraction, 1.0)), near(fraction), near(rest),
                   far(b_.binary(Fn::Add, rest, 1.0))};
      });
    }
    std::vector<int64_t> perm{0, static_cast<int64_t>(spatial_) + 1};
    for (size_t i = 0; i < spatial_; ++i) perm.push_back(static_cast<int64_t>(i) + 1);
    c_.set(b_.cast(b_.transpose(sum, perm), result_));
  }

 private:
  Value* size(size_t i) { return b_.cast(b_.dim_value(x_->type.shape[i + 1]), t_); }

  // From [-1, 1] to positions.
  Value* position(size_t i) {
    Value* g = b_.binary(Fn::Add, grid_[i], 1.0);
    Value* n = size(i);
    if (align_) return b_.mul(b_.binary(Fn::Mul, g, 0.5), b_.binary(Fn::Sub, n, 1.0));
    return b_.binary(Fn::Mul, b_.binary(Fn::Sub, b_.mul(g, n), 1.0), 0.5);
  }

  Value* padded(Value* p, size_t i) {
    Value* last = b_.binary(Fn::Sub, size(i), 1.0);
    if (padding_ == 0) return p;
    if (padding_ == 2) {
      // Mirrored at both ends: at the elements themselves, or half an element outside of them.
      Value* low = b_.scalar(t_, align_ ? 0 : -0.5);
      Value* span = align_ ? last : size(i);
      Value* d = b_.unary(Fn::Abs, b_.sub(p, low));
      Value* none = b_.binary(Fn::Eq, span, 0.0);
      Value* period = b_.select(none, b_.scalar(t_, 1), b_.binary(Fn::Mul, span, 2.0));
      Value* m = b_.binary(Fn::Rem, d, period);
      m = b_.binary(Fn::Min, m, b_.sub(period, m));
      p = b_.select(none, b_.scalar(t_, 0), b_.add(m, low));
    }
    // A NaN is sampled at 0.
    p = b_.select(b_.unary(Fn::IsNan, p), b_.scalar(t_, 0), p);
    return b_.binary(Fn::Min, b_.binary(Fn::Max, p, 0.0), last);
  }

  // The elements at whole positions; 0 outside.
  Value* fetch(const std::vector<Value*>& at) {
    Value* inside = nullptr;
    std::vector<Value*> parts{b_.broadcast(b_.reshape(b_.iota({places_[0]}, 0, DType::i64), batch_shape()), places_)};
    for (size_t i = 0; i < spatial_; ++i) {
      Value* last = b_.binary(Fn::Sub, size(i), 1.0);
      Value* ok = b_.binary(Fn::And, b_.binary(Fn::Ge, at[i], 0.0), b_.binary(Fn::Le, at[i], last));
      inside = inside ? b_.binary(Fn::And, inside, ok) : ok;
      parts.push_back(b_.cast(b_.select(ok, at[i], b_.scalar(t_, 0)), DType::i64));
    }
    Value* elements = b_.gather_joint(x_, 0, parts);
    return b_.select(b_.unsqueeze(inside, {-1}), elements, b_.scalar(t_, 0));
  }

  // Sum over all combinations of `count` positions per axis.
  template <typename Axis>
  Value* weighted(size_t count, const Axis& axis) {
    std::vector<std::vector<Value*>> at(spatial_), weights(spatial_);
    size_t combinations = 1;
    for (size_t i = 0; i < spatial_; ++i) {
      axis(i, at[i], weights[i]);
      combinations *= count;
    }
    Value* sum = nullptr;
    for (size_t n = 0; n < combinations; ++n) {
      std::vector<Value*> where;
      Value* weight = nullptr;
      size_t rest = n;
      for (size_t i = 0; i < spatial_; ++i, rest /= count) {
        where.push_back(at[i][rest % count]);
        weight = weight ? b_.mul(weight, weights[i][rest % count]) : weights[i][rest % count];
      }
      Value* term = b_.mul(fetch(where), b_.unsqueeze(weight, {-1}));
      sum = sum ? b_.add(sum, term) : term;
    }
    return sum;
  }

  Shape batch_shape() const {
    Shape shape(places_.size(), Dim(1));
    shape[0] = places_[0];
    return shape;
  }

  // The cubic filter within one element of its centre, and beyond.
  Value* near(Value* x) {
    Value* y = b_.binary(Fn::Sub, b_.binary(Fn::Mul, x, 1.25), 2.25);
    return b_.binary(Fn::Add, b_.mul(b_.mul(y, x), x), 1.0);
  }
  Value* far(Value* x) {
    constexpr double a = -0.75;
    Value* y = b_.binary(Fn::Sub, b_.binary(Fn::Mul, x, a), 5 * a);
    y = b_.binary(Fn::Add, b_.mul(y, x), 8 * a);
    return b_.binary(Fn::Sub, b_.mul(y, x), 4 * a);
  }

  Call& c_;
  Builder& b_;
  size_t spatial_ = 0;
  DType result_, t_;
  int64_t padding_ = 0;
  bool align_ = false;
  Value* x_ = nullptr;
  Shape places_;
  std::vector<Value*> grid_;
};

void grid_sample(Call& c) {
  GridSampler(c).run();
}

}  // namespace

std::vector<Row> resize_rows() {
  return {
      {"aten.upsample_nearest1d.vec", nearest_vec<false>},
      {"aten.upsample_nearest2d.vec", nearest_vec<false>},
      {"aten.upsample_nearest3d.vec", nearest_vec<false>},
      {"aten.upsample_nearest1d.default", nearest_sized<false>},
      {"aten.upsample_nearest2d.default", nearest_sized<false>},
      {"aten.upsample_nearest3d.default", nearest_sized<false>},
      {"aten._upsample_nearest_exact1d.vec", nearest_vec<true>},
      {"aten._upsample_nearest_exact2d.vec", nearest_vec<true>},
      {"aten._upsample_nearest_exact3d.vec", nearest_vec<true>},
      {"aten._upsample_nearest_exact1d.default", nearest_sized<true>},
      {"aten._upsample_nearest_exact2d.default", nearest_sized<true>},
      {"aten._upsample_nearest_exact3d.default", nearest_sized<true>},
      {"aten.upsample_linear1d.vec", linear_vec},
      {"aten.upsample_bilinear2d.vec", linear_vec},
      {"aten.upsample_trilinear3d.vec", linear_vec},
      {"aten.upsample_linear1d.default", linear_sized},
      {"aten.upsample_bilinear2d.default", linear_sized},
      {"aten.upsample_trilinear3d.default", linear_sized},
      {"aten._upsample_bilinear2d_aa.default", antialiased<1>},
      {"aten._upsample_bilinear2d_aa.vec", antialiased<1>},
      {"aten._upsample_bicubic2d_aa.default", antialiased<2>},
      {"aten._upsample_bicubic2d_aa.vec", antialiased<2>},
      {"aten.grid_sampler_2d.default", grid_sample},
      {"aten.grid_sampler_3d.default", grid_sample},
      {"aten.grid_sampler.default", grid_sample},
  };
}

}  // namespace cuvil::aten
