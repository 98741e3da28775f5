// The process's one thread pool. Several models share it; results never depend on it.
#pragma once

#include <cstdint>

#include "runtime/abi.h"

namespace cuvil::runtime {

/// Processors this process may use: the smaller of its affinity mask and its cgroup's CPU quota (rounded up), at
/// least 1.
int available_processors();

/// Threads that take part in a run, the calling one included: the smallest of available_processors(), the environment's
/// CUVIL_NUM_THREADS and set_num_threads().
int num_threads();

/// 0 goes back to the default. `oversubscribe` lifts the other limits. Waits for kernels in progress, ends the workers
/// that exist; new ones start when next needed, never with one thread.
void set_num_threads(int count, bool oversubscribe = false);

/// Covers [0, count) with calls of `kernel` on disjoint ranges whose bounds are multiples of `chunk` (but for the
/// last). If another caller has the pool, or there is one chunk only, all of it runs on the calling thread.
void parallel_for(cuvil_kernel_fn kernel, const void* args, int64_t count, int64_t chunk);

}  // namespace cuvil::runtime
