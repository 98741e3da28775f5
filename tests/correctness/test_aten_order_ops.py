"""ATen operators that read or write by position, and those that put elements in order, against PyTorch itself."""

from __future__ import annotations

import numpy as np
import pytest

import cuvil
from cuvil import cuvil_native as native

torch = pytest.importorskip("torch")

NAN = float("nan")
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool]


def whole(*shape: int, seed: int = 0, dtype=torch.float32):
    """Small whole numbers: sums and products of a few are exact in every dtype."""
    low, high = (0, 2) if dtype == torch.bool else (0, 3) if dtype == torch.uint8 else (-2, 3)
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def keys(*shape: int, seed: int = 0, dtype=torch.float32):
    """With equal elements and, in floats, NaN, infinities and both zeros."""
    x = whole(*shape, seed=seed, dtype=dtype)
    if not dtype.is_floating_point:
        return x
    special = torch.tensor([NAN, float("inf"), -float("inf"), -0.0, 0.5, 0.25]).to(dtype)
    pick = torch.randint(0, 12, shape, generator=torch.Generator().manual_seed(seed + 1))
    return torch.where(pick < len(special), special[pick.clamp(max=len(special) - 1)], x)


def positions(*shape: int, size: int, seed: int = 0, negative: bool = False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-size if negative else 0, size, shape, generator=generator)


def bits(tensor):
    return tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor


def check(function, *inputs, dynamic=None, values_only: bool = False) -> None:
    """The same numbers, for one to three threads and by the reference evaluator."""
    spec = [(f"x{i}", x) for i, x in enumerate(inputs)] if dynamic is None else dynamic
    fast = cuvil.compile(function, input_spec=spec)
    expected = function(*inputs)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    reference = [np.asarray(a) for a in fast._source._imported.graph.evaluate(list(inputs))]
    before = native.num_threads()
    try:
        for threads in (1, 2, 3):
            native.set_num_threads(threads, True)
            actual = fast(*inputs)
            actual = list(actual) if isinstance(actual, (tuple, list)) else [actual]
            assert len(actual) == len(expected) == len(reference)
            for i, (mine, by_reference, wanted) in enumerate(zip(actual, reference, expected)):
                assert mine.dtype == wanted.dtype
                assert mine.shape == wanted.shape
                assert np.array_equal(bits(mine).numpy(), by_reference.view(bits(mine).numpy().dtype), equal_nan=True)
                if i == 0 or not values_only:
                    torch.testing.assert_close(mine, wanted, rtol=0, atol=0, equal_nan=True)
    finally:
        native.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter(dtype) -> None:
    x, source = whole(6, 9, 4, dtype=dtype), whole(5, 7, 4, seed=1, dtype=dtype)
    # Without duplicates: PyTorch does not say which of them wins.
    index = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i))[:5] for i in range(12)])
    index = index.reshape(3, 4, 5).permute(0, 2, 1)
    check(lambda x, i, s: torch.scatter(x, 1, i, s), x, index, source)
    check(lambda x, i: torch.scatter(x, -2, i, 1), x, index)
    if dtype not in {torch.bool, torch.float16, torch.bfloat16}:
        many = positions(5, 7, 4, size=9, seed=2)
        for reduce in ("add", "multiply"):
            check(lambda x, i, s, r=reduce: torch.scatter(x, 1, i, s, reduce=r), x, many, source)
            check(lambda x, i, r=reduce: torch.scatter(x, 1, i, 2, reduce=r), x, many)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_add(dtype) -> None:
    x, source = whole(6, 9, dtype=dtype), whole(30, 9, seed=1, dtype=dtype)
    check(lambda x, i, s: torch.scatter_add(x, 0, i, s), x, positions(25, 8, size=6), source)
    check(lambda x, i, s: torch.scatter_add(x, 0, i, s), x, positions(0, 8, size=6), source)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_scatter_reduce(dtype, reduce: str, include_self: bool) -> None:
    x, source = whole(6, 9, dtype=dtype), whole(10, 9, seed=1, dtype=dtype)
    index = positions(10, 9, size=5, seed=2)

    def function(x, index, source):
        return torch.scatter_reduce(x, 0, index, source, reduce, include_self=include_self)

    check(function, x, index, source)
    if reduce in {"amax", "amin"} and dtype.is_floating_point:
        check(function, keys(6, 9), index, keys(10, 9, seed=3))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(reduce: str) -> None:
    x, source, index = whole(6, 9), whole(6, 4, seed=1), torch.tensor([3, 0, 3, 8])
    for include_self in (True, False):
        check(lambda x, i, s, n=include_self: torch.index_reduce(x, 1, i, s, reduce, include_self=n), x, index, source)


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_add_copy_fill(dtype) -> None:
    x, source, index = whole(5, 6, 7, dtype=dtype), whole(5, 4, 7, seed=1, dtype=dtype), torch.tensor([5, 0, 2, 0])
    check(lambda x, i, s: torch.index_add(x, 1, i, s), x, index, source)
    if dtype != torch.bool:
        check(lambda x, i, s: torch.index_add(x, -2, i, s, alpha=2), x, index, source)
    distinct = torch.tensor([5, 0, 2, 4], dtype=torch.int64)
    check(lambda x, i, s: torch.index_copy(x, 1, i, s), x, distinct, source)
    check(lambda x, i: torch.index_fill(x, 1, i, 1), x, index)
    check(lambda x, i, v: torch.index_fill(x, 0, i, v), x, torch.tensor([-1]), whole(seed=3, dtype=dtype))


