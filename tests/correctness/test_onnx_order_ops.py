"""ONNX operators that read or write by position, and TopK, in the forms of each opset, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuvil
from cuvil import cuvil_native as native

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

helper, numpy_helper = onnx.helper, onnx.numpy_helper
INT64 = np.dtype(np.int64)


def model_of(op: str, inputs: dict[str, Any], outputs, constants=None, opset: int = 18, order=None, **attributes):
    """Inputs by name: an array, or (dtype, sizes)."""
    infos = []
    for name, given in inputs.items():
        dtype, shape = (given.dtype, list(given.shape)) if isinstance(given, np.ndarray) else given
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape))
    graph = helper.make_graph(
        [helper.make_node(op, order or [*inputs, *(constants or {})], list(outputs), **attributes)],
        "g",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(model, *calls, function=None) -> None:
    """Each call's arrays, for one to three threads."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    function = function or cuvil.compile(model)
    before = native.num_threads()
    try:
        for arrays in calls:
            names = [i.name for i in model.graph.input]
            expected = session.run(None, dict(zip(names, arrays)))
            for threads in (1, 2, 3):
                native.set_num_threads(threads, True)
                results = function(*arrays)
                results = results if isinstance(results, tuple) else (results,)
                for mine, wanted in zip(map(np.asarray, results), expected):
                    assert mine.dtype == wanted.dtype
                    np.testing.assert_array_equal(mine, wanted)
    finally:
        native.set_num_threads(before)


