#include "transform/pack.hpp"

#include <functional>

#include "ir/evaluate.hpp"
#include "support/error.hpp"

namespace cuvil {

Tensor pack_constant(const Tensor& tensor, const std::function<Value*(Builder&, Value*)>& build) {
  Graph graph;
  Builder b(graph);
  Value* in = graph.add_input("weight", tensor.type());
  graph.add_output("packed", build(b, in));
  return evaluate(graph, {tensor}).at(0);
}

int64_t panel_columns(int64_t columns, int64_t lanes, bool one_row) {
  int64_t vectors = (columns + lanes - 1) / lanes;
  int64_t most = one_row ? 4 : 2;
  return lanes * (vectors < most ? vectors : most);
}

namespace {

int64_t round_up_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

std::vector<int64_t> inverse_of(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

Shape constants(const std::vector<int64_t>& v) {
  return Shape(v.begin(), v.end());
}

}  // namespace

Value* pack_matrix(Builder& b, const Tensor& matrix, int64_t nr, int64_t dot) {
  int64_t k = matrix.shape().at(0), n = matrix.shape().at(1), padded = round_up_to(n, nr);
  CUVIL_CHECK(k % dot == 0, "a matrix's rows are not a multiple of what an instruction adds up");
  // Without `dot`, its axis is left out.
  const bool plain = dot == 1;
  const Shape split = plain ? Shape{k, padded / nr, nr} : Shape{k / dot, dot, padded / nr, nr};
  const std::vector<int64_t> order = plain ? std::vector<int64_t>{1, 0, 2} : std::vector<int64_t>{2, 0, 3, 1};
  Tensor panels = pack_constant(matrix, [&](Builder& p, Value* w) {
    return p.transpose(p.reshape(p.pad(w, {0, 0}, {0, padded - n}, 0), split), order);
  });
  Value* w = b.transpose(b.constant(std::move(panels)), inverse_of(order));
  return b.slice_axis(b.reshape(w, {k, padded}), 1, 0, n);
}

Value* pack_filter(Builder& b, const Tensor& filter, int64_t nr, int64_t bi, Value* scale, int64_t dot) {
  const std::vector<int64_t>& shape = filter.shape();
  int64_t oc = shape.at(0), ic = shape.at(1), padded = round_up_to(oc, nr);
  auto spatial = static_cast<int64_t>(shape.size()) - 2;
  CUVIL_CHECK(ic % bi == 0 && bi % dot == 0, "input channels are not a multiple of their block");
  // Split to [oc/nr, nr, ic/bi, bi/dot, dot, k…], then reorder. Without `dot`, its axis is left out.
  std::vector<int64_t> split{padded / nr, nr, ic / bi, bi / dot}, order{0, 2};
  if (dot > 1) split.push_back(dot);
  const auto first_tap = static_cast<int64_t>(split.size());
  split.insert(split.end(), shape.begin() + 2, shape.end());
  for (int64_t i = 0; i < spatial; ++i) order.push_back(first_tap + i);
  order.insert(order.end(), {3, 1});
  if (dot > 1) order.push_back(4);
  Tensor panels = pack_constant(filter, [&](Builder& p, Value* w) {
    std::vector<Dim> none(shape.size(), Dim(0)), high = none;
    high[0] = padded - oc;
    return p.transpose(p.reshape(p.pad(w, none, high, 0), constants(split)), order);
  });
  std::vector<int64_t> logical = shape;
  logical[0] = padded;
  Value* stored = b.constant(std::move(panels));
  if (scale) {
    std::vector<int64_t> by_channel(order.size(), 1);
    by_channel[1] = ic / bi;
    by_channel[static_cast<size_t>(2 + spatial)] = bi / dot;
    if (dot > 1) by_channel.back() = dot;
    stored = b.mul(stored, b.reshape(scale, constants(by_channel)));
  }
  Value* w = b.reshape(b.transpose(stored, inverse_of(order)), constants(logical));
  return b.slice_axis(w, 0, 0, oc);
}

}  // namespace cuvil
