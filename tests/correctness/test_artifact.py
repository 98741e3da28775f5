"""Compiled models as files: the same bits after loading, and a refusal with a reason for every damaged file."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import numpy as np
import pytest

import cuvil
from cuvil import cli
from cuvil import cuvil_native as native

GRAPH = """graph g(%x: f32[b, 3, 12, 12], %s: i64[b]) symbols(b in 1..64) {
  %w = constant() {value=dense<f32[32, 3, 3, 3]: splat 0.125>}
  %c = conv(%x, %w) {strides=[1, 1], dilations=[1, 1], groups=1}
  %t = constant() {value=dense<f32[5]: 1.0, -2.0, 3.0, 0.5, 7.0>}
  %e = gather(%t, %s) {axis=0}
  %m = reduce(%c) {fn=max, axes=[1, 2, 3], keepdims=false}
  %y = pointwise(%m, %e) {fn=add}
  return "y" = %y, "c" = %c
}"""

HEAD = 512  # where the file's own structure lies, behind the ELF headers


def inputs(batch):
    rng = np.random.default_rng(batch)
    return rng.standard_normal((batch, 3, 12, 12)).astype(np.float32), rng.integers(0, 5, batch)


@pytest.fixture(scope="module")
def compiled():
    return native.compile(native.parse_graph(GRAPH))


@pytest.fixture
def path(compiled, tmp_path):
    file = tmp_path / "model.so"
    compiled.save(str(file))
    return file


def test_the_same_bits_after_loading(compiled, path):
    loaded = cuvil.load(path)
    assert [str(info) for info in loaded.inputs] == ["x: f32[b, 3, 12, 12]", "s: i64[b]"]
    assert [info.name for info in loaded.outputs] == ["y", "c"]
    for batch in (1, 3, 7):
        for got, expected in zip(loaded(*inputs(batch)), compiled.run(*inputs(batch))):
            np.testing.assert_array_equal(got, expected)
    x, s = inputs(2)
    np.testing.assert_array_equal(loaded(s=s, x=x)[0], compiled.run(x, s)[0])


def test_what_it_says_of_itself(compiled, path):
    loaded = cuvil.load(path)
    assert loaded.target == compiled.target
    assert loaded.memory()["weight_bytes"] == compiled.weight_bytes
    assert "conv" in loaded.explain()
    assert loaded.profile(*inputs(2), runs=2).kernels
    with pytest.raises(cuvil.CompileError, match="graph"):
        loaded.graph()


def test_faults_of_a_call(path):
    loaded = cuvil.load(path)
    x, s = inputs(2)
    with pytest.raises(cuvil.InputError, match=r"index 5 .*size 5"):
        loaded(x, s * 0 + 5)
    with pytest.raises(cuvil.ShapeError, match="'x'"):
        loaded(x[:, :, :5], s)
    with pytest.raises(cuvil.InputError, match="missing"):
        loaded(x=x)


def test_equal_models_give_equal_bytes(path, tmp_path):
    again = tmp_path / "again.so"
    native.compile(native.parse_graph(GRAPH)).save(str(again))
    assert again.read_bytes() == path.read_bytes()


def test_it_is_an_ordinary_shared_object(path):
    library = ctypes.CDLL(str(path))
    assert ctypes.c_uint64.in_dll(library, "cuvil_artifact").value.to_bytes(8, "little") == b"CUVMODEL"


def test_a_new_version_takes_the_place_of_one_that_runs(compiled, path):
    loaded = cuvil.load(path)
    expected = loaded(*inputs(3))[0]
    changed = GRAPH.replace("splat 0.125", "splat 0.25")
    native.compile(native.parse_graph(changed)).save(str(path))
    np.testing.assert_array_equal(loaded(*inputs(3))[0], expected)
    assert not np.array_equal(cuvil.load(path)(*inputs(3))[0], expected)


def test_from_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).eval()
    function = cuvil.compile(model, input_spec=[("x", ("n", 8), "float32")])
    function.save(tmp_path / "net.so")
    x = torch.randn(5, 8)
    assert torch.equal(cuvil.load(tmp_path / "net.so")(x), function(x))


def change(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(bytes(content))


def field(path: Path, number: int) -> int:
    """One of the structure's 64-bit fields: 5 plan, 7 weights, 9 metadata."""
    value: int = struct.unpack_from("<Q", path.read_bytes(), HEAD + 8 * number)[0]
    return value


def refused(path, reason):
    with pytest.raises(cuvil.LoadError, match=reason):
        cuvil.load(path)


def test_a_truncated_file_is_refused(path):
    content = path.read_bytes()
    for size in (0, 3, 100, HEAD + 20, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        refused(path, "too short|damaged")
    path.write_bytes(content + b"\0")
    refused(path, "damaged")


def test_an_altered_file_is_refused(path):
    content = path.read_bytes()
    plan, weights, metadata = (field(path, number) for number in (5, 7, 9))
    for offset in (80, HEAD + 44, metadata + 3, plan + 5, weights + 17, len(content) - 1):
        path.write_bytes(content)
        change(path, offset, bytes([content[offset] ^ 0x10]))
        refused(path, "damaged|mapped|version")


def test_weights_may_go_unchecked(path):
    change(path, field(path, 7) + 17, b"\x55")
    cuvil.load(path, check_weights=False)


def test_other_files_machines_and_versions_are_refused(path, tmp_path):
    other = tmp_path / "other.so"
    other.write_bytes(b"not a model" * 100)
    refused(other, "not a compiled model")
    refused(tmp_path / "absent.so", "cannot open")
    refused(tmp_path, "not a file|cannot open")
    content = path.read_bytes()
    change(path, 18, struct.pack("<H", 8))
    refused(path, "another machine")
    path.write_bytes(content)
    change(path, HEAD + 8, struct.pack("<I", 77))
    refused(path, "version 77")


def test_a_file_that_anybody_may_write_is_refused(path):
    os.chmod(path, 0o757)
    refused(path, "written by anybody")


def test_saving_where_nothing_can_be_written(compiled, tmp_path):
    with pytest.raises(cuvil.CompileError, match="cannot write"):
        compiled.save(str(tmp_path / "absent" / "model.so"))


def test_command_line(tmp_path, capsys):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.float32([[1, -1, 2]]))
    output = str(tmp_path / "m.so")
    assert cli.main(["compile", str(tmp_path / "m.onnx"), "-o", output, "--shape", "x=n,3"]) == 0
    assert cli.main(["inspect", output]) == 0
    assert cli.main(["run", output, "--input", str(tmp_path / "x.npy")]) == 0
    assert "[[1. 0. 2.]]" in capsys.readouterr().out
