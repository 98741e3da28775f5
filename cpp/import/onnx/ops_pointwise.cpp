// Elementwise operators.
#include <cmath>
#include <limits>

#include "import/onnx/call.hpp"
#include "ir/elementary.hpp"

namespace cuvil::onnx {

namespace {

template <Fn fn>
void unary(Call& c) {
  c.set(c.b.unary(fn, c.input(0)));
}

template <Fn fn>
void binary(Call& c) {
  Value* x = c.input(0);
  Value* y = c.input(1);
  // Before opset 7, "axis" placed the second operand against the first.
  if (const AttributeProto* axis = c.attribute("axis"); axis && c.opset() < 7 && c.integer("broadcast", 0)) {
    std::vector<int64_t> trailing;
    for (int64_t i = c.wrap_axis(axis->i, x->type.rank()) + y->type.rank(); i < x->type.rank(); ++i)
      trailing.push_back(-1 - static_cast<int64_t>(trailing.size()));
    if (!trailing.empty()) y = c.b.unsqueeze(y, trailing);
  }
  c.set(c.b.binary(fn, x, y));
}

template <Fn fn>
void variadic(Call& c) {
  Value* r = c.input(0);
  for (size_t i = 1; i < c.input_count(); ++i) r = c.b.binary(fn, r, c.input(i));
  c.set(r);
}

void mean(Call& c) {
  variadic<Fn::Add>(c);
  c.results[0] = c.b.binary(Fn::Div, c.results[0], static_cast<double>(c.input_count()));
}

// The exponent may have another dtype than the base, whose dtype the result has.
void power(Call& c) {
  Value* x = c.input(0);
  Value* y = c.input(1);
  if (x->type.dtype == y->type.dtype) {
    c.set(c.b.binary(Fn::Pow, x, y));
  } else if (is_float(x->type.dtype)) {
    c.set(c.b.binary(Fn::Pow, x, c.b.cast(y, x->type.dtype)));
  } else if (is_float(y->type.dtype)) {
    c.set(c.b.cast(c.b.binary(Fn::Pow, c.b.cast(x, DType::f64), c.b.cast(y, DType::f64)), x->type.dtype));
  } else {
    c.set(c.b.binary(Fn::Pow, x, c.b.cast(y, x->type.dtype)));
  }
}

void modulo(Call& c) {
  c.set(c.b.binary(c.integer("fmod", 0) ? Fn::Rem : Fn::Mod, c.input(0), c.input(1)));
}

void where(Call& c) {
  c.set(c.b.select(c.input(0), c.input(1), c.input(2)));
}

void identity(Call& c) {
  c.set(c.input(0));
}

void relu(Call& c) {
  c.set(c.b.binary(Fn::Max, c.input(0), c.zero(c.input(0)->type.dtype)));
}

void clip(Call& c) {
  Value* x = c.input(0);
  DType t = x->type.dtype;
  Value* lo = c.opset() >= 11 ? c.optional_input(1) : c.attribute("min") ? c.number(t, c.real("min", 0)) : nullptr;
  Value* hi = c.opset() >= 11 ? c.optional_input(2) : c.attribute("max") ? c.number(t, c.real("max", 0)) : nullptr;
  if (lo) x = c.b.binary(Fn::Max, x, lo);
  if (hi) x = c.b.binary(Fn::Min, x, hi);
  c.set(x);
}

Value* positive(Call& c, Value* x) {
  return c.b.binary(Fn::Gt, x, 0.0);
}

void leaky_relu(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.select(c.b.binary(Fn::Ge, x, 0.0), x, c.b.binary(Fn::Mul, x, c.real("alpha", 0.01))));
}
void prelu(Call& c) {
  Value* x = c.input(0);
  Value* slope = c.input(1);
  // Before opset 7, a vector of slopes lay along the channels.
  if (c.opset() < 7 && slope->type.rank() == 1 && x->type.rank() > 1 && slope->type.shape[0] != Dim(1)) {
    Shape shape(x->type.shape.size() - 1, Dim(1));
    shape[0] = slope->type.shape[0];
    slope = c.b.reshape(slope, shape);
  }
  c.set(c.b.select(c.b.binary(Fn::Lt, x, c.zero(x->type.dtype)), c.b.mul(x, slope), x));
}
void elu(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.select(positive(c, x), x, c.b.binary(Fn::Mul, c.b.unary(Fn::Expm1, x), c.real("alpha", 1))));
}
void selu(Call& c) {
  Value* x = c.input(0);
  double alpha = c.real("alpha", 1.67326319217681884765625), gamma = c.real("gamma", 1.05070102214813232421875);
  Value* negative = c.b.binary(Fn::Mul, c.b.unary(Fn::Expm1, x), alpha);
  c.set(c.b.binary(Fn::Mul, c.b.select(positive(c, x), x, negative), gamma));
}
void celu(Call& c) {
  Value* x = c.input(0);
  double alpha = c.real("alpha", 1);
  Value* negative = c.b.binary(Fn::Mul, c.b.unary(Fn::Expm1, c.b.binary(Fn::Div, x, alpha)), alpha);
  c.set(c.b.add(c.b.binary(Fn::Max, x, 0.0), c.b.binary(Fn::Min, negative, 0.0)));
}
void thresholded_relu(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.select(c.b.binary(Fn::Gt, x, c.real("alpha", 1)), x, c.zero(x->type.dtype)));
}
void hard_sigmoid(Call& c) {
  Value* y = c.b.binary(Fn::Add, c.b.binary(Fn::Mul, c.input(0), c.real("alpha", 0.2)), c.real("beta", 0.5));
  c.set(c.b.clamp(y, 0, 1));
}
void hard_swish(Call& c) {
  Value* x = c.input(0);
  Value* y = c.b.binary(Fn::Add, c.b.binary(Fn::Mul, x, 1.0 / 6), 0.5);
  c.set(c.b.mul(x, c.b.clamp(y, 0, 1)));
}
void softplus(Call& c) {
  c.set(c.b.softplus(c.input(0)));
}
void softsign(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.div(x, c.b.binary(Fn::Add, c.b.unary(Fn::Abs, x), 1)));
}
void mish(Call& c) {
  c.set(c.b.mul(c.input(0), c.b.unary(Fn::Tanh, c.b.softplus(c.input(0)))));
}
void swish(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.mul(x, c.b.unary(Fn::Sigmoid, c.b.binary(Fn::Mul, x, c.real("alpha", 1)))));
}
void gelu(Call& c) {
  c.set(c.b.gelu(c.input(0), c.text("approximate", "none") == "tanh"));
}

