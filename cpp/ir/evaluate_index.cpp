// Leaves and index-like ops: elements move as bytes, whatever their dtype.
#include <algorithm>
#include <cstring>

#include "ir/evaluate_ops.hpp"
#include "support/error.hpp"

namespace cuvil {

std::vector<int64_t> element_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  std::vector<int64_t> strides(to.size(), 0), own = element_strides(from);
  size_t skip = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) strides[skip + i] = from[i] == 1 && to[skip + i] != 1 ? 0 : own[i];
  return strides;
}

int64_t checked_index(const EvaluationContext& c, int64_t i, int64_t size) {
  int64_t wrapped = i < 0 ? i + size : i;
  if (wrapped < 0 || wrapped >= size) {
    throw CompileError(std::string(info(c.node.op).name) + " (" + c.node.source + "): index " + std::to_string(i) +
                       " is outside an axis of size " + std::to_string(size));
  }
  return wrapped;
}

namespace {

constexpr int64_t kBlock = 16;

// `read` is the axis along which `in` is contiguous; `out` is contiguous along the last axis.
template <typename T>
void copy_blocked(T* out, const T* in, std::vector<int64_t> shape, const std::vector<int64_t>& out_strides,
                  const std::vector<int64_t>& in_strides, size_t read) {
  size_t last = shape.size() - 1;
  const int64_t rows = shape[read], columns = shape[last], so = out_strides[read], si = in_strides[last];
  shape[read] = shape[last] = 1;
  for_each_index<2>(shape, {out_strides, in_strides}, {0, 0}, [&](int64_t, const std::array<int64_t, 2>& at) {
    for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
      const int64_t r1 = std::min(rows, r0 + kBlock);
      for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
        const int64_t c1 = std::min(columns, c0 + kBlock);
        for (int64_t r = r0; r < r1; ++r) {
          T* o = out + at[0] + r * so;
          const T* i = in + at[1] + r;
          for (int64_t c = c0; c < c1; ++c) o[c] = i[c * si];
        }
      }
    }
  });
}

template <typename T>
void copy_strided_typed(T* out, const T* in, const std::vector<int64_t>& shape, const std::vector<int64_t>& out_strides,
                        const std::vector<int64_t>& in_strides) {
  // The innermost axis is a tight loop; the rest is walked by an odometer.
  if (shape.empty()) {
    *out = *in;
    return;
  }
  // A transposition reads along one axis and writes along another: both are walked in blocks that stay in cache.
  size_t last = shape.size() - 1, read = last;
  for (size_t i = 0; i < last; ++i) {
    if (in_strides[i] == 1 && shape[i] >= kBlock) read = i;
  }
  if (read != last && out_strides[last] == 1 && in_strides[last] != 1 && shape[last] >= kBlock) {
    copy_blocked(out, in, shape, out_strides, in_strides, read);
    return;
  }
  std::vector<int64_t> outer(shape.begin(), shape.end() - 1);
  int64_t n = shape.back(), so = out_strides.back(), si = in_strides.back();
  std::array<std::vector<int64_t>, 2> strides{std::vector<int64_t>(out_strides.begin(), out_strides.end() - 1),
                                              std::vector<int64_t>(in_strides.begin(), in_strides.end() - 1)};
  if (n == 0) return;
  for_each_index<2>(outer, strides, {0, 0}, [&](int64_t, const std::array<int64_t, 2>& at) {
    T* o = out + at[0];
    const T* i = in + at[1];
    if (so == 1 && si == 1) {
      std::memcpy(o, i, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t k = 0; k < n; ++k) o[k * so] = i[k * si];
    }
  });
}

// Copies shape from in to out (pointers already at the first element), strides in elements.
void copy_strided(void* out, const void* in, size_t bytes, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& out_strides, const std::vector<int64_t>& in_strides) {
  switch (bytes) {
    case 1:
      return copy_strided_typed(static_cast<uint8_t*>(out), static_cast<const uint8_t*>(in), shape, out_strides,
                                in_strides);
    case 2:
      return copy_strided_typed(static_cast<uint16_t*>(out), static_cast<const uint16_t*>(in), shape, out_strides,
                                in_strides);
    case 4:
      return copy_strided_typed(static_cast<uint32_t*>(out), static_cast<const uint32_t*>(in), shape, out_strides,
                                in_strides);
    default:
      return copy_strided_typed(static_cast<uint64_t*>(out), static_cast<const uint64_t*>(in), shape, out_strides,
                                in_strides);
  }
}

char* at(Tensor& t, int64_t element) {
  return static_cast<char*>(t.mutable_data()) + element * static_cast<int64_t>(size_of(t.dtype()));
}
const char* at(const Tensor& t, int64_t element) {
  return static_cast<const char*>(t.data()) + element * static_cast<int64_t>(size_of(t.dtype()));
}

