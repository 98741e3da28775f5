#include "python/borrow.hpp"

#include <cstring>

#include "ir/tensor.hpp"

namespace cuvil::python {

namespace {

constexpr int kMaxRank = 32;

// Copies a strided tensor to a dense one. The innermost dense run is copied at once.
void copy_strided(char* to, const char* from, const int64_t* shape, const int64_t* byte_strides, int rank,
                  size_t size) {
  if (rank == 0) {
    std::memcpy(to, from, size);
    return;
  }
  int64_t run = static_cast<int64_t>(size);
  int outer = rank;
  while (outer > 0 && (shape[outer - 1] == 1 || byte_strides[outer - 1] == run)) run *= shape[--outer];
  int64_t index[kMaxRank] = {};
  while (true) {
    std::memcpy(to, from, static_cast<size_t>(run));
    to += run;
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      from += byte_strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= byte_strides[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

std::string type_name(PyObject* object) {
  const char* full = Py_TYPE(object)->tp_name;
  return full ? full : "object";
}

// Clears the error that is set and returns the first line of its text: PyTorch adds a stack trace of its own.
std::string take_error() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  std::string text = "unknown error";
  if (PyObject* s = value ? PyObject_Str(value) : nullptr) {
    if (const char* utf8 = PyUnicode_AsUTF8(s)) text = utf8;
    Py_DECREF(s);
  }
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return text.substr(0, text.find('\n'));
}

// `attribute` of a Python object as a true value; false when it is absent.
bool is_true(PyObject* object, const char* attribute) {
  PyObject* value = PyObject_GetAttrString(object, attribute);
  const int truth = value ? PyObject_IsTrue(value) : 0;
  Py_XDECREF(value);
  PyErr_Clear();
  return truth > 0;
}

}  // namespace

std::string type_text(DType dtype, const int64_t* shape, int rank) {
  std::string text = std::string(name_of(dtype)) + "[";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

BorrowedTensor::~BorrowedTensor() {
  if (has_view_) PyBuffer_Release(&view_);
  if (managed_ && managed_->deleter) managed_->deleter(managed_);
  Py_XDECREF(keep_);
}

void BorrowedTensor::borrow(PyObject* object, const std::string& name, const Type& expected) {
  if (borrow_exchange(object, name, expected) || borrow_buffer(object, name, expected) ||
      borrow_number(object, name, expected) || borrow_extension(object, name, expected) ||
      borrow_dlpack(object, name, expected)) {
    return;
  }
  throw InputFault("input '" + name + "': expected a tensor of type " + expected.str() + ", got " + type_name(object));
}

void BorrowedTensor::check_dtype(std::optional<DType> actual, const std::string& actual_name, const std::string& name,
                                 const Type& expected) const {
  if (actual == expected.dtype) return;
  throw InputFault("input '" + name + "': expected dtype " + std::string(name_of(expected.dtype)) + ", got " +
                   (actual ? std::string(name_of(*actual)) : actual_name));
}

void BorrowedTensor::set(const char* data, const int64_t* shape, const int64_t* byte_strides, int rank,
                         const std::string& name, const Type& expected) {
  if (rank != expected.rank() || rank > kMaxRank) {
    throw InputFault("input '" + name + "': expected " + expected.str() + " of rank " +
                     std::to_string(expected.rank()) + ", got " + type_text(expected.dtype, shape, rank) + " of rank " +
                     std::to_string(rank));
  }
  const size_t size = size_of(expected.dtype);
  int64_t dense = static_cast<int64_t>(size), elements = 1;
  bool contiguous = true;
  for (int i = rank - 1; i >= 0; --i) {
    if (byte_strides && shape[i] != 1 && byte_strides[i] != dense) contiguous = false;
    dense *= shape[i];
    elements *= shape[i];
  }
  shape_ = shape;
  rank_ = rank;
  data_ = data;
  if (elements == 0) return;
  if (contiguous && reinterpret_cast<uintptr_t>(data) % size == 0) return;
  copy_.reset(new char[static_cast<size_t>(dense)]);
  if (contiguous) {
    std::memcpy(copy_.get(), data, static_cast<size_t>(dense));
  } else {
    copy_strided(copy_.get(), data, shape, byte_strides, rank, size);
  }
  data_ = copy_.get();
}

void BorrowedTensor::set_dlpack(const DLTensor& t, const std::string& name, const Type& expected) {
  if (t.device.device_type != kDLCPU) {
    throw InputFault("input '" + name +
                     "': expected a tensor in host memory, got one on another device (DLPack device " +
                     std::to_string(t.device.device_type) + ":" + std::to_string(t.device.device_id) +
                     "); move it with .cpu() first");
  }
  check_dtype(dtype_from_dlpack(t.dtype), dlpack_name(t.dtype), name, expected);
  int64_t strides[kMaxRank];
  const int64_t size = static_cast<int64_t>(size_of(expected.dtype));
  if (t.strides) {
    for (int i = 0; i < t.ndim && i < kMaxRank; ++i) strides[i] = t.strides[i] * size;
  }
  set(static_cast<const char*>(t.data) + t.byte_offset, t.shape, t.strides ? strides : nullptr, t.ndim, name, expected);
}

bool BorrowedTensor::borrow_exchange(PyObject* object, const std::string& name, const Type& expected) {
  const DLPackExchangeAPI* api = exchange_api(object);
  if (!api) return false;
  if (api->dltensor_from_py_object_no_sync) {
    DLTensor t;
    if (api->dltensor_from_py_object_no_sync(object, &t) != 0) {
      throw InputFault("input '" + name + "': " + take_error());
    }
    set_dlpack(t, name, expected);
    return true;
  }
  if (api->managed_tensor_from_py_object_no_sync(object, &managed_) != 0) {
    throw InputFault("input '" + name + "': " + take_error());
  }
  set_dlpack(managed_->dl_tensor, name, expected);
  return true;
}

bool BorrowedTensor::borrow_buffer(PyObject* object, const std::string& name, const Type& expected) {
  if (!PyObject_CheckBuffer(object)) return false;
  if (PyObject_GetBuffer(object, &view_, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();  // NumPy's extension types (bfloat16) and objects: another way may be open
    return false;
  }
  has_view_ = true;
  if (view_.suboffsets) return false;
  const std::string format = view_.format ? view_.format : "bytes";
  check_dtype(dtype_from_format(view_.format, view_.itemsize), "elements of format '" + format + "'", name, expected);
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  set(static_cast<const char*>(view_.buf), reinterpret_cast<const int64_t*>(view_.shape),
      reinterpret_cast<const int64_t*>(view_.strides), view_.ndim, name, expected);
  return true;
}

// A number stands for a tensor of rank 0.
bool BorrowedTensor::borrow_number(PyObject* object, const std::string& name, const Type& expected) {
  if (!PyBool_Check(object) && !PyLong_Check(object) && !PyFloat_Check(object)) return false;
  if (expected.rank() != 0 || is_narrow(expected.dtype)) return false;
  Tensor value(expected.dtype, {});
  if (is_float(expected.dtype) || expected.dtype == DType::boolean) {
    const double v = PyFloat_AsDouble(object);
    if (PyErr_Occurred()) throw InputFault("input '" + name + "': " + take_error());
    if (expected.dtype == DType::boolean && !PyBool_Check(object)) {
      throw InputFault("input '" + name + "': expected a bool, got " + type_name(object));
    }
    value.set_double(0, v);
  } else {
    if (PyFloat_Check(object)) {
      throw InputFault("input '" + name + "': expected an integer (" + std::string(name_of(expected.dtype)) +
                       "), got float");
    }
    const long long v = PyLong_AsLongLong(object);
    if (PyErr_Occurred()) throw InputFault("input '" + name + "': " + take_error());
    value.set_int(0, v);
    if (value.get_int(0) != v) {
      throw InputFault("input '" + name + "': " + std::to_string(v) + " is too large for " +
                       std::string(name_of(expected.dtype)));
    }
  }
  std::memcpy(number_, value.data(), size_of(expected.dtype));
  data_ = number_;
  return true;
}

// NumPy arrays of ml_dtypes' types do not offer a buffer, but a view of them as unsigned integers does.
bool BorrowedTensor::borrow_extension(PyObject* object, const std::string& name, const Type& expected) {
  PyObject* dtype = PyObject_GetAttrString(object, "dtype");
  PyObject* dtype_name = dtype ? PyObject_GetAttrString(dtype, "name") : nullptr;
  const char* text = dtype_name && PyUnicode_Check(dtype_name) ? PyUnicode_AsUTF8(dtype_name) : nullptr;
  const std::optional<DType> actual = text ? dtype_from_any_name(text) : std::nullopt;
  const std::string actual_name = text ? text : "";
  Py_XDECREF(dtype_name);
  Py_XDECREF(dtype);
  PyErr_Clear();
  if (!actual || !extension_name(*actual) || !PyObject_HasAttrString(object, "view")) return false;
  check_dtype(actual, actual_name, name, expected);
  keep_ = PyObject_CallMethod(object, "view", "s", numpy_name(*actual));
  if (!keep_ || PyObject_GetBuffer(keep_, &view_, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  has_view_ = true;
  set(static_cast<const char*>(view_.buf), reinterpret_cast<const int64_t*>(view_.shape),
      reinterpret_cast<const int64_t*>(view_.strides), view_.ndim, name, expected);
  return true;
}

bool BorrowedTensor::borrow_dlpack(PyObject* object, const std::string& name, const Type& expected) {
  if (!PyObject_HasAttrString(object, "__dlpack__")) return false;
  py::object source = py::reinterpret_borrow<py::object>(object);
  if (is_true(object, "requires_grad")) source = source.attr("detach")();
  if (py::hasattr(source, "__dlpack_device__")) {
    const auto device = source.attr("__dlpack_device__")().cast<py::tuple>();
    const int device_type = py::int_(device[0]).cast<int>();
    if (device_type != kDLCPU) {
      DLTensor elsewhere = {};
      elsewhere.device = {device_type, py::int_(device[1]).cast<int>()};
      set_dlpack(elsewhere, name, expected);
    }
  }
  py::object capsule;
  try {
    capsule = source.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_TypeError)) throw InputFault("input '" + name + "': " + e.what());
  }
  try {
    if (!capsule) capsule = source.attr("__dlpack__")();
  } catch (py::error_already_set& e) {
    throw InputFault("input '" + name + "': " + e.what());
  }
  // The capsule, not renamed, stays the owner: dropping it releases the tensor.
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* t = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (t->version.major != 1) throw InputFault("input '" + name + "': its DLPack version is not supported");
    keep_ = capsule.release().ptr();
    set_dlpack(t->dl_tensor, name, expected);
    return true;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    auto* t = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    keep_ = capsule.release().ptr();
    set_dlpack(t->dl_tensor, name, expected);
    return true;
  }
  return false;
}

Tensor copy_of(PyObject* object, const std::string& name) {
  py::object array = py::module_::import("numpy").attr("asarray")(py::handle(object));
  const auto dtype_name = py::str(array.attr("dtype")).cast<std::string>();
  const std::optional<DType> dtype = dtype_from_any_name(dtype_name);
  if (!dtype) throw InputFault("input '" + name + "': elements of type " + dtype_name + " are not supported");
  Type type{*dtype, Shape(array.attr("ndim").cast<size_t>(), Dim(0))};
  BorrowedTensor borrowed;
  borrowed.borrow(array.ptr(), name, type);
  Tensor copy(*dtype, std::vector<int64_t>(borrowed.shape(), borrowed.shape() + borrowed.rank()));
  if (copy.num_bytes()) std::memcpy(copy.mutable_data(), borrowed.data(), copy.num_bytes());
  return copy;
}

}  // namespace cuvil::python
