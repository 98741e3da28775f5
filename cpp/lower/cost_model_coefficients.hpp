// Written by bench/fit_cost_model.py from bench/cost_model.csv, in the order of the terms in cost_model.hpp.
#pragma once

#include "lower/cost_model.hpp"

namespace cuvil {

inline constexpr CostTerms kCostCoefficients = {1.008, 0, 0.35, 0.2923, 0.4536};

}  // namespace cuvil
