// LLVM IR to object code. The IR that comes here is finished: it is not optimised, only selected and scheduled.
#pragma once

#include <string>

#include "target/target.hpp"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace cuvil {

struct EmitOptions {
  int level = 1;         // of code generation, 1 to 3
  bool cleanup = false;  // SROA, early CSE and CFG simplification before it, for IR that is not finished
};

/// LLVM's view of the target. Belongs to the calling thread; a later call in the same thread may return the same
/// object.
llvm::TargetMachine& target_machine(const TargetDescription& target, int level = 1);

/// Sets the module's triple and data layout. Call it before building IR that depends on the layout.
void prepare_module(llvm::Module& module, const TargetDescription& target);

/// A relocatable, position-independent ELF object. Safe to call from several threads, each with a module of a context
/// of its own. Throws InternalError for IR that does not verify.
std::string emit_object(llvm::Module& module, const TargetDescription& target, const EmitOptions& options = {});

/// The same code as assembly text.
std::string emit_assembly(llvm::Module& module, const TargetDescription& target, const EmitOptions& options = {});

}  // namespace cuvil
