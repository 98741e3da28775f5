#include "target/target.hpp"

#include <cstdlib>

#include "support/error.hpp"
#include "target/host.hpp"

namespace cuvil {
namespace {

// The x86-64 micro-architecture levels as ABI documents define them, plus what every core of that level has and code
// generation gains from. "generic" is v2: SSE4.1 has the rounding and blending instructions that vector code needs.
constexpr const char* x86_v2 = "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2";
constexpr const char* x86_v3 =
    "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave";
constexpr const char* x86_v4 =
    "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave,"
    "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl";

constexpr const char* x86_v4_vnni =
    "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave,"
    "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,+avx512vnni";

struct NamedTarget {
  const char* name;
  const char* triple;
  const char* cpu;
  const char* features;
  int vector_bits;
  int vector_registers;
  bool fma;
  bool mask_registers;
  int dot = 0;
};

constexpr NamedTarget named_targets[] = {
#ifdef CUVIL_HAS_X86
    {"x86-64-v2", "x86_64-unknown-linux-gnu", "x86-64-v2", x86_v2, 128, 16, false, false},
    {"x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64-v3", x86_v3, 256, 16, true, false, 2},
    {"x86-64-v4", "x86_64-unknown-linux-gnu", "x86-64-v4", x86_v4, 512, 32, true, true, 2},
    {"x86-64-v4-vnni", "x86_64-unknown-linux-gnu", "x86-64-v4", x86_v4_vnni, 512, 32, true, true, 4},
#endif
#ifdef CUVIL_HAS_AARCH64
    {"aarch64", "aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8", 128, 32, true, false},
#endif
#ifdef CUVIL_HAS_RISCV
    {"riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", 128, 32, true, false},
#endif
};

TargetDescription describe(const NamedTarget& named) {
  TargetDescription target;
  target.name = named.name;
  target.triple = named.triple;
  target.cpu = named.cpu;
  target.features = named.features;
  target.vector_bits = named.vector_bits;
  target.vector_registers = named.vector_registers;
  target.fma = named.fma;
  target.mask_registers = named.mask_registers;
  target.dot = named.dot;
  return target;
}

const NamedTarget* find_named(std::string_view name) {
  for (const NamedTarget& named : named_targets) {
    if (name == named.name) return &named;
  }
  return nullptr;
}

// Baseline of this machine's architecture; null when this build has no code generator for it.
const NamedTarget* host_baseline() {
  switch (host_arch()) {
    case HostArch::x86_64:
      return find_named("x86-64-v2");
    case HostArch::aarch64:
      return find_named("aarch64");
    case HostArch::riscv64:
      return find_named("riscv64");
    case HostArch::other:
      break;
  }
  return nullptr;
}

TargetDescription require_baseline() {
  const NamedTarget* named = host_baseline();
  if (named == nullptr) {
    throw CompileError("this build of Cuvil cannot generate code for this machine (" + host_triple() +
                       "); name another target");
  }
  TargetDescription target = describe(*named);
  target.triple = host_triple();
  read_host_caches(target);
  return target;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

TargetDescription host_target() {
  static const TargetDescription target = [] {
    TargetDescription t = require_baseline();
    t.name = "host (" + host_cpu() + ")";
    t.cpu = host_cpu();
    // AMD's cores share L3 by eight at most and stream about as fast from it as from L2; a mesh is slower.
    if (t.cpu.rfind("znver", 0) == 0) t.l3_bytes_per_cycle = 24;
    const std::vector<HostFeature> features = host_features();
    const auto has = [&](std::initializer_list<const char*> names) {
      for (const char* name : names) {
        bool found = false;
        for (const HostFeature& f : features) found |= f.enabled && f.name == name;
        if (!found) return false;
      }
      return true;
    };
    std::string list;
    for (const HostFeature& f : features) {
      if (!list.empty()) list += ',';
      list += f.enabled ? '+' : '-';
      list += f.name;
    }
    if (!list.empty()) t.features = list;
    if (host_arch() == HostArch::x86_64) {
      t.fma = has({"fma"});
      if (has({"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"})) {
        t.vector_bits = 512;
        t.vector_registers = 32;
        t.mask_registers = true;
        t.dot = has({"avx512vnni"}) ? 4 : 2;
      } else if (has({"avx2", "fma"})) {
        t.vector_bits = 256;
        t.dot = has({"avxvnni"}) ? 4 : 2;
      } else if (!has({"sse4.1"})) {
        throw CompileError("this machine's processor (" + host_cpu() + ") is older than x86-64-v2");
      }
    }
    return t;
  }();
  return target;
}

TargetDescription target_from_name(std::string_view name) {
  std::string wanted(name);
  if (wanted.empty()) {
    const char* variable = std::getenv("CUVIL_TARGET");
    wanted = variable != nullptr && *variable != '\0' ? variable : "host";
  }
  if (wanted == "host") return host_target();
  if (wanted == "generic") {
    TargetDescription target = require_baseline();
    target.name = "generic";
    return target;
  }
  const NamedTarget* named = find_named(wanted);
  if (named == nullptr) {
    throw CompileError("unknown target \"" + wanted + "\"; this build knows " + join(target_names()));
  }
  TargetDescription target = describe(*named);
  if (triple_arch(target.triple) == host_arch()) {
    target.triple = host_triple();
    read_host_caches(target);
  }
  return target;
}

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  if (host_baseline() != nullptr) names = {"host", "generic"};
  for (const NamedTarget& named : named_targets) names.push_back(named.name);
  return names;
}

bool runs_here(const TargetDescription& target) {
  if (triple_arch(target.triple) != host_arch()) return false;
  const std::vector<HostFeature> features = host_features();
  if (features.empty()) return true;  // the host cannot be asked: trust the name
  size_t begin = 0;
  while (begin < target.features.size()) {
    size_t end = target.features.find(',', begin);
    if (end == std::string::npos) end = target.features.size();
    const std::string item = target.features.substr(begin, end - begin);
    begin = end + 1;
    if (item.size() < 2 || item[0] != '+') continue;
    for (const HostFeature& f : features) {
      if (f.name == item.substr(1) && !f.enabled) return false;
    }
  }
  return true;
}

}  // namespace cuvil
