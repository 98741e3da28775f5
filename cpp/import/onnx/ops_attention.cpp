// Attention in its forms, and what goes with it in language models.
#include <cmath>
#include <limits>

#include "import/onnx/control.hpp"

namespace cuvil::onnx {

namespace {

// [b, s, heads · d] → [b, heads, s, d]; a tensor of rank 4 has that form already.
Value* split_heads(Call& c, Value* x, int64_t heads) {
  if (x->type.rank() == 4) return x;
  c.require(x->type.rank() == 3 && heads > 0, "an operand of rank 3 needs the number of heads");
  const Shape& s = x->type.shape;
  const Dim size = floor_div(s[2], heads);
  c.require(size * heads == s[2], "the last axis must be a multiple of the number of heads");
  return c.b.transpose(c.b.reshape(x, {s[0], s[1], heads, size}), {0, 2, 1, 3});
}

Value* join_heads(Call& c, Value* x) {
  const Shape& s = x->type.shape;
  return c.b.reshape(c.b.transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

struct Masking {
  Value* bias = nullptr;  // what is added to the scores, or null
  bool may_mask_rows = false;
};

// The bias of mask, causality, windows and lengths. Query i stands at position i + offset among the keys.
Masking masking_of(Call& c, DType dtype, const Dim& queries, const Dim& keys, Value* offset) {
  Builder& b = c.b;
  Masking m;
  Value* off = b.scalar(dtype, -std::numeric_limits<double>::infinity());
  Value* on = b.scalar(dtype, 0);
  auto add = [&](Value* bias) { m.bias = m.bias ? b.add(m.bias, bias) : bias; };
  auto allow = [&](Value* condition) { add(b.select(condition, on, off)); };
  if (Value* mask = c.optional_input(3)) {
    const bool boolean = mask->type.dtype == DType::boolean;
    const Dim& last = mask->type.shape.back();
    if (last != keys) {
      std::vector<Dim> low(mask->type.shape.size(), Dim(0)), high = low;
      high.back() = maximum(keys - last, 0);
      Shape wanted = mask->type.shape;
      mask = b.pad(mask, low, high, boolean ? 0 : -std::numeric_limits<double>::infinity());
      wanted.back() = keys;
      mask = b.reshape_checked(mask, wanted);
    }
    boolean ? allow(mask) : add(b.cast(mask, dtype));
    m.may_mask_rows = true;
  }
  Value* lengths = c.optional_input(6);
  Value* key = b.iota({1, keys}, 1, DType::i64);
  Value* position = b.add(b.iota({queries, 1}, 0, DType::i64), offset);
  const int64_t left = c.integer("left_window_size", -1), right = c.integer("right_window_size", -1);
  c.require(left >= -1 && right >= -1, "window sizes must be -1 or more");
  if (c.integer("is_causal", 0)) allow(b.binary(Fn::Le, key, position));
  if (left >= 0) allow(b.binary(Fn::Ge, key, b.sub(position, c.number(DType::i64, static_cast<double>(left)))));
  if (right >= 0) allow(b.binary(Fn::Le, key, b.add(position, c.number(DType::i64, static_cast<double>(right)))));
  if (lengths) {
    Value* valid = b.reshape(b.cast(lengths, DType::i64), {lengths->type.shape[0], 1, 1, 1});
    allow(b.binary(Fn::Lt, key, valid));
  }
  m.may_mask_rows |= lengths != nullptr || left >= 0 || right >= 0;
  return m;
}

void attention(Call& c) {
  Builder& b = c.b;
  const int64_t query_heads = c.integer("q_num_heads", 0), key_heads = c.integer("kv_num_heads", 0);
  const bool flat = c.input(0)->type.rank() == 3;
  Value* q = split_heads(c, c.input(0), query_heads);
  Value* k = split_heads(c, c.input(1), key_heads);
  Value* v = split_heads(c, c.input(2), key_heads);
  Value *past_key = c.optional_input(4), *past_value = c.optional_input(5);
  c.require(!past_key == !past_value, "past_key and past_value go together");
  if (past_key) {
    k = b.concat({past_key, k}, 2);
    v = b.concat({past_value, v}, 2);
  }
  Value *present_key = k, *present_value = v;
  const Shape qs = q->type.shape, ks = k->type.shape;
  const DType dtype = q->type.dtype;
  const double size = qs[3].is_constant() ? static_cast<double>(qs[3].value()) : 0;
  double scale = c.real("scale", 0);
  if (!c.attribute("scale")) {
    c.require(size > 0, "the size of a head must be constant");
    scale = 1 / std::sqrt(size);
  }
  Value* offset = b.scalar_int(DType::i64, 0);
  if (past_key) {
    offset = b.dim_value(past_key->type.shape[2]);
  } else if (Value* lengths = c.optional_input(6)) {
    offset = b.sub(b.cast(lengths, DType::i64), b.dim_value(qs[2]));
    offset = b.reshape(offset, {lengths->type.shape[0], 1, 1, 1});
  }
  const Masking masking = masking_of(c, dtype, qs[2], ks[2], offset);

  // Groups of query heads share a head of keys.
  const auto group = exact_div(qs[1], ks[1]);
  c.require(group.has_value(), "the number of query heads must be a multiple of that of key heads");
  const bool grouped = *group != Dim(1);
  if (grouped) {
    q = b.reshape(q, {qs[0], ks[1], *group, qs[2], qs[3]});
    k = b.unsqueeze(k, {2});
    v = b.unsqueeze(v, {2});
  }
  // Half of the scale on each side keeps products of half types in range.
  const double root = std::sqrt(std::abs(scale));
  Value* scores =
      b.matmul(b.binary(Fn::Mul, q, scale < 0 ? -root : root), b.transpose_last(b.binary(Fn::Mul, k, root)));
  const Shape four = {qs[0], qs[1], qs[2], ks[2]};
  scores = b.reshape(scores, four);
  const int64_t mode = c.integer("qk_matmul_output_mode", 0);
  Value* shown = scores;
  if (const double cap = c.real("softcap", 0); cap != 0) {
    scores = b.binary(Fn::Mul, b.unary(Fn::Tanh, b.binary(Fn::Div, scores, cap)), cap);
  }
  if (mode == 1) shown = scores;
  if (masking.bias) scores = b.add(scores, masking.bias);
  if (mode == 2) shown = scores;
  if (c.attribute("softmax_precision"))
    scores = b.cast(scores, dtype_of(c.integer("softmax_precision", 1), c.describe()));
  Value* p = b.softmax(scores, -1, false);
  if (masking.may_mask_rows) {
    Value* top = b.reduce(ReduceFn::Max, masking.bias, {masking.bias->type.rank() - 1}, true);
    Value* none = b.binary(Fn::Eq, top, -std::numeric_limits<double>::infinity());
    p = b.select(none, b.scalar(p->type.dtype, 0), p);
  }
  p = b.cast(p, dtype);
  if (mode == 3) shown = p;
  if (grouped) p = b.reshape(p, {qs[0], ks[1], *group, qs[2], ks[2]});
  Value* y = b.matmul(p, v);
  y = b.reshape(y, {qs[0], qs[1], qs[2], v->type.shape.back()});
  c.set(flat ? join_heads(c, y) : y);
  c.set(present_key);
  c.set(present_value);
  c.set(b.cast(shown, dtype));
}

// Scores and probabilities pass through graphs of the model's own.
void flex_attention(Call& c) {
  Builder& b = c.b;
  Value *q = c.input(0), *k = c.input(1), *v = c.input(2);
  const DType dtype = q->type.dtype;
  DType precise = dtype == DType::f64 ? DType::f64 : DType::f32;
  if (c.attribute("softmax_precision")) precise = dtype_of(c.integer("softmax_precision", 1), c.describe());
  const Shape qs = q->type.shape, ks = k->type.shape;
  c.require(qs.size() == 4 && ks.size() == 4 && v->type.rank() == 4, "needs operands of rank 4");
  double scale = c.real("scale", 0);
  if (!c.attribute("scale")) {
    c.require(qs[3].is_constant(), "the size of a head must be constant");
    scale = 1 / std::sqrt(static_cast<double>(qs[3].value()));
  }
  const auto group = exact_div(qs[1], ks[1]);
  c.require(group.has_value(), "the number of query heads must be a multiple of that of key heads");
  q = b.reshape(b.cast(q, precise), {qs[0], ks[1], *group, qs[2], qs[3]});
  k = b.unsqueeze(b.cast(k, precise), {2});
  v = b.unsqueeze(b.cast(v, precise), {2});
  Value* p = b.binary(Fn::Mul, b.matmul(q, b.transpose_last(k)), scale);
  p = b.reshape(p, {qs[0], qs[1], qs[2], ks[2]});
  auto modify = [&](const char* name) {
    if (!c.attribute(name)) return;
    const Type type = p->type;
    p = c.around.inline_graph(c.graph(name), {p}).at(0);
    c.require(p->type == type, "a modifier changes the type of its argument");
  };
  modify("score_mod");
  p = b.softmax(p, -1, false);
  modify("prob_mod");
  p = b.reshape(p, {qs[0], ks[1], *group, qs[2], ks[2]});
  Value* y = b.matmul(p, v);
  c.set(b.cast(b.reshape(y, {qs[0], qs[1], qs[2], v->type.shape.back()}), dtype));
}

void rotary_embedding(Call& c) {
  Builder& b = c.b;
  Value* x = c.input(0);
  Value *cosines = c.input(1), *sines = c.input(2);
  const bool flat = x->type.rank() == 3;
  x = split_heads(c, x, c.integer("num_heads", 0));
  const Dim size = x->type.shape[3];
  int64_t rotated = c.integer("rotary_embedding_dim", 0);
  const Dim width = rotated > 0 ? Dim(rotated) : size;
  const Dim half = floor_div(width, 2);
  if (Value* positions = c.optional_input(3)) {
    cosines = b.gather(cosines, positions, 0);
    sines = b.gather(sines, positions, 0);
  }
  c.require(cosines->type.rank() == 3 && cosines->type.shape[2] == half, "the caches do not fit the rotated size");
  cosines = b.unsqueeze(cosines, {1});
  sines = b.unsqueeze(sines, {1});
  Value* turned = b.slice_axis(x, 3, 0, width);
  Value *first, *second;
  const bool interleaved = c.integer("interleaved", 0) != 0;
  if (interleaved) {
    first = b.slice_axis(turned, 3, 0, width - 1, 2);
    second = b.slice_axis(turned, 3, 1, width, 2);
  } else {
    first = b.slice_axis(turned, 3, 0, half);
    second = b.slice_axis(turned, 3, half, width);
  }
  Value* real = b.sub(b.mul(cosines, first), b.mul(sines, second));
  Value* imaginary = b.add(b.mul(sines, first), b.mul(cosines, second));
  if (interleaved) {
    turned = b.reshape(b.concat({b.unsqueeze(real, {4}), b.unsqueeze(imaginary, {4})}, 4), turned->type.shape);
  } else {
    turned = b.concat({real, imaginary}, 3);
  }
  Value* y = width == size ? turned : b.concat({turned, b.slice_axis(x, 3, width, size)}, 3);
  c.set(flat ? join_heads(c, y) : y);
}

// A recurrence over the sequence whose state is a matrix per head; computed in f32.
void linear_attention(Call& c) {
  Builder& b = c.b;
  const int64_t query_heads = c.integer("q_num_heads", 0), key_heads = c.integer("kv_num_heads", 0);
  c.require(query_heads > 0 && key_heads > 0 && query_heads % key_heads == 0,
            "q_num_heads must be a positive multiple of kv_num_heads");
  const std::string rule = c.text("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  c.require(gated || delta || rule == "linear", "update_rule is not known");
  Value *decay = c.optional_input(4), *beta = c.optional_input(5);
  c.require(gated == (decay != nullptr) && delta == (beta != nullptr), "decay and beta must fit update_rule");
  const DType dtype = c.input(0)->type.dtype;
  // [steps, b, heads, …]
  auto steps_first = [&](Value* x, int64_t heads) {
    return b.cast(b.transpose(split_heads(c, x, heads), {2, 0, 1, 3}), DType::f32);
  };
  Value* q = steps_first(c.input(0), query_heads);
  Value* k = steps_first(c.input(1), key_heads);
  Value* v = steps_first(c.input(2), key_heads);
  const Shape &qs = q->type.shape, &ks = k->type.shape, &vs = v->type.shape;
  if (decay) decay = b.unary(Fn::Exp, steps_first(decay, key_heads));
  if (beta) beta = steps_first(beta, beta->type.shape[2] == Dim(1) ? 1 : key_heads);
  c.require(ks[3].is_constant(), "the size of a head must be constant");
  double scale = c.real("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(ks[3].value()));
  Value* past = c.optional_input(3);
  const DType state_dtype = past ? past->type.dtype : dtype;
  Value* state = past ? b.cast(past, DType::f32) : b.full({qs[1], key_heads, ks[3], vs[3]}, DType::f32, 0);
  const int64_t group = query_heads / key_heads;
  const Dim batch = qs[1];
  auto step = [&](Builder& r, const std::vector<Value*>& inputs) {
    auto at = [&](Value* x) { return r.gather(c.around.capture(x), inputs[0], 0); };
    Value* s = inputs[2];
    Value* key = r.unsqueeze(at(k), {3});  // a column
    if (gated) s = r.mul(s, r.unsqueeze(at(decay), {3}));
    Value* update = r.unsqueeze(at(v), {2});  // a row
    if (delta) {
      Value* found = r.matmul(r.transpose_last(key), s);
      update = r.mul(r.unsqueeze(at(beta), {2}), r.sub(update, found));
    }
    s = r.add(s, r.mul(key, update));
    Value* query = r.reshape(at(q), {batch, key_heads, group, ks[3]});
    Value* y = r.binary(Fn::Mul, r.matmul(query, s), scale);
    return std::vector<Value*>{r.scalar_int(DType::boolean, 1), s, r.reshape(y, {batch, query_heads * vs[3]})};
  };
  std::vector<Value*> results = add_loop(c, loop_over(c, qs[0], {state}), step);
  c.set(b.cast(b.transpose(results[1], {1, 0, 2}), dtype));
  c.set(b.cast(results[0], state_dtype));
}

void causal_conv_with_state(Call& c) {
  Builder& b = c.b;
  Value *x = c.input(0), *w = c.input(1);
  const Shape &xs = x->type.shape, &ws = w->type.shape;
  c.require(xs.size() == 3 && ws.size() == 3 && xs[1].is_constant(), "needs operands of rank 3 with constant channels");
  const Dim before = ws[2] - 1;
  Value* past = c.optional_input(3);
  if (!past) past = b.full({xs[0], xs[1], before}, x->type.dtype, 0);
  Value* whole = b.concat({past, x}, 2);
  Value* y = b.conv(whole, w, {1}, {0, 0}, {1}, xs[1].value());
  if (Value* bias = c.optional_input(2)) y = b.add(y, b.per_channel(bias, 3));
  const std::string activation = c.text("activation", "none");
  c.require(activation == "none" || activation == "silu" || activation == "swish", "activation is not known");
  if (activation != "none") y = b.mul(y, b.unary(Fn::Sigmoid, y));
  c.set(y);
  c.set(b.slice_axis(whole, 2, xs[2], xs[2] + before));
}

void swi_glu(Call& c) {
  Value* gate = c.input(0);
  Value* swish = c.b.mul(gate, c.b.unary(Fn::Sigmoid, c.b.binary(Fn::Mul, gate, c.real("alpha", 1))));
  c.set(c.b.mul(swish, c.input(1)));
}

}  // namespace

std::vector<Row> attention_rows() {
  return {
      {"Attention", attention},
      {"CausalConvWithState", causal_conv_with_state},
      {"LinearAttention", linear_attention},
      {"RotaryEmbedding", rotary_embedding},
      {"SwiGLU", swi_glu},
      {"ai.onnx.preview.FlexAttention", flex_attention},
  };
}

}  // namespace cuvil::onnx
