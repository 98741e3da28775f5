#include "support/error.hpp"

#include <cstring>

namespace cuvil {

void internal_error(const char* file, int line, const std::string& message) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(std::string(base ? base + 1 : file) + ":" + std::to_string(line) + ": " + message);
}

}  // namespace cuvil
