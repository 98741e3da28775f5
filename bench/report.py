"""Shows results: a table for the terminal, bar charts as PNG, and one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OURS = ("cuvil", "cuvil-onnx")
COLUMNS = (
    "engine",
    "median ms",
    "min ms",
    "runs",
    "x eager",
    "x best peer",
    "GFLOP/s",
    "% of peak",
    "compile s",
    "RSS MB",
    "max error",
)
Row = list[str]


def groups(document: dict[str, Any]) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """The results by model and number of threads, fastest first."""
    keys = dict.fromkeys((result["model"], result["threads"]) for result in document["results"])
    for model, threads in keys:
        chosen = [r for r in document["results"] if (r["model"], r["threads"]) == (model, threads)]
        yield model, threads, sorted(chosen, key=lambda r: r["median_ms"] or float("inf"))


def _rows(results: list[dict[str, Any]]) -> list[Row]:
    timed = {r["engine"]: r["median_ms"] for r in results if r["median_ms"]}
    eager = timed.get("eager")
    peers = [time for engine, time in timed.items() if engine not in OURS]

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    def ratio(reference: float | None, time: float | None) -> float | None:
        return reference / time if reference and time else None

    rows = []
    for result in results:
        time = result["median_ms"]
        share = result["share_of_peak"]
        rows.append(
            [
                result["engine"],
                number(time, ".4g"),
                number(result["min_ms"], ".4g"),
                str(result["runs"]),
                number(ratio(eager, time), ".2f"),
                number(ratio(min(peers, default=None), time), ".2f"),
                number(result["gflops"], ".1f"),
                number(100 * share if share is not None else None, ".0f"),
                number(result["compile_s"], ".2f"),
                number(result["peak_rss_mb"], ".0f"),
                number(result["max_error"], ".1e"),
            ]
        )
    return rows


def table(document: dict[str, Any]) -> str:
    """The results as text. Ratios are speed-ups: above 1 is faster than what it is compared with."""
    lines: list[str] = []
    for model, threads, results in groups(document):
        rows = [list(COLUMNS), *_rows(results)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        lines.append(f"\n{model}, {threads} thread{'s' if threads > 1 else ''}")
        for row in rows:
            cells = [
                cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))
            ]
            lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def plot(document: dict[str, Any], directory: Path) -> list[Path]:
    """Writes one PNG per number of threads and ``bench.html``; the files written. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    pictures = [
        _speedups(document, threads, directory)
        for threads in sorted({result["threads"] for result in document["results"]})
    ]
    page = directory / "bench.html"
    page.write_text(_page(document, pictures), encoding="utf-8")
    return [*pictures, page]


def _speedups(document: dict[str, Any], threads: int, directory: Path) -> Path:
    from matplotlib import pyplot

    chosen = [(model, results) for model, count, results in groups(document) if count == threads]
    engines = list(dict.fromkeys(r["engine"] for r in document["results"] if r["threads"] == threads))
    colours = dict(zip(engines, ("#c2410c", "#94a3b8", "#64748b", "#a5b4fc", "#7dd3fc", "#86efac", "#fcd34d")))
    figure, axes = pyplot.subplots(figsize=(max(6.0, 1.1 * len(chosen)), 4.2), layout="constrained")
    width = 0.8 / max(1, len(engines))
    for place, (_, results) in enumerate(chosen):
        times = {r["engine"]: r["median_ms"] for r in results if r["median_ms"]}
        reference = times.get("eager") or max(times.values(), default=1.0)
        for index, engine in enumerate(engines):
            if engine not in times:
                continue
            x = place + (index - (len(engines) - 1) / 2) * width
            axes.bar(x, reference / times[engine], width * 0.92, color=colours[engine])
            label = f"{times[engine]:.3g}"
            axes.text(x, reference / times[engine], label, ha="center", va="bottom", fontsize=6, rotation=90)
    axes.set_xticks(range(len(chosen)), [model for model, _ in chosen], rotation=20, ha="right")
    axes.set_ylabel("speed relative to eager (labels: ms)")
    axes.set_title(f"batch 1, float32, {threads} thread{'s' if threads > 1 else ''}", fontsize=10)
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colours[engine]) for engine in engines]
    axes.legend(handles, engines, frameon=False, fontsize=8, ncols=min(4, len(engines)))
    path = directory / f"bench-{threads}-thread{'s' if threads > 1 else ''}.png"
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _page(document: dict[str, Any], pictures: list[Path]) -> str:
    parts = ["<!doctype html><meta charset=utf-8><title>Cuvil benchmark</title>"]
    parts.append("<style>body{font:15px system-ui;margin:2em auto;max-width:70em}table{border-collapse:collapse}")
    parts.append("td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}")
    parts.append("td:first-child,th:first-child{text-align:left}img{max-width:100%}</style>")
    machine = document["machine"]
    parts.append(f"<h1>Benchmark</h1><p>{html.escape(machine['processor'])}, {html.escape(machine['system'])}</p>")
    for picture in pictures:
        parts.append(f'<img src="data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}">')
    for model, threads, results in groups(document):
        parts.append(f"<h2>{html.escape(model)}, {threads} thread{'s' if threads > 1 else ''}</h2><table>")
        parts.append("<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS) + "</tr>")
        for row in _rows(results):
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>")
        parts.append("</table>")
    return "\n".join(parts)
