#include "ir/builder.hpp"

#include <algorithm>

#include "ir/narrow.hpp"
#include "support/error.hpp"

namespace cuvil {

namespace {

int64_t wrap_axis(int64_t axis, size_t rank) {
  int64_t r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r)
    throw CompileError("axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(r));
  return axis < 0 ? axis + r : axis;
}

std::vector<int64_t> wrap_axes(std::vector<int64_t> axes, size_t rank) {
  for (int64_t& axis : axes) axis = wrap_axis(axis, rank);
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

}  // namespace

Value* Builder::node(Op op, std::vector<Value*> operands, Attributes attributes) {
  return graph_.add_node(op, std::move(operands), std::move(attributes), source_, position_)->result.get();
}

Value* Builder::constant(Tensor tensor) {
  return node(Op::Constant, {}, {{"value", std::move(tensor)}});
}
Value* Builder::scalar(DType dtype, double value) {
  if (is_narrow(dtype)) return cast(scalar(DType::f64, value), dtype);
  return constant(Tensor::scalar(dtype, value));
}
Value* Builder::scalar_int(DType dtype, int64_t value) {
  if (is_narrow(dtype)) return cast(scalar_int(DType::i64, value), dtype);
  return constant(Tensor::scalar_int(dtype, value));
}

Value* Builder::dim_value(Dim value) {
  if (auto c = value.constant()) return scalar_int(DType::i64, *c);
  return node(Op::DimValue, {}, {{"value", std::move(value)}});
}

Value* Builder::iota(Shape shape, int axis, DType dtype) {
  int64_t at = wrap_axis(axis, shape.size());
  if (is_narrow(dtype)) return cast(iota(std::move(shape), axis, DType::i64), dtype);
  return node(Op::Iota, {}, {{"shape", std::move(shape)}, {"axis", at}, {"dtype", dtype}});
}

Value* Builder::full(Shape shape, DType dtype, double value) {
  return broadcast(scalar(dtype, value), std::move(shape));
}

Value* Builder::unary(Fn fn, Value* x) {
  return node(Op::Pointwise, {x}, {{"fn", fn}});
}
Value* Builder::binary(Fn fn, Value* a, Value* b) {
  return node(Op::Pointwise, broadcastable({a, b}), {{"fn", fn}});
}
Value* Builder::binary(Fn fn, Value* a, double b) {
  return binary(fn, a, scalar(a->type.dtype, b));
}
Value* Builder::select(Value* condition, Value* a, Value* b) {
  return node(Op::Pointwise, broadcastable({condition, a, b}), {{"fn", Fn::Select}});
}

std::vector<Value*> Builder::broadcastable(std::vector<Value*> xs) {
  size_t rank = 0;
  for (const Value* x : xs) rank = std::max(rank, x->type.shape.size());
  for (size_t back = 1; back <= rank; ++back) {
    auto size_of = [&](const Value* x) {
      return back <= x->type.shape.size() ? x->type.shape[x->type.shape.size() - back] : Dim(1);
    };
    // Sizes that are known not to be 1 decide; else the largest does, be it 1 or not.
    std::optional<Dim> decided, open;
    bool differ = false;
    for (const Value* x : xs) {
      const Dim d = size_of(x);
      if (d == Dim(1)) continue;
      differ |= open && *open != d;
      if (d.is_constant()) {
        if (decided && *decided != d) return xs;  // the error is the node's
        decided = d;
      }
      open = open ? maximum(*open, d) : d;
    }
    if (!differ) continue;
    const Dim size = decided ? *decided : *open;
    for (Value*& x : xs) {
      const Dim d = size_of(x);
      if (d == Dim(1) || d == size) continue;
      node(Op::CheckEqual, {}, {{"lhs", std::vector<Dim>{(d - 1) * (d - size)}}, {"rhs", std::vector<Dim>{Dim(0)}}});
      Value* at = binary(Fn::Min, iota({size}, 0, DType::i64), dim_value(d - 1));
      x = gather(x, at, -static_cast<int>(back));
    }
  }
  return xs;
}

Value* Builder::cast(Value* x, DType dtype) {
  if (x->type.dtype == dtype) return x;
  if (is_narrow(dtype)) return encode_narrow(*this, x, dtype);
  if (is_narrow(x->type.dtype)) return decode_narrow(*this, x, dtype);
  return node(Op::Cast, {x}, {{"dtype", dtype}});
}

Value* Builder::bitcast(Value* x, DType dtype) {
  if (x->type.dtype == dtype) return x;
  return node(Op::BitCast, {x}, {{"dtype", dtype}});
}

Value* Builder::reshape(Value* x, Shape shape) {
  if (x->type.shape == shape) return x;
  return node(Op::Reshape, {x}, {{"shape", std::move(shape)}});
}

Value* Builder::reshape_checked(Value* x, Shape shape) {
  const Dim before = x->type.num_elements(), after = Type{x->type.dtype, shape}.num_elements();
  if (before != after && !(before - after).is_constant()) {
    node(Op::CheckEqual, {}, {{"lhs", std::vector<Dim>{before}}, {"rhs", std::vector<Dim>{after}}});
  }
  return reshape(x, std::move(shape));
}

Value* Builder::transpose(Value* x, std::vector<int64_t> perm) {
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) {
    perm[i] = wrap_axis(perm[i], perm.size());
    identity &= perm[i] == static_cast<int64_t>(i);
  }
  if (identity && perm.size() == x->type.shape.size()) return x;
  return node(Op::Transpose, {x}, {{"perm", std::move(perm)}});
}

Value* Builder::broadcast(Value* x, Shape shape) {
  if (x->type.shape == shape) return x;
  return node(Op::Broadcast, {x}, {{"shape", std::move(shape)}});
}

Value* Builder::slice(Value* x, std::vector<Dim> starts, std::vector<Dim> limits, std::vector<int64_t> steps) {
  bool whole = starts.size() == x->type.shape.size();
  for (size_t i = 0; whole && i < starts.size(); ++i) {
    whole = starts[i] == Dim(0) && limits[i] == x->type.shape[i] && steps[i] == 1;
  }
  if (whole) return x;
  return node(Op::Slice, {x},
              {{"starts", std::move(starts)}, {"limits", std::move(limits)}, {"steps", std::move(steps)}});
}

Value* Builder::slice_axis(Value* x, int axis, Dim start, Dim limit, int64_t step) {
  size_t rank = x->type.shape.size();
  auto at = static_cast<size_t>(wrap_axis(axis, rank));
  std::vector<Dim> starts(rank, Dim(0)), limits = x->type.shape;
  std::vector<int64_t> steps(rank, 1);
  starts[at] = std::move(start);
  limits[at] = std::move(limit);
  steps[at] = step;
  return slice(x, std::move(starts), std::move(limits), std::move(steps));
}

Value* Builder::pad(Value* x, std::vector<Dim> low, std::vector<Dim> high, double value) {
  auto zero = [](const Dim& d) { return d == Dim(0); };
  if (std::all_of(low.begin(), low.end(), zero) && std::all_of(high.begin(), high.end(), zero)) return x;
  return node(Op::Pad, {x}, {{"low", std::move(low)}, {"high", std::move(high)}, {"value", value}});
}

Value* Builder::concat(std::vector<Value*> xs, int axis) {
  CUVIL_CHECK(!xs.empty(), "concat of nothing");
  if (xs.size() == 1) return xs[0];
  const size_t rank = xs[0]->type.shape.size();
  int64_t at = wrap_axis(axis, rank);
  // Sizes off the axis that may differ are checked at run time.
  for (size_t i = 0; i < rank; ++i) {
    if (static_cast<int64_t>(i) == at) continue;
    const Value* model = xs[0];
    for (const Value* x : xs) {
      if (x->type.shape.size() == rank && x->type.shape[i].is_constant()) model = x;
    }
    const Dim size = model->type.shape[i];
    for (Value*& x : xs) {
      if (x->type.shape.size() != rank || x->type.shape[i] == size || (x->type.shape[i] - size).is_constant()) continue;
      Shape shape = x->type.shape;
      shape[i] = size;
      x = reshape_checked(x, shape);
    }
  }
  return node(Op::Concat, std::move(xs), {{"axis", at}});
}

Value* Builder::gather(Value* x, Value* index, int axis) {
  return node(Op::Gather, {x, index}, {{"axis", wrap_axis(axis, x->type.shape.size())}});
}

Value* Builder::gather_elements(Value* x, Value* index, int axis) {
  return node(Op::GatherElements, {x, index}, {{"axis", wrap_axis(axis, x->type.shape.size())}});
}

namespace {

Attributes scatter_attributes(const Value* x, int axis, std::optional<ReduceFn> fn) {
  Attributes attributes{{"axis", wrap_axis(axis, x->type.shape.size())}};
  if (fn) attributes.emplace("fn", *fn);
  return attributes;
}

}  // namespace

Value* Builder::scatter(Value* x, Value* index, Value* updates, int axis, std::optional<ReduceFn> fn) {
  return node(Op::Scatter, {x, index, updates}, scatter_attributes(x, axis, fn));
}

Value* Builder::scatter_elements(Value* x, Value* index, Value* updates, int axis, std::optional<ReduceFn> fn) {
  return node(Op::ScatterElements, {x, index, updates}, scatter_attributes(x, axis, fn));
}

Value* Builder::sort_indices(Value* x, int axis, Dim count, bool descending) {
  return node(
      Op::SortIndices, {x},
      {{"axis", wrap_axis(axis, x->type.shape.size())}, {"count", std::move(count)}, {"descending", descending}});
}

Builder::Sorted Builder::sort(Value* x, int axis, const Dim& count, bool descending) {
  Value* indices = sort_indices(x, axis, count, descending);
  return {gather_elements(x, indices, axis), indices};
}

Value* Builder::squeeze(Value* x, std::vector<int64_t> axes) {
  axes = wrap_axes(std::move(axes), x->type.shape.size());
  Shape shape;
  for (size_t i = 0; i < x->type.shape.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) shape.push_back(x->type.shape[i]);
  }
  return reshape(x, std::move(shape));
}

