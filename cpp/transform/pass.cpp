#include "transform/pass.hpp"

#include <algorithm>
#include <chrono>

namespace cuvil {

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> passes = {
      {"fold-constants", "evaluate what depends on constants only", fold_constants},
      {"canonicalize", "remove identities and bring chains of index-like ops to one form", canonicalize},
      {"cse", "merge nodes that compute the same", eliminate_common_subexpressions},
      {"dce", "remove nodes whose results nobody needs", eliminate_dead_code},
      {"fold-batch-norm", "multiply constant factors per output channel into the weights before them", fold_batch_norm},
      {"integer-products", "compute products of dequantised operands on their integers", integer_products},
      {"narrow-products", "compute integer products on the narrow types that have instructions", narrow_products},
      {"assign-layouts", "put convolutional regions into channel blocks and pack their weights", assign_layouts},
      {"pack-weights", "pack constant right operands of products into panels of columns", pack_weights},
  };
  return passes;
}

const Pass* find_pass(std::string_view name) {
  const auto& passes = all_passes();
  auto it = std::find_if(passes.begin(), passes.end(), [&](const Pass& p) { return p.name == name; });
  return it == passes.end() ? nullptr : &*it;
}

void run_pipeline(Graph& graph, const TransformOptions& options, const PassObserver& observer) {
  // Equal nodes are merged before constants are folded, lest each gets a copy of its own. Constants are folded before
  // layouts: the packed form of a weight must not be unpacked again.
  static constexpr std::string_view order[] = {
      "dce",
      "canonicalize",
      "cse",
      "integer-products",
      "fold-constants",
      "cse",
      "fold-batch-norm",
      "fold-constants",
      "canonicalize",
      "cse",
      "dce",
      "narrow-products",
      "assign-layouts",
      "pack-weights",
      "canonicalize",
      "dce",
  };
  for (std::string_view name : order) {
    const Pass* pass = find_pass(name);
    auto start = std::chrono::steady_clock::now();
    pass->run(graph, options);
    if (observer)
      observer(*pass, graph, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}

}  // namespace cuvil
