"""ONNX operators in the forms of each opset, and shapes computed by the model, against onnx's reference evaluator.

The conformance suite runs onnx's own node tests, all of them in the newest opset and with fixed sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cuvil

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

helper, numpy_helper = onnx.helper, onnx.numpy_helper


def data(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def make_model(nodes, inputs: dict[str, tuple[np.dtype, list]], outputs, constants=None, opset: int = 20):
    """Inputs by name with dtype and sizes (a text is a name)."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(model, *arrays: np.ndarray, expected=None, function=None, tolerance: float = 1e-5):
    """Compares with the reference (or with what is expected), and gives back the compiled function."""
    function = function or cuvil.compile(model)
    if expected is None:
        names = [i.name for i in model.graph.input]
        expected = ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))
    results = function(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(expected)
    for mine, wanted in zip(results, expected):
        mine, wanted = np.asarray(mine), np.asarray(wanted)  # noqa: PLW2901
        assert mine.dtype == wanted.dtype
        assert mine.shape == wanted.shape
        np.testing.assert_allclose(mine, wanted, rtol=tolerance, atol=tolerance)
    return function


def check_node(
    op: str,
    arrays: dict[str, np.ndarray],
    constants=None,
    opset: int = 20,
    expected=None,
    outputs=("y",),
    order=None,
    **attributes,
):
    names = order or [*arrays, *(constants or {})]
    model = make_model(
        [helper.make_node(op, names, list(outputs), **attributes)],
        {name: (array.dtype, list(array.shape)) for name, array in arrays.items()},
        outputs,
        constants,
        opset,
    )
    check(model, *arrays.values(), expected=expected)


X = data(2, 3, 4)
IMAGE = data(2, 4, 9, 11)


def test_axes_as_attribute_and_as_input() -> None:
    column = data(2, 1, 4, 1)
    check_node("Squeeze", {"x": column}, opset=11, axes=[1, -1], expected=[column.reshape(2, 4)])
    check_node("Squeeze", {"x": column}, {"a": i64(1, -1)}, opset=13)
    check_node("Squeeze", {"x": column}, opset=13)
    check_node("Unsqueeze", {"x": X}, opset=11, axes=[0, 3], expected=[X.reshape(1, 2, 3, 1, 4)])
    check_node("Unsqueeze", {"x": X}, {"a": i64(-1, 0)}, opset=13)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"])
def test_reductions_in_each_opset(op: str) -> None:
    functions = {
        "Sum": np.sum,
        "Mean": np.mean,
        "Max": np.max,
        "Min": np.min,
        "Prod": np.prod,
        "L1": lambda x, **k: np.sum(np.abs(x), **k),
        "L2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
        "SumSquare": lambda x, **k: np.sum(x * x, **k),
        "LogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    }
    f = functions[op]
    kept, all_axes = f(X, axis=(0, 2), keepdims=True), f(X)
    check_node(f"Reduce{op}", {"x": X}, opset=11, axes=[0, -1], expected=[kept])
    check_node(f"Reduce{op}", {"x": X}, {"a": i64(0, -1)}, opset=18, expected=[kept])
    check_node(f"Reduce{op}", {"x": X}, opset=11, keepdims=0, expected=[all_axes])
    check_node(f"Reduce{op}", {"x": X}, opset=18, keepdims=0, expected=[all_axes])


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_flattened_its_input_before_opset_13(axis: int) -> None:
    rows = int(np.prod(X.shape[: axis % 3]))
    old = softmax(X.reshape(rows, -1), 1).reshape(X.shape)
    check_node("Softmax", {"x": X}, opset=11, axis=axis, expected=[old])
    check_node("LogSoftmax", {"x": X}, opset=11, axis=axis, expected=[np.log(old)])
    hard = np.zeros((rows, X.size // rows), np.float32)
    hard[np.arange(rows), X.reshape(rows, -1).argmax(1)] = 1
    check_node("Hardmax", {"x": X}, opset=11, axis=axis, expected=[hard.reshape(X.shape)])
    check_node("Softmax", {"x": X}, opset=13, axis=axis, expected=[softmax(X, axis)])


def test_defaults_of_softmax_axis() -> None:
    check_node("Softmax", {"x": X}, opset=11, expected=[softmax(X.reshape(2, -1), 1).reshape(X.shape)])
    check_node("Softmax", {"x": X}, opset=13, expected=[softmax(X, -1)])


def test_clip_by_attributes_and_by_inputs() -> None:
    check_node("Clip", {"x": X}, opset=6, min=-0.5, max=0.25, expected=[X.clip(-0.5, 0.25)])
    check_node("Clip", {"x": X}, opset=6, max=0.25, expected=[np.minimum(X, np.float32(0.25))])
    check_node("Clip", {"x": X}, {"lo": np.float32(-0.5)}, opset=13)
    check_node(
        "Clip",
        {"x": X},
        {"hi": np.float32(0.5)},
        opset=13,
        order=["x", "", "hi"],
        expected=[np.minimum(X, np.float32(0.5))],
    )
    check_node("Clip", {"x": X, "lo": np.array(-0.5, np.float32)}, opset=13)


def test_slice_by_attributes_and_by_inputs() -> None:
    check_node("Slice", {"x": X}, opset=1, starts=[1, -3], ends=[9, -1], axes=[1, 2], expected=[X[:, 1:, -3:-1]])
    check_node("Slice", {"x": X}, opset=1, starts=[0, 1], ends=[1, 3], expected=[X[0:1, 1:3]])
    far = np.iinfo(np.int64).max
    for start, end, step in [(0, far, 2), (-1, -far, -1), (3, 0, -2), (1, -1, 1), (5, 2, 1), (-far, far, far)]:
        arguments = {"s": i64(start), "e": i64(end), "a": i64(-1), "t": i64(step)}
        check_node(
            "Slice", {"x": X}, arguments, opset=13, expected=[X[..., slice(start, end if end > -far else None, step)]]
        )


def test_slice_of_an_empty_axis() -> None:
    empty = np.zeros((2, 0), np.float32)
    for step in (1, -1):
        arguments = {"s": i64(0), "e": i64(5), "a": i64(1), "t": i64(step)}
        check_node("Slice", {"x": empty}, arguments, opset=13, expected=[empty])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad_by_attributes_and_by_inputs(mode: str) -> None:
    wanted = np.pad(X, [(0, 0), (1, 2), (2, 0)], mode=mode)
    check_node("Pad", {"x": X}, opset=2, pads=[0, 1, 2, 0, 2, 0], mode=mode, expected=[wanted])
    check_node("Pad", {"x": X}, {"p": i64(0, 1, 2, 0, 2, 0)}, opset=13, mode=mode, expected=[wanted])
    check_node(
        "Pad",
        {"x": X},
        {"p": i64(2, 1, 0, 2), "a": i64(-1, 1)},
        opset=18,
        order=["x", "p", "", "a"],
        mode=mode,
        expected=[wanted],
    )


def test_pad_with_a_value_and_with_negative_sizes() -> None:
    cropped = np.pad(X[:, 1:, :-2], [(0, 0), (0, 3), (1, 0)], constant_values=7)
    check_node("Pad", {"x": X}, {"p": i64(0, -1, 1, 0, 3, -2), "v": np.float32(7)}, opset=13, expected=[cropped])
    wanted = np.pad(X, [(1, 0), (0, 0), (0, 2)], constant_values=-3)
    model = make_model(
        [helper.make_node("Pad", ["x", "p", "v"], ["y"])],
        {"x": (np.float32, list(X.shape)), "v": (np.float32, [])},
        ["y"],
        {"p": i64(1, 0, 0, 0, 0, 2)},
    )
    check(model, X, np.array(-3, np.float32), expected=[wanted])


def test_split_in_each_opset() -> None:
    parts = [X[..., :1], X[..., 1:]]
    check_node("Split", {"x": X}, opset=11, axis=-1, split=[1, 3], outputs=("a", "b"), expected=parts)
    check_node("Split", {"x": X}, {"s": i64(1, 3)}, opset=13, axis=-1, outputs=("a", "b"), expected=parts)
    halves = [X[..., :2], X[..., 2:]]
    check_node("Split", {"x": X}, opset=11, axis=-1, outputs=("a", "b"), expected=halves)
    uneven = [X[:, :2], X[:, 2:]]
    check_node("Split", {"x": X}, opset=18, axis=1, num_outputs=2, outputs=("a", "b"), expected=uneven)


def test_dropout_in_each_opset() -> None:
    check_node("Dropout", {"x": X}, opset=7, ratio=0.3, expected=[X])
    check_node("Dropout", {"x": X}, {"r": np.float32(0.3)}, opset=13, expected=[X])
    check_node("Dropout", {"x": X}, opset=7, outputs=("y", "m"), expected=[X, np.ones_like(X)])
    check_node("Dropout", {"x": X}, opset=13, outputs=("y", "m"), expected=[X, np.ones(X.shape, bool)])


def test_old_broadcasting_and_slopes() -> None:
    channel = data(4, seed=1)
    along = channel[:, None, None]
    check_node("Add", {"x": IMAGE, "b": channel}, opset=6, broadcast=1, axis=1, expected=[IMAGE + along])
    check_node("PRelu", {"x": IMAGE, "s": channel}, opset=6, expected=[np.where(IMAGE < 0, IMAGE * along, IMAGE)])
    check_node("PRelu", {"x": IMAGE, "s": along}, opset=16)


def test_tile_and_reshape_of_the_first_opsets() -> None:
    check_node("Reshape", {"x": X}, opset=1, shape=[0, -1], expected=[X.reshape(2, 12)])
    check_node("Tile", {"x": X}, {"n": i64(3), "a": i64(1)}, opset=1, expected=[np.tile(X, (1, 3, 1))])
    check_node("Tile", {"x": X}, {"n": i64(1, 2, 3)}, opset=13)


def test_upto_opset_of_group_normalization() -> None:
    scale, bias = data(2, seed=1), data(2, seed=2)
    groups = IMAGE.reshape(2, 2, -1)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    by_group = (normal * scale[:, None] + bias[:, None]).reshape(IMAGE.shape)
    check_node("GroupNormalization", {"x": IMAGE}, {"s": scale, "b": bias}, opset=18, num_groups=2, expected=[by_group])
    repeated = {"s": scale.repeat(2), "b": bias.repeat(2)}
    check_node("GroupNormalization", {"x": IMAGE}, repeated, opset=21, num_groups=2, expected=[by_group])


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset: int) -> None:
    parameters = {"s": data(4, seed=1), "b": data(4, seed=2), "m": data(4, seed=3), "v": np.abs(data(4, seed=4))}
    s, b, m, v = (p[:, None, None] for p in parameters.values())
    wanted = (IMAGE - m) / np.sqrt(v + np.float32(1e-3)) * s + b
    check_node("BatchNormalization", {"x": IMAGE}, parameters, opset=opset, epsilon=1e-3, expected=[wanted])


def test_batch_normalization_of_halves_with_wide_statistics() -> None:
    half = IMAGE.astype(np.float16)
    statistics = {"m": data(4, seed=3), "v": np.abs(data(4, seed=4)) + 0.5}
    parameters = {"s": data(4, seed=1).astype(np.float16), "b": data(4, seed=2).astype(np.float16), **statistics}
    s, b, m, v = (p[:, None, None].astype(np.float32) for p in parameters.values())
    wanted = ((half.astype(np.float32) - m) / np.sqrt(v + 1e-5) * s + b).astype(np.float16)
    model = make_model(
        [helper.make_node("BatchNormalization", ["x", *parameters], ["y"])],
        {"x": (np.float16, list(half.shape))},
        ["y"],
        parameters,
    )
    check(model, half, expected=[wanted], tolerance=4e-3)


def max_pool(x: np.ndarray, window: tuple[int, int], stride: int, mode: str) -> np.ndarray:
    """By the specification; onnx's reference makes SAME_LOWER with a stride one too small."""
    if mode.startswith("SAME"):
        pads = []
        for size, length in zip(window, x.shape[2:]):
            total = max(0, (-(-length // stride) - 1) * stride + size - length)
            less, more = total // 2, total - total // 2
            pads.append((less, more) if mode == "SAME_UPPER" else (more, less))
        x = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, window, (2, 3))
    return windows[:, :, ::stride, ::stride].max((-2, -1))


@pytest.mark.parametrize("mode", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2])
def test_auto_pad(mode: str, stride: int) -> None:
    weight = data(6, 2, 3, 4, seed=1)
    check_node("Conv", {"x": IMAGE}, {"w": weight}, auto_pad=mode, strides=[stride, stride], group=2)
    pooled = max_pool(IMAGE, (2, 3), stride, mode)
    check_node("MaxPool", {"x": IMAGE}, auto_pad=mode, strides=[stride] * 2, kernel_shape=[2, 3], expected=[pooled])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution_of_each_rank(rank: int) -> None:
    x, weight, bias = data(2, 4, *[8, 7, 6][:rank]), data(6, 4, *[3, 2, 3][:rank], seed=1), data(6, seed=2)
    pads = [1, 0, 2, 2, 1, 0]
    chosen = [pads[i] for i in range(rank)] + [pads[3 + i] for i in range(rank)]
    check_node("Conv", {"x": x}, {"w": weight, "b": bias}, pads=chosen, strides=[2, 1, 1][:rank])
    check_node("Conv", {"x": x}, {"w": weight}, pads=chosen, dilations=[2] * rank)


def test_gather_nd_with_negative_indices_and_batches() -> None:
    indices = np.array([[[0, -1]], [[-2, 1]]], np.int64)
    check_node("GatherND", {"x": X, "i": indices}, expected=[np.stack([X[0, -1][None], X[-2, 1][None]])])
    batched = np.array([[-1], [1]], np.int64)
    check_node("GatherND", {"x": X, "i": batched}, batch_dims=1, expected=[np.stack([X[0, -1], X[1, 1]])])


@pytest.mark.parametrize(("op", "low", "high"), [("Asinh", -1e6, 1e6), ("Acosh", 1, 1e6), ("Atanh", -0.999, 0.999)])
def test_inverse_hyperbolic_functions(op: str, low: float, high: float) -> None:
    small = np.array([0, 1e-20, -1e-6, 1e-3, 1e19, 3e38, np.inf, np.nan], np.float32)
    x = np.concatenate([np.linspace(low, high, 500, dtype=np.float32), np.linspace(1, 3, 50, dtype=np.float32), small])
    with np.errstate(all="ignore"):
        wanted = getattr(np, "arc" + op[1:])(x.astype(np.float64))
    inside = np.isfinite(wanted) if op != "Asinh" else np.full(x.shape, True)
    x, wanted = x[inside], wanted[inside].astype(np.float32)
    check_node(op, {"x": x}, expected=[wanted])


@pytest.mark.parametrize("limit", [0.5, -0.25])
def test_shrink(limit: float) -> None:
    check_node("Shrink", {"x": X}, lambd=limit, bias=0.125)


def test_sizes_of_equal_names_are_equal() -> None:
    model = make_model(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        {"a": (np.float32, ["batch-size", 4]), "b": (np.float32, ["batch-size", 4])},
        ["y"],
    )
    function = cuvil.compile(model)
    for n in (0, 1, 2, 5):
        check(model, data(n, 4), data(n, 4, seed=1), function=function)
    with pytest.raises(cuvil.ShapeError):
        function(data(3, 4), data(2, 4))


def test_names_that_become_one_identifier_stay_apart() -> None:
    model = make_model(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        {"a": (np.float32, ["n.1", 4]), "b": (np.float32, [4, "n_1"])},
        ["y"],
    )
    check(model, data(3, 4), data(4, 7, seed=1))


def test_computed_sizes_of_inputs() -> None:
    model = make_model(
        [helper.make_node("Concat", ["a", "b"], ["c"], axis=1), helper.make_node("Relu", ["c"], ["y"])],
        {"a": (np.float32, ["n", "past"]), "b": (np.float32, ["n", "2*past + 1"])},
        ["y"],
    )
    function = cuvil.compile(model)
    for past in (1, 3):
        check(model, data(2, past), data(2, 2 * past + 1, seed=1), function=function)
    with pytest.raises(cuvil.ShapeError):
        function(data(2, 3), data(2, 8))


def node(op: str, inputs: str, outputs: str, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


# Models that compute shapes from the sizes of x [n, s, 6].
SHAPES: dict[str, tuple[list, dict[str, np.ndarray]]] = {
    "split heads": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Gather", "s one", "t"),
            node("Concat", "n t two three", "to", axis=0),
            node("Reshape", "x to", "h"),
            node("Transpose", "h", "y", perm=[0, 2, 1, 3]),
        ],
        {"zero": i64(0), "one": i64(1), "two": i64(2), "three": i64(3)},
    ),
    "scalars unsqueezed": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Gather", "s one", "t"),
            node("Mul", "n t", "m"),
            node("Unsqueeze", "m axis", "m1"),
            node("Concat", "m1 rest", "to", axis=0),
            node("Reshape", "x to", "y"),
        ],
        {"zero": np.int64(0), "one": np.int64(1), "axis": i64(0), "rest": i64(-1)},
    ),
    "32-bit arithmetic": (
        [
            node("Shape", "x", "s", start=0, end=2),
            node("Cast", "s", "s32", to=onnx.TensorProto.INT32),
            node("ReduceProd", "s32", "m", keepdims=1),
            node("Cast", "m", "m64", to=onnx.TensorProto.INT64),
            node("Concat", "m64 six", "to", axis=0),
            node("Reshape", "x to", "y"),
        ],
        {"six": i64(6)},
    ),
    "expand repaired by where": (
        [
            node("Shape", "x", "s"),
            node("Concat", "minus n3", "wanted", axis=0),
            node("Equal", "s minus", "same"),
            node("Where", "same n3 s", "fixed"),
            node("Slice", "x zero one last", "thin"),
            node("Expand", "thin fixed", "y"),
        ],
        {"minus": i64(-1), "n3": i64(1), "zero": i64(0), "one": i64(1), "last": i64(2)},
    ),
    "range over the length": (
        [
            node("Shape", "x", "s", start=1, end=2),
            node("Squeeze", "s", "t"),
            node("Range", "zero t one", "r"),
            node("Cast", "r", "f", to=onnx.TensorProto.FLOAT),
            node("Unsqueeze", "f axis", "column"),
            node("Add", "x column", "y"),
        ],
        {"zero": np.int64(0), "one": np.int64(1), "axis": i64(-1)},
    ),
    "slice to half": (
        [
            node("Shape", "x", "s", start=1, end=2),
            node("Div", "s two", "half"),
            node("Slice", "x zero half one", "front"),
            node("Slice", "x half s one", "back"),
            node("Concat", "back front", "y", axis=1),
        ],
        {"zero": i64(0), "one": i64(1), "two": i64(2)},
    ),
    "split by computed sizes": (
        [
            node("Shape", "x", "s", start=1, end=2),
            node("Sub", "s one", "rest"),
            node("Concat", "one rest", "sizes", axis=0),
            node("Split", "x sizes", "a b", axis=1),
            node("Concat", "b a", "y", axis=1),
        ],
        {"one": i64(1)},
    ),
    "constant of shape": (
        [
            node("Shape", "x", "s"),
            node("ConstantOfShape", "s", "c", value=numpy_helper.from_array(np.array([2], np.float32))),
            node("Mul", "x c", "y"),
        ],
        {},
    ),
    "tile and flatten": (
        [node("Tile", "x times", "t"), node("Flatten", "t", "f", axis=2), node("ReduceSum", "f axis", "y")],
        {"times": i64(2, 1, 3), "axis": i64(-1)},
    ),
    "pad by the length": (
        [
            node("Shape", "x", "s", start=1, end=2),
            node("Concat", "zero s zero zero zero zero", "pads", axis=0),
            node("Pad", "x pads", "y"),
        ],
        {"zero": i64(0)},
    ),
    "causal mask": (
        [
            node("Shape", "x", "s", start=1, end=2),
            node("Concat", "s s", "square", axis=0),
            node("ConstantOfShape", "square", "ones", value=numpy_helper.from_array(np.array([1], np.float32))),
            node("Trilu", "ones", "mask", upper=0),
            node("MatMul", "mask x", "y"),
        ],
        {},
    ),
    "mean by the size": (
        [
            node("Size", "x", "count"),
            node("Cast", "count", "f", to=onnx.TensorProto.FLOAT),
            node("ReduceSum", "x", "sum", keepdims=0),
            node("Div", "sum f", "y"),
        ],
        {},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_computed_shapes(name: str) -> None:
    nodes, constants = SHAPES[name]
    model = make_model(nodes, {"x": (np.float32, ["n", "s", 6])}, ["y"], constants)
    function = cuvil.compile(model)
    for n, s in ((1, 4), (2, 7), (3, 1)):
        check(model, data(n, s, 6), function=function)


def test_unnamed_sizes_are_independent() -> None:
    model = make_model(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        {"a": (np.float32, [None, 4]), "b": (np.float32, [4, None])},
        ["y"],
    )
    function = cuvil.compile(model)
    for m, n in ((1, 1), (3, 8)):
        check(model, data(m, 4), data(4, n, seed=1), function=function)


def test_input_spec_names_sizes() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, [2, 3])}, ["y"])
    function = cuvil.compile(model, input_spec=[("x", ("n", 3), "float32")])
    for n in (1, 2, 6):
        check(model, data(n, 3), function=function)


