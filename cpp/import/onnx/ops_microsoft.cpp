// Operators of the domain com.microsoft that exported and optimised models contain.
#include <cmath>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

Value* last_swapped(Call& c, Value* x, bool swap) {
  return swap ? c.b.transpose_last(x) : x;
}

void fused_matmul(Call& c) {
  c.require(!c.integer("transBatchA", 0) && !c.integer("transBatchB", 0), "transposed batches are not supported");
  Value* a = last_swapped(c, c.input(0), c.integer("transA", 0) != 0);
  Value* b = last_swapped(c, c.input(1), c.integer("transB", 0) != 0);
  Value* y = c.b.product(a, b);
  const double alpha = c.real("alpha", 1);
  c.set(alpha == 1 ? y : c.b.binary(Fn::Mul, y, alpha));
}

void gelu(Call& c) {
  c.set(c.b.gelu(c.input(0), false));
}
void fast_gelu(Call& c) {
  Value* x = c.input(0);
  if (Value* bias = c.optional_input(1)) x = c.b.add(x, bias);
  c.set(c.b.gelu(x, true));
}
void bias_gelu(Call& c) {
  c.set(c.b.gelu(c.b.add(c.input(0), c.input(1)), false));
}
void quick_gelu(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.mul(x, c.b.unary(Fn::Sigmoid, c.b.binary(Fn::Mul, x, c.real("alpha", 1.702)))));
}

// Input, skip, gamma[, beta], bias: the norm of the sum; output 3 is the sum.
template <bool root_mean_square>
void skip_layer_normalization(Call& c) {
  Builder& b = c.b;
  Value* sum = b.add(c.input(0), c.input(1));
  Value* bias = c.optional_input(root_mean_square ? 3 : 4);
  if (bias) sum = b.add(sum, bias);
  const double epsilon = c.real("epsilon", root_mean_square ? 1e-6 : 1e-12);
  const int64_t last = sum->type.rank() - 1;
  if (root_mean_square) {
    Value* power = b.mean(b.mul(sum, sum), {last}, true);
    Value* scale = b.unary(Fn::Rsqrt, b.binary(Fn::Add, power, epsilon));
    c.set(b.mul(b.mul(sum, scale), c.input(2)));
  } else {
    c.set(b.layer_norm(sum, static_cast<int>(last), c.input(2), c.optional_input(3), epsilon));
  }
  c.set(nullptr);
  c.set(nullptr);
  c.set(sum);
}

