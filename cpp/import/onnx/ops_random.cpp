// Random numbers: a hash of the element's number and the seed, so that they need no state and vectorise.
//
// A node without a seed gets one when it is imported: it gives the same numbers in each run of the compiled model.
#include <cmath>
#include <cstring>
#include <numbers>
#include <random>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

uint64_t seed_of(Call& c) {
  if (const AttributeProto* a = c.attribute("seed")) {
    if (a->type == AttributeProto::Int) return static_cast<uint64_t>(a->i);  // of Dropout
    const auto seed = static_cast<float>(c.real("seed", 0));
    uint32_t bits = 0;
    std::memcpy(&bits, &seed, sizeof bits);
    return bits;
  }
  return std::random_device()();
}

// Uniform in [0, 1), f32 of this shape: 24 bits of a 64-bit mix (the finaliser of SplitMix64) of a counter.
Value* uniform(Call& c, const Shape& shape, uint64_t seed, uint64_t stream) {
  Builder& b = c.b;
  auto number = [&](uint64_t v) { return b.scalar_int(DType::u64, static_cast<int64_t>(v)); };
  const Dim count = Type{DType::u64, shape}.num_elements();
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  Value* x = b.iota({count}, 0, DType::u64);
  x = b.mul(b.add(x, number(seed * 0xda942042e4dd58b5u + stream * 0xca5a826395121157u + 1)), number(kGolden));
  auto mix = [&](int64_t shift, uint64_t factor) {
    x = b.binary(Fn::Xor, x, b.binary(Fn::Shr, x, b.scalar_int(DType::u64, shift)));
    x = b.mul(x, number(factor));
  };
  mix(30, 0xbf58476d1ce4e5b9u);
  mix(27, 0x94d049bb133111ebu);
  x = b.binary(Fn::Xor, x, b.binary(Fn::Shr, x, b.scalar_int(DType::u64, 31)));
  Value* top = b.cast(b.binary(Fn::Shr, x, b.scalar_int(DType::u64, 40)), DType::f32);
  return b.reshape(b.binary(Fn::Mul, top, std::ldexp(1.0, -24)), shape);
}

// Box–Muller.
Value* normal(Call& c, const Shape& shape, uint64_t seed) {
  Builder& b = c.b;
  Value* u = b.sub(b.scalar(DType::f32, 1), uniform(c, shape, seed, 0));  // (0, 1]
  Value* angle = b.binary(Fn::Mul, uniform(c, shape, seed, 1), 2 * std::numbers::pi);
  return b.mul(b.unary(Fn::Sqrt, b.binary(Fn::Mul, b.unary(Fn::Log, u), -2)), b.unary(Fn::Cos, angle));
}

DType result_type(Call& c, DType fallback) {
  return c.attribute("dtype") ? dtype_of(c.integer("dtype", 1), c.describe()) : fallback;
}

Shape shape_attribute(Call& c) {
  Shape shape;
  for (int64_t d : c.ints("shape")) shape.emplace_back(d);
  return shape;
}

void random_uniform(Call& c, const Shape& shape, DType t) {
  const double low = c.real("low", 0), high = c.real("high", 1);
  Value* u = uniform(c, shape, seed_of(c), 0);
  c.set(c.b.cast(c.b.binary(Fn::Add, c.b.binary(Fn::Mul, u, high - low), low), t));
}
void random_uniform(Call& c) {
  random_uniform(c, shape_attribute(c), result_type(c, DType::f32));
}
void random_uniform_like(Call& c) {
  random_uniform(c, c.input(0)->type.shape, result_type(c, c.input(0)->type.dtype));
}

void random_normal(Call& c, const Shape& shape, DType t) {
  Value* z = normal(c, shape, seed_of(c));
  c.set(c.b.cast(c.b.binary(Fn::Add, c.b.binary(Fn::Mul, z, c.real("scale", 1)), c.real("mean", 0)), t));
}
void random_normal(Call& c) {
  random_normal(c, shape_attribute(c), result_type(c, DType::f32));
}
void random_normal_like(Call& c) {
  random_normal(c, c.input(0)->type.shape, result_type(c, c.input(0)->type.dtype));
}

void bernoulli(Call& c) {
  Value* p = c.input(0);
  Value* u = uniform(c, p->type.shape, seed_of(c), 0);
  c.set(c.b.cast(c.b.binary(Fn::Lt, u, c.b.cast(p, DType::f32)), result_type(c, p->type.dtype)));
}

// Classes drawn with the probabilities exp(x): the largest of x + Gumbel noise.
void multinomial(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  c.require(x->type.rank() == 2, "needs a matrix of log-probabilities");
  const int64_t samples = c.integer("sample_size", 1);
  const Dim rows = x->type.shape[0], classes = x->type.shape[1];
  Value* u = b.binary(Fn::Max, uniform(c, {rows, samples, classes}, seed_of(c), 0), std::ldexp(1.0, -25));
  Value* noise = b.unary(Fn::Neg, b.unary(Fn::Log, b.unary(Fn::Neg, b.unary(Fn::Log, u))));
  Value* scores = b.add(b.unsqueeze(b.cast(x, DType::f32), {1}), noise);
  c.set(b.cast(b.reduce(ReduceFn::ArgMax, scores, {2}, false), result_type(c, DType::i32)));
}

void dropout(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  const DType t = x->type.dtype;
  const DType mask_type = c.opset() < 10 ? t : DType::boolean;
  bool training = c.opset() < 7 && !c.integer("is_test", 0);
  if (c.optional_input(2)) training = c.constant_flag(2);
  Value* ratio = c.optional_input(1);
  if (training && !ratio) ratio = b.scalar(DType::f32, c.real("ratio", 0.5));
  if (!training) {
    c.set(x);
    if (c.node().outputs.size() > 1) c.set(b.broadcast(c.number(mask_type, 1), x->type.shape));
    return;
  }
  ratio = b.cast(b.reshape(ratio, {}), DType::f32);
  Value* kept = b.binary(Fn::Ge, uniform(c, x->type.shape, seed_of(c), 0), ratio);
  Value* scale = b.cast(b.sub(b.scalar(DType::f32, 1), ratio), t);
  c.set(b.select(kept, b.div(x, scale), b.scalar(t, 0)));
  c.set(b.cast(kept, mask_type));
}

}  // namespace

std::vector<Row> random_rows() {
  return {
      {"Dropout", dropout},
      {"Bernoulli", bernoulli},
      {"Multinomial", multinomial},
      {"RandomNormal", random_normal},
      {"RandomNormalLike", random_normal_like},
      {"RandomUniform", random_uniform},
      {"RandomUniformLike", random_uniform_like},
  };
}

}  // namespace cuvil::onnx
