// Fourier transforms, windows, mel filters.
#include <cmath>
#include <numbers>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

// cos and sin of 2π k j / n for rows j and columns k; the product is reduced modulo n first, so that the angle is
// exact.
struct Waves {
  Value *cosines, *sines;
};
Waves waves(Builder& b, const Dim& rows, const Dim& columns, const Dim& n, DType t) {
  Value* j = b.iota({rows, 1}, 0, DType::i64);
  Value* k = b.iota({1, columns}, 1, DType::i64);
  Value* turns = b.cast(b.binary(Fn::Mod, b.mul(j, k), b.dim_value(maximum(n, 1))), DType::f64);
  Value* angle = b.div(b.binary(Fn::Mul, turns, 2 * std::numbers::pi), b.cast(b.dim_value(n), DType::f64));
  return {b.cast(b.unary(Fn::Cos, angle), t), b.cast(b.unary(Fn::Sin, angle), t)};
}

struct Transform {
  Dim length;  // points
  bool inverse = false, onesided = false;
};

// x, [rows, m, 1 or 2], transformed along its second axis: [rows, bins, 2], or [rows, length, 1] for the inverse of a
// one-sided spectrum. It is cut or padded with zeros to the number of points that the transform takes.
Value* fourier(Call& c, Value* x, const Transform& f) {
  Builder& b = c.b;
  const DType t = x->type.dtype;
  const bool to_real = f.inverse && f.onesided;
  const Dim half = floor_div(f.length, 2) + 1;
  const Dim taken = to_real ? half : f.length;
  const Dim have = x->type.shape[1];
  if (have != taken) {
    x = b.slice_axis(x, 1, 0, minimum(have, taken));
    x = b.pad(x, {0, 0, 0}, {0, maximum(taken - have, 0), 0}, 0);
    x = b.reshape_checked(x, {x->type.shape[0], taken, x->type.shape[2]});
  }
  auto component = [&](int64_t i) { return b.reshape(b.slice_axis(x, 2, i, i + 1), {x->type.shape[0], taken}); };
  const bool complex = x->type.shape[2] == Dim(2);
  Value* real = component(0);
  Value* imaginary = complex ? component(1) : nullptr;
  auto column = [&](Value* v) { return b.reshape(v, {v->type.shape[0], v->type.shape[1], 1}); };
  const Waves w = waves(b, taken, f.onesided && !f.inverse ? half : f.length, f.length, t);
  if (to_real) {
    // Bins other than the first, and the last of an even length, stand for themselves and their conjugates.
    Value* k = b.iota({1, taken}, 1, DType::i64);
    Value* twice = b.binary(Fn::Mul, k, b.scalar_int(DType::i64, 2));
    Value* single = b.binary(Fn::Or, b.binary(Fn::Eq, k, b.scalar_int(DType::i64, 0)),
                             b.binary(Fn::Eq, twice, b.dim_value(f.length)));
    Value* factor = b.select(single, b.scalar(t, 1), b.scalar(t, 2));
    Value* y = b.matmul(b.mul(real, factor), w.cosines);
    if (imaginary) y = b.sub(y, b.matmul(b.mul(imaginary, factor), w.sines));
    return column(b.div(y, b.cast(b.dim_value(f.length), t)));
  }
  Value* re = b.matmul(real, w.cosines);
  Value* im = b.matmul(real, w.sines);
  if (!f.inverse) im = b.unary(Fn::Neg, im);
  if (imaginary) {
    Value* cross = b.matmul(imaginary, w.sines);
    re = f.inverse ? b.sub(re, cross) : b.add(re, cross);
    im = b.add(im, b.matmul(imaginary, w.cosines));
  }
  Value* y = b.concat({column(re), column(im)}, 2);
  return f.inverse ? b.div(y, b.cast(b.dim_value(f.length), t)) : y;
}

void dft(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  const int64_t rank = x->type.rank();
  int64_t axis = c.opset() >= 20 ? -2 : c.integer("axis", 1);
  if (c.opset() >= 20 && c.optional_input(2)) axis = c.constant(2);
  axis = c.wrap_axis(axis, rank);
  c.require(rank >= 2 && axis < rank - 1, "the axis must come before the last, which holds the complex parts");
  Transform f;
  f.inverse = c.integer("inverse", 0) != 0;
  f.onesided = c.integer("onesided", 0) != 0;
  const Dim have = x->type.shape[static_cast<size_t>(axis)];
  f.length = c.optional_input(1) ? c.size(1) : f.inverse && f.onesided ? (have - 1) * 2 : have;
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < rank - 1; ++i) {
    if (i != axis) perm.push_back(i);
  }
  perm.insert(perm.end(), {axis, rank - 1});
  Value* moved = b.transpose(x, perm);
  Shape shape = moved->type.shape;
  Dim rows = 1;
  for (size_t i = 0; i + 2 < shape.size(); ++i) rows = rows * shape[i];
  Value* y = fourier(c, b.reshape(moved, {rows, have, shape.back()}), f);
  shape[shape.size() - 2] = y->type.shape[1];
  shape.back() = y->type.shape[2];
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  c.set(b.transpose(b.reshape(y, shape), back));
}

