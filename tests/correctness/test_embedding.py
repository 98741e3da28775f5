"""The runtime without Python and without a C++ library: built from its sources, linked into a C program, measured."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cuvil import cuvil_native as native

ROOT = Path(__file__).resolve().parents[2]
CXX, CC = shutil.which("c++"), shutil.which("cc")
LARGEST = 60_000
"""Bytes that the runtime may add to a stripped program."""

pytestmark = pytest.mark.skipif(not CXX or not CC, reason="needs a C and a C++ compiler")

GRAPH = """graph g(%x: f32[n, 4]) symbols(n in 1..) {
  %w = constant() {value=dense<f32[4, 5]: splat 0.5>}
  %b = constant() {value=dense<f32[5]: 1.5, 2.5, -3.0, 4.0, 0.0>}
  %y = matmul(%x, %w)
  %z = pointwise(%y, %b) {fn=add}
  return "z" = %z
}"""


def run(*command: object) -> str:
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedding")
    flags = ["-Os", "-fno-exceptions", "-fno-rtti", "-ffunction-sections", "-fdata-sections", "-Wall", "-Werror"]
    objects = []
    for source in sorted((ROOT / "cpp" / "runtime").glob("*.cpp")):
        objects.append(folder / (source.stem + ".o"))
        run(CXX, "-std=c++20", *flags, "-I", ROOT / "cpp", "-I", ROOT / "cpp/include", "-c", source, "-o", objects[-1])
    run("ar", "rcs", folder / "libcuvil_runtime.a", *objects)
    return folder


def link(folder: Path, source: Path, name: str, *libraries: object) -> Path:
    """Links with the C compiler, which knows of no C++ library, and strips."""
    include = ["-I", ROOT / "cpp/include"]
    run(
        CC,
        "-Os",
        "-Wall",
        "-Wextra",
        "-Werror",
        *include,
        source,
        *libraries,
        "-Wl,--gc-sections,-s",
        "-o",
        folder / name,
    )
    return folder / name


def test_a_c_program_runs_a_model(folder):
    compiled = native.compile(native.parse_graph(GRAPH))
    compiled.save(str(folder / "model.so"))
    program = link(folder, ROOT / "examples/c/run_model.c", "run_model", folder / "libcuvil_runtime.a", "-lpthread")
    expected = compiled.run(np.zeros((1, 4), np.float32))
    name, *values = run(program, folder / "model.so").split()
    assert name == "z:"
    np.testing.assert_array_equal(np.float32(values), expected[0])


def test_it_says_what_is_wrong(folder, tmp_path):
    program = link(folder, ROOT / "examples/c/run_model.c", "run_model", folder / "libcuvil_runtime.a", "-lpthread")
    (tmp_path / "m.so").write_bytes(b"x" * 2000)
    result = subprocess.run([program, tmp_path / "m.so"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "not a compiled model" in result.stderr


def test_size(folder, tmp_path):
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    program = link(folder, ROOT / "examples/c/run_model.c", "run_model", folder / "libcuvil_runtime.a", "-lpthread")
    added = os.path.getsize(program) - os.path.getsize(link(folder, empty, "empty"))
    print(f"the runtime adds {added:,} bytes to a stripped program")
    assert added <= LARGEST


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
def test_find_package(folder, tmp_path):
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    no_compiler = ["-DCUVIL_BUILD_COMPILER=OFF", "-DCUVIL_BUILD_PYTHON=OFF"]
    run("cmake", "-S", ROOT, "-B", build, *no_compiler, f"-DCMAKE_INSTALL_PREFIX={prefix}")
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--component", "runtime")
    own = tmp_path / "own"
    run("cmake", "-S", ROOT / "examples/c", "-B", own, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", own)
    native.compile(native.parse_graph(GRAPH)).save(str(tmp_path / "model.so"))
    assert run(own / "run_model", tmp_path / "model.so").startswith("z: 1.5 2.5 -3 4 0")
