#include "driver/debug.hpp"

#include <cstdio>
#include <cstdlib>

#include "codegen/codegen.hpp"
#include "ir/text.hpp"

namespace cuvil {

DebugLevel debug_level() {
  static const DebugLevel level = [] {
    const char* text = std::getenv("CUVIL_DEBUG");
    int n = text ? std::atoi(text) : 0;
    return static_cast<DebugLevel>(n < 0 ? 0 : n > 5 ? 5 : n);
  }();
  return level;
}

void debug_write(const std::string& text) {
  std::fprintf(stderr, "cuvil: %s\n", text.c_str());
}

void debug_dump(DebugLevel level, const Graph& graph) {
  if (debug_level() >= level) debug_write(print(graph, PrintOptions{.sources = true}));
}

void debug_dump(DebugLevel level, const Program& program) {
  if (debug_level() >= level) debug_write(program.str());
}

void debug_dump_code(const Program& program, const TargetDescription& target) {
  if (debug_level() < DebugLevel::Code) return;
  for (const Step& step : program.steps) {
    debug_write(kernel_llvm_ir(step, target));
    debug_write(kernel_assembly(step, target));
  }
}

}  // namespace cuvil
