"""The primitives that write by index or sort: compiled and by the reference evaluator, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.processor import runnable_targets

import cuvil
from cuvil import cuvil_native as native

DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u64": np.uint64,
    "bool": np.bool_,
}
FOLDS = {None: None, "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def run(text: str, *arrays: np.ndarray, target: str = "") -> np.ndarray:
    """The only result: compiled for one to three threads, each time the same bits as the reference's."""
    (reference,) = native.parse_graph(text).evaluate(list(arrays))
    reference = np.asarray(reference)
    compiled = native.compile(native.parse_graph(text), **({"target": target} if target else {}))
    before = native.num_threads()
    try:
        for threads in (1, 2, 3):
            native.set_num_threads(threads, True)
            mine = np.asarray(compiled.run(*arrays))
            assert mine.dtype == reference.dtype
            assert mine.shape == reference.shape
            assert np.array_equal(mine, reference, equal_nan=mine.dtype.kind == "f"), text
    finally:
        native.set_num_threads(before)
    return reference


def graph(result: str, *types: str) -> str:
    inputs = ", ".join(f"%x{i}: {t}" for i, t in enumerate(types))
    return f'graph g({inputs}) {{\n  %y = {result}\n  return "y" = %y\n}}\n'


def type_of(array: np.ndarray) -> str:
    name = next(name for name, dtype in DTYPES.items() if array.dtype == dtype)
    return f"{name}[{', '.join(map(str, array.shape))}]"


