// Compositions of primitives that several importers need.
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/builder.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

double lowest(DType t) {
  if (is_float(t)) return -std::numeric_limits<double>::infinity();
  if (is_unsigned_int(t) || t == DType::boolean) return 0;
  return -std::ldexp(1.0, static_cast<int>(size_of(t)) * 8 - 1);
}

// Padding of pooling, with what ceil_mode adds after the last axis so that the last window is whole.
struct PoolPads {
  std::vector<Dim> low, high;  // asked for
  std::vector<Dim> extra;      // further high padding for ceil_mode
};

PoolPads pool_pads(const Value* x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides,
                   const std::vector<int64_t>& pads, const std::vector<int64_t>& dilations, bool ceil_mode) {
  size_t spatial = window.size(), lead = x->type.shape.size() - spatial;
  PoolPads p{std::vector<Dim>(lead, Dim(0)), std::vector<Dim>(lead, Dim(0)), std::vector<Dim>(lead, Dim(0))};
  for (size_t i = 0; i < spatial; ++i) {
    Dim low = pads[i], high = pads[spatial + i], extra = 0;
    if (ceil_mode) {
      const Dim& size = x->type.shape[lead + i];
      Dim reach = (window[i] - 1) * dilations[i] + 1;
      Dim steps = ceil_div(size + low + high - reach, strides[i]);  // windows after the first
      // A window that would start beyond the input and its left padding is dropped.
      Dim most = floor_div(size + low - 1, strides[i]);
      steps = minimum(steps, most);
      extra = maximum(steps * strides[i] + reach - (size + low + high), 0);
    }
    p.low.push_back(low);
    p.high.push_back(high);
    p.extra.push_back(extra);
  }
  return p;
}

std::vector<Dim> sum(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  std::vector<Dim> r;
  for (size_t i = 0; i < a.size(); ++i) r.push_back(a[i] + b[i]);
  return r;
}

}  // namespace

Value* Builder::relu(Value* x) {
  return binary(Fn::Max, x, 0.0);
}

Value* Builder::softplus(Value* x) {
  Value* tail = unary(Fn::Log1p, unary(Fn::Exp, unary(Fn::Neg, unary(Fn::Abs, x))));
  return add(relu(x), tail);
}

Value* Builder::per_channel(Value* v, size_t rank) {
  Shape shape(rank - 1, Dim(1));
  shape[0] = v->type.shape.at(0);
  return reshape(v, shape);
}

Value* Builder::transpose_last(Value* x) {
  std::vector<int64_t> perm(x->type.shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  if (perm.size() >= 2) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, perm);
}

Value* Builder::product(Value* a, Value* b) {
  if (a->type.rank() == 0 || b->type.rank() == 0) throw CompileError("a product needs operands of rank 1 or more");
  bool row = a->type.rank() == 1, column = b->type.rank() == 1;
  if (row) a = unsqueeze(a, {0});
  if (column) b = unsqueeze(b, {1});
  Value* y;
  if (b->type.rank() == 2 && a->type.rank() > 2) {
    // [m…, k] × [k, n] is one product of all rows.
    Shape shape = a->type.shape;
    Dim k = shape.back(), rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows = rows * shape[i];
    shape.back() = b->type.shape[1];
    y = reshape(matmul(reshape(a, {rows, k}), b), shape);
  } else {
    y = matmul(a, b);
  }
  if (column) y = squeeze(y, {-1});
  if (row) y = squeeze(y, {column ? -1 : -2});
  return y;
}

Value* Builder::clamp(Value* x, double lo, double hi) {
  return binary(Fn::Max, binary(Fn::Min, x, hi), lo);
}

Value* Builder::gelu(Value* x, bool tanh_approximation) {
  if (tanh_approximation) {
    Value* cube = mul(mul(x, x), x);
    Value* inner = binary(Fn::Mul, add(x, binary(Fn::Mul, cube, 0.044715)), std::sqrt(2.0 / M_PI));
    return mul(binary(Fn::Mul, x, 0.5), binary(Fn::Add, unary(Fn::Tanh, inner), 1.0));
  }
  Value* e = unary(Fn::Erf, binary(Fn::Mul, x, M_SQRT1_2));
  return mul(binary(Fn::Mul, x, 0.5), binary(Fn::Add, e, 1.0));
}

