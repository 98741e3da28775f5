// cuvil-opt: runs passes on the text form of a graph, and shows every later stage as text.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace cuvil {

/// The command without its name. Returns the exit status: 0, 1 for the user's faults, 3 for Cuvil's.
int run_opt(const std::vector<std::string>& arguments, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace cuvil
