// Questions to this machine; the answers come from LLVM and the operating system.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cuvil {

struct TargetDescription;

enum class HostArch { x86_64, aarch64, riscv64, other };

struct HostFeature {
  std::string name;  // LLVM's spelling
  bool enabled;
};

HostArch host_arch();
HostArch triple_arch(std::string_view triple);
std::string host_triple();
std::string host_cpu();
/// Sorted by name; empty when the operating system does not tell.
std::vector<HostFeature> host_features();
/// Overwrites the cache sizes that the operating system tells.
void read_host_caches(TargetDescription& target);

}  // namespace cuvil
