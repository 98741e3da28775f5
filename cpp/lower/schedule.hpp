// Chooses how a kernel's loops run: splits and merges them until indices are affine, picks the vector loop, tiles and
// the parallel loops.
#pragma once

#include <optional>
#include <vector>

#include "lower/kernel.hpp"
#include "target/target.hpp"

namespace cuvil {

/// Decisions to take instead of the cost model's.
struct ScheduleChoice {
  int most_rows = 0;  // per tile; 0: as the model says
  std::optional<bool> rows_outside;
  bool prefetch = true;
};

/// Rewrites loops and fills kernel.schedule.
void schedule(Kernel& kernel, const TargetDescription& target, const ScheduleChoice& choice = {});

/// Ways to schedule the kernel, the one that schedule() takes first, the others by the model's estimates.
std::vector<Kernel> schedule_candidates(const Kernel& kernel, const TargetDescription& target);

/// How well memory is accessed when vectorised: 2 = every vector access is contiguous or uniform, 1 = some gather, 0 =
/// scalar.
inline constexpr int kBestQuality = 2;
int access_quality(const Kernel& kernel, const TargetDescription& target);

// Steps of schedule(), for tests and for access_quality.

/// Loops whose variables appear as v // k or v % k become two loops.
void split_loops(Kernel& kernel);
/// Adjacent outer loops (and adjacent phase loops) that every access walks as one become one.
void merge_loops(Kernel& kernel);

/// Chooses what a scheduled product prefetches, if anything; `columns` is the load of its columns' operand.
void plan_prefetch(Kernel& kernel, const Expr& columns, const TargetDescription& target);

}  // namespace cuvil
