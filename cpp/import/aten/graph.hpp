// An exported PyTorch graph as plain data, the way Python hands it over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/tensor.hpp"

namespace cuvil::aten {

struct Argument {
  enum class Kind { None, Bool, Int, Float, String, DType, Size, Node, List };
  Kind kind = Kind::None;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;  // String, DType ("float32"), Size (an expression over symbols), Node (its name)
  std::vector<Argument> list;
};

/// What PyTorch says a node returns. A size (SymInt) has no dtype.
struct Meta {
  bool is_tensor = false;
  std::string dtype;
  std::vector<std::string> sizes;
};

struct Node {
  std::string name;
  std::string target;  // "aten.add.Tensor"
  std::string source;  // for messages: module path and line
  std::vector<Argument> args;
  std::map<std::string, Argument> kwargs;
  std::vector<Meta> outputs;
};

struct Input {
  std::string name;  // of its node
  Meta meta;
  std::string label;  // what users call it
};

struct Weight {
  std::string name;
  Tensor tensor;
};

/// Symbol of a dynamic size with its inclusive bounds.
struct Symbol {
  std::string name;
  int64_t min = 0, max = INT64_MAX;
};

struct ExportedGraph {
  std::vector<Symbol> symbols;
  std::vector<Input> inputs;
  std::vector<Weight> weights;
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, std::string>> outputs;  // name, node
};

}  // namespace cuvil::aten
