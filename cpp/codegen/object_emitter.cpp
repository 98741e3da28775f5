#include "codegen/object_emitter.hpp"

#include <llvm/ADT/SmallString.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Scalar.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "codegen/llvm_compat.hpp"
#include "support/error.hpp"

namespace cuvil {
namespace {

void initialize_targets() {
  static std::once_flag once;
  std::call_once(once, [] {
#define CUVIL_INITIALIZE(name)        \
  LLVMInitialize##name##TargetInfo(); \
  LLVMInitialize##name##Target();     \
  LLVMInitialize##name##TargetMC();   \
  LLVMInitialize##name##AsmPrinter();
#ifdef CUVIL_HAS_X86
    CUVIL_INITIALIZE(X86)
#endif
#ifdef CUVIL_HAS_AARCH64
    CUVIL_INITIALIZE(AArch64)
#endif
#ifdef CUVIL_HAS_RISCV
    CUVIL_INITIALIZE(RISCV)
#endif
#ifdef CUVIL_HAS_NVPTX
    CUVIL_INITIALIZE(NVPTX)
#endif
#undef CUVIL_INITIALIZE
  });
}

compat::OptLevel opt_level(int level) {
  switch (level) {
    case 0:
      return compat::opt_none;
    case 1:
      return compat::opt_less;
    case 2:
      return compat::opt_default;
    default:
      return compat::opt_aggressive;
  }
}

std::unique_ptr<llvm::TargetMachine> create(const TargetDescription& target, int level) {
  initialize_targets();
  const llvm::Triple triple(target.triple);
  std::string error;
  const llvm::Target* llvm_target = compat::lookup_target(triple, error);
  if (llvm_target == nullptr) {
    throw CompileError("this build of Cuvil has no code generator for target \"" + target.name + "\" (" +
                       target.triple + ")");
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;  // only where the IR says `contract`
  std::unique_ptr<llvm::TargetMachine> machine =
      compat::create_target_machine(*llvm_target, triple, target.cpu, target.features, options, opt_level(level));
  CUVIL_CHECK(machine != nullptr, "LLVM refuses target " + target.triple);
  return machine;
}

void verify(const llvm::Module& module) {
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(module, &stream)) {
    stream.flush();
    internal_error(__FILE__, __LINE__, "module " + module.getName().str() + " does not verify: " + problem);
  }
}

std::string emit(llvm::Module& module, const TargetDescription& target, const EmitOptions& options,
                 compat::FileType type) {
  llvm::TargetMachine& machine = target_machine(target, options.level);
  prepare_module(module, target);
  verify(module);

  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  // The code may call nothing, so no pass may turn a loop or an operation into a library call.
  llvm::TargetLibraryInfoImpl library(machine.getTargetTriple());
  library.disableAllFunctions();
  passes.add(new llvm::TargetLibraryInfoWrapperPass(library));
  if (options.cleanup) {
    passes.add(llvm::createSROAPass());
    passes.add(llvm::createEarlyCSEPass());
    passes.add(llvm::createCFGSimplificationPass());
  }
  const bool unsupported = machine.addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true);
  CUVIL_CHECK(!unsupported, "LLVM cannot emit this file type for " + target.triple);
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

}  // namespace

llvm::TargetMachine& target_machine(const TargetDescription& target, int level) {
  using Key = std::tuple<std::string, std::string, std::string, int>;
  thread_local std::map<Key, std::unique_ptr<llvm::TargetMachine>> machines;
  std::unique_ptr<llvm::TargetMachine>& machine = machines[{target.triple, target.cpu, target.features, level}];
  if (machine == nullptr) machine = create(target, level);
  return *machine;
}

void prepare_module(llvm::Module& module, const TargetDescription& target) {
  llvm::TargetMachine& machine = target_machine(target);
  compat::set_triple(module, machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
}

std::string emit_object(llvm::Module& module, const TargetDescription& target, const EmitOptions& options) {
  return emit(module, target, options, compat::object_file);
}

std::string emit_assembly(llvm::Module& module, const TargetDescription& target, const EmitOptions& options) {
  return emit(module, target, options, compat::assembly_file);
}

}  // namespace cuvil
