"""The backend interface of ONNX: what its suite and others call."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import cuvil  # noqa: E402
from cuvil import onnx_backend  # noqa: E402


def model():
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Relu", ["s"], ["r"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "xy"],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "sr"],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_a_model_by_position_and_by_name():
    x, y = np.float32([[1, -2, 3]]), np.float32([[-4, 1, 1]])
    rep = onnx_backend.prepare(model())
    for inputs in ([x, y], {"y": y, "x": x}):
        s, r = rep.run(inputs)
        np.testing.assert_array_equal(s, x + y)
        np.testing.assert_array_equal(r, np.maximum(x + y, 0))
    assert len(onnx_backend.run_model(model(), [x, y])) == 2


def test_a_node():
    node = helper.make_node("Concat", ["a", "b"], ["c"], axis=1)
    a, b = np.ones((2, 1), np.float32), np.zeros((2, 2), np.float32)
    (c,) = onnx_backend.run_node(node, [a, b])
    np.testing.assert_array_equal(c, np.concatenate([a, b], 1))


def test_devices_and_errors():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:0")
    with pytest.raises(ValueError, match="CUDA"):
        onnx_backend.prepare(model(), "CUDA")
    broken = model()
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(cuvil.CompileError, match="NoSuchOperator"):
        onnx_backend.prepare(broken)
