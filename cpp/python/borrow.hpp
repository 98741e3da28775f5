// Input tensors of a call, borrowed from Python objects without a copy where possible.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/tensor.hpp"
#include "ir/type.hpp"
#include "python/dlpack.h"
#include "python/tensor_kinds.hpp"

namespace cuvil::python {

/// An argument that does not fit; becomes cuvil.InputError.
class InputFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// As InputFault, where another size of some axis would do; becomes cuvil.ShapeError.
class ShapeFault : public InputFault {
 public:
  using InputFault::InputFault;
};

/// A dense, aligned, row-major view of one argument. What it borrows is released by its destructor, which needs the
/// GIL.
class BorrowedTensor {
 public:
  BorrowedTensor() = default;
  BorrowedTensor(const BorrowedTensor&) = delete;
  BorrowedTensor& operator=(const BorrowedTensor&) = delete;
  ~BorrowedTensor();

  /// `name` and `expected` are for messages, and for the conversion of Python numbers. Throws InputFault.
  void borrow(PyObject* object, const std::string& name, const Type& expected);

  const void* data() const { return data_; }
  const int64_t* shape() const { return shape_; }
  int rank() const { return rank_; }

 private:
  bool borrow_exchange(PyObject* object, const std::string& name, const Type& expected);
  bool borrow_buffer(PyObject* object, const std::string& name, const Type& expected);
  bool borrow_dlpack(PyObject* object, const std::string& name, const Type& expected);
  bool borrow_extension(PyObject* object, const std::string& name, const Type& expected);
  bool borrow_number(PyObject* object, const std::string& name, const Type& expected);
  void set_dlpack(const DLTensor& t, const std::string& name, const Type& expected);
  void set(const char* data, const int64_t* shape, const int64_t* byte_strides, int rank, const std::string& name,
           const Type& expected);
  void check_dtype(std::optional<DType> actual, const std::string& actual_name, const std::string& name,
                   const Type& expected) const;

  const void* data_ = nullptr;
  const int64_t* shape_ = nullptr;
  int rank_ = 0;
  Py_buffer view_ = {};
  bool has_view_ = false;
  PyObject* keep_ = nullptr;                     // a capsule or a derived object
  DLManagedTensorVersioned* managed_ = nullptr;  // taken over from an exchange table
  std::unique_ptr<char[]> copy_;
  int64_t number_[1] = {};
};

/// A tensor of its own with the elements of any Python tensor or number. Throws InputFault.
Tensor copy_of(PyObject* object, const std::string& name);

/// "f32[2, 3]"
std::string type_text(DType dtype, const int64_t* shape, int rank);

}  // namespace cuvil::python
