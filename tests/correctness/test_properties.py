"""Properties over random shapes, strides, dtypes and special values: compiled code against the reference evaluator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvil import cuvil_native

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u32": np.uint32,
}  # fmt: skip
EXACT_BINARY = ["add", "sub", "mul", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40, 65504.0, 3.5]


def array_of(draw, shape, dtype: str) -> np.ndarray:
    """Random values, some of them special; in memory order that may be transposed, reversed or strided."""
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = DTYPES[dtype]
    if np.dtype(kind).kind == "f":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = (10 * numbers.standard_normal(shape)).astype(kind)
            chosen = numbers.random(shape) < 0.2
            values = np.where(chosen, numbers.choice(np.array(SPECIAL, dtype=np.float64), shape).astype(kind), values)
    else:
        limits = np.iinfo(kind)
        values = numbers.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    values = np.asarray(values)
    layout = draw(st.sampled_from(["plain", "transposed", "reversed", "strided"]))
    if layout == "transposed":
        return np.ascontiguousarray(values.T).T
    if layout == "reversed" and values.ndim:
        return np.ascontiguousarray(values[::-1])[::-1]
    if layout == "strided" and values.ndim:
        return np.repeat(values, 2, axis=-1)[..., ::2]
    return values


def run_both(text: str, inputs, target: str):
    graph = cuvil_native.parse_graph(text)
    expected = graph.evaluate([np.copy(x, order="C") for x in inputs])
    actual = cuvil_native.compile(graph, target=target, threads=1).run(*inputs)
    actual = actual if isinstance(actual, tuple) else (actual,)
    return [np.asarray(a) for a in actual], expected


def type_text(x: np.ndarray, dtype: str) -> str:
    return f"{dtype}[{', '.join(map(str, x.shape))}]"


SHAPES = st.lists(st.integers(0, 19), max_size=4)
TARGETS = st.sampled_from(["", "x86-64-v3", "generic"])


@settings(max_examples=150, deadline=None)
@given(st.data(), SHAPES, st.sampled_from(sorted(DTYPES)), st.sampled_from(EXACT_BINARY), TARGETS)
def test_binary_functions_broadcast_exactly(data, shape, dtype, function, target) -> None:
    other = [1 if data.draw(st.booleans()) else d for d in shape][data.draw(st.integers(0, len(shape))) :]
    x, y = array_of(data.draw, shape, dtype), array_of(data.draw, other, dtype)
    text = f"""graph g(%x: {type_text(x, dtype)}, %y: {type_text(y, dtype)}) {{
      %r = pointwise(%x, %y) {{fn={function}}}
      return "r" = %r
    }}"""
    (actual,), (expected,) = run_both(text, (x, y), target)
    assert actual.dtype == expected.dtype
    assert np.array_equal(actual, expected, equal_nan=actual.dtype.kind == "f")


@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(st.integers(0, 40), min_size=1, max_size=3), st.sampled_from(sorted(DTYPES)), TARGETS)
def test_reductions(data, shape, dtype, target) -> None:
    x = array_of(data.draw, shape, dtype)
    axis = data.draw(st.integers(0, len(shape) - 1))
    function = data.draw(st.sampled_from(["sum", "max", "min"] + (["argmax", "argmin"] if shape[axis] else [])))
    text = f"""graph g(%x: {type_text(x, dtype)}) {{
      %r = reduce(%x) {{fn={function}, axes=[{axis}], keepdims=false}}
      return "r" = %r
    }}"""
    (actual,), (expected,) = run_both(text, (x,), target)
    if function == "sum" and dtype[0] == "f":
        finite = np.isfinite(expected)
        assert np.array_equal(np.isnan(actual), np.isnan(expected))
        tolerance = {"f16": 2e-3, "f32": 1e-4, "f64": 1e-12}[dtype]
        scale = float(np.abs(x[np.isfinite(x)].astype(np.float64)).sum()) + 1
        assert np.all(
            np.abs(actual[finite].astype(np.float64) - expected[finite].astype(np.float64)) <= tolerance * scale
        )
    else:
        assert np.array_equal(actual, expected, equal_nan=actual.dtype.kind == "f")


@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from(["f32", "i64", "u8"]), TARGETS)
def test_chains_of_index_like_ops(data, shape, dtype, target) -> None:
    x = array_of(data.draw, shape, dtype)
    lines, name, sizes = [], "%x", list(shape)
    for step in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["transpose", "slice", "reshape", "pad", "concat"]))
        rank = len(sizes)
        if kind == "transpose":
            perm = data.draw(st.permutations(range(rank)))
            lines.append(f"transpose({name}) {{perm={list(perm)}}}")
            sizes = [sizes[p] for p in perm]
        elif kind == "slice":
            axis = data.draw(st.integers(0, rank - 1))
            first = data.draw(st.integers(0, sizes[axis] - 1))
            step_size = data.draw(st.sampled_from([1, 2, -1, -2]))
            limit = sizes[axis] if step_size > 0 else -1
            starts, limits, steps = [0] * rank, list(sizes), [1] * rank
            starts[axis], limits[axis], steps[axis] = first, limit, step_size
            lines.append(f"slice({name}) {{starts={starts}, limits={limits}, steps={steps}}}")
            sizes[axis] = len(range(first, limit, step_size))
        elif kind == "reshape":
            sizes = (
                [int(np.prod(sizes[:1])), int(np.prod(sizes[1:]))]
                if data.draw(st.booleans())
                else [int(np.prod(sizes))]
            )
            lines.append(f"reshape({name}) {{shape={sizes}}}")
        elif kind == "pad":
            low, high = ([data.draw(st.integers(0, 2)) for _ in sizes] for _ in range(2))
            lines.append(f"pad({name}) {{low={low}, high={high}, value=3.0}}")
            sizes = [a + b + c for a, b, c in zip(low, sizes, high)]
        else:
            axis = data.draw(st.integers(0, rank - 1))
            lines.append(f"concat({name}, {name}) {{axis={axis}}}")
            sizes[axis] *= 2
        name = f"%v{step}"
    body = "\n".join(f"%v{step} = {line}" for step, line in enumerate(lines))
    (actual,), (expected,) = run_both(
        f'graph g(%x: {type_text(x, dtype)}) {{\n{body}\nreturn "r" = {name}\n}}', (x,), target
    )
    assert actual.shape == tuple(sizes)
    assert np.array_equal(actual, expected, equal_nan=dtype == "f32")


@pytest.mark.parametrize("target", ["", "x86-64-v3", "generic"])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_products(target, data) -> None:
    m, k, n = (data.draw(st.integers(0, 50)) for _ in range(3))
    batch = data.draw(st.integers(1, 3))
    x, y = (array_of(data.draw, s, "i32") for s in ((batch, m, k), (k, n)))
    text = f"""graph g(%x: {type_text(x, "i32")}, %y: {type_text(y, "i32")}) {{
      %r = matmul(%x, %y)
      return "r" = %r
    }}"""
    (actual,), (expected,) = run_both(text, (x, y), target)
    assert np.array_equal(actual, expected)
