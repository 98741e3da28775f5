#include "lower/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "lower/cost_model_coefficients.hpp"

namespace cuvil {

CostTerms cost_terms(const ProductPlan& plan, const TargetDescription& target) {
  const double row_tiles = std::ceil(plan.rows / plan.tile_rows);
  const double column_tiles = std::ceil(plan.columns / plan.tile_columns);
  const double tiles = row_tiles * column_tiles;
  // A step of k in a tile: two multiply-adds and two loads a cycle, and no result before the latency of the last.
  constexpr double latency = 4;
  const double step =
      std::max({plan.tile_rows * plan.tile_columns / 2.0, (plan.tile_rows + plan.tile_columns) / 2.0, latency});
  const double vector_bytes = target.vector_bits / 8.0;
  const double column_bytes = plan.columns * plan.k * vector_bytes, row_bytes = plan.rows * plan.k * 4;
  const double room = static_cast<double>(target.l2_bytes) / 2;
  // Of each operand, what the loops outside of it make the caches read again.
  double column_lines = column_bytes / 64, row_lines = row_bytes / 64;
  if (plan.rows_outside && column_bytes > room) column_lines *= row_tiles;
  if (!plan.rows_outside && row_bytes > room) row_lines *= column_tiles;
  if (plan.prefetched) column_lines = 0;
  CostTerms terms{tiles * plan.k * step, tiles, plan.rows * plan.columns, column_lines, row_lines};
  for (double& term : terms) term *= plan.batch;
  return terms;
}

double estimated_cycles(const ProductPlan& plan, const TargetDescription& target) {
  const CostTerms terms = cost_terms(plan, target);
  double cycles = 0;
  for (size_t i = 0; i < kCostTerms; ++i) cycles += kCostCoefficients[i] * terms[i];
  return cycles;
}

}  // namespace cuvil
