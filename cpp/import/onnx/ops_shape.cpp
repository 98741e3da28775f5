// Operators that move elements, make tensors, or work on shapes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

// Axes given as an attribute up to some opset, and as an input after it.
std::vector<int64_t> axes_of(Call& c, size_t input) {
  if (c.optional_input(input)) return c.constants(input);
  return c.ints("axes");
}

AttributeProto::Type type_of_constant(Call& c, std::string_view name) {
  if (name == "value_float") return AttributeProto::Float;
  if (name == "value_floats") return AttributeProto::Floats;
  if (name == "value_int") return AttributeProto::Int;
  if (name == "value_ints") return AttributeProto::Ints;
  c.fail("a constant of kind '" + std::string(name) + "' is not supported");
}

void constant(Call& c) {
  for (const AttributeProto& a : c.node().attributes) {
    if (a.name == "value") {
      c.set(c.b.constant(c.tensor("value")));
      return;
    }
    c.attribute(a.name, type_of_constant(c, a.name));
    if (a.name == "value_float") {
      c.set(c.b.scalar(DType::f32, static_cast<double>(a.f)));
    } else if (a.name == "value_int") {
      c.set(c.b.scalar_int(DType::i64, a.i));
    } else if (a.name == "value_floats") {
      Tensor t(DType::f32, {static_cast<int64_t>(a.floats.size())});
      for (size_t i = 0; i < a.floats.size(); ++i) t.mutable_as<float>()[i] = a.floats[i];
      c.set(c.b.constant(t));
    } else if (a.name == "value_ints") {
      Tensor t(DType::i64, {static_cast<int64_t>(a.ints.size())});
      for (size_t i = 0; i < a.ints.size(); ++i) t.mutable_as<int64_t>()[i] = a.ints[i];
      c.set(c.b.constant(t));
    }
    return;
  }
  c.fail("has no value");
}

void constant_of_shape(Call& c) {
  Tensor value = c.attribute("value") ? c.tensor("value") : Tensor::scalar(DType::f32, 0);
  if (value.num_elements() != 1) c.fail("value must have one element");
  c.set(c.b.broadcast(c.b.constant(value.reshaped({})), c.shape(0)));
}

void shape(Call& c) {
  const Shape& s = c.input(0)->type.shape;
  auto rank = static_cast<int64_t>(s.size());
  auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
  int64_t start = clamp(c.integer("start", 0)), end = clamp(c.integer("end", rank));
  std::vector<Dim> part;
  for (int64_t i = start; i < end; ++i) part.push_back(s[static_cast<size_t>(i)]);
  c.set(c.from_sizes(part));
}

void size(Call& c) {
  c.set(c.from_sizes({c.input(0)->type.num_elements()}, true));
}

// The wanted sizes with 0 and -1 replaced, where they are only known at run time.
Shape run_time_shape(Call& c, Value* x, Value* wanted, bool allow_zero) {
  const Dim count = wanted->type.num_elements();
  if (!count.is_constant()) c.fail("the rank of the result must be known at compile time");
  Value* sizes = c.b.cast(wanted, DType::i64);
  auto number = [&](int64_t v) { return c.b.scalar_int(DType::i64, v); };
  if (!allow_zero) {
    std::vector<Dim> own = x->type.shape;
    own.resize(static_cast<size_t>(count.value()), Dim(0));
    sizes = c.b.select(c.b.binary(Fn::Eq, sizes, number(0)), c.from_sizes(own), sizes);
  }
  Value* open = c.b.binary(Fn::Eq, sizes, number(-1));
  Value* known = c.b.reduce(ReduceFn::Prod, c.b.select(open, number(1), sizes), {0}, true);
  Value* rest = c.b.div(c.b.reshape(c.b.dim_value(x->type.num_elements()), {1}), known);
  return c.run_time_sizes(c.b.select(open, rest, sizes), 0);
}

