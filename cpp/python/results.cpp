#include "python/results.hpp"

#include <cstring>
#include <memory>
#include <string>

#include "python/tensor_kinds.hpp"

namespace cuvil::python {

namespace {

// NumPy is imported by the first call that needs it. Kept for the life of the process.
struct Numpy {
  PyObject* empty;
  PyObject* dtypes[32];
};

const Numpy& numpy() {
  static const Numpy* loaded = nullptr;
  if (loaded) return *loaded;
  py::module_ module = py::module_::import("numpy");
  auto fresh = std::make_unique<Numpy>();
  fresh->empty = py::object(module.attr("empty")).release().ptr();
#define X(name, type, bytes, kind) \
  fresh->dtypes[static_cast<size_t>(DType::name)] = module.attr("dtype")(numpy_name(DType::name)).release().ptr();
  CUVIL_DTYPES(X)
#undef X
  loaded = fresh.release();
  return *loaded;
}

// The function by which the framework of `like` takes a NumPy array over: its package's from_dlpack.
py::object taker_of(PyObject* like) {
  auto package_name =
      py::str(py::handle(reinterpret_cast<PyObject*>(Py_TYPE(like))).attr("__module__")).cast<std::string>();
  package_name = package_name.substr(0, package_name.find('.'));
  if (package_name == "jaxlib") package_name = "jax";
  py::object modules = py::module_::import("sys").attr("modules");
  for (const std::string& name : {package_name, package_name + ".dlpack"}) {
    py::object module = modules.attr("get")(name, py::none());
    if (py::hasattr(module, "from_dlpack")) return module.attr("from_dlpack");
  }
  return py::none();
}

struct AllocationError {
  std::string message;
};

void note_error(void* context, const char*, const char* message) {
  static_cast<AllocationError*>(context)->message = message ? message : "";
}

}  // namespace

ResultKind kind_of(PyObject* const* arguments, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (const DLPackExchangeAPI* api = exchange_api(arguments[i])) return {api, nullptr};
    // Arrays of other frameworks may offer a buffer too.
    const char* type_name = Py_TYPE(arguments[i])->tp_name;
    const bool numpy_array = type_name && std::strcmp(type_name, "numpy.ndarray") == 0;
    if (numpy_array || (PyObject_CheckBuffer(arguments[i]) && !PyObject_HasAttrString(arguments[i], "__dlpack__")))
      return {};
    if (PyObject_HasAttrString(arguments[i], "__dlpack__")) return {nullptr, arguments[i]};
  }
  return {};
}

Result::~Result() {
  if (managed_ && managed_->deleter) managed_->deleter(managed_);
  Py_XDECREF(array_);
}

void Result::allocate(const ResultKind& kind, DType dtype, const int64_t* shape, int rank) {
  const std::optional<DLDataType> element = dtype_to_dlpack(dtype);
  if (!kind.api || !element) return allocate_numpy(kind, dtype, shape, rank);
  DLTensor prototype = {};
  prototype.device = {kDLCPU, 0};
  prototype.ndim = rank;
  prototype.dtype = *element;
  prototype.shape = const_cast<int64_t*>(shape);
  AllocationError error;
  if (kind.api->managed_tensor_allocator(&prototype, &managed_, &error, note_error) != 0) {
    managed_ = nullptr;
    PyErr_Clear();
    PyErr_SetString(PyExc_RuntimeError, ("cannot allocate an output: " + error.message).c_str());
    throw py::error_already_set();
  }
  data_ = static_cast<char*>(managed_->dl_tensor.data) + managed_->dl_tensor.byte_offset;
}

void Result::allocate_numpy(const ResultKind&, DType dtype, const int64_t* shape, int rank) {
  const Numpy& np = numpy();
  PyObject* sizes = PyTuple_New(rank);
  if (!sizes) throw py::error_already_set();
  for (int i = 0; i < rank; ++i) PyTuple_SET_ITEM(sizes, i, PyLong_FromLongLong(shape[i]));
  array_ = PyObject_CallFunctionObjArgs(np.empty, sizes, np.dtypes[static_cast<size_t>(dtype)], nullptr);
  Py_DECREF(sizes);
  if (!array_) throw py::error_already_set();
  extension_ = extension_name(dtype);
  Py_buffer view;
  if (PyObject_GetBuffer(array_, &view, PyBUF_WRITABLE) != 0) throw py::error_already_set();
  data_ = view.buf;
  PyBuffer_Release(&view);  // nobody else knows the array yet, so its memory stays
}

PyObject* Result::take(const ResultKind& kind) {
  if (managed_) {
    void* object = nullptr;
    DLManagedTensorVersioned* tensor = managed_;
    managed_ = nullptr;
    if (kind.api->managed_tensor_to_py_object_no_sync(tensor, &object) != 0) throw py::error_already_set();
    return static_cast<PyObject*>(object);
  }
  py::object array = py::reinterpret_steal<py::object>(array_);
  array_ = nullptr;
  if (extension_ && !kind.like) {
    try {
      array = array.attr("view")(py::module_::import("ml_dtypes").attr(extension_));
    } catch (py::error_already_set& e) {
      if (!e.matches(PyExc_ImportError)) throw;  // without ml_dtypes the bits stay unsigned integers
    }
  }
  if (kind.like) {
    if (py::object taker = taker_of(kind.like); !taker.is_none()) array = taker(array);
  }
  return array.release().ptr();
}

}  // namespace cuvil::python
