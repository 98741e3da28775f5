#include "runtime/run.hpp"

#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/futex.hpp"
#include "runtime/thread_pool.hpp"

namespace cuvil::runtime {

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kHugeFrom = 4 << 20;

ArenaCache::Arena allocate(int64_t bytes) {
  const bool huge = bytes >= kHugeFrom;
  const int64_t alignment = huge ? kHugePage : kAlignment;
  if (bytes > INT64_MAX - alignment) return {};
  bytes = (bytes + alignment - 1) / alignment * alignment;
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) return {};
#ifdef MADV_HUGEPAGE
  if (huge) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
  return {data, bytes};
}

void serve(void*, int32_t, cuvil_kernel_fn kernel, const void* args, int64_t count, int64_t chunk) {
  parallel_for(kernel, args, count, chunk);
}

void serve_measured(void* context, int32_t index, cuvil_kernel_fn kernel, const void* args, int64_t count,
                    int64_t chunk) {
  auto& log = *static_cast<KernelLog*>(context);
  const int64_t begin = now_ns();
  parallel_for(kernel, args, count, chunk);
  const int64_t end = now_ns();
  if (log.count < log.capacity) log.samples[log.count] = {index, begin, end};
  ++log.count;
}

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace

ArenaCache::Arena ArenaCache::take(int64_t bytes) {
  if (bytes <= 0) return {};
  Arena arena;
  {
    Lock lock(mutex_);
    if (idle_count_ > 0) arena = idle_[--idle_count_];
  }
  if (arena.bytes >= bytes) return arena;
  free(arena.data);
  return allocate(bytes);
}

void ArenaCache::give_back(Arena arena) {
  if (!arena.data) return;
  {
    Lock lock(mutex_);
    if (idle_count_ < kMaxIdle) {
      idle_[idle_count_++] = arena;
      return;
    }
  }
  free(arena.data);
}

void ArenaCache::trim() {
  Lock lock(mutex_);
  while (idle_count_ > 0) free(idle_[--idle_count_].data);
}

int64_t ArenaCache::idle_bytes() {
  Lock lock(mutex_);
  int64_t sum = 0;
  for (int i = 0; i < idle_count_; ++i) sum += idle_[i].bytes;
  return sum;
}

int32_t run(cuvil_run_fn entry, ArenaCache& arenas, int64_t arena_bytes, const void* const* inputs,
            void* const* outputs, const void* weights, const int64_t* symbols, int64_t* detail, KernelLog* log) {
  const ArenaCache::Arena arena = arenas.take(arena_bytes);
  if (arena_bytes > 0 && !arena.data) {
    detail[0] = arena_bytes;
    return CUVIL_E_MEMORY;
  }
  cuvil_services services = {CUVIL_ABI_VERSION, 0, nullptr, serve};
  if (log) services = {CUVIL_ABI_VERSION, 1, log, serve_measured};
  const int32_t status = entry(&services, inputs, outputs, weights, arena.data, symbols, detail);
  arenas.give_back(arena);
  return status;
}

}  // namespace cuvil::runtime
