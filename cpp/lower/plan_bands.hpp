// Fusion across kernels: a chain of kernels that hand rows to one another runs band by band of rows, so that what one
// writes is still in L2 when the next reads it.
#pragma once

#include "lower/program.hpp"
#include "target/target.hpp"

namespace cuvil {

/// Groups steps into chains where intermediate values outgrow L2, and asks for schedules whose outermost parallel loop
/// is over rows. Loops are split already. Steps may change places, but only such that do not depend on each other.
void plan_bands(Program& program, const TargetDescription& target);

/// Drops the chains whose schedules did not come out as asked for.
void check_bands(Program& program);

}  // namespace cuvil
