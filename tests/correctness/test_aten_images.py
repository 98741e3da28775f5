"""Pooling with positions and uneven windows, resizing, and sampling by a grid, against PyTorch itself."""

from __future__ import annotations

import pytest

import cuvil

torch = pytest.importorskip("torch")
F = torch.nn.functional

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def random(*shape: int, dtype=torch.float32, seed: int = 0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(function, *inputs, dynamic=None, **tolerance) -> None:
    spec = dynamic or [(f"x{i}", x) for i, x in enumerate(inputs)]
    actual, expected = cuvil.compile(function, input_spec=spec)(*inputs), function(*inputs)
    if isinstance(expected, torch.Tensor):
        actual, expected = [actual], [expected]
    for mine, wanted in zip(actual, expected):
        torch.testing.assert_close(mine, wanted, equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
def test_max_pool_positions(dtype) -> None:
    x = random(2, 3, 11, 13, dtype=dtype)
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    check(lambda x: F.max_pool2d(x, (2, 3), (2, 1), (1, 0), (2, 1), ceil_mode=True, return_indices=True), x)
    check(lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), x[0])
    check(lambda x: F.max_pool3d(x, 2, return_indices=True), random(1, 2, 4, 6, 8, dtype=dtype))
    x[0, 0, 3, 3] = float("nan")
    check(lambda x: F.max_pool2d(x, 3, return_indices=True), x)


def test_max_unpool() -> None:
    def function(x):
        y, at = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y, at, 2)

    check(function, random(2, 3, 8, 6))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (4, 3), (11, 2), (13, 15)])
def test_adaptive_pooling(dtype, size) -> None:
    x = random(2, 3, 11, 13, dtype=dtype)
    check(lambda x: F.adaptive_avg_pool2d(x, size), x)
    check(lambda x: F.adaptive_max_pool2d(x, size, return_indices=True), x)
    check(lambda x: F.adaptive_avg_pool1d(x, size[1]), x[0])
    check(lambda x: F.adaptive_max_pool1d(x, size[1], return_indices=True), x[0])


def test_adaptive_pooling_in_space() -> None:
    x = random(2, 3, 5, 7, 6)
    check(lambda x: F.adaptive_avg_pool3d(x, (3, 4, 4)), x)
    check(lambda x: F.adaptive_max_pool3d(x, (3, 4, 4), return_indices=True), x)


def test_adaptive_pooling_of_any_size() -> None:
    fast = cuvil.compile(lambda x: F.adaptive_avg_pool2d(x, (3, 5)), input_spec=[("x", (1, 2, "h", "w"), "float32")])
    for h, w in ((3, 5), (7, 11), (10, 9), (4, 20)):
        x = random(1, 2, h, w)
        torch.testing.assert_close(fast(x), F.adaptive_avg_pool2d(x, (3, 5)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("align", [False, True])
def test_linear_resizing(dtype, align: bool) -> None:
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype in {torch.float16, torch.bfloat16} else {}
    for size in ((11, 14), (3, 4), (5, 20), (1, 1)):
        check(
            lambda x, s=size: F.interpolate(x, s, mode="bilinear", align_corners=align),
            random(2, 3, 5, 7, dtype=dtype),
            **close,
        )
    check(lambda x: F.interpolate(x, 9, mode="linear", align_corners=align), random(2, 3, 5, dtype=dtype), **close)
    check(
        lambda x: F.interpolate(x, (4, 9, 3), mode="trilinear", align_corners=align),
        random(1, 2, 3, 4, 5, dtype=dtype),
        **close,
    )


def test_resizing_by_scale() -> None:
    x = random(2, 3, 5, 7)
    for scale in (1.7, 2, 0.6, (2.5, 1.3)):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            check(lambda x, s=scale, m=mode: F.interpolate(x, scale_factor=s, mode=m), x, rtol=1e-4, atol=1e-5)
    check(lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest"), x[0])
    check(lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest", recompute_scale_factor=True), x)


def test_antialiased_resizing() -> None:
    x = random(2, 3, 12, 17)
    for mode in ("bilinear", "bicubic"):
        for size in ((5, 6), (20, 30), (12, 9)):
            check(lambda x, s=size, m=mode: F.interpolate(x, s, mode=m, antialias=True), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sampling(mode: str, padding: str, align: bool) -> None:
    def function(x, grid):
        return F.grid_sample(x, grid, mode, padding, align)

    grid = torch.rand(2, 6, 4, 2, generator=torch.Generator().manual_seed(1)) * 3.2 - 1.6
    check(function, random(2, 3, 5, 7), grid, rtol=1e-4, atol=1e-5)
    if mode != "bicubic":
        grid = torch.rand(2, 3, 4, 5, 3, generator=torch.Generator().manual_seed(1)) * 3.2 - 1.6
        check(function, random(2, 2, 3, 5, 7), grid, rtol=1e-4, atol=1e-5)


def test_affine_grid() -> None:
    def function(x, theta):
        return F.grid_sample(x, F.affine_grid(theta, [2, 3, 6, 5], align_corners=False), align_corners=False)

    check(function, random(2, 3, 7, 7), random(2, 2, 3, seed=3) * 0.5, rtol=1e-4, atol=1e-5)


def test_images_of_bytes() -> None:
    x = torch.randint(0, 256, (1, 3, 20, 31), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for size in ((9, 14), (40, 62), (33, 17)):
        # PyTorch's weights are fixed-point numbers.
        check(lambda x, s=size: F.interpolate(x, s, mode="bilinear"), x, rtol=0, atol=1)
        check(lambda x, s=size: F.interpolate(x, s, mode="bilinear", antialias=True), x, rtol=0, atol=1)
        check(lambda x, s=size: F.interpolate(x, s, mode="nearest"), x)
    check(lambda x: F.interpolate(x, (40, 62), mode="bilinear"), x)
