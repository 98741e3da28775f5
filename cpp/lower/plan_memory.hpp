// Lays out the arena and the weights.
#pragma once

#include "lower/program.hpp"

namespace cuvil {

/// Every buffer and every weight starts at a multiple of this many bytes.
inline constexpr int64_t kAlignment = 64;

/// What a buffer takes in memory: its elements, rounded up to kAlignment.
Dim bytes_of(const Buffer& buffer);

/// Sets use ranges, offsets, arena_bytes and weight_bytes. Buffers whose lives do not overlap share memory.
void plan_memory(Program& program);

}  // namespace cuvil
