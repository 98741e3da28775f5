#include "driver/tune.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

#include "artifact/object_loader.hpp"
#include "codegen/codegen.hpp"
#include "codegen/kernel_emitter.hpp"
#include "runtime/abi.h"
#include "support/error.hpp"

namespace cuvil {

namespace {

constexpr size_t kMostCandidates = 6;
constexpr int kRuns = 5;

std::mutex g_mutex;
std::map<std::string, size_t>& remembered() {
  static std::map<std::string, size_t> choices;
  return choices;
}

int64_t typical(const Dim& d) {
  return d.evaluate([](const std::string&) { return int64_t{1}; });
}

// Reads enough memory that nothing from before is left in L2.
void evict(const TargetDescription& target) {
  static std::vector<char> memory;
  memory.resize(static_cast<size_t>(4 * target.l2_bytes));
  char sum = 0;
  for (size_t i = 0; i < memory.size(); i += 64) sum = static_cast<char>(sum + ++memory[i]);
  volatile char sink = sum;
  (void)sink;
}

}  // namespace

double Tuner::measure(const Program& program, const Step& step, const Kernel& candidate) {
  LoadedCode code = load_objects(std::vector<std::string>{compile_kernel(candidate, "candidate", target_)});
  auto* run = code.function<std::remove_pointer_t<cuvil_kernel_fn>>("candidate");
  CUVIL_CHECK(run, "a candidate has no entry");
  std::vector<Tensor> memory;
  std::vector<uint64_t> arguments;
  for (int b : step.buffers) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(b)];
    memory.push_back(Tensor(buffer.dtype, {std::max<int64_t>(1, typical(buffer.elements))}));
    arguments.push_back(reinterpret_cast<uint64_t>(memory.back().data()));
  }
  ArgumentLayout layout = argument_layout(candidate);
  for (size_t i = 0; i < layout.symbols.size(); ++i) arguments.push_back(1);
  const int64_t count = typical(parallel_count(candidate));
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    evict(target_);
    // What a kernel reads was written just before; its weights were not.
    for (size_t b = 0; b < memory.size(); ++b) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(step.buffers[b])];
      if (buffer.kind != Buffer::Kind::Constant) std::memset(memory[b].mutable_data(), 0, memory[b].num_bytes());
    }
    auto start = std::chrono::steady_clock::now();
    run(arguments.data(), 0, count);
    double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    if (i == 0 || us < best) best = us;
  }
  return best;
}

size_t Tuner::choose(const Program& program, const Step& step, const std::vector<Kernel>& candidates) {
  if (candidates.size() < 2 || argument_layout(candidates[0]).has_error) return 0;
  const std::string key = target_.name + "\n" + candidates[0].str();
  {
    std::lock_guard lock(g_mutex);
    if (auto it = remembered().find(key); it != remembered().end()) return it->second;
  }
  const size_t first = records_.size(), tried = std::min(candidates.size(), kMostCandidates);
  size_t best = 0;
  for (size_t i = 0; i < tried; ++i) {
    const Kernel& k = candidates[i];
    double us = measure(program, step, k);
    const ProductPlan& plan = *k.schedule.product;
    records_.push_back({k.str(), cost_terms(plan, target_), estimated_cycles(plan, target_), us, false});
    // Another schedule than the model's has to be clearly better: a measurement has noise.
    double rival = records_[first + best].microseconds;
    if (us < (best == 0 ? 0.97 : 1.0) * rival) best = i;
  }
  records_[first + best].chosen = true;
  std::lock_guard lock(g_mutex);
  remembered()[key] = best;
  return best;
}

}  // namespace cuvil
