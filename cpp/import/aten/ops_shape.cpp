// Operators that move elements.
#include <algorithm>
#include <numeric>

#include "import/aten/call.hpp"
#include "support/error.hpp"

namespace cuvil::aten {

namespace {

// PyTorch knows the result's shape, -1 and all.
void reshape(Call& c) {
  c.set(c.b.reshape(c.tensor(0), c.result_shape()));
}

void permute(Call& c) {
  c.set(c.b.transpose(c.tensor(0), c.ints(1, "dims")));
}

void swap_axes(Call& c) {
  Value* x = c.tensor(0);
  std::vector<int64_t> perm(x->type.shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  if (!perm.empty())
    std::swap(perm[static_cast<size_t>(c.axis(1, "dim0", x))], perm[static_cast<size_t>(c.axis(2, "dim1", x))]);
  c.set(c.b.transpose(x, perm));
}

void matrix_transpose(Call& c) {
  Value* x = c.tensor(0);
  c.set(x->type.rank() < 2 ? x : c.b.transpose(x, {1, 0}));
}

void reversed_axes(Call& c) {
  std::vector<int64_t> perm(c.tensor(0)->type.shape.size());
  std::iota(perm.rbegin(), perm.rend(), 0);
  c.set(c.b.transpose(c.tensor(0), perm));
}

void expand(Call& c) {
  c.set(c.b.broadcast(c.tensor(0), c.result_shape()));
}

// Bound of a slice: negative ones count from the end, then both are clamped to the axis.
Dim clamp_bound(const Dim& bound, const Dim& size) {
  if (bound == size) return bound;
  Dim at = bound;
  if (auto v = bound.constant()) {
    if (*v == INT64_MAX) return size;
    if (*v < 0) at = size + bound;
  }
  return minimum(maximum(at, 0), size);
}

void slice(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(1, "dim", x, 0);
  const Dim& size = x->type.shape[static_cast<size_t>(axis)];
  Dim start = clamp_bound(c.optional_size(2, "start").value_or(Dim(0)), size);
  Dim end = clamp_bound(c.optional_size(3, "end").value_or(Dim(INT64_MAX)), size);
  int64_t step = c.integer(4, "step", 1);
  c.set(c.b.slice_axis(x, axis, start, maximum(end, start), step));
}

void select(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(1, "dim", x);
  const Dim size = x->type.shape[static_cast<size_t>(axis)];
  Dim at = c.size(2, "index");
  if (auto v = at.constant(); v && *v < 0) at = size + at;
  if (!size.is_constant() && !(provably_le(0, at) && provably_lt(at, size))) {
    // The axis may turn out too short when the model runs: a gather checks it.
    c.set(c.b.gather(x, c.b.dim_value(c.size(2, "index")), axis));
    return;
  }
  c.set(c.b.squeeze(c.b.slice_axis(x, axis, at, at + 1), {axis}));
}

void narrow(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(1, "dim", x);
  Dim start = c.size(2, "start");
  if (auto v = start.constant(); v && *v < 0) start = x->type.shape[static_cast<size_t>(axis)] + start;
  const Dim length = c.size(3, "length"), size = x->type.shape[static_cast<size_t>(axis)];
  if (!size.is_constant() && !(provably_le(0, start) && provably_le(start + length, size))) {
    c.set(c.b.gather(x, c.b.add(c.b.iota({length}, 0, DType::i64), c.b.dim_value(start)), axis));
    return;
  }
  c.set(c.b.slice_axis(x, axis, start, start + length));
}

void concat(Call& c) {
  std::vector<Value*> parts;
  // PyTorch skips the old-style empty tensor of shape [0].
  for (Value* v : c.tensors(0)) {
    if (v->type.rank() == 1 && v->type.shape[0] == Dim(0) && c.result_shape().size() != 1) continue;
    parts.push_back(c.b.cast(v, c.result_dtype()));
  }
  c.set(c.b.concat(parts, c.axis(1, "dim", parts.at(0), 0)));
}

void stack(Call& c) {
  std::vector<Value*> parts;
  int64_t axis = c.integer(1, "dim", 0);
  if (axis < 0) axis += static_cast<int64_t>(c.result_shape().size());
  for (Value* v : c.tensors(0)) parts.push_back(c.b.unsqueeze(c.b.cast(v, c.result_dtype()), {axis}));
  c.set(c.b.concat(parts, static_cast<int>(axis)));
}

// All forms of split: the outputs' shapes tell the sizes.
void split(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(2, "dim", x, 0);
  Dim at = 0;
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    Dim size = c.result_shape(i)[static_cast<size_t>(axis)];
    c.set(c.b.slice_axis(x, axis, at, at + size));
    at = at + size;
  }
}

void unbind(Call& c) {
  Value* x = c.tensor(0);
  int axis = c.axis(1, "dim", x, 0);
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    auto at = static_cast<int64_t>(i);
    c.set(c.b.squeeze(c.b.slice_axis(x, axis, at, at + 1), {axis}));
  }
}

void repeat(Call& c) {
  Value* x = c.tensor(0);
  std::vector<Dim> times = c.sizes(1);
  size_t skip = times.size() - x->type.shape.size();
  // Each axis d becomes [times, d] by broadcasting, then one axis again.
  Shape with_ones, wide;
  for (size_t i = 0; i < times.size(); ++i) {
    Dim d = i < skip ? Dim(1) : x->type.shape[i - skip];
    with_ones.push_back(1);
    with_ones.push_back(d);
    wide.push_back(times[i]);
    wide.push_back(d);
  }
  c.set(c.b.reshape(c.b.broadcast(c.b.reshape(x, with_ones), wide), c.result_shape()));
}

void flip(Call& c) {
  Value* x = c.tensor(0);
  for (int64_t axis : c.ints(1)) {
    if (axis < 0) axis += x->type.rank();
    const Dim& size = x->type.shape.at(static_cast<size_t>(axis));
    x = c.b.slice_axis(x, static_cast<int>(axis), size - 1, -1, -1);
  }
  c.set(x);
}

void roll(Call& c) {
  Value* x = c.tensor(0);
  std::vector<int64_t> shifts = c.ints(1), axes = c.ints(2);
  Shape original = x->type.shape;
  if (axes.empty()) {
    x = c.b.reshape(x, {x->type.num_elements()});
    axes = {0};
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    int axis = static_cast<int>(axes[i] < 0 ? axes[i] + x->type.rank() : axes[i]);
    const Dim& size = x->type.shape.at(static_cast<size_t>(axis));
    if (size == Dim(0)) continue;
    Dim cut = floor_mod(size - shifts.at(i), size);
    x = c.b.concat({c.b.slice_axis(x, axis, cut, size), c.b.slice_axis(x, axis, 0, cut)}, axis);
  }
  c.set(c.b.reshape(x, original));
}

void constant_pad(Call& c) {
  Value* x = c.tensor(0);
  std::vector<Dim> pads = c.sizes(1);
  size_t rank = x->type.shape.size();
  std::vector<Dim> low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    // Negative padding cuts.
    size_t axis = rank - 1 - i;
    Dim before = pads[2 * i], after = pads[2 * i + 1];
    const Dim size = x->type.shape[axis];
    Dim start = 0, limit = size;
    if (auto v = before.constant(); v && *v < 0) start = -before;
    if (auto v = after.constant(); v && *v < 0) limit = size + after;
    x = c.b.slice_axis(x, static_cast<int>(axis), start, limit);
    low[axis] = start == Dim(0) ? before : Dim(0);
    high[axis] = limit == size ? after : Dim(0);
  }
  const double value = c.real(2, "value", 0);
  if (is_narrow(x->type.dtype) && value != 0) c.fail("this element type is padded with zeros only");
  c.set(c.b.pad(x, low, high, value));
}

