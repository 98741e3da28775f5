"""Image classifiers: ResNet, MobileNet v2 and v3, EfficientNet, ConvNeXt."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

if typing.TYPE_CHECKING:
    from bench.models import Architecture

Activation = Callable[[], nn.Module]


def _image_model(module: nn.Module, size: int) -> Architecture:
    from bench.models import Architecture

    return Architecture(module, (torch.randn(1, 3, size, size),), ("input",), (0,))


def _divisible(value: float, divisor: int = 8) -> int:
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def _conv_norm(
    cin: int,
    cout: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: Activation | None = nn.ReLU,
    eps: float = 1e-5,
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout, eps=eps),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv_norm(cin, width, 3, stride), _conv_norm(width, width, 3, activation=None))
        self.shortcut = nn.Identity() if cin == width and stride == 1 else _conv_norm(cin, width, 1, stride, 1, None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        cout = width * self.expansion
        self.body = nn.Sequential(
            _conv_norm(cin, width, 1), _conv_norm(width, width, 3, stride), _conv_norm(width, cout, 1, activation=None)
        )
        self.shortcut = nn.Identity() if cin == cout and stride == 1 else _conv_norm(cin, cout, 1, stride, 1, None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(
        self, block: type[BasicBlock] | type[Bottleneck], depths: Sequence[int], width: int, classes: int
    ) -> None:
        super().__init__()
        self.stem = _conv_norm(3, width, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        channels = width
        stages: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                stages.append(block(channels, width << stage, stride))
                channels = (width << stage) * block.expansion
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.pool(self.stem(x)))
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def resnet18(tiny: bool) -> Architecture:
    if tiny:
        return _image_model(ResNet(BasicBlock, (1, 1, 1), 16, 10), 48)
    return _image_model(ResNet(BasicBlock, (2, 2, 2, 2), 64, 1000), 224)


def resnet50(tiny: bool) -> Architecture:
    if tiny:
        return _image_model(ResNet(Bottleneck, (1, 2, 1), 16, 10), 48)
    return _image_model(ResNet(Bottleneck, (3, 4, 6, 3), 64, 1000), 224)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, squeezed: int, activation: Activation, gate: Activation) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            activation(),
            nn.Conv2d(squeezed, channels, 1),
            gate(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class InvertedResidual(nn.Module):
    """Expand (unless the expansion is nothing), depthwise, squeeze-excite if given, project."""

    def __init__(
        self,
        cin: int,
        expanded: int,
        cout: int,
        kernel: int,
        stride: int,
        activation: Activation,
        squeeze: nn.Module | None = None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if expanded != cin:
            layers.append(_conv_norm(cin, expanded, 1, activation=activation, eps=eps))
        layers.append(_conv_norm(expanded, expanded, kernel, stride, expanded, activation, eps))
        if squeeze is not None:
            layers.append(squeeze)
        layers.append(_conv_norm(expanded, cout, 1, activation=None, eps=eps))
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return x + y if self.residual else y


class Classifier(nn.Module):
    """Convolutional features, global average, then a head on vectors."""

    def __init__(self, features: Sequence[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def mobilenetv2(tiny: bool) -> Architecture:
    # expansion, output channels, blocks, stride of the first block
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    if tiny:
        rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 40, 1, 2)]
    channels, last = 32, 96 if tiny else 1280
    features: list[nn.Module] = [_conv_norm(3, channels, 3, 2, activation=nn.ReLU6)]
    for expansion, cout, blocks, first_stride in rows:
        for index in range(blocks):
            stride = first_stride if index == 0 else 1
            features.append(InvertedResidual(channels, channels * expansion, cout, 3, stride, nn.ReLU6))
            channels = cout
    features.append(_conv_norm(channels, last, 1, activation=nn.ReLU6))
    head = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, 10 if tiny else 1000))
    return _image_model(Classifier(features, head), 48 if tiny else 224)


def mobilenetv3_large(tiny: bool) -> Architecture:
    # kernel, expanded, output channels, squeeze-excite, hard-swish, stride
    rows = [
        (3, 16, 16, False, False, 1),
        (3, 64, 24, False, False, 2),
        (3, 72, 24, False, False, 1),
        (5, 72, 40, True, False, 2),
        (5, 120, 40, True, False, 1),
        (5, 120, 40, True, False, 1),
        (3, 240, 80, False, True, 2),
        (3, 200, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 480, 112, True, True, 1),
        (3, 672, 112, True, True, 1),
        (5, 672, 160, True, True, 2),
        (5, 960, 160, True, True, 1),
        (5, 960, 160, True, True, 1),
    ]
    if tiny:
        rows = [rows[0], rows[1], rows[3], (5, 120, 40, True, True, 1)]
    channels, eps = 16, 1e-3
    features: list[nn.Module] = [_conv_norm(3, channels, 3, 2, activation=nn.Hardswish, eps=eps)]
    for kernel, expanded, cout, squeeze, swish, stride in rows:
        excite = SqueezeExcite(expanded, _divisible(expanded / 4), nn.ReLU, nn.Hardsigmoid) if squeeze else None
        activation = nn.Hardswish if swish else nn.ReLU
        features.append(InvertedResidual(channels, expanded, cout, kernel, stride, activation, excite, eps))
        channels = cout
    last = channels * 6
    features.append(_conv_norm(channels, last, 1, activation=nn.Hardswish, eps=eps))
    hidden, classes = (96, 10) if tiny else (1280, 1000)
    head = nn.Sequential(nn.Linear(last, hidden), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(hidden, classes))
    return _image_model(Classifier(features, head), 48 if tiny else 224)


def efficientnet_b0(tiny: bool) -> Architecture:
    # expansion, kernel, stride of the first block, output channels, blocks
    rows = [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ]
    if tiny:
        rows = [rows[0], (6, 3, 2, 24, 2), (6, 5, 2, 40, 1)]
    channels = 32
    features: list[nn.Module] = [_conv_norm(3, channels, 3, 2, activation=nn.SiLU)]
    for expansion, kernel, first_stride, cout, blocks in rows:
        for index in range(blocks):
            stride = first_stride if index == 0 else 1
            expanded = channels * expansion
            excite = SqueezeExcite(expanded, max(1, channels // 4), nn.SiLU, nn.Sigmoid)
            features.append(InvertedResidual(channels, expanded, cout, kernel, stride, nn.SiLU, excite))
            channels = cout
    features.append(_conv_norm(channels, channels * 4, 1, activation=nn.SiLU))
    head = nn.Sequential(nn.Dropout(0.2), nn.Linear(channels * 4, 10 if tiny else 1000))
    return _image_model(Classifier(features, head), 48 if tiny else 224)


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of an NCHW tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.scale = nn.Parameter(torch.empty(channels, 1, 1).uniform_(0.1, 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + self.scale * y.permute(0, 3, 1, 2)


def convnext_tiny(tiny: bool) -> Architecture:
    depths, widths = ((1, 2), (24, 48)) if tiny else ((3, 3, 9, 3), (96, 192, 384, 768))
    features: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), LayerNorm2d(widths[0], eps=1e-6)]
    for stage, (depth, width) in enumerate(zip(depths, widths)):
        if stage > 0:
            features += [LayerNorm2d(widths[stage - 1], eps=1e-6), nn.Conv2d(widths[stage - 1], width, 2, 2)]
        features += [ConvNeXtBlock(width) for _ in range(depth)]
    head = nn.Sequential(nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], 10 if tiny else 1000))
    return _image_model(Classifier(features, head), 48 if tiny else 224)
