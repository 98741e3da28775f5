// The thread pool under everything that may happen to it at once: several callers, kernels of many sizes, changes of
// the number of threads. Meant for the thread sanitizer; fails by itself if an index is missed or done twice.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "runtime/thread_pool.hpp"

namespace {

struct Work {
  std::vector<uint32_t>* visits;
  int64_t chunk;
  std::atomic<bool>* uneven;
};

void kernel(const void* args, int64_t begin, int64_t end) {
  const Work& work = *static_cast<const Work*>(args);
  auto count = static_cast<int64_t>(work.visits->size());
  if (begin % work.chunk != 0 || (end % work.chunk != 0 && end != count)) work.uneven->store(true);
  for (int64_t i = begin; i < end; ++i) ++(*work.visits)[static_cast<size_t>(i)];
}

}  // namespace

int main() {
  std::atomic<bool> uneven{false}, wrong{false}, done{false};
  auto call = [&](unsigned seed) {
    for (int round = 0; round < 400; ++round) {
      seed = seed * 1664525u + 1013904223u;
      std::vector<uint32_t> visits(seed >> 8 & 1023);
      Work work{&visits, 1 + static_cast<int64_t>(seed >> 20 & 31), &uneven};
      cuvil::runtime::parallel_for(kernel, &work, static_cast<int64_t>(visits.size()), work.chunk);
      for (uint32_t n : visits) {
        if (n != 1) wrong.store(true);
      }
    }
  };
  std::thread resizer([&] {
    for (int threads = 1; !done.load(); threads = threads % 4 + 1) {
      cuvil::runtime::set_num_threads(threads, true);
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> callers;
  for (unsigned seed = 1; seed <= 3; ++seed) callers.emplace_back(call, seed);
  for (std::thread& t : callers) t.join();
  done = true;
  resizer.join();
  std::printf("%s\n", wrong ? "an index was missed or done twice" : uneven ? "a range does not fit its chunk" : "ok");
  return wrong || uneven;
}
