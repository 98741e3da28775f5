#include "ir/infer.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace cuvil {

namespace {

[[noreturn]] void fail(const Node& node, const std::string& why) {
  std::string message(info(node.op).name);
  if (!node.source.empty()) message += " (" + node.source + ")";
  message += ": " + why;
  if (!node.operands.empty()) {
    message += "; operands:";
    for (const Value* v : node.operands) message += " " + v->type.str();
  }
  throw CompileError(message);
}

void require(const Node& node, bool ok, const char* why) {
  if (!ok) fail(node, why);
}

constexpr const char* kNarrow = "narrow types are only stored and converted; cast the operands first";

const Type& type_of(const Node& node, size_t i) {
  return node.operands[i]->type;
}

size_t axis_of(const Node& node, size_t rank) {
  int64_t axis = node.integer("axis");
  require(node, axis >= 0 && axis < static_cast<int64_t>(rank), "axis out of range");
  return static_cast<size_t>(axis);
}

bool accepts(std::string_view classes, DType t) {
  char kind = is_float(t) ? 'f' : is_integer(t) ? 'i' : t == DType::boolean ? 'b' : 'n';
  return classes.find(kind) != std::string_view::npos;
}

// Output positions of a window along one axis.
Dim window_steps(const Node& node, const Dim& size, const Dim& window, int64_t stride, int64_t dilation) {
  require(node, stride >= 1 && dilation >= 1, "strides and dilations must be positive");
  Dim reach = (window - 1) * dilation + 1;
  Dim room = size - reach;
  if (auto r = room.constant(); r && *r < 0)
    fail(node, "the window (" + reach.str() + ") is larger than its axis (" + size.str() + ")");
  return floor_div(room, stride) + 1;
}

Type infer_pointwise(const Node& node) {
  const FnInfo& fn = info(node.fn());
  require(node, static_cast<int>(node.operands.size()) == fn.arity, "wrong number of operands for its function");
  size_t first = node.fn() == Fn::Select ? 1 : 0;
  if (first == 1) require(node, type_of(node, 0).dtype == DType::boolean, "the condition must be bool");
  DType dtype = type_of(node, first).dtype;
  if (!accepts(fn.classes, dtype)) {
    fail(node, "function " + std::string(fn.name) + " does not take " + std::string(name_of(dtype)) +
                   (is_narrow(dtype) ? std::string(": ") + kNarrow : ""));
  }
  Shape shape = type_of(node, 0).shape;
  for (size_t i = 1; i < node.operands.size(); ++i) {
    if (i > first && type_of(node, i).dtype != dtype) fail(node, "operands of different dtypes");
    try {
      shape = broadcast_shapes(shape, type_of(node, i).shape);
    } catch (const CompileError& e) {
      fail(node, e.what());
    }
  }
  return {fn.result == 'b' ? DType::boolean : dtype, shape};
}

Type infer_reshape(const Node& node) {
  Type type{type_of(node, 0).dtype, node.dims("shape")};
  const Dim more = type.num_elements() - type_of(node, 0).num_elements();
  // What can't be disproved may hold at run time; importers add a check.
  if (auto c = more.constant(); c && *c != 0) {
    fail(node, "cannot reshape to " + shape_str(type.shape) + ": the number of elements differs");
  }
  return type;
}

Type infer_transpose(const Node& node) {
  const auto& perm = node.ints("perm");
  const Type& x = type_of(node, 0);
  require(node, perm.size() == x.shape.size(), "perm does not have one entry per axis");
  std::vector<bool> seen(perm.size());
  Type type{x.dtype, {}};
  for (int64_t p : perm) {
    require(node, p >= 0 && p < static_cast<int64_t>(perm.size()) && !seen[static_cast<size_t>(p)],
            "perm is no permutation");
    seen[static_cast<size_t>(p)] = true;
    type.shape.push_back(x.shape[static_cast<size_t>(p)]);
  }
  return type;
}

Type infer_broadcast(const Node& node) {
  const Type& x = type_of(node, 0);
  const Shape& shape = node.dims("shape");
  require(node, shape.size() >= x.shape.size(), "broadcast to a lower rank");
  size_t skip = shape.size() - x.shape.size();
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (x.shape[i] != Dim(1) && x.shape[i] != shape[skip + i]) fail(node, "does not broadcast to " + shape_str(shape));
  }
  return {x.dtype, shape};
}

