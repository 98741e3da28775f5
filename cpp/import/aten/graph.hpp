// An exported PyTorch graph as plain data, the way Python hands it over.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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

struct ExportedGraph;

/// Beside PyTorch's operators there are these targets:
///   if(condition, operands), with two regions that take the operands
///   loop(trips, condition, carried, operands), with a region from (trip, carried…, operands…) to (condition, carried…,
///     rows…); its results are the carried values and the stacks of the rows
///   sizes(tensor, symbols): its elements are the symbols' values
///   compare(function, size, size), a bool
///   check_equal(size, size, message)
struct Node {
  std::string name;
  std::string target;  // "aten.add.Tensor"
  std::string source;  // for messages: module path and line
  std::vector<Argument> args;
  std::map<std::string, Argument> kwargs;
  std::vector<Meta> outputs;
  std::vector<std::shared_ptr<const ExportedGraph>> regions;
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
  std::vector<Symbol> symbols;  // of a region: none, all are the model's
  std::vector<Input> inputs;
  std::vector<Weight> weights;
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, std::string>> outputs;  // name, node
};

}  // namespace cuvil::aten
