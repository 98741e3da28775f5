#include "ir/tensor.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "support/error.hpp"

namespace cuvil {

Tensor Tensor::uninitialized(DType dtype, std::vector<int64_t> shape) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  size_t bytes = (t.num_bytes() + 127) / 64 * 64;
  // Large tensors lie on whole huge pages where the system has them: touching memory first is most of a copy's cost,
  // and pages that lie together don't compete for cache sets.
  constexpr size_t kHugePage = size_t{2} << 20;
  bool large = bytes >= kHugePage / 2;
  if (large) bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(large ? kHugePage : 64, bytes);
  if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (large) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  t.owner_ = std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); });
  t.data_ = memory;
  return t;
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape) {
  *this = uninitialized(dtype, std::move(shape));
  if (num_bytes()) std::memset(mutable_data(), 0, num_bytes());
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape, const void* data, std::shared_ptr<const void> owner)
    : dtype_(dtype), shape_(std::move(shape)), data_(data), owner_(std::move(owner)) {}

int64_t Tensor::num_elements() const {
  int64_t n = 1;
  for (int64_t d : shape_) {
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) throw CompileError("a tensor's size overflows");
  }
  return n;
}

Type Tensor::type() const {
  return {dtype_, Shape(shape_.begin(), shape_.end())};
}

Tensor Tensor::reshaped(std::vector<int64_t> shape) const {
  Tensor t = *this;
  t.shape_ = std::move(shape);
  CUVIL_CHECK(t.num_elements() == num_elements(), "reshaped to another number of elements");
  return t;
}

Tensor Tensor::scalar(DType dtype, double value) {
  Tensor t(dtype, {});
  t.set_double(0, value);
  return t;
}

Tensor Tensor::scalar_int(DType dtype, int64_t value) {
  Tensor t(dtype, {});
  t.set_int(0, value);
  return t;
}

Tensor Tensor::vector(DType dtype, const std::vector<double>& values) {
  Tensor t = uninitialized(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) t.set_double(static_cast<int64_t>(i), values[i]);
  return t;
}

Tensor Tensor::vector_int(DType dtype, const std::vector<int64_t>& values) {
  Tensor t = uninitialized(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) t.set_int(static_cast<int64_t>(i), values[i]);
  return t;
}

double Tensor::get_double(int64_t i) const {
  switch (dtype_) {
    case DType::f16:
      return half_to_float(as<uint16_t>()[i]);
    case DType::bf16:
      return bfloat16_to_float(as<uint16_t>()[i]);
#define X(name, type, bytes, kind) \
  case DType::name:                \
    return static_cast<double>(as<type>()[i]);
      CUVIL_ARITHMETIC_DTYPES(X)
      CUVIL_NARROW_DTYPES(X)
      X(boolean, uint8_t, 1, 'b')
#undef X
  }
  return 0;
}

int64_t Tensor::get_int(int64_t i) const {
  switch (dtype_) {
#define X(name, type, bytes, kind) \
  case DType::name:                \
    return static_cast<int64_t>(as<type>()[i]);
    CUVIL_INTEGER_DTYPES(X)
    CUVIL_NARROW_DTYPES(X)
    X(boolean, uint8_t, 1, 'b')
#undef X
    default: {
      double v = get_double(i);
      if (std::isnan(v)) return 0;
      if (v >= 9223372036854775807.0) return INT64_MAX;
      if (v <= -9223372036854775808.0) return INT64_MIN;
      return static_cast<int64_t>(v);
    }
  }
}

void Tensor::set_double(int64_t i, double v) {
  switch (dtype_) {
    case DType::f32:
      mutable_as<float>()[i] = static_cast<float>(v);
      break;
    case DType::f64:
      mutable_as<double>()[i] = v;
      break;
    case DType::f16:
      mutable_as<uint16_t>()[i] = float_to_half(static_cast<float>(v));
      break;
    case DType::bf16:
      mutable_as<uint16_t>()[i] = float_to_bfloat16(static_cast<float>(v));
      break;
    case DType::boolean:
      mutable_as<uint8_t>()[i] = v != 0;
      break;
    case DType::u64:
      mutable_as<uint64_t>()[i] =
          v < 9223372036854775808.0 ? static_cast<uint64_t>(static_cast<int64_t>(v)) : static_cast<uint64_t>(v);
      break;
    default:
      set_int(i, static_cast<int64_t>(v));
  }
}

void Tensor::set_int(int64_t i, int64_t v) {
  switch (dtype_) {
#define X(name, type, bytes, kind)                \
  case DType::name:                               \
    mutable_as<type>()[i] = static_cast<type>(v); \
    break;
    CUVIL_INTEGER_DTYPES(X)
    CUVIL_NARROW_DTYPES(X)
#undef X
    case DType::boolean:
      mutable_as<uint8_t>()[i] = v != 0;
      break;
    default:
      set_double(i, static_cast<double>(v));
  }
}

float half_to_float(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude = exponent == 31
                        ? (mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity())
                    : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                    : std::ldexp(static_cast<float>(mantissa | 1024), static_cast<int>(exponent) - 25);
  uint32_t out;
  std::memcpy(&out, &magnitude, 4);
  out |= sign;
  std::memcpy(&magnitude, &out, 4);
  return magnitude;
}

uint16_t float_to_half(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  float a = std::fabs(v);
  if (std::isnan(v)) return static_cast<uint16_t>(sign | 0x7e00);
  if (a == 0) return sign;
  if (a >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(a, &exponent);
  // Units of the result's last place; nearbyint rounds ties to even, and a carry moves into the exponent by itself.
  int unit = std::max(exponent - 11, -24);
  auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(a, -unit)));
  if (unit == -24) return static_cast<uint16_t>(sign | units);
  return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(unit + 24) << 10) + units));
}

float bfloat16_to_float(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float v;
  std::memcpy(&v, &wide, 4);
  return v;
}

uint16_t float_to_bfloat16(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  if (std::isnan(v)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  bits += 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace cuvil
