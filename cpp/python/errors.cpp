// Exceptions: the classes are Python's (cuvil/_errors.py); here C++ exceptions become them.
#include "support/error.hpp"

#include <new>

#include "python/bindings.hpp"
#include "python/borrow.hpp"
#include "python/call.hpp"

namespace cuvil::python {

namespace {

void set_error(const char* class_name, const char* message) {
  PyObject* module = PyImport_ImportModule("cuvil._errors");
  PyObject* type = module ? PyObject_GetAttrString(module, class_name) : nullptr;
  if (type) PyErr_SetString(type, message);
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
  } catch (const CompileError& e) {
    set_error("CompileError", e.what());
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
    } catch (const ShapeFault& e) {
      set_error("ShapeError", e.what());
    } catch (const InputFault& e) {
      set_error("InputError", e.what());
    } catch (const CompileError& e) {
      set_error("CompileError", e.what());
    } catch (const InternalError& e) {
      set_error("InternalError", e.what());
    }
  });
}

}  // namespace cuvil::python
