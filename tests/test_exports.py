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
    exported = sorted(line.split()[0] for line in output.splitlines())
    assert exported == sorted(LIST.read_text().split())
