// Reader of protobuf's wire format: fields in order, nothing copied, every length checked.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace cuvil::onnx {

/// One field of a message. Which members hold depends on the wire type.
struct Field {
  uint32_t number = 0;
  enum class Wire { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 } wire = Wire::Varint;
  uint64_t bits = 0;       // Varint, Fixed64, Fixed32
  std::string_view bytes;  // Bytes

  // Throw CompileError when the field's wire type does not fit.
  int64_t as_int() const;
  float as_float() const;
  std::string_view as_bytes() const;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  /// Next field, or false at the end. Throws CompileError on malformed input.
  bool next(Field& field);

 private:
  uint64_t varint();
  uint64_t fixed(size_t size);

  std::string_view bytes_;
  size_t pos_ = 0;
};

// Repeated scalars come packed into one field or one by one; both append.
void append_ints(const Field& field, std::vector<int64_t>& out);
void append_floats(const Field& field, std::vector<float>& out);
void append_doubles(const Field& field, std::vector<double>& out);

}  // namespace cuvil::onnx
