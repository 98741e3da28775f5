"""ONNX files that are malformed, damaged or beyond Cuvil: clear errors, never a crash."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import pytest

import cuvil
from cuvil import cuvil_native

onnx = pytest.importorskip("onnx")
helper, TensorProto = onnx.helper, onnx.TensorProto
DIGITS = (Path(cuvil.__file__).parent / "data" / "digits.onnx").read_bytes()


def model_of(nodes, inputs=(("x", TensorProto.FLOAT, [2, 3]),), outputs=("y",), initializers=(), opset: int = 20):
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def compile_error(model) -> str:
    with pytest.raises(cuvil.CompileError) as info:
        cuvil.compile(model)
    return str(info.value)


def test_truncated_at_every_length() -> None:
    step = max(1, len(DIGITS) // 400)
    lengths = [*range(0, 400), *range(400, len(DIGITS), step)]
    for length in lengths:
        with pytest.raises(cuvil.CompileError):
            cuvil_native.import_onnx_bytes(DIGITS[:length], {})


def test_damaged_bytes_never_crash() -> None:
    random_bytes = random.Random(0)
    for _ in range(600):
        damaged = bytearray(DIGITS)
        for _ in range(random_bytes.randrange(1, 4)):
            # Most of the file is weights; the structure is at the ends.
            place = random_bytes.choice([random_bytes.randrange(2000), random_bytes.randrange(len(damaged))])
            damaged[place] = random_bytes.randrange(256)
        with contextlib.suppress(cuvil.CompileError):
            cuvil_native.import_onnx_bytes(bytes(damaged), {})


def test_random_bytes() -> None:
    random_bytes = random.Random(1)
    for size in (0, 1, 2, 10, 100, 1000):
        for _ in range(50):
            with pytest.raises(cuvil.CompileError):
                cuvil_native.import_onnx_bytes(random_bytes.randbytes(size), {})


def test_missing_file(tmp_path) -> None:
    assert "cannot open" in compile_error(tmp_path / "none.onnx")
    assert "cannot" in compile_error(tmp_path)
    empty = tmp_path / "empty.onnx"
    empty.touch()
    assert "no graph" in compile_error(empty)


def test_unsupported_operators_are_all_listed() -> None:
    nodes = [
        helper.make_node("Unique", ["x"], ["a"], name="first"),
        helper.make_node("NonZero", ["a"], ["b"], name="second"),
        helper.make_node("Frob", ["b"], ["y"], name="third", domain="com.example"),
    ]
    message = compile_error(model_of(nodes))
    for word in ("Unique at first", "NonZero at second", "com.example.Frob at third"):
        assert word in message


def test_undefined_and_doubly_defined_names() -> None:
    assert "'z' is used by" in compile_error(model_of([helper.make_node("Relu", ["z"], ["y"])]))
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["y"])]
    assert "defined twice" in compile_error(model_of(twice))
    assert "the outputs" in compile_error(model_of([helper.make_node("Relu", ["x"], ["q"])]))


def test_node_faults_name_the_node() -> None:
    bad_axis = helper.make_node("Concat", ["x", "x"], ["y"], name="joined", axis=5)
    assert "joined (Concat)" in compile_error(model_of([bad_axis]))
    mismatch = helper.make_node("MatMul", ["x", "x"], ["y"], name="product")
    message = compile_error(model_of([mismatch]))
    assert "product (MatMul)" in message
    assert "inner sizes differ" in message


def test_unsupported_element_type() -> None:
    message = compile_error(
        model_of([helper.make_node("Identity", ["x"], ["y"])], inputs=[("x", TensorProto.STRING, [2])])
    )
    assert "input 'x'" in message


def test_input_without_shape() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], inputs=[("x", TensorProto.FLOAT, None)])
    assert "has no shape" in compile_error(model)


def test_wrong_input_spec() -> None:
    with pytest.raises(cuvil.CompileError, match="no input 'z'"):
        cuvil.compile(DIGITS, input_spec=[("z", (1,), "float32")])
    with pytest.raises(cuvil.CompileError, match="rank"):
        cuvil.compile(DIGITS, input_spec=[("image", (1, 8, 8), "float32")])


def external(tmp_path, location: str, length: int = 24, offset: int = 0):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data(tmp_path) -> None:
    weights = np.arange(6, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(b"pad." + weights.tobytes())
    fast = cuvil.compile(external(tmp_path, "w.bin", offset=4))
    np.testing.assert_array_equal(fast(np.ones((2, 3), np.float32)), weights.reshape(2, 3) + 1)


@pytest.mark.parametrize(("location", "length", "offset", "words"), [
    ("missing.bin", 24, 0, "cannot open"),
    ("../w.bin", 24, 0, "outside the model's folder"),
    ("/etc/passwd", 24, 0, "outside the model's folder"),
    ("w.bin", 24, 4, "too short"),
    ("w.bin", 20, 0, "bytes of data where its shape needs 24"),
    ("w.bin", 24, -8, "too short"),
    ("w.bin", 24, 2**62, "too short"),
])  # fmt: skip
def test_external_data_faults(tmp_path, location: str, length: int, offset: int, words: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    assert words in compile_error(external(tmp_path, location, length, offset))


def test_external_data_needs_a_path(tmp_path) -> None:
    assert "pass its path" in compile_error(external(tmp_path, "w.bin").read_bytes())


def test_huge_shapes_are_refused_without_allocating() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40, 2**40], raw_data=b"1234")
    assert "shape is not valid" in compile_error(
        model_of([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor])
    )
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**30], raw_data=b"1234")
    assert "4 bytes of data" in compile_error(
        model_of([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor])
    )