Value* Builder::unsqueeze(Value* x, std::vector<int64_t> axes) {
  size_t rank = x->type.shape.size() + axes.size();
  axes = wrap_axes(std::move(axes), rank);
  Shape shape;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) {
    bool added = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    shape.push_back(added ? Dim(1) : x->type.shape.at(next++));
  }
  return reshape(x, std::move(shape));
}

Value* Builder::reduce(ReduceFn fn, Value* x, std::vector<int64_t> axes, bool keepdims) {
  axes = wrap_axes(std::move(axes), x->type.shape.size());
  return node(Op::Reduce, {x}, {{"fn", fn}, {"axes", std::move(axes)}, {"keepdims", keepdims}});
}

Value* Builder::mean(Value* x, std::vector<int64_t> axes, bool keepdims) {
  axes = wrap_axes(std::move(axes), x->type.shape.size());
  Dim count = 1;
  for (int64_t axis : axes) count = count * x->type.shape[static_cast<size_t>(axis)];
  Value* sum = reduce(ReduceFn::Sum, x, axes, keepdims);
  if (auto c = count.constant()) return binary(Fn::Div, sum, static_cast<double>(*c));
  return div(sum, cast(dim_value(count), x->type.dtype));
}

Value* Builder::matmul(Value* a, Value* b) {
  return node(Op::Matmul, {a, b});
}

Value* Builder::conv(Value* x, Value* weight, std::vector<int64_t> strides, std::vector<int64_t> pads,
                     std::vector<int64_t> dilations, int64_t groups) {
  size_t spatial = strides.size();
  CUVIL_CHECK(pads.size() == 2 * spatial, "conv pads");
  std::vector<Dim> low{0, 0}, high{0, 0};
  for (size_t i = 0; i < spatial; ++i) {
    low.push_back(pads[i]);
    high.push_back(pads[spatial + i]);
  }
  Value* padded = pad(x, std::move(low), std::move(high), 0);
  return node(Op::Conv, {padded, weight},
              {{"strides", std::move(strides)}, {"dilations", std::move(dilations)}, {"groups", groups}});
}

Value* Builder::window_reduce(ReduceFn fn, Value* x, std::vector<int64_t> window, std::vector<int64_t> strides,
                              std::vector<int64_t> dilations) {
  return node(Op::WindowReduce, {x},
              {{"fn", fn},
               {"window", std::move(window)},
               {"strides", std::move(strides)},
               {"dilations", std::move(dilations)}});
}

}  // namespace cuvil
