#include "codegen/codegen.hpp"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "codegen/entry_emitter.hpp"
#include "codegen/kernel_emitter.hpp"
#include "codegen/object_emitter.hpp"

namespace cuvil {

namespace {

// Equal code for equal keys: everything the emitter reads but the name.
std::string key_of(const Kernel& kernel) {
  Kernel unnamed = kernel;
  unnamed.name = "";
  std::string key = unnamed.str();
  for (const KernelBuffer& b : kernel.buffers) key += std::string(name_of(b.dtype)) + (b.written ? "w" : "r");
  key += " unroll " + std::to_string(kernel.schedule.unroll);
  for (const Dim& s : kernel.symbols()) {
    key += " " + s.str() + ":" + std::to_string(s.lower_bound().value_or(0)) + ".." +
           std::to_string(s.upper_bound().value_or(-1));
  }
  return key;
}

template <typename Emit>
std::string compile_module(const std::string& name, const TargetDescription& target, Emit emit) {
  llvm::LLVMContext context;
  llvm::Module module(name, context);
  prepare_module(module, target);
  emit(module);
  return emit_object(module, target);
}

}  // namespace

std::string compile_kernel(const Kernel& kernel, const std::string& symbol, const TargetDescription& target) {
  return compile_module(symbol, target,
                        [&](llvm::Module& module) { KernelEmitter(module, kernel, target).emit(symbol); });
}

GeneratedCode generate_code(const Program& program, const TargetDescription& target, int threads,
                            const std::function<void(double)>& progress) {
  GeneratedCode out;
  std::map<std::string, size_t> known;
  std::vector<const Kernel*> distinct;
  for (const Step& step : program.steps) {
    auto [it, is_new] = known.emplace(key_of(step.kernel), distinct.size());
    if (is_new) distinct.push_back(&step.kernel);
    out.kernel_symbols.push_back(distinct[it->second]->name);
  }
  out.distinct_kernels = static_cast<int>(distinct.size());
  out.objects.resize(distinct.size() + 1);
  std::atomic<size_t> next{0}, done{0};
  std::mutex mutex;
  std::exception_ptr failure;
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < out.objects.size();) {
      try {
        // The entry is usually the largest module; it goes first.
        out.objects[i] =
            i == 0 ? compile_module("entry", target,
                                    [&](llvm::Module& m) { emit_entry(m, program, out.kernel_symbols, target); })
                   : compile_kernel(*distinct[i - 1], distinct[i - 1]->name, target);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = out.objects.size();
      }
      size_t n = ++done;
      if (progress) {
        std::lock_guard lock(mutex);
        progress(static_cast<double>(n) / static_cast<double>(out.objects.size()));
      }
    }
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads && static_cast<size_t>(t) < out.objects.size(); ++t) helpers.emplace_back(work);
  work();
  for (std::thread& t : helpers) t.join();
  if (failure) std::rethrow_exception(failure);
  return out;
}

std::string kernel_llvm_ir(const Step& step, const TargetDescription& target) {
  llvm::LLVMContext context;
  llvm::Module module(step.kernel.name, context);
  prepare_module(module, target);
  KernelEmitter(module, step.kernel, target).emit(step.kernel.name);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

std::string kernel_assembly(const Step& step, const TargetDescription& target) {
  llvm::LLVMContext context;
  llvm::Module module(step.kernel.name, context);
  prepare_module(module, target);
  KernelEmitter(module, step.kernel, target).emit(step.kernel.name);
  return emit_assembly(module, target);
}

}  // namespace cuvil
