// Reductions, scans, windows, products and convolutions: floats accumulate in double, integers wrap in 64 bits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/evaluate_ops.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

double identity(ReduceFn fn, DType t) {
  bool maximum = fn == ReduceFn::Max || fn == ReduceFn::ArgMax;
  if (fn == ReduceFn::Sum) return 0;
  if (fn == ReduceFn::Prod) return 1;
  return maximum ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  (void)t;
}

// One running fold.
class Fold {
 public:
  Fold(ReduceFn fn, DType dtype) : fn_(fn), floating_(is_float(dtype)), dtype_(dtype), real_(identity(fn, dtype)) {
    integer_ = fn == ReduceFn::Prod ? 1 : fn == ReduceFn::Sum ? 0 : extreme();
  }

  void add(const Tensor& x, int64_t i, int64_t position) {
    if (floating_) {
      add_real(x.get_double(i), position);
    } else {
      add_integer(x.get_int(i), position);
    }
  }
  void add_real(double v, int64_t position) {
    switch (fn_) {
      case ReduceFn::Sum:
        real_ += v;
        break;
      case ReduceFn::Prod:
        real_ *= v;
        break;
      default: {
        bool maximum = fn_ == ReduceFn::Max || fn_ == ReduceFn::ArgMax;
        bool better = std::isnan(v) ? !std::isnan(real_) : !std::isnan(real_) && (maximum ? v > real_ : v < real_);
        if (better || position_ < 0) {
          real_ = v;
          position_ = position;
        }
      }
    }
  }
  void add_integer(int64_t v, int64_t position) {
    auto a = static_cast<uint64_t>(integer_), b = static_cast<uint64_t>(v);
    switch (fn_) {
      case ReduceFn::Sum:
        integer_ = static_cast<int64_t>(a + b);
        break;
      case ReduceFn::Prod:
        integer_ = static_cast<int64_t>(a * b);
        break;
      default: {
        bool maximum = fn_ == ReduceFn::Max || fn_ == ReduceFn::ArgMax;
        bool less = dtype_ == DType::u64 ? a < b : integer_ < v, greater = dtype_ == DType::u64 ? a > b : integer_ > v;
        if ((maximum ? less : greater) || position_ < 0) {
          integer_ = v;
          position_ = position;
        }
      }
    }
  }
  void store(Tensor& out, int64_t i) const {
    if (fn_ == ReduceFn::ArgMax || fn_ == ReduceFn::ArgMin) {
      out.set_int(i, position_);
    } else if (floating_) {
      out.set_double(i, real_);
    } else {
      out.set_int(i, integer_);
    }
  }

 private:
  int64_t extreme() const {
    bool maximum = fn_ == ReduceFn::Max || fn_ == ReduceFn::ArgMax;
    if (dtype_ == DType::boolean) return maximum ? 0 : 1;
    int bits = static_cast<int>(size_of(dtype_) * 8);
    if (is_unsigned_int(dtype_)) return maximum ? 0 : bits == 64 ? -1 : (int64_t{1} << bits) - 1;
    int64_t high = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
    return maximum ? -high - 1 : high;
  }

  ReduceFn fn_;
  bool floating_;
  DType dtype_;
  double real_;
  int64_t integer_ = 0, position_ = -1;
};

Tensor reduce(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  Tensor out(c.node.type().dtype, c.result_shape());
  const auto& axes = c.node.ints("axes");
  std::vector<int64_t> strides = element_strides(x.shape()), kept_shape, kept_strides, fold_shape, fold_strides;
  for (size_t i = 0; i < x.shape().size(); ++i) {
    bool folded = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    (folded ? fold_shape : kept_shape).push_back(x.shape()[i]);
    (folded ? fold_strides : kept_strides).push_back(strides[i]);
  }
  for_each_index<1>(kept_shape, {kept_strides}, {0}, [&](int64_t i, const std::array<int64_t, 1>& start) {
    Fold fold(c.node.reduce_fn(), x.dtype());
    for_each_index<1>(fold_shape, {fold_strides}, {start[0]},
                      [&](int64_t p, const std::array<int64_t, 1>& at) { fold.add(x, at[0], p); });
    fold.store(out, i);
  });
  return out;
}

Tensor scan(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  Tensor out(x.dtype(), x.shape());
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  bool exclusive = c.node.get<bool>("exclusive"), reverse = c.node.get<bool>("reverse");
  std::vector<int64_t> strides = element_strides(x.shape()), kept = x.shape();
  int64_t n = x.shape()[axis], step = strides[axis];
  kept[axis] = 1;
  for_each_index<1>(kept, {strides}, {0}, [&](int64_t, const std::array<int64_t, 1>& start) {
    Fold fold(c.node.reduce_fn(), x.dtype());
    for (int64_t k = 0; k < n; ++k) {
      int64_t at = start[0] + (reverse ? n - 1 - k : k) * step;
      if (exclusive) fold.store(out, at);
      fold.add(x, at, k);
      if (!exclusive) fold.store(out, at);
    }
  });
  return out;
}

Tensor window_reduce(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  Tensor out(x.dtype(), c.result_shape());
  const auto& window = c.node.ints("window");
  size_t lead = x.shape().size() - window.size();
  std::vector<int64_t> strides = element_strides(x.shape()), walk = strides, inner;
  for (size_t i = 0; i < window.size(); ++i) {
    walk[lead + i] *= c.node.ints("strides")[i];
    inner.push_back(strides[lead + i] * c.node.ints("dilations")[i]);
  }
  for_each_index<1>(out.shape(), {walk}, {0}, [&](int64_t i, const std::array<int64_t, 1>& start) {
    Fold fold(c.node.reduce_fn(), x.dtype());
    for_each_index<1>(window, {inner}, {start[0]},
                      [&](int64_t p, const std::array<int64_t, 1>& at) { fold.add(x, at[0], p); });
    fold.store(out, i);
  });
  return out;
}

