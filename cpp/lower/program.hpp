// Program: the kernels of a model in order, the buffers they share, and what the caller passes in and gets back.
#pragma once

#include <string>
#include <vector>

#include "lower/kernel.hpp"
#include "target/target.hpp"

namespace cuvil {

struct Buffer {
  enum class Kind { Input, Output, Constant, Arena };
  Kind kind = Kind::Arena;
  int index = 0;  // of the input, output or constant
  DType dtype = DType::f32;
  Dim elements;                       // allocated
  int first_use = -1, last_use = -1;  // steps, inclusive
  Dim offset;                         // Arena: bytes from the arena's base. Constant: bytes from the weights' base.
};

struct Step {
  Kernel kernel;
  std::vector<int> buffers;      // the Program buffer behind each kernel buffer
  std::vector<std::string> ops;  // Graph ops fused into it
  std::vector<std::string> sources;
  Dim flops, bytes;
};

/// Consecutive steps that run band by band of rows: for each band of the last member's rows, every member runs on those
/// of its rows that are needed and not there yet.
struct BandGroup {
  struct Member {
    int64_t rows = 0;
    int64_t scale = 1, low = 0, high = 0;  // row r of the next member needs rows scale·r + low … scale·r + high
  };
  size_t first = 0;  // step
  std::vector<Member> members;
  int64_t band = 1;  // rows of the last member
  Dim batch = 1;     // images
};

struct Program {
  std::vector<std::string> input_names, output_names;
  std::vector<Type> inputs, outputs;
  std::vector<Tensor> constants;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<BandGroup> bands;  // in the order of their steps
  std::vector<Dim> symbols;      // bound from the inputs' sizes
  Dim arena_bytes;
  int64_t weight_bytes = 0;

  std::string str() const;
};

/// Picks one of a step's schedules; the first is the cost model's.
using ChooseSchedule = std::function<size_t(const Program&, const Step&, const std::vector<Kernel>& candidates)>;

/// Graph → Program: fusion, kernels, schedules, memory plan. Without `choose`, schedules are the cost model's.
Program lower(const Graph& graph, const TargetDescription& target, const ChooseSchedule& choose = {});

}  // namespace cuvil
