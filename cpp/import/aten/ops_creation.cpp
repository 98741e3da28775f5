// Operators that make tensors from nothing.
#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

void filled(Call& c, Value* value) {
  c.set(c.b.broadcast(c.b.cast(value, c.result_dtype()), c.result_shape()));
}

void full(Call& c) {
  filled(c, c.operand(1, c.result_dtype(), "fill_value"));
}
void zeros(Call& c) {
  c.set(c.b.full(c.result_shape(), c.result_dtype(), 0));
}
void ones(Call& c) {
  c.set(c.b.full(c.result_shape(), c.result_dtype(), 1));
}
void scalar_tensor(Call& c) {
  c.set(c.operand(0, c.result_dtype()));
}

// start + i · step; integers exactly, floats as PyTorch computes them.
void arange_from(Call& c, const Argument* start, const Argument* step) {
  DType t = c.result_dtype();
  Shape shape = c.result_shape();
  DType work = is_float(t) ? t : DType::i64;
  Value* i = c.b.iota(shape, 0, work);
  auto value = [&](size_t position) { return c.operand(position, work); };
  Value* r = i;
  if (step) r = c.b.mul(r, value(2));
  if (start) r = c.b.add(r, value(0));
  c.set(c.b.cast(r, t));
}
void arange(Call& c) {
  arange_from(c, nullptr, nullptr);
}
void arange_start(Call& c) {
  arange_from(c, c.argument(0), nullptr);
}
void arange_start_step(Call& c) {
  arange_from(c, c.argument(0), c.argument(2));
}

void eye(Call& c) {
  Shape shape = c.result_shape();
  c.set(c.b.cast(c.b.binary(Fn::Eq, c.b.iota(shape, 0, DType::i64), c.b.iota(shape, 1, DType::i64)), c.result_dtype()));
}

void fill(Call& c) {
  filled(c, c.operand(1, c.result_dtype(), "value"));
}

}  // namespace

std::vector<Row> creation_rows() {
  return {
      {"aten.full.default", full},
      {"aten.full_like.default", full},
      {"aten.new_full.default", [](Call& c) { filled(c, c.operand(2, c.result_dtype(), "fill_value")); }},
      {"aten.fill.Scalar", fill},
      {"aten.fill.Tensor", fill},
      {"aten.zeros.default", zeros},
      {"aten.zeros_like.default", zeros},
      {"aten.new_zeros.default", zeros},
      {"aten.ones.default", ones},
      {"aten.ones_like.default", ones},
      {"aten.new_ones.default", ones},
      {"aten.scalar_tensor.default", scalar_tensor},
      // Nobody may depend on what an empty tensor holds.
      {"aten.empty.memory_format", zeros},
      {"aten.empty_like.default", zeros},
      {"aten.new_empty.default", zeros},
      {"aten.empty_permuted.default", zeros},
      {"aten.empty_strided.default", zeros},
      {"aten.new_empty_strided.default", zeros},
      {"aten.arange.default", arange},
      {"aten.arange.start", arange_start},
      {"aten.arange.start_step", arange_start_step},
      {"aten.eye.default", eye},
      {"aten.eye.m", eye},
  };
}

}  // namespace cuvil::aten
