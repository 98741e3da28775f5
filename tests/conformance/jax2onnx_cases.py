"""Runs the test cases that jax2onnx carries: ``python tests/conformance/jax2onnx_cases.py [pattern] [--limit N]``.

Each case is a JAX callable with inputs. Those that jax2onnx itself converts are compiled and compared with JAX; the
counts are printed, and every case that is refused or wrong with its reason. Needs jax, jax2onnx, flax and equinox.
"""

from __future__ import annotations

import argparse
import collections
import logging
import multiprocessing
import os
import re
import warnings
from typing import Any, Dict, List, Tuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

SIZE = 3  # of a size that varies
TIME_LIMIT = 120.0  # seconds, of a case


def cases() -> List[Tuple[str, Dict[str, Any]]]:
    """(plugin and case, description) of every case."""
    from jax2onnx.plugins import plugin_system

    plugin_system.import_all_plugins()
    found = []
    for registry in (plugin_system.PLUGIN_REGISTRY, plugin_system.EXAMPLE_REGISTRY):
        for name, plugin in registry.items():
            metadata = getattr(plugin, "metadata", None) or (plugin if isinstance(plugin, dict) else {})
            found += [(f"{name}:{case['testcase']}", case) for case in metadata.get("testcases") or []]
    return found


def run(case: Dict[str, Any]) -> Tuple[str, str]:
    """(outcome, reason)"""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax2onnx import to_onnx

    import cuvil

    double = bool(case.get("run_only_f64_variant"))
    jax.config.update("jax_enable_x64", double)
    try:
        function = case["callable"]
        if hasattr(function, "with_dtype"):
            function = function.with_dtype(jnp.float64 if double else jnp.float32)
            if hasattr(function, "instantiate"):
                function = function.instantiate()
        params = dict(case.get("input_params") or {})
        rng = np.random.default_rng(0)
        if case.get("input_values") is not None:
            arrays = [np.asarray(v) for v in case["input_values"]]
            if not double:
                arrays = [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]
            shapes: List[Any] = [a.shape for a in arrays]
            dtypes = [a.dtype for a in arrays]
        else:
            shapes = [tuple(s) if isinstance(s, (tuple, list)) else (s,) for s in case.get("input_shapes") or []]
            default = np.float64 if double else np.float32
            dtypes = [np.dtype(d) for d in case.get("input_dtypes") or [default] * len(shapes)]
            arrays = []
            for shape, dtype in zip(shapes, dtypes):
                sizes = [SIZE if isinstance(size, str) else size for size in shape]
                if dtype.kind in "iu":
                    arrays.append(rng.integers(0, 5, sizes).astype(dtype))
                elif dtype.kind == "b":
                    arrays.append(rng.integers(0, 2, sizes).astype(bool))
                else:
                    arrays.append(rng.standard_normal(sizes).astype(dtype))
        if any(isinstance(size, str) for shape in shapes for size in shape):
            structs: List[Any] = list(shapes)
            if dtypes and any(d not in (np.float32, np.float64) for d in dtypes):
                structs = [
                    jax.ShapeDtypeStruct(jax.export.symbolic_shape(",".join(map(str, s)), scope=None), d)
                    if any(isinstance(x, str) for x in s)
                    else jax.ShapeDtypeStruct(s, d)
                    for s, d in zip(shapes, dtypes)
                ]
        else:
            structs = [jax.ShapeDtypeStruct(s, d) for s, d in zip(shapes, dtypes)]
        model = to_onnx(
            function,
            structs,
            input_params=params or None,
            enable_double_precision=double,
            opset=case.get("opset_version", 23),
            normalization_mode=case.get("normalization_mode", "auto"),
        )
        expected = function(*arrays, **params)
    except Exception as error:
        return "not converted", f"{type(error).__name__}: {str(error)[:200]}"
    try:
        compiled = cuvil.compile(model)
        names = [i.name for i in model.graph.input]
        extra = [np.asarray(params[name]) for name in names[len(arrays) :]]
        parts = [np.stack([a.real, a.imag], -1) if np.iscomplexobj(a) else a for a in arrays]
        actual = compiled(*parts, *extra)
    except (cuvil.CompileError, cuvil.InputError) as error:
        return "refused", str(error)[:300]
    if case.get("skip_numeric_validation"):
        return "right", ""
    mine = list(actual) if isinstance(actual, tuple) else [actual]
    wanted = jax.tree_util.tree_leaves(expected)
    if len(mine) != len(wanted):
        return "wrong", f"{len(mine)} outputs, not {len(wanted)}"
    suffix = "_f64" if double else ""
    rtol = case.get("rtol" + suffix, 1e-7 if double else 3e-5)
    atol = case.get("atol" + suffix, 1e-7 if double else 1e-5)
    for a, b in zip(mine, wanted):
        x, y = np.asarray(a), np.asarray(b)
        if np.iscomplexobj(y):
            y = np.stack([y.real, y.imag], -1)
        if x.shape != y.shape:
            return "wrong", f"shape {x.shape}, not {y.shape}"
        try:
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=rtol, atol=atol)
        except AssertionError as error:
            return "wrong", " ".join(str(error).split())[:300]
    return "right", ""


class Worker:
    """A process that runs cases by name. JAX's threads don't survive a fork, so it starts afresh."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other,), daemon=True)
        self.process.start()

    def run(self, name: str) -> Tuple[str, str]:
        self.pipe.send(name)
        try:
            if self.pipe.poll(TIME_LIMIT):
                return self.pipe.recv()
            return "wrong", "no answer in time"
        except EOFError:
            return "wrong", "crash"

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def work(pipe: Any) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    known = dict(cases())
    while True:
        pipe.send(run(known[pipe.recv()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--every", type=int, default=1, help="every so many cases only")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    chosen = [name for name, _ in cases() if re.search(options.pattern, name)][:: options.every]
    outcomes: Dict[str, List[Tuple[str, str]]] = collections.defaultdict(list)
    worker = Worker()
    for number, name in enumerate(chosen):
        outcome, reason = worker.run(name)
        outcomes[outcome].append((name, reason))
        if outcome in ("wrong", "refused"):
            print(f"{outcome} {name}: {reason}", flush=True)
        # Caches of JAX grow with every case.
        if reason in ("crash", "no answer in time") or number % 200 == 199:
            worker.stop()
            worker = Worker()
    worker.stop()
    converted = sum(len(v) for k, v in outcomes.items() if k != "not converted")
    print({k: len(v) for k, v in outcomes.items()}, f"right of converted: {len(outcomes['right'])} of {converted}")


if __name__ == "__main__":
    main()
