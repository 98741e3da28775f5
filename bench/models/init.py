"""Random weights under which activations stay near unit scale, and batch-norm statistics that matter."""

from __future__ import annotations

import torch
from torch import nn


def randomise(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Draws every weight from the current torch seed."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out" if layer.groups == 1 else "fan_in")
            if layer.bias is not None:
                nn.init.normal_(layer.bias, std=0.05)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            if layer.bias is not None:
                nn.init.normal_(layer.bias, std=0.05)
        elif isinstance(layer, nn.Embedding):
            nn.init.normal_(layer.weight, std=0.05)
        elif isinstance(layer, (nn.LayerNorm, nn.BatchNorm2d)):
            nn.init.uniform_(layer.weight, 0.7, 1.3)
            nn.init.normal_(layer.bias, std=0.1)
    _set_batch_norm_statistics(module, inputs)


def _set_batch_norm_statistics(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Running statistics measured on the example inputs, then disturbed so that none is a neutral value."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    if not norms:
        return
    module.eval()
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.train()
        layer.momentum = 1.0
    with torch.no_grad():
        module(*(torch.cat([value, value.flip(-1)]) for value in inputs))
    for layer, momentum in zip(norms, momenta):
        layer.eval()
        layer.momentum = momentum
        mean, var = layer.running_mean, layer.running_var
        assert mean is not None and var is not None
        var.clamp_(min=1e-2)
        mean.add_(var.sqrt() * 0.2 * torch.randn_like(mean))
        var.mul_(torch.empty_like(var).uniform_(0.7, 1.5))
