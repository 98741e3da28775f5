// Exceptions of the compiler. Every failure is one of these; the Python module maps them one to one.
#pragma once

#include <stdexcept>
#include <string>

namespace cuvil {

/// The model or the request is at fault. The message names the node, the reason and the way out.
class CompileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A compiled model's file cannot be used here. The message says why.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Cuvil is at fault: a broken invariant. Never raised for bad input.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void internal_error(const char* file, int line, const std::string& message);

}  // namespace cuvil

/// Checks an invariant of the compiler itself; throws InternalError with the place when it does not hold.
#define CUVIL_CHECK(condition, message)                       \
  do {                                                        \
    if (!(condition)) [[unlikely]] {                          \
      ::cuvil::internal_error(__FILE__, __LINE__, (message)); \
    }                                                         \
  } while (false)
