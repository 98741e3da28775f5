"""What an InternalError writes down: the model's graph, without its weights, in a form that cuvil-opt reads."""

from __future__ import annotations

from pathlib import Path

import cuvil
from cuvil import cuvil_native

DIGITS = Path(cuvil.__file__).parent / "data" / "digits.onnx"


def test_reproducer_can_be_replayed() -> None:
    path = Path(cuvil_native.import_onnx_file(str(DIGITS), {}).write_reproducer())
    try:
        assert path.stat().st_size < DIGITS.stat().st_size / 4
        status, output, errors = cuvil_native.opt(["--pipeline", "--emit=kernels", "--target=x86-64-v3", str(path)])
        assert (status, errors) == (0, "")
        assert "kernel conv_add_max" in output
    finally:
        path.unlink()
