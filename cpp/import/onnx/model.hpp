// The messages of an ONNX file that the importer reads, as structs. Strings and raw data are views into the file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/tensor.hpp"

namespace cuvil::onnx {

/// A file in memory, with the folder that external data is relative to ("" forbids external data).
struct Source {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
  std::string folder;
  std::string path;
};

struct AttributeProto {
  enum Type : int64_t {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    TensorType = 4,
    GraphType = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8
  };
  std::string_view name;
  int64_t type = 0;
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::string_view tensor, graph;  // messages, read when needed
  std::string_view reference;      // in a function: the attribute of the call whose value this one takes
};

struct NodeProto {
  std::string_view name, op_type, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<AttributeProto> attributes;
};

/// A size: a number, a name, or neither.
struct DimProto {
  bool has_value = false;
  int64_t value = 0;
  std::string_view param;
};

struct ValueInfoProto {
  std::string_view name;
  bool is_tensor = false, has_shape = false;
  int64_t elem_type = 0;
  std::vector<DimProto> dims;
};

struct GraphProto {
  std::string_view name;
  std::vector<NodeProto> nodes;
  std::vector<std::string_view> initializers;  // TensorProto messages
  std::vector<ValueInfoProto> inputs, outputs;
  bool has_sparse_initializers = false;
};

/// A function of the model's own: nodes that take the place of a call.
struct FunctionProto {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<AttributeProto> defaults;
  std::vector<NodeProto> nodes;
  std::map<std::string, int64_t> opsets;
};

struct ModelProto {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets;  // by domain; "" is ai.onnx
  GraphProto graph;
  bool has_graph = false;
  std::vector<FunctionProto> functions;
};

ModelProto read_model(std::string_view bytes);
GraphProto read_graph(std::string_view message);

/// A TensorProto: its name and its elements (borrowed from the file, or from the external data file, where possible).
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
NamedTensor read_tensor(std::string_view message, const Source& source);

/// Throws CompileError for element types that Cuvil does not have.
DType dtype_of(int64_t onnx_type, const std::string& where);

}  // namespace cuvil::onnx
