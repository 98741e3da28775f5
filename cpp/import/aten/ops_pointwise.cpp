// Elementwise operators.
#include <cmath>
#include <limits>

#include "import/aten/call.hpp"
#include "ir/narrow.hpp"

namespace cuvil::aten {

namespace {

// Functions of floats: integers and bools are computed in the result's float type.
template <Fn fn>
void float_unary(Call& c) {
  c.set(c.b.unary(fn, c.operand(0, c.result_dtype())));
}

// Functions that keep the dtype, and do nothing to integers.
template <Fn fn>
void rounding(Call& c) {
  Value* x = c.tensor(0);
  c.set(is_float(x->type.dtype) ? c.b.unary(fn, x) : x);
}

template <Fn fn>
void same_unary(Call& c) {
  c.set(c.b.unary(fn, c.tensor(0)));
}

template <Fn fn>
void arithmetic(Call& c) {
  // A product with alpha is not rounded.
  const bool scaled = (fn == Fn::Add || fn == Fn::Sub) && c.has(2, "alpha") && c.real(2, "alpha") != 1;
  const DType t = scaled ? c.work_dtype() : c.result_dtype();
  Value* x = c.operand(0, t);
  Value* y = c.operand(1, t);
  if (scaled)
    y = t == DType::boolean ? c.b.binary(Fn::And, y, c.operand(2, t, "alpha")) : c.b.mul(y, c.operand(2, t, "alpha"));
  if (t == DType::boolean) {
    c.set(c.b.binary(fn == Fn::Add || fn == Fn::Max ? Fn::Or : fn == Fn::Sub ? Fn::Xor : Fn::And, x, y));
    return;
  }
  c.set(c.b.binary(fn, x, y));
}

void reverse_subtract(Call& c) {
  DType t = c.work_dtype();
  Value* x = c.operand(0, t);
  if (c.has(2, "alpha") && c.real(2, "alpha") != 1) x = c.b.mul(x, c.operand(2, t, "alpha"));
  c.set(c.b.sub(c.operand(1, t), x));
}

// floor(x / y) as Python has it: exact where x / y rounds up to a whole number.
Value* floored_quotient(Call& c, Value* x, Value* y) {
  Builder& b = c.b;
  // floor(x / y) = (x - x mod y) / y
  if (!is_float(x->type.dtype)) return b.div(b.sub(x, b.binary(Fn::Mod, x, y)), y);
  Value* plain = b.div(x, y);
  Value* rest = b.binary(Fn::Rem, x, y);
  Value* quotient = b.div(b.sub(x, rest), y);
  Value* opposite = b.binary(Fn::Ne, b.binary(Fn::Lt, y, 0.0), b.binary(Fn::Lt, rest, 0.0));
  Value* below = b.binary(Fn::And, b.binary(Fn::Ne, rest, 0.0), opposite);
  quotient = b.select(below, b.binary(Fn::Sub, quotient, 1.0), quotient);
  // The difference and the quotient round too: to the nearest whole number.
  Value* floor = b.unary(Fn::Floor, quotient);
  Value* up = b.binary(Fn::Gt, b.sub(quotient, floor), 0.5);
  Value* r = b.select(up, b.binary(Fn::Add, floor, 1.0), floor);
  return b.select(b.binary(Fn::Eq, y, 0.0), plain, r);
}

void divide(Call& c) {
  std::string mode = c.text(2, "rounding_mode", "");
  const DType t = c.result_dtype();
  Value* x = c.operand(0, t);
  Value* y = c.operand(1, t);
  if (mode.empty() || (mode == "trunc" && !is_float(t))) {
    c.set(c.b.div(x, y));
  } else {
    c.set(mode == "floor" ? floored_quotient(c, x, y) : c.b.unary(Fn::Trunc, c.b.div(x, y)));
  }
}

void floor_divide(Call& c) {
  c.set(floored_quotient(c, c.operand(0, c.result_dtype()), c.operand(1, c.result_dtype())));
}

template <Fn fn>
void compare(Call& c) {
  DType t = c.promoted({0, 1});
  c.set(c.b.binary(fn, c.operand(0, t), c.operand(1, t)));
}

template <Fn fn>
void logical(Call& c) {
  Value* x = c.operand(0, DType::boolean);
  c.set(fn == Fn::Not ? c.b.unary(Fn::Not, x) : c.b.binary(fn, x, c.operand(1, DType::boolean)));
}

void where(Call& c) {
  if (!c.has(1)) c.fail("where with one argument gives a size that depends on data, which is not supported yet");
  DType t = c.result_dtype();
  c.set(c.b.select(c.operand(0, DType::boolean), c.operand(1, t), c.operand(2, t)));
}

void clamp(Call& c) {
  DType t = c.result_dtype();
  Value* x = c.operand(0, t);
  if (c.has(1, "min")) x = c.b.binary(Fn::Max, x, c.operand(1, t, "min"));
  if (c.has(2, "max")) x = c.b.binary(Fn::Min, x, c.operand(2, t, "max"));
  c.set(x);
}

void clamp_min(Call& c) {
  c.set(c.b.binary(Fn::Max, c.operand(0, c.result_dtype()), c.operand(1, c.result_dtype())));
}
void clamp_max(Call& c) {
  c.set(c.b.binary(Fn::Min, c.operand(0, c.result_dtype()), c.operand(1, c.result_dtype())));
}

void hardtanh(Call& c) {
  c.set(c.b.clamp(c.tensor(0), c.real(1, "min_val", -1), c.real(2, "max_val", 1)));
}
void relu(Call& c) {
  Value* x = c.tensor(0);
  c.set(c.b.binary(Fn::Max, x,
                   is_float(x->type.dtype) ? c.b.scalar(x->type.dtype, 0) : c.b.scalar_int(x->type.dtype, 0)));
}
void relu6(Call& c) {
  c.set(c.b.clamp(c.tensor(0), 0, 6));
}
void gelu(Call& c) {
  c.set(c.b.gelu(c.wide(0), c.text(1, "approximate", "none") == "tanh"));
}
void silu(Call& c) {
  c.set(c.b.mul(c.wide(0), c.b.unary(Fn::Sigmoid, c.wide(0))));
}

void mish(Call& c) {
  c.set(c.b.mul(c.wide(0), c.b.unary(Fn::Tanh, c.b.softplus(c.wide(0)))));
}
void softplus(Call& c) {
  double beta = c.real(1, "beta", 1), threshold = c.real(2, "threshold", 20);
  Value* x = c.wide(0);
  Value* scaled = c.b.binary(Fn::Mul, x, beta);
  Value* y = c.b.binary(Fn::Div, c.b.softplus(scaled), beta);
  c.set(c.b.select(c.b.binary(Fn::Gt, scaled, threshold), x, y));
}
void hardsigmoid(Call& c) {
  c.set(c.b.binary(Fn::Div, c.b.clamp(c.b.binary(Fn::Add, c.wide(0), 3), 0, 6), 6));
}
void hardswish(Call& c) {
  Value* x = c.wide(0);
  c.set(c.b.binary(Fn::Div, c.b.mul(x, c.b.clamp(c.b.binary(Fn::Add, x, 3), 0, 6)), 6));
}
void leaky_relu(Call& c) {
  Value* x = c.wide(0);
  c.set(c.b.select(c.b.binary(Fn::Gt, x, 0.0), x, c.b.binary(Fn::Mul, x, c.real(1, "negative_slope", 0.01))));
}
void elu(Call& c) {
  Value* x = c.wide(0);
  double alpha = c.real(1, "alpha", 1), scale = c.real(2, "scale", 1), input_scale = c.real(3, "input_scale", 1);
  Value* negative = c.b.binary(Fn::Mul, c.b.unary(Fn::Expm1, c.b.binary(Fn::Mul, x, input_scale)), alpha * scale);
  c.set(c.b.select(c.b.binary(Fn::Gt, x, 0.0), c.b.binary(Fn::Mul, x, scale), negative));
}
void square(Call& c) {
  Value* x = c.operand(0, c.result_dtype());
  c.set(x->type.dtype == DType::boolean ? x : c.b.mul(x, x));
}
void exp2(Call& c) {
  c.set(c.b.binary(Fn::Pow, c.b.scalar(c.work_dtype(), 2), c.operand(0, c.work_dtype())));
}
void log_base(Call& c, double base) {
  c.set(c.b.binary(Fn::Mul, c.b.unary(Fn::Log, c.operand(0, c.work_dtype())), 1 / std::log(base)));
}
void log2(Call& c) {
  log_base(c, 2);
}
void log10(Call& c) {
  log_base(c, 10);
}
void tangent(Call& c) {
  Value* x = c.operand(0, c.work_dtype());
  c.set(c.b.div(c.b.unary(Fn::Sin, x), c.b.unary(Fn::Cos, x)));
}
void cast(Call& c) {
  Value* x = c.tensor(0);
  const DType to = c.result_dtype();
  if (to == DType::f8e8m0fnu && x->type.dtype != to) c.fail("conversion to float8_e8m0fnu is not supported");
  // Of PyTorch's narrow types, this one alone saturates.
  c.set(to == DType::f8e4m3fn ? encode_narrow(c.b, x, to, {true}) : c.b.cast(x, to));
}
void view_dtype(Call& c) {
  Value* x = c.tensor(0);
  const DType to = c.result_dtype();
  if (size_of(x->type.dtype) != size_of(to)) c.fail("a view as a dtype of another size is not supported");
  c.set(c.b.bitcast(x, to));
}
void same(Call& c) {
  c.set(c.tensor(0));
}
void addcmul(Call& c) {
  DType t = c.work_dtype();
  Value* p = c.b.mul(c.operand(1, t), c.operand(2, t));
  if (c.has(3, "value") && c.real(3, "value") != 1) p = c.b.mul(p, c.operand(3, t, "value"));
  c.set(c.b.add(c.operand(0, t), p));
}
void addcdiv(Call& c) {
  DType t = c.work_dtype();
  Value* p = c.operand(1, t);
  if (c.has(3, "value") && c.real(3, "value") != 1) p = c.b.mul(p, c.operand(3, t, "value"));
  c.set(c.b.add(c.operand(0, t), c.b.div(p, c.operand(2, t))));
}
void lerp(Call& c) {
  DType t = c.work_dtype();
  Value* a = c.operand(0, t);
  c.set(c.b.add(a, c.b.mul(c.operand(2, t), c.b.sub(c.operand(1, t), a))));
}
void masked_fill(Call& c) {
  DType t = c.result_dtype();
  c.set(c.b.select(c.operand(1, DType::boolean), c.operand(2, t), c.operand(0, t)));
}
void is_nan(Call& c) {
  Value* x = c.tensor(0);
  c.set(is_float(x->type.dtype) ? c.b.unary(Fn::IsNan, x) : c.b.full(x->type.shape, DType::boolean, 0));
}
void is_inf(Call& c) {
  Value* x = c.tensor(0);
  c.set(is_float(x->type.dtype) ? c.b.unary(Fn::IsInf, x) : c.b.full(x->type.shape, DType::boolean, 0));
}
void sign(Call& c) {
  Value* x = c.tensor(0);
  DType t = x->type.dtype;
  if (!is_float(t)) {
    c.set(t == DType::boolean ? x : c.b.unary(Fn::Sign, x));
    return;
  }
  // Unlike ONNX's, PyTorch's sign of NaN is 0.
  c.set(c.b.sub(c.b.cast(c.b.binary(Fn::Gt, x, 0.0), t), c.b.cast(c.b.binary(Fn::Lt, x, 0.0), t)));
}
void absolute(Call& c) {
  Value* x = c.tensor(0);
  c.set(x->type.dtype == DType::boolean ? x : c.b.unary(Fn::Abs, x));
}
void bitwise_not(Call& c) {
  c.set(c.b.unary(Fn::Not, c.tensor(0)));
}
template <Fn fn>
void bitwise(Call& c) {
  c.set(c.b.binary(fn, c.operand(0, c.result_dtype()), c.operand(1, c.result_dtype())));
}
void remainder(Call& c) {
  c.set(c.b.binary(Fn::Mod, c.operand(0, c.result_dtype()), c.operand(1, c.result_dtype())));
}
void fmod(Call& c) {
  c.set(c.b.binary(Fn::Rem, c.operand(0, c.result_dtype()), c.operand(1, c.result_dtype())));
}

}  // namespace

std::vector<Row> pointwise_rows() {
  return {
      {"aten.add.Tensor", arithmetic<Fn::Add>},
      {"aten.add.Scalar", arithmetic<Fn::Add>},
      {"aten.sub.Tensor", arithmetic<Fn::Sub>},
      {"aten.sub.Scalar", arithmetic<Fn::Sub>},
      {"aten.rsub.Scalar", reverse_subtract},
      {"aten.rsub.Tensor", reverse_subtract},
      {"aten.mul.Tensor", arithmetic<Fn::Mul>},
      {"aten.mul.Scalar", arithmetic<Fn::Mul>},
      {"aten.div.Tensor", divide},
      {"aten.div.Scalar", divide},
      {"aten.div.Tensor_mode", divide},
      {"aten.div.Scalar_mode", divide},
      {"aten.floor_divide.default", floor_divide},
      {"aten.remainder.Tensor", remainder},
      {"aten.remainder.Scalar", remainder},
      {"aten.fmod.Tensor", fmod},
      {"aten.fmod.Scalar", fmod},
      {"aten.pow.Tensor_Tensor", bitwise<Fn::Pow>},
      {"aten.pow.Tensor_Scalar", bitwise<Fn::Pow>},
      {"aten.pow.Scalar", bitwise<Fn::Pow>},
      {"aten.maximum.default", arithmetic<Fn::Max>},
      {"aten.minimum.default", arithmetic<Fn::Min>},
      {"aten.eq.Tensor", compare<Fn::Eq>},
      {"aten.eq.Scalar", compare<Fn::Eq>},
      {"aten.ne.Tensor", compare<Fn::Ne>},
      {"aten.ne.Scalar", compare<Fn::Ne>},
      {"aten.lt.Tensor", compare<Fn::Lt>},
      {"aten.lt.Scalar", compare<Fn::Lt>},
      {"aten.le.Tensor", compare<Fn::Le>},
      {"aten.le.Scalar", compare<Fn::Le>},
      {"aten.gt.Tensor", compare<Fn::Gt>},
      {"aten.gt.Scalar", compare<Fn::Gt>},
      {"aten.ge.Tensor", compare<Fn::Ge>},
      {"aten.ge.Scalar", compare<Fn::Ge>},
      {"aten.logical_and.default", logical<Fn::And>},
      {"aten.logical_or.default", logical<Fn::Or>},
      {"aten.logical_xor.default", logical<Fn::Xor>},
      {"aten.logical_not.default", logical<Fn::Not>},
      {"aten.bitwise_and.Tensor", bitwise<Fn::And>},
      {"aten.bitwise_and.Scalar", bitwise<Fn::And>},
      {"aten.bitwise_or.Tensor", bitwise<Fn::Or>},
      {"aten.bitwise_or.Scalar", bitwise<Fn::Or>},
      {"aten.bitwise_xor.Tensor", bitwise<Fn::Xor>},
      {"aten.bitwise_xor.Scalar", bitwise<Fn::Xor>},
      {"aten.bitwise_and.Scalar_Tensor", bitwise<Fn::And>},
      {"aten.bitwise_or.Scalar_Tensor", bitwise<Fn::Or>},
      {"aten.bitwise_xor.Scalar_Tensor", bitwise<Fn::Xor>},
      {"aten.bitwise_left_shift.Tensor", bitwise<Fn::Shl>},
      {"aten.bitwise_left_shift.Tensor_Scalar", bitwise<Fn::Shl>},
      {"aten.bitwise_left_shift.Scalar_Tensor", bitwise<Fn::Shl>},
      {"aten.bitwise_right_shift.Tensor", bitwise<Fn::Shr>},
      {"aten.bitwise_right_shift.Tensor_Scalar", bitwise<Fn::Shr>},
      {"aten.bitwise_right_shift.Scalar_Tensor", bitwise<Fn::Shr>},
      {"aten.__and__.Scalar", bitwise<Fn::And>},
      {"aten.__and__.Tensor", bitwise<Fn::And>},
      {"aten.__or__.Scalar", bitwise<Fn::Or>},
      {"aten.__or__.Tensor", bitwise<Fn::Or>},
      {"aten.__xor__.Scalar", bitwise<Fn::Xor>},
      {"aten.__xor__.Tensor", bitwise<Fn::Xor>},
      {"aten.__lshift__.Scalar", bitwise<Fn::Shl>},
      {"aten.__lshift__.Tensor", bitwise<Fn::Shl>},
      {"aten.__rshift__.Scalar", bitwise<Fn::Shr>},
      {"aten.__rshift__.Tensor", bitwise<Fn::Shr>},
      {"aten.bitwise_not.default", bitwise_not},
      {"aten.where.self", where},
      {"aten.where.ScalarSelf", where},
      {"aten.where.ScalarOther", where},
      {"aten.where.Scalar", where},
      {"aten.masked_fill.Scalar", masked_fill},
      {"aten.masked_fill.Tensor", masked_fill},
      {"aten.clamp.default", clamp},
      {"aten.clamp.Tensor", clamp},
      {"aten.clamp_min.default", clamp_min},
      {"aten.clamp_min.Tensor", clamp_min},
      {"aten.clamp_max.default", clamp_max},
      {"aten.clamp_max.Tensor", clamp_max},
      {"aten.hardtanh.default", hardtanh},
      {"aten.relu.default", relu},
      {"aten.relu6.default", relu6},
      {"aten.gelu.default", gelu},
      {"aten.silu.default", silu},
      {"aten.mish.default", mish},
      {"aten.softplus.default", softplus},
      {"aten.hardsigmoid.default", hardsigmoid},
      {"aten.hardswish.default", hardswish},
      {"aten.leaky_relu.default", leaky_relu},
      {"aten.elu.default", elu},
      {"aten.square.default", square},
      {"aten.neg.default", same_unary<Fn::Neg>},
      {"aten.abs.default", absolute},
      {"aten.sign.default", sign},
      {"aten.floor.default", rounding<Fn::Floor>},
      {"aten.ceil.default", rounding<Fn::Ceil>},
      {"aten.trunc.default", rounding<Fn::Trunc>},
      {"aten.round.default", rounding<Fn::Round>},
      {"aten.sqrt.default", float_unary<Fn::Sqrt>},
      {"aten.rsqrt.default", float_unary<Fn::Rsqrt>},
      {"aten.reciprocal.default", float_unary<Fn::Reciprocal>},
      {"aten.exp.default", float_unary<Fn::Exp>},
      {"aten.exp2.default", exp2},
      {"aten.expm1.default", float_unary<Fn::Expm1>},
      {"aten.log.default", float_unary<Fn::Log>},
      {"aten.log1p.default", float_unary<Fn::Log1p>},
      {"aten.log2.default", log2},
      {"aten.log10.default", log10},
      {"aten.sin.default", float_unary<Fn::Sin>},
      {"aten.cos.default", float_unary<Fn::Cos>},
      {"aten.tan.default", tangent},
      {"aten.tanh.default", float_unary<Fn::Tanh>},
      {"aten.sigmoid.default", float_unary<Fn::Sigmoid>},
      {"aten.erf.default", float_unary<Fn::Erf>},
      {"aten.isnan.default", is_nan},
      {"aten.isinf.default", is_inf},
      {"aten.addcmul.default", addcmul},
      {"aten.addcdiv.default", addcdiv},
      {"aten.lerp.Tensor", lerp},
      {"aten.lerp.Scalar", lerp},
      {"aten._to_copy.default", cast},
      {"aten.to.dtype", cast},
      {"aten.view.dtype", view_dtype},
      {"prims.convert_element_type.default", cast},
      {"aten.clone.default", same},
      {"aten.alias.default", same},
      {"aten.detach.default", same},
      {"aten.lift_fresh_copy.default", same},
      {"aten.contiguous.default", same},
      {"aten.dropout.default", same},
  };
}

}  // namespace cuvil::aten
