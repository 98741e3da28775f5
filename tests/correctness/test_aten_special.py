"""Functions of mathematics that are compositions, against PyTorch: ordinary, extreme and special arguments."""

from __future__ import annotations

import math

import pytest

import cuvil

torch = pytest.importorskip("torch")

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INFINITY, NAN = float("inf"), float("nan")
SPECIAL = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    2.0,
    -2.0,
    3.0,
    -7.0,
    30.0,
    -30.0,
    88.5,
    1e4,
    -1e4,
    INFINITY,
    -INFINITY,
    NAN,
]
# Units in the last place that a result may be off, beside an absolute error.
TOLERANCE = {
    torch.float64: (1e-12, 1e-13),
    torch.float32: (2e-6, 1e-6),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-3),
}


def arguments(dtype, low: float = -10, high: float = 10):
    random = torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (high - low) + low
    return torch.cat([random, torch.tensor(SPECIAL, dtype=torch.float64)]).to(dtype)


def check(function, *inputs, exact=None, tolerance=None) -> None:
    """``exact``: compare with the function in f64, where PyTorch's own in the given dtype is the less precise one."""
    fast = cuvil.compile(function, input_spec=[(f"x{i}", x) for i, x in enumerate(inputs)])
    actual, expected = fast(*inputs), function(*inputs)
    if exact:
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        expected = function(*wide).to(expected.dtype)
    results = zip(actual, expected) if isinstance(expected, (tuple, list)) else [(actual, expected)]
    for mine, wanted in results:
        rtol, atol = tolerance or TOLERANCE.get(wanted.dtype, (0, 0))
        torch.testing.assert_close(mine, wanted, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name", ["acos", "asin", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "erfinv", "lgamma"]
)
def test_unary(name: str, dtype) -> None:
    function = getattr(torch, name)
    check(function, arguments(dtype), exact=True)
    check(function, arguments(dtype, -1, 1), exact=True)
    check(function, torch.arange(-3, 4))
    check(function, torch.zeros(0, 2, dtype=dtype))
    check(function, torch.tensor(0.25, dtype=dtype), exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_error_functions(dtype) -> None:
    far = torch.linspace(-6, 27, 300, dtype=dtype)
    check(torch.erfc, far, exact=True, tolerance=(2e-6 if dtype == torch.float32 else 1e-11, 0))
    check(torch.special.erfcx, far[20:], exact=True)
    inside = torch.cat(
        [torch.rand(100, dtype=dtype), torch.tensor([1e-30, 1e-12, 1e-4, 0, 1, 1 - 1e-6, -1, 2, NAN]).to(dtype)]
    )
    check(torch.special.ndtri, inside, exact=True, tolerance=(1e-5, 1e-6))
    check(torch.special.log_ndtr, far, exact=True, tolerance=(1e-5, 1e-6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma_family(dtype) -> None:
    x = arguments(dtype, -9, 40)
    close = (3e-6, 1e-5)
    check(torch.digamma, x, exact=True, tolerance=close)
    positive = torch.cat([torch.rand(100, dtype=dtype) * 50 + 0.01, torch.tensor([1e6, NAN, 1, 2]).to(dtype)])
    for n in (1, 2, 3, 5):
        check(lambda x, n=n: torch.polygamma(n, x), positive, exact=True, tolerance=close)
    s = torch.rand(104, dtype=dtype) * 6 + 1.1
    check(torch.special.zeta, s, positive, exact=True, tolerance=close)
    check(lambda q: torch.special.zeta(3, q), torch.tensor([-2.5, -0.5, -2.0, 0.0, 30.0], dtype=dtype), tolerance=close)


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary(dtype) -> None:
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -0.25, 200.0, INFINITY, -INFINITY, NAN], dtype=dtype)
    x, y = values[:, None].expand(10, 10).contiguous(), values[None, :]
    for function in (torch.atan2, torch.hypot, torch.fmax, torch.fmin):
        check(function, x, y)
    # The sign of a NaN is not kept.
    check(torch.copysign, x[:, :9], values[None, :9])
    check(lambda x: torch.copysign(x, -2.0), x)
    check(torch.signbit, values[:9])
    if dtype != torch.float64:
        check(torch.nextafter, x, y, tolerance=(0, 0))
        tiny = torch.tensor([torch.finfo(dtype).tiny, torch.finfo(dtype).max, 1.0, 2.0, 1.5, -1.0], dtype=dtype)
        for direction in (0.0, INFINITY, -INFINITY):
            check(torch.nextafter, tiny, torch.full_like(tiny, direction), tolerance=(0, 0))


def test_integers() -> None:
    x, y = torch.arange(-4, 5), torch.arange(9).flip(0) - 3
    for function in (torch.atan2, torch.fmax, torch.fmin, torch.copysign):
        check(function, x, y)
    for function in (torch.signbit, torch.angle, torch.round):
        check(function, x)
    check(torch.fmax, x > 0, y > 1)
    check(torch.ldexp, torch.rand(9), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_of_floats(dtype) -> None:
    x = torch.cat([arguments(dtype), torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).tiny, -1e-30]).to(dtype)])
    finite = x[x.isfinite()]
    check(lambda x: tuple(torch.frexp(x)), finite, tolerance=(0, 0))
    check(lambda x: torch.frexp(x)[0], x, tolerance=(0, 0))
    check(torch.angle, x)
    for decimals in (0, 2, -1):
        check(lambda x, d=decimals: torch.round(x, decimals=d), finite)


