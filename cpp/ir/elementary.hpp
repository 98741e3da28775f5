// Elementary and special functions of mathematics as compositions of primitives, for any importer.
//
// Those of the first group compute in the operand's dtype, which should be f32 or f64. Those of the second group are
// approximations in f64: the operand must be f64. NaN gives NaN; outside of its domain a function gives NaN.
#pragma once

#include <vector>

#include "ir/builder.hpp"

namespace cuvil {

/// Coefficients from the highest power down.
Value* polynomial(Builder& b, Value* x, const std::vector<double>& coefficients);
/// Like polynomial, with a leading coefficient of 1 that is not in the list.
Value* monic_polynomial(Builder& b, Value* x, const std::vector<double>& coefficients);
/// A Chebyshev series in cephes' order: from the highest term to half of the constant one.
Value* chebyshev_series(Builder& b, Value* x, const std::vector<double>& coefficients);

/// The sign bit, also of -0; false for every NaN.
Value* sign_bit(Builder& b, Value* x);
Value* copy_sign(Builder& b, Value* magnitude, Value* sign);
Value* arc_tangent(Builder& b, Value* x);
Value* arc_tangent2(Builder& b, Value* y, Value* x);
Value* arc_sine(Builder& b, Value* x);
Value* arc_cosine(Builder& b, Value* x);
Value* hyperbolic_sine(Builder& b, Value* x);
Value* hyperbolic_cosine(Builder& b, Value* x);
Value* area_hyperbolic_sine(Builder& b, Value* x);
Value* area_hyperbolic_cosine(Builder& b, Value* x);
Value* area_hyperbolic_tangent(Builder& b, Value* x);
/// sqrt(x² + y²) without overflow.
Value* hypotenuse(Builder& b, Value* x, Value* y);
/// sin(πx), exactly 0 for whole x.
Value* sine_of_pi(Builder& b, Value* x);

Value* complementary_error(Builder& b, Value* x);
/// exp(x²) erfc(x)
Value* scaled_complementary_error(Builder& b, Value* x);
Value* inverse_error(Builder& b, Value* x);
/// The argument at which the normal distribution's cumulative function is x.
Value* inverse_normal(Builder& b, Value* x);
Value* log_gamma(Builder& b, Value* x);
Value* digamma(Builder& b, Value* x);
/// Hurwitz' zeta function Σ (q + i)⁻ˢ.
Value* zeta(Builder& b, Value* s, Value* q);
/// The n-th derivative of digamma.
Value* polygamma(Builder& b, int64_t n, Value* x);

// Bessel's functions (bessel.cpp). A scaled I is without its factor exp(|x|), a scaled K without exp(-x).
Value* bessel_j0(Builder& b, Value* x);
Value* bessel_j1(Builder& b, Value* x);
Value* bessel_y0(Builder& b, Value* x);
Value* bessel_y1(Builder& b, Value* x);
Value* bessel_i0(Builder& b, Value* x);
Value* bessel_i1(Builder& b, Value* x);
Value* bessel_k0(Builder& b, Value* x);
Value* bessel_k1(Builder& b, Value* x);
Value* scaled_bessel_i0(Builder& b, Value* x);
Value* scaled_bessel_i1(Builder& b, Value* x);
Value* scaled_bessel_k0(Builder& b, Value* x);
Value* scaled_bessel_k1(Builder& b, Value* x);
Value* spherical_bessel_j0(Builder& b, Value* x);
/// Ai
Value* airy(Builder& b, Value* x);

}  // namespace cuvil
