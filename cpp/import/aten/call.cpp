#include "import/aten/call.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error.hpp"

namespace cuvil::aten {

void Call::fail(const std::string& why) const {
  throw CompileError("node '" + node_.name + "' (" + node_.target + (node_.source.empty() ? "" : ", " + node_.source) +
                     "): " + why);
}

const Argument* Call::argument(size_t position, const char* name) const {
  const Argument* a = nullptr;
  if (position < node_.args.size()) a = &node_.args[position];
  if (!a && name) {
    auto it = node_.kwargs.find(name);
    if (it != node_.kwargs.end()) a = &it->second;
  }
  return a && a->kind != Argument::Kind::None ? a : nullptr;
}

Value* Call::value_of(const Argument& a) const {
  if (a.kind != Argument::Kind::Node) fail("an argument is not a tensor");
  auto it = values_.find(a.text);
  if (it == values_.end() || it->second.empty() || !it->second[0]) fail("argument '" + a.text + "' has no value");
  return it->second[0];
}

Value* Call::tensor(size_t position, const char* name) const {
  const Argument* a = argument(position, name);
  if (!a) fail("argument " + std::to_string(position) + " is missing");
  return value_of(*a);
}

Value* Call::optional_tensor(size_t position, const char* name) const {
  const Argument* a = argument(position, name);
  return a ? value_of(*a) : nullptr;
}

std::vector<Value*> Call::tensors(size_t position) const {
  const Argument* a = argument(position);
  if (!a || a->kind != Argument::Kind::List) fail("argument " + std::to_string(position) + " is not a list of tensors");
  std::vector<Value*> list;
  for (const Argument& item : a->list) list.push_back(value_of(item));
  return list;
}

Value* Call::list_tensor(size_t position, size_t item) const {
  return value_of(argument(position)->list.at(item));
}

bool Call::is_tensor(size_t position) const {
  const Argument* a = argument(position);
  return a && a->kind == Argument::Kind::Node;
}

int64_t Call::integer_of(const Argument& a) const {
  Dim d = size_of_argument(a);
  if (!d.is_constant()) fail("needs a constant where the model has the size " + d.str());
  return d.value();
}

Dim Call::size_of_argument(const Argument& a) const {
  switch (a.kind) {
    case Argument::Kind::Int:
      return a.integer;
    case Argument::Kind::Bool:
      return a.boolean;
    case Argument::Kind::Size:
      return parse_size(a.text);
    case Argument::Kind::Float:
      if (a.real == std::floor(a.real) && std::fabs(a.real) < 1e18) return static_cast<int64_t>(a.real);
      [[fallthrough]];
    default:
      fail("an argument is not an integer");
  }
}

int64_t Call::integer(size_t position, const char* name, std::optional<int64_t> fallback) const {
  const Argument* a = argument(position, name);
  if (!a && fallback) return *fallback;
  if (!a) fail("argument " + std::to_string(position) + " is missing");
  return integer_of(*a);
}

double Call::real(size_t position, const char* name, std::optional<double> fallback) const {
  const Argument* a = argument(position, name);
  if (!a && fallback) return *fallback;
  if (!a) fail("argument " + std::to_string(position) + " is missing");
  if (a->kind == Argument::Kind::Float) return a->real;
  return static_cast<double>(integer_of(*a));
}

bool Call::boolean(size_t position, const char* name, bool fallback) const {
  const Argument* a = argument(position, name);
  return a ? integer_of(*a) != 0 : fallback;
}

std::string Call::text(size_t position, const char* name, const char* fallback) const {
  const Argument* a = argument(position, name);
  return a ? a->text : fallback;
}

std::vector<int64_t> Call::ints(size_t position, const char* name, size_t repeat) const {
  std::vector<int64_t> list;
  const Argument* a = argument(position, name);
  if (a && a->kind == Argument::Kind::List) {
    for (const Argument& item : a->list) list.push_back(integer_of(item));
  } else if (a) {
    list.push_back(integer_of(*a));
  }
  if (list.size() == 1 && repeat > 1) list.assign(repeat, list[0]);
  return list;
}

std::optional<std::vector<int64_t>> Call::optional_ints(size_t position, const char* name) const {
  if (!has(position, name)) return std::nullopt;
  return ints(position, name);
}

Dim Call::size(size_t position, const char* name) const {
  const Argument* a = argument(position, name);
  if (!a) fail("argument " + std::to_string(position) + " is missing");
  return size_of_argument(*a);
}

std::optional<Dim> Call::optional_size(size_t position, const char* name) const {
  const Argument* a = argument(position, name);
  if (!a) return std::nullopt;
  return size_of_argument(*a);
}

std::vector<Dim> Call::sizes(size_t position) const {
  std::vector<Dim> list;
  const Argument* a = argument(position);
  if (a && a->kind == Argument::Kind::List) {
    for (const Argument& item : a->list) list.push_back(size_of_argument(item));
  }
  return list;
}

int Call::axis(size_t position, const char* name, const Value* of, std::optional<int64_t> fallback) const {
  int64_t axis = integer(position, name, fallback), rank = of->type.rank();
  if (rank == 0 && (axis == 0 || axis == -1)) return 0;
  if (axis < -rank || axis >= rank) fail("axis " + std::to_string(axis) + " is out of range");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

DType Call::result_dtype(size_t output) const {
  if (output >= node_.outputs.size() || !node_.outputs[output].is_tensor) fail("does not return a tensor");
  return dtype_of(node_.outputs[output].dtype);
}

Shape Call::result_shape(size_t output) const {
  Shape shape;
  for (const std::string& s : node_.outputs.at(output).sizes) shape.push_back(parse_size(s));
  return shape;
}

Dim Call::parse_size(const std::string& text) const {
  return Dim::parse(text, [&](const std::string& name) {
    auto it = symbols_.find(name);
    if (it == symbols_.end()) fail("size '" + name + "' depends on data, which is not supported yet");
    return it->second;
  });
}

Value* Call::operand(size_t position, DType dtype, const char* name) const {
  const Argument* a = argument(position, name);
  if (!a) fail("argument " + std::to_string(position) + " is missing");
  if (a->kind == Argument::Kind::Node) return b.cast(value_of(*a), dtype);
  if (a->kind == Argument::Kind::Float) return b.scalar(dtype, a->real);
  Dim d = size_of_argument(*a);
  if (d.is_constant())
    return is_float(dtype) ? b.scalar(dtype, static_cast<double>(d.value())) : b.scalar_int(dtype, d.value());
  return b.cast(b.dim_value(d), dtype);
}

DType Call::work_dtype() const {
  const DType t = result_dtype();
  return t == DType::f16 || t == DType::bf16 ? DType::f32 : t;
}

Value* Call::wide(size_t position, const char* name) const {
  return has(position, name) ? operand(position, work_dtype(), name) : nullptr;
}

Value* Call::number(DType dtype, double value) const {
  return is_float(dtype) ? b.scalar(dtype, value) : b.scalar_int(dtype, static_cast<int64_t>(value));
}

Value* Call::lowest(DType dtype) const {
  if (is_float(dtype)) return b.scalar(dtype, -std::numeric_limits<double>::infinity());
  if (!is_signed_int(dtype)) return b.scalar_int(dtype, 0);
  return b.scalar_int(dtype, INT64_MIN >> (64 - 8 * size_of(dtype)));
}

namespace {

int category(DType t) {
  return is_float(t) ? 2 : t == DType::boolean ? 0 : 1;
}

}  // namespace

DType Call::promoted(const std::vector<size_t>& positions) const {
  // PyTorch: tensors with axes decide within their category, then rank-0 tensors, then numbers.
  std::optional<DType> best[3];
  for (size_t p : positions) {
    const Argument* a = argument(p);
    if (!a) continue;
    int priority = 2;
    DType t = DType::i64;
    if (a->kind == Argument::Kind::Node) {
      const Value* v = value_of(*a);
      t = v->type.dtype;
      priority = v->type.rank() > 0 ? 0 : 1;
    } else if (a->kind == Argument::Kind::Float) {
      t = DType::f32;
    } else if (a->kind == Argument::Kind::Bool) {
      t = DType::boolean;
    }
    best[priority] = best[priority] ? promote(*best[priority], t) : t;
  }
  std::optional<DType> result;
  for (const auto& candidate : best) {
    if (!candidate) continue;
    if (!result || category(*candidate) > category(*result)) result = candidate;
  }
  if (!result) fail("has no operands");
  return *result;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  if (is_float(a)) {
    if (size_of(a) == 2 && size_of(b) == 2) return DType::f32;
    return size_of(a) > size_of(b) ? a : b;
  }
  if (is_signed_int(a) == is_signed_int(b)) return size_of(a) > size_of(b) ? a : b;
  DType s = is_signed_int(a) ? a : b, u = is_signed_int(a) ? b : a;
  if (size_of(s) > size_of(u)) return s;
  return size_of(u) == 1 ? DType::i16 : size_of(u) == 2 ? DType::i32 : DType::i64;
}

DType dtype_of(const std::string& name) {
  static const std::map<std::string, DType> names = {{"float32", DType::f32},
                                                     {"float64", DType::f64},
                                                     {"float16", DType::f16},
                                                     {"bfloat16", DType::bf16},
                                                     {"int8", DType::i8},
                                                     {"int16", DType::i16},
                                                     {"int32", DType::i32},
                                                     {"int64", DType::i64},
                                                     {"uint8", DType::u8},
                                                     {"uint16", DType::u16},
                                                     {"uint32", DType::u32},
                                                     {"uint64", DType::u64},
                                                     {"bool", DType::boolean},
                                                     {"float8_e4m3fn", DType::f8e4m3fn},
                                                     {"float8_e4m3fnuz", DType::f8e4m3fnuz},
                                                     {"float8_e5m2", DType::f8e5m2},
                                                     {"float8_e5m2fnuz", DType::f8e5m2fnuz},
                                                     {"float8_e8m0fnu", DType::f8e8m0fnu}};
  auto it = names.find(name);
  if (it == names.end()) throw CompileError("dtype " + name + " is not supported");
  return it->second;
}

}  // namespace cuvil::aten