def random(shape, dtype: str, seed: int = 0) -> np.ndarray:
    """Small whole numbers, so that every order of folding gives the same bits."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    low = 0 if dtype.startswith("u") else -3
    return rng.integers(low, 4, shape).astype(DTYPES[dtype])


def scattered(x, index, updates, axis: int, fold: str | None, elements: bool) -> np.ndarray:
    """In plain steps, in the order of the updates."""
    y = x.copy()
    for at in np.ndindex(updates.shape):
        if elements:
            place = (*at[:axis], index[at], *at[axis + 1 :])
        else:
            middle = at[axis : axis + index.ndim]
            place = (*at[:axis], index[middle], *at[axis + index.ndim :])
        y[place] = updates[at] if fold is None else FOLDS[fold](y[place], updates[at])
    return y


def attributes(axis: int, fold: str | None) -> str:
    return f"{{axis={axis}" + (f", fn={fold}}}" if fold else "}")


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter(dtype: str, fold: str | None) -> None:
    if dtype == "bool" and fold in {"sum", "prod"}:
        pytest.skip("bool combines by max and min")
    x = random((3, 5, 37), dtype)
    rng = np.random.default_rng(1)
    for axis, where in itertools.product(range(3), ((), (1,), (4, 3))):
        n = x.shape[axis]
        index = rng.integers(-n, n, where)  # with duplicates and negative ones
        updates = random((*x.shape[:axis], *where, *x.shape[axis + 1 :]), dtype, 2)
        text = graph(f"scatter(%x0, %x1, %x2) {attributes(axis, fold)}", *map(type_of, (x, index, updates)))
        np.testing.assert_array_equal(
            run(text, x, index, updates), scattered(x, index, updates, axis, fold, elements=False)
        )


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("fold", FOLDS)
def test_scatter_elements(fold: str | None, target: str) -> None:
    rng = np.random.default_rng(3)
    for shape, smaller in (((7, 5), (7, 5)), ((4, 6, 70), (3, 9, 65)), ((50,), (33,)), ((2, 3), (0, 3))):
        for axis in range(len(shape)):
            dims = [m if i == axis else min(m, n) for i, (n, m) in enumerate(zip(shape, smaller))]
            x = random(shape, "f32")
            index = rng.integers(-shape[axis], shape[axis], dims).astype(np.int32)
            updates = random(dims, "f32", 4)
            text = graph(
                f"scatter_elements(%x0, %x1, %x2) {attributes(axis, fold)}", *map(type_of, (x, index, updates))
            )
            np.testing.assert_array_equal(
                run(text, x, index, updates, target=target), scattered(x, index, updates, axis, fold, elements=True)
            )


def test_sums_are_taken_in_order() -> None:
    """Numbers whose sum depends on the order, many of them to one place."""
    rng = np.random.default_rng(5)
    x, updates = np.zeros((4, 33), np.float32), rng.standard_normal((1000, 33)).astype(np.float32)
    index = rng.integers(0, 4, 1000)
    text = graph("scatter(%x0, %x1, %x2) {axis=0, fn=sum}", *map(type_of, (x, index, updates)))
    np.testing.assert_array_equal(run(text, x, index, updates), scattered(x, index, updates, 0, "sum", elements=False))


def test_scatter_keeps_nan() -> None:
    x = np.array([1, np.nan, 3], np.float32)
    index, updates = np.array([0, 1, 2]), np.array([np.nan, 5, 2], np.float32)
    for fold, wanted in (("max", [np.nan, np.nan, 3]), ("min", [np.nan, np.nan, 2]), ("sum", [np.nan, np.nan, 5])):
        text = graph(f"scatter(%x0, %x1, %x2) {attributes(0, fold)}", *map(type_of, (x, index, updates)))
        np.testing.assert_array_equal(run(text, x, index, updates), np.array(wanted, np.float32))


def test_scatter_of_dynamic_sizes() -> None:
    text = """graph g(%x: f32[n, 3], %i: i64[m], %u: f32[m, 3]) symbols(n in 0.., m in 0..) {
  %y = scatter(%x, %i, %u) {axis=0, fn=sum}
  return "y" = %y
}
"""
    for n, m in ((4, 9), (1, 1), (5, 0), (0, 0)):
        x, updates = random((n, 3), "f32"), random((m, 3), "f32", 1)
        index = np.random.default_rng(n).integers(-n, n, m) if n else np.zeros(0, np.int64)
        np.testing.assert_array_equal(
            run(text, x, index, updates), scattered(x, index, updates, 0, "sum", elements=False)
        )


def test_scatter_between_other_kernels() -> None:
    """Computed data, indices and updates; the result goes into a border and a concatenation."""
    text = """graph g(%x: f32[4, 6], %i: i64[3], %u: f32[3, 6]) {
  %one = constant() {value=dense<i64[]: 1>}
  %half = constant() {value=dense<f32[]: 0.5>}
  %data = pointwise(%x, %x) {fn=mul}
  %index = pointwise(%i, %one) {fn=sub}
  %update = pointwise(%u, %half) {fn=mul}
  %s = scatter(%data, %index, %update) {axis=0}
  %t = scatter(%s, %i, %u) {axis=0, fn=sum}
  %z = pointwise(%t, %half) {fn=add}
  %y = concat(%s, %z, %s) {axis=1}
  return "y" = %y
}
"""
    x, index, updates = random((4, 6), "f32"), np.array([1, 3, 1]), random((3, 6), "f32", 1)
    s = scattered(x * x, index - 1, updates / 2, 0, None, elements=False)
    t = scattered(s, index, updates, 0, "sum", elements=False)
    np.testing.assert_array_equal(run(text, x, index, updates), np.concatenate([s, t + np.float32(0.5), s], 1))


def test_index_outside_its_axis() -> None:
    text = graph("scatter(%x0, %x1, %x2) {axis=0}", "f32[3, 8]", "i64[2]", "f32[2, 8]")
    function = native.compile(native.parse_graph(text))
    x, updates = random((3, 8), "f32"), random((2, 8), "f32")
    for bad in (3, -4, 10**12):
        with pytest.raises(cuvil.InputError, match=f"index {bad} lies outside an axis of size 3"):
            function.run(x, np.array([0, bad]), updates)
    function.run(x, np.array([0, -3]), updates)


def keys(shape, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if not dtype.startswith("f"):
        info = np.iinfo(DTYPES[dtype])
        wide = rng.integers(info.min, info.max, shape, DTYPES[dtype], endpoint=True)
        few = rng.integers(0, 3, shape).astype(DTYPES[dtype])
        return np.where(rng.random(shape) < 0.5, wide, few)
    x = rng.standard_normal(shape).astype(DTYPES[dtype])
    special = np.array([0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, 1], DTYPES[dtype])
    return np.where(rng.random(shape) < 0.3, special[rng.integers(0, len(special), shape)], x)


def order_of(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Stable; NumPy puts NaN last, which is where the largest belongs."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    back = np.flip(x, axis)
    return x.shape[axis] - 1 - np.flip(np.argsort(back, axis, kind="stable"), axis)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_indices(dtype: str) -> None:
    for shape in ((3,), (5, 31), (4, 300), (40, 33, 2)):
        for axis, descending in itertools.product(range(len(shape)), (False, True)):
            x = keys(shape, dtype)
            n = shape[axis]
            wanted = order_of(x, axis, descending)
            for count in {0, 1, min(n, 7), n}:
                text = graph(
                    f"sort_indices(%x0) {{axis={axis}, count={count}, descending={str(descending).lower()}}}",
                    type_of(x),
                )
                np.testing.assert_array_equal(run(text, x), wanted.take(range(count), axis))


def test_sort_of_dynamic_sizes() -> None:
    text = """graph g(%x: f32[n, m]) symbols(n in 0.., m in 0..) {
  %y = sort_indices(%x) {axis=1, count=m, descending=false}
  return "y" = %y
}
"""
    for n, m in ((3, 5), (2, 33), (1, 1), (2, 500), (4, 0), (0, 4)):
        x = keys((n, m), "f32")
        np.testing.assert_array_equal(run(text, x), order_of(x, 1, False))


def test_sort_of_a_view() -> None:
    text = """graph g(%x: f32[40, 6]) {
  %t = transpose(%x) {perm=[1, 0]}
  %s = slice(%t) {starts=[0, 1], limits=[6, 39], steps=[1, 1]}
  %y = sort_indices(%s) {axis=1, count=38, descending=false}
  return "y" = %y
}
"""
    x = keys((40, 6), "f32")
    np.testing.assert_array_equal(run(text, x), order_of(x.T[:, 1:39], 1, False))


def test_more_asked_for_than_there_is() -> None:
    text = """graph g(%x: f32[n]) symbols(n in 0..) {
  %y = sort_indices(%x) {axis=0, count=4, descending=false}
  return "y" = %y
}
"""
    function = native.compile(native.parse_graph(text))
    assert np.asarray(function.run(np.arange(9, dtype=np.float32))).tolist() == [0, 1, 2, 3]
    with pytest.raises(cuvil.InputError, match="index 3 lies outside an axis of size 2"):
        function.run(np.zeros(2, np.float32))


def test_large_enough_for_several_threads() -> None:
    x = keys((64, 3000), "f32")
    text = graph("sort_indices(%x0) {axis=1, count=3000, descending=true}", type_of(x))
    np.testing.assert_array_equal(run(text, x), order_of(x, 1, True))
    data, updates = random((50, 4096), "f32"), random((200, 4096), "f32", 1)
    index = np.random.default_rng(2).integers(-50, 50, (200, 4096))
    text = graph("scatter_elements(%x0, %x1, %x2) {axis=0, fn=sum}", *map(type_of, (data, index, updates)))
    wanted = data.copy()
    np.add.at(wanted, (index, np.arange(4096)), updates)
    np.testing.assert_array_equal(run(text, data, index, updates), wanted)


def test_gather_from_an_axis_that_turns_out_empty() -> None:
    torch = pytest.importorskip("torch")  # whose empty tensors have no address at all
    for index, shape in (("i64[5]", "5, 3"), ("i64[]", "3")):
        text = f"""graph g(%x: f32[n, 3], %i: {index}) symbols(n in 0..) {{
  %y = gather(%x, %i) {{axis=0}} : f32[{shape}]
  return "y" = %y
}}
"""
        function = native.compile(native.parse_graph(text))
        indices = torch.zeros(5 if "5" in index else (), dtype=torch.int64)
        function.run(torch.ones(2, 3), indices)
        with pytest.raises(cuvil.InputError, match="index 0 lies outside an axis of size 0"):
            function.run(torch.ones(0, 3), indices)
