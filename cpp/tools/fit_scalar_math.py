"""Fits the polynomials of cpp/codegen/scalar_math*.cpp and prints scalar_math_coefficients.hpp.

Every fit is a weighted minimax polynomial (Remez exchange in multiple precision). The comment above each table states
the function, the interval and the largest weighted error of the rounded coefficients. Needs mpmath.
"""

import mpmath as mp
import numpy as np

mp.mp.dps = 50
tiny = mp.mpf(10) ** -8  # weight where the error cannot matter


def remez(f, raw_weight, low, high, degree, rounds=10):
    """Coefficients, lowest first, of the polynomial p that minimises max |weight * (p - f)| on [low, high]."""

    def weight(x):
        return max(raw_weight(x), tiny)

    n = degree + 2
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mp.cos(mp.pi * i / (n - 1)) for i in range(n)]
    for _ in range(rounds):
        matrix, right = mp.matrix(n, n), mp.matrix(n, 1)
        for i, x in enumerate(points):
            for k in range(degree + 1):
                matrix[i, k] = x**k
            matrix[i, degree + 1] = (-1) ** i / weight(x)
            right[i] = f(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(degree + 1)]
        grid = [middle - half * mp.cos(mp.pi * i / (24 * n)) for i in range(24 * n + 1)]
        errors = [weight(x) * (mp.polyval(coefficients[::-1], x) - f(x)) for x in grid]
        points = extrema(grid, errors, n)
    return coefficients


def extrema(grid, errors, n):
    """The n alternating extreme points of an error curve."""
    runs = []
    for x, e in zip(grid, errors):
        if runs and mp.sign(e) == mp.sign(runs[-1][1]):
            if abs(e) > abs(runs[-1][1]):
                runs[-1] = (x, e)
        else:
            runs.append((x, e))
    while len(runs) > n:
        runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
    if len(runs) < n:
        raise ArithmeticError("the error curve has too few extrema")
    return [x for x, _ in runs]


def emit(name, text, f, weight, low, high, degree, single):
    low, high = mp.mpf(low), mp.mpf(high)
    exact = remez(f, weight, low, high, degree)
    rounded = [float(np.float32(float(c))) if single else float(c) for c in exact]
    worst = 0
    for i in range(2001):
        x = low + (high - low) * i / 2000
        if weight(x) != 0:
            p = mp.polyval([mp.mpf(c) for c in rounded[::-1]], x)
            worst = max(worst, abs(weight(x) * (p - f(x))))
    bits = float(mp.log(worst, 2))
    print(f"// {text}; degree {degree}, error 2^{bits:.1f}")
    print(f"inline constexpr double {name}[] = {{")
    for c in rounded:
        print(f"    {c.hex()},  // {c:.9g}")
    print("};\n")


def series(term, x, first=0):
    """Sum of term(k, x) until it no longer matters."""
    total, k = mp.mpf(0), first
    while True:
        t = term(k, x)
        total += t
        if k > first + 2 and abs(t) < abs(total) * mp.mpf(10) ** -50:
            return total
        k += 1


def exp_tail(r):  # (e^r - 1 - r) / r^2
    return series(lambda k, x: x**k / mp.factorial(k + 2), r)


def log_tail(f):  # (log(1+f) - f + f^2/2) / f^3
    return series(lambda k, x: (-x) ** k / (k + 3), f)


def atanh_tail(z):  # (2 atanh(s) - 2s) / s^3 with z = s^2
    return series(lambda k, x: 2 * x**k / (2 * k + 3), z)


def atanh_tail_2(z):  # (2 atanh(s) - 2s - 2/3 s^3) / s^5 with z = s^2
    return series(lambda k, x: 2 * x**k / (2 * k + 5), z)


def sin_tail(z):  # (sin(r) - r) / r^3 with z = r^2
    return series(lambda k, x: (-1) ** (k + 1) * x**k / mp.factorial(2 * k + 3), z)


def cos_tail(z):  # (cos(r) - 1 + r^2/2) / r^4 with z = r^2
    return series(lambda k, x: (-1) ** k * x**k / mp.factorial(2 * k + 4), z)


def erf_tail(z):  # (erf(x) - x) / x with z = x^2
    if z < mp.mpf(10) ** -30:
        return 2 / mp.sqrt(mp.pi) * (1 - z / 3) - 1
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1


def over_sqrt(function):
    """Weight that makes an error of c(x^2)·x relative to function(x)."""

    def weight(z, power):
        x = mp.sqrt(z)
        return mp.mpf(1) if x == 0 else x**power / function(x)

    return weight


