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


# Values at the edges of what attributes and constants can hold.
EDGES = [0, -1, 1, 2, 3, 100, -100, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
NUMBERS = ["axis", "keepdims", "group", "blocksize", "num_groups", "ceil_mode", "num_outputs", "start", "end", "size"]
LISTS = ["strides", "dilations", "pads", "kernel_shape", "axes", "perm", "split"]


def seeds():
    """Valid models of one node, (op, shapes of the inputs, constants, attributes), for the mutations below."""
    image, kernel, vector = [2, 4, 8, 8], [4, 2, 3, 3], [4]
    rows = [
        ("Conv", [image, kernel, vector], [], {"group": 2, "pads": [1] * 4, "strides": [2, 2]}),
        ("MaxPool", [image], [], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", [image], [], {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "dilations": [1, 1]}),
        ("BatchNormalization", [image, vector, vector, vector, vector], [], {}),
        ("InstanceNormalization", [image, vector, vector], [], {}),
        ("GroupNormalization", [image, [2], [2]], [], {"num_groups": 2}),
        ("LayerNormalization", [image, [8], [8]], [], {"axis": -1}),
        ("LRN", [image], [], {"size": 3}),
        ("DepthToSpace", [image], [], {"blocksize": 2, "mode": "CRD"}),
        ("SpaceToDepth", [image], [], {"blocksize": 2}),
        ("Gemm", [[3, 4], [5, 4], [5]], [], {"transB": 1}),
        ("MatMul", [[2, 3, 4], [4, 5]], [], {}),
        ("Softmax", [[2, 3, 4]], [], {"axis": 1}),
        ("Hardmax", [[2, 3, 4]], [], {"axis": 1}),
        ("ArgMax", [[2, 3, 4]], [], {"axis": 1, "select_last_index": 1}),
        ("Transpose", [[2, 3, 4]], [], {"perm": [2, 0, 1]}),
        ("Flatten", [[2, 3, 4]], [], {"axis": 2}),
        ("Concat", [[2, 3], [2, 4]], [], {"axis": 1}),
        ("Split", [[2, 4]], [[1, 3]], {"axis": 1}),
        ("Reshape", [[2, 3, 4]], [[0, -1]], {}),
        ("Expand", [[3, 1]], [[2, 3, 4]], {}),
        ("Tile", [[2, 3]], [[2, 1]], {}),
        ("Squeeze", [[2, 1, 3]], [[1]], {}),
        ("Unsqueeze", [[2, 3]], [[0, 2]], {}),
        ("Slice", [[5, 6]], [[1], [4], [0], [1]], {}),
        ("Pad", [[5, 6]], [[1, 0, 0, 1]], {"mode": "reflect"}),
        ("Gather", [[5, 6]], [[1, -1]], {"axis": 1}),
        ("GatherND", [[5, 6]], [[1, -1]], {}),
        ("ReduceSum", [[2, 3, 4]], [[1]], {"keepdims": 0}),
        ("CumSum", [[5, 6]], [[1]], {"exclusive": 1}),
        ("Trilu", [[5, 6]], [[1]], {}),
        ("Shape", [[5, 6, 7]], [], {"start": 1, "end": 3}),
        ("ConstantOfShape", [], [[2, 3]], {}),
        ("Range", [], [[0], [9], [2]], {}),
    ]
    for op, shapes, constants, attributes in rows:
        names = [f"x{i}" for i in range(len(shapes))] + [f"c{i}" for i in range(len(constants))]
        yield model_of(
            [helper.make_node(op, names, ["y"], **attributes)],
            inputs=[(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(shapes)],
            initializers=[
                onnx.numpy_helper.from_array(np.array(values, np.int64), f"c{i}") for i, values in enumerate(constants)
            ],
        )


def mutate(choice: random.Random, model) -> None:
    graph, kind = model.graph, choice.randrange(8)
    node = graph.node[0]
    if kind <= 1:
        name = choice.choice(NUMBERS + LISTS)
        value = choice.choice(EDGES)
        if name in LISTS:
            value = [choice.choice(EDGES) for _ in range(choice.randrange(1, 6))]
        for attribute in [a for a in node.attribute if a.name == name]:
            node.attribute.remove(attribute)
        node.attribute.append(helper.make_attribute(name, value))
    elif kind == 2 and node.attribute:
        attribute = choice.choice(node.attribute)
        if attribute.ints and choice.random() < 0.7:
            attribute.ints[choice.randrange(len(attribute.ints))] = choice.choice(EDGES)
        elif choice.random() < 0.5:
            attribute.i = choice.choice(EDGES)
        else:
            attribute.type = choice.randrange(8)
    elif kind == 3 and graph.initializer:
        initializer = choice.choice(graph.initializer)
        array = np.array(onnx.numpy_helper.to_array(initializer))
        array = array if choice.random() < 0.7 else np.zeros(choice.choice([(), (0,), (2,), (1, 2)]), np.int64)
        if array.size:
            array.reshape(-1)[choice.randrange(array.size)] = choice.choice(EDGES)
        initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))
    elif kind == 4 and graph.input:
        sizes = choice.choice(graph.input).type.tensor_type.shape.dim
        if choice.random() < 0.4 and sizes:
            del sizes[choice.randrange(len(sizes))]
        elif choice.random() < 0.5:
            sizes.add().dim_value = choice.choice(EDGES)
        elif sizes:
            sizes[choice.randrange(len(sizes))].dim_param = choice.choice(["n", "2*n", "n//0", "((", "n - 1", ""])
    elif kind == 5 and graph.input:
        choice.choice(graph.input).type.tensor_type.elem_type = choice.randrange(17)
    elif kind == 6 and node.input:
        if choice.random() < 0.5:
            del node.input[choice.randrange(len(node.input))]
        else:
            node.input.append(choice.choice([*node.input, ""]))
    else:
        model.opset_import[0].version = choice.choice([0, 1, 6, 7, 9, 11, 13, 18, 21, 25])


def test_models_that_make_no_sense_never_crash() -> None:
    choice = random.Random(2)
    models = list(seeds())
    for model in models:
        cuvil_native.import_onnx_bytes(model.SerializeToString(), {})
    for _ in range(4000):
        model = onnx.ModelProto()
        model.CopyFrom(choice.choice(models))
        for _ in range(choice.randrange(1, 4)):
            mutate(choice, model)
        with contextlib.suppress(cuvil.CompileError):
            cuvil_native.import_onnx_bytes(model.SerializeToString(), {})


@pytest.mark.parametrize("op", ["BitwiseOr", "Add"])
def test_long_chains_of_constants(op: str) -> None:
    """Each link uses the one before twice: 2**n paths, and n deep."""
    ones = onnx.numpy_helper.from_array(np.ones(2, np.int64), "v0")
    chain = [helper.make_node(op, [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(3000)]
    cast = helper.make_node("Cast", ["v3000"], ["y"], to=TensorProto.FLOAT)
    cuvil_native.import_onnx_bytes(model_of([*chain, cast], initializers=[ones]).SerializeToString(), {})


def test_names_given_twice() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    one = onnx.numpy_helper.from_array(np.ones(3, np.float32), "w")
    assert "two initialisers" in compile_error(model_of([relu], initializers=[one, one]))
    assert "two inputs" in compile_error(model_of([relu], inputs=[("x", TensorProto.FLOAT, [2])] * 2))


def test_attribute_of_another_type() -> None:
    flatten = helper.make_node("Flatten", ["x"], ["y"], axis=1.5)
    assert "attribute 'axis' has another type" in compile_error(model_of([flatten]))


def test_negative_sizes() -> None:
    """Two of them multiply to the right number of elements."""
    shape = onnx.numpy_helper.from_array(np.array([-2, -3], np.int64), "s")
    for op in ("Reshape", "Expand"):
        message = compile_error(model_of([helper.make_node(op, ["x", "s"], ["y"])], initializers=[shape]))
        assert "negative size" in message


def test_missing_file(tmp_path) -> None:
    assert "cannot open" in compile_error(tmp_path / "none.onnx")
    assert "cannot" in compile_error(tmp_path)
    empty = tmp_path / "empty.onnx"
    empty.touch()
    assert "no graph" in compile_error(empty)


def test_unsupported_operators_are_all_listed() -> None:
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["a"], name="first"),
        helper.make_node("StringConcat", ["a"], ["b"], name="second"),
        helper.make_node("Frob", ["b"], ["y"], name="third", domain="com.example"),
    ]
    message = compile_error(model_of(nodes))
    for word in ("ImageDecoder at first", "StringConcat at second", "com.example.Frob at third"):
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


def test_external_data_through_links(tmp_path) -> None:
    folder, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "w.bin").write_bytes(bytes(24))
    (folder / "w.bin").symlink_to(elsewhere / "w.bin")
    path = external(folder, "w.bin")
    assert "outside the model's folder" in compile_error(path)
    # A cache of downloads links model and data to files that lie side by side.
    path.rename(elsewhere / "blob")
    path.symlink_to(elsewhere / "blob")
    np.testing.assert_array_equal(cuvil.compile(path)(np.ones((2, 3), np.float32)), np.ones((2, 3)))


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
