"""Compiled code against the reference evaluator on random graphs, for AVX2 and AVX-512.

CUVIL_FUZZ_SEEDS=1000:5000 runs other seeds than the default ones; a failure prints the graph and its seed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.processor import runnable_targets

from cuvil import cuvil_native as native


def _load(name: str) -> object:
    """A module beside this file; test modules aren't on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


random_graph = _load("random_graphs").random_graph  # type: ignore[attr-defined]

FIRST, _, LAST = os.environ.get("CUVIL_FUZZ_SEEDS", "0:150").partition(":")
SEEDS = range(int(FIRST), int(LAST))
BATCHES = (1, 2, 5, 0)
# Relative to the largest value the output can take; sums are reordered and functions are polynomials.
TOLERANCE = {"f32": 2e-5, "f64": 1e-11}


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_agrees_with_reference(seed: int, target: str) -> None:
    made = random_graph(seed)
    graph = native.parse_graph(made.text)
    compiled = native.compile(native.parse_graph(made.text), target=target)
    for batch in BATCHES if made.dynamic else (1,):
        inputs = made.arrays(batch)
        expected = graph.evaluate(inputs)
        actual = compiled.run(*inputs)
        actual = list(actual) if isinstance(actual, (tuple, list)) else [actual]
        assert len(actual) == len(expected) == len(made.outputs)
        for value, mine, reference in zip(made.outputs, actual, expected):
            _compare(np.asarray(mine), np.asarray(reference), value, f"seed {seed}, batch {batch}\n{made.text}")


def _compare(mine: np.ndarray, reference: np.ndarray, value: object, where: str) -> None:
    assert mine.dtype == reference.dtype, where
    assert mine.shape == reference.shape, where
    if value.exact or mine.dtype.kind != "f":  # type: ignore[attr-defined]
        assert np.array_equal(mine, reference, equal_nan=mine.dtype.kind == "f"), where
    elif reference.size:
        scale = max(1.0, float(np.abs(reference).max()))
        error = float(np.abs(mine - reference).max()) / scale
        assert error <= TOLERANCE[value.dtype], f"error {error}\n{where}"  # type: ignore[attr-defined]
