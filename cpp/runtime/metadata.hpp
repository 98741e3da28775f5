// What a compiled model's file says of itself: lines of fields parted by tabs, the first field naming the line. In
// fields, a tab, newline and backslash are written \t, \n and \\.
//
//   target    name
//   features  +avx2,+fma,…                of the processor
//   symbol    name                        in the order of plan()'s symbols
//   input     name  dtype  size…          sizes as text; likewise output
//   arena     size                        and lines that only tools read
#pragma once

#include <stddef.h>

#include "cuvil/cuvil.h"

namespace cuvil::runtime {

/// The metadata in one piece of memory.
struct Metadata {
  void* memory = nullptr;  // holds everything below; free() it
  const char* target = "";
  const char* features = "";
  int32_t symbol_count = 0;
  int32_t input_count = 0, output_count = 0;
  cuvil_tensor_info* inputs = nullptr;
  cuvil_tensor_info* outputs = nullptr;
};

/// Reads `bytes` bytes of text.
cuvil_status read_metadata(const char* text, size_t bytes, Metadata* out);

}  // namespace cuvil::runtime