void reshape(Call& c) {
  Value* x = c.input(0);
  std::vector<Dim> wanted;
  const bool allow_zero = c.integer("allowzero", 0);
  if (c.opset() < 5) {
    for (int64_t d : c.ints("shape")) wanted.push_back(d);
  } else if (auto known = c.sizes_of(c.input(1))) {
    wanted = *known;
  } else {
    c.set(c.b.reshape_checked(x, run_time_shape(c, x, c.input(1), allow_zero)));
    return;
  }
  Dim known = 1;
  std::optional<size_t> open;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == Dim(0) && !allow_zero) {
      if (i >= x->type.shape.size()) c.fail("size 0 copies an axis that the input does not have");
      wanted[i] = x->type.shape[i];
    }
    if (wanted[i].is_constant() && wanted[i].value() < -1) c.fail("asks for the negative size " + wanted[i].str());
    if (wanted[i] == Dim(-1)) {
      if (open) c.fail("two sizes of -1");
      open = i;
    } else {
      known = known * wanted[i];
    }
  }
  if (open) {
    Dim total = x->type.num_elements();
    if (known == Dim(0)) c.fail("a size of -1 beside one of 0");
    auto rest = exact_div(total, known);
    if (!rest && provably_le(1, known)) rest = floor_div(total, known);
    // Where a size may be 0 the quotient is found at run time.
    if (!rest) {
      Value* quotient = c.b.div(c.b.dim_value(total), c.b.dim_value(known));
      rest = c.run_time_sizes(quotient, 0).front();
    }
    wanted[*open] = *rest;
  }
  c.set(c.b.reshape_checked(x, wanted));
}

