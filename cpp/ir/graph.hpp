// Graph: typed SSA over tensors, the form in which models are imported and transformed.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ir/ops.hpp"
#include "ir/tensor.hpp"
#include "ir/type.hpp"

namespace cuvil {

struct Node;
[[noreturn]] void throw_missing_attribute(const Node& node, std::string_view name);

class Graph;
/// A region of control flow. Its values are its own: what it uses of the graph around it is passed to it.
using Region = std::shared_ptr<const Graph>;

using Attribute = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<Dim>, Dim, DType,
                               Fn, ReduceFn, Tensor, Region>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

/// One tensor: a graph input (no producer) or the result of a node. Identity is the address.
struct Value {
  Type type;
  Node* producer = nullptr;  // null for a graph input
  std::string name;          // for text and messages; unique names are made when printing
  std::vector<Node*> uses;   // once per operand that it is; kept by the Graph
};

struct Node {
  Op op = Op::Constant;
  std::vector<Value*> operands;
  std::unique_ptr<Value> result;  // every primitive has one result
  Attributes attributes;
  std::list<std::unique_ptr<Node>>::iterator place;  // in its graph
  std::string source;  // the node of the user's model this came from, for messages: "layer1.0.conv1 (aten.convolution)"

  template <typename T>
  const T& get(std::string_view name) const;
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  const std::vector<int64_t>& ints(std::string_view name) const { return get<std::vector<int64_t>>(name); }
  const std::vector<Dim>& dims(std::string_view name) const { return get<std::vector<Dim>>(name); }
  Fn fn() const { return get<Fn>("fn"); }
  ReduceFn reduce_fn() const { return get<ReduceFn>("fn"); }
  const Tensor& tensor() const { return get<Tensor>("value"); }
  const Graph& region(std::string_view name) const { return *get<Region>(name); }
  Value* operand(size_t i) const { return operands.at(i); }
  const Type& type() const { return result->type; }
};

class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  std::string name = "main";

  Value* add_input(std::string name, Type type);
  /// Appends a node, or inserts it before `position` if given. The result type is inferred (ir/infer.hpp).
  Node* add_node(Op op, std::vector<Value*> operands, Attributes attributes, std::string source = {},
                 Node* position = nullptr);
  void add_output(std::string name, Value* value);

  const std::vector<std::unique_ptr<Value>>& inputs() const { return inputs_; }
  struct Output {
    std::string name;
    Value* value = nullptr;
  };
  std::vector<Output>& outputs() { return outputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }

  /// Nodes in a topological order: operands come before their users.
  const std::list<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  void replace_all_uses(Value* from, Value* to);
  void set_operand(Node* node, size_t index, Value* value);
  /// The node must have no users left.
  void erase(Node* node);
  /// Erases every node whose result is not needed for an output; returns how many.
  int erase_dead_nodes();

  using Users = std::map<const Value*, std::vector<Node*>>;
  /// For each value the nodes that use it (once per node), in graph order. Outputs are not nodes: see is_output.
  Users users() const;
  bool is_output(const Value* value) const;

  Graph clone() const;

 private:
  std::vector<std::unique_ptr<Value>> inputs_;
  std::list<std::unique_ptr<Node>> nodes_;
  std::vector<Output> outputs_;
};

/// Calls f on every Dim of the node's type and attributes (not on those in its regions).
void visit_dims(const Node& node, const std::function<void(const Dim&)>& f);

const Tensor* constant_of(const Value* value);  // null unless produced by a Constant
inline bool is_op(const Value* value, Op op) {
  return value->producer && value->producer->op == op;
}

template <typename T>
const T& Node::get(std::string_view name) const {
  auto it = attributes.find(name);
  if (it == attributes.end() || !std::holds_alternative<T>(it->second)) {
    throw_missing_attribute(*this, name);
  }
  return std::get<T>(it->second);
}

}  // namespace cuvil