void index_select(Call& c) {
  Value* x = c.tensor(0);
  if (x->type.rank() == 0) x = c.b.reshape(x, {1});
  c.set(c.b.reshape(c.b.gather(x, c.tensor(2), c.axis(1, "dim", x)), c.result_shape()));
}

void gather(Call& c) {
  Value* x = c.tensor(0);
  Value* index = c.tensor(2);
  if (index->type.num_elements() == Dim(0)) {
    // PyTorch lets it have any rank.
    c.set(c.b.full(index->type.shape, x->type.dtype, 0));
    return;
  }
  if (x->type.rank() == 0) {
    c.set(c.b.reshape(x, index->type.shape));
    return;
  }
  c.set(c.b.node(Op::GatherElements, {x, index}, {{"axis", int64_t{c.axis(1, "dim", x)}}}));
}

void embedding(Call& c) {
  c.set(c.b.gather(c.tensor(0), c.tensor(1), 0));
}

void diagonal_mask(Call& c, bool upper) {
  Value* x = c.tensor(0);
  size_t rank = x->type.shape.size();
  Shape square{x->type.shape[rank - 2], x->type.shape[rank - 1]};
  Value* column = c.b.iota(square, 1, DType::i64);
  Value* limit = c.b.add(c.b.iota(square, 0, DType::i64), c.b.scalar_int(DType::i64, c.integer(1, "diagonal", 0)));
  Value* keep = c.b.binary(upper ? Fn::Ge : Fn::Le, column, limit);
  DType t = x->type.dtype;
  c.set(c.b.select(keep, x, is_float(t) ? c.b.scalar(t, 0) : c.b.scalar_int(t, 0)));
}
void tril(Call& c) {
  diagonal_mask(c, false);
}
void triu(Call& c) {
  diagonal_mask(c, true);
}

