"""PyTorch's own operator database (``op_db``), each sample compiled and compared with eager PyTorch.

    python tests/conformance/opinfo.py --limit 3                      # float32, every operator
    python tests/conformance/opinfo.py --dtype int64 --ops add fmod
    python tests/conformance/opinfo.py --json report.json --not-passed-in earlier.json

Each operator runs in a worker process under a time limit, so one that crashes or hangs is a line of the report.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import multiprocessing
import os
import re
import sys
import time
import warnings
from typing import Any, Dict, List, Optional, Tuple

import numpy
import torch
from torch.utils import _pytree as pytree

import cuvil

STATES = ("pass", "unsupported", "wrong", "crash", "not-exportable", "skipped")

# Their results are not determined by their arguments.
RANDOM = {
    "bernoulli",
    "cauchy",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "new_empty",
    "new_empty_strided",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.rrelu",
    "normal",
    "pca_lowrank",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "resize_",
    "resize_as_",
    "svd_lowrank",
    "uniform",
}

# Where equal elements are found is up to the implementation.
TIES = {"argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk"}


def operators() -> List[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


def full_name(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def tolerances(op: Any, dtype: torch.dtype) -> Dict[str, float]:
    """The widest of the operator's own tolerances and of assert_close's; twice rounding for half types."""
    rtol, atol = {
        torch.float32: (1.3e-6, 1e-5),
        torch.float64: (1e-7, 1e-7),
        torch.float16: (2e-3, 1e-3),
        torch.bfloat16: (1.6e-2, 1e-3),
    }.get(dtype, (0.0, 0.0))
    for entry in op.decorators:
        for decorator in getattr(entry, "decorators", (entry,)):
            override = getattr(decorator, "d", None)
            if isinstance(override, dict) and dtype in override and hasattr(override[dtype], "atol"):
                rtol, atol = max(rtol, override[dtype].rtol), max(atol, override[dtype].atol)
    return {"rtol": rtol, "atol": atol}


def differences(actual: List[Any], expected: List[Any], op: Any) -> Optional[str]:
    """Why two flat results are not the same; None if they are."""
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for mine, wanted in zip(actual, expected):
        if not isinstance(wanted, torch.Tensor):
            if mine != wanted:
                return f"{mine!r} instead of {wanted!r}"
            continue
        allowed = tolerances(op, wanted.dtype)
        if wanted.dtype in {torch.float16, torch.bfloat16} and wanted.isfinite().any():
            # A sum is rounded before the bias is added to it: what they cancel to has that rounding.
            largest = wanted[wanted.isfinite()].abs().max().item()
            allowed["atol"] = max(allowed["atol"], torch.finfo(wanted.dtype).eps * largest)
        try:
            torch.testing.assert_close(mine, wanted, equal_nan=True, **allowed)
        except AssertionError as error:
            shown = str(error).strip().replace("\n", " ")
            if wanted.numel() <= 8:
                shown += f" {mine.tolist()} instead of {wanted.tolist()}"
            return shown
    return None


def as_tensor(result: Any) -> torch.Tensor:
    """Without a tensor among the arguments, results are NumPy's, whose bfloat16 torch does not know."""
    if isinstance(result, numpy.ndarray) and str(result.dtype) == "bfloat16":
        return torch.from_numpy(result.view("int16")).view(torch.bfloat16)
    return torch.as_tensor(result)


def tie_differences(actual: List[Any], expected: List[Any], sample: Any, op: Any) -> Optional[str]:
    """Like differences, but positions need only hold equal elements."""
    axis = sample.kwargs.get("dim", -1)
    for argument in sample.args:
        if isinstance(argument, int) and not isinstance(argument, bool):
            axis = argument  # the last of (k, dim)
    if op.name in {"topk", "kthvalue"} and len(sample.args) < 2:
        axis = sample.kwargs.get("dim", -1)

    def values(results: List[Any]) -> List[Any]:
        found = []
        for result in results:
            if op.name != "argsort" and result is results[0]:
                found.append(result)
                continue
            x, index = torch.atleast_1d(sample.input), torch.atleast_1d(result)
            if index.dim() < x.dim():
                index = index.unsqueeze(axis)
            found.append(torch.gather(x, axis, index))
        return found

    return differences(values(actual), values(expected), op)


