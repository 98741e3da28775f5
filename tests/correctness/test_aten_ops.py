"""Functions of torch tensors: compiled, and by the reference evaluator, against PyTorch itself."""

from __future__ import annotations

import numpy as np
import pytest

import cuvil

torch = pytest.importorskip("torch")
F = torch.nn.functional

SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.75, float("nan"), float("inf"), -float("inf"), 1e-40, 1e30, -1e-3]
)


def randn(*shape: int, seed: int = 0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ints(*shape: int, low: int = -5, high: int = 6, dtype=torch.int64, seed: int = 0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tensor_of(array, dtype):
    """NumPy has no bfloat16: its bits come as uint16."""
    array = np.array(array)
    return torch.from_numpy(array.view(np.int16)).view(dtype) if dtype == torch.bfloat16 else torch.from_numpy(array)


def check(function, *inputs, tolerance: float = 2e-6) -> None:
    expected = function(*inputs)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    fast = cuvil.compile(function, input_spec=[(f"x{i}", x) for i, x in enumerate(inputs)])
    actual = fast(*inputs)
    actual = actual if isinstance(actual, (tuple, list)) else (actual,)
    reference = [tensor_of(a, w.dtype) for a, w in zip(fast._source._imported.graph.evaluate(list(inputs)), expected)]
    assert len(actual) == len(expected) == len(reference)
    for mine, by_reference, wanted in zip(actual, reference, expected):
        assert mine.dtype == wanted.dtype
        assert mine.shape == wanted.shape
        if wanted.dtype.is_floating_point:
            half = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(wanted.dtype, 0.0)
            finite = wanted[torch.isfinite(wanted)].double()
            scale = float(finite.abs().max()) if finite.numel() else 0.0
            options = {"rtol": max(tolerance, half), "atol": max(tolerance, half) * scale, "equal_nan": True}
            torch.testing.assert_close(mine.double(), wanted.double(), **options)
            torch.testing.assert_close(by_reference.double(), wanted.double(), **options)
        else:
            assert torch.equal(mine, wanted)
            assert torch.equal(by_reference, wanted)


UNARY = [
    "abs", "ceil", "cos", "erf", "exp", "exp2", "expm1", "floor", "isinf", "isnan", "log", "log10", "log1p", "log2",
    "logical_not", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tan",
    "tanh", "trunc",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    function = getattr(torch, name)
    check(function, randn(7, 33))
    special = SPECIAL if name not in {"sin", "cos", "tan"} else SPECIAL[SPECIAL.abs() < 10]
    check(function, special)
    check(function, randn(5, 19, dtype=torch.float64), tolerance=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "gelu",
        "silu",
        "mish",
        "softplus",
        "hardsigmoid",
        "hardswish",
        "leaky_relu",
        "elu",
        "relu6",
        "hardtanh",
        "selu",
        "celu",
    ],
)
def test_activation(name: str) -> None:
    function = getattr(F, name)
    check(function, 3 * randn(9, 40), tolerance=5e-6)


BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "pow",
    "remainder",
    "fmod",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    function = getattr(torch, name)
    a, b = randn(4, 1, 17), randn(3, 17, seed=1)
    check(function, a.abs() if name == "pow" else a, b)
    if name not in {"pow", "remainder", "fmod"}:
        check(function, SPECIAL[:, None], SPECIAL[None])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "remainder", "floor_divide", "eq", "lt"])
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.int64, torch.int64),
        (torch.int32, torch.float32),
        (torch.int8, torch.int64),
        (torch.uint8, torch.int8),
        (torch.float16, torch.float32),
    ],
)
def test_promotion(name: str, dtypes) -> None:
    a, b = ints(5, 6, dtype=dtypes[0], low=0), ints(6, low=1, dtype=dtypes[1], seed=1)
    check(getattr(torch, name), a, b)


def test_weak_scalars() -> None:
    check(lambda x: x + 1.5, ints(4))
    check(lambda x: x * 2, randn(4, dtype=torch.float16))
    check(lambda x: x > 0.5, ints(4))
    check(lambda x, y: x * y, randn(4), torch.tensor(2, dtype=torch.int64))
    check(lambda x: 1 - x / 2, ints(4, dtype=torch.int32))


def test_integers_wrap() -> None:
    big = torch.tensor([2**31 - 1, -(2**31), 12345], dtype=torch.int32)
    check(lambda x: (x + x, x * x, -x, x - 7), big)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name: str) -> None:
    check(getattr(torch, name), ints(20) > 0, ints(20, seed=1))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits(name: str) -> None:
    check(getattr(torch, name), ints(20, dtype=torch.int32), ints(20, seed=1, dtype=torch.int32))


def test_select_and_clamp() -> None:
    x = randn(6, 20)
    check(lambda x, y: torch.where(x > 0, x, y), x, randn(20, seed=1))
    check(lambda x: torch.clamp(x, -0.5, 0.25), SPECIAL)
    check(lambda x: x.masked_fill(x < 0, -7.0), x)
    check(lambda x, m: torch.clamp(x, min=m), x, randn(20, seed=2))


