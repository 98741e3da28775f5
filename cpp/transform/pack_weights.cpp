#include <map>

#include "transform/pack.hpp"
#include "transform/pass.hpp"

namespace cuvil {

void pack_weights(Graph& graph, const TransformOptions& options) {
  if (options.channel_block <= 1) return;
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  // A weight of several products (the steps of a recurrent network) is packed once.
  std::map<std::pair<const Value*, int64_t>, Value*> known;
  for (Node* node : nodes) {
    if (node->op != Op::Matmul) continue;
    // Weights of f32, or narrow ones behind a cast (see narrow-products).
    const bool narrow = options.dot > 0 && is_op(node->operand(1), Op::Cast);
    const Tensor* w = constant_of(narrow ? node->operand(1)->producer->operand(0) : node->operand(1));
    if (!w || w->rank() != 2 || is_float(w->dtype()) == narrow || (!narrow && w->dtype() != DType::f32) ||
        w->num_elements() == 0)
      continue;
    if (narrow && w->shape()[0] % options.dot != 0) continue;
    Builder b(graph);
    b.set_source(node->source);
    b.set_position(node);
    Dim rows = floor_div(node->type().num_elements(), w->shape()[1]);
    int64_t nr = panel_columns(w->shape()[1], options.channel_block, rows == Dim(1));
    Value*& packed = known[{node->operand(1), nr}];
    if (!packed) packed = b.cast(pack_matrix(b, *w, nr, narrow ? options.dot : 1), node->type().dtype);
    graph.set_operand(node, 1, packed);
  }
}

}  // namespace cuvil
