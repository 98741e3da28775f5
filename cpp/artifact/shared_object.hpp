// A compiled model as one ELF shared object, written without a linker.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "artifact/object_linker.hpp"

namespace cuvil {

struct ArtifactParts {
  const LinkedImage* image = nullptr;  // linked for kArtifactPageSize
  std::string plan_symbol, run_symbol;
  std::string_view weights;
  std::string_view metadata;
};

/// Segments start on multiples of it: the largest page size of the machine's Linux systems.
size_t artifact_page_size(uint16_t machine);

/// Writes the file at `path` (a new file takes its place at once, so that no reader sees half of one). The same parts
/// give the same bytes. Throws CompileError when the file cannot be written.
///
/// The file exports one symbol, cuvil_artifact (runtime/abi.h). Its segments: headers, dynamic symbols and metadata,
/// read only; code; constants; data; weights, read only and on pages of their own. Nothing is writable and executable.
void write_shared_object(const std::string& path, const ArtifactParts& parts);

}  // namespace cuvil