void sine_over_cosine(Call& c) {
  c.set(c.b.div(c.b.unary(Fn::Sin, c.input(0)), c.b.unary(Fn::Cos, c.input(0))));
}
// A function of elementary.hpp; half types are computed in f32.
template <Value* (*f)(Builder&, Value*)>
void elementary(Call& c) {
  Value* x = c.input(0);
  const DType t = x->type.dtype;
  c.require(is_float(t), "takes floats only");
  c.set(c.b.cast(f(c.b, size_of(t) == 2 ? c.b.cast(x, DType::f32) : x), t));
}

void shrink(Call& c) {
  Value* x = c.input(0);
  DType t = x->type.dtype;
  Value* limit = c.number(t, c.real("lambd", 0.5));
  Value* bias = c.number(t, c.real("bias", 0));
  Value* rest = c.b.select(c.b.binary(Fn::Gt, x, limit), c.b.sub(x, bias), c.zero(t));
  Value* below = c.b.binary(Fn::Lt, x, c.b.unary(Fn::Neg, limit));  // goes first where a negative limit makes both hold
  c.set(c.b.select(below, c.b.add(x, bias), rest));
}

void is_inf(Call& c) {
  Value* x = c.input(0);
  bool negative = c.integer("detect_negative", 1), up = c.integer("detect_positive", 1);
  if (negative && up) {
    c.set(c.b.unary(Fn::IsInf, x));
  } else if (!negative && !up) {
    c.set(c.b.full(x->type.shape, DType::boolean, 0));
  } else {
    c.set(c.b.binary(Fn::Eq, x, (up ? 1 : -1) * std::numeric_limits<double>::infinity()));
  }
}

