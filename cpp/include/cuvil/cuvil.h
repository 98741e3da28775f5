/* Running compiled models without Python and without the compiler: the C interface of libcuvil_runtime.
 *
 *   cuvil_model *model = NULL;
 *   if (cuvil_model_load("model.so", NULL, &model) != CUVIL_STATUS_OK) puts(cuvil_error_message());
 *   cuvil_model_run(model, inputs, outputs);
 *   cuvil_model_free(model);
 *
 * Every function may be called from any thread, and one model may run in several threads at once, except that
 * cuvil_model_free() must not overlap another call with the same model. */
#ifndef CUVIL_CUVIL_H
#define CUVIL_CUVIL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define CUVIL_API
#else
#define CUVIL_API __attribute__((visibility("default")))
#endif

typedef enum cuvil_status {
  CUVIL_STATUS_OK = 0,
  CUVIL_STATUS_ARGUMENT = 1, /* a null pointer, or a number of inputs or outputs that is not the model's */
  CUVIL_STATUS_FILE = 2,     /* the file cannot be opened or read */
  CUVIL_STATUS_FORMAT = 3,   /* not a compiled model, or damaged: truncated, altered */
  CUVIL_STATUS_VERSION = 4,  /* compiled for another version of this runtime's interface */
  CUVIL_STATUS_MACHINE = 5,  /* compiled for another machine, or for features this processor lacks */
  CUVIL_STATUS_UNSAFE = 6,   /* others than its owner and root may write the file */
  CUVIL_STATUS_SHAPE = 7,    /* sizes or an element type that do not fit the model */
  CUVIL_STATUS_INDEX = 8,    /* an index tensor points outside its axis */
  CUVIL_STATUS_MEMORY = 9    /* out of memory */
} cuvil_status;

typedef enum cuvil_dtype {
  CUVIL_BOOL = 0,
  CUVIL_U8 = 1,
  CUVIL_I8 = 2,
  CUVIL_U16 = 3,
  CUVIL_I16 = 4,
  CUVIL_U32 = 5,
  CUVIL_I32 = 6,
  CUVIL_U64 = 7,
  CUVIL_I64 = 8,
  CUVIL_F16 = 9,
  CUVIL_BF16 = 10,
  CUVIL_F32 = 11,
  CUVIL_F64 = 12,
  /* One element a byte, in its lowest bits. */
  CUVIL_F8E4M3FN = 13,
  CUVIL_F8E4M3FNUZ = 14,
  CUVIL_F8E5M2 = 15,
  CUVIL_F8E5M2FNUZ = 16,
  CUVIL_F8E8M0FNU = 17,
  CUVIL_F6E2M3FN = 18,
  CUVIL_F6E3M2FN = 19,
  CUVIL_F4E2M1FN = 20,
  CUVIL_U4 = 21,
  CUVIL_I4 = 22,
  CUVIL_U2 = 23,
  CUVIL_I2 = 24
} cuvil_dtype;

typedef struct cuvil_model cuvil_model;

/* A dense, row-major tensor in memory of the caller's, aligned to its element size. */
typedef struct cuvil_tensor {
  void* data;
  const int64_t* shape;
  int32_t rank;
  int32_t dtype; /* cuvil_dtype */
} cuvil_tensor;

/* What the model says of an input or output. */
typedef struct cuvil_tensor_info {
  const char* name;
  int32_t dtype; /* cuvil_dtype */
  int32_t rank;
  const int64_t* shape;         /* -1 where the size varies */
  const char* const* size_text; /* "1", "batch", "2*h + 1" */
} cuvil_tensor_info;

typedef struct cuvil_load_options {
  uint32_t size;                /* sizeof(cuvil_load_options) */
  uint32_t skip_weights_check;  /* 1: trust that the weights are undamaged, so that loading does not read them */
  uint32_t allow_shared_writes; /* 1: load a file that others than its owner may write */
} cuvil_load_options;

/* Checks the file (format, version, machine, processor, checksums, permissions), then maps it. The weights' pages are
 * shared by all processes that load it. On success *out is the model, to be given to cuvil_model_free(). */
CUVIL_API cuvil_status cuvil_model_load(const char* path, const cuvil_load_options* options_or_null, cuvil_model** out);
CUVIL_API void cuvil_model_free(cuvil_model* model);

CUVIL_API int32_t cuvil_model_input_count(const cuvil_model* model);
CUVIL_API int32_t cuvil_model_output_count(const cuvil_model* model);
/* Null if there is no such input or output. Valid until the model is freed. */
CUVIL_API const cuvil_tensor_info* cuvil_model_input(const cuvil_model* model, int32_t index);
CUVIL_API const cuvil_tensor_info* cuvil_model_output(const cuvil_model* model, int32_t index);
/* The target the model was compiled for. */
CUVIL_API const char* cuvil_model_target(const cuvil_model* model);

/* The outputs' shapes for inputs of these shapes (their data is not read): output i's sizes are written to
 * output_shapes[i], which has room for its rank. */
CUVIL_API cuvil_status cuvil_model_output_shapes(const cuvil_model* model, const cuvil_tensor* inputs,
                                                 int64_t* const* output_shapes);

/* Runs the model once. `inputs` and `outputs` have as many tensors as the model; outputs have the shapes that
 * cuvil_model_output_shapes() tells and do not overlap inputs. Intermediate memory is kept for the next run, so that
 * runs of one size allocate nothing. */
CUVIL_API cuvil_status cuvil_model_run(cuvil_model* model, const cuvil_tensor* inputs, const cuvil_tensor* outputs);
/* Frees the intermediate memory of runs that are over. */
CUVIL_API void cuvil_model_trim(cuvil_model* model);

/* What went wrong in the calling thread's last call that failed; never null. */
CUVIL_API const char* cuvil_error_message(void);

/* Threads of a run, the calling one included: 0 for as many as the process may use, its affinity and cgroup counted. */
CUVIL_API void cuvil_set_num_threads(int32_t count);
CUVIL_API int32_t cuvil_num_threads(void);

/* The version of the interface between compiled models and this runtime. */
CUVIL_API uint32_t cuvil_abi_version(void);

#ifdef __cplusplus
}
#endif

#endif