def whole(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def positions(*shape: int, size: int, seed: int = 0, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng(seed).integers(-size, size, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(reduction: str, dtype: Any) -> None:
    x, index, updates = whole(5, 9, 4, dtype=dtype), positions(5, 7, 3, size=9), whole(5, 7, 3, seed=1, dtype=dtype)
    if reduction == "none":  # the order of duplicates is not said
        index = np.argsort(np.random.default_rng(0).random((5, 9, 3)), 1)[:, :7] - 9
    arrays = (x, index, updates)
    inputs = dict(zip(("x", "i", "u"), arrays))
    check(model_of("ScatterElements", inputs, ["y"], axis=1, reduction=reduction), arrays)
    if reduction == "none":
        for opset, op in ((9, "Scatter"), (11, "ScatterElements"), (13, "ScatterElements")):
            check(model_of(op, inputs, ["y"], opset=opset, axis=-2), arrays)
        check(model_of("ScatterElements", {**inputs, "i": index.astype(np.int32)}, ["y"], axis=1),
              (x, index.astype(np.int32), updates))  # fmt: skip


def test_scatter_elements_of_nothing() -> None:
    arrays = whole(3, 4), np.zeros((0, 4), np.int64), np.zeros((0, 4), np.float32)
    check(model_of("ScatterElements", dict(zip("xiu", arrays)), ["y"]), arrays)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(reduction: str) -> None:
    x = whole(4, 5, 6)
    for depth in (1, 2, 3):
        sizes = x.shape[:depth]
        flat = np.random.default_rng(depth).permutation(int(np.prod(sizes)))[:4]
        index = np.stack(np.unravel_index(flat, sizes), -1).reshape(2, 2, depth)
        index -= np.where(np.random.default_rng(1).random(index.shape) < 0.5, sizes, 0)
        if reduction != "none":
            index[1] = index[0]
        updates = whole(2, 2, *x.shape[depth:], seed=2)
        arrays = (x, index, updates)
        check(model_of("ScatterND", dict(zip("xiu", arrays)), ["y"], reduction=reduction), arrays)
        if reduction == "none":
            for opset in (11, 13):
                check(model_of("ScatterND", dict(zip("xiu", arrays)), ["y"], opset=opset), arrays)


def test_gather_nd() -> None:
    x = whole(3, 4, 5, 6)
    for depth, batch in ((1, 0), (2, 0), (4, 0), (1, 1), (2, 1), (2, 2)):
        sizes = x.shape[batch : batch + depth]
        shape = (*x.shape[:batch], 7, depth)
        index = np.stack([positions(*shape[:-1], size=n, seed=i) for i, n in enumerate(sizes)], -1)
        check(model_of("GatherND", {"x": x, "i": index}, ["y"], batch_dims=batch), (x, index))


def test_positions_are_checked_axis_by_axis() -> None:
    x = whole(3, 4)
    index = np.array([[0, 5]])
    gather = cuvil.compile(model_of("GatherND", {"x": x, "i": index}, ["y"]))
    scatter = cuvil.compile(model_of("ScatterND", {"x": x, "i": index, "u": whole(1)}, ["y"]))
    with pytest.raises(cuvil.InputError, match="index 5 lies outside an axis of size 4"):
        gather(x, index)
    with pytest.raises(cuvil.InputError, match="index 5 lies outside an axis of size 4"):
        scatter(x, index, whole(1))
    with pytest.raises(cuvil.InputError, match="index -4 lies outside an axis of size 3"):
        scatter(x, np.array([[-4, 1]]), whole(1))


def test_scatter_of_dynamic_sizes() -> None:
    model = model_of(
        "ScatterND",
        {"x": (np.float32, ["n", 3]), "i": (INT64, ["m", 1]), "u": (np.float32, ["m", 3])},
        ["y"],
        reduction="add",
    )
    calls = [(whole(n, 3), positions(m, 1, size=n), whole(m, 3, seed=1)) for n, m in ((4, 9), (100, 7), (1, 1), (5, 0))]
    check(model, *calls)


def test_tensor_scatter() -> None:
    """Against plain steps: ONNX Runtime does not have it."""
    cache, update, where = whole(3, 2, 8, 4), whole(3, 2, 3, 4, seed=1), np.array([0, 5, 6])
    inputs = {"c": cache, "u": update, "w": where}
    function = cuvil.compile(model_of("TensorScatter", inputs, ["y"], opset=24, mode="circular"))
    wanted = cache.copy()
    for row, first in enumerate(where):
        for step in range(3):
            wanted[row, :, (first + step) % 8] = update[row, :, step]
    np.testing.assert_array_equal(function(cache, update, where), wanted)
    linear = cuvil.compile(model_of("TensorScatter", inputs, ["y"], opset=24))
    np.testing.assert_array_equal(linear(cache, update, np.minimum(where, 5)).shape, cache.shape)
    with pytest.raises(cuvil.InputError, match="index 8 lies outside an axis of size 8"):
        linear(cache, update, where)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_top_k(dtype: Any) -> None:
    x = whole(4, 300, 3, dtype=dtype)  # many equal elements: the first of them come first
    for k in (1, 20, 100, 300):
        for largest in (0, 1):
            model = model_of("TopK", {"x": x}, ["v", "i"], {"k": np.array([k])}, axis=1, largest=largest)
            check(model, (x,))
    check(model_of("TopK", {"x": x}, ["v", "i"], {"k": np.array([2])}), (x,))
    if dtype == np.float32:
        check(model_of("TopK", {"x": x}, ["v", "i"], opset=9, k=3, axis=0), (x,))
        check(model_of("TopK", {"x": x}, ["v", "i"], {"k": np.array([3])}, opset=10), (x,))


def test_top_k_of_dynamic_sizes() -> None:
    model = model_of("TopK", {"x": (np.float32, ["n", "m"])}, ["v", "i"], {"k": np.array([5])})
    function = cuvil.compile(model)
    check(model, (whole(3, 5),), (whole(1, 400),), (whole(40, 33),), function=function)
    with pytest.raises(cuvil.InputError, match="index 4 lies outside an axis of size 3"):
        function(whole(2, 3))


def test_a_number_known_at_run_time() -> None:
    function = cuvil.compile(model_of("TopK", {"x": whole(5), "k": (INT64, [1])}, ["v", "i"]))
    x = whole(5)
    for k in (0, 1, 3, 5):
        values, positions = function(x, np.array([k]))
        np.testing.assert_array_equal(values, np.sort(x)[::-1][:k])
        np.testing.assert_array_equal(x[positions], values)
    model = model_of("TopK", {"x": whole(5)}, ["v", "i"], {"k": np.array([6])})
    with pytest.raises(cuvil.CompileError, match="count 6 is more than the axis has"):
        cuvil.compile(model)


def test_sizes_that_depend_on_constants() -> None:
    x, condition = whole(4, 5), np.array([True, False, True])
    check(model_of("Compress", {"x": x}, ["y"], {"c": condition}, axis=1), (x,))
    check(model_of("Compress", {"x": x}, ["y"], {"c": condition}), (x,))
    table = whole(3, 4)
    function = cuvil.compile(model_of("NonZero", {}, ["y"], {"x": table}))
    np.testing.assert_array_equal(function(), np.nonzero(table))
