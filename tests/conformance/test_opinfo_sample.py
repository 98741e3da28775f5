"""One sample of each operator in ``opinfo_sample.txt``; ``opinfo.py`` runs PyTorch's whole database."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # the database needs it

NAMES = (Path(__file__).parent / "opinfo_sample.txt").read_text(encoding="utf-8").split()


def load_script():
    spec = importlib.util.spec_from_file_location("opinfo", Path(__file__).with_name("opinfo.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


opinfo = load_script()


@pytest.fixture(scope="module")
def database():
    return {opinfo.full_name(op): op for op in opinfo.operators()}


@pytest.mark.parametrize("name", NAMES)
def test_operator(name: str, database) -> None:
    ((state, detail),) = opinfo.run_operator(database[name], torch.float32, limit=1)
    assert state == "pass", detail
