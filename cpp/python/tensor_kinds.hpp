// The kinds of Python objects that hold tensors, and their element types in the three vocabularies: Cuvil's, DLPack's
// and the buffer protocol's.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "ir/dtype.hpp"
#include "python/dlpack.h"

namespace cuvil::python {

namespace py = pybind11;

/// nullopt for element types that Cuvil does not have.
std::optional<DType> dtype_from_dlpack(DLDataType t);
/// nullopt for those that DLPack does not have, or has packed only.
std::optional<DLDataType> dtype_to_dlpack(DType t);
std::string dlpack_name(DLDataType t);
/// `format` as in Python's struct module, native byte order only; null means bytes.
std::optional<DType> dtype_from_format(const char* format, Py_ssize_t item_size);
/// NumPy's name ("float32"); bf16 and narrow types have none and are held as unsigned integers.
const char* numpy_name(DType t);
/// The name that ml_dtypes adds to NumPy for such a type; null for the others.
const char* extension_name(DType t);
/// "torch.float32" style is not understood here: accepts Cuvil's and NumPy's names.
std::optional<DType> dtype_from_any_name(std::string_view name);

/// The exchange table of an object's type, or null. Looked up once per type. Needs the GIL.
const DLPackExchangeAPI* exchange_api(PyObject* object);

}  // namespace cuvil::python
