// The differences between the LLVM versions Cuvil builds with (16 to 23), and nothing else.
#pragma once

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Triple.h>

#include <memory>
#include <string>

#if LLVM_VERSION_MAJOR < 16 || LLVM_VERSION_MAJOR > 23
#error "Cuvil builds with LLVM 16 to 23"
#endif

namespace cuvil::compat {

#if LLVM_VERSION_MAJOR >= 18
using OptLevel = llvm::CodeGenOptLevel;
using FileType = llvm::CodeGenFileType;
inline constexpr OptLevel opt_none = OptLevel::None;
inline constexpr OptLevel opt_less = OptLevel::Less;
inline constexpr OptLevel opt_default = OptLevel::Default;
inline constexpr OptLevel opt_aggressive = OptLevel::Aggressive;
inline constexpr FileType object_file = FileType::ObjectFile;
inline constexpr FileType assembly_file = FileType::AssemblyFile;
#else
using OptLevel = llvm::CodeGenOpt::Level;
using FileType = llvm::CodeGenFileType;
inline constexpr OptLevel opt_none = llvm::CodeGenOpt::None;
inline constexpr OptLevel opt_less = llvm::CodeGenOpt::Less;
inline constexpr OptLevel opt_default = llvm::CodeGenOpt::Default;
inline constexpr OptLevel opt_aggressive = llvm::CodeGenOpt::Aggressive;
inline constexpr FileType object_file = llvm::CGFT_ObjectFile;
inline constexpr FileType assembly_file = llvm::CGFT_AssemblyFile;
#endif

inline const llvm::Target* lookup_target(const llvm::Triple& triple, std::string& error) {
#if LLVM_VERSION_MAJOR >= 22
  return llvm::TargetRegistry::lookupTarget(triple, error);
#else
  return llvm::TargetRegistry::lookupTarget(triple.str(), error);
#endif
}

inline std::unique_ptr<llvm::TargetMachine> create_target_machine(const llvm::Target& target,
                                                                  const llvm::Triple& triple, llvm::StringRef cpu,
                                                                  llvm::StringRef features,
                                                                  const llvm::TargetOptions& options, OptLevel level) {
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple& name = triple;
#else
  const std::string& name = triple.str();
#endif
  return std::unique_ptr<llvm::TargetMachine>(
      target.createTargetMachine(name, cpu, features, options, llvm::Reloc::PIC_, std::nullopt, level));
}

inline void set_triple(llvm::Module& module, const llvm::Triple& triple) {
#if LLVM_VERSION_MAJOR >= 21
  module.setTargetTriple(triple);
#else
  module.setTargetTriple(triple.str());
#endif
}

/// The declaration of an intrinsic for these overloaded types.
inline llvm::Function* intrinsic(llvm::Module& module, llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Type*> types = {}) {
#if LLVM_VERSION_MAJOR >= 20
  return llvm::Intrinsic::getOrInsertDeclaration(&module, id, types);
#else
  return llvm::Intrinsic::getDeclaration(&module, id, types);
#endif
}

/// <0, 1, 2, ...> of a fixed-width integer vector type.
inline llvm::Constant* step_vector(llvm::FixedVectorType* type) {
  llvm::SmallVector<llvm::Constant*, 64> steps;
  for (unsigned i = 0; i < type->getNumElements(); ++i) {
    steps.push_back(llvm::ConstantInt::get(type->getElementType(), i));
  }
  return llvm::ConstantVector::get(steps);
}

/// Marks a pointer parameter as one the callee does not keep.
inline void add_no_capture(llvm::Function& function, unsigned parameter) {
#if LLVM_VERSION_MAJOR >= 21
  function.addParamAttr(parameter,
                        llvm::Attribute::getWithCaptureInfo(function.getContext(), llvm::CaptureInfo::none()));
#else
  function.addParamAttr(parameter, llvm::Attribute::NoCapture);
#endif
}

}  // namespace cuvil::compat
