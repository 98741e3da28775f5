#include "python/tensor_kinds.hpp"

#include <array>

namespace cuvil::python {

namespace {

constexpr uint8_t kNoCode = 255;

struct Row {
  DType dtype;
  uint8_t code, bits;  // DLPack's; kNoCode where it has no type of one element a byte
  const char* numpy;
  const char* extension;  // ml_dtypes' name of what NumPy itself holds as `numpy`
};

constexpr Row kRows[] = {
    {DType::f32, kDLFloat, 32, "float32", nullptr},
    {DType::f64, kDLFloat, 64, "float64", nullptr},
    {DType::f16, kDLFloat, 16, "float16", nullptr},
    {DType::bf16, kDLBfloat, 16, "uint16", "bfloat16"},
    {DType::i8, kDLInt, 8, "int8", nullptr},
    {DType::i16, kDLInt, 16, "int16", nullptr},
    {DType::i32, kDLInt, 32, "int32", nullptr},
    {DType::i64, kDLInt, 64, "int64", nullptr},
    {DType::u8, kDLUInt, 8, "uint8", nullptr},
    {DType::u16, kDLUInt, 16, "uint16", nullptr},
    {DType::u32, kDLUInt, 32, "uint32", nullptr},
    {DType::u64, kDLUInt, 64, "uint64", nullptr},
    {DType::boolean, kDLBool, 8, "bool", nullptr},
    {DType::f8e4m3fn, kDLFloat8_e4m3fn, 8, "uint8", "float8_e4m3fn"},
    {DType::f8e4m3fnuz, kDLFloat8_e4m3fnuz, 8, "uint8", "float8_e4m3fnuz"},
    {DType::f8e5m2, kDLFloat8_e5m2, 8, "uint8", "float8_e5m2"},
    {DType::f8e5m2fnuz, kDLFloat8_e5m2fnuz, 8, "uint8", "float8_e5m2fnuz"},
    {DType::f8e8m0fnu, kDLFloat8_e8m0fnu, 8, "uint8", "float8_e8m0fnu"},
    {DType::f6e2m3fn, kNoCode, 8, "uint8", "float6_e2m3fn"},
    {DType::f6e3m2fn, kNoCode, 8, "uint8", "float6_e3m2fn"},
    {DType::f4e2m1fn, kNoCode, 8, "uint8", "float4_e2m1fn"},
    {DType::u4, kNoCode, 8, "uint8", "uint4"},
    {DType::i4, kNoCode, 8, "uint8", "int4"},
    {DType::u2, kNoCode, 8, "uint8", "uint2"},
    {DType::i2, kNoCode, 8, "uint8", "int2"},
};

const Row& row(DType t) {
  for (const Row& r : kRows) {
    if (r.dtype == t) return r;
  }
  return kRows[0];
}

std::optional<DType> find(uint8_t code, unsigned bits) {
  for (const Row& r : kRows) {
    if (r.code == code && r.code != kNoCode && r.bits == bits) return r.dtype;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> dtype_from_dlpack(DLDataType t) {
  if (t.lanes != 1) return std::nullopt;
  return find(t.code, t.bits);
}

std::optional<DLDataType> dtype_to_dlpack(DType t) {
  if (row(t).code == kNoCode) return std::nullopt;
  return DLDataType{row(t).code, row(t).bits, 1};
}

std::string dlpack_name(DLDataType t) {
  if (auto known = dtype_from_dlpack(t)) return std::string(name_of(*known));
  const std::string bits = std::to_string(t.bits);
  switch (t.code) {
    case kDLInt:
      return "int" + bits;
    case kDLUInt:
      return "uint" + bits;
    case kDLFloat:
      return "float" + bits;
    case kDLComplex:
      return "complex" + bits;
    default:
      return "an element type of " + bits + " bits";
  }
}

std::optional<DType> dtype_from_format(const char* format, Py_ssize_t item_size) {
  if (!format) return DType::u8;
  if (*format == '@' || *format == '=') ++format;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if (*format == '<') ++format;
#else
  if (*format == '>' || *format == '!') ++format;
#endif
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  const unsigned bits = static_cast<unsigned>(item_size) * 8;
  switch (*format) {
    case '?':
      return DType::boolean;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return find(kDLInt, bits);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return find(kDLUInt, bits);
    case 'e':
    case 'f':
    case 'd':
      return find(kDLFloat, bits);
    default:
      return std::nullopt;
  }
}

const char* numpy_name(DType t) {
  return row(t).numpy;
}

const char* extension_name(DType t) {
  return row(t).extension;
}

std::optional<DType> dtype_from_any_name(std::string_view name) {
  if (name == "bool") return DType::boolean;
  for (const Row& r : kRows) {
    if (name == (r.extension ? r.extension : r.numpy)) return r.dtype;
  }
  return dtype_from_name(name);
}

const DLPackExchangeAPI* exchange_api(PyObject* object) {
  struct Entry {
    PyTypeObject* type = nullptr;  // a reference is held, so the address is not reused
    const DLPackExchangeAPI* api = nullptr;
  };
  static std::array<Entry, 8> cache;
  static size_t next = 0;
  PyTypeObject* type = Py_TYPE(object);
  for (const Entry& e : cache) {
    if (e.type == type) return e.api;
  }
  const DLPackExchangeAPI* api = nullptr;
  PyObject* capsule = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    auto* header = static_cast<const DLPackExchangeAPIHeader*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    while (header && header->version.major != 1) header = header->prev_api;
    api = reinterpret_cast<const DLPackExchangeAPI*>(header);
  }
  Py_XDECREF(capsule);
  PyErr_Clear();
  Entry& entry = cache[next++ % cache.size()];
  Py_INCREF(type);
  PyTypeObject* old = entry.type;
  entry = {type, api};
  Py_XDECREF(old);
  return api;
}

}  // namespace cuvil::python
