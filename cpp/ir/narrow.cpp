#include "ir/narrow.hpp"

#include <cmath>

#include "ir/evaluate.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

constexpr NarrowFormat kFormats[] = {
    {DType::f8e4m3fn, 8, 4, 3, 7, NarrowSpecials::Nan, true},
    {DType::f8e4m3fnuz, 8, 4, 3, 8, NarrowSpecials::NanOnly, true},
    {DType::f8e5m2, 8, 5, 2, 15, NarrowSpecials::InfNan, true},
    {DType::f8e5m2fnuz, 8, 5, 2, 16, NarrowSpecials::NanOnly, true},
    {DType::f8e8m0fnu, 8, 8, 0, 127, NarrowSpecials::Nan, false},
    {DType::f6e2m3fn, 6, 2, 3, 1, NarrowSpecials::None, true},
    {DType::f6e3m2fn, 6, 3, 2, 3, NarrowSpecials::None, true},
    {DType::f4e2m1fn, 4, 2, 1, 1, NarrowSpecials::None, true},
    {DType::u4, 4, 0, 0, 0, NarrowSpecials::None, false},
    {DType::i4, 4, 0, 0, 0, NarrowSpecials::None, true},
    {DType::u2, 2, 0, 0, 0, NarrowSpecials::None, false},
    {DType::i2, 2, 0, 0, 0, NarrowSpecials::None, true},
};

constexpr int64_t kInfinity = 0x7f800000, kNan = 0x7fc00000, kNegativeNan = 0xffc00000, kMinNormal = 0x00800000;

// Arithmetic on the u32 bits of f32 values.
class Bits {
 public:
  explicit Bits(Builder& b) : b_(b) {}

  Value* number(int64_t v) { return b_.scalar_int(DType::u32, v); }
  Value* op(Fn fn, Value* x, Value* y) { return b_.binary(fn, x, y); }
  Value* op(Fn fn, Value* x, int64_t y) { return b_.binary(fn, x, number(y)); }
  Value* select(Value* condition, Value* x, Value* y) { return b_.select(condition, x, y); }
  Value* select(Value* condition, int64_t x, Value* y) { return b_.select(condition, number(x), y); }
  Value* choose(Value* condition, int64_t x, int64_t y) { return b_.select(condition, number(x), number(y)); }
  Value* both(Value* x, Value* y) { return b_.binary(Fn::And, x, y); }
  Value* either(Value* x, Value* y) { return b_.binary(Fn::Or, x, y); }
  Value* real(Value* bits) { return b_.bitcast(bits, DType::f32); }
  Value* of(Value* real) { return b_.bitcast(real, DType::u32); }
  Value* magnitude(Value* bits) { return op(Fn::And, bits, 0x7fffffff); }

 private:
  Builder& b_;
};

// A magnitude's bits, of a float type with a sign, as those of an f32 magnitude.
Value* widened_magnitude(Builder& b, Bits& u, Value* m, const NarrowFormat& f) {
  const int64_t normal = int64_t{1} << f.mantissa, shift = 23 - f.mantissa;
  Value* r = u.op(Fn::Add, u.op(Fn::Shl, m, shift), int64_t{127 - f.bias} << 23);
  // Below the first normal number, bits count units of the last place.
  Value* units = b.cast(b.cast(m, DType::i32), DType::f32);
  Value* small = b.binary(Fn::Mul, units, std::ldexp(1.0, 1 - f.bias - f.mantissa));
  r = u.select(u.op(Fn::Lt, m, normal), u.of(small), r);
  const int64_t top = (int64_t{1} << (f.bits - 1)) - 1, infinity = top & -normal;
  if (f.specials == NarrowSpecials::Nan) r = u.select(u.op(Fn::Eq, m, top), kNan, r);
  if (f.specials == NarrowSpecials::InfNan) {
    r = u.select(u.op(Fn::Eq, m, infinity), kInfinity, r);
    r = u.select(u.op(Fn::Gt, m, infinity), kNan, r);
  }
  return r;
}