Tensor slice(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  Tensor out = Tensor::uninitialized(x.dtype(), c.result_shape());
  std::vector<int64_t> strides = element_strides(x.shape()), in_strides;
  int64_t start = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    start += c.size(c.node.dims("starts")[i]) * strides[i];
    in_strides.push_back(c.node.ints("steps")[i] * strides[i]);
  }
  if (out.num_elements())
    copy_strided(out.mutable_data(), at(x, start), size_of(x.dtype()), out.shape(), element_strides(out.shape()),
                 in_strides);
  return out;
}

Tensor pad(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  Tensor out(x.dtype(), c.result_shape());
  double value = c.node.get<double>("value");
  if (value != 0) {
    for (int64_t i = 0; i < out.num_elements(); ++i) out.set_double(i, value);
  }
  std::vector<int64_t> out_strides = element_strides(out.shape());
  int64_t start = 0;
  for (size_t i = 0; i < out_strides.size(); ++i) start += c.size(c.node.dims("low")[i]) * out_strides[i];
  if (x.num_elements())
    copy_strided(at(out, start), x.data(), size_of(x.dtype()), x.shape(), out_strides, element_strides(x.shape()));
  return out;
}

Tensor concat(const EvaluationContext& c) {
  Tensor out = Tensor::uninitialized(c.node.type().dtype, c.result_shape());
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  std::vector<int64_t> out_strides = element_strides(out.shape());
  int64_t start = 0;
  for (const Tensor& part : c.operands) {
    if (part.num_elements())
      copy_strided(at(out, start), part.data(), size_of(part.dtype()), part.shape(), out_strides,
                   element_strides(part.shape()));
    start += part.shape()[axis] * out_strides[axis];
  }
  return out;
}

Tensor gather(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  const Tensor& index = c.operand(1);
  Tensor out = Tensor::uninitialized(x.dtype(), c.result_shape());
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  int64_t before = 1, after = 1, size = x.shape()[axis];
  for (size_t i = 0; i < axis; ++i) before *= x.shape()[i];
  for (size_t i = axis + 1; i < x.shape().size(); ++i) after *= x.shape()[i];
  int64_t n = index.num_elements();
  size_t run = static_cast<size_t>(after) * size_of(x.dtype());
  for (int64_t b = 0; b < before; ++b) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t from = checked_index(c, index.get_int(i), size);
      if (run) std::memcpy(at(out, (b * n + i) * after), at(x, (b * size + from) * after), run);
    }
  }
  return out;
}

Tensor gather_elements(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  const Tensor& index = c.operand(1);
  Tensor out = Tensor::uninitialized(x.dtype(), index.shape());
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  std::vector<int64_t> strides = element_strides(x.shape()), moving = strides;
  moving[axis] = 0;
  size_t bytes = size_of(x.dtype());
  for_each_index<1>(index.shape(), {moving}, {0}, [&](int64_t i, const std::array<int64_t, 1>& offset) {
    int64_t from = checked_index(c, index.get_int(i), x.shape()[axis]);
    std::memcpy(at(out, i), at(x, offset[0] + from * strides[axis]), bytes);
  });
  return out;
}

}  // namespace

Tensor evaluate_leaf(const EvaluationContext& c) {
  if (c.node.op == Op::Constant) return c.node.tensor();
  if (c.node.op == Op::DimValue) return Tensor::scalar_int(DType::i64, c.size(c.node.get<Dim>("value")));
  Tensor out = Tensor::uninitialized(c.node.type().dtype, c.result_shape());
  auto axis = static_cast<size_t>(c.node.integer("axis"));
  std::vector<int64_t> strides(out.shape().size(), 0);
  strides[axis] = 1;
  for_each_index<1>(out.shape(), {strides}, {0},
                    [&](int64_t i, const std::array<int64_t, 1>& v) { out.set_int(i, v[0]); });
  return out;
}

Tensor evaluate_index(const EvaluationContext& c) {
  const Tensor& x = c.operand(0);
  switch (c.node.op) {
    case Op::Reshape:
      return x.reshaped(c.result_shape());
    case Op::Transpose: {
      Tensor out = Tensor::uninitialized(x.dtype(), c.result_shape());
      std::vector<int64_t> strides = element_strides(x.shape()), in_strides;
      for (int64_t p : c.node.ints("perm")) in_strides.push_back(strides[static_cast<size_t>(p)]);
      if (out.num_elements())
        copy_strided(out.mutable_data(), x.data(), size_of(x.dtype()), out.shape(), element_strides(out.shape()),
                     in_strides);
      return out;
    }
    case Op::Broadcast: {
      Tensor out = Tensor::uninitialized(x.dtype(), c.result_shape());
      if (out.num_elements())
        copy_strided(out.mutable_data(), x.data(), size_of(x.dtype()), out.shape(), element_strides(out.shape()),
                     broadcast_strides(x.shape(), out.shape()));
      return out;
    }
    case Op::Slice:
      return slice(c);
    case Op::Pad:
      return pad(c);
    case Op::Concat:
      return concat(c);
    case Op::Gather:
      return gather(c);
    case Op::GatherElements:
      return gather_elements(c);
    default:
      throw InternalError("not an index-like op");
  }
}

}  // namespace cuvil
