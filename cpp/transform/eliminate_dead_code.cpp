#include "transform/pass.hpp"

namespace cuvil {

void eliminate_dead_code(Graph& graph, const TransformOptions&) {
  graph.erase_dead_nodes();
}

}  // namespace cuvil
