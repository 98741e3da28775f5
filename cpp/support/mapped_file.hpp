// A file's bytes, mapped read-only.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace cuvil {

struct MappedFile {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // the mapping lives as long as this
};

/// Throws CompileError naming the file when it cannot be read.
MappedFile map_file(const std::string& path);

}  // namespace cuvil
