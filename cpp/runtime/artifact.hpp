// A compiled model's file: checked, then mapped.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuvil/cuvil.h"
#include "runtime/abi.h"

namespace cuvil::runtime {

/// The message of the calling thread's last failure. set_error() returns `status`.
const char* error_message();
[[gnu::format(printf, 2, 3)]] cuvil_status set_error(cuvil_status status, const char* format, ...);

/// The file's image in memory: segments where the file says, read only but for its data.
struct MappedArtifact {
  char* base = nullptr;
  size_t bytes = 0;

  const cuvil_artifact* head() const { return reinterpret_cast<const cuvil_artifact*>(base + CUVIL_ARTIFACT_OFFSET); }
  cuvil_plan_fn plan() const { return reinterpret_cast<cuvil_plan_fn>(base + head()->plan); }
  cuvil_run_fn run() const { return reinterpret_cast<cuvil_run_fn>(base + head()->run); }
  const void* weights() const { return base + head()->weights; }
  const char* metadata() const { return base + head()->metadata; }
  size_t metadata_bytes() const { return static_cast<size_t>(head()->metadata_bytes); }
};

/// Checks and maps the file. Nothing of it runs before all checks have passed. The processor's features are checked by
/// check_features(), once the metadata is read.
cuvil_status map_artifact(const char* path, const cuvil_load_options* options, MappedArtifact* out);
void unmap_artifact(MappedArtifact* artifact);

/// Whether this processor has every feature in `list`, "+avx2,+fma,-avx512f". Features this runtime does not know count
/// as there.
cuvil_status check_features(const char* list, size_t length);

}  // namespace cuvil::runtime
