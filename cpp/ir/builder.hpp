// Builder: adds primitive nodes to a Graph with short calls, and the compositions of primitives that importers share.
//
// Cheap identities are not added at all (a transpose by the identity, a reshape to the same shape, a cast to the same
// dtype).
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace cuvil {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  Graph& graph() { return graph_; }
  /// Source text given to the nodes added from now on.
  void set_source(std::string source) { source_ = std::move(source); }
  const std::string& source() const { return source_; }
  /// Nodes are inserted before this node; null appends.
  void set_position(Node* node) { position_ = node; }

  Value* node(Op op, std::vector<Value*> operands, Attributes attributes = {});

  // Leaves
  Value* constant(Tensor tensor);
  Value* scalar(DType dtype, double value);
  Value* scalar_int(DType dtype, int64_t value);
  Value* dim_value(Dim value);
  Value* iota(Shape shape, int axis, DType dtype);
  /// A tensor of one value, as a broadcast scalar.
  Value* full(Shape shape, DType dtype, double value);

  // Pointwise; operands broadcast. Mixed dtypes are the importer's business (cast first).
  Value* unary(Fn fn, Value* x);
  Value* binary(Fn fn, Value* a, Value* b);
  /// With a scalar of a's dtype.
  Value* binary(Fn fn, Value* a, double b);
  Value* select(Value* condition, Value* a, Value* b);
  /// Conversions of narrow types are compositions: encode_narrow without saturation, decode_narrow.
  Value* cast(Value* x, DType dtype);
  Value* bitcast(Value* x, DType dtype);
  Value* add(Value* a, Value* b) { return binary(Fn::Add, a, b); }
  Value* sub(Value* a, Value* b) { return binary(Fn::Sub, a, b); }
  Value* mul(Value* a, Value* b) { return binary(Fn::Mul, a, b); }
  Value* div(Value* a, Value* b) { return binary(Fn::Div, a, b); }

  /// The same values, so that they broadcast for any sizes with which they do at run time: where two sizes are neither
  /// known to be equal nor known to be 1, elements are gathered, and the sizes checked.
  std::vector<Value*> broadcastable(std::vector<Value*> xs);

  // Index-like. Axes may be negative.
  Value* reshape(Value* x, Shape shape);
  /// A reshape whose sizes are only known to fit at run time.
  Value* reshape_checked(Value* x, Shape shape);
  Value* transpose(Value* x, std::vector<int64_t> perm);
  Value* broadcast(Value* x, Shape shape);
  Value* slice(Value* x, std::vector<Dim> starts, std::vector<Dim> limits, std::vector<int64_t> steps);
  Value* slice_axis(Value* x, int axis, Dim start, Dim limit, int64_t step = 1);
  /// Of narrow types, `value` is the border's bits.
  Value* pad(Value* x, std::vector<Dim> low, std::vector<Dim> high, double value);
  Value* concat(std::vector<Value*> xs, int axis);
  Value* gather(Value* x, Value* index, int axis);
  /// Like gather, but element by element: index has x's rank.
  Value* gather_elements(Value* x, Value* index, int axis);
  Value* squeeze(Value* x, std::vector<int64_t> axes);
  Value* unsqueeze(Value* x, std::vector<int64_t> axes);  // axes of the result

  // Folds
  Value* reduce(ReduceFn fn, Value* x, std::vector<int64_t> axes, bool keepdims);
  Value* mean(Value* x, std::vector<int64_t> axes, bool keepdims);
  Value* matmul(Value* a, Value* b);
  /// Symmetric padding is `pads` = {low…, high…} per spatial axis, added as a Pad op of zeros.
  Value* conv(Value* x, Value* weight, std::vector<int64_t> strides, std::vector<int64_t> pads,
              std::vector<int64_t> dilations, int64_t groups);
  Value* window_reduce(ReduceFn fn, Value* x, std::vector<int64_t> window, std::vector<int64_t> strides,
                       std::vector<int64_t> dilations);

  // Scatters and sorts. Without fn, updates replace elements.
  Value* scatter(Value* x, Value* index, Value* updates, int axis, std::optional<ReduceFn> fn = std::nullopt);
  Value* scatter_elements(Value* x, Value* index, Value* updates, int axis, std::optional<ReduceFn> fn = std::nullopt);
  /// Positions of the first `count` elements in sorted order.
  Value* sort_indices(Value* x, int axis, Dim count, bool descending);
  struct Sorted {
    Value *values, *indices;
  };
  /// The first `count` elements in sorted order, and where they were.
  Sorted sort(Value* x, int axis, const Dim& count, bool descending);

  // Compositions shared by importers (ir/compositions.cpp, ir/conv_transpose.cpp)
  /// Transposed convolution of x, [n, c, s…], by a weight [c, oc/groups, k…]. On each axis the result's first `low`
  /// elements are cut off, then it has `sizes` of them; beyond what the convolution reaches they are 0.
  Value* conv_transpose(Value* x, Value* weight, const std::vector<int64_t>& strides, const std::vector<int64_t>& low,
                        const std::vector<Dim>& sizes, const std::vector<int64_t>& dilations, int64_t groups);
  Value* relu(Value* x);
  /// log(1 + exp(x)) without overflow.
  Value* softplus(Value* x);
  /// NumPy's matmul: a vector becomes a matrix for the product and loses the axis after it.
  Value* product(Value* a, Value* b);
  Value* transpose_last(Value* x);
  /// A vector over the channels of an [n, c, s…] tensor of this rank, shaped to broadcast against it.
  Value* per_channel(Value* v, size_t rank);
  /// max(min(x, hi), lo), keeping NaN
  Value* clamp(Value* x, double lo, double hi);
  Value* gelu(Value* x, bool tanh_approximation);
  Value* softmax(Value* x, int axis, bool logarithm);
  /// (x - mean) / sqrt(var + eps) over the trailing axes from `axis`; scale and bias may be null.
  Value* layer_norm(Value* x, int axis, Value* scale, Value* bias, double epsilon);
  /// Inference form over axis 1; any of scale, bias may be null.
  Value* batch_norm(Value* x, Value* scale, Value* bias, Value* mean, Value* variance, double epsilon);
  Value* group_norm(Value* x, int64_t groups, Value* scale, Value* bias, double epsilon);
  /// Max over windows with -inf (lowest integer) padding; pads = {low…, high…}; ceil_mode adds what the last window
  /// needs.
  Value* max_pool(Value* x, std::vector<int64_t> window, std::vector<int64_t> strides, std::vector<int64_t> pads,
                  std::vector<int64_t> dilations, bool ceil_mode);
  /// Where max_pool's results come from, i64: the position on each spatial axis. `like` is its result.
  std::vector<Value*> max_pool_positions(Value* x, const Value* like, const std::vector<int64_t>& window,
                                         const std::vector<int64_t>& strides, const std::vector<int64_t>& pads,
                                         const std::vector<int64_t>& dilations);
  /// count_include_pad as in PyTorch and ONNX.
  Value* avg_pool(Value* x, std::vector<int64_t> window, std::vector<int64_t> strides, std::vector<int64_t> pads,
                  bool ceil_mode, bool count_include_pad, int64_t divisor_override = 0,
                  std::vector<int64_t> dilations = {});
  /// Positions on the axes [first, first + parts) as one position on all of them, row-major. Each part is checked
  /// against its own axis, negative ones count from its end. The parts broadcast.
  Value* joint_index(const Shape& shape, size_t first, const std::vector<Value*>& parts);
  /// x[…, parts…, …]: gathers from the axes [first, first + parts), whose place the parts' axes take.
  Value* gather_joint(Value* x, size_t first, const std::vector<Value*>& parts);
  /// The opposite: updates have the shape of gather_joint's result.
  Value* scatter_joint(Value* x, size_t first, const std::vector<Value*>& parts, Value* updates,
                       std::optional<ReduceFn> fn = std::nullopt);
  /// softmax(q kᵀ · scale + mask) v on […, s, d]; mask may be null, boolean (true = keep) or additive; causal: top-left
  /// aligned.
  Value* attention(Value* q, Value* k, Value* v, Value* mask, bool causal, double scale);

 private:
  Graph& graph_;
  std::string source_;
  Node* position_ = nullptr;
};

}  // namespace cuvil
