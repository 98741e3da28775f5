"""The models the benchmark measures, in plain torch: real architectures, random weights, seeded.

``build(name)`` gives the full model, ``build(name, tiny=True)`` the same architecture cut down for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Callable

import torch
from torch import nn

from bench.models import convnets, recurrent, transformers
from bench.models.init import randomise

SEED = 20240229


@dataclass
class Architecture:
    """What a model file returns: a module and the inputs it is called with."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    # The axis of each input that is the batch.
    batch_axes: tuple[int, ...]
    # Work the FLOP counter doesn't see (fused recurrent layers), for the example inputs.
    extra_flops: int = 0


@dataclass
class BenchModel:
    """A module in eval mode with example inputs; every input's batch axis may be dynamic."""

    name: str
    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    batch_axes: tuple[int, ...]
    extra_flops: int

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of contractions in one call with the example inputs."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode

        counter = FlopCounterMode(display=False)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            self.module(*self.inputs)
        return counter.get_total_flops() + self.extra_flops

    def dynamic_input_spec(self, batch: str = "batch") -> list[tuple[str, tuple[int | str, ...], torch.dtype]]:
        """``input_spec`` entries for ``cuvil.compile`` with the batch axis named."""
        spec = []
        for name, value, axis in zip(self.input_names, self.inputs, self.batch_axes):
            shape: list[int | str] = list(value.shape)
            shape[axis] = batch
            spec.append((name, tuple(shape), value.dtype))
        return spec

    def inputs_with_batch(self, batch: int, seed: int = 1) -> tuple[torch.Tensor, ...]:
        """Fresh inputs like the example ones, with another batch size."""
        generator = torch.Generator().manual_seed(seed)
        result = []
        for value, axis in zip(self.inputs, self.batch_axes):
            shape = list(value.shape)
            shape[axis] = batch
            if value.is_floating_point():
                result.append(torch.randn(shape, generator=generator, dtype=value.dtype))
            else:
                low, high = int(value.min()), int(value.max()) + 1
                result.append(torch.randint(low, high, shape, generator=generator, dtype=value.dtype))
        return tuple(result)


REGISTRY: dict[str, Callable[[bool], Architecture]] = {
    "resnet18": convnets.resnet18,
    "resnet50": convnets.resnet50,
    "mobilenetv2": convnets.mobilenetv2,
    "mobilenetv3_large": convnets.mobilenetv3_large,
    "efficientnet_b0": convnets.efficientnet_b0,
    "convnext_tiny": convnets.convnext_tiny,
    "vit_b16": transformers.vit_b16,
    "bert_base": transformers.bert_base,
    "gpt2_prefill": transformers.gpt2_prefill,
    "gpt2_decode": transformers.gpt2_decode,
    "lstm": recurrent.lstm,
    "mlp": recurrent.mlp,
}


def build(name: str, tiny: bool = False, state: dict[str, torch.Tensor] | None = None) -> BenchModel:
    """The model called ``name``; ``state`` gives its weights instead of the seeded random ones."""
    if name not in REGISTRY:
        raise KeyError(f"no model called {name!r}; there are {', '.join(REGISTRY)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        arch = REGISTRY[name](tiny)
        if state is None:
            randomise(arch.module, arch.inputs)
        else:
            arch.module.load_state_dict(state)
    return BenchModel(name, arch.module.eval(), arch.inputs, arch.input_names, arch.batch_axes, arch.extra_flops)
