#include "import/onnx/wire.hpp"

#include <cstring>

#include "support/error.hpp"

namespace cuvil::onnx {

namespace {

[[noreturn]] void malformed(const char* what) {
  throw CompileError("malformed ONNX file: " + std::string(what));
}

template <typename T>
T from_bits(uint64_t bits) {
  T v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

}  // namespace

int64_t Field::as_int() const {
  if (wire != Wire::Varint) malformed("an integer field has another wire type");
  return static_cast<int64_t>(bits);
}

float Field::as_float() const {
  if (wire != Wire::Fixed32) malformed("a float field has another wire type");
  return from_bits<float>(bits);
}

std::string_view Field::as_bytes() const {
  if (wire != Wire::Bytes) malformed("a string or message field has another wire type");
  return bytes;
}

uint64_t WireReader::varint() {
  uint64_t v = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (pos_ >= bytes_.size()) malformed("it ends inside a number");
    auto byte = static_cast<unsigned char>(bytes_[pos_++]);
    if (shift == 63 && byte > 1) malformed("a number of more than 64 bits");
    v |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return v;
  }
  malformed("a number of more than 10 bytes");
}

uint64_t WireReader::fixed(size_t size) {
  if (bytes_.size() - pos_ < size) malformed("it ends inside a number");
  uint64_t v = 0;
  std::memcpy(&v, bytes_.data() + pos_, size);
  pos_ += size;
  return v;
}

bool WireReader::next(Field& field) {
  if (pos_ >= bytes_.size()) return false;
  uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) malformed("a field number out of range");
  field.number = static_cast<uint32_t>(key >> 3);
  field.bytes = {};
  switch (key & 7) {
    case 0:
      field.wire = Field::Wire::Varint;
      field.bits = varint();
      return true;
    case 1:
      field.wire = Field::Wire::Fixed64;
      field.bits = fixed(8);
      return true;
    case 2: {
      field.wire = Field::Wire::Bytes;
      uint64_t size = varint();
      if (size > bytes_.size() - pos_) malformed("it ends inside a field (truncated?)");
      field.bytes = bytes_.substr(pos_, size);
      pos_ += size;
      return true;
    }
    case 5:
      field.wire = Field::Wire::Fixed32;
      field.bits = fixed(4);
      return true;
    default:
      malformed("an unknown wire type");
  }
}

void append_ints(const Field& field, std::vector<int64_t>& out) {
  if (field.wire == Field::Wire::Varint) {
    out.push_back(field.as_int());
    return;
  }
  // Packed varints have no field keys: read them with a local loop.
  std::string_view bytes = field.as_bytes();
  for (size_t at = 0; at < bytes.size();) {
    uint64_t v = 0;
    int shift = 0;
    while (true) {
      if (at >= bytes.size() || shift > 63) malformed("packed integers are cut off");
      auto byte = static_cast<unsigned char>(bytes[at++]);
      v |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) break;
      shift += 7;
    }
    out.push_back(static_cast<int64_t>(v));
  }
}

namespace {

template <typename T, Field::Wire single>
void append_fixed(const Field& field, std::vector<T>& out) {
  if (field.wire == single) {
    out.push_back(from_bits<T>(field.bits));
    return;
  }
  std::string_view bytes = field.as_bytes();
  if (bytes.size() % sizeof(T) != 0) malformed("packed numbers are cut off");
  size_t n = out.size();
  out.resize(n + bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(out.data() + n, bytes.data(), bytes.size());
}

}  // namespace

void append_floats(const Field& field, std::vector<float>& out) {
  append_fixed<float, Field::Wire::Fixed32>(field, out);
}
void append_doubles(const Field& field, std::vector<double>& out) {
  append_fixed<double, Field::Wire::Fixed64>(field, out);
}

}  // namespace cuvil::onnx