@pytest.mark.parametrize("dtype", FLOATS)
def test_logcumsumexp(dtype) -> None:
    x = arguments(dtype)[:200].reshape(4, 10, 5)
    for axis in (0, 1, -1):
        check(lambda x, a=axis: torch.logcumsumexp(x, a), x)
    special = torch.tensor([[-INFINITY, -INFINITY, 1, 2], [1, INFINITY, 2, 3], [0, NAN, 1, 1]], dtype=dtype)
    check(lambda x: torch.logcumsumexp(x, 1), special)


@pytest.mark.parametrize("letter", "tuvw")
@pytest.mark.parametrize("shifted", ["", "shifted_"])
def test_chebyshev(letter: str, shifted: str) -> None:
    function = getattr(torch.special, f"{shifted}chebyshev_polynomial_{letter}")
    x = torch.cat(
        [torch.linspace(-2.99, 3.01, 41, dtype=torch.float64), torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)]
    )
    n = torch.arange(-1, 9)[:, None]
    # PyTorch's own loses digits in its recurrences.
    check(function, x, n, tolerance=(1e-9, 1e-9))
    check(lambda x: function(x, 4), x, tolerance=(1e-9, 1e-9))
    assert math.isclose(cuvil.compile(lambda x: function(x, 4), input_spec=[("x", x)])(x)[3], function(x, 4)[3])


@pytest.mark.parametrize(
    "name", ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
)
def test_orthogonal_polynomials(name: str) -> None:
    function = getattr(torch.special, name)
    x = torch.linspace(-2, 3, 31, dtype=torch.float64)
    for n in (-1, 0, 1, 2, 3, 7, 20):
        check(lambda x, n=n: function(x, n), x, tolerance=(1e-9, 1e-9))
    with pytest.raises(cuvil.CompileError, match="needs a number as the degree"):
        cuvil.compile(function, input_spec=[("x", x), ("n", torch.arange(31))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name",
    [
        "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1", "i1e", "modified_bessel_i0",
        "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1", "spherical_bessel_j0",
    ],
)  # fmt: skip
def test_bessel(name: str, dtype) -> None:
    # PyTorch's own are good to 1e-5 where J and Y change from one form to the other.
    wave = name.startswith("bessel")
    x = torch.cat([torch.linspace(-30, 60, 400, dtype=torch.float64), torch.tensor([0.0, 1.0, 5.0, 8.0, NAN])]).to(
        dtype
    )
    close = (2e-5, 2e-5) if wave else (3e-6, 1e-6) if dtype == torch.float32 else (1e-10, 1e-12)
    check(getattr(torch.special, name), x, exact=True, tolerance=close)


def test_waves_are_right_to_float64() -> None:
    # PyTorch's own are good to six digits only.
    special = pytest.importorskip("scipy.special")
    x = torch.cat([torch.linspace(-20, 12, 300, dtype=torch.float64), torch.tensor([5.0, 2.09, -2.09])])
    for name, exact in (
        ("airy_ai", lambda x: special.airy(x)[0]),
        ("bessel_j0", special.j0),
        ("bessel_j1", special.j1),
        ("bessel_y0", special.y0),
        ("bessel_y1", special.y1),
    ):
        at = x[x > 0.01] if "_y" in name else x
        mine = cuvil.compile(getattr(torch.special, name), input_spec=[("x", at)])(at)
        torch.testing.assert_close(mine, torch.from_numpy(exact(at.numpy())), rtol=1e-11, atol=1e-13)
