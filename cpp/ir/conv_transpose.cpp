// Transposed convolution by ordinary ones: with stride s, outputs fall into s phases on each axis. Each phase is a
// convolution of stride 1 by those taps of the flipped kernel that reach it, and the phases are interleaved.
#include <numeric>

#include "ir/builder.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

// The taps of one phase on one axis: first, first + step, …; `count` of them. Output q of the phase reads inputs
// q - offset - j·dilation for tap j.
struct PhaseTaps {
  int64_t first = 0, step = 1, count = 0, offset = 0, dilation = 1;
};

// Tap t reaches output i·s + t·d from input i, so phase r has the taps with t·d ≡ r (mod s).
PhaseTaps taps_of(int64_t phase, int64_t kernel, int64_t stride, int64_t dilation) {
  const int64_t common = std::gcd(stride, dilation);
  PhaseTaps taps;
  taps.step = stride / common;
  taps.dilation = dilation / common;
  for (taps.first = 0; taps.first < std::min(kernel, taps.step); ++taps.first) {
    if (taps.first * dilation % stride != phase) continue;
    taps.count = (kernel - taps.first + taps.step - 1) / taps.step;
    taps.offset = (taps.first * dilation - phase) / stride;
    break;
  }
  return taps;
}

class TransposedConv {
 public:
  TransposedConv(Builder& b, Value* x, Value* weight, const std::vector<int64_t>& strides,
                 const std::vector<int64_t>& dilations, int64_t groups)
      : b_(b), x_(x), strides_(strides), dilations_(dilations), groups_(groups), spatial_(strides.size()) {
    filter_ = as_filter(weight);
  }

  Value* run(const std::vector<int64_t>& low, const std::vector<Dim>& sizes) {
    for (size_t i = 0; i < spatial_; ++i) counts_.push_back(ceil_div(sizes[i] + low[i], strides_[i]));
    Value* y = interleaved(0, std::vector<int64_t>(spatial_, 0));
    for (size_t i = 0; i < spatial_; ++i) y = b_.slice_axis(y, static_cast<int>(i) + 2, low[i], sizes[i] + low[i]);
    return y;
  }

 private:
  // [c, oc/g, k…] → [oc, c/g, k…]
  Value* as_filter(Value* w) {
    const Shape& shape = w->type.shape;
    Shape split{groups_, floor_div(shape[0], groups_)}, joined{shape[1] * groups_, floor_div(shape[0], groups_)};
    split.insert(split.end(), shape.begin() + 1, shape.end());
    joined.insert(joined.end(), shape.begin() + 2, shape.end());
    std::vector<int64_t> order(split.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::swap(order[1], order[2]);
    return b_.reshape(b_.transpose(b_.reshape(w, split), order), joined);
  }

  // All phases of the axes from `axis` on, for these phases of those before.
  Value* interleaved(size_t axis, std::vector<int64_t> phases) {
    if (axis == spatial_) return phase(phases);
    const int64_t stride = strides_[axis];
    std::vector<Value*> parts;
    for (phases[axis] = 0; phases[axis] < stride; ++phases[axis]) {
      Value* part = interleaved(axis + 1, phases);
      parts.push_back(stride == 1 ? part : b_.unsqueeze(part, {static_cast<int64_t>(axis) + 3}));
    }
    if (stride == 1) return parts[0];
    Value* y = b_.concat(parts, static_cast<int>(axis) + 3);
    Shape shape = y->type.shape;
    shape[axis + 2] = shape[axis + 2] * stride;
    shape.erase(shape.begin() + static_cast<long>(axis) + 3);
    return b_.reshape(y, shape);
  }

  // One phase: counts_[i] outputs on each axis.
  Value* phase(const std::vector<int64_t>& phases) {
    Value* x = x_;
    Value* filter = filter_;
    std::vector<Dim> low(spatial_ + 2, Dim(0)), high = low;
    std::vector<int64_t> dilations;
    bool none = false;
    for (size_t i = 0; i < spatial_; ++i) {
      const int axis = static_cast<int>(i) + 2;
      const int64_t kernel = filter_->type.shape[i + 2].value();
      const PhaseTaps taps = taps_of(phases[i], kernel, strides_[i], dilations_[i]);
      none |= taps.count == 0;
      if (none) break;
      // The taps in reverse order, as a convolution reads forwards.
      filter = b_.slice_axis(filter, axis, taps.first, taps.first + (taps.count - 1) * taps.step + 1, taps.step);
      filter = flipped(filter, i + 2, taps.count);
      const int64_t reach = (taps.count - 1) * taps.dilation;
      // Inputs from -offset - reach to counts - 1 - offset are read; what there is beyond is cut off.
      const Dim end = counts_[i] - taps.offset, size = x_->type.shape[i + 2];
      if (provably_lt(end, 0)) {
        x = b_.slice_axis(x, axis, 0, 0);
        low[i + 2] = counts_[i] + reach;
      } else {
        const Dim kept = minimum(size, end);
        if (kept != size) x = b_.slice_axis(x, axis, 0, kept);
        low[i + 2] = taps.offset + reach;
        high[i + 2] = maximum(end - size, 0);
      }
      dilations.push_back(taps.dilation);
    }
    if (none) {
      Shape shape{x_->type.shape[0], filter_->type.shape[0]};
      shape.insert(shape.end(), counts_.begin(), counts_.end());
      return b_.full(shape, x_->type.dtype, 0);
    }
    return b_.node(Op::Conv, {b_.pad(x, low, high, 0), filter},
                   {{"strides", std::vector<int64_t>(spatial_, 1)}, {"dilations", dilations}, {"groups", groups_}});
  }

  Value* flipped(Value* w, size_t axis, int64_t count) {
    std::vector<Dim> starts(w->type.shape.size(), Dim(0)), limits = w->type.shape;
    std::vector<int64_t> steps(w->type.shape.size(), 1);
    starts[axis] = count - 1;
    limits[axis] = -1;
    steps[axis] = -1;
    return count == 1 ? w : b_.slice(w, starts, limits, steps);
  }

  Builder& b_;
  Value* x_;
  Value* filter_ = nullptr;  // [oc, c/g, k…]
  const std::vector<int64_t>& strides_;
  const std::vector<int64_t>& dilations_;
  int64_t groups_;
  size_t spatial_;
  std::vector<Dim> counts_;  // outputs per phase on each axis
};

}  // namespace

Value* Builder::conv_transpose(Value* x, Value* weight, const std::vector<int64_t>& strides,
                               const std::vector<int64_t>& low, const std::vector<Dim>& sizes,
                               const std::vector<int64_t>& dilations, int64_t groups) {
  return TransposedConv(*this, x, weight, strides, dilations, groups).run(low, sizes);
}

}  // namespace cuvil
