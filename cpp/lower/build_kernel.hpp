// Builds the kernel that computes one value of the Graph from values that are already in memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lower/kernel.hpp"

namespace cuvil {

/// Where a value lives: element (i…) is at buffer[offset + Σ i·stride].
struct Storage {
  int buffer = -1;
  Dim offset;
  std::vector<Dim> strides;
};

using StorageMap = std::map<const Value*, Storage>;

std::vector<Dim> row_major_strides(const Shape& shape);

struct BuiltKernel {
  Kernel kernel;
  std::vector<int> buffers;        // program buffers behind the kernel's
  std::vector<const Node*> nodes;  // computed here, operands first
  std::string obstacle;            // why this is not one kernel; empty when it is
};

/// Everything between `root` and values with storage is computed inside the kernel, which stores root to `target`.
BuiltKernel build_kernel(const Value* root, const StorageMap& storage, const Storage& target);

}  // namespace cuvil
