// Prefetching of a product's columns: while the rows of one panel are walked, the next panel is brought near.
#include <algorithm>

#include "lower/schedule.hpp"

namespace cuvil {

namespace {

// Visits of one panel up to which the time of its first visit, which waits for memory, counts.
constexpr int64_t kMostVisits = 32;

}  // namespace

// A panel is what the columns' operand is read from while the loops that it does not move with (the rows) go round. It
// is read once for each tile of rows, a visit; each visit prefetches its share of the panel that follows in memory, in
// step with its own reads.
void plan_prefetch(Kernel& kernel, const Expr& columns, const TargetDescription& target) {
  Schedule& plan = kernel.schedule;
  Dim all = 1, panel = plan.lanes * plan.vector_tile, rows = 1;
  int64_t rows_per_visit = 1;
  Dim offset = columns.index;
  for (const Phase& phase : kernel.phases) {
    if (phase.reductions.empty()) continue;
    for (const Loop& loop : phase.loops) panel = panel * loop.extent;
  }
  bool panels_seen = false;
  for (size_t i = kernel.outer.size(); i-- > 0;) {
    const Loop& loop = kernel.outer[i];
    if (loop.limit || !loop.variable.is_symbol()) return;
    const Schedule::Tile* tile = plan.tile_of(loop);
    auto stride = columns.index.coefficient_of(loop.variable);
    if (!stride) return;
    if (*stride != Dim(0)) {
      all = all * loop.extent;
      if (plan.is_vector(loop)) continue;
      if (tile && tile->exact) panel = panel * loop.extent;
      if (!tile) panels_seen = true;
      continue;
    }
    if (panels_seen) return;  // the rows are walked outside: all panels follow one another for each of them
    rows = rows * loop.extent;
    if (tile) rows_per_visit *= tile->size;
  }
  auto elements = panel.constant();
  if (!elements || !all.is_constant()) return;
  for (const Phase& phase : kernel.phases) {
    if (phase.reductions.empty()) continue;
    for (const Loop& loop : phase.loops) all = all * loop.extent;
  }
  const auto bytes = static_cast<int64_t>(size_of(columns.dtype));
  if (!all.is_constant() || all.value() * bytes < target.l2_bytes / 2) return;
  // A size that varies counts as one.
  const int64_t row_count = std::max<int64_t>(1, rows.evaluate([](const std::string&) { return int64_t{1}; }));
  const int64_t visits = (row_count + rows_per_visit - 1) / rows_per_visit;
  // A single visit is nothing but the stream itself, which the hardware follows.
  if (visits == 1 || visits > kMostVisits) return;

  offset = offset + *elements;
  int64_t run = int64_t{plan.lanes} * plan.vector_tile;
  for (const Schedule::Tile& tile : plan.tiles) {
    if (tile.exact) run *= tile.size;
  }
  int64_t step = run;
  std::map<std::string, Dim> share;
  for (const Phase& phase : kernel.phases) {
    if (phase.reductions.empty()) continue;
    for (const Loop& loop : phase.loops) {
      auto stride = columns.index.coefficient_of(loop.variable);
      if (!stride || !stride->is_constant()) return;
      step = std::max<int64_t>(1, stride->value() / visits);
      offset = offset - loop.variable * *stride + loop.variable * step;
    }
  }
  int64_t points = *elements / row_count;  // of the next panel, for each row of this one
  for (size_t i = kernel.outer.size(); i-- > 0;) {
    const Loop& loop = kernel.outer[i];
    if (*columns.index.coefficient_of(loop.variable) != Dim(0) || !loop.extent.is_constant()) continue;
    offset = offset + loop.variable * points;
    points *= loop.extent.value();
  }
  const int64_t line = 64 / bytes;
  plan.prefetch = Schedule::Prefetch{columns.buffer, offset, static_cast<int>(std::max<int64_t>(1, step / line))};
}

}  // namespace cuvil
