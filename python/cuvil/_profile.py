"""What ``CompiledFunction.profile`` returns: times per kernel, as a table, a Chrome trace or a page."""

from __future__ import annotations

import html
import json
import os
import statistics
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

Sample = Tuple[int, int, int]


@dataclass(frozen=True)
class KernelProfile:
    """One kernel: its median time per call of the model and what it computed."""

    name: str
    ops: Tuple[str, ...]
    sources: Tuple[str, ...]
    microseconds: float
    share: float
    """Of the time of all kernels, in [0, 1]."""
    flops: Optional[int]
    bytes: Optional[int]

    @property
    def gflops(self) -> Optional[float]:
        """Billions of floating-point operations per second."""
        return _rate(self.flops, self.microseconds)

    @property
    def gbytes(self) -> Optional[float]:
        """Billions of bytes read and written per second, at least."""
        return _rate(self.bytes, self.microseconds)


class Profile:
    """Times of a model's kernels over several runs. ``print`` it for a table."""

    def __init__(self, rows: Sequence[Dict[str, Any]], runs: Sequence[Tuple[List[Sample], int]]) -> None:
        self._runs = list(runs)
        self.runs = len(self._runs)
        """How many runs were measured."""
        self.total_microseconds: float = statistics.median(total for _, total in self._runs) / 1e3
        """Median time of a whole call."""
        times: List[List[int]] = [[0] * self.runs for _ in rows]
        for run, (samples, _) in enumerate(self._runs):
            for kernel, begin, end in samples:
                times[kernel][run] += end - begin
        medians = [statistics.median(t) / 1e3 for t in times]
        whole = sum(medians) or 1.0
        self.kernels: List[KernelProfile] = [
            KernelProfile(
                name=row["name"],
                ops=tuple(row["ops"]),
                sources=tuple(row["sources"]),
                microseconds=time,
                share=time / whole,
                flops=row["flops"],
                bytes=row["bytes"],
            )
            for row, time in zip(rows, medians)
        ]
        """In the order in which they run."""

    def table(self, limit: Optional[int] = None) -> str:
        """The kernels as text, slowest first; at most ``limit`` of them."""
        rows = sorted(self.kernels, key=lambda k: -k.microseconds)[:limit]
        width = max([len("kernel"), *(len(k.name) for k in rows)])
        lines = [f"{'kernel':<{width}}  {'time (µs)':>11}  {'share':>6}  {'GFLOP/s':>8}  {'GB/s':>7}"]
        for k in rows:
            lines.append(
                f"{k.name:<{width}}  {k.microseconds:>11.1f}  {100 * k.share:>5.1f}%"
                f"  {_number(k.gflops):>8}  {_number(k.gbytes):>7}"
            )
        kernels = sum(k.microseconds for k in self.kernels)
        lines.append(
            f"{len(self.kernels)} kernels {kernels:.1f} µs, the call {self.total_microseconds:.1f} µs"
            f" (medians of {self.runs} runs)"
        )
        return "\n".join(lines)

    __str__ = table

    def __repr__(self) -> str:
        return f"<Profile of {len(self.kernels)} kernels, {self.total_microseconds:.1f} µs>"

    def chrome_trace(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes all runs for chrome://tracing, Perfetto and the like."""
        origin = min((begin for samples, _ in self._runs for _, begin, _ in samples), default=0)
        events: List[Dict[str, Any]] = []
        for samples, _ in self._runs:
            for kernel, begin, end in samples:
                info = self.kernels[kernel]
                events.append(
                    {
                        "name": info.name,
                        "cat": "kernel",
                        "ph": "X",
                        "ts": (begin - origin) / 1e3,
                        "dur": (end - begin) / 1e3,
                        "pid": os.getpid(),
                        "tid": 0,
                        "args": {"ops": ", ".join(info.ops), "from": ", ".join(info.sources), "flops": info.flops},
                    }
                )
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file)

    def html(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes a page of its own, without scripts or other files."""
        rows = []
        for k in sorted(self.kernels, key=lambda k: -k.microseconds):
            detail = html.escape(" · ".join([", ".join(k.ops), *k.sources]))
            rows.append(
                f'<tr title="{detail}"><td>{html.escape(k.name)}</td><td>{k.microseconds:.1f}</td>'
                f'<td><div class="bar" style="width:{100 * k.share:.1f}%"></div>{100 * k.share:.1f} %</td>'
                f"<td>{_number(k.gflops)}</td><td>{_number(k.gbytes)}</td><td>{html.escape(', '.join(k.ops))}</td></tr>"
            )
        with open(path, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(total=f"{self.total_microseconds:.1f}", runs=self.runs, rows="\n".join(rows)))


def _rate(amount: Optional[int], microseconds: float) -> Optional[float]:
    return None if amount is None or microseconds <= 0 else amount / microseconds / 1e3


def _number(value: Optional[float]) -> str:
    return "" if value is None else f"{value:.1f}"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Cuvil profile</title><style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: left; padding: .25em .8em; border-bottom: 1px solid #ddd; vertical-align: top; }}
td:nth-child(2), td:nth-child(4), td:nth-child(5) {{ text-align: right; font-variant-numeric: tabular-nums; }}
td:nth-child(3) {{ min-width: 12em; }}
.bar {{ background: #4c78a8; height: .5em; }}
</style></head><body>
<h1>{total} µs per call</h1><p>Medians of {runs} runs.</p>
<table><thead><tr><th>kernel</th><th>µs</th><th>share</th><th>GFLOP/s</th><th>GB/s</th><th>ops</th></tr></thead>
<tbody>
{rows}
</tbody></table></body></html>
"""