void bit_shift(Call& c) {
  c.set(c.b.binary(c.text("direction", "LEFT") == "LEFT" ? Fn::Shl : Fn::Shr, c.input(0), c.input(1)));
}

}  // namespace

std::vector<Row> pointwise_rows() {
  return {
      {"Abs", unary<Fn::Abs>},
      {"Acos", elementary<arc_cosine>},
      {"Acosh", elementary<area_hyperbolic_cosine>},
      {"Add", binary<Fn::Add>},
      {"And", binary<Fn::And>},
      {"Asin", elementary<arc_sine>},
      {"Asinh", elementary<area_hyperbolic_sine>},
      {"Atan", elementary<arc_tangent>},
      {"Atanh", elementary<area_hyperbolic_tangent>},
      {"BitShift", bit_shift},
      {"BitwiseAnd", binary<Fn::And>},
      {"BitwiseNot", unary<Fn::Not>},
      {"BitwiseOr", binary<Fn::Or>},
      {"BitwiseXor", binary<Fn::Xor>},
      {"Ceil", unary<Fn::Ceil>},
      {"Celu", celu},
      {"Clip", clip},
      {"Cos", unary<Fn::Cos>},
      {"Cosh", elementary<hyperbolic_cosine>},
      {"Div", binary<Fn::Div>},
      {"Elu", elu},
      {"Equal", binary<Fn::Eq>},
      {"Erf", unary<Fn::Erf>},
      {"Exp", unary<Fn::Exp>},
      {"Floor", unary<Fn::Floor>},
      {"Gelu", gelu},
      {"Greater", binary<Fn::Gt>},
      {"GreaterOrEqual", binary<Fn::Ge>},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_swish},
      {"Identity", identity},
      {"IsInf", is_inf},
      {"IsNaN", unary<Fn::IsNan>},
      {"LeakyRelu", leaky_relu},
      {"Less", binary<Fn::Lt>},
      {"LessOrEqual", binary<Fn::Le>},
      {"Log", unary<Fn::Log>},
      {"Max", variadic<Fn::Max>},
      {"Mean", mean},
      {"Min", variadic<Fn::Min>},
      {"Mish", mish},
      {"Mod", modulo},
      {"Mul", binary<Fn::Mul>},
      {"Neg", unary<Fn::Neg>},
      {"Not", unary<Fn::Not>},
      {"Or", binary<Fn::Or>},
      {"PRelu", prelu},
      {"Pow", power},
      {"Reciprocal", unary<Fn::Reciprocal>},
      {"Relu", relu},
      {"Round", unary<Fn::Round>},
      {"Selu", selu},
      {"Shrink", shrink},
      {"Sigmoid", unary<Fn::Sigmoid>},
      {"Sign", unary<Fn::Sign>},
      {"Sin", unary<Fn::Sin>},
      {"Sinh", elementary<hyperbolic_sine>},
      {"Softplus", softplus},
      {"Softsign", softsign},
      {"Sqrt", unary<Fn::Sqrt>},
      {"Sub", binary<Fn::Sub>},
      {"Sum", variadic<Fn::Add>},
      {"Swish", swish},
      {"Tan", sine_over_cosine},
      {"Tanh", unary<Fn::Tanh>},
      {"ThresholdedRelu", thresholded_relu},
      {"Where", where},
      {"Xor", binary<Fn::Xor>},
  };
}

}  // namespace cuvil::onnx
