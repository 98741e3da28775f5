// The compiler from Graph to code in memory: options in, CompiledModel out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/tune.hpp"
#include "ir/graph.hpp"
#include "runtime/abi.h"

namespace cuvil {

/// How far results may be from those of the operators' definitions.
enum class Precision {
  Default,  // forms of convolution whose rounding errors stay within 2e-4 of the output's scale
  Strict    // only forms with the errors and special values of a direct sum
};

struct CompileOptions {
  /// "" = CUVIL_TARGET if set, else this machine. "x86-64-v3", "x86-64-v4", "generic".
  std::string target;
  /// Threads that compile kernels; 0 = all cores this process may use.
  int compile_threads = 0;
  Precision precision = Precision::Default;
  /// Measure the most promising schedules of each kernel on this machine and take the fastest.
  bool tune = false;
  /// Called with the name of the step that starts and the share of work done, in [0, 1]; may be empty.
  std::function<void(const std::string& step, double done)> progress;
};

struct TensorInfo {
  std::string name;
  Type type;  // sizes may be symbolic
};

/// One row of the model's kernel table (fast.explain(), fast.profile()).
struct KernelInfo {
  std::string name;                  // "conv_add_relu_12"
  std::string description;           // loops, tile and expressions as text
  std::vector<std::string> ops;      // fused Graph ops, in order
  std::vector<std::string> sources;  // nodes of the user's model
  Dim flops;                         // per call
  Dim bytes;                         // read and written, at least
};

struct MemoryInfo {
  Dim arena_bytes;
  int64_t weight_bytes = 0;
  int64_t code_bytes = 0;
};

/// Code in memory and all that is needed to call it. Immutable; shared by concurrent runs.
struct CompiledModel {
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  std::vector<Dim> symbols;  // in the order of plan()'s symbols
  std::vector<KernelInfo> kernels;
  MemoryInfo memory;
  std::string target, features;
  std::vector<std::string> objects;  // relocatable; empty for a model that was loaded from a file

  cuvil_plan_fn plan = nullptr;
  cuvil_run_fn run = nullptr;
  const void* weights = nullptr;  // 64-byte aligned
  std::shared_ptr<const void> code_owner, weights_owner;

  struct StepTime {
    std::string step;
    double seconds;
  };
  std::vector<StepTime> compile_times;
  std::vector<TuningRecord> tuning;  // with CompileOptions::tune: every schedule tried, by kernel
};

/// Throws CompileError (bad model or request) or InternalError.
std::shared_ptr<const CompiledModel> compile(Graph graph, const CompileOptions& options);

}  // namespace cuvil
