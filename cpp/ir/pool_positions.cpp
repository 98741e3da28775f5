#include <cmath>
#include <limits>
#include <numeric>

#include "ir/builder.hpp"

namespace cuvil {

std::vector<Value*> Builder::max_pool_positions(Value* x, const Value* like, const std::vector<int64_t>& window,
                                                const std::vector<int64_t>& strides, const std::vector<int64_t>& pads,
                                                const std::vector<int64_t>& dilations) {
  const size_t spatial = window.size(), lead = x->type.shape.size() - spatial;
  const Shape out(like->type.shape.begin() + static_cast<long>(lead), like->type.shape.end());
  Shape places = out;
  places.insert(places.end(), window.begin(), window.end());
  auto number = [&](int64_t v) { return scalar_int(DType::i64, v); };
  std::vector<Value*> at;
  Value* valid = nullptr;
  for (size_t i = 0; i < spatial; ++i) {
    Value* start = sub(mul(iota(places, static_cast<int>(i), DType::i64), number(strides[i])), number(pads[i]));
    Value* p = add(start, mul(iota(places, static_cast<int>(spatial + i), DType::i64), number(dilations[i])));
    Value* last = dim_value(x->type.shape[lead + i] - 1);
    Value* inside = binary(Fn::And, binary(Fn::Ge, p, number(0)), binary(Fn::Le, p, last));
    valid = valid ? binary(Fn::And, valid, inside) : inside;
    at.push_back(binary(Fn::Min, binary(Fn::Max, p, number(0)), last));
  }
  const DType t = x->type.dtype;
  double lowest = -std::numeric_limits<double>::infinity();
  if (!is_float(t)) lowest = is_signed_int(t) ? -std::ldexp(1.0, static_cast<int>(size_of(t)) * 8 - 1) : 0;
  Value* bottom = is_float(t) ? scalar(t, lowest) : scalar_int(t, static_cast<int64_t>(lowest));
  Value* taps = select(valid, gather_joint(x, lead, at), bottom);
  Shape flat = like->type.shape;
  int64_t count = std::accumulate(window.begin(), window.end(), int64_t{1}, std::multiplies<>());
  flat.emplace_back(count);
  Value* best = reduce(ReduceFn::ArgMax, reshape(taps, flat), {static_cast<int64_t>(flat.size()) - 1}, false);
  std::vector<Value*> positions;
  for (size_t i = 0; i < spatial; ++i) {
    count /= window[i];
    Value* k = binary(Fn::Mod, div(best, number(count)), number(window[i]));
    Value* start = sub(mul(iota(out, static_cast<int>(i), DType::i64), number(strides[i])), number(pads[i]));
    positions.push_back(add(start, mul(k, number(dilations[i]))));
  }
  return positions;
}

}  // namespace cuvil
