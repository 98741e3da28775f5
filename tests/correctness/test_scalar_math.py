"""Elementary functions against wider arithmetic, over the whole range of their arguments and on every target."""

from __future__ import annotations

from typing import Callable

import numpy as np
import pytest
from tests.processor import runnable_targets

import cuvil

torch = pytest.importorskip("torch")

SAMPLES = 1 << 20
SPECIAL = [0.0, 0.5, 0.6, 0.925, 1.0, 2.0, 3.95, 10.0, 88.72, 88.73, 103.5, 104.5, 709.78, 709.79, 745.1, 1e5, np.inf]


def compile_for(target: str, function: Callable, arguments: list[np.ndarray], patch: pytest.MonkeyPatch) -> np.ndarray:
    """The function of these arguments, computed by code for that target."""

    def model(*tensors: torch.Tensor) -> torch.Tensor:
        return function(*tensors)

    patch.setenv("CUVIL_TARGET", target)
    tensors = [torch.from_numpy(a) for a in arguments]
    compiled = cuvil.compile(model, input_spec=[(f"x{i}", t) for i, t in enumerate(tensors)])
    return compiled(*tensors).numpy()


def samples(dtype: np.dtype, seed: int) -> np.ndarray:
    """Bit patterns spread over all floats, values of ordinary size, and special ones."""
    rng = np.random.default_rng(seed)
    bits = np.uint32 if dtype == np.float32 else np.uint64
    patterns = rng.integers(0, np.iinfo(bits).max, SAMPLES, dtype=bits, endpoint=True).view(dtype)
    scales = rng.choice([1e-3, 1, 4, 20, 110, 750, 1e5], SAMPLES // 2)
    ordinary = (rng.uniform(-1, 1, SAMPLES // 2) * scales).astype(dtype)
    info = np.finfo(dtype)
    special = np.array([*SPECIAL, info.tiny, info.smallest_subnormal, np.nan]).astype(dtype)
    special = np.append(special, info.max)
    return np.concatenate([special, -special, ordinary, patterns])


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


def error_in_ulp(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of `got`'s type; infinite where one is NaN or a zero has the wrong sign."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        exponent = np.maximum(np.frexp(np.abs(rounded))[1], info.minexp + 1)
        ulp = np.ldexp(exact.dtype.type(1), exponent - info.nmant - 1)
        error = (np.abs(got.astype(exact.dtype) - exact) / ulp).astype(np.float64)
        overflow = np.isinf(got) & (np.abs(exact) > info.max * (1 - 4 * exact.dtype.type(info.eps)))
    same = (got == rounded) & ((got != 0) | (np.signbit(got) == np.signbit(rounded)))
    error[same & (~np.isfinite(rounded) | (rounded == 0))] = 0
    error[(got == 0) & (rounded == 0) & ~same] = np.inf
    error[np.isnan(got) != np.isnan(rounded)] = np.inf
    error[np.isnan(got) & np.isnan(rounded)] = 0
    error[overflow & ~same] = np.where(np.sign(got) == np.sign(exact), 1, np.inf)[overflow & ~same]
    return np.where(np.isnan(error), np.inf, error)


def sigmoid(x: np.ndarray) -> np.ndarray:
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z, 1) / (1 + z) + np.where(np.isnan(x), x, 0)


def erf(x: np.ndarray) -> np.ndarray:
    return torch.erf(torch.from_numpy(x.astype(np.float64))).numpy().astype(x.dtype)


FUNCTIONS: dict[str, tuple[Callable, Callable]] = {
    "exp": (torch.exp, np.exp),
    "expm1": (torch.expm1, np.expm1),
    "log": (torch.log, np.log),
    "log1p": (torch.log1p, np.log1p),
    "sin": (torch.sin, np.sin),
    "cos": (torch.cos, np.cos),
    "tanh": (torch.tanh, np.tanh),
    "sigmoid": (torch.sigmoid, sigmoid),
    "erf": (torch.erf, erf),
}


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_unary(name: str, dtype: type, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, reference = FUNCTIONS[name]
    x = samples(np.dtype(dtype), seed=1)
    got = compile_for(target, function, [x], monkeypatch)
    with np.errstate(all="ignore"):
        exact = reference(wide(x))
    error = error_in_ulp(got, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= (2 if dtype == np.float32 else 4), f"{name}({x[worst]!r}) = {got[worst]!r}"


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf"])
def test_every_width_gives_the_same(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scalars, part of a register and several registers take the path that whole registers take."""
    function, _ = FUNCTIONS[name]
    x = samples(np.dtype(np.float32), seed=3)[: 1 << 12]
    whole = compile_for(target, function, [x], monkeypatch)
    for size in (1, 3, 8, 17, 40):
        part = compile_for(target, function, [x[100 : 100 + size].copy()], monkeypatch)
        np.testing.assert_array_equal(part, whole[100 : 100 + size])
        columns = x[: size * 64].reshape(64, size)
        part = compile_for(target, lambda t: function(t).transpose(0, 1).contiguous(), [columns.copy()], monkeypatch)
        np.testing.assert_array_equal(part, whole[: size * 64].reshape(64, size).T)


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf"])
def test_limits_are_exact(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, reference = FUNCTIONS[name]
    x = np.array([0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, 200, -200, np.nan, -np.nan], np.float32)
    got = compile_for(target, function, [x], monkeypatch)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(got, exact)
    numbers = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(exact[numbers]))


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow(dtype: type, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = samples(np.dtype(dtype), seed=1)
    y = samples(np.dtype(dtype), seed=2)
    y[::3] = np.round(y[::3])
    edges = np.concatenate([x[:40], [-1.0, 3.0, -3.0, 0.5, -2.0]]).astype(dtype)
    x = np.concatenate([np.repeat(edges, edges.size), x])
    y = np.concatenate([np.tile(edges, edges.size), y])
    got = compile_for(target, torch.pow, [x, y], monkeypatch)
    with np.errstate(all="ignore"):
        exact = np.power(wide(x), wide(y))
    error = error_in_ulp(got, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= (1 if dtype == np.float32 else 4), f"pow({x[worst]!r}, {y[worst]!r}) = {got[worst]!r}"


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainder(name: str, dtype: type, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = samples(np.dtype(dtype), seed=1)[: 1 << 18]
    y = samples(np.dtype(dtype), seed=2)[: 1 << 18][::-1].copy()
    got = compile_for(target, getattr(torch, name), [x, y], monkeypatch)
    with np.errstate(all="ignore"):
        exact = np.fmod(x, y) if name == "fmod" else np.remainder(x, y)
    np.testing.assert_array_equal(got, exact)
