#include "ir/verify.hpp"

#include <set>

#include "ir/attribute_spec.hpp"
#include "ir/infer.hpp"
#include "support/error.hpp"

namespace cuvil {

void verify(const Graph& graph, const char* after) {
  auto fail = [&](const Node* node, const std::string& why) {
    std::string where = node ? std::string(info(node->op).name) + " (" + node->source + "): " : "";
    throw InternalError("the graph is broken after " + std::string(after) + ": " + where + why);
  };
  std::set<const Value*> defined;
  for (const auto& input : graph.inputs()) defined.insert(input.get());
  for (const auto& node : graph.nodes()) {
    for (const Value* operand : node->operands) {
      if (!operand || !defined.count(operand)) fail(node.get(), "an operand is used before it is defined");
    }
    if (!node->result || node->result->producer != node.get()) fail(node.get(), "the result does not know its node");
    std::set<std::string_view> known;
    for (const AttributeSpec& spec : attribute_specs(node->op)) {
      known.insert(spec.name);
      auto it = node->attributes.find(spec.name);
      if (it == node->attributes.end()) {
        if (!spec.optional) fail(node.get(), "attribute '" + std::string(spec.name) + "' is missing");
      } else if (attribute_type(it->second) != spec.type) {
        fail(node.get(), "attribute '" + std::string(spec.name) + "' is not of type " + std::string(spec.type));
      }
    }
    for (const auto& [name, value] : node->attributes) {
      if (!known.count(name)) fail(node.get(), "attribute '" + name + "' is unknown");
    }
    try {
      Type type = infer_type(*node);
      if (!(type == node->type())) fail(node.get(), "has type " + node->type().str() + " but infers " + type.str());
    } catch (const CompileError& e) {
      fail(node.get(), e.what());
    }
    defined.insert(node->result.get());
  }
  for (const auto& output : graph.outputs()) {
    if (!defined.count(output.value)) fail(nullptr, "output '" + output.name + "' is not defined");
  }
}

}  // namespace cuvil
