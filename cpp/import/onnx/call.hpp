// One node of an ONNX graph, as the functions that lower operators see it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "import/onnx/model.hpp"
#include "ir/builder.hpp"

namespace cuvil::onnx {

/// Small integer tensors (rank 0 or 1) whose elements are known as sizes, by value: what computes shapes.
using KnownSizes = std::map<const Value*, std::vector<Dim>>;

class Call {
 public:
  Call(Builder& builder, const NodeProto& node, std::vector<Value*> inputs, int64_t opset, const Source& source,
       KnownSizes& known)
      : b(builder), node_(node), inputs_(std::move(inputs)), opset_(opset), source_(source), known_(known) {}

  Builder& b;

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
  Tensor tensor(std::string_view name) const;
  /// Wrapped to be non-negative.
  int64_t axis(std::string_view name, int64_t fallback, const Value* of) const;
  int64_t wrap_axis(int64_t axis, int64_t rank) const;

  /// The elements of an integer input as sizes, if they are known.
  std::optional<std::vector<Dim>> sizes_of(const Value* v) const;
  std::vector<Dim> sizes(size_t i) const;
  /// The same as a shape: no negative constants.
  Shape shape(size_t i) const;
  /// The only element of an integer input.
  Dim size(size_t i) const;
  std::vector<int64_t> constants(size_t i) const;
  int64_t constant(size_t i) const;
  double constant_real(size_t i) const;
  /// A vector (or rank-0) of known sizes.
  Value* from_sizes(std::vector<Dim> sizes, bool scalar = false, DType dtype = DType::i64);

  Value* zero(DType t) { return is_float(t) ? b.scalar(t, 0) : b.scalar_int(t, 0); }
  Value* number(DType t, double v) { return is_float(t) ? b.scalar(t, v) : b.scalar_int(t, static_cast<int64_t>(v)); }

  void set(Value* v) { results.push_back(v); }
  std::vector<Value*> results;

  [[noreturn]] void fail(const std::string& why) const;
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

/// Replaces small results that depend on constants only, so that whoever needs their values finds constants.
void fold_small_results(Call& call);
/// Keeps known sizes through an op on shapes (Gather, Concat, Add, …), if all its inputs are known.
void propagate_sizes(Call& call);

}  // namespace cuvil::onnx
