"""Quantised ONNX operators against ONNX Runtime, bit by bit, and against their definitions where integers wrap."""

from __future__ import annotations

import numpy as np
import pytest

import cuvil

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

TYPES = {np.dtype(t): helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in ("u1", "i1", "i4", "f4")}


def model(nodes, inputs, outputs, constants=(), opset=20):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TYPES[np.dtype(d)], shape) for n, d, shape in inputs],
        [helper.make_tensor_value_info(n, TYPES[np.dtype(d)], None) for n, d in outputs],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def both(m, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = ort.InferenceSession(m.SerializeToString(), options).run(None, feeds)
    actual = cuvil.compile(m)(**feeds)
    return actual if isinstance(actual, (tuple, list)) else (actual,), expected


def same(m, feeds):
    for got, want in zip(*both(m, feeds)):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantize_rounds_half_to_even_and_saturates(dtype):
    x = np.float32([0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, 127.4, 127.6, -128.5, 254.5, 255.5, np.inf, -np.inf])
    m = model(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        [("x", "f4", [len(x)])],
        [("y", dtype)],
        {"s": np.float32(1), "z": dtype(3)},
    )
    same(m, {"x": x})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantize_and_dequantize_per_axis(axis):
    x = np.random.default_rng(0).standard_normal((4, 4, 4)).astype(np.float32) * 50
    scale, zero = np.float32([0.5, 0.1, 2, 1]), np.uint8([0, 128, 7, 255])
    m = model(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
        ],
        [("x", "f4", [4, 4, 4])],
        [("q", "u1"), ("y", "f4")],
        {"s": scale, "z": zero},
    )
    same(m, {"x": x})


@pytest.mark.parametrize("values", [[-3, 0.2, 7], [1, 2, 3], [-4, -1], [0, 0, 0]])
def test_dynamic_quantize(values):
    x = np.float32(values)
    m = model(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
        [("x", "f4", [len(x)])],
        [("y", "u1"), ("s", "f4"), ("z", "u1")],
    )
    same(m, {"x": x})


@pytest.mark.parametrize("left", [np.uint8, np.int8])
def test_matmul_integer(left):
    rng = np.random.default_rng(1)
    info = np.iinfo(left)
    a = rng.integers(info.min, info.max, (2, 5, 300), dtype=left, endpoint=True)
    b = rng.integers(-128, 127, (300, 7), dtype=np.int8, endpoint=True)
    m = model(
        [helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])],
        [("a", left, ["n", 5, 300]), ("b", "i1", [300, 7])],
        [("y", "i4")],
        {"za": left(11), "zb": np.int8([1, -2, 3, 0, 5, 127, -128])},
    )
    expected = np.matmul(a.astype(np.int32) - 11, b.astype(np.int32) - np.int32([1, -2, 3, 0, 5, 127, -128]))
    np.testing.assert_array_equal(cuvil.compile(m)(a=a, b=b), expected)


def test_sums_do_not_saturate_in_between():
    """The largest products there are: pairs of them overflow 16 bits."""
    a, b = np.full((1, 512), 255, np.uint8), np.full((512, 3), -128, np.int8)
    b[256:] = 127
    m = model(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        [("a", "u1", [1, 512]), ("b", "i1", [512, 3])],
        [("y", "i4")],
    )
    np.testing.assert_array_equal(cuvil.compile(m)(a=a, b=b), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("weights", ["constant", "input"])
@pytest.mark.parametrize("group", [1, 2])
def test_qlinear_conv(weights, group):
    rng = np.random.default_rng(2)
    x = rng.integers(0, 255, (2, 4, 9, 8), dtype=np.uint8, endpoint=True)
    w = rng.integers(-128, 127, (6, 4 // group, 3, 3), dtype=np.int8, endpoint=True)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"]
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "ws": np.float32([0.01, 0.02, 0.005, 0.01, 0.03, 0.01]),
        "wz": np.zeros(6, np.int8),
        "ys": np.float32(0.1),
        "yz": np.uint8(100),
        "bias": np.int32([5, -100, 3000, 0, 7, -9]),
    }
    inputs = [("x", "u1", ["n", 4, 9, 8])]
    feeds = {"x": x}
    if weights == "constant":
        constants["w"] = w
    else:
        inputs.append(("w", "i1", w.shape))
        feeds["w"] = w
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1, 0, 2, 1], strides=[2, 1], group=group)
    same(model([node], inputs, [("y", "u1")], constants), feeds)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride"),
    [(16, 40, 3, 1), (20, 17, 1, 1), (64, 32, 3, 2), (8, 64, 5, 1), (12, 9, 2, 1)],
)
def test_wide_qlinear_conv(dtype, channels, outputs, kernel, stride):
    """Enough channels for instructions that add four products at once, and for channel blocks."""
    rng = np.random.default_rng(5)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, (2, channels, 11, 13), dtype=dtype, endpoint=True)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"]
    constants = {
        "xs": np.float32(0.02),
        "xz": dtype(info.min + 120),
        "w": rng.integers(-128, 127, (outputs, channels, kernel, kernel), dtype=np.int8, endpoint=True),
        "ws": rng.uniform(0.001, 0.02, outputs).astype(np.float32),
        "wz": np.zeros(outputs, np.int8),
        "ys": np.float32(0.3),
        "yz": dtype(info.min + 100),
        "bias": rng.integers(-9000, 9000, outputs, dtype=np.int32),
    }
    again = (
        {"w2": rng.integers(-128, 127, (24, outputs, 1, 1), dtype=np.int8, endpoint=True)} if outputs % 4 == 0 else {}
    )
    nodes = [
        helper.make_node("QLinearConv", names, ["y"], pads=[kernel // 2] * 4, strides=[stride, stride]),
        *[helper.make_node("QLinearConv", ["y", "ys", "yz", w, "xs", "xz0", "ys", "yz"], ["z"]) for w in again],
    ]
    if again:
        constants.update(again, xz0=np.int8(0))
    m = model(nodes, [("x", dtype, ["n", channels, 11, 13])], [("z" if again else "y", dtype)], constants)
    same(m, {"x": x})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("rows", "k", "columns"), [(1, 64, 33), (7, 100, 65), (30, 4, 16), (3, 1024, 200), (5, 30, 20)]
)
def test_wide_matmul_integer(dtype, rows, k, columns):
    rng = np.random.default_rng(6)
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, (rows, k), dtype=dtype, endpoint=True)
    a[0] = info.max
    b = rng.integers(-128, 127, (k, columns), dtype=np.int8, endpoint=True)
    b[:, 0], b[:, 1] = -128, 127
    zero = dtype(info.min + 77)
    m = model(
        [helper.make_node("MatMulInteger", ["a", "b", "z"], ["y"])],
        [("a", dtype, ["n", k])],
        [("y", "i4")],
        {"b": b, "z": zero},
    )
    expected = (a.astype(np.int32) - np.int32(zero)) @ b.astype(np.int32)
    np.testing.assert_array_equal(cuvil.compile(m)(a=a), expected)