Value* Builder::softmax(Value* x, int axis, bool logarithm) {
  Value* shifted = sub(x, reduce(ReduceFn::Max, x, {axis}, true));
  Value* e = unary(Fn::Exp, shifted);
  Value* total = reduce(ReduceFn::Sum, e, {axis}, true);
  return logarithm ? sub(shifted, unary(Fn::Log, total)) : div(e, total);
}

Value* Builder::layer_norm(Value* x, int axis, Value* scale, Value* bias, double epsilon) {
  auto rank = static_cast<int>(x->type.shape.size());
  if (axis < 0) axis += rank;
  std::vector<int64_t> axes(static_cast<size_t>(rank - axis));
  std::iota(axes.begin(), axes.end(), axis);
  Value* centred = sub(x, mean(x, axes, true));
  Value* variance = mean(mul(centred, centred), axes, true);
  Value* y = mul(centred, unary(Fn::Rsqrt, binary(Fn::Add, variance, epsilon)));
  if (scale) y = mul(y, scale);
  if (bias) y = add(y, bias);
  return y;
}

Value* Builder::batch_norm(Value* x, Value* scale, Value* bias, Value* mean_value, Value* variance, double epsilon) {
  Value* factor = unary(Fn::Rsqrt, binary(Fn::Add, variance, epsilon));
  if (scale) factor = mul(scale, factor);
  Value* shift = unary(Fn::Neg, mul(mean_value, factor));
  if (bias) shift = add(bias, shift);
  return add(mul(x, per_channel(factor, x->type.shape.size())), per_channel(shift, x->type.shape.size()));
}

Value* Builder::group_norm(Value* x, int64_t groups, Value* scale, Value* bias, double epsilon) {
  const Shape& shape = x->type.shape;
  auto per_group = exact_div(shape.at(1), groups);
  if (!per_group)
    throw CompileError("group norm (" + source_ + "): " + shape[1].str() + " channels in " + std::to_string(groups) +
                       " groups");
  Shape grouped{shape[0], groups, *per_group};
  grouped.insert(grouped.end(), shape.begin() + 2, shape.end());
  Value* y = reshape(layer_norm(reshape(x, grouped), 2, nullptr, nullptr, epsilon), shape);
  if (scale) y = mul(y, per_channel(scale, x->type.shape.size()));
  if (bias) y = add(y, per_channel(bias, x->type.shape.size()));
  return y;
}

Value* Builder::max_pool(Value* x, std::vector<int64_t> window, std::vector<int64_t> strides, std::vector<int64_t> pads,
                         std::vector<int64_t> dilations, bool ceil_mode) {
  PoolPads p = pool_pads(x, window, strides, pads, dilations, ceil_mode);
  Value* padded = pad(x, p.low, sum(p.high, p.extra), lowest(x->type.dtype));
  return window_reduce(ReduceFn::Max, padded, std::move(window), std::move(strides), std::move(dilations));
}