Value* decoded_float(Builder& b, Value* bits, const NarrowFormat& f) {
  Bits u(b);
  bits = b.cast(bits, DType::u32);
  if (!f.is_signed) {
    // 2^-127 is no normal number of f32.
    Value* r = u.select(u.op(Fn::Eq, bits, int64_t{0}), kMinNormal / 2, u.op(Fn::Shl, bits, 23));
    return u.real(u.select(u.op(Fn::Eq, bits, 255), kNan, r));
  }
  const int64_t sign = int64_t{1} << (f.bits - 1);
  Value* r = widened_magnitude(b, u, u.op(Fn::And, bits, sign - 1), f);
  r = u.op(Fn::Or, r, u.op(Fn::Shl, u.op(Fn::And, bits, sign), 32 - f.bits));
  if (f.specials == NarrowSpecials::NanOnly) r = u.select(u.op(Fn::Eq, bits, sign), kNegativeNan, r);
  return u.real(r);
}

// A large constant's values, each bit pattern decoded once.
Value* decoded_by_table(Builder& b, const Tensor& t) {
  Tensor patterns(t.dtype(), {256});
  for (int i = 0; i < 256; ++i) patterns.set_int(i, i);
  const auto table = evaluate_constant(decode_narrow(b, b.constant(patterns), DType::f32), 256);
  CUVIL_CHECK(table, "the values of a narrow type");
  Tensor values = Tensor::uninitialized(DType::f32, t.shape());
  for (int64_t i = 0; i < t.num_elements(); ++i) values.mutable_as<float>()[i] = table->as<float>()[t.as<uint8_t>()[i]];
  return b.constant(std::move(values));
}

// The u32 bits of x as f32. What f32 can't hold is cut off and marked by the last bit: as that bit lies below every
// place that a narrow type rounds at, rounding again is rounding x.
Value* wide_bits(Builder& b, Value* x) {
  Bits u(b);
  if (x->type.dtype != DType::f64) return u.of(b.cast(x, DType::f32));
  Value* nearest = b.cast(x, DType::f32);
  Value* back = b.cast(nearest, DType::f64);
  Value* bits = u.of(nearest);
  Value* beyond = b.binary(Fn::Gt, b.unary(Fn::Abs, back), b.unary(Fn::Abs, x));
  Value* cut = u.op(Fn::Or, u.op(Fn::Sub, bits, u.choose(beyond, 1, 0)), 1);
  return u.select(b.binary(Fn::Eq, back, x), bits, cut);
}

// An f32 magnitude's bits as those of a magnitude without an upper end. NaN gives anything.
Value* narrowed_magnitude(Builder& b, Bits& u, Value* a, const NarrowFormat& f) {
  const int64_t shift = 23 - f.mantissa, half = int64_t{1} << (shift - 1);
  Value* odd = u.op(Fn::And, u.op(Fn::Shr, a, shift), 1);
  Value* r = u.op(Fn::Shr, u.op(Fn::Add, u.op(Fn::Add, a, half - 1), odd), shift);
  r = u.op(Fn::Sub, r, int64_t{127 - f.bias} << f.mantissa);
  Value* units = b.unary(Fn::Round, b.binary(Fn::Mul, u.real(a), std::ldexp(1.0, f.bias - 1 + f.mantissa)));
  return u.select(u.op(Fn::Lt, a, int64_t{128 - f.bias} << 23), b.cast(b.cast(units, DType::i32), DType::u32), r);
}

Value* encoded_float(Builder& b, Value* wide, const NarrowFormat& f, bool saturate) {
  Bits u(b);
  const int64_t sign_bit = int64_t{1} << (f.bits - 1), infinity = (sign_bit - 1) & -(int64_t{1} << f.mantissa);
  int64_t largest = sign_bit - 1, nan = sign_bit - 1;
  if (f.specials == NarrowSpecials::Nan) largest -= 1;
  if (f.specials == NarrowSpecials::InfNan) {
    largest = infinity - 1;
    nan = infinity + (int64_t{1} << (f.mantissa - 1));
  }
  Value* a = u.magnitude(wide);
  Value* is_nan = u.op(Fn::Gt, a, kInfinity);
  Value* sign = u.op(Fn::And, u.op(Fn::Shr, wide, 32 - f.bits), sign_bit);
  Value* r = narrowed_magnitude(b, u, a, f);
  saturate |= f.specials == NarrowSpecials::None;
  const int64_t beyond = saturate ? largest : f.specials == NarrowSpecials::InfNan ? infinity : nan;
  Value* over = u.op(Fn::Gt, r, largest);
  if (f.specials == NarrowSpecials::NanOnly) {
    Value* none = u.op(Fn::Eq, r, int64_t{0});
    if (saturate) r = u.select(over, largest, r);
    r = u.select(none, r, u.op(Fn::Or, r, sign));
    if (!saturate) is_nan = u.either(is_nan, over);
    return u.select(is_nan, sign_bit, r);
  }
  r = u.select(over, beyond, r);
  // Types without NaN give a zero of the other sign for it.
  if (f.specials == NarrowSpecials::None) {
    return u.select(is_nan, u.op(Fn::Xor, sign, sign_bit), u.op(Fn::Or, r, sign));
  }
  return u.op(Fn::Or, u.select(is_nan, nan, r), sign);
}

