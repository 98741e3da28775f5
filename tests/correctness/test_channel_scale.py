"""A factor per input channel moves into the weights of the convolution after it, and changes nothing but roundings."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cuvil  # noqa: E402


class SqueezeExcite(torch.nn.Module):
    def __init__(self, channels, outputs, kernel=1):
        super().__init__()
        self.depthwise = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.squeeze = torch.nn.Conv2d(channels, 8, 1)
        self.excite = torch.nn.Conv2d(8, channels, 1)
        self.project = torch.nn.Conv2d(channels, outputs, kernel, padding=kernel // 2)

    def forward(self, x):
        x = self.depthwise(x)
        factor = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.project(x * factor)


@pytest.mark.parametrize(("channels", "outputs", "kernel"), [(48, 24, 1), (40, 64, 1), (36, 20, 3), (64, 16, 5)])
@pytest.mark.parametrize("batch", [1, 2])
def test_right(channels, outputs, kernel, batch):
    torch.manual_seed(0)
    model = SqueezeExcite(channels, outputs, kernel).eval()
    x = torch.randn(batch, channels, 40, 33)
    with torch.no_grad():
        expected = model(x)
    for precision in ("default", "strict"):
        actual = cuvil.compile(model, input_spec=[("x", x)], precision=precision)(x)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-6)


def test_the_map_is_not_multiplied():
    model = SqueezeExcite(48, 24).eval()
    x = torch.randn(1, 48, 40, 40)
    moved = cuvil.compile(model, input_spec=[("x", x)]).explain().splitlines()
    assert any(line.split()[1:] == ["mul"] for line in moved), moved  # of the weights, a kernel of its own