void flatten(Call& c) {
  Value* x = c.input(0);
  int64_t rank = x->type.rank(), axis = c.integer("axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) c.fail("axis out of range");
  Dim before = 1, after = 1;
  for (int64_t i = 0; i < rank; ++i)
    (i < axis ? before : after) = (i < axis ? before : after) * x->type.shape[static_cast<size_t>(i)];
  c.set(c.b.reshape(x, {before, after}));
}

void squeeze(Call& c) {
  Value* x = c.input(0);
  std::vector<int64_t> axes = axes_of(c, 1);
  if (axes.empty()) {
    for (size_t i = 0; i < x->type.shape.size(); ++i) {
      if (x->type.shape[i] == Dim(1)) axes.push_back(static_cast<int64_t>(i));
    }
  }
  c.set(c.b.squeeze(x, axes));
}
void unsqueeze(Call& c) {
  Value* x = c.input(0);
  std::vector<int64_t> axes = axes_of(c, 1);
  auto rank = x->type.rank() + static_cast<int64_t>(axes.size());
  std::set<int64_t> distinct;
  for (int64_t axis : axes) c.require(distinct.insert(c.wrap_axis(axis, rank)).second, "an axis is given twice");
  c.set(c.b.unsqueeze(x, axes));
}

void transpose(Call& c) {
  Value* x = c.input(0);
  std::vector<int64_t> perm = c.ints("perm");
  if (perm.empty()) {
    perm.resize(x->type.shape.size());
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  c.set(c.b.transpose(x, perm));
}

void expand(Call& c) {
  Value* x = c.input(0);
  const Shape wanted = c.shape(1);
  Value* like = c.b.full(wanted, DType::boolean, 0);
  std::vector<Value*> both = c.b.broadcastable({x, like});
  c.set(c.b.broadcast(both[0], broadcast_shapes(both[0]->type.shape, both[1]->type.shape)));
}

void tile(Call& c) {
  Value* x = c.input(0);
  Shape times(x->type.shape.size(), Dim(1));
  if (c.opset() < 6) {
    times[static_cast<size_t>(c.wrap_axis(c.constant(2), x->type.rank()))] = c.size(1);
  } else {
    times = c.shape(1);
  }
  c.require(times.size() == x->type.shape.size(), "needs one repetition per axis");
  Shape ones, wide, joined;
  for (size_t i = 0; i < times.size(); ++i) {
    const Dim& d = x->type.shape[i];
    ones.insert(ones.end(), {Dim(1), d});
    wide.insert(wide.end(), {times[i], d});
    joined.push_back(times[i] * d);
  }
  c.set(c.b.reshape(c.b.broadcast(c.b.reshape(x, ones), wide), joined));
}

void concat(Call& c) {
  std::vector<Value*> parts;
  for (size_t i = 0; i < c.input_count(); ++i) parts.push_back(c.input(i));
  c.set(c.b.concat(parts, static_cast<int>(c.axis("axis", 1, c.input(0)))));
}

void split(Call& c) {
  Value* x = c.input(0);
  auto axis = static_cast<int>(c.axis("axis", 0, x));
  const Dim& total = x->type.shape[static_cast<size_t>(axis)];
  std::vector<Dim> sizes;
  if (c.optional_input(1)) {
    sizes = c.shape(1);
  } else if (c.attribute("split")) {
    for (int64_t s : c.ints("split")) sizes.push_back(s);
  } else {
    auto parts = static_cast<int64_t>(c.node().outputs.size());
    int64_t wanted = c.integer("num_outputs", parts);
    c.require(wanted >= 1 && wanted == parts, "num_outputs must be the number of outputs");
    Dim each = ceil_div(total, wanted);
    for (int64_t i = 0; i < parts; ++i) sizes.push_back(minimum(each, maximum(total - each * i, 0)));
  }
  Dim sum = 0;
  for (const Dim& s : sizes) {
    c.require(!s.is_constant() || s.value() >= 0, "a part has a negative size");
    sum = sum + s;
  }
  if (sum.is_constant() && total.is_constant() && sum != total)
    c.fail("the parts have " + sum.str() + " elements together, the axis has " + total.str());
  Dim at = 0;
  for (const Dim& s : sizes) {
    c.set(c.b.slice_axis(x, axis, at, at + s));
    at = at + s;
  }
}

// A bound as ONNX clamps it: negative ones count from the end.
Dim clamp_bound(const Dim& bound, const Dim& size, int64_t low, const Dim& high) {
  Dim at = bound;
  if (auto v = bound.constant()) {
    if (*v < 0) {
      if (size.is_constant()) return std::clamp<int64_t>(*v + size.value(), low, high.value());
      if (*v < -(int64_t{1} << 40)) return low;
      at = size + *v;
    } else if (*v > (int64_t{1} << 40)) {
      return high;
    }
  }
  return minimum(maximum(at, low), high);
}

// Whether the size is computed from data that may be negative.
bool may_count_from_the_end(const Dim& d) {
  const std::vector<Dim> symbols = d.symbols();
  return std::any_of(symbols.begin(), symbols.end(), [](const Dim& s) { return s.terms()[0].factors[0]->min < 0; });
}

// The same for a bound whose sign shows at run time.
Dim bound_at_run_time(Call& c, const Dim& bound, const Dim& size, int64_t low, const Dim& high) {
  if (!may_count_from_the_end(bound)) return clamp_bound(bound, size, low, high);
  Value* at = c.b.dim_value(bound);
  Value* zero = c.zero(DType::i64);
  at = c.b.select(c.b.binary(Fn::Lt, at, zero), c.b.add(at, c.b.dim_value(size)), at);
  at =
      c.b.binary(Fn::Min, c.b.binary(Fn::Max, at, c.number(DType::i64, static_cast<double>(low))), c.b.dim_value(high));
  return c.run_time_sizes(at, std::min<int64_t>(low, 0)).front();
}

void slice(Call& c) {
  Value* x = c.input(0);
  size_t rank = x->type.shape.size();
  std::vector<Dim> starts, ends;
  std::vector<int64_t> axes, steps;
  if (c.opset() < 10) {
    for (int64_t v : c.ints("starts")) starts.push_back(v);
    for (int64_t v : c.ints("ends")) ends.push_back(v);
    axes = c.ints("axes");
  } else {
    starts = c.sizes(1);
    ends = c.sizes(2);
    if (c.optional_input(3)) axes = c.constants(3);
    if (c.optional_input(4)) steps = c.constants(4);
  }
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != axes.size() || steps.size() != axes.size())
    c.fail("starts, ends, axes and steps differ in length");
  std::vector<Dim> lo(rank, Dim(0)), hi = x->type.shape;
  std::vector<int64_t> by(rank, 1);
  constexpr int64_t kLongestStep = int64_t{1} << 40;  // beyond any axis
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = static_cast<size_t>(c.wrap_axis(axes[i], static_cast<int64_t>(rank)));
    const Dim& n = x->type.shape[axis];
    by[axis] = std::clamp(steps[i], -kLongestStep, kLongestStep);
    if (steps[i] == 0) c.fail("step 0");
    if (n == Dim(0)) {
      lo[axis] = hi[axis] = 0;
    } else if (steps[i] > 0) {
      lo[axis] = bound_at_run_time(c, starts[i], n, 0, n);
      hi[axis] = maximum(bound_at_run_time(c, ends[i], n, 0, n), lo[axis]);
    } else {
      lo[axis] = bound_at_run_time(c, starts[i], n, 0, n - 1);
      // The end counts from the end when negative; beyond the first element it means "through 0".
      bool before_first = ends[i].is_constant() && ends[i].value() < 0 &&
                          (!n.is_constant() ? ends[i].value() < -(int64_t{1} << 30) : ends[i].value() < -n.value());
      hi[axis] = before_first ? Dim(-1) : minimum(bound_at_run_time(c, ends[i], n, -1, n - 1), lo[axis]);
    }
  }
  c.set(c.b.slice(x, lo, hi, by));
}

