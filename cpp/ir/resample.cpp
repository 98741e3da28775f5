#include "ir/resample.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include "support/error.hpp"

namespace cuvil {

namespace {

// Keys' kernel at a distance.
Value* cubic_kernel(Builder& b, Value* distance, double a) {
  const DType t = distance->type.dtype;
  Value* x = b.unary(Fn::Abs, distance);
  auto polynomial = [&](std::vector<double> coefficients) {
    Value* sum = b.scalar(t, coefficients[0]);
    for (size_t i = 1; i < coefficients.size(); ++i) sum = b.binary(Fn::Add, b.mul(sum, x), coefficients[i]);
    return sum;
  };
  Value* near = polynomial({a + 2, -(a + 3), 0, 1});
  Value* far = polynomial({a, -5 * a, 8 * a, -4 * a});
  Value* outer = b.select(b.binary(Fn::Lt, x, b.scalar(t, 2)), far, b.scalar(t, 0));
  return b.select(b.binary(Fn::Le, x, b.scalar(t, 1)), near, outer);
}

Value* linear_kernel(Builder& b, Value* distance) {
  const DType t = distance->type.dtype;
  return b.binary(Fn::Max, b.sub(b.scalar(t, 1), b.unary(Fn::Abs, distance)), 0.0);
}

Value* nearest_index(Builder& b, Value* positions, Interpolation::Round round) {
  const DType t = positions->type.dtype;
  switch (round) {
    case Interpolation::Round::Floor:
      return b.unary(Fn::Floor, positions);
    case Interpolation::Round::Ceil:
      return b.unary(Fn::Ceil, positions);
    case Interpolation::Round::PreferFloor:
      return b.unary(Fn::Ceil, b.sub(positions, b.scalar(t, 0.5)));
    default:
      return b.unary(Fn::Floor, b.add(positions, b.scalar(t, 0.5)));
  }
}

DType computing_type(DType t) {
  return t == DType::f64 ? DType::f64 : DType::f32;
}

// Back to the dtype that values came in.
Value* restore(Builder& b, Value* y, DType t) {
  if (is_float(t)) return b.cast(y, t);
  const double bits = static_cast<double>(8 * size_of(t) - (is_signed_int(t) ? 1 : 0));
  const double high = t == DType::boolean ? 1 : std::ldexp(1.0, static_cast<int>(bits)) - 1;
  return b.cast(b.clamp(b.unary(Fn::Round, y), is_signed_int(t) ? -high - 1 : 0, high), t);
}

}  // namespace

Value* interpolate_axis(Builder& b, Value* x, int axis, Value* positions, const Interpolation& how) {
  const DType given = x->type.dtype, t = computing_type(given);
  const Dim size = x->type.shape[static_cast<size_t>(axis)];
  Value* last = b.dim_value(size - 1);
  auto clamped = [&](Value* index) {
    return b.binary(Fn::Min, b.binary(Fn::Max, index, b.scalar_int(DType::i64, 0)), last);
  };
  if (how.kind == Interpolation::Kind::Nearest) {
    return b.gather(x, clamped(b.cast(nearest_index(b, positions, how.round), DType::i64)), axis);
  }
  const double scale = std::min(how.antialias_scale, 1.0);
  const bool linear = how.kind == Interpolation::Kind::Linear;
  const auto first = static_cast<int64_t>(std::floor((linear ? -1 : -2) / scale)) + 1;
  const int64_t taps = 2 - 2 * first;
  if (taps > 1024) throw CompileError("resizing by " + std::to_string(scale) + " with antialias needs too many taps");
  Value* floor = b.unary(Fn::Floor, positions);
  Value* index = b.cast(floor, DType::i64);
  std::vector<Value*> indices, weights;
  for (int64_t k = 0; k < taps; ++k) {
    Value* at = b.add(index, b.scalar_int(DType::i64, first + k));
    Value* distance = b.sub(b.add(floor, b.scalar(DType::f64, static_cast<double>(first + k))), positions);
    if (scale != 1) distance = b.binary(Fn::Mul, distance, scale);
    Value* weight = linear ? linear_kernel(b, distance) : cubic_kernel(b, distance, how.cubic_a);
    if (how.exclude_outside) {
      Value* inside = b.binary(Fn::And, b.binary(Fn::Ge, at, b.scalar_int(DType::i64, 0)), b.binary(Fn::Le, at, last));
      weight = b.select(inside, weight, b.scalar(DType::f64, 0));
    }
    indices.push_back(clamped(at));
    weights.push_back(weight);
  }
  if (scale != 1 || how.exclude_outside) {
    Value* sum = std::accumulate(weights.begin() + 1, weights.end(), weights[0],
                                 [&](Value* p, Value* q) { return b.add(p, q); });
    for (Value*& w : weights) w = b.div(w, sum);
  }
  Shape along(x->type.shape.size() - static_cast<size_t>(axis), Dim(1));
  along[0] = positions->type.shape[0];
  Value* y = nullptr;
  for (size_t k = 0; k < weights.size(); ++k) {
    Value* term = b.mul(b.cast(b.gather(x, indices[k], axis), t), b.reshape(b.cast(weights[k], t), along));
    y = y ? b.add(y, term) : term;
  }
  return restore(b, y, given);
}

namespace {

class GridSampler {
 public:
  GridSampler(Builder& b, Value* x, Value* grid, const GridSampling& how)
      : b_(b), x_(x), how_(how), t_(computing_type(x->type.dtype)) {
    const Shape& shape = grid->type.shape;
    places_ = Shape(shape.begin(), shape.end() - 1);
    const auto spatial = static_cast<int64_t>(x->type.shape.size()) - 2;
    for (int64_t i = 0; i < spatial; ++i) {
      Value* at = b.slice_axis(grid, -1, spatial - 1 - i, spatial - i);
      positions_.push_back(b.cast(b.reshape(at, places_), t_));
      sizes_.push_back(x->type.shape[static_cast<size_t>(i) + 2]);
    }
    batch_ = b.iota(places_, 0, DType::i64);
  }

