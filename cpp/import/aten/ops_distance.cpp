// Norms, distances, and products of more than two tensors.
#include <cmath>
#include <numeric>

#include "import/aten/call.hpp"

namespace cuvil::aten {

namespace {

Value* vector_norm(Call& c, Value* x, double p, const std::vector<int64_t>& axes, bool keep) {
  Builder& b = c.b;
  Value* a = b.unary(Fn::Abs, x);
  if (std::isinf(p)) return b.reduce(p > 0 ? ReduceFn::Max : ReduceFn::Min, a, axes, keep);
  if (p == 0) return b.reduce(ReduceFn::Sum, b.cast(b.binary(Fn::Ne, x, 0.0), x->type.dtype), axes, keep);
  if (p == 1) return b.reduce(ReduceFn::Sum, a, axes, keep);
  if (p == 2) return b.unary(Fn::Sqrt, b.reduce(ReduceFn::Sum, b.mul(x, x), axes, keep));
  return b.binary(Fn::Pow, b.reduce(ReduceFn::Sum, b.binary(Fn::Pow, a, p), axes, keep), 1 / p);
}

std::vector<int64_t> all_axes(const Value* x) {
  std::vector<int64_t> axes(x->type.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

void norm(Call& c) {
  Value* x = c.wide(0);
  std::vector<int64_t> axes = c.has(2, "dim") ? c.ints(2, "dim") : std::vector<int64_t>{};
  if (axes.empty() || x->type.rank() == 0) axes = all_axes(x);
  c.set(vector_norm(c, x, c.real(1, "ord", 2), axes, c.boolean(3, "keepdim")));
}

// The distance of nothing is 0, for every p.
Value* distance(Call& c, Value* difference, double p) {
  const int last = static_cast<int>(difference->type.rank()) - 1;
  if (difference->type.shape.back() == Dim(0)) {
    Shape shape(difference->type.shape.begin(), difference->type.shape.end() - 1);
    return c.b.full(shape, difference->type.dtype, 0);
  }
  return vector_norm(c, difference, p, {last}, false);
}

// x1 […, p, m], x2 […, r, m] → […, p, r]
void pairwise_distances(Call& c) {
  Value* x = c.wide(0);
  Value* y = c.wide(1);
  const int64_t rank = std::max(x->type.rank(), y->type.rank());
  auto widen = [&](Value* v, int64_t at) {
    while (v->type.rank() < rank) v = c.b.unsqueeze(v, {0});
    return c.b.unsqueeze(v, {at});
  };
  c.set(distance(c, c.b.sub(widen(x, rank - 1), widen(y, rank - 2)), c.real(2, "p", 2)));
}

// Of each two rows of a matrix.
void own_distances(Call& c) {
  Value* x = c.wide(0);
  if (!x->type.shape[0].is_constant()) c.fail("needs a known number of rows");
  const int64_t n = x->type.shape[0].value();
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      first.push_back(i);
      second.push_back(j);
    }
  }
  if (first.empty()) {
    c.set(c.b.full({0}, x->type.dtype, 0));
    return;
  }
  auto rows = [&](const std::vector<int64_t>& list) {
    return c.b.gather(x, c.b.constant(Tensor::vector_int(DType::i64, list)), 0);
  };
  c.set(distance(c, c.b.sub(rows(first), rows(second)), c.real(1, "p", 2)));
}

void dist(Call& c) {
  Value* difference = c.b.sub(c.wide(0), c.wide(1));
  c.set(vector_norm(c, difference, c.real(2, "p", 2), all_axes(difference), false));
}

// Σ over some axes of the product of three tensors, each widened by axes of its own.
void trilinear(Call& c) {
  Value* product = nullptr;
  for (size_t i = 0; i < 3; ++i) {
    std::vector<int64_t> axes = c.ints(3 + i);
    Value* x = c.tensor(i);
    if (!axes.empty()) x = c.b.unsqueeze(x, axes);
    product = product ? c.b.mul(product, x) : x;
  }
  std::vector<int64_t> summed = c.ints(6);
  c.set(summed.empty() ? product : c.b.reduce(ReduceFn::Sum, product, summed, false));
}

// beta · input + alpha · Σ a[i] × b[i]
void add_batch_product(Call& c) {
  const DType t = c.result_dtype();
  Value* y = c.b.reduce(ReduceFn::Sum, c.b.matmul(c.operand(1, t), c.operand(2, t)), {0}, false);
  if (c.has(4, "alpha")) y = c.b.mul(y, c.operand(4, t, "alpha"));
  if (!c.has(3, "beta")) {
    y = c.b.add(c.operand(0, t), y);
  } else if (c.real(3, "beta") != 0) {
    y = c.b.add(c.b.mul(c.operand(0, t), c.operand(3, t, "beta")), y);
  }
  c.set(c.b.broadcast(y, c.result_shape()));
}

void cross(Call& c) {
  const DType t = c.result_dtype();
  const Shape shape = c.result_shape();
  Value* x = c.b.broadcast(c.operand(0, t), shape);
  Value* y = c.b.broadcast(c.operand(1, t), shape);
  const int axis = c.axis(2, "dim", x, -1);
  auto turned = [&](Value* v, int64_t by) {
    return c.b.concat({c.b.slice_axis(v, axis, by, 3), c.b.slice_axis(v, axis, 0, by)}, axis);
  };
  c.set(c.b.sub(c.b.mul(turned(x, 1), turned(y, 2)), c.b.mul(turned(x, 2), turned(y, 1))));
}

}  // namespace

std::vector<Row> distance_rows() {
  return {
      {"aten.linalg_vector_norm.default", norm},      {"aten._cdist_forward.default", pairwise_distances},
      {"aten._pdist_forward.default", own_distances}, {"aten.dist.default", dist},
      {"aten._trilinear.default", trilinear},         {"aten.addbmm.default", add_batch_product},
      {"aten.linalg_cross.default", cross},
  };
}

}  // namespace cuvil::aten