// One axis extended by copies of itself in another order.
Value* extend(Call& c, Value* x, int axis, const Dim& low, const Dim& high, const std::string& mode) {
  const Dim n = x->type.shape[static_cast<size_t>(axis)];
  std::vector<Value*> parts;
  auto run = [&](const Dim& first, const Dim& limit, int64_t step) {
    return c.b.slice_axis(x, axis, first, limit, step);
  };
  auto edge = [&](const Dim& at, const Dim& times) {
    Value* one = run(at, at + 1, 1);
    Shape shape = one->type.shape;
    shape[static_cast<size_t>(axis)] = times;
    return c.b.broadcast(one, shape);
  };
  if (low != Dim(0)) {
    if (mode == "edge")
      parts.push_back(edge(0, low));
    else if (mode == "reflect")
      parts.push_back(run(low, 0, -1));
    else
      parts.push_back(run(n - low, n, 1));
  }
  parts.push_back(x);
  if (high != Dim(0)) {
    if (mode == "edge")
      parts.push_back(edge(n - 1, high));
    else if (mode == "reflect")
      parts.push_back(run(n - 2, n - 2 - high, -1));
    else
      parts.push_back(run(0, high, 1));
  }
  return c.b.concat(parts, axis);
}

void pad(Call& c) {
  Value* x = c.input(0);
  size_t rank = x->type.shape.size();
  std::string mode = c.text("mode", "constant");
  std::vector<Dim> pads;
  double value = 0;
  std::vector<int64_t> axes;
  Value* border = nullptr;  // a value that is known at run time only
  if (c.opset() < 11) {
    for (int64_t p : c.ints(c.opset() < 2 ? "paddings" : "pads")) pads.push_back(p);
    value = c.real("value", 0);
  } else {
    // The other modes are made of slices, which need to know what there is.
    if (mode != "constant" && !c.sizes_of(c.input(1))) c.fail_unknown(1);
    pads = mode == "constant" && !c.sizes_of(c.input(1)) ? c.shape(1) : c.sizes(1);
    border = c.optional_input(2);
    if (border && constant_of(border)) {
      value = c.constant_real(2);
      border = nullptr;
    }
    if (c.optional_input(3)) axes = c.constants(3);
  }
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (pads.size() != 2 * axes.size()) c.fail("pads must have two entries per axis");
  std::vector<Dim> low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = static_cast<size_t>(c.wrap_axis(axes[i], static_cast<int64_t>(rank)));
    for (const Dim& p : {pads[i], pads[axes.size() + i]}) {
      c.require(!p.is_constant() || std::abs(p.value() / 2) < INT32_MAX, "a pad is out of range");
    }
    Dim before = pads[i], after = pads[axes.size() + i], start = 0, limit = x->type.shape[axis];
    if (auto v = before.constant(); v && *v < 0) {
      start = -before;
      before = 0;
    }
    if (auto v = after.constant(); v && *v < 0) {
      limit = limit + after;
      after = 0;
    }
    x = c.b.slice_axis(x, static_cast<int>(axis), start, limit);
    low[axis] = before;
    high[axis] = after;
  }
  if (mode == "constant") {
    Value* y = c.b.pad(x, low, high, value);
    if (border) {
      Value* inside = c.b.pad(c.b.full(x->type.shape, DType::boolean, 1), low, high, 0);
      y = c.b.select(inside, y, c.b.reshape(border, {}));
    }
    c.set(y);
    return;
  }
  if (mode != "edge" && mode != "reflect" && mode != "wrap") c.fail("mode '" + mode + "' is not supported");
  for (size_t axis = 0; axis < rank; ++axis) {
    if (low[axis] != Dim(0) || high[axis] != Dim(0))
      x = extend(c, x, static_cast<int>(axis), low[axis], high[axis], mode);
  }
  c.set(x);
}

