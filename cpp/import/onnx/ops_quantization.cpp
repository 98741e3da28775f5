// Quantised operators, as arithmetic on integers and floats that says what their definitions say: sums wrap in 32 bits
// and never saturate, results are rounded to nearest, ties to even, and saturate once.
#include "import/onnx/call.hpp"
#include "import/onnx/window.hpp"
#include "ir/narrow.hpp"

namespace cuvil::onnx {

namespace {

struct Range {
  double low, high;
};

Range range_of(Call& c, DType t) {
  switch (t) {
    case DType::u8:
      return {0, 255};
    case DType::i8:
      return {-128, 127};
    case DType::u16:
      return {0, 65535};
    case DType::i16:
      return {-32768, 32767};
    default:
      if (is_narrow(t) && narrow_format(t).is_integer())
        return {static_cast<double>(narrow_format(t).low()), static_cast<double>(narrow_format(t).high())};
      c.fail("quantised values of type " + std::string(name_of(t)) + " are not supported");
  }
}

// A scale or zero point against a tensor of `shape`: one number, one per index of `axis`, or one per block of
// `block` indices of it.
Value* spread(Call& c, Value* v, const Shape& shape, int64_t axis_attribute, int64_t block) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (v->type.num_elements() == Dim(1) && block == 0) return c.b.reshape(v, {});
  const auto axis = static_cast<size_t>(c.wrap_axis(axis_attribute, rank));
  if (block > 0) {
    if (v->type.rank() != rank) c.fail("with block_size, the scale must have the input's rank");
    Value* w = c.b.unsqueeze(v, {static_cast<int64_t>(axis) + 1});
    Shape wide = w->type.shape;
    wide[axis + 1] = block;
    Shape joined = v->type.shape;
    joined[axis] = joined[axis] * block;
    w = c.b.reshape(c.b.broadcast(w, wide), joined);
    return joined[axis] == shape[axis] ? w : c.b.slice_axis(w, static_cast<int>(axis), 0, shape[axis]);
  }
  if (v->type.rank() != 1) c.fail("scale and zero point must be one number or one per index of the axis");
  if (v->type.shape[0] != shape[axis]) c.fail("there must be one scale per index of the axis");
  Shape wide(shape.size(), Dim(1));
  wide[axis] = shape[axis];
  return c.b.reshape(v, wide);
}

bool is_narrow_float(DType t) {
  return is_narrow(t) && !narrow_format(t).is_integer();
}

Value* widened(Call& c, Value* v) {
  return c.b.cast(v, is_narrow_float(v->type.dtype) ? DType::f32 : DType::i32);
}

// x - zero_point in 32 bits; the zero point may be missing.
Value* centred(Call& c, Value* x, Value* zero_point) {
  Value* wide = widened(c, x);
  if (!zero_point) return wide;
  const Tensor* t = constant_of(zero_point);
  if (t && t->num_elements() == 1 && t->get_int(0) == 0) return wide;
  return c.b.sub(wide, widened(c, zero_point));
}

// x + zero_point as a narrow float; of integers, round(x) + zero_point, saturated to the type.
Value* saturated(Call& c, Value* x, Value* zero_point, DType type) {
  if (is_narrow_float(type)) {
    const Tensor* zero = zero_point ? constant_of(zero_point) : nullptr;
    const bool adds = zero_point && !(zero && zero->num_elements() == 1 && zero->get_int(0) == 0);
    if (adds) x = c.b.add(x, c.b.cast(zero_point, x->type.dtype));
    return encode_narrow(c.b, x, type, {c.integer("saturate", 1) != 0, ScaleRounding::Nearest});
  }
  Range range = range_of(c, type);
  Value* y = c.b.unary(Fn::Round, x);
  if (zero_point) y = c.b.add(y, c.b.cast(zero_point, y->type.dtype));
  y = c.b.binary(Fn::Min, c.b.binary(Fn::Max, y, range.low), range.high);
  return c.b.cast(y, type);
}

void dequantize_linear(Call& c) {
  Value* x = c.input(0);
  const int64_t axis = c.integer("axis", 1), block = c.integer("block_size", 0);
  Value* scale = c.input(1);
  Value* zero = c.optional_input(2);
  if (zero && zero->type.dtype != x->type.dtype) c.fail("the zero point must have the input's type");
  scale = spread(c, scale, x->type.shape, axis, block);
  if (zero) zero = spread(c, zero, x->type.shape, axis, block);
  const int64_t wanted = c.integer("output_dtype", 0);
  if (is_narrow(scale->type.dtype)) {
    if (wanted == 0) c.fail("a scale of type " + std::string(name_of(scale->type.dtype)) + " needs output_dtype");
    scale = c.b.cast(scale, DType::f32);
  }
  Value* y = c.b.cast(centred(c, x, zero), scale->type.dtype);
  y = c.b.mul(y, scale);
  c.set(wanted != 0 ? c.b.cast(y, dtype_of(wanted, c.describe())) : y);
}

void quantize_linear(Call& c) {
  Value* x = c.input(0);
  const int64_t axis = c.integer("axis", 1), block = c.integer("block_size", 0);
  Value* scale = c.input(1);
  Value* zero = c.optional_input(2);
  DType type = zero ? zero->type.dtype : DType::u8;
  if (int64_t wanted = c.integer("output_dtype", 0); wanted != 0) {
    if (zero && dtype_of(wanted, c.describe()) != type) c.fail("output_dtype is not the zero point's type");
    type = dtype_of(wanted, c.describe());
  }
  if (!is_narrow_float(type)) range_of(c, type);
  DType precision = is_float(scale->type.dtype) ? scale->type.dtype : DType::f32;
  if (int64_t wanted = c.integer("precision", 0); wanted != 0) precision = dtype_of(wanted, c.describe());
  if (!is_float(precision)) c.fail("precision must be a type of floats that it can divide in");
  scale = spread(c, scale, x->type.shape, axis, block);
  if (zero) zero = spread(c, zero, x->type.shape, axis, block);
  Value* y = c.b.div(c.b.cast(x, precision), c.b.cast(scale, precision));
  // The sum with the zero point needs more than half types have.
  c.set(saturated(c, c.b.cast(y, precision == DType::f64 ? DType::f64 : DType::f32), zero, type));
}

// To u8 by the range of x: y, scale, zero point.
void dynamic_quantize_linear(Call& c) {
  Value* x = c.input(0);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < x->type.rank(); ++i) all.push_back(i);
  Value* low = c.b.binary(Fn::Min, c.b.reduce(ReduceFn::Min, x, all, false), 0.0);
  Value* high = c.b.binary(Fn::Max, c.b.reduce(ReduceFn::Max, x, all, false), 0.0);
  Value* scale = c.b.div(c.b.sub(high, low), c.b.scalar(DType::f32, 255));
  // All zeros have no range; any scale gives them back.
  scale = c.b.select(c.b.binary(Fn::Eq, high, low), c.b.scalar(DType::f32, 1), scale);
  Value* zero = saturated(c, c.b.div(c.b.unary(Fn::Neg, low), scale), nullptr, DType::u8);
  c.set(saturated(c, c.b.div(x, scale), zero, DType::u8));
  c.set(scale);
  c.set(zero);
}

