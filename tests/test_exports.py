"""The extension module exports what cmake/exports/cuvil_native.symbols lists, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cuvil import cuvil_native

LIST = Path(__file__).parent.parent / "cmake" / "exports" / "cuvil_native.symbols"


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm (binutils)")
def test_exported_symbols() -> None:
    output = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", cuvil_native.__file__],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    # A lower-case type is local: some linkers leave such names in the table, where nothing can bind to them.
    symbols = (line.split() for line in output.splitlines())
    exported = sorted(name for name, kind, *_ in symbols if kind.isupper())
    assert exported == sorted(LIST.read_text().split())