def test_rank_0_and_empty() -> None:
    x, one = torch.tensor(2.5), torch.tensor([0])
    check(lambda x, i, s: torch.scatter(x, 0, i, s), x, torch.tensor(0), torch.tensor(4.0))
    check(lambda x, i, s: torch.scatter_add(x, 0, i, s), x, one, torch.tensor([4.0]))
    check(lambda x, i, s: torch.index_add(x, 0, i, s), x, one, torch.tensor(4.0))
    check(lambda x, i: torch.index_fill(x, 0, i, 3.0), x, one)
    none = torch.zeros(0, dtype=torch.int64)
    check(lambda x, i, s: torch.index_add(x, 0, i, s), whole(3, 4), none, whole(0, 4))
    check(lambda x, i, v: torch.index_put(x, (i,), v), whole(3, 4), none, torch.tensor(1.0))
    for function in (torch.sort, torch.msort, torch.argsort, torch.median, torch.nanmedian, torch.mode):
        check(lambda x, f=function: tuple(f(x)) if f in {torch.sort, torch.mode} else f(x), x)
    check(lambda x: tuple(torch.topk(x, 1)), x)
    check(lambda x: tuple(torch.kthvalue(x, 1)), x)
    check(lambda x: tuple(torch.sort(x, 1)), whole(3, 0))
    check(lambda x: tuple(torch.topk(x, 0)), whole(3, 4))


def test_index() -> None:
    x = whole(4, 5, 6, 7)
    i, j = positions(3, 1, size=5, negative=True), positions(2, size=4, seed=1, negative=True)
    check(lambda x, i: x[:, i], x, i)
    check(lambda x, i, j: x[j, i], x, i, j)
    check(lambda x, i, j: x[:, i, j], x, i, j)
    check(lambda x, i, j: x[j, :, i], x, i, j)  # with a slice between: the index's axes come first
    check(lambda x, i, j: x[:, i, :, j], x, i, j)
    check(lambda x, i, j: x[j, i, 2], x, i, j)
    check(torch.take, x, positions(3, 4, size=840, negative=True))


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool) -> None:
    x = whole(4, 5, 6, 7)
    i, j = torch.tensor([[4], [-4], [2]]), torch.tensor([1, -1])
    if accumulate:
        i = torch.tensor([[4], [-1], [2]])

    def put(*axes):
        return lambda x, i, j, v: torch.ops.aten.index_put(x, axes_of(axes, i, j), v, accumulate)

    def axes_of(axes, i, j):
        return [{"i": i, "j": j, None: None}[axis] for axis in axes]

    check(put("j", "i"), x, i, j, whole(3, 2, 6, 7, seed=1))
    check(put("j", "i"), x, i, j, torch.tensor(3.0))
    check(put("j", "i"), x, i, j, whole(2, 1, 7, seed=1))
    check(put(None, "i", "j"), x, i, j, whole(4, 3, 2, 7, seed=1))
    check(put("j", None, "i"), x, i, j, whole(3, 2, 5, 7, seed=1))
    check(put(None, "i", None, "j"), x, i, j, whole(3, 2, 4, 6, seed=1))
    check(put(None, None, "j"), x, i, j, whole(7, seed=1))
    source = whole(6, seed=2)
    place = torch.tensor([[0, -1], [839, 4], [5, 0]]) if accumulate else torch.tensor([[0, -1], [8, 4], [5, 6]])
    check(lambda x, i, s: torch.ops.aten.put(x, i, s, accumulate), x, place, source)


