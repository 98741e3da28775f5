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

/// Stores the updates of a scatter to `target`, where its data already is.
BuiltKernel build_scatter(const Node& node, const StorageMap& storage, const Storage& target);

/// Sorts keys that are in memory. `scratch` is a buffer of i64; its size is given back.
BuiltKernel build_sort(const Node& node, const Storage& keys, const Storage& target, int scratch, Dim& scratch_size);

}  // namespace cuvil
