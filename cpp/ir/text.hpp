// The text form of a Graph. print → parse → print gives the same text.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.hpp"

namespace cuvil {

struct PrintOptions {
  bool sources = false;  // append each node's source as a comment
  int64_t max_constant_elements =
      16;  // longer constants print as a splat, or as dense<…bytes hash> that cannot be parsed back
  /// Longer constants print as a splat of their first element instead: the graph can be read back, but has other
  /// weights.
  bool stand_in_constants = false;
};

std::string print(const Graph& graph, const PrintOptions& options = {});

/// Throws CompileError with line and column.
Graph parse_graph(std::string_view text);

}  // namespace cuvil
