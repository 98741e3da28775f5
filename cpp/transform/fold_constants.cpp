#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "ir/builder.hpp"
#include "ir/evaluate.hpp"
#include "transform/pass.hpp"

namespace cuvil {

namespace {

// A result larger than its constant operands is only worth storing while it is small.
constexpr int64_t kLargestGrowth = int64_t{1} << 20;

class Folder {
 public:
  explicit Folder(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
    for (Node* node : nodes) {
      if (!is_fixed(*node)) continue;
      fixed_.insert(node->result.get());
      // Leaves and broadcasts stay: they cost nothing in a kernel, and a stored copy has to be read.
      if (info(node->op).kind == OpKind::Leaf || node->op == Op::Broadcast || node->operands.empty()) continue;
      if (!node->type().is_static()) continue;
      std::optional<Tensor> value = fold(*node);
      if (!value) continue;
      Builder b(graph_);
      b.set_source(node->source);
      b.set_position(node);
      graph_.replace_all_uses(node->result.get(), b.constant(std::move(*value)));
    }
    graph_.erase_dead_nodes();
  }

 private:
  // Whether the node depends on constants only.
  bool is_fixed(const Node& node) const {
    return node.op != Op::DimValue &&
           std::all_of(node.operands.begin(), node.operands.end(),
                       [&](const Value* operand) { return constant_of(operand) || fixed_.count(operand) > 0; });
  }

  std::optional<Tensor> fold(const Node& node) {
    std::vector<Tensor> operands;
    int64_t stored = 0;
    for (const Value* operand : node.operands) {
      std::optional<Tensor> t = evaluate_constant(operand, kLargestGrowth);
      if (!t) return std::nullopt;
      if (constant_of(operand)) stored += t->num_elements();
      operands.push_back(std::move(*t));
    }
    if (node.type().num_elements().value() > std::max(stored, kLargestGrowth)) return std::nullopt;
    return evaluate_node(node, operands, {});
  }

  Graph& graph_;
  std::set<const Value*> fixed_;
};

}  // namespace

void fold_constants(Graph& graph, const TransformOptions&) {
  Folder(graph).run();
}

}  // namespace cuvil
