// The two functions by which the runtime enters a model: plan (shapes in, symbols, shapes and arena size out) and run.
#pragma once

#include <llvm/IR/Module.h>

#include "lower/program.hpp"

namespace cuvil {

void emit_entry(llvm::Module& module, const Program& program, const std::vector<std::string>& kernel_symbols,
                const TargetDescription& target);

}  // namespace cuvil
