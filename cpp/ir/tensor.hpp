// A dense, row-major, immutable-by-convention tensor in host memory: constants, and values of the reference evaluator.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "ir/type.hpp"

namespace cuvil {

class Tensor {
 public:
  Tensor() = default;
  /// Zero-initialised, 64-byte aligned.
  Tensor(DType dtype, std::vector<int64_t> shape);
  /// 64-byte aligned; the elements hold anything.
  static Tensor uninitialized(DType dtype, std::vector<int64_t> shape);
  /// Borrows memory that `owner` keeps alive (a mapped file, a framework's tensor).
  Tensor(DType dtype, std::vector<int64_t> shape, const void* data, std::shared_ptr<const void> owner);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t num_elements() const;
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * size_of(dtype_); }
  const void* data() const { return data_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  /// Only for a tensor that owns its memory and that nobody else has seen yet.
  void* mutable_data() { return const_cast<void*>(data_); }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }
  template <typename T>
  T* mutable_as() {
    return static_cast<T*>(mutable_data());
  }
  Type type() const;
  /// Same memory under another shape with equally many elements.
  Tensor reshaped(std::vector<int64_t> shape) const;

  /// A rank-0 tensor; the value is converted to dtype.
  static Tensor scalar(DType dtype, double value);
  static Tensor scalar_int(DType dtype, int64_t value);
  /// A rank-1 tensor of these elements, converted to dtype.
  static Tensor vector(DType dtype, const std::vector<double>& values);
  static Tensor vector_int(DType dtype, const std::vector<int64_t>& values);

  /// Element i converted to double / int64 (half types decoded; of narrow types, the bits).
  double get_double(int64_t i) const;
  int64_t get_int(int64_t i) const;
  void set_double(int64_t i, double v);
  void set_int(int64_t i, int64_t v);

 private:
  DType dtype_ = DType::f32;
  std::vector<int64_t> shape_;
  const void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

float half_to_float(uint16_t bits);
uint16_t float_to_half(float v);
float bfloat16_to_float(uint16_t bits);
uint16_t float_to_bfloat16(float v);

}  // namespace cuvil
