// What the compiler knows of the machine it compiles for. Everything that depends on an ISA reads it from here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.hpp"

namespace cuvil {

struct TargetDescription {
  std::string name;              // "x86-64-v4", or "host (znver5)"
  std::string triple;            // as LLVM spells it
  std::string cpu;               // schedules instructions; never widens `features`
  std::string features;          // "+avx2,+fma", complete
  int vector_bits = 128;         // the width kernels are vectorised for
  int vector_registers = 16;     // architectural vector registers
  bool fma = false;              // a fused multiply-add is one instruction
  bool mask_registers = false;   // loads and stores take a mask for free
  int dot = 0;                   // products that an instruction sums in each lane of i32: 4 of u8 and i8 (VNNI),
                                 // 2 of i16, or 0
  int64_t l1_bytes = 32 << 10;   // data cache of one core
  int64_t l2_bytes = 512 << 10;  // of one core
  int64_t l3_bytes = 4 << 20;    // shared; 0 if there is none
  int l3_bytes_per_cycle = 8;    // that one core streams from beyond L2

  /// Elements of a vector of that element size.
  int lanes(int bytes_per_element) const { return vector_bits / 8 / bytes_per_element; }
  int lanes(DType dtype) const { return lanes(static_cast<int>(size_of(dtype))); }
};

/// This machine.
TargetDescription host_target();

/// A target by its name; "" is $CUVIL_TARGET if set, else this machine; "host" is this machine, "generic" the baseline
/// of this machine's architecture. Throws CompileError for a name that does not exist.
TargetDescription target_from_name(std::string_view name);

/// Names target_from_name takes and this build can generate code for.
std::vector<std::string> target_names();

/// Whether code for `target` can run on this machine.
bool runs_here(const TargetDescription& target);

}  // namespace cuvil
