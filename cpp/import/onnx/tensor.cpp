// TensorProto → Tensor.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "import/onnx/model.hpp"
#include "import/onnx/wire.hpp"
#include "ir/narrow.hpp"
#include "support/error.hpp"
#include "support/mapped_file.hpp"

namespace cuvil::onnx {

DType dtype_of(int64_t type, const std::string& where) {
  switch (type) {
    case 1:
      return DType::f32;
    case 2:
      return DType::u8;
    case 3:
      return DType::i8;
    case 4:
      return DType::u16;
    case 5:
      return DType::i16;
    case 6:
      return DType::i32;
    case 7:
      return DType::i64;
    case 9:
      return DType::boolean;
    case 10:
      return DType::f16;
    case 11:
      return DType::f64;
    case 12:
      return DType::u32;
    case 13:
      return DType::u64;
    case 16:
      return DType::bf16;
    case 17:
      return DType::f8e4m3fn;
    case 18:
      return DType::f8e4m3fnuz;
    case 19:
      return DType::f8e5m2;
    case 20:
      return DType::f8e5m2fnuz;
    case 21:
      return DType::u4;
    case 22:
      return DType::i4;
    case 23:
      return DType::f4e2m1fn;
    case 24:
      return DType::f8e8m0fnu;
    case 25:
      return DType::u2;
    case 26:
      return DType::i2;
    case 27:
      return DType::f6e2m3fn;
    case 28:
      return DType::f6e3m2fn;
    default:
      throw CompileError(where + ": element type " + std::to_string(type) + " is not supported");
  }
}

namespace {

struct ExternalData {
  std::string location;
  int64_t offset = 0, length = -1;
};

int64_t number(std::string_view text, const std::string& where) {
  try {
    return std::stoll(std::string(text));
  } catch (const std::exception&) {
    throw CompileError(where + ": external data has the malformed number '" + std::string(text) + "'");
  }
}

bool lies_in(const std::filesystem::path& file, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

// External files must lie in the model's folder: a path that leaves it is refused, be it by links. A model that is a
// link itself (as in a download cache) may have its data beside the file it points to.
MappedFile open_external(const ExternalData& external, const Source& source, const std::string& where) {
  namespace fs = std::filesystem;
  if (source.folder.empty()) {
    throw CompileError(where + ": its data is in the file '" + external.location +
                       "', but the model was given as bytes; pass its path");
  }
  fs::path relative(external.location), path = fs::path(source.folder) / relative;
  bool leaves = relative.is_absolute() || external.location.find('\0') != std::string::npos;
  for (const fs::path& part : relative) leaves |= part == "..";
  std::error_code failed;
  fs::path real = fs::canonical(path, failed);
  if (!leaves && !failed) {
    fs::path folder = fs::canonical(source.folder, failed), beside = fs::canonical(source.path, failed).parent_path();
    leaves = failed || (!lies_in(real, folder) && !lies_in(real, beside));
  }
  if (leaves) throw CompileError(where + ": external data '" + external.location + "' lies outside the model's folder");
  return map_file(path.string());
}

void fill(Tensor& t, const std::vector<int64_t>& ints) {
  bool half = t.dtype() == DType::f16 || t.dtype() == DType::bf16;
  for (size_t i = 0; i < ints.size(); ++i) {
    if (half) {
      t.mutable_as<uint16_t>()[i] = static_cast<uint16_t>(ints[i]);
    } else {
      t.set_int(static_cast<int64_t>(i), ints[i]);
    }
  }
}

int bits_of(DType t) {
  return is_narrow(t) ? narrow_format(t).bits : static_cast<int>(size_of(t)) * 8;
}

// Elements of less than 8 bits follow one another from the lowest bit of each byte on.
Tensor unpacked(DType dtype, const std::vector<int64_t>& dims, std::string_view packed) {
  Tensor t(dtype, dims);
  const int bits = bits_of(dtype);
  const auto mask = static_cast<unsigned>((1 << bits) - 1);
  size_t next = 0;
  unsigned held = 0;
  int count = 0;
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    if (count < bits) {
      held |= static_cast<unsigned>(static_cast<uint8_t>(packed[next++])) << count;
      count += 8;
    }
    t.mutable_as<uint8_t>()[i] = static_cast<uint8_t>(held & mask);
    held >>= bits;
    count -= bits;
  }
  return t;
}

}  // namespace

NamedTensor read_tensor(std::string_view message, const Source& source) {
  NamedTensor result;
  std::vector<int64_t> dims, ints;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::string_view raw;
  bool has_raw = false, external = false;
  int64_t type = 0;
  ExternalData data;
  std::vector<std::pair<std::string, std::string>> entries;
  WireReader reader(message);
  for (Field f; reader.next(f);) {
    switch (f.number) {
      case 1:
        append_ints(f, dims);
        break;
      case 2:
        type = f.as_int();
        break;
      case 4:
        append_floats(f, floats);
        break;
      case 5:
      case 7:
      case 11:
        append_ints(f, ints);
        break;
      case 8:
        result.name = std::string(f.as_bytes());
        break;
      case 9:
        raw = f.as_bytes();
        has_raw = true;
        break;
      case 10:
        append_doubles(f, doubles);
        break;
      case 13: {
        WireReader entry(f.as_bytes());
        std::string key, value;
        for (Field e; entry.next(e);) {
          if (e.number == 1) key = std::string(e.as_bytes());
          if (e.number == 2) value = std::string(e.as_bytes());
        }
        entries.emplace_back(key, value);
        break;
      }
      case 14:
        external = f.as_int() == 1;
        break;
      default:
        break;
    }
  }
  const std::string where = "tensor '" + result.name + "'";
  if (result.name.size() > 4096) throw CompileError("malformed ONNX file: a tensor's name is too long");
  // TensorProto keeps int32_data in field 5; strings are field 6 and not read here.
  DType dtype = dtype_of(type, where);
  int64_t elements = 1;
  for (int64_t d : dims) {
    if (d < 0 || __builtin_mul_overflow(elements, d, &elements) || elements > (int64_t{1} << 46)) {
      throw CompileError(where + ": its shape is not valid");
    }
  }
  const int bits = bits_of(dtype);
  const auto bytes = static_cast<size_t>((elements * bits + 7) / 8);
  std::shared_ptr<const void> owner = source.owner;
  if (external) {
    for (const auto& [key, value] : entries) {
      if (key == "location") data.location = value;
      if (key == "offset") data.offset = number(value, where);
      if (key == "length") data.length = number(value, where);
    }
    MappedFile file = open_external(data, source, where);
    if (data.length < 0) data.length = static_cast<int64_t>(bytes);
    if (data.offset < 0 || static_cast<uint64_t>(data.offset) > file.bytes.size() ||
        static_cast<uint64_t>(data.length) > file.bytes.size() - static_cast<uint64_t>(data.offset)) {
      throw CompileError(where + ": external data '" + data.location + "' is too short");
    }
    raw = file.bytes.substr(static_cast<size_t>(data.offset), static_cast<size_t>(data.length));
    owner = file.owner;
    has_raw = true;
  }
  if (has_raw) {
    if (raw.size() != bytes) {
      throw CompileError(where + ": has " + std::to_string(raw.size()) + " bytes of data where its shape needs " +
                         std::to_string(bytes));
    }
    if (bits < 8) {
      result.tensor = unpacked(dtype, dims, raw);
      return result;
    }
    bool aligned = reinterpret_cast<uintptr_t>(raw.data()) % size_of(dtype) == 0;
    if (owner && aligned && bytes > 0) {
      result.tensor = Tensor(dtype, dims, raw.data(), owner);
    } else {
      result.tensor = Tensor(dtype, dims);
      if (bytes) std::memcpy(result.tensor.mutable_data(), raw.data(), bytes);
    }
    return result;
  }
  // Narrow elements are packed in int32_data too, a byte in each of its numbers.
  if (is_narrow(dtype) && bits < 8) {
    std::string packed(ints.begin(), ints.end());
    if (packed.size() != bytes) {
      throw CompileError(where + ": has " + std::to_string(packed.size()) + " numbers where its shape needs " +
                         std::to_string(bytes));
    }
    result.tensor = unpacked(dtype, dims, packed);
    return result;
  }
  size_t given = dtype == DType::f32 ? floats.size() : dtype == DType::f64 ? doubles.size() : ints.size();
  if (given != static_cast<size_t>(elements)) {
    throw CompileError(where + ": has " + std::to_string(given) + " elements where its shape needs " +
                       std::to_string(elements));
  }
  result.tensor = Tensor(dtype, dims);
  if (dtype == DType::f32) {
    if (!floats.empty()) std::memcpy(result.tensor.mutable_data(), floats.data(), bytes);
  } else if (dtype == DType::f64) {
    if (!doubles.empty()) std::memcpy(result.tensor.mutable_data(), doubles.data(), bytes);
  } else {
    fill(result.tensor, ints);
  }
  return result;
}

}  // namespace cuvil::onnx