def test_put_by_mask() -> None:
    x, mask = whole(4, 5, 6), whole(4, 5, dtype=torch.bool)

    def assign(x, mask, values):
        x = x.clone()
        x[mask] = values
        return x

    check(assign, x, mask, torch.tensor(7.0))
    check(assign, x, mask, whole(6, seed=1))
    check(assign, x, mask, whole(1, 6, seed=1))
    check(assign, x, whole(4, 5, 6, dtype=torch.bool), torch.tensor([7.0]))
    check(
        lambda x, m, v: torch.ops.aten.index_put(x, [None, m], v, True),
        x,
        whole(5, 6, dtype=torch.bool),
        torch.tensor(2.0),
    )
    check(torch.masked_scatter, x, whole(4, 5, 6, seed=3, dtype=torch.bool), whole(150, seed=1))
    check(torch.masked_scatter, x, whole(6, seed=3, dtype=torch.bool), whole(10, 12, seed=1))


def test_parts_replaced() -> None:
    x = whole(4, 6, 5)
    check(lambda x, s: torch.slice_scatter(x, s, 1, 1, 4), x, whole(4, 3, 5, seed=1))
    check(lambda x, s: torch.slice_scatter(x, s, 1, -5, 1000, 2), x, whole(4, 3, 5, seed=1))
    check(lambda x, s: torch.slice_scatter(x, s, 0), x, whole(4, 6, 5, seed=1))
    check(lambda x, s: torch.select_scatter(x, s, -1, -2), x, whole(4, 6, seed=1))
    for offset, rows in ((0, 4), (1, 4), (-2, 2)):
        check(lambda x, s, o=offset: torch.diagonal_scatter(x, s, o), x, whole(5, rows, seed=1))
    check(lambda x, s: torch.diagonal_scatter(x, s, 1, 2, 0), x, whole(6, 3, seed=1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sort(dtype) -> None:
    x = keys(7, 40, 3, dtype=dtype)
    for dim in (0, 1, -1):
        for descending in (False, True):
            check(lambda x, d=dim, r=descending: tuple(torch.sort(x, dim=d, descending=r, stable=True)), x)
            check(lambda x, d=dim, r=descending: torch.argsort(x, dim=d, descending=r, stable=True), x)
    check(lambda x: tuple(torch.sort(x)), x, values_only=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_top_k(dtype) -> None:
    if dtype == torch.bool:
        pytest.skip("PyTorch has none for bool")
    x = keys(7, 40, dtype=dtype)
    for k in (1, 5, 40):
        for largest in (True, False):
            check(lambda x, k=k, a=largest: tuple(torch.topk(x, k, 1, a)), x, values_only=True)
            check(lambda x, k=k, a=largest: tuple(torch.topk(x, min(k, 7), 0, a)), x, values_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_ranks(dtype) -> None:
    x = keys(7, 41, dtype=dtype)
    for keep in (False, True):
        check(lambda x, n=keep: tuple(torch.kthvalue(x, 5, 1, n)), x, values_only=True)
        check(lambda x, n=keep: tuple(torch.median(x, 0, n)), x, values_only=True)
        check(lambda x, n=keep: tuple(torch.nanmedian(x, 1, n)), x, values_only=True)
        check(lambda x, n=keep: tuple(torch.mode(x, 1, n)), whole(9, 31, dtype=dtype), values_only=True)
    finite = whole(6, 10, dtype=dtype)
    check(torch.median, finite)
    check(torch.median, x)
    check(torch.nanmedian, x)
    if dtype.is_floating_point:
        check(torch.nanmedian, torch.full((4,), NAN, dtype=dtype))


def test_histogram() -> None:
    x = torch.randn(500, generator=torch.Generator().manual_seed(0))
    check(lambda x: torch.histc(x, 10, -1, 1), x)
    check(lambda x: torch.histc(x, 7), x)
    check(lambda x: torch.histc(x, 5), torch.ones(9))
    check(lambda x: torch.histc(x, 4, 0, 4), torch.tensor([0.0, 1, 4, 4.5, -1, NAN, 3.999]))


@pytest.mark.parametrize("size", [0, 1, 7, 64, 65, 300])
def test_search(size: int) -> None:
    table = torch.sort(whole(3, size) * 0.5)[0]
    values = torch.cat([whole(3, 40, seed=1) * 0.25, torch.tensor([[NAN, float("inf"), -float("inf")]] * 3)], 1)
    order = torch.argsort(whole(3, size, seed=2))
    for right in (False, True):
        check(lambda t, v, r=right: torch.searchsorted(t, v, right=r), table, values)
        check(lambda t, v, r=right: torch.searchsorted(t, v, out_int32=r, side="right" if r else "left"), table, values)
        check(
            lambda t, v, o, r=right: torch.searchsorted(t, v, right=r, sorter=o), whole(3, size, seed=2), values, order
        )
        check(lambda t, v, r=right: torch.bucketize(v, t, right=r), table[0], values)
    check(lambda t: torch.searchsorted(t, 1), table[0].long())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_running_extremum(dtype) -> None:
    for x in (keys(4, 19, 3, dtype=dtype), whole(4, 19, 3, seed=5, dtype=dtype), whole(dtype=dtype)):
        for dim in range(x.dim()):
            check(lambda x, d=dim: tuple(torch.cummax(x, d)), x)
            check(lambda x, d=dim: tuple(torch.cummin(x, d)), x)


def test_dynamic_sizes() -> None:
    def function(x, index, source):
        y = torch.scatter_add(x, 0, index, source)
        return y, torch.sort(y, dim=0, stable=True)[1], y.index_add(0, index[:, 0], source)

    spec = [("x", ("n", 4), "float32"), ("i", ("m", 4), "int64"), ("s", ("m", 4), "float32")]
    fast = cuvil.compile(function, input_spec=spec)
    for n, m in ((3, 5), (70, 200), (2, 9)):
        inputs = whole(n, 4), positions(m, 4, size=n), whole(m, 4, seed=1)
        for mine, wanted in zip(fast(*inputs), function(*inputs)):
            torch.testing.assert_close(mine, wanted, rtol=0, atol=0)


def test_index_outside_its_axis() -> None:
    x = whole(4, 5)
    add = cuvil.compile(lambda x, i: torch.index_add(x, 0, i, x), input_spec=[("x", x), ("i", positions(4, size=4))])
    put = cuvil.compile(
        lambda x, i, j: torch.index_put(x, (i, j), x[0, 0]),
        input_spec=[("x", x), ("i", positions(2, size=4)), ("j", positions(2, size=5))],
    )
    pick = cuvil.compile(
        lambda x, i, j: x[i, j], input_spec=[("x", x), ("i", positions(2, size=4)), ("j", positions(2, size=5))]
    )
    with pytest.raises(cuvil.InputError, match="index 4 lies outside an axis of size 4"):
        add(x, torch.tensor([0, 1, 4, 2]))
    for function in (put, pick):
        # Each index against its own axis: together they would still be inside.
        with pytest.raises(cuvil.InputError, match="index 6 lies outside an axis of size 5"):
            function(x, torch.tensor([0, 1]), torch.tensor([6, 0]))
        with pytest.raises(cuvil.InputError, match="index -6 lies outside an axis of size 5"):
            function(x, torch.tensor([2, 1]), torch.tensor([0, -6]))


def test_sizes_that_depend_on_data_are_refused() -> None:
    mask = whole(4, 5, dtype=torch.bool)
    with pytest.raises(cuvil.CompileError, match="for each place of a boolean index"):
        cuvil.compile(
            lambda x, m, v: torch.index_put(x, (m,), v),
            input_spec=[("x", whole(4, 5)), ("m", mask), ("v", whole(int(mask.sum())))],
        )