def run_sample(op: Any, sample: Any, inplace: bool = False, dynamic: bool = False) -> Tuple[str, str]:
    """(state, detail) of one sample."""
    leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach() for i in positions]
    if any(t.is_complex() or t.layout != torch.strided for t in tensors):
        return "skipped", "complex or sparse"
    function = op.inplace_variant if inplace else op.op

    def call(*inputs: torch.Tensor) -> Any:
        filled = list(leaves)
        for position, value in zip(positions, inputs):
            filled[position] = value
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return function(first.clone() if inplace else first, *args, **kwargs)

    try:
        with torch.no_grad():
            torch.manual_seed(1)
            expected = pytree.tree_leaves(call(*[t.clone() for t in tensors]))
            torch.manual_seed(2)
            again = pytree.tree_leaves(call(*[t.clone() for t in tensors]))
    except Exception as error:
        return "skipped", f"eager: {error}"
    results = [leaf for leaf in expected if isinstance(leaf, torch.Tensor)]
    if any(t.is_complex() or t.layout != torch.strided or t.is_quantized for t in results):
        return "skipped", "complex or sparse"
    if not results:
        return "skipped", "no tensor in the result"
    if differences(again, expected, op):
        return "skipped", "random"
    try:
        inputs: List[Any] = [(f"x{i}", t) for i, t in enumerate(tensors)]
        if dynamic:
            inputs = [(name, (None,) * t.dim(), str(t.dtype).rpartition(".")[2]) for name, t in inputs]
        compiled = cuvil.compile(call, input_spec=inputs)
        actual = [as_tensor(leaf) for leaf in pytree.tree_leaves(compiled(*tensors))]
    except cuvil.CompileError as error:
        message = str(error)
        exportable = "torch.export cannot export" not in message
        return ("unsupported" if exportable else "not-exportable"), message
    except cuvil.ShapeError as error:
        return "not-exportable", f"PyTorch has fixed a size: {error}"
    except cuvil.InternalError as error:
        return "crash", str(error)
    except Exception as error:
        state = "not-exportable" if type(error).__module__.startswith("torch") else "crash"
        return state, f"{type(error).__name__}: {error}"
    difference = differences(actual, expected, op)
    if difference and op.name in TIES:
        difference = tie_differences(actual, expected, sample, op)
    if difference and any(t.is_floating_point() for t in tensors):
        # Eager PyTorch may be the one that is further from the truth.
        with contextlib.suppress(Exception):
            exact = pytree.tree_leaves(call(*[t.double() if t.is_floating_point() else t.clone() for t in tensors]))
            exact = [e.to(w.dtype) if isinstance(w, torch.Tensor) else e for e, w in zip(exact, expected)]
            if differences(actual, exact, op) is None:
                difference = None
    return ("wrong", difference) if difference else ("pass", "")


def run_operator(
    op: Any, dtype: torch.dtype, limit: int, inplace: bool = False, dynamic: bool = False
) -> List[Tuple[str, str]]:
    """(state, detail) of each of the first samples."""
    if op.name in RANDOM or full_name(op) in RANDOM:
        return [("skipped", "random")]
    if dtype not in op.supported_dtypes("cpu"):
        return []
    if inplace and op.inplace_variant is None:
        return []
    torch.manual_seed(0)
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit))
    except Exception as error:
        return [("skipped", f"sample_inputs: {error}")]
    return [run_sample(op, sample, inplace, dynamic) for sample in samples]


def _work(connection: Any, *options: Any) -> None:
    warnings.simplefilter("ignore")
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  the worker's, for as long as it lives
    by_name = {full_name(op): op for op in operators()}
    while True:
        name = connection.recv()
        if name is None:
            return
        connection.send(run_operator(by_name[name], *options))


class Worker:
    """A process that runs operators, started anew when it dies."""

    def __init__(self, seconds: float, *options: Any) -> None:
        self._arguments = options
        self._seconds = seconds
        self._process: Any = None

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, name: str) -> List[Tuple[str, str]]:
        if self._process is None:
            self._start()
        self._connection.send(name)
        why = "the process died"
        try:
            if self._connection.poll(self._seconds):
                return self._connection.recv()
            why = f"took more than {self._seconds} s"
        except EOFError:
            pass
        self._process.kill()
        self._process.join()
        self._process = None
        return [("crash", why)]