Type infer_slice(const Node& node) {
  const Type& x = type_of(node, 0);
  const auto& starts = node.dims("starts");
  const auto& limits = node.dims("limits");
  const auto& steps = node.ints("steps");
  size_t rank = x.shape.size();
  require(node, starts.size() == rank && limits.size() == rank && steps.size() == rank,
          "starts, limits and steps must have one entry per axis");
  Type type{x.dtype, {}};
  for (size_t i = 0; i < rank; ++i) {
    require(node, steps[i] != 0, "step 0");
    Dim span = steps[i] > 0 ? limits[i] - starts[i] : starts[i] - limits[i];
    Dim size = ceil_div(span, std::abs(steps[i]));
    if (auto lo = size.lower_bound(); !lo || *lo < 0) size = maximum(size, 0);
    if (starts[i].is_constant() && limits[i].is_constant() && x.shape[i].is_constant() && size != Dim(0)) {
      int64_t n = x.shape[i].value(), first = starts[i].value(), last = first + (size.value() - 1) * steps[i];
      if (first < 0 || first >= n || last < 0 || last >= n) fail(node, "slice leaves axis " + std::to_string(i));
    }
    type.shape.push_back(size);
  }
  return type;
}

Type infer_pad(const Node& node) {
  const Type& x = type_of(node, 0);
  const auto& low = node.dims("low");
  const auto& high = node.dims("high");
  require(node, low.size() == x.shape.size() && high.size() == x.shape.size(),
          "low and high must have one entry per axis");
  Type type{x.dtype, {}};
  for (size_t i = 0; i < x.shape.size(); ++i) {
    for (const Dim& d : {low[i], high[i]}) require(node, !d.is_constant() || d.value() >= 0, "negative padding");
    type.shape.push_back(x.shape[i] + low[i] + high[i]);
  }
  return type;
}

Type infer_concat(const Node& node) {
  Type type = type_of(node, 0);
  size_t axis = axis_of(node, type.shape.size());
  for (size_t n = 1; n < node.operands.size(); ++n) {
    const Type& part = type_of(node, n);
    require(node, part.dtype == type.dtype && part.shape.size() == type.shape.size(),
            "operands differ in dtype or rank");
    for (size_t i = 0; i < part.shape.size(); ++i) {
      require(node, i == axis || part.shape[i] == type.shape[i], "operands differ off the axis");
    }
    type.shape[axis] = type.shape[axis] + part.shape[axis];
  }
  return type;
}

Type infer_gather(const Node& node) {
  const Type& x = type_of(node, 0);
  const Type& index = type_of(node, 1);
  require(node, is_integer(index.dtype), "indices must be integers");
  size_t axis = axis_of(node, x.shape.size());
  Type type{x.dtype, {}};
  type.shape.insert(type.shape.end(), x.shape.begin(), x.shape.begin() + static_cast<long>(axis));
  type.shape.insert(type.shape.end(), index.shape.begin(), index.shape.end());
  type.shape.insert(type.shape.end(), x.shape.begin() + static_cast<long>(axis) + 1, x.shape.end());
  return type;
}

Type infer_gather_elements(const Node& node) {
  const Type& x = type_of(node, 0);
  const Type& index = type_of(node, 1);
  require(node, is_integer(index.dtype), "indices must be integers");
  require(node, index.shape.size() == x.shape.size(), "indices and data differ in rank");
  axis_of(node, x.shape.size());
  return {x.dtype, index.shape};
}

