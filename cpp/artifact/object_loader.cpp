#include "artifact/object_loader.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "artifact/object_linker.hpp"
#include "support/error.hpp"

namespace cuvil {
namespace {

std::shared_ptr<void> map_writable(size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw CompileError("out of memory: cannot map " + std::to_string(size) + " bytes of code");
  return {memory, [size](void* p) { munmap(p, size); }};
}

void protect(uint8_t* memory, const LinkedImage::Segment& segment, size_t page_size) {
  if (segment.size == 0 || segment.writable) return;
  const size_t bytes = (segment.size + page_size - 1) / page_size * page_size;
  const int protection = PROT_READ | (segment.executable ? PROT_EXEC : 0);
  if (mprotect(memory + segment.offset, bytes, protection) != 0) {
    throw CompileError("this system does not let a program make memory executable, so code can't be run in place");
  }
}

}  // namespace

void* LoadedCode::address(const std::string& name) const {
  const auto found = symbols_.find(name);
  return found == symbols_.end() ? nullptr : found->second;
}

LoadedCode load_objects(const std::vector<std::string_view>& objects) {
  const size_t page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const LinkedImage image = link_objects(objects, page_size);
  LoadedCode code;
  if (image.bytes.empty()) return code;
  code.size_ = image.bytes.size();
  code.memory_ = map_writable(code.size_);
  uint8_t* base = static_cast<uint8_t*>(code.memory_.get());
  std::memcpy(base, image.bytes.data(), image.bytes.size());
  for (uint64_t place : image.base_relative) {
    uint64_t address;
    std::memcpy(&address, base + place, sizeof address);
    address += reinterpret_cast<uintptr_t>(base);
    std::memcpy(base + place, &address, sizeof address);
  }
  for (const LinkedImage::Segment& segment : image.segments) protect(base, segment, page_size);
  __builtin___clear_cache(reinterpret_cast<char*>(base), reinterpret_cast<char*>(base + code.size_));
  for (const auto& [name, offset] : image.symbols) code.symbols_[name] = base + offset;
  return code;
}

}  // namespace cuvil
