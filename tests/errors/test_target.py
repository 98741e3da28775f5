"""Targets that do not exist are refused, and the message says which do."""

from __future__ import annotations

import numpy as np
import pytest

import cuvil

torch = pytest.importorskip("torch")


def test_unknown_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL_TARGET", "pentium")
    example = torch.from_numpy(np.ones(4, np.float32))
    with pytest.raises(cuvil.CompileError, match=r'unknown target "pentium".*generic'):
        cuvil.compile(torch.nn.ReLU(), input_spec=[("x", example)])
