"""Whole models against eager PyTorch: through torch.export and through ONNX, fixed and dynamic batch.

The full-size ones are marked slow: ``pytest -m "not slow"`` leaves them out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from bench import models

import cuvil

TORCH_MODELS = (
    "resnet18",
    "resnet50",
    "mobilenetv2",
    "efficientnet_b0",
    "convnext_tiny",
    "vit_b16",
    "bert_base",
    "mlp",
)
OTHER_MODELS = ("mobilenetv3_large", "gpt2_prefill", "gpt2_decode", "lstm")
ONNX_MODELS = ("resnet50", "mobilenetv2", "bert_base")
BATCHES = (1, 2, 3, 7)
SIZES = (pytest.param(True, id="tiny"), pytest.param(False, id="full", marks=pytest.mark.slow))
TOLERANCE = 1e-4


def eager(model: models.BenchModel, inputs: tuple) -> list[np.ndarray]:
    with torch.no_grad():
        return arrays(model.module(*inputs))


def arrays(result: object) -> list[np.ndarray]:
    values = result if isinstance(result, (tuple, list)) else (result,)
    return [np.asarray(value) for value in values]


def check(actual: object, expected: list[np.ndarray]) -> None:
    got = arrays(actual)
    assert [value.shape for value in got] == [value.shape for value in expected]
    for mine, reference in zip(got, expected):
        assert mine.dtype == reference.dtype
        assert np.abs(mine - reference).max() <= TOLERANCE * np.abs(reference).max()


@pytest.mark.parametrize("tiny", SIZES)
@pytest.mark.parametrize("name", TORCH_MODELS + OTHER_MODELS)
def test_torch_fixed_batch(name: str, tiny: bool) -> None:
    model = models.build(name, tiny=tiny)
    fast = cuvil.compile(model.module, input_spec=list(zip(model.input_names, model.inputs)))
    check(fast(*model.inputs), eager(model, model.inputs))


@pytest.mark.parametrize("tiny", SIZES)
@pytest.mark.parametrize("name", TORCH_MODELS)
def test_torch_dynamic_batch(name: str, tiny: bool) -> None:
    model = models.build(name, tiny=tiny)
    fast = cuvil.compile(model.module, input_spec=model.dynamic_input_spec())
    for batch in BATCHES:
        inputs = model.inputs_with_batch(batch, seed=batch)
        check(fast(*inputs), eager(model, inputs))


@pytest.mark.parametrize("tiny", SIZES)
@pytest.mark.parametrize("dynamic", (False, True), ids=("fixed", "dynamic"))
@pytest.mark.parametrize("name", ONNX_MODELS)
def test_onnx(name: str, dynamic: bool, tiny: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    model = models.build(name, tiny=tiny)
    path = tmp_path / "model.onnx"
    # A size of 1 in the example would be taken for a constant.
    example = model.inputs_with_batch(2) if dynamic else model.inputs
    batch = torch.export.Dim("batch", min=1, max=1024)
    shapes = tuple({axis: batch} for axis in model.batch_axes) if dynamic else None
    torch.onnx.export(
        model.module,
        example,
        str(path),
        input_names=list(model.input_names),
        dynamic_shapes=shapes,
        dynamo=True,
        external_data=not tiny,
        verbose=False,
    )
    fast = cuvil.compile(path)
    for size in BATCHES if dynamic else (1,):
        inputs = model.inputs_with_batch(size, seed=size)
        check(fast(*(value.numpy() for value in inputs)), eager(model, inputs))