void require_scatterable(const Node& node) {
  const Type& x = type_of(node, 0);
  require(node, is_integer(type_of(node, 1).dtype), "indices must be integers");
  require(node, type_of(node, 2).dtype == x.dtype, "data and updates differ in dtype");
  if (!node.attributes.count("fn")) return;
  require(node, !is_narrow(x.dtype), kNarrow);
  ReduceFn fn = node.reduce_fn();
  require(node, fn != ReduceFn::ArgMax && fn != ReduceFn::ArgMin, "updates combine by sum, prod, max or min");
  if (x.dtype == DType::boolean)
    require(node, fn == ReduceFn::Max || fn == ReduceFn::Min, "bool combines by max (any) and min (all) only");
}

Type infer_scatter(const Node& node) {
  require_scatterable(node);
  const Type& x = type_of(node, 0);
  const Type& index = type_of(node, 1);
  size_t axis = axis_of(node, x.shape.size());
  Shape wanted(x.shape.begin(), x.shape.begin() + static_cast<long>(axis));
  wanted.insert(wanted.end(), index.shape.begin(), index.shape.end());
  wanted.insert(wanted.end(), x.shape.begin() + static_cast<long>(axis) + 1, x.shape.end());
  if (type_of(node, 2).shape != wanted) fail(node, "updates must have the shape " + shape_str(wanted));
  return x;
}

Type infer_scatter_elements(const Node& node) {
  require_scatterable(node);
  const Type& x = type_of(node, 0);
  const Shape& index = type_of(node, 1).shape;
  require(node, index == type_of(node, 2).shape, "indices and updates differ in shape");
  require(node, index.size() == x.shape.size(), "indices and data differ in rank");
  size_t axis = axis_of(node, x.shape.size());
  for (size_t i = 0; i < index.size(); ++i) {
    if (i != axis && provably_lt(x.shape[i], index[i])) fail(node, "indices are larger than data off the axis");
  }
  return x;
}

Type infer_sort_indices(const Node& node) {
  Type type{DType::i64, type_of(node, 0).shape};
  require(node, !is_narrow(type_of(node, 0).dtype), kNarrow);
  size_t axis = axis_of(node, type.shape.size());
  const Dim& count = node.get<Dim>("count");
  require(node, !count.is_constant() || count.value() >= 0, "count is negative");
  if (provably_lt(type.shape[axis], count))
    fail(node, "count " + count.str() + " is more than the axis has (" + type.shape[axis].str() + ")");
  type.shape[axis] = count;
  return type;
}

void require_foldable(const Node& node, ReduceFn fn, DType t) {
  bool arg = fn == ReduceFn::ArgMax || fn == ReduceFn::ArgMin;
  require(node, !is_narrow(t), kNarrow);
  if (t == DType::boolean)
    require(node, fn == ReduceFn::Max || fn == ReduceFn::Min, "bool folds by max (any) and min (all) only");
  if (node.op == Op::Scan) require(node, fn == ReduceFn::Sum || fn == ReduceFn::Prod, "scans are sums or products");
  if (node.op == Op::WindowReduce) require(node, !arg, "windows give values, not positions");
}

Type infer_reduce(const Node& node) {
  const Type& x = type_of(node, 0);
  const auto& axes = node.ints("axes");
  ReduceFn fn = node.reduce_fn();
  require_foldable(node, fn, x.dtype);
  bool arg = fn == ReduceFn::ArgMax || fn == ReduceFn::ArgMin;
  if (arg) require(node, axes.size() == 1, "argmax and argmin take one axis");
  for (size_t i = 0; i < axes.size(); ++i) {
    require(node, axes[i] >= 0 && axes[i] < static_cast<int64_t>(x.shape.size()) && (i == 0 || axes[i] > axes[i - 1]),
            "axes must be in range, sorted and unique");
  }
  bool keepdims = node.get<bool>("keepdims");
  Type type{arg ? DType::i64 : x.dtype, {}};
  for (size_t i = 0; i < x.shape.size(); ++i) {
    bool folded = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (folded && arg) require(node, x.shape[i] != Dim(0), "argmax of an empty axis");
    if (!folded) {
      type.shape.push_back(x.shape[i]);
    } else if (keepdims) {
      type.shape.push_back(1);
    }
  }
  return type;
}