def erf_fits():
    # Beyond this erf(x) is 1 in float.
    emit(
        "erf_small_f32",
        "(erf(x) - x) / x in x^2, |x| <= 0.93",
        erf_tail,
        lambda z: over_sqrt(mp.erf)(z, 1) if z else mp.sqrt(mp.pi) / 2,
        0,
        mp.mpf("0.93") ** 2,
        6,
        True,
    )
    emit(
        "erf_large_f32",
        "log(1 - erf(x)) in x, 0.92 <= x <= 3.95; weight 1 - erf(x)",
        lambda x: mp.log(mp.erfc(x)),
        mp.erfc,
        "0.92",
        "3.95",
        7,
        True,
    )
    emit(
        "erf_small_f64",
        "(erf(x) - x) / x in x^2, |x| <= 1",
        erf_tail,
        lambda z: over_sqrt(mp.erf)(z, 1) if z else mp.sqrt(mp.pi) / 2,
        0,
        1,
        12,
        False,
    )

    def scaled(u):  # erfc(t) e^(t^2) with u = (t-2)/(t+2)
        t = 2 * (1 + u) / (1 - u)
        return mp.erfc(t) * mp.exp(t * t)

    def scaled_weight(u):
        t = 2 * (1 + u) / (1 - u)
        return mp.exp(-t * t)

    emit(
        "erf_large_f64",
        "erfc(t) e^(t^2) in (t-2)/(t+2), 1 <= t <= 6; weight e^(-t^2)",
        scaled,
        scaled_weight,
        -mp.mpf(1) / 3,
        mp.mpf(1) / 2,
        13,
        False,
    )


def single_precision(value):
    return float(np.float32(float(value)))


def table(values):
    """Floats as an initializer, four to a line."""
    texts = [single_precision(v).hex() + "f" for v in values]
    return ",\n    ".join(", ".join(texts[i : i + 4]) for i in range(0, len(texts), 4))


def exp_tables(parts, polynomial, name):
    """2^(j/parts), and what its rounding left as a fraction of it."""
    limit = mp.ln(2) / (2 * parts) * mp.mpf("1.01")
    emit(
        polynomial,
        f"(e^r - 1 - r) / r^2 in r, |r| <= ln(2) / {2 * parts}; error relative to e^r",
        exp_tail,
        lambda r: r * r / mp.exp(r) if r else tiny,
        -limit,
        limit,
        1,
        True,
    )
    exact = [mp.mpf(2) ** (mp.mpf(j) / parts) for j in range(parts)]
    rest = [v / single_precision(v) - 1 for v in exact]
    print(f"// 2^(j/{parts}), and the exact value over the rounded one, less 1.")
    print(f"inline constexpr float {name}_f32[{parts}] = {{\n    {table(exact)}}};")
    print(f"inline constexpr float {name}_rest_f32[{parts}] = {{\n    {table(rest)}}};\n")


def polynomial_around(f, centre, half_width, degree):
    """Single-precision coefficients of f(centre + t) in t; of f(t) - t, odd, around 0; and the relative error.

    Least squares at Chebyshev's nodes, one coefficient rounded after the other.
    """
    nodes = [half_width * mp.cos(mp.pi * (i + mp.mpf("0.5")) / 120) for i in range(120)]
    if centre == 0:
        nodes, powers = [t for t in nodes if t > 0], list(range(1, degree + 1, 2))
        fixed = {0: 0.0}
    else:
        powers = list(range(1, degree + 1))
        fixed = {0: single_precision(f(centre))}

    def missing(t):
        return f(centre + t) - (t if centre == 0 else 0) - sum(c * t**p for p, c in fixed.items())

    while powers:
        matrix, right = mp.matrix(len(nodes), len(powers)), mp.matrix(len(nodes), 1)
        for i, t in enumerate(nodes):
            for k, p in enumerate(powers):
                matrix[i, k] = t**p / f(centre + t)
            right[i] = missing(t) / f(centre + t)
        fixed[powers.pop(0)] = single_precision(mp.lu_solve(matrix, right)[0])
    error = max(abs(missing(t) / f(centre + t)) for t in nodes)
    return [fixed.get(p, 0.0) for p in range(degree + 1)], error


def odd_table(name, f, step, degree):
    fits = [polynomial_around(f, j * step, step / 2 * mp.mpf("1.001"), degree) for j in range(16)]
    worst = float(mp.log(max(error for _, error in fits), 2))
    print(f"// {name}(j step + t) in t, |t| <= step/2, coefficient by coefficient for all j; for j = 0, less t;")
    print(f"// degree {degree}, error 2^{worst:.1f}, which is mostly that of rounded constants")
    print(f"inline constexpr double {name}_step_f32 = {float(step).hex()};")
    print(f"inline constexpr float {name}_table_f32[{degree + 1}][16] = {{")
    for k in range(degree + 1):
        print(f"    {{{table([row[k] for row, _ in fits])}}},")
    print("};\n")