void copy(Call& c) {
  c.set(c.b.broadcast(c.operand(1, c.result_dtype()), c.result_shape()));
}

}  // namespace

std::vector<Row> shape_rows() {
  return {
      {"aten.view.default", reshape},
      {"aten.reshape.default", reshape},
      {"aten._unsafe_view.default", reshape},
      {"aten.flatten.using_ints", reshape},
      {"aten.unflatten.int", reshape},
      {"aten.squeeze.default", reshape},
      {"aten.squeeze.dim", reshape},
      {"aten.squeeze.dims", reshape},
      {"aten.unsqueeze.default", reshape},
      {"aten.squeeze_copy.default", reshape},
      {"aten.squeeze_copy.dim", reshape},
      {"aten.squeeze_copy.dims", reshape},
      {"aten.unsqueeze_copy.default", reshape},
      {"aten.view_copy.default", reshape},
      {"aten._reshape_copy.default", reshape},
      {"aten.view_as.default", reshape},
      {"aten.reshape_as.default", reshape},
      {"aten.permute.default", permute},
      {"aten.permute_copy.default", permute},
      {"aten.transpose_copy.int", swap_axes},
      {"aten.swapaxes.default", swap_axes},
      {"aten.t_copy.default", matrix_transpose},
      {"aten.numpy_T.default", reversed_axes},
      {"aten.expand_copy.default", expand},
      {"aten.broadcast_to.default", expand},
      {"aten.slice_copy.Tensor", slice},
      {"aten.select_copy.int", select},
      {"aten.narrow_copy.default", narrow},
      {"aten.unbind_copy.int", unbind},
      {"aten.split_copy.Tensor", split},
      {"aten.split_with_sizes_copy.default", split},
      {"aten.transpose.int", swap_axes},
      {"aten.t.default", matrix_transpose},
      {"aten.expand.default", expand},
      {"aten.expand_as.default", expand},
      {"aten.slice.Tensor", slice},
      {"aten.select.int", select},
      {"aten.narrow.default", narrow},
      {"aten.cat.default", concat},
      {"aten.stack.default", stack},
      {"aten.split.Tensor", split},
      {"aten.split_with_sizes.default", split},
      {"aten.chunk.default", split},
      {"aten.unbind.int", unbind},
      {"aten.repeat.default", repeat},
      {"aten.flip.default", flip},
      {"aten.roll.default", roll},
      {"aten.constant_pad_nd.default", constant_pad},
      {"aten.index_select.default", index_select},
      {"aten.gather.default", gather},
      {"aten.embedding.default", embedding},
      {"aten.tril.default", tril},
      {"aten.triu.default", triu},
      {"aten.copy.default", copy},
  };
}

}  // namespace cuvil::aten
