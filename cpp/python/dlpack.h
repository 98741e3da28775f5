/* What Cuvil needs of DLPack's binary interface, version 1: tensor descriptors, the two kinds of capsule, and the table
 * of C functions that a tensor type offers as __dlpack_c_exchange_api__. Names and layouts are those of the standard.
 */
#ifndef CUVIL_PYTHON_DLPACK_H
#define CUVIL_PYTHON_DLPACK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kDLCPU = 1 };
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };
enum {
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e4m3fnuz = 11,
  kDLFloat8_e5m2 = 12,
  kDLFloat8_e5m2fnuz = 13,
  kDLFloat8_e8m0fnu = 14
};

typedef struct {
  uint32_t major, minor;
} DLPackVersion;

typedef struct {
  int32_t device_type, device_id;
} DLDevice;

typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; null: dense and row-major */
  uint64_t byte_offset;
} DLTensor;

/* Capsule "dltensor". */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

/* Capsule "dltensor_versioned". */
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* Capsule "dlpack_exchange_api", an attribute of the tensor's type. Functions return 0, or -1 with an error set. */
typedef struct DLPackExchangeAPIHeader {
  DLPackVersion version;
  struct DLPackExchangeAPIHeader* prev_api; /* an older version, or null */
} DLPackExchangeAPIHeader;

typedef struct {
  DLPackExchangeAPIHeader header;
  int (*managed_tensor_allocator)(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_context,
                                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_tensor_from_py_object_no_sync)(void* object, DLManagedTensorVersioned** out);
  int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned* tensor, void** out); /* takes `tensor` over */
  int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);                      /* may be null */
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out);
} DLPackExchangeAPI;

#ifdef __cplusplus
}
#endif

#endif