Value* Builder::avg_pool(Value* x, std::vector<int64_t> window, std::vector<int64_t> strides, std::vector<int64_t> pads,
                         bool ceil_mode, bool count_include_pad, int64_t divisor_override,
                         std::vector<int64_t> dilations) {
  if (dilations.empty()) dilations.assign(window.size(), 1);
  PoolPads p = pool_pads(x, window, strides, pads, dilations, ceil_mode);
  std::vector<Dim> high = sum(p.high, p.extra);
  Value* total = window_reduce(ReduceFn::Sum, pad(x, p.low, high, 0), window, strides, dilations);
  int64_t elements = 1;
  for (int64_t w : window) elements *= w;
  if (divisor_override) return binary(Fn::Div, total, static_cast<double>(divisor_override));
  auto zero = [](const std::vector<Dim>& v) {
    for (const Dim& d : v) {
      if (d != Dim(0)) return false;
    }
    return true;
  };
  bool whole = zero(p.extra) && (count_include_pad || (zero(p.low) && zero(p.high)));
  if (whole) return binary(Fn::Div, total, static_cast<double>(elements));
  // Elements that count, summed over the same windows.
  size_t lead = x->type.shape.size() - window.size();
  Shape ones_shape(x->type.shape.begin() + static_cast<long>(lead), x->type.shape.end());
  auto spatial = [&](const std::vector<Dim>& v) {
    return std::vector<Dim>(v.begin() + static_cast<long>(lead), v.end());
  };
  Value* ones;
  if (count_include_pad) {
    std::vector<Dim> asked = sum(p.low, p.high);
    for (size_t i = 0; i < ones_shape.size(); ++i) ones_shape[i] = ones_shape[i] + asked[lead + i];
    ones = pad(full(ones_shape, x->type.dtype, 1), std::vector<Dim>(window.size(), Dim(0)), spatial(p.extra), 0);
  } else {
    ones = pad(full(ones_shape, x->type.dtype, 1), spatial(p.low), spatial(high), 0);
  }
  return div(total, window_reduce(ReduceFn::Sum, ones, window, strides, dilations));
}

Value* Builder::attention(Value* q, Value* k, Value* v, Value* mask, bool causal, double scale) {
  size_t rank = q->type.shape.size();
  Value* scores = binary(Fn::Mul, matmul(q, transpose_last(k)), scale);
  DType dtype = q->type.dtype;
  Value* off = scalar(dtype, -std::numeric_limits<double>::infinity());
  if (causal) {
    Shape square{q->type.shape[rank - 2], k->type.shape[rank - 2]};
    Value* keep = binary(Fn::Ge, iota(square, 0, DType::i64), iota(square, 1, DType::i64));
    scores = select(keep, scores, off);
  }
  if (mask) {
    scores = mask->type.dtype == DType::boolean ? select(mask, scores, off) : add(scores, cast(mask, dtype));
  }
  return matmul(softmax(scores, -1, false), v);
}

namespace {

// Positions that are all of an axis of this size, in order.
bool covers(const Value* part, const Dim& size) {
  if (!is_op(part, Op::Iota) || part->type.dtype != DType::i64) return false;
  return part->type.shape[static_cast<size_t>(part->producer->integer("axis"))] == size;
}

}  // namespace

Value* Builder::joint_index(const Shape& shape, size_t first, const std::vector<Value*>& parts) {
  CUVIL_CHECK(!parts.empty() && first + parts.size() <= shape.size(), "positions on axes that do not exist");
  Value* joint = nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Dim& size = shape[first + i];
    // Whoever uses a single part checks it. Among several, gathering from all positions checks and wraps each.
    Value* at =
        parts.size() == 1 || covers(parts[i], size) ? parts[i] : gather(iota({size}, 0, DType::i64), parts[i], 0);
    joint = joint ? add(mul(joint, dim_value(size)), at) : at;
  }
  return joint;
}

namespace {

// The axes [first, first + count) as one.
Shape joined_axes(const Shape& shape, size_t first, size_t count) {
  auto at = shape.begin() + static_cast<long>(first);
  Shape joined(shape.begin(), at);
  Dim size = 1;
  for (size_t i = 0; i < count; ++i) size = size * shape[first + i];
  joined.push_back(size);
  joined.insert(joined.end(), at + static_cast<long>(count), shape.end());
  return joined;
}

}  // namespace

Value* Builder::gather_joint(Value* x, size_t first, const std::vector<Value*>& parts) {
  Value* index = joint_index(x->type.shape, first, parts);
  Value* flat = reshape(x, joined_axes(x->type.shape, first, parts.size()));
  return gather(flat, index, static_cast<int>(first));
}

Value* Builder::scatter_joint(Value* x, size_t first, const std::vector<Value*>& parts, Value* updates,
                              std::optional<ReduceFn> fn) {
  const Shape shape = x->type.shape;
  Value* index = joint_index(shape, first, parts);
  Value* flat = reshape(x, joined_axes(shape, first, parts.size()));
  return reshape(scatter(flat, index, updates, static_cast<int>(first), fn), shape);
}

}  // namespace cuvil
