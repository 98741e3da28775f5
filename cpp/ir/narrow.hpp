// Narrow element types: what their bits mean, and conversions as compositions of primitives on bits.
#pragma once

#include "ir/builder.hpp"

namespace cuvil {

/// The values that a narrow float has besides numbers.
enum class NarrowSpecials : uint8_t {
  None,
  Nan,      // all ones: NaN (e4m3fn; e8m0, which has no sign)
  InfNan,   // as IEEE
  NanOnly,  // no -0, whose bits are NaN (fnuz)
};

struct NarrowFormat {
  DType dtype;
  int bits;
  int exponent, mantissa, bias;  // of integers, exponent is 0
  NarrowSpecials specials;
  bool is_signed;

  bool is_integer() const { return exponent == 0; }
  /// Of integers: the least and the greatest.
  int low() const { return is_signed ? -(1 << (bits - 1)) : 0; }
  int high() const { return (1 << (is_signed ? bits - 1 : bits)) - 1; }
};

const NarrowFormat& narrow_format(DType dtype);

enum class ScaleRounding : uint8_t { Nearest, Up, Down };

struct NarrowOptions {
  /// Floats beyond the largest number, infinities among them, become the largest, not infinity or NaN; floats of 6 and
  /// 4 bits, which have neither, always do so. Of f8e8m0fnu: also what is smaller than the smallest number becomes
  /// that.
  bool saturate = false;
  /// Of f8e8m0fnu; other types round to nearest, ties to even.
  ScaleRounding rounding = ScaleRounding::Nearest;
};

/// x as a narrow type, rounded once. Integers wrap; a float becomes one as if it became an i32 first.
Value* encode_narrow(Builder& b, Value* x, DType dtype, NarrowOptions options = {});
/// Values of a narrow type as a dtype that isn't one.
Value* decode_narrow(Builder& b, Value* x, DType dtype);

}  // namespace cuvil
