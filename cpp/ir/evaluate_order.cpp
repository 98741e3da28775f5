// Scatters and sorts: where the order of elements matters.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "ir/evaluate_ops.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

template <typename T>
bool is_nan(T v) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(v);
  return false;
}

template <typename T>
T folded_extremum(bool maximum, T a, T b) {
  if (is_nan(a) || is_nan(b)) return is_nan(a) ? a : b;
  return maximum ? std::max(a, b) : std::min(a, b);
}

double folded(ReduceFn fn, double a, double b) {
  if (fn == ReduceFn::Sum) return a + b;
  return fn == ReduceFn::Prod ? a * b : folded_extremum(fn == ReduceFn::Max, a, b);
}

int64_t folded(ReduceFn fn, DType dtype, int64_t x, int64_t y) {
  auto a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
  if (fn == ReduceFn::Sum) return static_cast<int64_t>(a + b);
  if (fn == ReduceFn::Prod) return static_cast<int64_t>(a * b);
  bool maximum = fn == ReduceFn::Max;
  return dtype == DType::u64 ? static_cast<int64_t>(folded_extremum(maximum, a, b)) : folded_extremum(maximum, x, y);
}

// Stores one update, or folds it into the element that is there.
void update(const Node& node, Tensor& out, int64_t to, const Tensor& updates, int64_t from) {
  const DType dtype = out.dtype();
  const size_t bytes = size_of(dtype);
  if (!node.attributes.count("fn")) {
    std::memcpy(static_cast<char*>(out.mutable_data()) + to * static_cast<int64_t>(bytes),
                static_cast<const char*>(updates.data()) + from * static_cast<int64_t>(bytes), bytes);
  } else if (is_float(dtype)) {
    out.set_double(to, folded(node.reduce_fn(), out.get_double(to), updates.get_double(from)));
  } else {
    out.set_int(to, folded(node.reduce_fn(), dtype, out.get_int(to), updates.get_int(from)));
  }
}

Tensor copy_of(const Tensor& x) {
  Tensor out = Tensor::uninitialized(x.dtype(), x.shape());
  if (x.num_bytes()) std::memcpy(out.mutable_data(), x.data(), x.num_bytes());
  return out;
}

Tensor scatter(const EvaluationContext& c) {
  Tensor out = copy_of(c.operand(0));
  const Tensor& index = c.operand(1);
  const Tensor& updates = c.operand(2);
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  int64_t before = 1, after = 1, size = out.shape()[axis], n = index.num_elements();
  for (size_t i = 0; i < axis; ++i) before *= out.shape()[i];
  for (size_t i = axis + 1; i < out.shape().size(); ++i) after *= out.shape()[i];
  for (int64_t i = 0; i < n && before * after > 0; ++i) {
    int64_t to = checked_index(c, index.get_int(i), size);
    for (int64_t b = 0; b < before; ++b) {
      for (int64_t a = 0; a < after; ++a)
        update(c.node, out, (b * size + to) * after + a, updates, (b * n + i) * after + a);
    }
  }
  return out;
}

Tensor scatter_elements(const EvaluationContext& c) {
  Tensor out = copy_of(c.operand(0));
  const Tensor& index = c.operand(1);
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  for (size_t i = 0; i < out.shape().size(); ++i) {
    if (i != axis && index.shape()[i] > out.shape()[i])
      throw CompileError("scatter_elements (" + c.node.source + "): indices are larger than data off the axis");
  }
  std::vector<int64_t> strides = element_strides(out.shape()), moving = strides;
  moving[axis] = 0;
  for_each_index<1>(index.shape(), {moving}, {0}, [&](int64_t i, const std::array<int64_t, 1>& offset) {
    int64_t to = checked_index(c, index.get_int(i), out.shape()[axis]);
    update(c.node, out, offset[0] + to * strides[axis], c.operand(2), i);
  });
  return out;
}

// Whether a comes before b: smaller, NaN counting as the largest number.
template <typename T>
bool comes_before(T a, T b) {
  if (is_nan(a) || is_nan(b)) return is_nan(b) && !is_nan(a);
  return a < b;
}

Tensor sort_indices(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  Tensor out = Tensor::uninitialized(DType::i64, c.result_shape());
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  const bool descending = c.node.get<bool>("descending");
  const int64_t n = x.shape()[axis], count = out.shape()[axis];
  if (count > n) {
    throw CompileError("sort_indices (" + c.node.source + "): count " + std::to_string(count) +
                       " is more than the axis has (" + std::to_string(n) + ")");
  }
  std::vector<int64_t> strides = element_strides(x.shape()), out_strides = element_strides(out.shape());
  std::vector<int64_t> rows = x.shape(), order(static_cast<size_t>(n));
  rows[axis] = 1;
  for_each_index<2>(rows, {strides, out_strides}, {0, 0}, [&](int64_t, const std::array<int64_t, 2>& at) {
    auto before = [&](auto value_of) {
      return [&, value_of](int64_t i, int64_t k) {
        auto a = value_of(at[0] + i * strides[axis]), b = value_of(at[0] + k * strides[axis]);
        return descending ? comes_before(b, a) : comes_before(a, b);
      };
    };
    std::iota(order.begin(), order.end(), 0);
    if (is_float(x.dtype())) {
      std::stable_sort(order.begin(), order.end(), before([&](int64_t i) { return x.get_double(i); }));
    } else if (x.dtype() == DType::u64) {
      std::stable_sort(order.begin(), order.end(),
                       before([&](int64_t i) { return static_cast<uint64_t>(x.get_int(i)); }));
    } else {
      std::stable_sort(order.begin(), order.end(), before([&](int64_t i) { return x.get_int(i); }));
    }
    for (int64_t i = 0; i < count; ++i) out.set_int(at[1] + i * out_strides[axis], order[static_cast<size_t>(i)]);
  });
  return out;
}

}  // namespace

Tensor evaluate_order(const EvaluationContext& c) {
  switch (c.node.op) {
    case Op::Scatter:
      return scatter(c);
    case Op::ScatterElements:
      return scatter_elements(c);
    default:
      return sort_indices(c);
  }
}

}  // namespace cuvil
