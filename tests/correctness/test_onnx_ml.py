"""Operators of the domain ai.onnx.ml against ONNX's reference implementation, and numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import cuvil

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

X = np.random.default_rng(3).normal(size=(7, 4)).astype(np.float32)
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


def model_of(op: str, *inputs: np.ndarray, out: int = TensorProto.FLOAT, version: int = 3, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], domain="ai.onnx.ml", **attributes)
    declared = [helper.make_tensor_value_info(n, TYPES[x.dtype.name], x.shape) for n, x in zip(names, inputs)]
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info("y", out, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Scaler", {"scale": [1.0, 2.0, 3.0, 4.0], "offset": [0.5, 0.0, -1.0, 2.0]}),
        ("Scaler", {"scale": [2.0], "offset": [1.0]}),
        ("Binarizer", {"threshold": 0.25}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("LinearRegressor", {"targets": 2, "coefficients": [float(i) for i in range(8)], "intercepts": [1.0, -1.0]}),
        ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": float(X[1, 2])}),
    ],
)
def test_dense(op, attributes):
    model = model_of(op, X, version=1, **attributes)
    (expected,) = ReferenceEvaluator(model).run(None, {"x0": X})
    np.testing.assert_allclose(cuvil.compile(model)(X), expected, rtol=1e-5, atol=1e-6)


def test_imputer_of_nan_and_norm_of_zeros():
    x = np.array([[np.nan, 1.0], [2.0, np.nan]], np.float32)
    model = model_of("Imputer", x, version=1, imputed_value_floats=[7.0, 8.0], replaced_value_float=float("nan"))
    np.testing.assert_array_equal(cuvil.compile(model)(x), [[7, 1], [2, 8]])
    zeros = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(cuvil.compile(model_of("Normalizer", zeros, version=1, norm="L2"))(zeros), zeros)


def test_label_encoder():
    keys = np.array([3, -1, 5, 4, 3], np.int64)
    model = model_of("LabelEncoder", keys, keys_int64s=[3, 4, 5], values_floats=[0.5, 1.5, 2.5], default_float=-9.0)
    np.testing.assert_array_equal(cuvil.compile(model)(keys), np.array([0.5, -9, 2.5, 1.5, 0.5], np.float32))
    x = np.array([np.nan, 1.0, 2.0], np.float32)
    model = model_of(
        "LabelEncoder",
        x,
        out=TensorProto.INT64,
        keys_floats=[1.0, float("nan")],
        values_int64s=[10, 20],
        default_int64=-3,
    )
    np.testing.assert_array_equal(cuvil.compile(model)(x), [20, 10, -3])


def test_labels_that_are_strings_are_refused():
    keys = np.zeros(2, np.int64)
    model = model_of("LabelEncoder", keys, out=TensorProto.STRING, keys_int64s=[0], values_strings=["a"])
    with pytest.raises(cuvil.CompileError, match="string"):
        cuvil.compile(model)


def regressor(modes, **more):
    """Two trees: a root with a decision below it, and a lone decision; leaves name several targets."""
    return {
        "n_targets": 2,
        "nodes_treeids": [0] * 5 + [1] * 3,
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 2, 0, 0, 0, 3, 0, 0],
        "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, float(X[2, 3]), 0.0, 0.0],
        "nodes_modes": [modes[0], modes[1], "LEAF", "LEAF", "LEAF", modes[2], "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "target_treeids": [0, 0, 0, 0, 1, 1],
        "target_nodeids": [2, 3, 4, 4, 1, 2],
        "target_ids": [0, 1, 0, 1, 0, 1],
        "target_weights": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        **more,
    }


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
@pytest.mark.parametrize(
    "modes",
    [("BRANCH_LEQ",) * 3, ("BRANCH_LT", "BRANCH_GT", "BRANCH_EQ"), ("BRANCH_GTE", "BRANCH_LEQ", "BRANCH_NEQ")],
)
def test_tree_ensemble_regressor(modes, aggregate):
    compare = {"LEQ": np.less_equal, "LT": np.less, "GT": np.greater, "GTE": np.greater_equal, "EQ": np.equal}
    compare["NEQ"] = np.not_equal
    root, inner, lone = (compare[m.removeprefix("BRANCH_")] for m in modes)
    expected = np.zeros((len(X), 2), np.float32)
    for row, out in zip(X, expected):
        if not root(row[0], np.float32(0.1)):
            out[0] += 1
        elif inner(row[2], np.float32(-0.2)):
            out[1] += 2
        else:
            out += [4, 8]
        out[0 if lone(row[3], X[2, 3]) else 1] += 16 if lone(row[3], X[2, 3]) else 32
    if aggregate == "AVERAGE":
        expected /= 2
    expected += [0.5, -0.5]
    model = model_of(
        "TreeEnsembleRegressor", X, **regressor(modes, aggregate_function=aggregate, base_values=[0.5, -0.5])
    )
    np.testing.assert_array_equal(cuvil.compile(model)(X), expected)


def test_missing_values_follow_their_node():
    x = np.array([[np.nan, 0, np.nan, np.nan]], np.float32)
    tracks = [1, 0, 0, 0, 0, 0, 0, 0]
    model = model_of(
        "TreeEnsembleRegressor", x, **regressor(("BRANCH_LEQ",) * 3, nodes_missing_value_tracks_true=tracks)
    )
    np.testing.assert_array_equal(cuvil.compile(model)(x), [[4, 8 + 32]])


def test_nodes_of_trees_may_alternate():
    plain = regressor(("BRANCH_LEQ",) * 3)
    order = [0, 5, 1, 6, 2, 7, 3, 4]
    mixed = {k: [v[i] for i in order] if k.startswith("nodes_") else v for k, v in plain.items()}
    expected = cuvil.compile(model_of("TreeEnsembleRegressor", X, **plain))(X)
    np.testing.assert_array_equal(cuvil.compile(model_of("TreeEnsembleRegressor", X, **mixed))(X), expected)


def test_a_negative_feature_is_refused():
    attributes = regressor(("BRANCH_LEQ",) * 3)
    attributes["nodes_featureids"] = [-1, *attributes["nodes_featureids"][1:]]
    with pytest.raises(cuvil.CompileError, match="feature is negative"):
        cuvil.compile(model_of("TreeEnsembleRegressor", X, **attributes))


def test_a_branch_to_nowhere_is_refused():
    attributes = regressor(("BRANCH_LEQ",) * 3)
    attributes["nodes_truenodeids"] = [9, *attributes["nodes_truenodeids"][1:]]
    with pytest.raises(cuvil.CompileError, match="doesn't exist"):
        cuvil.compile(model_of("TreeEnsembleRegressor", X, **attributes))
    attributes["nodes_truenodeids"] = [0, *attributes["nodes_truenodeids"][1:]]
    with pytest.raises(cuvil.CompileError, match="in a circle"):
        cuvil.compile(model_of("TreeEnsembleRegressor", X, **attributes))
