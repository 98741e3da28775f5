"""Half types: operators that PyTorch computes in float32 round once, at their end."""

from __future__ import annotations

import pytest

import cuvil

torch = pytest.importorskip("torch")
F = torch.nn.functional

HALF = [torch.float16, torch.bfloat16]


def random(*shape: int, dtype, seed: int = 0, scale: float = 1):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def errors(function, *inputs):
    """Largest error of compiled code, and of the exact result in the dtype, both against the exact result."""
    compiled = cuvil.compile(function, input_spec=[(f"x{i}", x) for i, x in enumerate(inputs)])(*inputs)
    exact = function(*[x.double() if x.is_floating_point() else x for x in inputs])
    assert compiled.dtype == inputs[0].dtype
    return [(y.double() - exact).abs().max().item() for y in (compiled, exact.to(compiled.dtype))]


@pytest.mark.parametrize("dtype", HALF)
def test_products_round_once(dtype) -> None:
    for depth in (5, 10, 64, 300):
        for columns in (1, 7, 16):
            mine, best = errors(
                torch.matmul, random(9, depth, dtype=dtype, scale=5), random(depth, columns, dtype=dtype)
            )
            assert mine <= best * 1.01
    mine, best = errors(F.conv2d, random(2, 8, 7, 9, dtype=dtype), random(6, 8, 3, 3, dtype=dtype))
    assert mine <= best * 1.01


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    "function",
    [
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        F.silu,
        F.mish,
        F.softplus,
        F.elu,
        F.celu,
        F.selu,
        F.hardswish,
        F.hardsigmoid,
        F.logsigmoid,
        F.glu,
        torch.tan,
        torch.exp2,
        torch.log_softmax,
        torch.softmax,
        torch.logsumexp,
        torch.mean,
        torch.var,
        torch.cumsum,
        lambda x: F.avg_pool1d(x, 4),
        lambda x: F.adaptive_avg_pool1d(x, 5),
        lambda x: F.layer_norm(x, (24,)),
        lambda x: F.group_norm(x, 2),
        lambda x: torch.add(x, x[:1], alpha=3),
        lambda x: torch.addcmul(x, x[:1], x[:, :1], value=0.3),
        lambda x: torch.lerp(x, x[:1], 0.3),
        torch.linalg.vector_norm,
        torch.asinh,
        torch.erfc,
    ],
)
def test_functions_round_once(function, dtype) -> None:
    def call(x):
        along = function in {torch.log_softmax, torch.softmax, torch.logsumexp, torch.cumsum}
        return function(x, 1) if along else function(x)

    mine, best = errors(call, random(4, 6, 24, dtype=dtype))
    assert mine <= best * 1.02 + 1e-4


def test_sums_beyond_the_range_of_float16() -> None:
    x = torch.full((300, 400), 60.0, dtype=torch.float16)
    for function in (torch.mean, torch.linalg.vector_norm, lambda x: x.mean(1), lambda x: F.avg_pool1d(x, 400 // 2)):
        fast = cuvil.compile(function, input_spec=[("x", x)])
        torch.testing.assert_close(fast(x), function(x))


@pytest.mark.parametrize("dtype", HALF)
def test_attention(dtype) -> None:
    q, k, v = (random(2, 3, 9, 16, dtype=dtype, seed=seed, scale=2) for seed in range(3))
    mine, best = errors(F.scaled_dot_product_attention, q, k, v)
    assert mine <= best * 1.02 + 1e-4


@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64, torch.int64])
def test_floor_division(dtype) -> None:
    x = torch.tensor([1.0, -1.0, 7.0, -7.0, 6.0, 0.0, 5.5, -0.3, 100.0]).to(dtype)[:, None]
    y = torch.tensor([0.1, -0.1, 3.0, -3.0, 0.3, 2.0, -2.0, 1e3]).to(dtype)
    if not dtype.is_floating_point:
        y = y[y != 0]
    for function in (
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        torch.floor_divide,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: x // 3 + (y // 1),
    ):
        fast = cuvil.compile(function, input_spec=[("x", x), ("y", y)])
        torch.testing.assert_close(fast(x, y), function(x, y), rtol=0, atol=0)
    if dtype.is_floating_point:
        special = torch.tensor([0.0, float("inf"), -float("inf"), float("nan"), 2.0]).to(dtype)
        fast = cuvil.compile(torch.floor_divide, input_spec=[("x", special[:, None]), ("y", special)])
        torch.testing.assert_close(fast(special[:, None], special), special[:, None] // special, equal_nan=True)