void gather(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.gather(x, c.input(1), static_cast<int>(c.axis("axis", 0, x))));
}
void gather_elements(Call& c) {
  Value* x = c.input(0);
  c.set(c.b.node(Op::GatherElements, {x, c.input(1)}, {{"axis", c.axis("axis", 0, x)}}));
}

void range(Call& c) {
  DType t = c.input(0)->type.dtype;
  Value* start = c.b.reshape(c.input(0), {});
  Value* limit = c.b.reshape(c.input(1), {});
  Value* delta = c.b.reshape(c.input(2), {});
  auto known = [&](size_t i) -> std::optional<Dim> {
    auto sizes = c.sizes_of(c.input(i));
    return sizes && sizes->size() == 1 ? std::optional(sizes->front()) : std::nullopt;
  };
  const std::optional<Dim> from = known(0), to = known(1), by = known(2);
  std::optional<Dim> count;
  if (from && to && by && by->is_constant() && by->value() != 0) {
    c.require(std::abs(by->value() / 2) < (int64_t{1} << 40), "the step is out of range");
    count = maximum(by->value() > 0 ? ceil_div(*to - *from, *by) : ceil_div(*from - *to, -*by), 0);
  } else {
    // Steps of integers are exact as quotients of doubles up to 2^53.
    auto real = [&](Value* v) { return c.b.cast(v, DType::f64); };
    Value* steps = c.b.unary(Fn::Ceil, c.b.div(c.b.sub(real(limit), real(start)), real(delta)));
    Value* n = c.b.cast(c.b.binary(Fn::Max, steps, 0.0), DType::i64);
    fold_if_constant(c, n);
    count = constant_of(n) ? Dim(constant_of(n)->get_int(0)) : c.run_time_sizes(n, 0).front();
    c.require(!count->is_constant() || (count->value() >= 0 && count->value() < (int64_t{1} << 40)),
              "the range has no end");
  }
  Value* i = c.b.iota({*count}, 0, t);
  if (!by || *by != Dim(1)) i = c.b.mul(i, delta);
  c.set(from == Dim(0) ? i : c.b.add(i, start));
}

int64_t whole_number(Call& c, size_t i) {
  double v = c.constant_real(i);
  c.require(v >= 0 && v < 1e12, "a size is out of range");
  return static_cast<int64_t>(v);
}

void one_hot(Call& c) {
  Value* index = c.b.cast(c.input(0), DType::i64);
  const Dim depth = is_integer(c.input(1)->type.dtype) ? c.size(1) : Dim(whole_number(c, 1));
  c.require(!depth.is_constant() || depth.value() >= 0, "the depth is negative");
  Value* values = c.input(2);
  int64_t rank = index->type.rank() + 1, axis = c.wrap_axis(c.integer("axis", -1), rank);
  Value* off = c.b.reshape(c.b.slice_axis(values, 0, 0, 1), {});
  Value* on = c.b.reshape(c.b.slice_axis(values, 0, 1, 2), {});
  Value* wide = c.b.unsqueeze(index, {axis});
  Value* d = c.b.dim_value(depth);
  wide = c.b.select(c.b.binary(Fn::Lt, wide, c.b.scalar_int(DType::i64, 0)), c.b.add(wide, d), wide);
  Shape shape(static_cast<size_t>(rank), Dim(1));
  shape[static_cast<size_t>(axis)] = depth;
  c.set(c.b.select(c.b.binary(Fn::Eq, wide, c.b.iota(shape, static_cast<int>(axis), DType::i64)), on, off));
}