def missing_targets(detail: str) -> List[str]:
    if "operators that are not supported:" not in detail:
        return []
    return re.findall(r"^  (\S+) at ", detail, flags=re.MULTILINE)


def counts(outcomes: List[Tuple[str, str]]) -> Dict[str, int]:
    found = collections.Counter(state for state, _ in outcomes)
    return {state: found[state] for state in STATES if found[state]}


def report(results: Dict[str, List[Tuple[str, str]]]) -> Dict[str, Any]:
    samples: collections.Counter[str] = collections.Counter()
    whole: collections.Counter[str] = collections.Counter()
    missing: Dict[str, List[str]] = collections.defaultdict(list)
    other: Dict[str, List[str]] = collections.defaultdict(list)
    for name, outcomes in results.items():
        samples.update(state for state, _ in outcomes)
        seen = {state for state, _ in outcomes}
        # An operator passes when all of its samples that can be compared do.
        order = ("wrong", "crash", "unsupported", "not-exportable", "pass", "skipped")
        whole.update([next((state for state in order if state in seen), "no samples")])
        for target in {t for _, detail in outcomes for t in missing_targets(detail)}:
            missing[target].append(name)
        for state, detail in outcomes:
            if state == "unsupported" and not missing_targets(detail):
                other[re.sub(r"^node '[^']*' ", "", detail).splitlines()[0][:160]].append(name)
    by_count = sorted(missing.items(), key=lambda item: (-len(item[1]), item[0]))
    refused = sorted(other.items(), key=lambda item: (-len(item[1]), item[0]))
    return {"samples": dict(samples), "operators": dict(whole), "missing": by_count, "refused": refused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--ops", nargs="*", help="names of operators, with or without their variant's")
    parser.add_argument("--limit", type=int, default=3, help="samples of each operator")
    parser.add_argument("--inplace", action="store_true", help="run the in-place variants")
    parser.add_argument("--dynamic", action="store_true", help="compile for inputs of any sizes")
    parser.add_argument("--seconds", type=float, default=120, help="time limit of an operator")
    parser.add_argument("--json", help="write every outcome to this file")
    parser.add_argument("--not-passed-in", help="only operators with a sample that did not pass in this file")
    parser.add_argument("--verbose", action="store_true", help="show why samples did not pass")
    options = parser.parse_args()

    names = {full_name(op): op.name for op in operators()}
    chosen = [full for full, name in names.items() if not options.ops or name in options.ops or full in options.ops]
    if options.not_passed_in:
        with open(options.not_passed_in, encoding="utf-8") as file:
            earlier = json.load(file)["results"]
        chosen = [n for n in chosen if any(s not in {"pass", "skipped"} for s, _ in earlier.get(n, [["new", ""]]))]
    worker = Worker(options.seconds, getattr(torch, options.dtype), options.limit, options.inplace, options.dynamic)
    results: Dict[str, List[Tuple[str, str]]] = {}
    started = time.monotonic()
    for name in chosen:
        outcomes = results[name] = worker.run(name)
        if not outcomes:
            continue
        print(f"{name:<60} " + "  ".join(f"{state} {n}" for state, n in counts(outcomes).items()), flush=True)
        for state, detail in outcomes:
            if state in {"wrong", "crash"} or (options.verbose and state != "pass"):
                print(f"    {state}: {' '.join(detail.split())[:300]}", flush=True)
    summary = report(results)
    print("\nmissing targets, with the number of operators that need them")
    for target, users in summary["missing"]:
        print(f"  {len(users):4}  {target:<50} {', '.join(users[:6])}")
    print("\nrefused for another reason")
    for reason, users in summary["refused"]:
        print(f"  {len(users):4}  {reason}  [{', '.join(sorted(set(users))[:4])}]")
    print(f"\n{options.dtype}, {time.monotonic() - started:.0f} s")
    for what in ("operators", "samples"):
        print(f"{what}: " + ", ".join(f"{state} {n}" for state, n in sorted(summary[what].items())))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"dtype": options.dtype, "results": results, **summary}, file)


if __name__ == "__main__":
    main()
