"""A two-layer LSTM over a sequence, and a small perceptron that measures little but the cost of a call."""

from __future__ import annotations

import typing

import torch
from torch import Tensor, nn

if typing.TYPE_CHECKING:
    from bench.models import Architecture


class Lstm(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of every step, then the last hidden and cell states."""
        y, (hidden, cell) = self.lstm(x)
        return y, hidden, cell


def lstm(tiny: bool) -> Architecture:
    from bench.models import Architecture

    width, layers, steps = (16, 2, 5) if tiny else (256, 2, 64)
    # Per step and layer: four gates, each a row of input and a row of hidden state.
    flops = 2 * steps * layers * 4 * width * (width + width)
    return Architecture(Lstm(width, layers), (torch.randn(1, steps, width),), ("input",), (0,), flops)


def mlp(tiny: bool) -> Architecture:
    from bench.models import Architecture

    width = 32 if tiny else 256
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    module = nn.Sequential(*layers, nn.Linear(width, width))
    return Architecture(module, (torch.randn(1, width),), ("input",), (0,))
