"""Runs the workers of all engines side by side, in turns, and gathers their samples."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench import engines, peak

# The fields of one result, in the order the JSON has them.
FIELDS = (
    "model",
    "engine",
    "threads",
    "median_ms",
    "min_ms",
    "runs",
    "compile_s",
    "peak_rss_mb",
    "max_error",
    "gflops",
    "share_of_peak",
)


@dataclass
class Plan:
    models: list[str]
    engines: list[str]
    threads: list[int]
    rounds: int = 12
    seconds: float = 0.25
    tiny: bool = False
    verbose: bool = False


@dataclass
class Contestant:
    """One worker process and what it has measured. Stopped by signal whenever it isn't its turn."""

    engine: str
    process: subprocess.Popen[str]
    log: IO[str]
    answer: dict[str, Any] = field(default_factory=dict)
    samples_ms: list[float] = field(default_factory=list)
    dropped: int = 0
    peak_rss_mb: float = 0.0
    error: str | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        os.kill(self.process.pid, signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"the process ended with status {self.process.wait()}"}
        os.kill(self.process.pid, signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def run(plan: Plan, say: Any) -> dict[str, Any]:
    """Measures everything in ``plan``; the JSON document. ``say`` is told of progress and omissions."""
    contestants = []
    for engine in plan.engines:
        missing = engines.missing_requirement(engine)
        if missing:
            say(f"{engine}: skipped, {missing} isn't installed")
        else:
            contestants.append(engine)
    document: dict[str, Any] = {"machine": describe_machine(), "results": []}
    with tempfile.TemporaryDirectory(prefix="cuvil-bench-") as scratch:
        library = None
        try:
            library = peak.build_calibrator(Path(scratch))
        except peak.PeakUnavailableError as error:
            say(f"share of peak: skipped, {error}")
        for model in plan.models:
            directory = Path(scratch) / model
            directory.mkdir()
            flops = _prepare(model, contestants, plan, directory, say)
            if flops is None:
                continue
            for threads in plan.threads:
                field_ = _measure(model, threads, contestants, plan, directory, library, say)
                peak_gflops = field_.pop("peak", None)
                if peak_gflops is not None:
                    key = f"{model}/{threads}"
                    document["machine"].setdefault("fma_peak_gflops", {})[key] = round(_gflops(peak_gflops), 1)
                for contestant in field_.values():
                    document["results"].append(_result(model, threads, flops, contestant, peak_gflops))
    return document


def _prepare(model: str, contestants: list[str], plan: Plan, directory: Path, say: Any) -> int | None:
    say(f"{model}: building")
    command = [sys.executable, "-m", "bench.prepare", model, str(directory)]
    command += ["--tiny"] if plan.tiny else []
    command += ["--onnx"] if any(engine in engines.FROM_ONNX for engine in contestants) else []
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        say(f"{model}: can't be built:\n{done.stderr.strip()}")
        return None
    return int(json.loads((directory / "info.json").read_text())["flops"])


def _measure(
    model: str,
    threads: int,
    names: list[str],
    plan: Plan,
    directory: Path,
    library: Path | None,
    say: Any,
) -> dict[str, Contestant]:
    field_: dict[str, Contestant] = {}
    try:
        for engine in [*names, *(["peak"] if library else [])]:
            say(f"{model}, {threads} thread{'s' if threads > 1 else ''}: loading {engine}")
            contestant = _start(engine, threads, directory, plan.verbose)
            field_[engine] = contestant
            request = {"command": "load", "engine": engine, "model": model, "tiny": plan.tiny, "threads": threads}
            contestant.answer = contestant.ask({**request, "directory": str(directory), "library": str(library)})
            contestant.error = contestant.answer.get("error")
            if contestant.error:
                say(f"{model}: {engine} left out: {contestant.error}")
                field_.pop(engine).close()
        order = list(field_.values())
        say(f"{model}, {threads} thread{'s' if threads > 1 else ''}: {plan.rounds} rounds")
        for _ in range(plan.rounds):
            for contestant in order:
                _take_turn(contestant, plan.seconds)
                time.sleep(0.01)
            order = order[1:] + order[:1]
        for contestant in [one for one in field_.values() if one.error]:
            say(f"{model}: {contestant.engine} left out: {contestant.error}")
            field_.pop(contestant.engine)
    finally:
        for contestant in field_.values():
            contestant.close()
    return field_


def _start(engine: str, threads: int, directory: Path, verbose: bool) -> Contestant:
    caches = directory / f"cache-{engine}-{threads}"
    environment = {
        **os.environ,
        **engines.thread_environment(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(caches),
        "PYTHONWARNINGS": "ignore",
    }
    log = open(directory / f"{engine}-{threads}.log", "w", encoding="utf-8")  # noqa: SIM115 - closed by close()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if verbose else log,
        text=True,
        env=environment,
    )
    return Contestant(engine, process, log)


def _take_turn(contestant: Contestant, seconds: float) -> None:
    if contestant.error:
        return
    answer = contestant.ask({"command": "turn", "seconds": seconds})
    contestant.error = answer.get("error")
    if contestant.error is None:
        contestant.samples_ms += answer["samples_ms"]
        contestant.dropped += answer["dropped"]
        contestant.peak_rss_mb = answer["peak_rss_mb"]


def _gflops(contestant: Contestant) -> float:
    return float(contestant.answer["operations"]) / statistics.median(contestant.samples_ms) * 1e-6


def _result(
    model: str, threads: int, flops: int, contestant: Contestant, calibrator: Contestant | None
) -> dict[str, Any]:
    samples = contestant.samples_ms
    median = statistics.median(samples) if samples else None
    gflops = flops / median * 1e-6 if median else None
    share = gflops / _gflops(calibrator) if gflops and calibrator and calibrator.samples_ms else None
    values = (
        model,
        contestant.engine,
        threads,
        median and round(median, 5),
        round(min(samples), 5) if samples else None,
        len(samples),
        round(contestant.answer["compile_s"], 3),
        round(contestant.peak_rss_mb, 1),
        contestant.answer["max_error"],
        gflops and round(gflops, 2),
        share and round(share, 4),
    )
    return dict(zip(FIELDS, values))


def describe_machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    import importlib.metadata
    import platform

    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        processor = lines[0] if lines else processor
    except OSError:
        pass
    versions = {}
    for package in ("cuvil", "torch", "onnxruntime", "openvino"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": processor,
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
    }
