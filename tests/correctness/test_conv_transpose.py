"""Transposed convolution against PyTorch: every combination of stride, dilation, padding, groups and rank."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cuvil  # noqa: E402

CASES = [  # rank, kernel, stride, padding, output_padding, dilation, groups
    (1, 3, 1, 0, 0, 1, 1),
    (1, 4, 2, 1, 0, 1, 1),
    (1, 3, 2, 1, 1, 1, 2),
    (1, 2, 3, 0, 2, 1, 1),
    (1, 3, 4, 2, 1, 2, 1),
    (1, 5, 3, 4, 0, 3, 1),
    (1, 1, 2, 0, 1, 1, 1),
    (2, 3, 1, 1, 0, 1, 1),
    (2, 4, 2, 1, 0, 1, 1),
    (2, (3, 5), (2, 3), (1, 2), (1, 0), (1, 2), 1),
    (2, 3, 2, 1, 1, 1, 4),
    (2, 2, 2, 0, 0, 1, 2),
    (2, 6, 4, 5, 3, 2, 1),
    (3, 3, 2, 1, 1, 1, 1),
    (3, 2, (1, 2, 3), 0, 0, 1, 2),
]


def layer(case):
    rank, kernel, stride, padding, extra, dilation, groups = case
    kind = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)[rank - 1]
    torch.manual_seed(0)
    return kind(4, 8, kernel, stride, padding, extra, groups, dilation=dilation).eval()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_right(case):
    model, x = layer(case), torch.randn(2, 4, *(7, 6, 5)[: case[0]])
    with torch.no_grad():
        expected = model(x)
    actual = cuvil.compile(model, input_spec=[("x", x)])(x)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_any_batch():
    model = layer((2, 4, 2, 1, 0, 1, 1))
    function = cuvil.compile(model, input_spec=[("x", ("n", 4, 9, 8), "float32")])
    for batch in (1, 3):
        x = torch.randn(batch, 4, 9, 8)
        with torch.no_grad():
            torch.testing.assert_close(function(x), model(x), rtol=1e-5, atol=1e-6)


def test_in_a_network_of_blocks():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, 2, 1),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(32, 32, 4, 2, 1),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(32, 16, 2, 2),
        torch.nn.Conv2d(16, 1, 1),
    ).eval()
    x = torch.randn(1, 3, 24, 20)
    with torch.no_grad():
        expected = model(x)
    actual = cuvil.compile(model, input_spec=[("x", x)])(x)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
