#include "driver/debug.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

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

std::string write_reproducer(const Graph& graph) {
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "cuvil-XXXXXX.cuvil").string();
  if (error) return "";
  int fd = mkstemps(path.data(), 6);
  if (fd < 0) return "";
  std::string text = print(graph, PrintOptions{.sources = true, .stand_in_constants = true});
  ssize_t written = write(fd, text.data(), text.size());
  close(fd);
  return written == static_cast<ssize_t>(text.size()) ? path : "";
}

}  // namespace cuvil
