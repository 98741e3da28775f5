// One run of a compiled model: its arena, the services compiled code asks for, and the measuring of its kernels.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "runtime/abi.h"

namespace cuvil::runtime {

/// The arenas of one model. Every run in progress has one of its own; idle ones are kept for the next.
class ArenaCache {
 public:
  ArenaCache() = default;
  ArenaCache(const ArenaCache&) = delete;
  ArenaCache& operator=(const ArenaCache&) = delete;
  ~ArenaCache() { trim(); }

  struct Arena {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  /// At least `bytes` large, aligned to 64 bytes; `data` is null when there is no memory left (or bytes is 0).
  Arena take(int64_t bytes);
  void give_back(Arena arena);
  /// Frees the idle arenas.
  void trim();
  /// Held by idle arenas.
  int64_t idle_bytes();

 private:
  static constexpr int kMaxIdle = 16;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Arena idle_[kMaxIdle];
  int idle_count_ = 0;
};

/// One call of a kernel, on the monotonic clock.
struct KernelSample {
  int32_t kernel;
  int64_t begin_ns, end_ns;
};

/// Memory of the caller that run() fills with the kernels it ran; what does not fit is counted but not kept.
struct KernelLog {
  KernelSample* samples;
  int64_t capacity;
  int64_t count;
};

/// Runs the model with an arena from `arenas`. `log` may be null. Returns CUVIL_OK or an error with its `detail`.
int32_t run(cuvil_run_fn entry, ArenaCache& arenas, int64_t arena_bytes, const void* const* inputs,
            void* const* outputs, const void* weights, const int64_t* symbols, int64_t* detail, KernelLog* log);

}  // namespace cuvil::runtime