Type infer_window_reduce(const Node& node) {
  const Type& x = type_of(node, 0);
  const auto& window = node.ints("window");
  const auto& strides = node.ints("strides");
  const auto& dilations = node.ints("dilations");
  require_foldable(node, node.reduce_fn(), x.dtype);
  require(node, window.size() <= x.shape.size() && strides.size() == window.size() && dilations.size() == window.size(),
          "window, strides and dilations must cover the same trailing axes");
  Type type = x;
  size_t lead = x.shape.size() - window.size();
  for (size_t i = 0; i < window.size(); ++i) {
    require(node, window[i] >= 1, "window sizes must be positive");
    type.shape[lead + i] = window_steps(node, x.shape[lead + i], window[i], strides[i], dilations[i]);
  }
  return type;
}

Type infer_matmul(const Node& node) {
  const Type& a = type_of(node, 0);
  const Type& b = type_of(node, 1);
  size_t ra = a.shape.size(), rb = b.shape.size();
  require(node, ra >= 2 && rb >= 2, "operands must have rank 2 or more");
  require(node, !is_narrow(a.dtype), kNarrow);
  require(node, a.dtype == b.dtype && a.dtype != DType::boolean, "operands must have one numeric dtype");
  if (a.shape[ra - 1] != b.shape[rb - 2]) fail(node, "inner sizes differ");
  Shape batch;
  try {
    batch = broadcast_shapes(Shape(a.shape.begin(), a.shape.end() - 2), Shape(b.shape.begin(), b.shape.end() - 2));
  } catch (const CompileError& e) {
    fail(node, e.what());
  }
  batch.push_back(a.shape[ra - 2]);
  batch.push_back(b.shape[rb - 1]);
  return {a.dtype, batch};
}

Type infer_conv(const Node& node) {
  const Type& x = type_of(node, 0);
  const Type& w = type_of(node, 1);
  const auto& strides = node.ints("strides");
  const auto& dilations = node.ints("dilations");
  int64_t groups = node.integer("groups");
  size_t rank = x.shape.size();
  require(node, rank >= 3 && w.shape.size() == rank, "needs [n, c, s…] and [oc, c/groups, k…] of one rank, 3 or more");
  require(node, !is_narrow(x.dtype), kNarrow);
  require(node, x.dtype == w.dtype && x.dtype != DType::boolean, "input and weight must have one numeric dtype");
  require(node, strides.size() == rank - 2 && dilations.size() == rank - 2, "one stride and dilation per spatial axis");
  require(node, groups >= 1, "groups must be positive");
  if (x.shape[1] != w.shape[1] * groups) fail(node, "input channels do not fit weight and groups");
  require(node, floor_mod(w.shape[0], groups) == Dim(0), "output channels must be a multiple of groups");
  Type type{x.dtype, {x.shape[0], w.shape[0]}};
  for (size_t i = 2; i < rank; ++i) {
    type.shape.push_back(window_steps(node, x.shape[i], w.shape[i], strides[i - 2], dilations[i - 2]));
  }
  return type;
}

const Type kToken = {DType::boolean, {}};

void require_inputs(const Node& node, const Graph& region, size_t count) {
  require(node, region.inputs().size() == count, "a region takes another number of operands");
}

