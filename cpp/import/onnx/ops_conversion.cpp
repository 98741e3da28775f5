// Conversions between element types: of values, and of bits.
#include "import/onnx/call.hpp"
#include "ir/narrow.hpp"

namespace cuvil::onnx {

namespace {

ScaleRounding rounding_of(Call& c) {
  const std::string mode = c.text("round_mode", "up");
  if (mode == "up") return ScaleRounding::Up;
  if (mode == "down") return ScaleRounding::Down;
  if (mode == "nearest") return ScaleRounding::Nearest;
  c.fail("round_mode '" + mode + "' is not one of up, down, nearest");
}

Value* converted(Call& c, Value* x, DType to) {
  if (!is_narrow(to)) return c.b.cast(x, to);
  return encode_narrow(c.b, x, to, {c.integer("saturate", 1) != 0, rounding_of(c)});
}

void cast(Call& c) {
  c.set(converted(c, c.input(0), dtype_of(c.integer("to", 1), c.describe())));
}

void cast_like(Call& c) {
  c.set(converted(c, c.input(0), c.input(1)->type.dtype));
}

void bit_cast(Call& c) {
  Value* x = c.input(0);
  const DType from = x->type.dtype, to = dtype_of(c.integer("to", 1), c.describe());
  auto bits = [](DType t) { return is_narrow(t) ? narrow_format(t).bits : static_cast<int>(size_of(t)) * 8; };
  if (bits(from) != bits(to)) {
    c.fail("cannot take the " + std::to_string(bits(from)) + " bits of " + std::string(name_of(from)) + " for the " +
           std::to_string(bits(to)) + " of " + std::string(name_of(to)));
  }
  c.set(c.b.bitcast(x, to));
}

}  // namespace

std::vector<Row> conversion_rows() {
  return {
      {"BitCast", bit_cast},
      {"Cast", cast},
      {"CastLike", cast_like},
  };
}

}  // namespace cuvil::onnx
