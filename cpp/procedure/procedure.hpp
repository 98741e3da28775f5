// Procedure: a graph with control flow or sizes that depend on data, as straight segments and what runs between them.
//
// A segment is a Graph that the compiler turns into kernels as a whole. All values between instructions are tensors in
// slots. Symbols get their values when a tensor whose type names them arrives in its slot, or from a Sizes instruction.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace cuvil {

struct Procedure;

struct Instruction {
  enum class Kind { Segment, If, Loop, Sizes, CheckEqual };
  Kind kind = Kind::Segment;
  std::vector<int> operands, results;  // slots; a result nobody needs is -1
  int segment = -1;
  /// Segment: what its last input, a tensor without elements, passes in its leading sizes; empty: no such input.
  /// Sizes: the symbols. CheckEqual: the left sides.
  std::vector<Dim> sizes;
  std::vector<Dim> right_sides;
  std::vector<std::shared_ptr<const Procedure>> regions;  // If: then, else. Loop: body.
  int64_t carried = 0;                                    // Loop
  std::vector<int> last_uses;                             // slots to empty after it
  std::string source;
  std::string message;  // CheckEqual: to fail with; empty: one that names the sizes
};

struct Procedure {
  std::vector<Type> slots;
  std::vector<std::string> input_names, output_names;
  std::vector<int> inputs, outputs;
  struct Constant {
    int slot;
    Tensor tensor;
  };
  std::vector<Constant> constants;
  std::vector<Instruction> code;
};

/// A procedure with the segments that it and its regions call.
struct Module {
  Procedure main;
  std::vector<Graph> segments;
};

/// Whether the graph needs a procedure.
bool has_host_ops(const Graph& graph);

/// Nodes that nobody needs are left out. Nodes run as early as the values and sizes they depend on allow.
Module partition(const Graph& graph);

}  // namespace cuvil
