#include "runtime/thread_pool.hpp"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <new>

#include "runtime/futex.hpp"

namespace cuvil::runtime {

namespace {

constexpr int kMaxThreads = 512;
constexpr int64_t kSpinNs = 20000;
constexpr int64_t kBlocksPerPart = 4;
constexpr size_t kCacheLine = 64;

// The blocks of one participant. Upper half: the job's generation; lower half: blocks not yet taken. A thread that
// comes late, with the generation of a job that is over, takes nothing.
struct alignas(kCacheLine) Part {
  std::atomic<uint64_t> open{0};
};

constexpr uint64_t open_blocks(uint32_t generation, int64_t count) {
  return static_cast<uint64_t>(generation) << 32 | static_cast<uint64_t>(count);
}

// A job is read without a lock: a thread that then succeeds in taking a block of its generation has read it whole,
// since it is not overwritten before all its blocks are finished.
struct Job {
  std::atomic<cuvil_kernel_fn> kernel{nullptr};
  std::atomic<const void*> args{nullptr};
  std::atomic<int64_t> count{0}, chunk{1}, chunks{0};
  std::atomic<int32_t> parts{0};
};

struct Pool {
  explicit Pool(int thread_count) : threads(thread_count) {}

  const int threads;  // participants, the caller included
  int workers = 0;    // threads started
  pthread_t handles[kMaxThreads];
  std::atomic<bool> stop{false};
  Job job;
  Part parts[kMaxThreads];
  alignas(kCacheLine) std::atomic<uint32_t> generation{0};
  std::atomic<int32_t> sleepers{0};
  alignas(kCacheLine) std::atomic<uint32_t> unfinished{0};
  std::atomic<bool> caller_sleeps{false};