Type infer_host(const Node& node) {
  const size_t count = node.operands.size();
  auto is_scalar = [&](size_t i, DType dtype) {
    return type_of(node, i).dtype == dtype && type_of(node, i).rank() == 0;
  };
  switch (node.op) {
    case Op::If: {
      require(node, is_scalar(0, DType::boolean), "the condition must be a bool of rank 0");
      const Graph &yes = node.region("then"), &no = node.region("else");
      require_inputs(node, yes, count - 1);
      require_inputs(node, no, count - 1);
      require(node, yes.outputs().size() == no.outputs().size(), "the branches return different numbers of values");
      break;
    }
    case Op::Loop: {
      require(node, is_scalar(0, DType::i64), "the number of trips must be an i64 of rank 0");
      require(node, is_scalar(1, DType::boolean), "the condition must be a bool of rank 0");
      const auto carried = static_cast<size_t>(node.integer("carried"));
      const Graph& body = node.region("body");
      require_inputs(node, body, count);
      require(node, carried + 2 <= count && carried + 1 <= body.outputs().size(), "too few carried values");
      break;
    }
    case Op::Sizes: {
      const Type& t = type_of(node, 0);
      const auto n = static_cast<int64_t>(node.dims("dims").size());
      require(node, t.dtype == DType::i64 && t.shape == Shape{Dim(n)}, "needs an i64 vector with one element per size");
      for (const Dim& d : node.dims("dims")) require(node, d.is_symbol(), "binds symbols only");
      break;
    }
    default:
      require(node, node.dims("lhs").size() == node.dims("rhs").size(), "as many sizes on both sides");
  }
  return kToken;
}

}  // namespace

Type infer_type(const Node& node) {
  const OpInfo& op = info(node.op);
  int count = static_cast<int>(node.operands.size());
  if (count < op.min_operands || (op.max_operands >= 0 && count > op.max_operands))
    fail(node, "wrong number of operands");
  switch (node.op) {
    case Op::Constant:
      return node.tensor().type();
    case Op::DimValue:
      return {DType::i64, {}};
    case Op::Iota: {
      Type type{node.get<DType>("dtype"), node.dims("shape")};
      axis_of(node, type.shape.size());
      require(node, !is_narrow(type.dtype), kNarrow);
      return type;
    }
    case Op::Pointwise:
      return infer_pointwise(node);
    case Op::Cast:
      require(node, !is_narrow(type_of(node, 0).dtype) && !is_narrow(node.get<DType>("dtype")),
              "narrow types are converted by compositions of other ops");
      return {node.get<DType>("dtype"), type_of(node, 0).shape};
    case Op::BitCast:
      require(node, size_of(type_of(node, 0).dtype) == size_of(node.get<DType>("dtype")), "the dtypes differ in size");
      return {node.get<DType>("dtype"), type_of(node, 0).shape};
    case Op::Reshape:
      return infer_reshape(node);
    case Op::Transpose:
      return infer_transpose(node);
    case Op::Broadcast:
      return infer_broadcast(node);
    case Op::Slice:
      return infer_slice(node);
    case Op::Pad:
      return infer_pad(node);
    case Op::Concat:
      return infer_concat(node);
    case Op::Gather:
      return infer_gather(node);
    case Op::GatherElements:
      return infer_gather_elements(node);
    case Op::Reduce:
      return infer_reduce(node);
    case Op::Scan:
      require_foldable(node, node.reduce_fn(), type_of(node, 0).dtype);
      axis_of(node, type_of(node, 0).shape.size());
      return type_of(node, 0);
    case Op::Scatter:
      return infer_scatter(node);
    case Op::ScatterElements:
      return infer_scatter_elements(node);
    case Op::SortIndices:
      return infer_sort_indices(node);
    case Op::Matmul:
      return infer_matmul(node);
    case Op::Conv:
      return infer_conv(node);
    case Op::WindowReduce:
      return infer_window_reduce(node);
    case Op::If:
    case Op::Loop:
    case Op::Sizes:
    case Op::CheckEqual:
      return infer_host(node);
    case Op::Result:
      return {node.get<DType>("dtype"), node.dims("shape")};
  }
  fail(node, "unknown op");
}

}  // namespace cuvil
