// Output tensors of a call, made in the framework of its inputs.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "ir/dtype.hpp"
#include "python/dlpack.h"

namespace cuvil::python {

/// Where the results of a call go: tensors of an exchange table's framework, or NumPy arrays, which `like` (another
/// framework's tensor, or null) may then take over without a copy. Element types that DLPack lacks give NumPy arrays
/// always.
struct ResultKind {
  const DLPackExchangeAPI* api = nullptr;
  PyObject* like = nullptr;
};

/// The kind of the first argument that is a tensor.
ResultKind kind_of(PyObject* const* arguments, Py_ssize_t count);

/// One result: memory to write to, then a Python object. Needs the GIL.
class Result {
 public:
  Result() = default;
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result();

  /// Throws py::error_already_set, or std::bad_alloc.
  void allocate(const ResultKind& kind, DType dtype, const int64_t* shape, int rank);
  void* data() const { return data_; }
  /// The finished tensor, a new reference; once.
  PyObject* take(const ResultKind& kind);

 private:
  void allocate_numpy(const ResultKind& kind, DType dtype, const int64_t* shape, int rank);

  void* data_ = nullptr;
  DLManagedTensorVersioned* managed_ = nullptr;
  PyObject* array_ = nullptr;
  const char* extension_ = nullptr;  // what the array's elements are for ml_dtypes
};

}  // namespace cuvil::python
