"""One engine with one model in a process of its own, driven by JSON lines: ``load``, ``turn``, ``quit``.

Answers go to the original standard output; whatever the engine prints goes to standard error.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import engines, peak
from bench.clean import is_clean, run_queue_wait_ns

# Calls shorter than this are measured in groups that reach it.
MIN_SAMPLE_NS = 1_000_000


class Worker:
    def __init__(self) -> None:
        self.call: Callable[[], Any] = lambda: None

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        directory = Path(request["directory"])
        if request["engine"] == "peak":
            self.call, operations = peak.load_calibrator(request["library"], request["threads"])
            return {"operations": operations}
        job = engines.Job(request["model"], request["tiny"], request["threads"], directory)
        loaded = engines.load(request["engine"], job)
        self.call = loaded.call
        return {"compile_s": loaded.compile_s, "max_error": _max_error(loaded, directory)}

    def turn(self, request: dict[str, Any]) -> dict[str, Any]:
        """One untimed call, then samples for about ``seconds`` but at least two of them."""
        call = self.call
        start = time.perf_counter_ns()
        call()
        first = time.perf_counter_ns()
        group = max(1, MIN_SAMPLE_NS // max(1, first - start))
        samples: list[float] = []
        dropped, end = 0, first + int(request["seconds"] * 1e9)
        while len(samples) + dropped < 2 or time.perf_counter_ns() < end:
            wait = run_queue_wait_ns()
            begin = time.perf_counter_ns()
            for _ in range(group):
                call()
            elapsed = time.perf_counter_ns() - begin
            if is_clean(wait, run_queue_wait_ns(), elapsed):
                samples.append(elapsed / group * 1e-6)
            else:
                dropped += 1
        peak_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"samples_ms": samples, "dropped": dropped, "peak_rss_mb": peak_rss_mb}


def _max_error(loaded: engines.Loaded, directory: Path) -> float:
    import numpy

    actual = loaded.outputs(loaded.call())
    with numpy.load(directory / "expected.npz") as file:
        expected = [file[name] for name in file.files]
    if len(actual) != len(expected):
        raise RuntimeError(f"{len(actual)} outputs where eager gives {len(expected)}")
    worst = 0.0
    for mine, reference in zip(actual, expected):
        if mine.shape != reference.shape:
            raise RuntimeError(f"an output of shape {mine.shape} where eager's is {reference.shape}")
        scale = float(numpy.abs(reference).max()) or 1.0
        error = float(numpy.abs(mine.astype(numpy.float64) - reference).max()) / scale
        worst = max(worst, float("inf") if math.isnan(error) else error)
    return worst


def main() -> None:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        if request["command"] == "quit":
            break
        try:
            answer = worker.load(request) if request["command"] == "load" else worker.turn(request)
        except Exception as error:  # whatever an engine throws is its result
            traceback.print_exc()
            summary = (str(error).strip().splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {summary}"}
        channel.write(json.dumps(answer) + "\n")
        channel.flush()
    os._exit(0)  # some engines hang when they tear down their threads


if __name__ == "__main__":
    main()
