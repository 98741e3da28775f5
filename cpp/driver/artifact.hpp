// Compiled models as files.
#pragma once

#include <memory>
#include <string>

#include "driver/compile.hpp"

namespace cuvil {

/// Writes the model as one ELF shared object that the runtime loads without the compiler (cuvil/cuvil.h). Equal models
/// give equal bytes. Throws CompileError when the file cannot be written.
void save_model(const CompiledModel& model, const std::string& path);

/// The model in the file; its weights' pages are shared with other processes that load it. With `check_weights`, their
/// checksum is verified, which reads them all. Throws LoadError, which says what is wrong with the file.
std::shared_ptr<const CompiledModel> load_model(const std::string& path, bool check_weights = true);

}  // namespace cuvil
