// Views of tensors by diagonals, windows and strides, and the copying forms of views.
#include <algorithm>
#include <numeric>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

// Axes of a tensor with two of them moved to the front.
std::vector<int64_t> front_axes(int64_t first, int64_t second, int64_t rank) {
  std::vector<int64_t> perm{first, second};
  for (int64_t i = 0; i < rank; ++i) {
    if (i != first && i != second) perm.push_back(i);
  }
  return perm;
}

void diagonal(Call& c) {
  Value* x = c.tensor(0);
  const Shape out = c.result_shape();
  const Dim length = out.back();
  if (length == Dim(0)) {
    c.set(c.b.broadcast(c.number(x->type.dtype, 0), out));
    return;
  }
  const int64_t offset = c.integer(1, "offset", 0);
  x = c.b.transpose(x, front_axes(c.axis(2, "dim1", x, 0), c.axis(3, "dim2", x, 1), x->type.rank()));
  const Shape shape = x->type.shape;
  const Dim columns = shape[1];
  Value* y;
  if (columns.is_constant()) {
    // Of the plane as one axis, every (columns + 1)-th element.
    Shape flat{shape[0] * columns};
    flat.insert(flat.end(), shape.begin() + 2, shape.end());
    const Dim start = offset >= 0 ? Dim(offset) : Dim(-offset) * columns;
    y = c.b.slice_axis(c.b.reshape(x, flat), 0, start, start + (length - 1) * (columns + 1) + 1, columns.value() + 1);
  } else {
    Value* at = c.b.iota({length}, 0, DType::i64);
    auto shifted = [&](int64_t by) { return by > 0 ? c.b.add(at, c.b.scalar_int(DType::i64, by)) : at; };
    y = c.b.gather_joint(x, 0, {shifted(-offset), shifted(offset)});
  }
  std::vector<int64_t> back(y->type.shape.size());
  std::iota(back.begin(), back.end(), 1);
  back.back() = 0;
  c.set(c.b.transpose(y, back));
}

// Windows of an axis, which get an axis of their own at the end.
void unfold(Call& c) {
  Value* x = c.tensor(0);
  const Shape out = c.result_shape();
  if (x->type.rank() == 0) {
    c.set(c.b.reshape(c.b.slice_axis(c.b.reshape(x, {1}), 0, 0, out.back()), out));
    return;
  }
  const int axis = c.axis(1, "dimension", x);
  const int64_t size = c.integer(2, "size"), step = c.integer(3, "step");
  const Shape windows{out[static_cast<size_t>(axis)], size};
  Value* at = c.b.add(c.b.mul(c.b.iota(windows, 0, DType::i64), c.b.scalar_int(DType::i64, step)),
                      c.b.iota(windows, 1, DType::i64));
  Value* y = c.b.gather(x, at, axis);
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < y->type.rank(); ++i) {
    if (i != axis + 1) perm.push_back(i);
  }
  perm.push_back(axis + 1);
  c.set(c.b.transpose(y, perm));
}

// Positions, in memory, of the elements of a strided view.
Value* strided_positions(Call& c, const Shape& shape, const std::vector<Dim>& strides, const Dim& offset) {
  Value* at = c.b.dim_value(offset);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    at = c.b.add(at, c.b.mul(c.b.iota(shape, static_cast<int>(axis), DType::i64), c.b.dim_value(strides.at(axis))));
  }
  return at;
}

// The input is row-major (Python has made sure of it), so its memory is its elements in order.
void as_strided(Call& c) {
  Value* x = c.tensor(0);
  Value* at = strided_positions(c, c.result_shape(), c.sizes(2), c.optional_size(3, "storage_offset").value_or(Dim(0)));
  c.set(c.b.gather(c.b.reshape(x, {x->type.num_elements()}), at, 0));
}

void as_strided_scatter(Call& c) {
  Value* x = c.tensor(0);
  Value* source = c.operand(1, x->type.dtype);
  Value* at =
      strided_positions(c, source->type.shape, c.sizes(3), c.optional_size(4, "storage_offset").value_or(Dim(0)));
  const Shape shape = x->type.shape, count{source->type.num_elements()};
  Value* flat = c.b.reshape(x, {x->type.num_elements()});
  c.set(c.b.reshape(c.b.scatter(flat, c.b.reshape(at, count), c.b.reshape(source, count), 0), shape));
}

void block_diagonal(Call& c) {
  const Shape out = c.result_shape();
  std::vector<Value*> rows;
  Dim before = 0;
  for (Value* part : c.tensors(0)) {
    while (part->type.rank() < 2) part = c.b.unsqueeze(part, {0});
    part = c.b.cast(part, c.result_dtype());
    const Dim width = part->type.shape[1];
    rows.push_back(c.b.pad(part, {0, before}, {0, out[1] - before - width}, 0));
    before = before + width;
  }
  c.set(c.b.concat(rows, 0));
}

void trace(Call& c) {
  Value* x = c.operand(0, c.result_dtype());
  const Shape shape = x->type.shape;
  Value* same = c.b.binary(Fn::Eq, c.b.iota(shape, 0, DType::i64), c.b.iota(shape, 1, DType::i64));
  c.set(c.b.reduce(ReduceFn::Sum, c.b.select(same, x, c.number(x->type.dtype, 0)), {0, 1}, false));
}

}  // namespace

std::vector<Row> view_rows() {
  return {
      {"aten.diagonal.default", diagonal},
      {"aten.diagonal_copy.default", diagonal},
      {"aten.unfold.default", unfold},
      {"aten.unfold_copy.default", unfold},
      {"aten.as_strided.default", as_strided},
      {"aten.as_strided_scatter.default", as_strided_scatter},
      {"aten.block_diag.default", block_diagonal},
      {"aten.trace.default", trace},
  };
}

}  // namespace cuvil::aten
