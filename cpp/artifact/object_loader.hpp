// Object code in memory, ready to call.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cuvil {

/// Keeps the code mapped. Movable; the mapping goes with the last owner.
class LoadedCode {
 public:
  /// Address of a global symbol; null if there is none of that name.
  void* address(const std::string& name) const;

  template <typename Function>
  Function* function(const std::string& name) const {
    return reinterpret_cast<Function*>(address(name));
  }

  /// Bytes mapped.
  size_t size() const { return size_; }

  /// Shares ownership of the mapping.
  std::shared_ptr<const void> owner() const { return memory_; }

 private:
  friend LoadedCode load_objects(const std::vector<std::string_view>& objects);

  std::shared_ptr<void> memory_;
  size_t size_ = 0;
  std::map<std::string, void*> symbols_;
};

/// Links objects for this machine and maps them; no page is ever writable and executable at once. The objects may refer
/// to each other and to nothing else.
LoadedCode load_objects(const std::vector<std::string_view>& objects);

inline LoadedCode load_objects(const std::vector<std::string>& objects) {
  return load_objects(std::vector<std::string_view>(objects.begin(), objects.end()));
}

}  // namespace cuvil