SHAPES = [
    lambda x: x.reshape(6, 20),
    lambda x: x.permute(2, 0, 1),
    lambda x: x.transpose(0, 2).contiguous().view(-1),
    lambda x: x[1:, ::2, -3:],
    lambda x: x[:, 1],
    lambda x: x.flip(0, 2),
    lambda x: torch.roll(x, (1, -2), (0, 2)),
    lambda x: x.repeat(2, 1, 3),
    lambda x: x.expand(5, *x.shape).sum(0),
    lambda x: torch.cat([x, x * 2, x[:1]], 0),
    lambda x: torch.stack([x, -x], -1),
    lambda x: x.chunk(2, 2),
    lambda x: x.split([1, 3], 1),
    lambda x: x.unbind(0),
    lambda x: x.unsqueeze(1).squeeze(1),
    lambda x: F.pad(x, (1, 2, 0, 3), value=4.0),
    lambda x: F.pad(x, (-1, 2)),
    lambda x: x.tril(),
    lambda x: x.triu(1),
    lambda x: F.glu(x[..., :4], -1),
    lambda x: x.narrow(2, 1, 3),
    lambda x: x.flatten(1).unflatten(1, (2, 2, 5)),
]


@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_shapes(number: int, dtype) -> None:
    if dtype == torch.int64 and "glu" in SHAPES[number].__code__.co_names:
        pytest.skip("glu is for floats")
    check(SHAPES[number], (10 * randn(6, 4, 5)).to(dtype))


def test_strided_inputs() -> None:
    base = randn(8, 10)
    for x in (base.t(), base[::2, 1:], base.expand(3, 8, 10), base[:, 3]):
        check(lambda x: torch.exp(x) + 1, x)


def test_indexing() -> None:
    x = randn(7, 5)
    check(lambda x, i: x[i], x, ints(3, 2, low=-7, high=7))
    check(lambda x, i, j: x[i, j], x, ints(4, low=0, high=7), ints(4, low=-5, high=5, seed=1))
    check(lambda x, i: torch.gather(x, 1, i), x, ints(7, 3, low=0, high=5))
    check(lambda x, i: x.index_select(1, i), x, ints(4, low=0, high=5))
    check(lambda w, i: F.embedding(i, w), x, ints(2, 3, low=0, high=7))


REDUCTIONS = ["sum", "mean", "amax", "amin", "prod"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    function = getattr(torch, name)
    x = randn(5, 7, 33)
    for axis in (0, 1, -1):
        check(lambda x, axis=axis: function(x, axis), x)
        check(lambda x, axis=axis: function(x, axis, keepdim=True), x)
    if name not in {"amax", "amin"}:
        check(function, x * 0.5)


def test_more_reductions() -> None:
    x = randn(6, 50)
    check(lambda x: x.sum((0, 1)), x)
    check(lambda x: (x.argmax(), x.argmax(1), x.argmin(0, keepdim=True)), x)
    check(lambda x: x.max(1), x)
    check(lambda x: (x.var(1), x.std(1), torch.var_mean(x, 0, correction=0)[0]), x)
    check(
        lambda x: (
            torch.linalg.vector_norm(x, 2, 1),
            torch.linalg.vector_norm(x, 1),
            torch.linalg.vector_norm(x, float("inf"), 0),
        ),
        x,
    )
    check(lambda x: ((x > 0).any(1), (x > -9).all(), (x > 0).sum()), x)
    check(lambda x: (x.cumsum(1), x.cumsum(0)), x)
    check(lambda x: torch.logsumexp(x, 1), x)
    check(lambda x: x.sum(1), ints(4, 9, dtype=torch.int32))
    check(lambda x: x.amax(0), torch.tensor([[1.0, float("nan")], [2.0, 3.0]]))
    check(lambda x: x.argmax(0), torch.tensor([1.0, float("nan"), 9.0, float("nan")]))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(axis: int) -> None:
    x = 10 * randn(4, 33, 18)
    check(lambda x: torch.softmax(x, axis), x)
    check(lambda x: torch.log_softmax(x, axis), x)


def test_normalisation_far_from_zero() -> None:
    x = randn(6, 64)
    check(lambda x: F.layer_norm(x, (64,)), x)
    check(lambda x: F.layer_norm(x + 1e4, (64,)), x, tolerance=2e-3)
    check(
        lambda x, w, b: F.group_norm(x, 4, w, b), randn(2, 8, 5, 3), randn(8, seed=1), randn(8, seed=2), tolerance=5e-6
    )
    check(lambda x: F.rms_norm(x, (64,)), x)
    check(F.instance_norm, randn(2, 3, 9, 4), tolerance=5e-6)


@pytest.mark.parametrize("settings", [
    dict(n=2, c=3, oc=16, size=(12, 10), k=(3, 3), stride=1, padding=1, dilation=1, groups=1),
    dict(n=1, c=16, oc=40, size=(9, 9), k=(1, 1), stride=1, padding=0, dilation=1, groups=1),
    dict(n=2, c=24, oc=24, size=(10, 11), k=(3, 3), stride=2, padding=1, dilation=1, groups=24),
    dict(n=1, c=32, oc=64, size=(8, 8), k=(3, 3), stride=1, padding=2, dilation=2, groups=2),
    dict(n=1, c=6, oc=9, size=(7, 7), k=(3, 2), stride=(2, 1), padding=(1, 0), dilation=1, groups=3),
    dict(n=3, c=17, oc=33, size=(31,), k=(5,), stride=2, padding=2, dilation=1, groups=1),
    dict(n=1, c=8, oc=16, size=(5, 6, 7), k=(3, 3, 3), stride=1, padding=1, dilation=1, groups=1),
    dict(n=1, c=4, oc=4, size=(6, 6), k=(7, 7), stride=1, padding=3, dilation=1, groups=4),
])  # fmt: skip
@pytest.mark.parametrize("target", ["", "x86-64-v3", "generic"])
def test_convolution(settings: dict, target: str) -> None:
    s = settings
    convolution = [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d][len(s["size"]) - 1]
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        convolution(s["c"], s["oc"], s["k"], s["stride"], s["padding"], s["dilation"], s["groups"]), torch.nn.ReLU()
    )
    x = randn(s["n"], s["c"], *s["size"])
    fast = cuvil.compile(module, input_spec=[("x", x)], target=target)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-5)


