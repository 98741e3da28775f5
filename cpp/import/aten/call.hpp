// One call of an ATen operator, as the functions that lower operators see it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "import/aten/graph.hpp"
#include "ir/builder.hpp"

namespace cuvil::aten {

using Values = std::map<std::string, std::vector<Value*>>;

class Call {
 public:
  Call(Builder& builder, const Node& node, const Values& values, const std::map<std::string, Dim>& symbols,
       const std::set<size_t>& used_outputs)
      : b(builder), node_(node), values_(values), symbols_(symbols), used_outputs_(used_outputs) {}

  Builder& b;

  const Node& node() const { return node_; }
  /// Argument by position or, failing that, by name; null if absent or None.
  const Argument* argument(size_t position, const char* name = nullptr) const;
  bool has(size_t position, const char* name = nullptr) const { return argument(position, name) != nullptr; }

  Value* tensor(size_t position, const char* name = nullptr) const;
  Value* optional_tensor(size_t position, const char* name = nullptr) const;
  std::vector<Value*> tensors(size_t position) const;
  /// Item of a list of tensors.
  Value* list_tensor(size_t position, size_t item) const;
  bool is_tensor(size_t position) const;
  int64_t integer(size_t position, const char* name = nullptr, std::optional<int64_t> fallback = std::nullopt) const;
  double real(size_t position, const char* name = nullptr, std::optional<double> fallback = std::nullopt) const;
  bool boolean(size_t position, const char* name = nullptr, bool fallback = false) const;
  std::string text(size_t position, const char* name, const char* fallback) const;
  /// Integers that must be known; a single one is repeated `repeat` times if that is given.
  std::vector<int64_t> ints(size_t position, const char* name = nullptr, size_t repeat = 0) const;
  std::optional<std::vector<int64_t>> optional_ints(size_t position, const char* name = nullptr) const;
  /// Sizes: integers or expressions over symbols.
  Dim size(size_t position, const char* name = nullptr) const;
  std::optional<Dim> optional_size(size_t position, const char* name = nullptr) const;
  std::vector<Dim> sizes(size_t position) const;
  /// An axis of a value of that rank, wrapped to be non-negative.
  int axis(size_t position, const char* name, const Value* of, std::optional<int64_t> fallback = std::nullopt) const;

  /// Whether anybody reads this output of an operator that has several.
  bool is_used(size_t output) const { return used_outputs_.count(output) != 0; }
  DType result_dtype(size_t output = 0) const;
  Shape result_shape(size_t output = 0) const;
  Dim parse_size(const std::string& text) const;

  /// The operand in a dtype: a tensor is cast, a Python number becomes a rank-0 constant.
  Value* operand(size_t position, DType dtype, const char* name = nullptr) const;
  /// The dtype in which PyTorch computes an op on these arguments (tensors by their promotion rules, numbers weakly).
  DType promoted(const std::vector<size_t>& positions) const;
  /// The dtype in which PyTorch computes an operator with this result: f32 for half types.
  DType work_dtype() const;
  /// The operand in work_dtype(); null if it is absent.
  Value* wide(size_t position, const char* name = nullptr) const;
  /// A rank-0 constant of any dtype.
  Value* number(DType dtype, double value) const;
  /// -∞, or the smallest number of an integer dtype.
  Value* lowest(DType dtype) const;

  void set(Value* v) { results.push_back(v); }
  /// An output nobody may use.
  void skip() { results.push_back(nullptr); }
  std::vector<Value*> results;

  [[noreturn]] void fail(const std::string& why) const;

 private:
  Value* value_of(const Argument& a) const;
  int64_t integer_of(const Argument& a) const;
  Dim size_of_argument(const Argument& a) const;

  const Node& node_;
  const Values& values_;
  const std::map<std::string, Dim>& symbols_;
  const std::set<size_t>& used_outputs_;
};

/// Max pooling with both results, values and positions in the plane (ops_pooling.cpp).
void max_pool_with_indices(Call& c, Value* x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides,
                           const std::vector<int64_t>& pads, const std::vector<int64_t>& dilations);

DType dtype_of(const std::string& torch_name);
DType promote(DType a, DType b);

using Lowering = void (*)(Call&);
struct Row {
  const char* target;
  Lowering lower;
};

/// The rows of each family; together they are the table of supported operators.
std::vector<Row> pointwise_rows();
std::vector<Row> shape_rows();
std::vector<Row> reduction_rows();
std::vector<Row> scatter_rows();
std::vector<Row> order_rows();
std::vector<Row> network_rows();
std::vector<Row> data_size_rows();
std::vector<Row> creation_rows();
std::vector<Row> special_rows();
std::vector<Row> pooling_rows();
std::vector<Row> view_rows();
std::vector<Row> resize_rows();
std::vector<Row> distance_rows();
std::vector<Row> segment_rows();

}  // namespace cuvil::aten
