// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cuvil {

// name, C++ storage type, bytes, class: f(loat) i(nt) u(int) b(ool) n(arrow)
#define CUVIL_INTEGER_DTYPES(X) \
  X(i8, int8_t, 1, 'i')         \
  X(i16, int16_t, 2, 'i')       \
  X(i32, int32_t, 4, 'i')       \
  X(i64, int64_t, 8, 'i')       \
  X(u8, uint8_t, 1, 'u')        \
  X(u16, uint16_t, 2, 'u')      \
  X(u32, uint32_t, 4, 'u')      \
  X(u64, uint64_t, 8, 'u')

// Those that C++ computes with as they are stored.
#define CUVIL_ARITHMETIC_DTYPES(X) \
  X(f32, float, 4, 'f')            \
  X(f64, double, 8, 'f')           \
  CUVIL_INTEGER_DTYPES(X)

// Those that are stored and converted (ir/narrow.hpp) and never computed with: one element a byte, its bits the lowest
// ones, the others 0. Where a number stands for an element (in text, as the value of a pad) it is its bits.
#define CUVIL_NARROW_DTYPES(X)   \
  X(f8e4m3fn, uint8_t, 1, 'n')   \
  X(f8e4m3fnuz, uint8_t, 1, 'n') \
  X(f8e5m2, uint8_t, 1, 'n')     \
  X(f8e5m2fnuz, uint8_t, 1, 'n') \
  X(f8e8m0fnu, uint8_t, 1, 'n')  \
  X(f6e2m3fn, uint8_t, 1, 'n')   \
  X(f6e3m2fn, uint8_t, 1, 'n')   \
  X(f4e2m1fn, uint8_t, 1, 'n')   \
  X(u4, uint8_t, 1, 'n')         \
  X(i4, uint8_t, 1, 'n')         \
  X(u2, uint8_t, 1, 'n')         \
  X(i2, uint8_t, 1, 'n')

#define CUVIL_DTYPES(X)       \
  CUVIL_ARITHMETIC_DTYPES(X)  \
  X(f16, uint16_t, 2, 'f')    \
  X(bf16, uint16_t, 2, 'f')   \
  X(boolean, uint8_t, 1, 'b') \
  CUVIL_NARROW_DTYPES(X)

enum class DType : uint8_t {
#define X(name, type, bytes, kind) name,
  CUVIL_DTYPES(X)
#undef X
};

size_t size_of(DType t);
std::string_view name_of(DType t);
std::optional<DType> dtype_from_name(std::string_view name);
bool is_float(DType t);
bool is_signed_int(DType t);
bool is_unsigned_int(DType t);
/// Signed or unsigned integer; bool is not one.
bool is_integer(DType t);
bool is_narrow(DType t);

}  // namespace cuvil