void trilu(Call& c) {
  Value* x = c.input(0);
  size_t rank = x->type.shape.size();
  if (rank < 2) c.fail("needs a matrix");
  int64_t k = c.optional_input(1) ? c.constant(1) : 0;
  Shape square{x->type.shape[rank - 2], x->type.shape[rank - 1]};
  Value* limit = c.b.add(c.b.iota(square, 0, DType::i64), c.b.scalar_int(DType::i64, k));
  Value* keep = c.b.binary(c.integer("upper", 1) ? Fn::Ge : Fn::Le, c.b.iota(square, 1, DType::i64), limit);
  c.set(c.b.select(keep, x, c.zero(x->type.dtype)));
}

void eye_like(Call& c) {
  Value* x = c.input(0);
  if (x->type.rank() != 2) c.fail("needs a matrix");
  DType t = c.attribute("dtype") ? dtype_of(c.integer("dtype", 1), c.describe()) : x->type.dtype;
  Value* limit = c.b.add(c.b.iota(x->type.shape, 0, DType::i64), c.b.scalar_int(DType::i64, c.integer("k", 0)));
  c.set(c.b.cast(c.b.binary(Fn::Eq, c.b.iota(x->type.shape, 1, DType::i64), limit), t));
}

int64_t block_size(Call& c, const Shape& shape) {
  int64_t r = c.integer("blocksize", 0);
  c.require(shape.size() == 4 && r >= 1 && r <= INT16_MAX, "needs an input of rank 4 and a positive blocksize");
  return r;
}

void depth_to_space(Call& c) {
  Value* x = c.input(0);
  const Shape& s = x->type.shape;
  int64_t r = block_size(c, s);
  Dim depth = floor_div(s[1], r * r);
  bool column = c.text("mode", "DCR") == "CRD";
  Shape split = column ? Shape{s[0], depth, r, r, s[2], s[3]} : Shape{s[0], r, r, depth, s[2], s[3]};
  std::vector<int64_t> perm = column ? std::vector<int64_t>{0, 1, 4, 2, 5, 3} : std::vector<int64_t>{0, 3, 4, 1, 5, 2};
  c.set(c.b.reshape(c.b.transpose(c.b.reshape(x, split), perm), {s[0], depth, s[2] * r, s[3] * r}));
}

void space_to_depth(Call& c) {
  Value* x = c.input(0);
  const Shape& s = x->type.shape;
  int64_t r = block_size(c, s);
  Dim h = floor_div(s[2], r), w = floor_div(s[3], r);
  bool column = c.text("mode", "DCR") == "CRD";
  std::vector<int64_t> perm = column ? std::vector<int64_t>{0, 1, 3, 5, 2, 4} : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
  Value* y = c.b.transpose(c.b.reshape(x, {s[0], s[1], h, r, w, r}), perm);
  c.set(c.b.reshape(y, {s[0], s[1] * (r * r), h, w}));
}

}  // namespace

std::vector<Row> shape_rows() {
  return {
      {"Concat", concat},
      {"Constant", constant},
      {"ConstantOfShape", constant_of_shape},
      {"DepthToSpace", depth_to_space},
      {"Expand", expand},
      {"EyeLike", eye_like},
      {"Flatten", flatten},
      {"Gather", gather},
      {"GatherElements", gather_elements},
      {"OneHot", one_hot},
      {"Pad", pad},
      {"Range", range},
      {"Reshape", reshape},
      {"Shape", shape},
      {"Size", size},
      {"Slice", slice},
      {"SpaceToDepth", space_to_depth},
      {"Split", split},
      {"Squeeze", squeeze},
      {"Tile", tile},
      {"Transpose", transpose},
      {"Trilu", trilu},
      {"Unsqueeze", unsqueeze},
  };
}

}  // namespace cuvil::onnx
