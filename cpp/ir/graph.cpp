#include "ir/graph.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "ir/infer.hpp"
#include "support/error.hpp"

namespace cuvil {

void throw_missing_attribute(const Node& node, std::string_view name) {
  throw InternalError(std::string(info(node.op).name) + " (" + node.source + ") has no attribute '" +
                      std::string(name) + "' of the asked type");
}

Value* Graph::add_input(std::string name, Type type) {
  inputs_.push_back(std::make_unique<Value>());
  inputs_.back()->name = std::move(name);
  inputs_.back()->type = std::move(type);
  return inputs_.back().get();
}

Node* Graph::add_node(Op op, std::vector<Value*> operands, Attributes attributes, std::string source, Node* position) {
  auto node = std::make_unique<Node>();
  node->op = op;
  node->operands = std::move(operands);
  node->attributes = std::move(attributes);
  node->source = std::move(source);
  Type type = infer_type(*node);
  node->result = std::make_unique<Value>();
  node->result->type = std::move(type);
  node->result->producer = node.get();
  Node* raw = node.get();
  for (Value* operand : raw->operands) operand->uses.push_back(raw);
  raw->place = nodes_.insert(position ? position->place : nodes_.end(), std::move(node));
  return raw;
}

void Graph::add_output(std::string name, Value* value) {
  outputs_.push_back({std::move(name), value});
}

void Graph::replace_all_uses(Value* from, Value* to) {
  if (from == to) return;
  for (Node* user : std::exchange(from->uses, {})) {
    std::replace(user->operands.begin(), user->operands.end(), from, to);
    to->uses.push_back(user);
  }
  for (Output& output : outputs_) {
    if (output.value == from) output.value = to;
  }
}

void Graph::set_operand(Node* node, size_t index, Value* value) {
  std::vector<Node*>& uses = node->operands[index]->uses;
  uses.erase(std::find(uses.begin(), uses.end(), node));
  node->operands[index] = value;
  value->uses.push_back(node);
}

void Graph::erase(Node* node) {
  CUVIL_CHECK(node->result->uses.empty(), "an erased node has users");
  for (Value* operand : node->operands) {
    operand->uses.erase(std::find(operand->uses.begin(), operand->uses.end(), node));
  }
  nodes_.erase(node->place);
}

int Graph::erase_dead_nodes() {
  std::set<const Value*> live;
  for (const Output& output : outputs_) live.insert(output.value);
  int erased = 0;
  for (auto it = nodes_.end(); it != nodes_.begin();) {
    --it;
    if (live.count((*it)->result.get())) {
      live.insert((*it)->operands.begin(), (*it)->operands.end());
    } else {
      it = nodes_.erase(it);
      ++erased;
    }
  }
  if (erased == 0) return 0;
  for (const auto& input : inputs_) input->uses.clear();
  for (const auto& node : nodes_) node->result->uses.clear();
  for (const auto& node : nodes_) {
    for (Value* operand : node->operands) operand->uses.push_back(node.get());
  }
  return erased;
}

Graph::Users Graph::users() const {
  Users users;
  for (const auto& node : nodes_) {
    for (const Value* operand : node->operands) {
      auto& list = users[operand];
      if (list.empty() || list.back() != node.get()) list.push_back(node.get());
    }
  }
  return users;
}

bool Graph::is_output(const Value* value) const {
  return std::any_of(outputs_.begin(), outputs_.end(), [&](const Output& o) { return o.value == value; });
}

Graph Graph::clone() const {
  Graph copy;
  copy.name = name;
  std::map<const Value*, Value*> to;
  for (const auto& input : inputs_) to[input.get()] = copy.add_input(input->name, input->type);
  for (const auto& node : nodes_) {
    std::vector<Value*> operands;
    for (const Value* operand : node->operands) operands.push_back(to.at(operand));
    Node* n = copy.add_node(node->op, std::move(operands), node->attributes, node->source);
    n->result->name = node->result->name;
    to[node->result.get()] = n->result.get();
  }
  for (const Output& output : outputs_) copy.add_output(output.name, to.at(output.value));
  return copy;
}

void visit_dims(const Node& node, const std::function<void(const Dim&)>& f) {
  for (const Dim& d : node.type().shape) f(d);
  for (const auto& [name, attribute] : node.attributes) {
    if (const auto* dims = std::get_if<std::vector<Dim>>(&attribute)) {
      for (const Dim& d : *dims) f(d);
    } else if (const Dim* dim = std::get_if<Dim>(&attribute)) {
      f(*dim);
    }
  }
}

const Tensor* constant_of(const Value* value) {
  return is_op(value, Op::Constant) ? &value->producer->tensor() : nullptr;
}

}  // namespace cuvil