def test_qlinear_matmul():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 255, (3, 40), dtype=np.uint8, endpoint=True)
    constants = {
        "as": np.float32(0.03),
        "az": np.uint8(9),
        "b": rng.integers(0, 255, (40, 5), dtype=np.uint8, endpoint=True),
        "bs": np.float32(0.02),
        "bz": np.uint8(131),
        "ys": np.float32(0.9),
        "yz": np.uint8(7),
    }
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
    same(model([node], [("a", "u1", ["n", 40])], [("y", "u1")], constants), {"a": a})


def test_a_quantised_net_with_qdq_nodes():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((1, 3, 8, 8)).astype(np.float32)
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(128),
        "w": rng.integers(-128, 127, (4, 3, 3, 3), dtype=np.int8, endpoint=True),
        "ws": np.float32([0.01, 0.02, 0.03, 0.04]),
        "wz": np.zeros(4, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("Conv", ["d", "wd"], ["y"]),
    ]
    (got,), (want,) = both(model(nodes, [("x", "f4", x.shape)], [("y", "f4")], constants), {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("precision", ["default", "strict"])
def test_qdq_layers_on_integers(per_channel, precision):
    """Convolution and product between QuantizeLinear and DequantizeLinear, as exporters write them."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 16, 12, 10)).astype(np.float32)
    scale = rng.uniform(0.01, 0.03, 48).astype(np.float32) if per_channel else np.float32(0.02)
    constants = {
        "s": np.float32(0.03),
        "z": np.uint8(128),
        "w": rng.integers(-127, 127, (48, 16, 3, 3), dtype=np.int8, endpoint=True),
        "ws": scale,
        "wz": np.zeros(48 if per_channel else (), np.int8),
        "bias": rng.standard_normal(48).astype(np.float32),
        "ys": np.float32(0.2),
        "v": rng.integers(-127, 127, (48, 40), dtype=np.int8, endpoint=True),
        "vs": np.float32(0.01),
        "vz": np.int8(0),
        "axes": np.int64([2, 3]),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("Conv", ["d", "wd", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "ys", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "ys", "z"], ["cd"]),
        helper.make_node("ReduceMax", ["cd", "axes"], ["m"], keepdims=0),
        helper.make_node("QuantizeLinear", ["m", "ys", "z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "ys", "z"], ["md"]),
        helper.make_node("DequantizeLinear", ["v", "vs", "vz"], ["vd"]),
        helper.make_node("MatMul", ["md", "vd"], ["y"]),
    ]
    m = model(nodes, [("x", "f4", ["n", 16, 12, 10])], [("c", "f4"), ("y", "f4")], constants)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = ort.InferenceSession(m.SerializeToString(), options).run(None, {"x": x})
    function = cuvil.compile(m, precision=precision)
    for got, want in zip(function(x), expected):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_errors_name_the_node():
    m = model(
        [helper.make_node("DequantizeLinear", ["x", "s"], ["y"], name="dq", axis=5)],
        [("x", "u1", [2, 3])],
        [("y", "f4")],
        {"s": np.float32([1, 2, 3])},
    )
    with pytest.raises(cuvil.CompileError, match="dq"):
        cuvil.compile(m)
