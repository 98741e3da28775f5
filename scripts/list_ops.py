#!/usr/bin/env python3
"""Writes docs/operators.md from the engine's own tables: ``scripts/list_ops.py build/dev/cpp/cuvil-opt``."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"
INTRODUCTION = """# Operators

The primitives of the Graph and the scalar functions of `pointwise`, as `cuvil-opt --list-ops` prints them. Importers
build every operator of ONNX and ATen from these. This page is generated: `scripts/list_ops.py`.

An attribute is written `name:type`. `dims` may hold symbolic sizes, `ints` are plain numbers.
"""


def page(listing: str) -> str:
    """The listing's sections ("title: column | column | …", then rows) as Markdown tables."""
    lines = [INTRODUCTION]
    for line in listing.splitlines():
        title, colon, header = line.partition(":")
        if not line.strip():
            continue
        if colon and "|" not in title and "|" in header:
            columns = [cell.strip() for cell in header.split("|")]
            lines += ["", f"## {title.strip().capitalize()}", "", _row(columns), _row(["---"] * len(columns))]
        else:
            cells = [cell.strip() for cell in line.split(" | ")]
            lines.append(_row([f"`{cells[0]}`", *cells[1:]]))
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cuvil_opt", help="the cuvil-opt to ask")
    arguments = parser.parse_args()
    listing = subprocess.run([arguments.cuvil_opt, "--list-ops"], check=True, capture_output=True, text=True).stdout
    PAGE.write_text(page(listing), encoding="utf-8")


if __name__ == "__main__":
    main()