  Value* run() {
    for (size_t i = 0; i < positions_.size(); ++i) {
      Value* size = number(sizes_[i]);
      Value* p = b_.binary(Fn::Add, positions_[i], 1);
      p = how_.align_corners ? b_.mul(b_.binary(Fn::Mul, p, 0.5), b_.binary(Fn::Sub, size, 1))
                             : b_.binary(Fn::Mul, b_.binary(Fn::Sub, b_.mul(p, size), 1), 0.5);
      // A cubic kernel reflects or clamps each of its taps instead.
      positions_[i] = how_.kind == Interpolation::Kind::Cubic ? p : padded(p, i);
    }
    std::vector<Value*> none;
    Value* y = accumulate(0, none, nullptr);
    // [n, t…, c] → [n, c, t…]
    const auto rank = static_cast<int64_t>(y->type.shape.size());
    std::vector<int64_t> perm = {0, rank - 1};
    for (int64_t i = 1; i < rank - 1; ++i) perm.push_back(i);
    return restore(b_, b_.transpose(y, perm), x_->type.dtype);
  }

 private:
  Value* number(const Dim& d) { return b_.cast(b_.dim_value(d), t_); }

  // A position outside, brought inside as the padding says; with zeros it stays where it is.
  Value* padded(Value* p, size_t axis) {
    Value* last = number(sizes_[axis] - 1);
    if (how_.padding == GridSampling::Padding::Zeros) return p;
    if (how_.padding == GridSampling::Padding::Reflection) {
      // Reflection about the ends: the edges of the outer elements, or their centres.
      const double low = how_.align_corners ? 0 : -0.5;
      Value* span = how_.align_corners ? last : number(sizes_[axis]);
      Value* from = b_.unary(Fn::Abs, b_.binary(Fn::Sub, p, low));
      Value* safe = b_.binary(Fn::Max, span, 1e-20);
      Value* flips = b_.unary(Fn::Floor, b_.div(from, safe));
      Value* rest = b_.binary(Fn::Rem, from, safe);
      Value* odd = b_.binary(Fn::Ne, b_.binary(Fn::Rem, flips, b_.scalar(t_, 2)), b_.scalar(t_, 0));
      p = b_.binary(Fn::Add, b_.select(odd, b_.sub(span, rest), rest), low);
    }
    return b_.binary(Fn::Min, b_.binary(Fn::Max, p, 0.0), last);
  }

