#include "ir/dtype.hpp"

namespace cuvil {

namespace {

struct Row {
  std::string_view name;
  size_t bytes;
  char kind;
};

constexpr Row kRows[] = {
#define X(name, type, bytes, kind) {#name, bytes, kind},
    CUVIL_DTYPES(X)
#undef X
};

const Row& row(DType t) {
  return kRows[static_cast<size_t>(t)];
}

}  // namespace

size_t size_of(DType t) {
  return row(t).bytes;
}

std::string_view name_of(DType t) {
  return t == DType::boolean ? "bool" : row(t).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  if (name == "bool") return DType::boolean;
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool is_float(DType t) {
  return row(t).kind == 'f';
}
bool is_signed_int(DType t) {
  return row(t).kind == 'i';
}
bool is_unsigned_int(DType t) {
  return row(t).kind == 'u';
}
bool is_integer(DType t) {
  return is_signed_int(t) || is_unsigned_int(t);
}
bool is_narrow(DType t) {
  return row(t).kind == 'n';
}

}  // namespace cuvil