def test_pooling() -> None:
    x = randn(2, 20, 11, 13)
    check(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    check(lambda x: F.max_pool2d(x, 2, ceil_mode=True), x)
    check(lambda x: F.max_pool2d(x, 3, 1, 1, dilation=1), x[:, :, :5])
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
    check(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x)
    check(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), x)
    check(lambda x: F.adaptive_avg_pool2d(x, 1), x)
    check(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), randn(1, 4, 9, 8))
    check(lambda x: F.max_pool1d(x, 3, 2), x[0])
    check(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), x)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 64, 64), (13, 7, 31), (64, 100, 17), (5, 300, 1)])
def test_products(shape) -> None:
    m, k, n = shape
    a, b = randn(m, k), randn(k, n, seed=1)
    check(torch.mm, a, b, tolerance=1e-5)
    check(F.linear, a, b.t().contiguous(), randn(n, seed=2), tolerance=1e-5)
    check(torch.matmul, randn(3, 2, m, k), randn(2, k, n, seed=1), tolerance=1e-5)
    check(torch.matmul, a, b[:, 0], tolerance=1e-5)
    check(lambda a, b: a @ b.transpose(-1, -2), randn(2, m, k), randn(2, n, k, seed=3), tolerance=1e-5)
    check(torch.mm, ints(m, k), ints(k, n, seed=1))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    q, k, v = (randn(2, 4, 17, 8, seed=i) for i in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v, tolerance=5e-6)
    if not causal:
        mask = torch.ones(17, 17).tril() > 0
        check(F.scaled_dot_product_attention, q, k, v, mask, tolerance=5e-6)
        check(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            q,
            k[:, :2],
            v[:, :2],
            tolerance=5e-6,
        )


def test_creation() -> None:
    check(lambda x: x + torch.arange(5), ints(5))
    check(lambda x: x * torch.arange(0, 2, 0.25), randn(8))
    check(lambda x: (torch.zeros_like(x), torch.ones(3), torch.full((2, 2), 7), torch.eye(3)), randn(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(dtype) -> None:
    x = randn(5, 40, dtype=dtype)
    check(lambda x: torch.exp(x) * 2 + x, x)
    check(lambda x: x.sum(1), x)
    check(lambda x: F.layer_norm(x, (40,)), x)
    check(lambda a, b: a @ b, x, randn(40, 6, dtype=dtype, seed=1))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1)])
def test_degenerate_shapes(shape) -> None:
    x = torch.ones(shape) if shape in {(), (1,), (1, 1, 1)} else torch.zeros(shape)
    check(lambda x: torch.exp(x) + x, x)
    check(lambda x: x.sum(), x)
    check(lambda x: torch.cat([x.reshape(-1), x.reshape(-1)]), x)


def test_dynamic_sizes() -> None:
    def function(x, w):
        y = torch.softmax(x @ w, -1)
        return torch.cat([y, x[:, :, :3]], -1).transpose(1, 2), x.mean((1, 2)), x.reshape(-1, x.shape[-1]).sum(0)

    w = randn(6, 5)
    fast = cuvil.compile(function, input_spec=[("x", ("b", "s", 6), "float32"), ("w", w)])
    for b, s in ((1, 1), (2, 7), (5, 1), (3, 64), (0, 4)):
        x = randn(b, s, 6, seed=b + s)
        for mine, wanted in zip(fast(x, w), function(x, w)):
            torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