  struct Tap {
    Value *index, *weight;
  };

  // Positions that are not numbers are taken as outside.
  Value* index_of(Value* position) {
    Value* far = b_.scalar(t_, -100);
    position = b_.select(b_.unary(Fn::IsNan, position), far, position);
    return b_.cast(b_.clamp(position, -1e9, 1e9), DType::i64);
  }

  std::vector<Tap> taps(size_t axis) {
    Value* p = positions_[axis];
    if (how_.kind == Interpolation::Kind::Nearest) return {{index_of(b_.unary(Fn::Round, p)), nullptr}};
    Value* floor = b_.unary(Fn::Floor, p);
    Value* fraction = b_.sub(p, floor);
    std::vector<Tap> list;
    const bool linear = how_.kind == Interpolation::Kind::Linear;
    for (int k = linear ? 0 : -1; k <= (linear ? 1 : 2); ++k) {
      Value* distance = b_.binary(Fn::Sub, fraction, k);
      Value* at = b_.binary(Fn::Add, floor, k);
      if (linear) {
        list.push_back({index_of(at), k == 0 ? b_.sub(b_.scalar(t_, 1), fraction) : fraction});
      } else {
        list.push_back({index_of(padded(at, axis)), cubic_kernel(b_, distance, -0.75)});
      }
    }
    return list;
  }

  Value* accumulate(size_t axis, std::vector<Value*>& chosen, Value* weight) {
    if (axis == positions_.size()) return read(chosen, weight);
    Value* sum = nullptr;
    for (const Tap& tap : taps(axis)) {
      chosen.push_back(tap.index);
      Value* w = !tap.weight ? weight : weight ? b_.mul(weight, tap.weight) : tap.weight;
      Value* term = accumulate(axis + 1, chosen, w);
      chosen.pop_back();
      sum = sum ? b_.add(sum, term) : term;
    }
    return sum;
  }

  // x at one index per axis, [n, t…, c]; what lies outside is 0.
  Value* read(const std::vector<Value*>& index, Value* weight) {
    Value* zero = b_.scalar_int(DType::i64, 0);
    Value* inside = nullptr;
    std::vector<Value*> parts = {batch_};
    for (size_t i = 0; i < index.size(); ++i) {
      Value* last = b_.dim_value(sizes_[i] - 1);
      Value* holds = b_.binary(Fn::And, b_.binary(Fn::Ge, index[i], zero), b_.binary(Fn::Le, index[i], last));
      inside = inside ? b_.binary(Fn::And, inside, holds) : holds;
      parts.push_back(b_.binary(Fn::Min, b_.binary(Fn::Max, index[i], zero), last));
    }
    if (!channels_last_) {
      std::vector<int64_t> perm = {0};
      for (size_t i = 2; i < x_->type.shape.size(); ++i) perm.push_back(static_cast<int64_t>(i));
      perm.push_back(1);
      channels_last_ = b_.transpose(x_, perm);
    }
    Value* v = b_.cast(b_.gather_joint(channels_last_, 0, parts), t_);
    auto column = [&](Value* y) {
      Shape shape = y->type.shape;
      shape.push_back(1);
      return b_.reshape(y, shape);
    };
    if (weight) v = b_.mul(v, column(weight));
    return b_.select(column(inside), v, b_.scalar(t_, 0));
  }

  Builder& b_;
  Value* x_;
  const GridSampling& how_;
  DType t_;
  Shape places_;
  std::vector<Value*> positions_;
  std::vector<Dim> sizes_;
  Value* batch_;
  Value* channels_last_ = nullptr;
};

}  // namespace

Value* grid_sample(Builder& b, Value* x, Value* grid, const GridSampling& how) {
  const auto rank = static_cast<int64_t>(x->type.shape.size());
  if (rank < 3 || grid->type.rank() != rank || grid->type.shape.back() != Dim(rank - 2)) {
    throw CompileError("the grid " + grid->type.str() + " does not fit the input " + x->type.str());
  }
  return GridSampler(b, x, grid, how).run();
}

}  // namespace cuvil
