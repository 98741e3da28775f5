#!/usr/bin/env python3
"""Trains the classifier that ships with Cuvil and writes it with its held-out images to python/cuvil/data.

Needs torch, onnx, onnxscript and scikit-learn. Deterministic on one machine and one version of torch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

DATA = Path(__file__).resolve().parent.parent / "python" / "cuvil" / "data"
SEED = 0
HELD_OUT = 0.25
LEVELS = 16.0  # the brightest pixel of the data set


def conv_norm(cin: int, cout: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


def make_model() -> nn.Module:
    return nn.Sequential(
        conv_norm(1, 16),
        conv_norm(16, 32),
        nn.MaxPool2d(2),
        conv_norm(32, 64),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 10),
    )


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image moved by up to one pixel in each direction."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    moves = torch.randint(0, 3, (len(images), 2), generator=generator)
    return torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, moves.tolist())])


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int) -> nn.Module:
    generator = torch.Generator().manual_seed(SEED)
    model = make_model()
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    steps = epochs * ((len(images) + 63) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=5e-3, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=generator).split(64):
            loss = nn.functional.cross_entropy(model(shifted(images[batch], generator)), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


def export(model: nn.Module, path: Path) -> None:
    program = torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        input_names=["image"],
        output_names=["scores"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=4096)},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    # The exporter's notes hold source paths of this machine.
    for item in [proto, proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.graph.initializer]:
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    for value in [*proto.graph.input, *proto.graph.output]:
        value.ClearField("metadata_props")
    onnx.checker.check_model(proto)
    path.write_bytes(proto.SerializeToString(deterministic=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)

    digits = load_digits()
    pixels = digits.images.astype(numpy.uint8)
    train_pixels, test_pixels, train_labels, test_labels = train_test_split(
        pixels, digits.target.astype(numpy.uint8), test_size=HELD_OUT, random_state=SEED, stratify=digits.target
    )
    model = train(
        torch.from_numpy(train_pixels[:, None] / numpy.float32(LEVELS)),
        torch.from_numpy(train_labels.astype(numpy.int64)),
        arguments.epochs,
    )
    with torch.no_grad():
        scores = model(torch.from_numpy(test_pixels[:, None] / numpy.float32(LEVELS)))
    accuracy = (scores.argmax(1).numpy() == test_labels).mean()
    arguments.output.mkdir(parents=True, exist_ok=True)
    export(model, arguments.output / "digits.onnx")
    numpy.savez_compressed(arguments.output / "digits_test.npz", pixels=test_pixels, labels=test_labels)
    print(f"{len(test_labels)} held-out images, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
