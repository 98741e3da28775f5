"""Diagonals, windows and strided views; norms, distances and products of several tensors; against PyTorch itself."""

from __future__ import annotations

import pytest

import cuvil

torch = pytest.importorskip("torch")
F = torch.nn.functional

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
INFINITY = float("inf")


def whole(*shape: int, dtype=torch.float32, seed: int = 0):
    low = 0 if dtype in {torch.uint8, torch.bool} else -4
    return torch.randint(low, 5, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(function, *inputs, **tolerance) -> None:
    fast = cuvil.compile(function, input_spec=[(f"x{i}", x) for i, x in enumerate(inputs)])
    actual, expected = fast(*inputs), function(*inputs)
    if isinstance(expected, torch.Tensor):
        actual, expected = [actual], [expected]
    assert len(actual) == len(expected)
    for mine, wanted in zip(actual, expected):
        torch.testing.assert_close(mine, wanted, equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_diagonals(dtype) -> None:
    x = whole(4, 6, 5, dtype=dtype)
    for offset in (0, 2, -3, 4):
        check(lambda x, o=offset: torch.diagonal(x, o), x)
        check(lambda x, o=offset: torch.diagonal(x, o, -1, 0), x)
        check(lambda x, o=offset: torch.diag(x[0], o), x)
    check(lambda x: torch.diagonal(x, 6), x)
    check(torch.diag, x[0, 0])
    check(torch.diag_embed, x)
    if dtype != torch.bool:
        check(torch.trace, x[0])


def test_diagonal_of_any_size() -> None:
    fast = cuvil.compile(lambda x: torch.diagonal(x, 1), input_spec=[("x", ("n", "m"), "float32")])
    for shape in ((5, 7), (7, 3), (2, 2)):
        x = whole(*shape)
        torch.testing.assert_close(fast(x), torch.diagonal(x, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_windows(dtype) -> None:
    x = whole(4, 9, 5, dtype=dtype)
    for axis, size, step in ((1, 3, 2), (-1, 5, 1), (0, 1, 3), (1, 9, 1)):
        check(lambda x, a=axis, n=size, s=step: x.unfold(a, n, s), x)
    check(lambda x: x.unfold(0, 1, 1), x[0, 0, 0])


def test_strided_views() -> None:
    x, source = whole(6, 8), whole(3, 4, seed=1)
    check(lambda x: torch.as_strided_copy(x, (3, 4), (9, 2), 5), x)
    check(lambda x, s: torch.as_strided_scatter(x, s, (3, 4), (9, 2), 5), x, source)
    with pytest.raises(cuvil.CompileError, match="not contiguous"):
        cuvil.compile(
            lambda x, s: torch.as_strided_scatter(x.T, s, (3, 4), (9, 2), 5), input_spec=[("x", x), ("s", source)]
        )


def test_copies_of_views() -> None:
    x = whole(4, 6, 5)
    for function in (
        lambda x: torch.permute_copy(x, (2, 0, 1)),
        lambda x: torch.narrow_copy(x, 1, 2, 3),
        lambda x: torch.view_copy(x, (24, 5)),
        lambda x: torch.unbind_copy(x, 1),
        lambda x: torch.transpose_copy(x, 0, 2),
        lambda x: torch.slice_copy(x, 1, -4, 6, 2),
        lambda x: torch.select_copy(x, -1, -2),
        lambda x: torch.expand_copy(x[:, :1], (4, 3, 5)),
        lambda x: torch.split_copy(x, 4, 1),
        lambda x: torch.block_diag(x[0], x[1, 0], x[:, :, 0]),
    ):
        check(function, x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_shifts(dtype) -> None:
    x, by = whole(4, 1, dtype=dtype) * 3, torch.arange(7, dtype=dtype)
    check(torch.bitwise_left_shift, x, by)
    check(torch.bitwise_right_shift, x, by)
    check(lambda x: (x << 2) + (x >> 1), x)
    check(lambda x: torch.square(x) + torch.square(x > 0), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, INFINITY])
def test_distances(dtype, p: float) -> None:
    x, y = torch.randn(2, 7, 5, dtype=dtype), torch.randn(2, 30, 5, dtype=dtype)
    close = {"rtol": 1e-5, "atol": 1e-5}
    check(lambda x, y: torch.cdist(x, y, p), x, y, **close)
    check(lambda x, y: torch.cdist(x, y[0], p), x, y, **close)
    check(lambda x: F.pdist(x[0], p), x, **close)
    check(lambda x, y: torch.dist(x, y[:, :7], p), x, y, **close)
    check(lambda x: torch.linalg.vector_norm(x, p, (0, 2), keepdim=True), x, **close)
    check(lambda x, y: torch.cdist(x[:, :, :0], y[:, :, :0], p), x, y)


def test_norm_in_half() -> None:
    # Squares leave the range of float16.
    x = torch.full((40,), 300.0, dtype=torch.float16)
    check(torch.linalg.vector_norm, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_products(dtype) -> None:
    x, a, b = whole(4, 5, dtype=dtype), whole(3, 4, 6, dtype=dtype, seed=1), whole(3, 6, 5, dtype=dtype, seed=2)
    check(torch.addbmm, x, a, b)
    check(lambda x, a, b: torch.addbmm(x[0], a, b, beta=2, alpha=3), x, a, b)
    check(lambda x, a, b: torch.addbmm(x, a, b, beta=0), x, a, b)
    check(torch.linalg.cross, whole(2, 4, 3, dtype=dtype), whole(1, 4, 3, dtype=dtype, seed=1))
    if dtype.is_floating_point:
        check(F.bilinear, whole(2, 4), whole(2, 3, seed=1), whole(5, 4, 3, seed=2), whole(5, seed=3))


def test_saved_statistics() -> None:
    x = torch.randn(2, 6, 4, 5)
    check(lambda x: torch.native_layer_norm(x, [4, 5], None, None, 1e-5), x)
    check(lambda x: torch.native_group_norm(x, None, None, 2, 6, 20, 3, 1e-5), x)