// A zero point per row of the left operand.
Value* per_row(Call& c, Value* zero) {
  return zero && zero->type.rank() == 1 && zero->type.num_elements() != Dim(1) ? c.b.unsqueeze(zero, {1}) : zero;
}
Value* one_number(Call& c, Value* v) {
  return v && v->type.num_elements() == Dim(1) ? c.b.reshape(v, {}) : v;
}

void matmul_integer(Call& c) {
  Value* a = centred(c, c.input(0), one_number(c, per_row(c, c.optional_input(2))));
  Value* b = centred(c, c.input(1), one_number(c, c.optional_input(3)));
  c.set(c.b.product(a, b));
}

// A filter's zero points or scales, one or one per output channel, against the filter (first axis) or the result
// (second).
Value* per_output(Call& c, Value* v, size_t rank, size_t axis) {
  if (!v || v->type.num_elements() == Dim(1)) return one_number(c, v);
  if (v->type.rank() != 1) c.fail("scales and zero points of the weight must be one number or one per output channel");
  Shape wide(rank, Dim(1));
  wide[axis] = v->type.shape[0];
  return c.b.reshape(v, wide);
}

Value* integer_conv(Call& c, Value* x, Value* x_zero, Value* w, Value* w_zero) {
  const size_t rank = w->type.shape.size();
  if (x->type.shape.size() != rank || rank < 3) c.fail("input and weight must have one rank of 3 or more");
  Window window = window_of(c, x, kernel_size(c, w));
  x = centred(c, x, one_number(c, x_zero));
  w = centred(c, w, per_output(c, w_zero, rank, 0));
  return c.b.conv(x, w, window.strides, window.pads, window.dilations, c.integer("group", 1));
}

void conv_integer(Call& c) {
  c.set(integer_conv(c, c.input(0), c.optional_input(2), c.input(1), c.optional_input(3)));
}

// Sums at scale a·b to a type at scale y.
Value* requantized(Call& c, Value* sums, Value* a, Value* b, Value* y, Value* y_zero) {
  auto f32 = [&](Value* v) { return c.b.cast(v, DType::f32); };
  Value* factor = c.b.div(c.b.mul(f32(a), f32(b)), f32(y));
  return saturated(c, c.b.mul(f32(sums), factor), y_zero, y_zero->type.dtype);
}

// a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero
void qlinear_matmul(Call& c) {
  auto at = [&](size_t i) { return one_number(c, c.input(i)); };
  auto row = [&](size_t i) { return one_number(c, per_row(c, c.input(i))); };
  Value* sums = c.b.product(centred(c, c.input(0), row(2)), centred(c, c.input(3), at(5)));
  c.set(requantized(c, sums, row(1), at(4), row(6), row(7)));
}

// x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias
void qlinear_conv(Call& c) {
  const size_t rank = c.input(0)->type.shape.size();
  Value* sums = integer_conv(c, c.input(0), c.input(2), c.input(3), c.input(5));
  if (Value* bias = c.optional_input(8)) sums = c.b.add(sums, c.b.per_channel(bias, rank));
  c.set(requantized(c, sums, one_number(c, c.input(1)), per_output(c, c.input(4), rank, 1), one_number(c, c.input(6)),
                    one_number(c, c.input(7))));
}

}  // namespace

std::vector<Row> quantization_rows() {
  return {
      {"ConvInteger", conv_integer},
      {"DequantizeLinear", dequantize_linear},
      {"DynamicQuantizeLinear", dynamic_quantize_linear},
      {"MatMulInteger", matmul_integer},
      {"QLinearConv", qlinear_conv},
      {"QLinearMatMul", qlinear_matmul},
      {"QuantizeLinear", quantize_linear},
  };
}

}  // namespace cuvil::onnx
