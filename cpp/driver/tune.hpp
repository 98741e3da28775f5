// Measures candidate schedules on this machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lower/program.hpp"
#include "target/target.hpp"

namespace cuvil {

/// One schedule that was tried.
struct TuningRecord {
  std::string kernel;    // the candidate's loops and tiles, as text
  CostTerms terms{};     // what the cost model saw
  double estimated = 0;  // cycles
  double microseconds = 0;
  bool chosen = false;
};

/// Compiles the first few of a kernel's candidates, runs each by itself on one thread, on buffers of the program's
/// sizes (symbols count as 1) with weights that are not in L2, and picks the fastest. What it finds for a kernel it
/// remembers for the life of the process.
class Tuner {
 public:
  explicit Tuner(const TargetDescription& target) : target_(target) {}

  /// Index of the fastest candidate of this step.
  size_t choose(const Program& program, const Step& step, const std::vector<Kernel>& candidates);

  const std::vector<TuningRecord>& records() const { return records_; }

 private:
  double measure(const Program& program, const Step& step, const Kernel& candidate);

  const TargetDescription& target_;
  std::vector<TuningRecord> records_;
};

}  // namespace cuvil