TYPED = [
    (onnx.TensorProto.FLOAT, np.float32, [1.5, -2.25]),
    (onnx.TensorProto.DOUBLE, np.float64, [1e300, -2.5]),
    (onnx.TensorProto.INT64, np.int64, [2**62, -5]),
    (onnx.TensorProto.INT32, np.int32, [-(2**31), 7]),
    (onnx.TensorProto.INT8, np.int8, [-128, 127]),
    (onnx.TensorProto.UINT8, np.uint8, [0, 255]),
    (onnx.TensorProto.UINT32, np.uint32, [2**32 - 1, 1]),
    (onnx.TensorProto.UINT64, np.uint64, [2**64 - 1, 1]),
    (onnx.TensorProto.BOOL, np.bool_, [True, False]),
    (onnx.TensorProto.FLOAT16, np.float16, [0.5, -65504.0]),
]


@pytest.mark.parametrize(("element", "dtype", "values"), TYPED)
@pytest.mark.parametrize("raw", [False, True])
def test_constants_of_each_type(element: int, dtype: Any, values: list, raw: bool) -> None:
    array = np.array(values, dtype)
    tensor = helper.make_tensor("c", element, [2], array.tobytes() if raw else values, raw=raw)
    graph = helper.make_graph(
        [helper.make_node("Where", ["x", "c", "c"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.BOOL, [2])],
        [helper.make_empty_tensor_value_info("y")],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    result = np.asarray(cuvil.compile(model)(np.array([True, False])))
    np.testing.assert_array_equal(result, array)
    assert result.dtype == array.dtype


@pytest.mark.parametrize(
    "attributes",
    [
        {"value_float": 2.5},
        {"value_int": -3},
        {"value_floats": [1.0, 2.0]},
        {"value_ints": [4, 5]},
        {"value": numpy_helper.from_array(np.array([[1, 2]], np.int32))},
    ],
)
def test_constant_nodes(attributes) -> None:
    model = make_model([helper.make_node("Constant", [], ["y"], **attributes)], {}, ["y"])
    check(model)