// Σ a·b over a common index space, for every output index.
Tensor sum_of_products(const Tensor& a, const Tensor& b, Tensor out, const std::vector<int64_t>& a_out,
                       const std::vector<int64_t>& b_out, const std::vector<int64_t>& k_shape,
                       const std::vector<int64_t>& a_k, const std::vector<int64_t>& b_k) {
  const bool fast = a.dtype() == DType::f32, floating = is_float(a.dtype());
  for_each_index<2>(out.shape(), {a_out, b_out}, {0, 0}, [&](int64_t i, const std::array<int64_t, 2>& start) {
    double real = 0;
    uint64_t integer = 0;
    for_each_index<2>(k_shape, {a_k, b_k}, start, [&](int64_t, const std::array<int64_t, 2>& at) {
      if (fast) {
        real += static_cast<double>(a.as<float>()[at[0]]) * static_cast<double>(b.as<float>()[at[1]]);
      } else if (floating) {
        real += a.get_double(at[0]) * b.get_double(at[1]);
      } else {
        integer += static_cast<uint64_t>(a.get_int(at[0])) * static_cast<uint64_t>(b.get_int(at[1]));
      }
    });
    if (floating) {
      out.set_double(i, real);
    } else {
      out.set_int(i, static_cast<int64_t>(integer));
    }
  });
  return out;
}

Tensor matmul(const EvaluationContext& c) {
  const Tensor& a = c.operand(0);
  const Tensor& b = c.operand(1);
  Tensor out(a.dtype(), c.result_shape());
  size_t rank = out.shape().size();
  auto strides = [&](const Tensor& t, bool left) {
    std::vector<int64_t> widened = out.shape();
    size_t skip = rank - t.shape().size();
    std::vector<int64_t> own = element_strides(t.shape()), result(rank, 0);
    for (size_t i = 0; i < t.shape().size(); ++i) {
      bool folded = left ? i + 1 == t.shape().size() : i + 2 == t.shape().size();
      bool stretched = i + 2 < t.shape().size() && t.shape()[i] == 1;
      result[skip + i] = folded || stretched ? 0 : own[i];
    }
    return result;
  };
  int64_t k = a.shape().back();
  return sum_of_products(a, b, out, strides(a, true), strides(b, false), {k}, {1}, {b.shape().back()});
}

Tensor conv(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  const Tensor& w = c.operand(1);
  Tensor out(x.dtype(), c.result_shape());
  int64_t groups = c.node.integer("groups"), per_group = w.shape()[0] / groups;
  size_t rank = x.shape().size();
  std::vector<int64_t> xs = element_strides(x.shape()), ws = element_strides(w.shape());
  std::vector<int64_t> k_shape(w.shape().begin() + 1, w.shape().end());
  std::vector<int64_t> x_k{xs[1]}, w_k(ws.begin() + 1, ws.end());
  for (size_t i = 2; i < rank; ++i) x_k.push_back(xs[i] * c.node.ints("dilations")[i - 2]);
  // One group at a time: within it, the output channel does not move the input.
  std::vector<int64_t> out_strides = element_strides(out.shape());
  std::vector<int64_t> shape = out.shape();
  shape[1] = per_group;
  std::vector<int64_t> x_out{xs[0], 0}, w_out{0, ws[0]};
  for (size_t i = 2; i < rank; ++i) {
    x_out.push_back(xs[i] * c.node.ints("strides")[i - 2]);
    w_out.push_back(0);
  }
  for (int64_t g = 0; g < groups; ++g) {
    size_t bytes = size_of(x.dtype());
    Tensor xg(x.dtype(), {x.num_elements() - g * w.shape()[1] * xs[1]},
              static_cast<const char*>(x.data()) + static_cast<size_t>(g * w.shape()[1] * xs[1]) * bytes, nullptr);
    Tensor wg(w.dtype(), {w.num_elements() - g * per_group * ws[0]},
              static_cast<const char*>(w.data()) + static_cast<size_t>(g * per_group * ws[0]) * bytes, nullptr);
    Tensor part = sum_of_products(xg, wg, Tensor(x.dtype(), shape), x_out, w_out, k_shape, x_k, w_k);
    int64_t run = part.num_elements() / std::max<int64_t>(1, shape[0]);
    for (int64_t n = 0; n < shape[0] && run > 0; ++n) {
      std::memcpy(static_cast<char*>(out.mutable_data()) +
                      static_cast<size_t>(n * out_strides[0] + g * per_group * out_strides[1]) * bytes,
                  static_cast<const char*>(part.data()) + static_cast<size_t>(n * run) * bytes,
                  static_cast<size_t>(run) * bytes);
    }
  }
  return out;
}

}  // namespace

Tensor evaluate_reduce(const EvaluationContext& c) {
  switch (c.node.op) {
    case Op::Reduce:
      return reduce(c);
    case Op::Scan:
      return scan(c);
    default:
      return window_reduce(c);
  }
}

Tensor evaluate_contract(const EvaluationContext& c) {
  return c.node.op == Op::Matmul ? matmul(c) : conv(c);
}

}  // namespace cuvil