void stft(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  if (x->type.rank() == 2) x = b.unsqueeze(x, {2});
  c.require(x->type.rank() == 3, "the signal must have rank 3");
  const Dim step = c.size(1);
  Value* window = c.optional_input(2);
  const Dim length = c.optional_input(3) ? c.size(3) : window ? window->type.shape[0] : x->type.shape[1];
  if (!step.is_constant() || step.value() < 1) c.fail_unknown(1);
  const Dim frames = floor_div(x->type.shape[1] - length, step) + 1;
  Value* at =
      b.add(b.mul(b.iota({frames, length}, 0, DType::i64), b.dim_value(step)), b.iota({frames, length}, 1, DType::i64));
  Value* y = b.gather(x, at, 1);  // [b, frames, length, parts]
  if (window) y = b.mul(y, b.reshape(b.cast(window, x->type.dtype), {length, 1}));
  const Shape& shape = y->type.shape;
  const Dim parts = shape[3], batch = shape[0];
  Transform f{length, false, c.integer("onesided", 1) != 0};
  y = fourier(c, b.reshape(y, {batch * frames, length, parts}), f);
  c.set(b.reshape(y, {batch, frames, y->type.shape[1], 2}));
}

// Σ coefficients[i] · cos(2π i k / n)
void cosine_window(Call& c, std::vector<double> coefficients) {
  Builder& b = c.b;
  const Dim size = c.size(0);
  const Dim period = c.integer("periodic", 1) ? size : size - 1;
  Value* angle = b.binary(Fn::Mul, b.iota({size}, 0, DType::f64), 2 * std::numbers::pi);
  angle = b.div(angle, b.cast(b.dim_value(period), DType::f64));
  Value* y = nullptr;
  for (size_t i = 0; i < coefficients.size(); ++i) {
    Value* wave = b.unary(Fn::Cos, b.binary(Fn::Mul, angle, static_cast<double>(i)));
    Value* term = b.binary(Fn::Mul, wave, coefficients[i]);
    y = y ? b.add(y, term) : term;
  }
  c.set(b.cast(y, dtype_of(c.integer("output_datatype", 1), c.describe())));
}
void hann_window(Call& c) {
  cosine_window(c, {0.5, -0.5});
}
void hamming_window(Call& c) {
  cosine_window(c, {25.0 / 46.0, -21.0 / 46.0});
}
void blackman_window(Call& c) {
  cosine_window(c, {0.42, -0.5, 0.08});
}

// Triangles on the mel scale (2595 · log10(1 + f / 700)).
void mel_weight_matrix(Call& c) {
  const int64_t bins = c.constant(0), length = c.constant(1), rate = c.constant(2);
  const double low = c.constant_real(3), high = c.constant_real(4);
  c.require(bins >= 1 && bins < 1 << 20 && length >= 1 && length < 1 << 24 && rate >= 1, "a size is out of range");
  auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
  const double first = mel(low), step = (mel(high) - first) / static_cast<double>(bins + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double f = 700 * (std::pow(10.0, (static_cast<double>(i) * step + first) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * f / static_cast<double>(rate))));
  }
  const int64_t rows = length / 2 + 1;
  c.require(edges.front() >= 0 && edges.back() <= rows, "the edges lie outside the spectrum");
  Tensor t(dtype_of(c.integer("output_datatype", 1), c.describe()), {rows, bins});
  auto set = [&](int64_t row, int64_t column, int64_t part, int64_t whole) {
    if (row < rows) t.set_double(row * bins + column, static_cast<double>(part) / static_cast<double>(whole));
  };
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t left = edges[static_cast<size_t>(i)], centre = edges[static_cast<size_t>(i) + 1];
    const int64_t right = edges[static_cast<size_t>(i) + 2];
    if (centre == left) set(centre, i, 1, 1);
    for (int64_t j = left; j <= centre && centre > left; ++j) set(j, i, j - left, centre - left);
    for (int64_t j = centre; j < right; ++j) set(j, i, right - j, right - centre);
  }
  c.set(c.b.constant(std::move(t)));
}

}  // namespace

std::vector<Row> signal_rows() {
  return {
      {"BlackmanWindow", blackman_window},    {"DFT", dft},
      {"HammingWindow", hamming_window},      {"HannWindow", hann_window},
      {"MelWeightMatrix", mel_weight_matrix}, {"STFT", stft},
  };
}

}  // namespace cuvil::onnx
