// Operators whose results have sizes that depend on data: PyTorch names such a size by a symbol, which gets its value
// here.
#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

// Positions of the true elements of a vector, in order; `count` is the symbol for their number.
Value* positions_of_true(Call& c, Value* mask, const Dim& count) {
  if (count.is_symbol()) {
    Value* total = c.b.reduce(ReduceFn::Sum, c.b.cast(mask, DType::i64), {0}, true);
    c.b.node(Op::Sizes, {total}, {{"dims", std::vector<Dim>{count}}});
  }
  // Sorting is stable, so those that are true come first and in order.
  return c.b.sort_indices(c.b.cast(mask, DType::u8), 0, count, true);
}

Value* as_mask(Call& c, Value* x) {
  if (x->type.dtype == DType::boolean) return x;
  Value* zero = is_float(x->type.dtype) ? c.b.scalar(x->type.dtype, 0) : c.b.scalar_int(x->type.dtype, 0);
  return c.b.binary(Fn::Ne, x, zero);
}

void nonzero(Call& c) {
  Value* x = c.tensor(0);
  const Shape shape = x->type.shape;
  const Dim count = c.result_shape()[0];
  Value* found = positions_of_true(c, c.b.reshape(as_mask(c, x), {x->type.num_elements()}), count);
  if (shape.empty()) {
    c.set(c.b.reshape(c.b.slice_axis(found, 0, 0, 0), {count, Dim(0)}));
    return;
  }
  std::vector<Value*> columns;
  Dim step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    Value* at = c.b.binary(Fn::Mod, c.b.div(found, c.b.dim_value(step)), c.b.dim_value(shape[axis]));
    columns.insert(columns.begin(), c.b.reshape(at, {count, Dim(1)}));
    step = step * shape[axis];
  }
  c.set(c.b.concat(columns, 1));
}

void masked_select(Call& c) {
  Value *x = c.tensor(0), *mask = c.tensor(1, "mask");
  const Shape shape = broadcast_shapes(x->type.shape, mask->type.shape);
  const Dim n = Type{DType::boolean, shape}.num_elements();
  Value* found = positions_of_true(c, c.b.reshape(c.b.broadcast(mask, shape), {n}), c.result_shape()[0]);
  c.set(c.b.gather(c.b.reshape(c.b.broadcast(x, shape), {n}), found, 0));
}

}  // namespace

std::vector<Row> data_size_rows() {
  return {{"aten.nonzero.default", nonzero}, {"aten.masked_select.default", masked_select}};
}

}  // namespace cuvil::aten
