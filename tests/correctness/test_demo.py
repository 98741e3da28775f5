"""The command line: the demo that ships with Cuvil, inspect and run, all without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import cuvil
from cuvil import cli

DATA = Path(cuvil.__file__).parent / "data"
# As if torch and onnx weren't installed.
WITHOUT_TORCH = "import sys; sys.modules.update(torch=None, onnx=None); from cuvil.cli import main; sys.exit(main())"


def cuvil_command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def test_demo_classifies_without_torch() -> None:
    printed = cuvil_command("demo")
    accuracy = re.search(r"accuracy +([\d.]+) %", printed)
    assert accuracy and float(accuracy[1]) >= 97
    for word in ("latency", "fused kernels", "memory"):
        assert word in printed


def test_inspect_names_inputs_and_outputs() -> None:
    printed = cuvil_command("inspect", str(DATA / "digits.onnx"))
    for word in ("inputs", "image", "outputs", "scores", "kernels", "memory"):
        assert word in printed


def test_run_writes_outputs(tmp_path: Path) -> None:
    with np.load(DATA / "digits_test.npz") as held_out:
        images = (held_out["pixels"][:5, None] / 16).astype(np.float32)
        labels = held_out["labels"][:5]
    np.save(tmp_path / "x.npy", images)
    np.savez(tmp_path / "named.npz", image=images)
    model, output = str(DATA / "digits.onnx"), tmp_path / "y.npz"
    for given in (f"{tmp_path}/x.npy", f"image={tmp_path}/x.npy", f"{tmp_path}/named.npz"):
        assert cli.main(["run", model, "--input", given, "--output", str(output)]) == 0
        with np.load(output) as written:
            (scores,) = (written[name] for name in written.files)
        assert (scores.argmax(axis=1) == labels).mean() >= 0.8


def test_a_wrong_file_is_one_line(tmp_path: Path, capsys) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes((DATA / "digits.onnx").read_bytes()[:1000])
    assert cli.main(["inspect", str(broken)]) == 1
    assert capsys.readouterr().err.startswith("cuvil: ")
    assert cli.main(["inspect", str(tmp_path / "absent.onnx")]) == 1
    assert "absent.onnx" in capsys.readouterr().err
