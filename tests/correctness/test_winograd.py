"""Winograd's forms of 3x3 convolutions: errors against float64, odd and varying sizes, strict precision."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cuvil  # noqa: E402


class Block(torch.nn.Module):
    """A 3x3 convolution between two others, so that it is blocked, with its border and epilogue."""

    def __init__(self, channels, outputs):
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 1)
        self.conv = torch.nn.Conv2d(channels, outputs, 3, padding=1)

    def forward(self, x):
        return self.conv(self.first(x))


def uses_winograd(function):
    return "matmul" in function.explain() and "concat" in function.explain()


def relative_error(function, module, x):
    with torch.no_grad():
        exact = module.double()(x.double())
        module.float()
    return ((function(x).double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.parametrize("target", ["", "x86-64-v3"])
@pytest.mark.parametrize(
    ("channels", "outputs", "height", "width"),
    [(64, 64, 56, 56), (64, 32, 29, 30), (32, 48, 15, 17), (128, 128, 14, 14), (128, 256, 7, 7), (64, 40, 31, 33)],
)
def test_error_within_the_bound(channels, outputs, height, width, target):
    torch.manual_seed(1)
    module = Block(channels, outputs).eval()
    x = torch.randn(2, channels, height, width)
    function = cuvil.compile(module, input_spec=[("x", x)], target=target)
    assert uses_winograd(function)
    assert relative_error(function, module, x) < 2e-5
    strict = cuvil.compile(module, input_spec=[("x", x)], target=target, precision="strict")
    assert not uses_winograd(strict)
    assert relative_error(strict, module, x) < 2e-6


def test_sizes_that_vary():
    torch.manual_seed(2)
    module = Block(64, 64).eval()
    function = cuvil.compile(module, input_spec=[("x", ("n", 64, "h", "w"), "float32")])
    assert uses_winograd(function)
    for shape in [(1, 64, 8, 8), (2, 64, 56, 56), (1, 64, 13, 10), (3, 64, 5, 31)]:
        assert relative_error(function, module, torch.randn(shape)) < 2e-5


def test_same_bits_for_any_number_of_threads():
    torch.manual_seed(3)
    x = torch.randn(1, 64, 28, 28)
    function = cuvil.compile(Block(64, 64).eval(), input_spec=[("x", x)])
    before = cuvil.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            cuvil.set_num_threads(threads)
            results.append(function(x))
    finally:
        cuvil.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_strict_keeps_special_values_local():
    torch.manual_seed(4)
    x = torch.randn(1, 64, 28, 28)
    x[0, 5, 9, 9] = float("inf")
    module = Block(64, 64).eval()
    with torch.no_grad():
        expected = module(x)
    actual = cuvil.compile(module, input_spec=[("x", x)], precision="strict")(x)
    assert torch.equal(torch.isfinite(actual), torch.isfinite(expected))


def test_an_unknown_precision_is_refused():
    x = torch.randn(1, 4)
    with pytest.raises(cuvil.CompileError, match="precision"):
        cuvil.compile(torch.nn.Linear(4, 4), input_spec=[("x", x)], precision="exact")