// Powers of two. Numbers below 0 give NaN.
Value* encoded_scale(Builder& b, Value* wide, NarrowOptions options) {
  Bits u(b);
  constexpr int64_t half = int64_t{1} << 22, largest = 254, nan = 255;
  Value* a = u.magnitude(wide);
  Value* exponent = u.op(Fn::Shr, a, 23);
  Value* fraction = u.op(Fn::And, a, (int64_t{1} << 23) - 1);
  // The smallest is f32's 0 + half.
  Value* subnormal = u.op(Fn::Eq, exponent, int64_t{0});
  Value* r = exponent;
  if (options.rounding != ScaleRounding::Down) {
    const int64_t above = options.rounding == ScaleRounding::Up ? 0 : half - 1;
    r = u.op(Fn::Add, r, u.choose(u.op(Fn::Gt, fraction, u.choose(subnormal, half, above)), 1, 0));
  }
  r = u.select(u.op(Fn::Gt, r, largest), options.saturate ? largest : nan, r);
  Value* invalid = u.op(Fn::Gt, a, kInfinity);
  Value* negative = u.both(u.op(Fn::Gt, wide, int64_t{1} << 31), u.op(Fn::Ne, a, int64_t{0}));
  invalid = u.either(invalid, negative);
  if (!options.saturate) invalid = u.either(invalid, u.op(Fn::Lt, a, half));
  return u.select(invalid, nan, r);
}

}  // namespace

const NarrowFormat& narrow_format(DType dtype) {
  for (const NarrowFormat& f : kFormats) {
    if (f.dtype == dtype) return f;
  }
  throw InternalError(std::string(name_of(dtype)) + " is no narrow type");
}

Value* decode_narrow(Builder& b, Value* x, DType dtype) {
  const NarrowFormat& f = narrow_format(x->type.dtype);
  CUVIL_CHECK(!is_narrow(dtype), "decoded to a narrow type");
  if (const Tensor* t = constant_of(x); t && !f.is_integer() && t->num_elements() > 256)
    return b.cast(decoded_by_table(b, *t), dtype);
  Value* bits = b.bitcast(x, DType::u8);
  // Bits that come from outside may be extended by copies of the sign.
  if (f.bits < 8 && !(f.is_integer() && f.is_signed)) bits = b.binary(Fn::And, bits, (1 << f.bits) - 1);
  if (!f.is_integer()) return b.cast(decoded_float(b, bits, f), dtype);
  if (f.is_signed) {
    Value* shift = b.scalar_int(DType::i8, 8 - f.bits);
    bits = b.binary(Fn::Shr, b.binary(Fn::Shl, b.bitcast(bits, DType::i8), shift), shift);
  }
  return b.cast(bits, dtype);
}

Value* encode_narrow(Builder& b, Value* x, DType dtype, NarrowOptions options) {
  const NarrowFormat& f = narrow_format(dtype);
  if (x->type.dtype == dtype) return x;
  if (is_narrow(x->type.dtype)) {
    x = decode_narrow(b, x, narrow_format(x->type.dtype).is_integer() ? DType::i32 : DType::f32);
  }
  Value* bits = nullptr;
  if (f.is_integer()) {
    if (is_float(x->type.dtype)) x = b.cast(x, DType::i32);
    bits = b.binary(Fn::And, b.cast(x, DType::u8), (1 << f.bits) - 1);
  } else {
    Value* wide = wide_bits(b, x);
    bits = f.is_signed ? encoded_float(b, wide, f, options.saturate) : encoded_scale(b, wide, options);
  }
  return b.bitcast(b.cast(bits, DType::u8), dtype);
}

}  // namespace cuvil
