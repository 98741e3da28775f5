// What one way to run a product costs: the terms of a linear model, whose coefficients were fitted to measurements
// (bench/fit_cost_model.py; the measurements are in bench/cost_model.csv).
#pragma once

#include <array>

#include "target/target.hpp"

namespace cuvil {

/// A product of `rows` × k with k × `columns`, cut into tiles, `batch` times over. Sizes that vary count as 1.
struct ProductPlan {
  double batch = 1;
  double rows = 1, columns = 1;  // columns in vectors
  double k = 1;
  int tile_rows = 1, tile_columns = 1;  // columns in vectors
  bool rows_outside = false;            // the rows are walked outside the panels of columns
  bool prefetched = false;
};

inline constexpr size_t kCostTerms = 5;
using CostTerms = std::array<double, kCostTerms>;

/// Cycles to issue the multiply-adds, tiles, results, lines of columns and lines of rows from beyond L2.
CostTerms cost_terms(const ProductPlan& plan, const TargetDescription& target);

/// In cycles of one core.
double estimated_cycles(const ProductPlan& plan, const TargetDescription& target);

}  // namespace cuvil
