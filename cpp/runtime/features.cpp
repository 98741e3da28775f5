// The processor's features, by the names that compiled models are marked with.
#include <string.h>

#include "runtime/artifact.hpp"

namespace cuvil::runtime {

namespace {

#if defined(__x86_64__)
struct Feature {
  const char* name;
  bool (*present)();
};

#define CUVIL_FEATURE(text)                                \
  Feature {                                                \
    text, [] { return __builtin_cpu_supports(text) != 0; } \
  }

constexpr Feature kFeatures[] = {
    CUVIL_FEATURE("popcnt"),       CUVIL_FEATURE("sse3"),       CUVIL_FEATURE("ssse3"),
    CUVIL_FEATURE("sse4.1"),       CUVIL_FEATURE("sse4.2"),     CUVIL_FEATURE("avx"),
    CUVIL_FEATURE("avx2"),         CUVIL_FEATURE("fma"),        CUVIL_FEATURE("bmi"),
    CUVIL_FEATURE("bmi2"),         CUVIL_FEATURE("avx512f"),    CUVIL_FEATURE("avx512bw"),
    CUVIL_FEATURE("avx512cd"),     CUVIL_FEATURE("avx512dq"),   CUVIL_FEATURE("avx512vl"),
    CUVIL_FEATURE("avx512vbmi"),   CUVIL_FEATURE("avx512ifma"), CUVIL_FEATURE("avx512vnni"),
    CUVIL_FEATURE("avx512bitalg"), CUVIL_FEATURE("gfni"),       CUVIL_FEATURE("vpclmulqdq"),
};

bool has_feature(const char* name, size_t length) {
  __builtin_cpu_init();
  for (const Feature& f : kFeatures) {
    if (strlen(f.name) == length && memcmp(f.name, name, length) == 0) return f.present();
  }
  return true;
}
#else
bool has_feature(const char*, size_t) {
  return true;
}
#endif

}  // namespace

cuvil_status check_features(const char* list, size_t length) {
  const char* end = list + length;
  while (list < end) {
    const void* comma = memchr(list, ',', static_cast<size_t>(end - list));
    const char* stop = comma ? static_cast<const char*>(comma) : end;
    if (*list == '+' && !has_feature(list + 1, static_cast<size_t>(stop - list - 1))) {
      return set_error(CUVIL_STATUS_MACHINE, "the model was compiled for processors with %.*s, which this one lacks",
                       static_cast<int>(stop - list - 1), list + 1);
    }
    list = stop + 1;
  }
  return CUVIL_STATUS_OK;
}

}  // namespace cuvil::runtime
