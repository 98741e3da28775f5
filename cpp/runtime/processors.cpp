// How many processors this process may use.
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/thread_pool.hpp"

namespace cuvil::runtime {

namespace {

constexpr int kUnlimited = 1 << 16;
constexpr size_t kPathSize = 1024;

// Reads a small file as a zero-terminated string; false if it cannot be read.
bool read_file(const char* path, char* text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t n = read(file, text, size - 1);
  close(file);
  if (n < 0) return false;
  text[n] = '\0';
  return true;
}

int processors_for(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return kUnlimited;
  long long n = (quota + period - 1) / period;
  return n < 1 ? 1 : n > kUnlimited ? kUnlimited : static_cast<int>(n);
}

int quota_v2(const char* folder) {
  char path[kPathSize + 32], text[128];
  snprintf(path, sizeof path, "%s/cpu.max", folder);
  long long quota = 0, period = 0;
  if (!read_file(path, text, sizeof text) || sscanf(text, "%lld %lld", &quota, &period) != 2) return kUnlimited;
  return processors_for(quota, period);
}

int quota_v1(const char* folder) {
  char path[kPathSize + 32], text[64];
  snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
  if (!read_file(path, text, sizeof text)) return kUnlimited;
  long long quota = atoll(text);
  snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
  if (!read_file(path, text, sizeof text)) return kUnlimited;
  return processors_for(quota, atoll(text));
}

// The limit of a group is the smallest of its own and its ancestors'. `folder` starts with `root`.
int smallest_quota(char* folder, size_t root_length, int (*quota)(const char*)) {
  int best = kUnlimited;
  while (true) {
    int n = quota(folder);
    if (n < best) best = n;
    char* slash = strrchr(folder, '/');
    if (!slash || static_cast<size_t>(slash - folder) < root_length) return best;
    *slash = '\0';
  }
}

int quota_below(const char* root, const char* group, int (*quota)(const char*)) {
  char folder[kPathSize];
  int n = snprintf(folder, sizeof folder, "%s%s", root, group);
  if (n <= 0 || static_cast<size_t>(n) >= sizeof folder) return kUnlimited;
  if (folder[n - 1] == '/') folder[n - 1] = '\0';
  return smallest_quota(folder, strlen(root), quota);
}

// /proc/self/cgroup has one line per hierarchy: "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1). Inside a container the
// path may be the host's and not exist below the mount; the mount's root then still has the container's own limit.
int cgroup_processors() {
  char text[4096];
  if (!read_file("/proc/self/cgroup", text, sizeof text)) return kUnlimited;
  int best = kUnlimited;
  char* save = nullptr;
  for (char* line = strtok_r(text, "\n", &save); line; line = strtok_r(nullptr, "\n", &save)) {
    char* controllers = strchr(line, ':');
    char* group = controllers ? strchr(controllers + 1, ':') : nullptr;
    if (!group) continue;
    *group++ = '\0';
    ++controllers;
    int n = kUnlimited;
    if (*controllers == '\0') {
      n = quota_below("/sys/fs/cgroup", group, quota_v2);
    } else {
      bool has_cpu = false;
      char* inner = nullptr;
      for (char* c = strtok_r(controllers, ",", &inner); c; c = strtok_r(nullptr, ",", &inner)) {
        has_cpu = has_cpu || strcmp(c, "cpu") == 0;
      }
      if (has_cpu) n = quota_below("/sys/fs/cgroup/cpu", group, quota_v1);
    }
    if (n < best) best = n;
  }
  return best;
}

int affinity_processors() {
  // A fixed cpu_set_t is too small for machines with more than 1024 processors.
  for (int capacity = 1024; capacity <= kUnlimited; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(capacity));
    if (!set) break;
    size_t size = CPU_ALLOC_SIZE(static_cast<size_t>(capacity));
    int n = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (n > 0) return n;
  }
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? static_cast<int>(n) : 1;
}

}  // namespace

int available_processors() {
  int affinity = affinity_processors();
  int quota = cgroup_processors();
  int n = affinity < quota ? affinity : quota;
  return n < 1 ? 1 : n;
}

}  // namespace cuvil::runtime
