"""Writes what the workers of one model share: weights, inputs, eager's outputs, and the ONNX file.

Runs in a process of its own, so that exporting counts in no engine's memory.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--onnx", action="store_true")
    arguments = parser.parse_args()

    import numpy
    import torch

    from bench import models

    directory: Path = arguments.directory
    model = models.build(arguments.model, tiny=arguments.tiny)
    torch.save(model.module.state_dict(), directory / "state.pt")
    numpy.savez(directory / "inputs.npz", **{n: v.numpy() for n, v in zip(model.input_names, model.inputs)})
    with torch.no_grad():
        result = model.module(*model.inputs)
    outputs = [value.numpy() for value in (result if isinstance(result, tuple) else (result,))]
    numpy.savez(directory / "expected.npz", *outputs)
    if arguments.onnx:
        export_onnx(model, directory / "model.onnx")
    (directory / "info.json").write_text(json.dumps({"flops": model.flops}))


def export_onnx(model: object, path: Path) -> None:
    """The model as ONNX through torch's exporter, with its inputs' names."""
    import torch

    from bench.models import BenchModel

    assert isinstance(model, BenchModel)
    torch.onnx.export(
        model.module,
        model.inputs,
        str(path),
        input_names=list(model.input_names),
        dynamo=True,
        external_data=True,
        verbose=False,
    )


if __name__ == "__main__":
    main()
