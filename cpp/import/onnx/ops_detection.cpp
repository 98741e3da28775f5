// Non-maximum suppression.
#include "import/onnx/control.hpp"

namespace cuvil::onnx {

namespace {

struct Corners {
  Value *top, *left, *bottom, *right;  // each [b, 1, n]
};

Corners corners_of(Call& c, Value* boxes) {
  Builder& b = c.b;
  const Shape& s = boxes->type.shape;
  auto column = [&](int64_t i) { return b.reshape(b.slice_axis(boxes, 2, i, i + 1), {s[0], 1, s[1]}); };
  if (c.integer("center_point_box", 0)) {
    Value *x = column(0), *y = column(1);
    Value *w = b.binary(Fn::Mul, column(2), 0.5), *h = b.binary(Fn::Mul, column(3), 0.5);
    return {b.sub(y, h), b.sub(x, w), b.add(y, h), b.add(x, w)};
  }
  // Either pair of opposite corners may be given.
  Value *y1 = column(0), *x1 = column(1), *y2 = column(2), *x2 = column(3);
  return {b.binary(Fn::Min, y1, y2), b.binary(Fn::Min, x1, x2), b.binary(Fn::Max, y1, y2), b.binary(Fn::Max, x1, x2)};
}

void non_max_suppression(Call& c) {
  Builder& b = c.b;
  Value *boxes = c.input(0), *scores = c.input(1);
  c.require(boxes->type.rank() == 3 && scores->type.rank() == 3, "boxes and scores must have rank 3");
  const Dim batch = scores->type.shape[0], classes = scores->type.shape[1], n = scores->type.shape[2];
  const Shape all = {batch, classes, n};
  const DType t = boxes->type.dtype;
  auto number = [&](size_t i, DType type) -> Value* {
    Value* v = c.optional_input(i);
    return v ? b.cast(b.reshape(v, {}), type) : nullptr;
  };
  Value* most = number(2, DType::i64);
  if (!most) most = b.scalar_int(DType::i64, 0);
  Value* overlap = number(3, t);
  if (!overlap) overlap = b.scalar(t, 0);
  // Everything is put in the order of falling scores, per class.
  Builder::Sorted sorted = b.sort(scores, 2, n, true);
  Corners k = corners_of(c, boxes);
  auto in_order = [&](Value* v) { return b.gather_elements(b.broadcast(v, all), sorted.indices, 2); };
  k = {in_order(k.top), in_order(k.left), in_order(k.bottom), in_order(k.right)};
  Value* area = b.mul(b.sub(k.bottom, k.top), b.sub(k.right, k.left));
  Value* keep = b.full(all, DType::boolean, 1);
  if (Value* least = number(4, scores->type.dtype)) keep = b.binary(Fn::Gt, sorted.values, least);
  auto step = [&](Builder& r, const std::vector<Value*>& inputs) {
    Value* i = inputs[0];
    Value* kept = inputs[2];
    auto here = [&](Value* v) { return r.unsqueeze(r.gather(v, i, 2), {2}); };
    auto use = [&](Value* v) { return c.around.capture(v); };
    auto zero = [&] { return r.scalar(t, 0); };
    auto side = [&](Value* low, Value* high) {
      Value* end = r.binary(Fn::Min, use(high), here(use(high)));
      Value* start = r.binary(Fn::Max, use(low), here(use(low)));
      return r.binary(Fn::Max, r.sub(end, start), zero());
    };
    Value* both = r.mul(side(k.top, k.bottom), side(k.left, k.right));
    Value* either = r.sub(r.add(use(area), here(use(area))), both);
    Value* near = r.binary(Fn::Gt, both, r.mul(use(overlap), either));
    Value* later = r.binary(Fn::Gt, r.iota({n}, 0, DType::i64), i);
    Value* lost = r.binary(Fn::And, r.binary(Fn::And, near, later), here(kept));
    return std::vector<Value*>{r.scalar_int(DType::boolean, 1), r.binary(Fn::And, kept, r.unary(Fn::Not, lost))};
  };
  keep = add_loop(c, loop_over(c, n, {keep}), step)[0];
  Value* rank = b.node(Op::Scan, {b.cast(keep, DType::i64)},
                       {{"fn", ReduceFn::Sum}, {"axis", int64_t{2}}, {"exclusive", false}, {"reverse", false}});
  keep = b.binary(Fn::And, keep, b.binary(Fn::Le, rank, most));
  Value* found = positions_of_true(c, b.reshape(keep, {batch * classes * n}));
  const Dim count = found->type.shape[0];
  Value* row = b.div(found, b.dim_value(maximum(n, 1)));
  Value* box = b.gather(b.reshape(sorted.indices, {batch * classes * n}), found, 0);
  auto column = [&](Value* v) { return b.reshape(v, {count, 1}); };
  c.set(b.concat({column(b.div(row, b.dim_value(maximum(classes, 1)))),
                  column(b.binary(Fn::Mod, row, b.dim_value(maximum(classes, 1)))), column(box)},
                 1));
}

// The first `lengths[b]` elements of each row in reverse order.
void reverse_sequence(Call& c) {
  Builder& b = c.b;
  Value *x = c.input(0), *lengths = b.cast(c.input(1), DType::i64);
  const int64_t time = c.axis("time_axis", 0, x), batch = c.axis("batch_axis", 1, x);
  c.require(time != batch && lengths->type.rank() == 1, "needs two axes and one length per row");
  Shape row(x->type.shape.size(), Dim(1));
  row[static_cast<size_t>(batch)] = lengths->type.shape[0];
  Value* length = b.reshape(lengths, row);
  Shape along(x->type.shape.size(), Dim(1));
  along[static_cast<size_t>(time)] = x->type.shape[static_cast<size_t>(time)];
  Value* i = b.iota(along, static_cast<int>(time), DType::i64);
  Value* mirrored = b.sub(b.sub(length, i), b.scalar_int(DType::i64, 1));
  Value* at = b.select(b.binary(Fn::Lt, i, length), mirrored, i);
  c.set(b.gather_elements(x, b.broadcast(at, x->type.shape), static_cast<int>(time)));
}

}  // namespace

std::vector<Row> detection_rows() {
  return {{"NonMaxSuppression", non_max_suppression}, {"ReverseSequence", reverse_sequence}};
}

}  // namespace cuvil::onnx
