// Passes over the Graph and their order. Each pass is one function in one file named by a verb.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace cuvil {

struct TransformOptions {
  /// Lanes of f32 in a vector register of the target: the channel block of convolutional regions. 0: no blocking.
  int64_t channel_block = 16;
  /// Products that an instruction sums in each lane of i32: 4 of u8 and i8, 2 of i16, or 0 for a target without.
  int64_t dot = 0;
  /// Only forms whose errors and special values are those of the operators' definitions.
  bool strict = false;
};

struct Pass {
  std::string_view name;  // as in cuvil-opt --pass=
  std::string_view summary;
  void (*run)(Graph&, const TransformOptions&);
};

/// Every pass, in no particular order (for cuvil-opt).
const std::vector<Pass>& all_passes();
const Pass* find_pass(std::string_view name);

/// Called after each pass with its name and seconds: timing, printing and verification live in the driver.
using PassObserver = std::function<void(const Pass&, const Graph&, double seconds)>;

/// The default pipeline.
void run_pipeline(Graph& graph, const TransformOptions& options, const PassObserver& observer);

void fold_constants(Graph& graph, const TransformOptions& options);
void canonicalize(Graph& graph, const TransformOptions& options);
void eliminate_common_subexpressions(Graph& graph, const TransformOptions& options);
void eliminate_dead_code(Graph& graph, const TransformOptions& options);
void fold_batch_norm(Graph& graph, const TransformOptions& options);
void integer_products(Graph& graph, const TransformOptions& options);
void narrow_products(Graph& graph, const TransformOptions& options);
void assign_layouts(Graph& graph, const TransformOptions& options);
void pack_weights(Graph& graph, const TransformOptions& options);

}  // namespace cuvil
