/* The contract between compiled code and the runtime. Plain C; compiled code has no undefined symbols and reaches the
 * outside world only through cuvil_services. */
#ifndef CUVIL_RUNTIME_ABI_H
#define CUVIL_RUNTIME_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUVIL_ABI_VERSION 1

/* Runs iterations [begin, end) of a kernel. `args` is the kernel's own block of pointers and sizes. */
typedef void (*cuvil_kernel_fn)(const void* args, int64_t begin, int64_t end);

typedef struct cuvil_services {
  uint32_t version; /* CUVIL_ABI_VERSION */
  uint32_t measure; /* 0: kernels too small to share may be called directly, without parallel_for */
  void* context;
  /* Covers [0, count) with calls of `kernel` on disjoint ranges whose bounds are multiples of `chunk` (but for the
   * last), on any number of threads, and returns when all are done. `index` is the kernel's number in the model's
   * kernel table. */
  void (*parallel_for)(void* context, int32_t index, cuvil_kernel_fn kernel, const void* args, int64_t count,
                       int64_t chunk);
} cuvil_services;

enum {
  CUVIL_OK = 0,
  CUVIL_E_SIZE = 1,  /* an input's size does not fit: detail = {input, axis, expected, actual} */
  CUVIL_E_RANGE = 2, /* a symbol left its declared bounds: detail = {input, axis, bound, actual} */
  CUVIL_E_INDEX = 3, /* an index tensor held a value outside its axis: detail = {value, size, kernel, 0} */
  CUVIL_E_MEMORY = 4 /* the arena could not be allocated: detail = {bytes, 0, 0, 0}; only the runtime returns it */
};

/* From the inputs' shapes: the values of the model's symbols, the outputs' shapes and the bytes of arena a run needs.
 * The caller provides symbols[symbol_count] and output_shapes[i][rank of output i]. */
typedef int32_t (*cuvil_plan_fn)(const int64_t* const* input_shapes, int64_t* symbols, int64_t* const* output_shapes,
                                 int64_t* arena_bytes, int64_t* detail);

/* One run. Inputs and outputs are dense and row-major, aligned to their element size; `arena` and `weights` are aligned
 * to 64 bytes. Outputs do not overlap inputs. */
typedef int32_t (*cuvil_run_fn)(const cuvil_services* services, const void* const* inputs, void* const* outputs,
                                const void* weights, void* arena, const int64_t* symbols, int64_t* detail);

/* The head of a compiled model's file, at CUVIL_ARTIFACT_OFFSET from its start and, under the name cuvil_artifact, in
 * memory. Positions are bytes from the start of the file, which is also the base of the image. */
#define CUVIL_ARTIFACT_OFFSET 512
#define CUVIL_ARTIFACT_MAGIC 0x4c45444f4d565543ull /* "CUVMODEL" */
#define CUVIL_ARTIFACT_SYMBOL "cuvil_artifact"
#define CUVIL_ARTIFACT_SONAME "libcuvil-model.so.1" /* the number is CUVIL_ABI_VERSION */

typedef struct cuvil_artifact {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t machine;       /* e_machine */
  uint64_t code_checksum; /* of this structure from `file_bytes` on, up to the weights */
  uint64_t weights_checksum;
  uint64_t file_bytes;
  uint64_t plan, run; /* functions */
  uint64_t weights, weights_bytes;
  uint64_t metadata, metadata_bytes; /* text, see runtime/metadata.hpp */
  uint64_t exports_hash;             /* of the names of the exported symbols */
} cuvil_artifact;

/* A 64-bit hash of `bytes` bytes, continued from `seed`: guards against damage, not against forgery. */
static inline uint64_t cuvil_hash(const void* data, uint64_t bytes, uint64_t seed) {
  const uint64_t prime = 0x9e3779b97f4a7c15ull;
  const unsigned char* p = (const unsigned char*)data;
  uint64_t lanes[4];
  uint64_t word, i;
  int k;
  for (k = 0; k < 4; ++k) lanes[k] = seed + prime * (uint64_t)(k + 1);
  for (i = 0; i + 32 <= bytes; i += 32) {
    for (k = 0; k < 4; ++k) {
      __builtin_memcpy(&word, p + i + 8 * k, 8);
      lanes[k] = (lanes[k] ^ word) * prime;
      lanes[k] ^= lanes[k] >> 29;
    }
  }
  for (; i < bytes; ++i) lanes[i & 3] = (lanes[i & 3] ^ p[i]) * prime;
  word = bytes;
  for (k = 0; k < 4; ++k) word = (word ^ lanes[k]) * prime, word ^= word >> 32;
  return word;
}

#ifdef __cplusplus
}
#endif

#endif
