// Waiting for a word of memory to change: a short spin, then sleep in the kernel.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace cuvil::runtime {

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Returns when the word no longer holds `value`, or sometimes earlier.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

/// Spins until the word differs from `value`, for `limit_ns` at most; true if it does.
inline bool spin_while(const std::atomic<uint32_t>& word, uint32_t value, int64_t limit_ns) {
  int64_t start = 0;
  while (true) {
    for (int i = 0; i < 32; ++i) {
      if (word.load(std::memory_order_acquire) != value) return true;
      pause_briefly();
    }
    int64_t now = now_ns();
    if (start == 0) start = now;
    if (now - start > limit_ns) return false;
  }
}

}  // namespace cuvil::runtime
