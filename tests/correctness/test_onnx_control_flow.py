"""ONNX models with control flow, with sizes that depend on data, and whose structure depends on values."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402
from onnx import numpy_helper  # noqa: E402

import cuvil  # noqa: E402
from cuvil import cuvil_native as native  # noqa: E402

RNG = np.random.default_rng(0)


def value(name, dtype, shape):
    return h.make_tensor_value_info(name, dtype, shape)


def const(name, array):
    return h.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array), name))


def model(nodes, inputs, outputs, functions=(), opset=18):
    graph = h.make_graph(nodes, "g", inputs, outputs)
    imports = [h.make_opsetid("", opset), h.make_opsetid("com.microsoft", 1), h.make_opsetid("own", 1)]
    return h.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=9)


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def check(m, feeds, expected=None, rtol=1e-5, atol=1e-6):
    """Compiled code, and the reference evaluator where the structure is known, against ``expected`` or ONNX Runtime."""
    if expected is None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
        expected = session.run(None, feeds)
    function = cuvil.compile(m)
    results = [as_tuple(function(**feeds))]
    if isinstance(function, cuvil.CompiledFunction):
        graph = native.import_onnx_bytes(m.SerializeToString())
        results.append(graph.evaluate([feeds[name] for name in graph.input_names]))
        text = graph.text()
        if "#" not in text:  # large constants print as hashes
            assert native.parse_graph(text).text() == text
    for result in results:
        assert len(result) == len(expected)
        for mine, wanted in zip(result, expected):
            assert mine.shape == wanted.shape
            assert mine.dtype == wanted.dtype
            np.testing.assert_allclose(mine, wanted, rtol=rtol, atol=atol)
    return function


def branch(name, nodes, output, dtype=T.FLOAT, shape=None):
    return h.make_graph(nodes, name, [], [value(output, dtype, shape)])


def test_if_captures_and_shadows():
    then = branch("t", [const("two", np.float32(2)), h.make_node("Mul", ["x", "two"], ["y1"])], "y1")
    inner = branch("i", [h.make_node("Neg", ["x"], ["y3"])], "y3")
    other = branch("o", [h.make_node("Add", ["x", "b"], ["y4"])], "y4")
    orelse = branch("e", [h.make_node("If", ["q"], ["y2"], then_branch=inner, else_branch=other)], "y2")
    m = model(
        [h.make_node("If", ["p"], ["y"], then_branch=then, else_branch=orelse), h.make_node("Exp", ["y"], ["z"])],
        [value("p", T.BOOL, []), value("q", T.BOOL, []), value("x", T.FLOAT, ["n", 3]), value("b", T.FLOAT, [3])],
        [value("z", T.FLOAT, ["n", 3])],
    )
    x, b = RNG.standard_normal((4, 3)).astype(np.float32), np.float32([1, 2, 3])
    for p in (True, False):
        for q in (True, False):
            check(m, {"p": np.array(p), "q": np.array(q), "x": x, "b": b})


def test_if_with_branches_of_different_sizes():
    then = branch("t", [h.make_node("Concat", ["x", "x"], ["y1"], axis=0)], "y1")
    orelse = branch("e", [h.make_node("Identity", ["x"], ["y2"])], "y2")
    m = model(
        [
            h.make_node("If", ["p"], ["y"], then_branch=then, else_branch=orelse),
            h.make_node("ReduceSum", ["y"], ["s"], keepdims=0),
            h.make_node("Shape", ["y"], ["d"]),
        ],
        [value("p", T.BOOL, []), value("x", T.FLOAT, ["n", 2])],
        [value("y", T.FLOAT, None), value("s", T.FLOAT, []), value("d", T.INT64, [2])],
    )
    for p in (True, False):
        check(m, {"p": np.array(p), "x": np.ones((3, 2), np.float32)})


def test_branches_of_different_rank_compile_for_the_condition():
    then = branch("t", [h.make_node("Identity", ["x"], ["y1"])], "y1")
    orelse = branch("e", [h.make_node("ReduceSum", ["x"], ["y2"], keepdims=0)], "y2")
    m = model(
        [h.make_node("If", ["p"], ["y"], then_branch=then, else_branch=orelse)],
        [value("p", T.BOOL, []), value("x", T.FLOAT, [2])],
        [value("y", T.FLOAT, None)],
    )
    function = cuvil.compile(m)
    x = np.float32([1, 2])
    assert function(np.array(True), x).shape == (2,)
    assert function(np.array(False), x).shape == ()
    assert len(function.variants) == 2


def loop(body_nodes, inputs, outputs, loop_inputs, loop_outputs, graph_inputs, graph_outputs):
    body = h.make_graph(body_nodes, "body", inputs, outputs)
    return model([h.make_node("Loop", loop_inputs, loop_outputs, body=body)], graph_inputs, graph_outputs)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_loop_with_carried_values_and_rows(trips):
    m = loop(
        [
            h.make_node("Add", ["a", "x"], ["a_out"]),
            h.make_node("Identity", ["c"], ["c_out"]),
            h.make_node("Mul", ["a_out", "a_out"], ["row"]),
        ],
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("a", T.FLOAT, ["n"])],
        [value("c_out", T.BOOL, []), value("a_out", T.FLOAT, ["n"]), value("row", T.FLOAT, ["n"])],
        ["m", "", "x"],
        ["last", "rows"],
        [value("m", T.INT64, []), value("x", T.FLOAT, ["n"])],
        [value("last", T.FLOAT, ["n"]), value("rows", T.FLOAT, [None, "n"])],
    )
    x = np.float32([1, 2, 3])
    rows = np.array([(x * (i + 2)) ** 2 for i in range(trips)], np.float32).reshape(trips, 3)
    check(m, {"m": np.array(trips, np.int64), "x": x}, [x * (trips + 1), rows])


def test_loop_that_ends_early_and_grows():
    m = loop(
        [
            h.make_node("Concat", ["a", "x"], ["a_out"], axis=0),
            h.make_node("Shape", ["a_out"], ["s"]),
            const("limit", np.int64([7])),
            h.make_node("Less", ["s", "limit"], ["go"]),
            h.make_node("Squeeze", ["go"], ["c_out"]),
            h.make_node("ReduceSum", ["a_out"], ["row"], keepdims=0),
        ],
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("a", T.FLOAT, None)],
        [value("c_out", T.BOOL, []), value("a_out", T.FLOAT, None), value("row", T.FLOAT, [])],
        ["", "c0", "x"],
        ["last", "rows"],
        [value("c0", T.BOOL, []), value("x", T.FLOAT, ["n"])],
        [value("last", T.FLOAT, [None]), value("rows", T.FLOAT, [None])],
    )
    check(m, {"c0": np.array(True), "x": np.float32([1, 2])})


def test_scan_backwards_over_another_axis():
    body = h.make_graph(
        [h.make_node("Add", ["s", "x"], ["s_out"]), h.make_node("Tanh", ["s_out"], ["y"])],
        "body",
        [value("s", T.FLOAT, [2]), value("x", T.FLOAT, [2])],
        [value("s_out", T.FLOAT, [2]), value("y", T.FLOAT, [2])],
    )
    node = h.make_node(
        "Scan",
        ["s0", "xs"],
        ["s", "ys"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1],
        scan_output_directions=[1],
    )
    m = model(
        [node],
        [value("s0", T.FLOAT, [2]), value("xs", T.FLOAT, [2, "n"])],
        [value("s", T.FLOAT, [2]), value("ys", T.FLOAT, [2, "n"])],
    )
    check(m, {"s0": np.float32([0.5, -1]), "xs": RNG.standard_normal((2, 5)).astype(np.float32)})


def test_functions_of_the_model_with_attributes():
    scale = h.make_node("Constant", [], ["k"])
    reference = onnx.AttributeProto(name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name="factor")
    scale.attribute.append(reference)
    function = h.make_function(
        "own",
        "Scale",
        ["a"],
        ["b"],
        [scale, h.make_node("Mul", ["a", "k"], ["b"])],
        [h.make_opsetid("", 18)],
        ["factor"],
    )
    nodes = [
        h.make_node("Scale", ["x"], ["y"], domain="own", factor=3.0),
        h.make_node("Scale", ["y"], ["z"], domain="own", factor=0.5),
    ]
    m = model(nodes, [value("x", T.FLOAT, [3])], [value("z", T.FLOAT, [3])], [function])
    check(m, {"x": np.float32([1, -2, 3])})


def test_shapes_known_at_run_time_only():
    m = model(
        [
            h.make_node("Reshape", ["x", "s"], ["r"]),
            h.make_node("Range", ["a", "b", "c"], ["g"]),
            h.make_node("Expand", ["v", "e"], ["w"]),
            h.make_node("Slice", ["x", "from", "to", "axis"], ["t"]),
            h.make_node("Tile", ["v", "times"], ["u"]),
        ],
        [value("x", T.FLOAT, ["n", 4]), value("s", T.INT64, [2]), value("v", T.FLOAT, [1, 3])]
        + [value(name, T.INT64, []) for name in "abc"]
        + [
            value("e", T.INT64, [2]),
            value("from", T.INT64, [1]),
            value("to", T.INT64, [1]),
            value("times", T.INT64, [2]),
        ]
        + [value("axis", T.INT64, [1])],
        [value(name, T.FLOAT, None) for name in "rwtu"] + [value("g", T.INT64, [None])],
    )
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    for sizes in ([2, -1], [6, 2], [0, 4]):
        for low, high in ((1, 3), (-2, 100), (2, -1), (3, 1)):
            feeds = {"x": x, "s": np.int64(sizes), "v": x[:1, :3].copy(), "e": np.int64([4, 1]), "axis": np.int64([0])}
            feeds |= {"a": np.array(7), "b": np.array(-3), "c": np.array(-4), "times": np.int64([2, 2])}
            feeds |= {"from": np.int64([low]), "to": np.int64([high])}
            check(m, feeds)


def test_a_shape_that_does_not_fit_is_refused_at_run_time():
    m = model(
        [h.make_node("Reshape", ["x", "s"], ["y"])],
        [value("x", T.FLOAT, [6]), value("s", T.INT64, [2])],
        [value("y", T.FLOAT, None)],
    )
    function = cuvil.compile(m)
    assert function(np.zeros(6, np.float32), np.int64([2, 3])).shape == (2, 3)
    with pytest.raises(cuvil.InputError, match="Reshape"):
        function(np.zeros(6, np.float32), np.int64([4, 2]))
    with pytest.raises(cuvil.InputError, match="size is -2"):
        function(np.zeros(6, np.float32), np.int64([-2, 3]))


def test_sizes_that_depend_on_data():
    m = model(
        [
            h.make_node("NonZero", ["x"], ["where"]),
            h.make_node("Compress", ["x", "keep"], ["kept"], axis=0),
            h.make_node("Unique", ["k"], ["u", "first", "inverse", "count"]),
            h.make_node("ReduceSum", ["kept"], ["s"], keepdims=0),
        ],
        [value("x", T.FLOAT, ["n", 3]), value("keep", T.BOOL, ["n"]), value("k", T.INT64, ["m"])],
        [value(name, T.INT64, None) for name in ("where", "u", "first", "inverse", "count")]
        + [value("kept", T.FLOAT, None), value("s", T.FLOAT, [])],
    )
    x = RNG.integers(-1, 2, (5, 3)).astype(np.float32)
    for keep in ([1, 0, 1, 1, 0], [0] * 5, [1] * 5):
        check(m, {"x": x, "keep": np.array(keep, bool), "k": np.int64([3, 1, 3, 2, 1, 1])})


def test_axes_given_at_run_time():
    m = model(
        [h.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        [value("x", T.FLOAT, ["n", 3]), value("axes", T.INT64, ["k"])],
        [value("y", T.FLOAT, None)],
    )
    function = cuvil.compile(m)
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    for axes in ([0], [1], [0, 1], [0]):
        np.testing.assert_allclose(function(x, np.int64(axes)), x.sum(tuple(axes)), rtol=1e-6)
    assert len(function.variants) == 3


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_networks(kind, direction):
    gates, dirs = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
    hidden, width, batch = 5, 3, 2
    arrays = {
        "w": RNG.standard_normal((dirs, gates * hidden, width)).astype(np.float32),
        "r": RNG.standard_normal((dirs, gates * hidden, hidden)).astype(np.float32),
        "b": RNG.standard_normal((dirs, 2 * gates * hidden)).astype(np.float32),
        "h0": RNG.standard_normal((dirs, batch, hidden)).astype(np.float32),
    }
    if kind == "LSTM":
        arrays |= {"c0": RNG.standard_normal((dirs, batch, hidden)).astype(np.float32)}
        arrays |= {"p": RNG.standard_normal((dirs, 3 * hidden)).astype(np.float32)}
    names = ["x", "w", "r", "b", "len", "h0"] + (["c0", "p"] if kind == "LSTM" else [])
    outputs = ["y", "yh"] + (["yc"] if kind == "LSTM" else [])
    extra = {"linear_before_reset": 1} if kind == "GRU" and direction == "forward" else {}
    graph = h.make_graph(
        [h.make_node(kind, names, outputs, hidden_size=hidden, direction=direction, **extra)],
        "g",
        [value("x", T.FLOAT, ["s", batch, width]), value("len", T.INT32, [batch])],
        [value(o, T.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    m = h.make_model(graph, opset_imports=[h.make_opsetid("", 14)], ir_version=9)
    for steps in (1, 6):
        x = RNG.standard_normal((steps, batch, width)).astype(np.float32)
        check(m, {"x": x, "len": np.array([steps, max(1, steps - 2)], np.int32)}, rtol=1e-4, atol=1e-5)


def test_non_max_suppression():
    m = model(
        [h.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["picked"])],
        [
            value("boxes", T.FLOAT, [1, "n", 4]),
            value("scores", T.FLOAT, [1, 2, "n"]),
            value("most", T.INT64, [1]),
            value("iou", T.FLOAT, [1]),
            value("least", T.FLOAT, [1]),
        ],
        [value("picked", T.INT64, [None, 3])],
    )
    corner = RNG.uniform(0, 1, (1, 40, 2))
    boxes = np.concatenate([corner, corner + RNG.uniform(0.1, 0.5, (1, 40, 2))], 2).astype(np.float32)
    feeds = {"boxes": boxes, "scores": RNG.uniform(0, 1, (1, 2, 40)).astype(np.float32)}
    check(m, feeds | {"most": np.int64([7]), "iou": np.float32([0.4]), "least": np.float32([0.1])})


def test_determinants():
    m = model([h.make_node("Det", ["x"], ["y"])], [value("x", T.FLOAT, ["b", 4, 4])], [value("y", T.FLOAT, ["b"])])
    x = RNG.standard_normal((3, 4, 4)).astype(np.float32)
    x[1, 2] = x[1, 0]  # singular
    x[2, 0, 0] = 0  # needs a pivot
    check(m, {"x": x}, [np.linalg.det(x).astype(np.float32)], rtol=1e-4, atol=1e-5)


def test_random_numbers_have_their_distribution():
    nodes = [
        h.make_node("RandomNormal", [], ["normal"], shape=[200, 1000], mean=1.0, scale=2.0, seed=1.0),
        h.make_node("RandomUniform", [], ["uniform"], shape=[200, 1000], low=-1.0, high=3.0, seed=2.0),
        h.make_node("Bernoulli", ["p"], ["coin"], seed=3.0),
    ]
    m = model(nodes, [value("p", T.FLOAT, [100000])], [value(n, T.FLOAT, None) for n in ("normal", "uniform", "coin")])
    p = np.full(100000, 0.3, np.float32)
    function = cuvil.compile(m)
    normal, uniform, coin = function(p)
    assert abs(normal.mean() - 1) < 0.02
    assert abs(normal.std() - 2) < 0.02
    assert abs(((normal - 1) ** 4).mean() / 16 - 3) < 0.1
    assert -1 <= uniform.min() < -0.99
    assert 2.99 < uniform.max() < 3
    counts = np.histogram(uniform, 16, (-1, 3))[0]
    assert ((counts - 12500) ** 2 / 12500).sum() < 45  # chi-squared with 15 degrees of freedom
    assert abs(coin.mean() - 0.3) < 0.01
    assert abs(np.corrcoef(normal.ravel()[:-1], normal.ravel()[1:])[0, 1]) < 0.01
    for again, before in zip(function(p), (normal, uniform, coin)):
        np.testing.assert_array_equal(again, before)


def microsoft(op, arrays, outputs=("y",), **attributes):
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(arrays)]
    feeds = {n: a for n, a in zip(names, arrays) if a is not None}
    infos = [value(n, h.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    node = h.make_node(op, names, list(outputs), domain="com.microsoft", **attributes)
    m = model([node], infos, [value(o, T.FLOAT, None) for o in outputs if o])
    check(m, feeds, rtol=1e-4, atol=1e-4)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_operators_of_optimised_models():
    microsoft("FusedMatMul", [normal(2, 3, 4), normal(2, 5, 4)], transB=1, alpha=0.5)
    microsoft("FastGelu", [normal(3, 4), normal(4)])
    microsoft("BiasGelu", [normal(3, 4), normal(4)])
    microsoft("QuickGelu", [normal(3, 4)], alpha=1.5)
    norm = [normal(2, 3, 8), normal(2, 3, 8), normal(8)]
    microsoft("SkipLayerNormalization", [*norm, normal(8), normal(8)], ("y", "", "", "sum"))
    microsoft("SkipSimplifiedLayerNormalization", norm, ("y", "", "", "sum"))
    lengths = np.array([5, 3], np.int32)
    microsoft("Attention", [normal(2, 5, 16), normal(16, 48), normal(48), lengths], num_heads=4)
    past = normal(2, 2, 4, 3, 4)
    microsoft(
        "Attention",
        [normal(2, 5, 16), normal(16, 48), normal(48), None, past],
        ("y", "now"),
        num_heads=4,
        unidirectional=1,
    )
    microsoft("MultiHeadAttention", [normal(2, 5, 16), normal(2, 7, 16), normal(2, 7, 16), normal(48)], num_heads=4)
    microsoft("RotaryEmbedding", [normal(2, 5, 32), np.arange(10).reshape(2, 5), normal(20, 4), normal(20, 4)])
    for bits in (4, 8):
        weight = RNG.integers(0, 256, (6, 2, 32 * bits // 8)).astype(np.uint8)
        scales = RNG.uniform(0, 0.05, 12).astype(np.float32)
        microsoft("MatMulNBits", [normal(2, 64), weight, scales], K=64, N=6, bits=bits, block_size=32)