  void run(cuvil_kernel_fn kernel, const void* args, int64_t count, int64_t chunk, int64_t chunks);
  void take_part(int self, uint32_t now);
  void work(int self);
};

int64_t part_begin(int64_t chunks, int64_t parts, int64_t part) {
  return chunks * part / parts;
}

int64_t blocks_of(int64_t chunks_of_part) {
  return chunks_of_part < kBlocksPerPart ? chunks_of_part : kBlocksPerPart;
}

// Own blocks first: the same share of every kernel stays in the same core's cache. Then those of threads that are late.
void Pool::take_part(int self, uint32_t now) {
  constexpr auto acquire = std::memory_order_acquire;
  const cuvil_kernel_fn kernel = job.kernel.load(acquire);
  const void* const args = job.args.load(acquire);
  const int64_t count = job.count.load(acquire), chunk = job.chunk.load(acquire), chunks = job.chunks.load(acquire);
  const int parts_now = job.parts.load(acquire);
  uint32_t done = 0;
  for (int i = 0; i < parts_now; ++i) {
    const int p = (self + i) % parts_now;
    uint64_t open = parts[p].open.load(acquire);
    while (true) {
      const uint32_t left = static_cast<uint32_t>(open);
      if (static_cast<uint32_t>(open >> 32) != now || left == 0) break;
      if (!parts[p].open.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel, acquire)) continue;
      const int64_t first = part_begin(chunks, parts_now, p), last = part_begin(chunks, parts_now, p + 1);
      const int64_t blocks = blocks_of(last - first), block = blocks - left;
      const int64_t begin = (first + part_begin(last - first, blocks, block)) * chunk;
      const int64_t end = (first + part_begin(last - first, blocks, block + 1)) * chunk;
      kernel(args, begin, end < count ? end : count);
      ++done;
      --open;
    }
  }
  if (done == 0) return;
  if (unfinished.fetch_sub(done) == done && caller_sleeps.load()) futex_wake(unfinished, 1);
}

void Pool::run(cuvil_kernel_fn kernel, const void* args, int64_t count, int64_t chunk, int64_t chunks) {
  constexpr auto release = std::memory_order_release;
  const int participants = chunks < threads ? static_cast<int>(chunks) : threads;
  const uint32_t now = generation.load(std::memory_order_relaxed) + 1;
  job.kernel.store(kernel, release);
  job.args.store(args, release);
  job.count.store(count, release);
  job.chunk.store(chunk, release);
  job.chunks.store(chunks, release);
  job.parts.store(participants, release);
  uint32_t total = 0;
  for (int p = 0; p < participants; ++p) {
    total +=
        static_cast<uint32_t>(blocks_of(part_begin(chunks, participants, p + 1) - part_begin(chunks, participants, p)));
  }
  unfinished.store(total, release);
  for (int p = 0; p < participants; ++p) {
    const int64_t size = part_begin(chunks, participants, p + 1) - part_begin(chunks, participants, p);
    parts[p].open.store(open_blocks(now, blocks_of(size)), release);
  }
  generation.store(now);
  if (sleepers.load() > 0) futex_wake(generation, participants - 1);

  take_part(0, now);
  while (uint32_t left = unfinished.load(std::memory_order_acquire)) {
    if (spin_while(unfinished, left, kSpinNs)) continue;
    caller_sleeps.store(true);
    left = unfinished.load();
    if (left) futex_wait(unfinished, left);
    caller_sleeps.store(false);
  }
}

void Pool::work(int self) {
  uint32_t seen = 0;
  while (true) {
    if (!spin_while(generation, seen, kSpinNs)) {
      sleepers.fetch_add(1);
      while (generation.load() == seen) futex_wait(generation, seen);
      sleepers.fetch_sub(1);
    }
    seen = generation.load(std::memory_order_acquire);
    if (stop.load(std::memory_order_acquire)) return;
    take_part(self, seen);
  }
}

struct WorkerStart {
  Pool* pool;
  int self;
};

void* worker_main(void* start_pointer) {
  const WorkerStart start = *static_cast<WorkerStart*>(start_pointer);
  free(start_pointer);
  start.pool->work(start.self);
  return nullptr;
}

// Held while a job runs and while the pool is made or ended.
std::atomic<bool> g_busy{false};
Pool* g_pool = nullptr;
std::atomic<int> g_requested{0};
std::atomic<bool> g_oversubscribe{false};
std::atomic<int> g_threads{0};  // 0: not known yet
pthread_once_t g_fork_once = PTHREAD_ONCE_INIT;

void lock_pool() {
  while (g_busy.exchange(true, std::memory_order_acquire)) sched_yield();
}

void unlock_pool() {
  g_busy.store(false, std::memory_order_release);
}

// Workers do not survive fork(): the child forgets its copy of the pool, whatever state it was in, and starts its own.
void forget_pool() {
  g_pool = nullptr;
  g_threads.store(0);
  unlock_pool();
}

int environment_threads() {
  const char* text = getenv("CUVIL_NUM_THREADS");
  if (!text) return 0;
  char* end = nullptr;
  const long n = strtol(text, &end, 10);
  return end == text || *end != '\0' || n < 1 ? 0 : n > kMaxThreads ? kMaxThreads : static_cast<int>(n);
}

int decide_threads() {
  const int requested = g_requested.load();
  int n = requested;
  if (requested == 0 || !g_oversubscribe.load()) {
    n = available_processors();
    for (int limit : {environment_threads(), requested}) {
      if (limit > 0 && limit < n) n = limit;
    }
  }
  return n < kMaxThreads ? n : kMaxThreads;
}

Pool* start_pool(int threads) {
  pthread_once(&g_fork_once, [] { pthread_atfork(nullptr, nullptr, forget_pool); });
  void* memory = nullptr;
  if (posix_memalign(&memory, alignof(Pool), sizeof(Pool)) != 0) return nullptr;
  Pool* pool = new (memory) Pool(threads);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's threads' business
  for (int i = 1; i < threads; ++i) {
    auto* start = static_cast<WorkerStart*>(malloc(sizeof(WorkerStart)));
    if (!start) break;
    *start = {pool, i};
    if (pthread_create(&pool->handles[pool->workers], nullptr, worker_main, start) != 0) {
      free(start);  // a limit on processes: go on with fewer; nothing waits for a thread that does not exist
      break;
    }
#if defined(__GLIBC__)
    pthread_setname_np(pool->handles[pool->workers], "cuvil-worker");
#endif
    ++pool->workers;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pool;
}

void end_pool(Pool* pool) {
  pool->stop.store(true);
  pool->generation.fetch_add(1);
  futex_wake(pool->generation, INT_MAX);
  for (int i = 0; i < pool->workers; ++i) pthread_join(pool->handles[i], nullptr);
  pool->~Pool();
  free(pool);
}

}  // namespace

int num_threads() {
  int n = g_threads.load(std::memory_order_relaxed);
  if (n == 0) {
    n = decide_threads();
    g_threads.store(n, std::memory_order_relaxed);
  }
  return n;
}

void set_num_threads(int count, bool oversubscribe) {
  lock_pool();
  g_requested.store(count > 0 ? count : 0);
  g_oversubscribe.store(oversubscribe);
  const int n = decide_threads();
  g_threads.store(n);
  Pool* old = nullptr;
  if (g_pool && g_pool->threads != n) {
    old = g_pool;
    g_pool = nullptr;
  }
  if (old) end_pool(old);
  unlock_pool();
}

void parallel_for(cuvil_kernel_fn kernel, const void* args, int64_t count, int64_t chunk) {
  if (count <= 0) return;
  const int threads = num_threads();
  if (threads == 1 || chunk >= count || g_busy.exchange(true, std::memory_order_acquire)) {
    kernel(args, 0, count);
    return;
  }
  // The size may have been changed since num_threads() was read; whatever pool there is serves as well.
  if (!g_pool) g_pool = start_pool(threads);
  if (g_pool && g_pool->workers > 0) {
    if (chunk < 1) chunk = 1;
    g_pool->run(kernel, args, count, chunk, (count + chunk - 1) / chunk);
  } else {
    kernel(args, 0, count);
  }
  unlock_pool();
}

}  // namespace cuvil::runtime
