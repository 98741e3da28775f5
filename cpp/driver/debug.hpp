// CUVIL_DEBUG: one dial for what the compiler says about itself, on stderr.
//   1 timings   2 passes   3 graphs after each pass   4 kernels   5 LLVM IR and assembly of every kernel
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "ir/graph.hpp"
#include "lower/program.hpp"

namespace cuvil {

enum class DebugLevel { Off, Timings, Passes, Graphs, Kernels, Code };

DebugLevel debug_level();
void debug_write(const std::string& text);

/// The arguments, written one after another, if the dial is at `level` or beyond.
template <typename... Args>
void debug_log(DebugLevel level, const Args&... args) {
  if (debug_level() < level) return;
  std::ostringstream out;
  (out << ... << args);
  debug_write(out.str());
}

void debug_dump(DebugLevel level, const Graph& graph);
void debug_dump(DebugLevel level, const Program& program);
void debug_dump_code(const Program& program, const TargetDescription& target);

/// Writes the graph, its weights replaced, to a file of its own in the folder for temporary files. Returns the path;
/// empty if that cannot be done.
std::string write_reproducer(const Graph& graph);

}  // namespace cuvil