// [b, s, heads · d] → [b, heads, s, d]
Value* heads_of(Call& c, Value* x, int64_t heads) {
  if (x->type.rank() == 4) return x;
  const Shape& s = x->type.shape;
  return c.b.transpose(c.b.reshape(x, {s[0], s[1], heads, floor_div(s[2], heads)}), {0, 2, 1, 3});
}
Value* joined(Call& c, Value* x) {
  const Shape& s = x->type.shape;
  return c.b.reshape(c.b.transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

double scale_of(Call& c, const Value* q) {
  const Dim size = q->type.shape.back();
  if (const double scale = c.real("scale", 0); scale != 0) return scale;
  c.require(size.is_constant(), "the size of a head must be constant");
  return 1 / std::sqrt(static_cast<double>(size.value()));
}

// Of a mask with one element per key, or per row's first keys, what is added to the scores.
Value* bias_of_mask(Call& c, Value* mask, const Dim& keys, DType t) {
  Builder& b = c.b;
  const double filter = c.real("mask_filter_value", -10000);
  const Shape& s = mask->type.shape;
  Value* keep;
  if (s.size() == 1) {
    keep =
        b.binary(Fn::Lt, b.iota({1, 1, 1, keys}, 3, DType::i64), b.reshape(b.cast(mask, DType::i64), {s[0], 1, 1, 1}));
  } else {
    keep = b.binary(Fn::Ne, mask, c.zero(mask->type.dtype));
    if (s.size() == 2) keep = b.reshape(keep, {s[0], 1, 1, s[1]});
    if (s.size() == 3) keep = b.reshape(keep, {s[0], 1, s[1], s[2]});
  }
  return b.select(keep, b.scalar(t, 0), b.scalar(t, filter));
}

struct Attended {
  Value *q, *k, *v;  // [b, heads, s, d]
  Value *mask, *bias, *past_key, *past_value;
  bool causal;
};

void attend(Call& c, Attended a) {
  Builder& b = c.b;
  const DType t = a.q->type.dtype;
  Dim before = 0;
  if (a.past_key) {
    before = a.past_key->type.shape[2];
    a.k = b.concat({a.past_key, a.k}, 2);
    a.v = b.concat({a.past_value, a.v}, 2);
  }
  const Dim queries = a.q->type.shape[2], keys = a.k->type.shape[2];
  Value* scores = b.binary(Fn::Mul, b.matmul(a.q, b.transpose_last(a.k)), scale_of(c, a.q));
  if (a.mask) scores = b.add(scores, bias_of_mask(c, a.mask, keys, t));
  if (a.bias) scores = b.add(scores, a.bias);
  if (a.causal) {
    Value* position = b.add(b.iota({queries, 1}, 0, DType::i64), b.dim_value(before));
    Value* keep = b.binary(Fn::Le, b.iota({1, keys}, 1, DType::i64), position);
    scores = b.select(keep, scores, b.scalar(t, c.real("mask_filter_value", -10000)));
  }
  c.set(joined(c, b.matmul(b.softmax(scores, -1, false), a.v)));
}

void multi_head_attention(Call& c) {
  Builder& b = c.b;
  const int64_t heads = c.integer("num_heads", 0);
  c.require(heads > 0, "num_heads is missing");
  Value *q = c.input(0), *k = c.optional_input(1), *v = c.optional_input(2);
  c.require(k && v, "packed queries, keys and values are not supported");
  if (Value* bias = c.optional_input(3)) {
    const Dim width = q->type.shape.back();
    auto part = [&](const Dim& from, const Dim& to) { return b.slice_axis(bias, 0, from, to); };
    q = b.add(q, part(0, width));
    if (k->type.rank() == 3) {
      k = b.add(k, part(width, width * 2));
      v = b.add(v, part(width * 2, bias->type.shape[0]));
    }
  }
  Value *past_key = c.optional_input(6), *past_value = c.optional_input(7);
  Attended a{heads_of(c, q, heads),
             heads_of(c, k, heads),
             heads_of(c, v, heads),
             c.optional_input(4),
             c.optional_input(5),
             past_key,
             past_value,
             c.integer("unidirectional", 0) != 0};
  attend(c, a);
  c.set(past_key ? b.concat({past_key, a.k}, 2) : a.k);
  c.set(past_value ? b.concat({past_value, a.v}, 2) : a.v);
}

// Input · weights + bias gives queries, keys and values side by side.
void attention(Call& c) {
  Builder& b = c.b;
  const int64_t heads = c.integer("num_heads", 0);
  c.require(heads > 0, "num_heads is missing");
  c.require(!c.integer("do_rotary", 0), "rotary embeddings inside Attention are not supported");
  Value* all = b.product(c.input(0), c.input(1));
  if (Value* bias = c.optional_input(2)) all = b.add(all, bias);
  std::vector<int64_t> widths = c.ints("qkv_hidden_sizes");
  const Dim third = floor_div(all->type.shape[2], 3);
  std::vector<Dim> sizes = {third, third, third};
  for (size_t i = 0; i < widths.size() && i < 3; ++i) sizes[i] = widths[i];
  auto part = [&](size_t i) {
    Dim from = 0;
    for (size_t k = 0; k < i; ++k) from = from + sizes[k];
    return heads_of(c, b.slice_axis(all, 2, from, from + sizes[i]), heads);
  };
  Value* past = c.optional_input(4);
  auto past_part = [&](int64_t i) -> Value* {
    return past ? b.squeeze(b.slice_axis(past, 0, i, i + 1), {0}) : nullptr;
  };
  Attended a{part(0),
             part(1),
             part(2),
             c.optional_input(3),
             c.optional_input(5),
             past_part(0),
             past_part(1),
             c.integer("unidirectional", 0) != 0};
  attend(c, a);
  Value* k = past ? b.concat({a.past_key, a.k}, 2) : a.k;
  Value* v = past ? b.concat({a.past_value, a.v}, 2) : a.v;
  c.set(b.concat({b.unsqueeze(k, {0}), b.unsqueeze(v, {0})}, 0));
}

// Input, position ids, cos cache, sin cache: ai.onnx's operator with its inputs in another order.
void rotary_embedding(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  Value* positions = b.cast(c.input(1), DType::i64);
  Value *cosines = c.input(2), *sines = c.input(3);
  const Dim half = cosines->type.shape[1];
  const bool flat = x->type.rank() == 3;
  int64_t heads = c.integer("num_heads", 0);
  if (flat && heads == 0) {
    const auto count = exact_div(x->type.shape[2], half * 2);
    c.require(count && count->is_constant(), "num_heads is missing");
    heads = count->value();
  }
  x = heads_of(c, x, heads);
  const Shape& s = x->type.shape;
  if (positions->type.rank() == 1) {
    positions = b.add(b.iota({s[0], s[2]}, 1, DType::i64), b.reshape(positions, {1, 1}));
  }
  cosines = b.unsqueeze(b.gather(cosines, positions, 0), {1});
  sines = b.unsqueeze(b.gather(sines, positions, 0), {1});
  const Dim width = half * 2;
  const bool interleaved = c.integer("interleaved", 0) != 0;
  Value* first = interleaved ? b.slice_axis(x, 3, 0, width - 1, 2) : b.slice_axis(x, 3, 0, half);
  Value* second = interleaved ? b.slice_axis(x, 3, 1, width, 2) : b.slice_axis(x, 3, half, width);
  Value* real = b.sub(b.mul(first, cosines), b.mul(second, sines));
  Value* imaginary = b.add(b.mul(first, sines), b.mul(second, cosines));
  Value* y = interleaved ? b.reshape(b.concat({b.unsqueeze(real, {4}), b.unsqueeze(imaginary, {4})}, 4),
                                     {s[0], s[1], s[2], width})
                         : b.concat({real, imaginary}, 3);
  if (width != s[3]) y = b.concat({y, b.slice_axis(x, 3, width, s[3])}, 3);
  c.set(flat ? joined(c, y) : y);
}

// Weights of 2, 4 or 8 bits in blocks along K, packed in bytes, each block with a scale and a zero point.
void matmul_n_bits(Call& c) {
  Builder& b = c.b;
  const int64_t k = c.integer("K", 0), n = c.integer("N", 0), bits = c.integer("bits", 4),
                block = c.integer("block_size", 0);
  c.require(k > 0 && n > 0 && block > 0 && (bits == 2 || bits == 4 || bits == 8),
            "K, N, bits or block_size is missing");
  c.require(!c.optional_input(4), "g_idx is not supported");
  Value* x = c.input(0);
  const int64_t blocks = (k + block - 1) / block, per_byte = 8 / bits;
  // Elements lie in the low bits of a byte first.
  auto unpack = [&](Value* bytes, int64_t rows, int64_t columns) {
    std::vector<Value*> parts;
    for (int64_t i = 0; i < per_byte; ++i) {
      Value* part = b.binary(Fn::Shr, bytes, b.scalar_int(DType::u8, i * bits));
      part = b.binary(Fn::And, part, b.scalar_int(DType::u8, (1 << bits) - 1));
      Shape shape = part->type.shape;
      shape.emplace_back(1);
      parts.push_back(b.reshape(part, shape));
    }
    Value* all = b.concat(parts, static_cast<int>(parts[0]->type.shape.size()) - 1);
    const Dim wide = exact_div(all->type.num_elements(), rows).value();
    return b.slice_axis(b.reshape(all, {rows, wide}), 1, 0, columns);
  };
  const DType t = c.input(2)->type.dtype;
  Value* q = b.reshape(unpack(c.input(1), n * blocks, block), {n, blocks, block});
  Value* zero;
  if (Value* given = c.optional_input(3)) {
    zero = given->type.dtype == t
               ? given
               : b.cast(unpack(b.reshape(given, {n, exact_div(given->type.num_elements(), n).value()}), n, blocks), t);
    zero = b.reshape(zero, {n, blocks, 1});
  } else {
    zero = b.scalar(t, static_cast<double>(int64_t{1} << (bits - 1)));
  }
  Value* w = b.mul(b.sub(b.cast(q, t), zero), b.reshape(c.input(2), {n, blocks, 1}));
  w = b.slice_axis(b.reshape(w, {n, blocks * block}), 1, 0, k);
  Value* y = b.product(x, b.transpose_last(b.cast(w, x->type.dtype)));
  if (Value* bias = c.optional_input(5)) y = b.add(y, bias);
  c.set(y);
}

}  // namespace

std::vector<Row> microsoft_rows() {
  return {
      {"com.microsoft.Attention", attention},
      {"com.microsoft.BiasGelu", bias_gelu},
      {"com.microsoft.FastGelu", fast_gelu},
      {"com.microsoft.FusedMatMul", fused_matmul},
      {"com.microsoft.Gelu", gelu},
      {"com.microsoft.MatMulNBits", matmul_n_bits},
      {"com.microsoft.MultiHeadAttention", multi_head_attention},
      {"com.microsoft.QuickGelu", quick_gelu},
      {"com.microsoft.RotaryEmbedding", rotary_embedding},
      {"com.microsoft.SkipLayerNormalization", skip_layer_normalization<false>},
      {"com.microsoft.SkipSimplifiedLayerNormalization", skip_layer_normalization<true>},
  };
}

}  // namespace cuvil::onnx