def digits_of_two_over_pi(bits, count):
    """The first `count` digits of 2/pi in base 2^bits."""
    digits = []
    with mp.workprec(bits * count + 100):
        rest = 2 / mp.pi
        for _ in range(count):
            rest *= 2**bits
            digits.append(int(mp.floor(rest)))
            rest -= digits[-1]
    return digits


def split(value, bits):
    """`value` as doubles of bits[i] significant bits, the last one rounded."""
    parts = []
    with mp.workprec(400):
        rest = +value()
        for width in bits:
            exponent = int(mp.floor(mp.log(abs(rest), 2))) + 1 - width
            part = mp.nint(rest / mp.mpf(2) ** exponent) * mp.mpf(2) ** exponent
            parts.append(float(part))
            rest -= part
        return parts


def constants():
    print("// ln 2: the first part has bits to spare, so that its products with exponents are exact.")
    print("// ln2_rounded_f32 has none: its products are exact only within a fused operation.")
    for name, bits in (("ln2_f32", (15, 24)), ("ln2_f64", (40, 53)), ("ln2_rounded_f32", (24, 24))):
        print(f"inline constexpr double {name}[] = {{{', '.join(p.hex() for p in split(lambda: mp.ln(2), bits))}}};")
    print("\n// pi/2 in parts whose products with the quotient are exact: below 2^27, and below 2^20 for double.")
    for name, bits in (("half_pi_f32", (26, 26, 53)), ("half_pi_f64", (33, 33, 33, 53))):
        print(f"inline constexpr double {name}[] = {{{', '.join(p.hex() for p in split(lambda: mp.pi / 2, bits))}}};")
    print("\n// 2/pi in digits of 24 bits, most significant first: digit i is worth 2^(-24 (i+1)).")
    digits = digits_of_two_over_pi(24, 49)
    print("inline constexpr unsigned two_over_pi[] = {")
    for i in range(0, len(digits), 10):
        print("    " + ", ".join(f"0x{d:06x}" for d in digits[i : i + 10]) + ",")
    print("};\n")


def main():
    half_ln2 = mp.mpf("0.3471")
    quarter_pi_2 = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
    low, high = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1  # of m - 1
    s2 = (high / (2 + high)) ** 2 * mp.mpf("1.0001")
    print("// Generated by cpp/tools/fit_scalar_math.py: minimax polynomials, lowest coefficient first.")
    print("#pragma once\n")
    print("namespace cuvil::coefficients {\n")
    constants()
    for suffix, single, exp_degree, trig in (("f32", True, 4, (3, 2)), ("f64", False, 9, (5, 5))):
        emit(
            f"exp_{suffix}",
            "(e^r - 1 - r) / r^2 in r, |r| <= 0.3471; error relative to e^r",
            exp_tail,
            lambda r: r * r / mp.exp(r) if r else tiny,
            -half_ln2,
            half_ln2,
            exp_degree,
            single,
        )
        emit(
            f"sin_{suffix}",
            "(sin(r) - r) / r^3 in r^2, |r| <= pi/4; error relative to sin(r)",
            sin_tail,
            lambda z: over_sqrt(mp.sin)(z, 3) if z else tiny,
            0,
            quarter_pi_2,
            trig[0],
            single,
        )
        emit(
            f"cos_{suffix}",
            "(cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4",
            cos_tail,
            lambda z: z * z if z else tiny,
            0,
            quarter_pi_2,
            trig[1],
            single,
        )
    emit(
        "log_f32",
        "(log(1+f) - f + f^2/2) / f^3 in f, sqrt(1/2) <= 1+f <= sqrt(2); error relative to log(1+f)",
        log_tail,
        lambda f: f**3 / mp.log1p(f) if f else tiny,
        low,
        high,
        8,
        True,
    )
    emit(
        "log_f64",
        "(2 atanh(s) - 2s) / s^3 in s^2, s = f/(2+f), same range of f; error relative to 2 atanh(s)",
        atanh_tail,
        lambda z: over_sqrt(mp.atanh)(z, 3) / 2 if z else tiny,
        0,
        s2,
        6,
        False,
    )
    emit(
        "pow_log_f64",
        "(2 atanh(s) - 2s - 2/3 s^3) / s^5 in s^2; error relative to 2 atanh(s)",
        atanh_tail_2,
        lambda z: over_sqrt(mp.atanh)(z, 5) / 2 if z else tiny,
        0,
        s2,
        7,
        False,
    )
    exp_tables(16, "exp_narrow_f32", "exp2_table")
    exp_tables(8, "exp_eighths_f32", "exp2_eighths")
    odd_table("tanh", mp.tanh, mp.mpf(150) / 256, 7)
    odd_table("erf", mp.erf, mp.mpf(65) / 256, 5)
    erf_fits()
    print("}  // namespace cuvil::coefficients")


if __name__ == "__main__":
    main()
