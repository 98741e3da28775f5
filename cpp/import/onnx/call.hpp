// One node of an ONNX graph, as the functions that lower operators see it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "import/common/control_flow.hpp"
#include "import/onnx/model.hpp"
#include "ir/builder.hpp"

namespace cuvil::onnx {

/// Small integer tensors (rank 0 or 1) whose elements are known as sizes, by value: what computes shapes.
using KnownSizes = std::map<const Value*, std::vector<Dim>>;

/// A vector (or rank-0) of known sizes, and remembers that they are known.
Value* value_of_sizes(Builder& b, KnownSizes& known, std::vector<Dim> sizes, bool scalar, DType dtype);

/// What lowering a node needs of the importer around it.
class Surroundings {
 public:
  using Fill = std::function<std::vector<Value*>(Builder&, const std::vector<Value*>& inputs)>;

  virtual ~Surroundings() = default;
  /// A new symbol with this lower bound.
  virtual Dim new_symbol(int64_t least) = 0;
  /// Adds a graph's nodes here, as if they stood in place of the node; its outputs. `inputs` are its inputs' values.
  virtual std::vector<Value*> inline_graph(const GraphProto& graph, const std::vector<Value*>& inputs) = 0;
  /// A region whose inputs have these types, and whose outputs are what `fill` returns; in it, inline_graph and capture
  /// act on the region. The values of this graph that it uses are appended to `captured`, whose elements are its inputs
  /// after those.
  virtual BuiltRegion make_region(const std::vector<Type>& inputs, std::vector<Value*>& captured, const Fill& fill) = 0;
  /// For a value that must be known and is not: throws ValuesNeeded if the model's small inputs decide it.
  virtual void need_value(const Value* v, const std::string& why) = 0;
  /// In `fill`: the region's own value for one of the graph around it.
  virtual Value* capture(Value* outer) = 0;
};

class Call {
 public:
  Call(Builder& builder, const NodeProto& node, std::vector<Value*> inputs, int64_t opset, const Source& source,
       KnownSizes& known, Surroundings& surroundings)
      : b(builder),
        around(surroundings),
        node_(node),
        inputs_(std::move(inputs)),
        opset_(opset),
        source_(source),
        known_(known) {}

  Builder& b;
  Surroundings& around;

  const NodeProto& node() const { return node_; }
  int64_t opset() const { return opset_; }
  size_t input_count() const { return inputs_.size(); }
  Value* input(size_t i) const;
  Value* optional_input(size_t i) const { return i < inputs_.size() ? inputs_[i] : nullptr; }
  const std::vector<Value*>& inputs() const { return inputs_; }

  /// Null where the node does not have it. With a type: of that type, else the file is malformed.
  const AttributeProto* attribute(std::string_view name) const;
  const AttributeProto* attribute(std::string_view name, AttributeProto::Type type) const;
  int64_t integer(std::string_view name, int64_t fallback) const;
  double real(std::string_view name, double fallback) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> ints(std::string_view name, std::vector<int64_t> fallback = {}) const;
  /// Empty where the node does not have it.
  std::vector<double> reals(std::string_view name) const;
  Tensor tensor(std::string_view name) const;
  GraphProto graph(std::string_view name) const;
  /// Wrapped to be non-negative.
  int64_t axis(std::string_view name, int64_t fallback, const Value* of) const;
  int64_t wrap_axis(int64_t axis, int64_t rank) const;

  /// The elements of an integer input as sizes, if they are known.
  std::optional<std::vector<Dim>> sizes_of(const Value* v) const;
  /// The same of an input; what is not known becomes symbols whose values are found at run time.
  std::vector<Dim> sizes(size_t i);
  /// The same as a shape: none is negative.
  Shape shape(size_t i);
  /// The only element of an integer input.
  Dim size(size_t i);
  /// New symbols, no less than `least`, for the elements of an integer vector (or scalar) of static length.
  std::vector<Dim> run_time_sizes(Value* v, int64_t least);
  std::vector<int64_t> constants(size_t i) const;
  int64_t constant(size_t i) const;
  double constant_real(size_t i) const;
  bool constant_flag(size_t i) const;
  /// A vector (or rank-0) of known sizes.
  Value* from_sizes(std::vector<Dim> sizes, bool scalar = false, DType dtype = DType::i64) {
    return value_of_sizes(b, known_, std::move(sizes), scalar, dtype);
  }

  Value* zero(DType t) { return is_float(t) ? b.scalar(t, 0) : b.scalar_int(t, 0); }
  Value* number(DType t, double v) { return is_float(t) ? b.scalar(t, v) : b.scalar_int(t, static_cast<int64_t>(v)); }

  void set(Value* v) { results.push_back(v); }
  std::vector<Value*> results;

  [[noreturn]] void fail(const std::string& why) const;
  /// Input i must be known at compile time, and is not.
  [[noreturn]] void fail_unknown(size_t i) const;
  void require(bool ok, const char* why) const {
    if (!ok) fail(why);
  }
  std::string describe() const;

 private:
  const NodeProto& node_;
  std::vector<Value*> inputs_;
  int64_t opset_;
  const Source& source_;
  KnownSizes& known_;
};

using Lowering = void (*)(Call&);
struct Row {
  const char* op;
  Lowering lower;
};

/// The rows of each family; together they are the table of supported operators of the default domain.
std::vector<Row> pointwise_rows();
std::vector<Row> shape_rows();
std::vector<Row> reduction_rows();
std::vector<Row> order_rows();
std::vector<Row> network_rows();
std::vector<Row> quantization_rows();
std::vector<Row> control_rows();
std::vector<Row> conversion_rows();
std::vector<Row> recurrent_rows();
std::vector<Row> attention_rows();
std::vector<Row> image_rows();
std::vector<Row> training_rows();
std::vector<Row> signal_rows();
std::vector<Row> random_rows();
std::vector<Row> einsum_rows();
std::vector<Row> detection_rows();
std::vector<Row> microsoft_rows();
std::vector<Row> ml_rows();

/// Positions of the elements of a boolean vector that are true; their number is found at run time.
Value* positions_of_true(Call& call, Value* mask);
/// A constant in the value's place if it depends on constants only and is small.
void fold_if_constant(Call& call, Value*& v);
/// Replaces small results that depend on constants only, so that whoever needs their values finds constants.
void fold_small_results(Call& call);
/// Keeps known sizes through an op on shapes (Gather, Concat, Add, …), if all its inputs are known.
void propagate_sizes(Call& call);

}  // namespace cuvil::onnx
