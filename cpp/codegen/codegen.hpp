// Kernels + Program → objects.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lower/program.hpp"

namespace cuvil {

struct GeneratedCode {
  std::vector<std::string> objects;         // relocatable; they refer only to each other
  std::vector<std::string> kernel_symbols;  // per step; equal kernels share one
  int distinct_kernels = 0;
};

inline constexpr const char* kPlanSymbol = "cuvil_plan";
inline constexpr const char* kRunSymbol = "cuvil_run";

/// Compiles kernels on `threads` threads. `progress` gets the share of kernels done.
GeneratedCode generate_code(const Program& program, const TargetDescription& target, int threads,
                            const std::function<void(double)>& progress);

/// An object with one kernel as function `symbol`.
std::string compile_kernel(const Kernel& kernel, const std::string& symbol, const TargetDescription& target);

/// LLVM IR or assembly of one step's kernel, as text.
std::string kernel_llvm_ir(const Step& step, const TargetDescription& target);
std::string kernel_assembly(const Step& step, const TargetDescription& target);

}  // namespace cuvil
