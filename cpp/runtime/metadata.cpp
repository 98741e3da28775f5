#include "runtime/metadata.hpp"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/artifact.hpp"

namespace cuvil::runtime {

namespace {

constexpr const char* kDtypeNames[] = {
    "bool",     "u8",       "i8",       "u16", "i16",      "u32",        "i32",    "u64",        "i64",
    "f16",      "bf16",     "f32",      "f64", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu",
    "f6e2m3fn", "f6e3m2fn", "f4e2m1fn", "u4",  "i4",       "u2",         "i2"};

int32_t dtype_of(const char* name) {
  for (int32_t i = 0; i < static_cast<int32_t>(sizeof kDtypeNames / sizeof *kDtypeNames); ++i) {
    if (strcmp(name, kDtypeNames[i]) == 0) return i;
  }
  return -1;
}

// -1 for a size that is not a number.
int64_t number_of(const char* text) {
  char* end = nullptr;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  return errno == 0 && end != text && *end == '\0' && value >= 0 ? value : -1;
}

void unescape(char* field) {
  char* to = field;
  for (const char* p = field; *p; ++p) {
    if (*p == '\\' && p[1]) {
      ++p;
      *to++ = *p == 't' ? '\t' : *p == 'n' ? '\n' : *p;
    } else {
      *to++ = *p;
    }
  }
  *to = '\0';
}

// Cuts a line into its fields, in place; how many there are.
int32_t split(char* line, char** fields) {
  int32_t count = 0;
  for (char* p = line; p; ++count) {
    char* tab = strchr(p, '\t');
    if (tab) *tab = '\0';
    unescape(p);
    fields[count] = p;
    p = tab ? tab + 1 : nullptr;
  }
  return count;
}

}  // namespace

cuvil_status read_metadata(const char* text, size_t bytes, Metadata* out) {
  size_t lines = 1, fields = 1;
  for (size_t i = 0; i < bytes; ++i) {
    lines += text[i] == '\n';
    fields += text[i] == '\n' || text[i] == '\t';
  }
  // Tensors of both kinds, then sizes, texts of sizes and the fields of a line, then the text itself.
  const size_t tensors = 2 * lines * sizeof(cuvil_tensor_info), words = 3 * fields * sizeof(int64_t);
  char* memory = static_cast<char*>(calloc(1, tensors + words + bytes + 1));
  if (!memory) return set_error(CUVIL_STATUS_MEMORY, "out of memory");
  out->memory = memory;
  out->inputs = reinterpret_cast<cuvil_tensor_info*>(memory);
  out->outputs = out->inputs + lines;
  auto* sizes = reinterpret_cast<int64_t*>(memory + tensors);
  auto* size_texts = reinterpret_cast<const char**>(sizes + fields);
  auto* row = reinterpret_cast<char**>(sizes + 2 * fields);
  char* at = memory + tensors + words;
  memcpy(at, text, bytes);
  while (at && *at) {
    char* line = at;
    at = strchr(line, '\n');
    if (at) *at++ = '\0';
    const int32_t count = split(line, row);
    const bool is_input = strcmp(row[0], "input") == 0;
    if ((is_input || strcmp(row[0], "output") == 0) && count >= 3) {
      cuvil_tensor_info& info = is_input ? out->inputs[out->input_count++] : out->outputs[out->output_count++];
      info = {row[1], dtype_of(row[2]), count - 3, sizes, size_texts};
      for (int32_t i = 3; i < count; ++i) {
        *sizes++ = number_of(row[i]);
        *size_texts++ = row[i];
      }
    } else if (strcmp(row[0], "symbol") == 0) {
      ++out->symbol_count;
    } else if (strcmp(row[0], "target") == 0 && count == 2) {
      out->target = row[1];
    } else if (strcmp(row[0], "features") == 0 && count == 2) {
      out->features = row[1];
    }
  }
  return CUVIL_STATUS_OK;
}

}  // namespace cuvil::runtime
