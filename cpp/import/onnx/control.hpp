// Loops that lowerings of operators build.
#pragma once

#include <optional>
#include <vector>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

struct LoopParts {
  Value* trips;      // i64, rank 0
  Value* condition;  // bool, rank 0
  std::vector<Value*> initial;
  std::optional<Dim> known_trips;  // when nothing ends the loop early
};

/// A loop over [0, count).
LoopParts loop_over(Call& c, const Dim& count, std::vector<Value*> initial);

/// The loop whose body, from (trip, condition, carried…), gives (condition, carried…, rows…): its results are the last
/// carried values, then the stacked rows. Sizes of carried values that change from trip to trip become symbols.
std::vector<Value*> add_loop(Call& c, const LoopParts& parts, const Surroundings::Fill& fill);

}  // namespace cuvil::onnx
