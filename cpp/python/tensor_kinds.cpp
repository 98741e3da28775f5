#include "python/tensor_kinds.hpp"

#include <array>

namespace cuvil::python {

namespace {

struct Row {
  DType dtype;
  uint8_t code, bits;
  const char* numpy;
};

constexpr Row kRows[] = {
    {DType::f32, kDLFloat, 32, "float32"}, {DType::f64, kDLFloat, 64, "float64"},
    {DType::f16, kDLFloat, 16, "float16"}, {DType::bf16, kDLBfloat, 16, "uint16"},
    {DType::i8, kDLInt, 8, "int8"},        {DType::i16, kDLInt, 16, "int16"},
    {DType::i32, kDLInt, 32, "int32"},     {DType::i64, kDLInt, 64, "int64"},
    {DType::u8, kDLUInt, 8, "uint8"},      {DType::u16, kDLUInt, 16, "uint16"},
    {DType::u32, kDLUInt, 32, "uint32"},   {DType::u64, kDLUInt, 64, "uint64"},
    {DType::boolean, kDLBool, 8, "bool"},
};

const Row& row(DType t) {
  for (const Row& r : kRows) {
    if (r.dtype == t) return r;
  }
  return kRows[0];
}

std::optional<DType> find(uint8_t code, unsigned bits) {
  for (const Row& r : kRows) {
    if (r.code == code && r.bits == bits) return r.dtype;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> dtype_from_dlpack(DLDataType t) {
  if (t.lanes != 1) return std::nullopt;
  return find(t.code, t.bits);
}

DLDataType dtype_to_dlpack(DType t) {
  return {row(t).code, row(t).bits, 1};
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

std::optional<DType> dtype_from_any_name(std::string_view name) {
  if (name == "bfloat16") return DType::bf16;
  if (name == "bool") return DType::boolean;
  for (const Row& r : kRows) {
    if (r.dtype != DType::bf16 && name == r.numpy) return r.dtype;
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
