// Exceptions: the classes are Python's (cuvil/_errors.py); here C++ exceptions become them.
#include <pybind11/stl.h>

#include <cstring>
#include <new>

#include "import/onnx/import.hpp"
#include "python/bindings.hpp"
#include "python/borrow.hpp"
#include "python/call.hpp"
#include "support/error.hpp"

namespace cuvil::python {

namespace {

void set_error(const char* class_name, const char* message) {
  PyObject* module = PyImport_ImportModule("cuvil._errors");
  PyObject* type = module ? PyObject_GetAttrString(module, class_name) : nullptr;
  // Names in a damaged file may hold any bytes.
  PyObject* text = PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::strlen(message)), "backslashreplace");
  if (type && text) PyErr_SetObject(type, text);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(module);
}

}  // namespace

void set_python_error() {
  try {
    throw;
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const ShapeFault& e) {
    set_error("ShapeError", e.what());
  } catch (const InputFault& e) {
    set_error("InputError", e.what());
  } catch (const onnx::ValuesNeeded& e) {
    py::object type = py::module_::import("cuvil._errors").attr("ValuesNeededError");
    PyErr_SetObject(type.ptr(), py::make_tuple(e.what(), e.inputs, e.axes, e.all_inputs).ptr());
  } catch (const CompileError& e) {
    set_error("CompileError", e.what());
  } catch (const LoadError& e) {
    set_error("LoadError", e.what());
  } catch (const InternalError& e) {
    set_error("InternalError", e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    set_error("InternalError", e.what());
  }
}

void bind_errors(py::module_&) {
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const py::error_already_set&) {
      throw;  // pybind11's own
    } catch (const py::builtin_exception&) {
      throw;
    } catch (...) {
      set_python_error();
    }
  });
}

}  // namespace cuvil::python
