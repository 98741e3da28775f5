"""``cuvil demo``: compiles the classifier that ships with Cuvil and shows what came of it. Needs only NumPy."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np

import cuvil

DATA = Path(__file__).parent / "data"
# Pixels of the data set go from 0 to this.
BRIGHTEST = 16.0


def run_demo() -> float:
    """Prints accuracy, latency, kernels and memory of the digit classifier; the accuracy."""
    with np.load(DATA / "digits_test.npz") as held_out:
        pixels, labels = held_out["pixels"], held_out["labels"]
    images = (pixels[:, None] / BRIGHTEST).astype(np.float32)

    start = time.perf_counter()
    model = cuvil.compile(DATA / "digits.onnx")
    scores = np.asarray(model(images))
    seconds = time.perf_counter() - start
    predicted = scores.argmax(axis=1)
    accuracy = float((predicted == labels).mean())

    print(f"Cuvil {cuvil.__version__}: handwritten digits, a convolutional network of four layers\n")
    print(_picture(pixels[:6]))
    print("".join(f"  {f'read as {digit}':<16}" for digit in predicted[:6]).rstrip() + "\n")
    print(f"compiled   {seconds:.2f} s, including the first call")
    print(f"accuracy   {100 * accuracy:.1f} % of {len(labels)} held-out images")
    single = _microseconds(lambda: model(images[:1]))
    every = _microseconds(lambda: model(images))
    print(
        f"latency    {single:.1f} µs for one image, {every / len(images):.2f} µs per image in a batch of {len(images)}"
    )
    print("\nfused kernels")
    print(_indented(model.explain()))
    print("\nmemory")
    print(_indented(format_memory(model.memory())))
    return accuracy


def format_memory(memory: Any) -> str:
    """``fast.memory()`` as lines."""
    if not isinstance(memory, dict):
        return str(memory)
    width = max((len(name) for name in memory), default=0)
    return "\n".join(
        f"{name.replace('_', ' '):<{width}}  {format(value, ',') if isinstance(value, int) else value}"
        for name, value in memory.items()
    )


def _indented(text: Any) -> str:
    return "\n".join("  " + line for line in str(text).splitlines())


def _picture(images: Any) -> str:
    """Small images side by side, each pixel two characters of a grey ramp."""
    ramp = " .:-=+*#@"
    lines: list[str] = []
    for row in range(images.shape[1]):
        cells = ("".join(2 * ramp[int(pixel) * (len(ramp) - 1) // 16] for pixel in image[row]) for image in images)
        lines.append("".join(f"  {cell}" for cell in cells).rstrip())
    return "\n".join(lines)


def _microseconds(call: Callable[[], Any]) -> float:
    """Median time of a call over about a fifth of a second."""
    call()
    samples: list[float] = []
    end = time.perf_counter() + 0.2
    while not samples or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return 1e6 * statistics.median(samples)
