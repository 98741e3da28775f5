"""Fits the cost model of products to this machine: ``python -m bench.fit_cost_model``.

Compiles products and convolutions of many sizes with ``tune``, which measures several schedules of each, and finds the
non-negative coefficients of ``cpp/lower/cost_model.hpp``'s terms with the least squared relative error. Writes the
measurements to ``bench/cost_model.csv`` and the coefficients to ``cpp/lower/cost_model_coefficients.hpp``.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TERMS = ("issue_cycles", "tiles", "results", "column_lines", "row_lines")

CONVOLUTIONS = [  # channels, outputs, size, kernel
    (16, 96, 112, 1),
    (64, 64, 56, 1),
    (64, 256, 56, 1),
    (128, 512, 28, 1),
    (96, 576, 14, 1),
    (256, 1024, 14, 1),
    (576, 96, 14, 1),
    (320, 1280, 7, 1),
    (2048, 512, 7, 1),
    (64, 64, 56, 3),
    (128, 128, 28, 3),
    (256, 256, 14, 3),
    (512, 512, 7, 3),
]
PRODUCTS = [  # rows, k, columns
    (4, 768, 768),
    (16, 768, 3072),
    (64, 768, 768),
    (128, 768, 3072),
    (128, 3072, 768),
    (197, 768, 768),
    (784, 192, 768),
    (3136, 96, 384),
]

HEADER = """\
// Written by bench/fit_cost_model.py from bench/cost_model.csv, in the order of the terms in cost_model.hpp.
#pragma once

#include "lower/cost_model.hpp"

namespace cuvil {{

inline constexpr CostTerms kCostCoefficients = {{{values}}};

}}  // namespace cuvil
"""


def convolution_text(channels: int, outputs: int, size: int, kernel: int) -> str:
    """A graph with one convolution of stride 1, between others that keep it in channel blocks."""
    side = size + kernel - 1

    def conv(result: str, operand: str, o: int, i: int, k: int) -> str:
        return (
            f"  %w{result} = constant() {{value=dense<f32[{o}, {i}, {k}, {k}]: splat 1.0>}}\n"
            f"  %{result} = conv(%{operand}, %w{result}) {{strides=[1, 1], dilations=[1, 1], groups=1}}\n"
        )

    return (
        f"graph g(%x: f32[1, 16, {side}, {side}]) {{\n"
        + conv("a", "x", channels, 16, 1)
        + conv("b", "a", outputs, channels, kernel)
        + conv("c", "b", 16, outputs, 1)
        + '  return "y" = %c\n}'
    )


def product_text(rows: int, k: int, columns: int) -> str:
    """A graph with one product with a constant."""
    return (
        f"graph g(%x: f32[{rows}, {k}]) {{\n"
        f"  %w = constant() {{value=dense<f32[{k}, {columns}]: splat 1.0>}}\n"
        '  %y = matmul(%x, %w)\n  return "y" = %y\n}'
    )


def measure() -> list[dict[str, object]]:
    """Every schedule tried, with its terms and its time."""
    from cuvil import cuvil_native as native

    graphs = [(f"conv {c}", convolution_text(*c)) for c in CONVOLUTIONS]
    graphs += [(f"matmul {p}", product_text(*p)) for p in PRODUCTS]
    rows: list[dict[str, object]] = []
    for name, text in graphs:
        model = native.compile(native.parse_graph(text), precision="strict", tune=True)
        for record in model.tuning:
            schedule = re.sub(r".*# ", "", record["kernel"].splitlines()[1])
            rows.append(
                {
                    "product": name,
                    "schedule": re.sub(r", prefetch .*", ", prefetch", schedule),
                    **dict(zip(TERMS, record["terms"])),
                    "microseconds": round(record["microseconds"], 2),
                }
            )
    return rows


def fit(terms: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """Non-negative least squares of relative errors, by coordinate descent."""
    a = terms / cycles[:, None]
    gram, target = a.T @ a, a.sum(axis=0)
    x = np.zeros(a.shape[1])
    for _ in range(20000):
        for i in range(len(x)):
            if gram[i, i] > 0:
                x[i] = max(0.0, x[i] + (target[i] - gram[i] @ x) / gram[i, i])
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ghz", type=float, required=True, help="clock of the core while it runs this")
    parser.add_argument("--only-fit", action="store_true", help="use the measurements that are there")
    arguments = parser.parse_args()
    table = ROOT / "bench" / "cost_model.csv"
    if not arguments.only_fit:
        rows = measure()
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["product", "schedule", *TERMS, "microseconds"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    with table.open(encoding="utf-8") as file:
        measured = list(csv.DictReader(file))
    terms = np.array([[float(row[name]) for name in TERMS] for row in measured])
    cycles = np.array([float(row["microseconds"]) for row in measured]) * arguments.ghz * 1e3
    x = fit(terms, cycles)
    error = np.abs(terms @ x / cycles - 1)
    print(f"{len(measured)} measurements, relative error: median {np.median(error):.3f}, worst {error.max():.3f}")
    for name, value in zip(TERMS, x):
        print(f"  {name:13} {value:.4f}")
    # What following the model costs, against the fastest schedule that was measured.
    regrets = {}
    for product in dict.fromkeys(row["product"] for row in measured):
        mine = [i for i, row in enumerate(measured) if row["product"] == product]
        regrets[product] = cycles[min(mine, key=lambda i: terms[i] @ x)] / min(cycles[mine]) - 1
    worst = max(regrets, key=regrets.__getitem__)
    mean = np.mean(list(regrets.values()))
    print(f"the model's choice against the best: mean +{mean:.1%}, worst +{regrets[worst]:.1%} ({worst})")
    header = ROOT / "cpp" / "lower" / "cost_model_coefficients.hpp"
    header.write_text(HEADER.format(values=", ".join(f"{v:.4g}" for v in x)), encoding="utf-8")


if __name__ == "__main__":
    main()
