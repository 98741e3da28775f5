#include "target/host.hpp"

#include <llvm/ADT/StringMap.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <fstream>

#include "target/target.hpp"

namespace cuvil {
namespace {

#if defined(__linux__)
// The kernel lists the caches of a core as index0, index1, ...; it knows what share of the last level a virtual machine
// sees, which sysconf does not.
void read_linux_caches(TargetDescription& target) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    std::ifstream level_file(folder + "/level"), type_file(folder + "/type"), size_file(folder + "/size");
    int level = 0;
    int64_t kilobytes = 0;
    std::string type;
    if (!(level_file >> level) || !(type_file >> type) || !(size_file >> kilobytes)) continue;  // "32768K"
    if (kilobytes <= 0 || type == "Instruction") continue;
    if (level == 1) target.l1_bytes = kilobytes << 10;
    if (level == 2) target.l2_bytes = kilobytes << 10;
    if (level == 3) target.l3_bytes = kilobytes << 10;
  }
}
#endif

}  // namespace

HostArch triple_arch(std::string_view triple) {
  switch (llvm::Triple(llvm::StringRef(triple.data(), triple.size())).getArch()) {
    case llvm::Triple::x86_64:
      return HostArch::x86_64;
    case llvm::Triple::aarch64:
      return HostArch::aarch64;
    case llvm::Triple::riscv64:
      return HostArch::riscv64;
    default:
      return HostArch::other;
  }
}

HostArch host_arch() {
  return triple_arch(host_triple());
}

// Code is emitted as ELF everywhere: the loader and the artifact writer know that one format.
std::string host_triple() {
  llvm::Triple triple(llvm::sys::getProcessTriple());
  if (!triple.isOSBinFormatELF()) triple.setObjectFormat(llvm::Triple::ELF);
  return triple.str();
}

std::string host_cpu() {
  return llvm::sys::getHostCPUName().str();
}

std::vector<HostFeature> host_features() {
#if LLVM_VERSION_MAJOR >= 19
  const auto map = llvm::sys::getHostCPUFeatures();
#else
  llvm::StringMap<bool> map;
  llvm::sys::getHostCPUFeatures(map);
#endif
  std::vector<HostFeature> features;
  for (const auto& entry : map) features.push_back({entry.getKey().str(), entry.getValue()});
  std::sort(features.begin(), features.end(),
            [](const HostFeature& a, const HostFeature& b) { return a.name < b.name; });
  return features;
}

void read_host_caches([[maybe_unused]] TargetDescription& target) {
#if defined(__linux__)
  read_linux_caches(target);
#endif
}

}  // namespace cuvil
