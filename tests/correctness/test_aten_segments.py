"""Bags of embeddings, segments and histograms, against PyTorch itself."""

from __future__ import annotations

import pytest

import cuvil

torch = pytest.importorskip("torch")
F = torch.nn.functional


def check(function, *inputs, **tolerance) -> None:
    fast = cuvil.compile(function, input_spec=[(f"x{i}", x) for i, x in enumerate(inputs)])
    actual, expected = fast(*inputs), function(*inputs)
    if isinstance(expected, torch.Tensor):
        actual, expected = [actual], [expected]
    for mine, wanted in zip(actual, expected):
        torch.testing.assert_close(mine, wanted, equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str, dtype) -> None:
    weight = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    indices = torch.randint(0, 20, (17,), generator=torch.Generator().manual_seed(1))
    offsets = torch.tensor([0, 4, 4, 9, 16])  # with an empty bag
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), weight, indices, offsets)
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=3), weight, indices, offsets)
    check(lambda w, i: F.embedding_bag(i, w, mode=mode), weight, indices[:16].reshape(4, 4))
    last = torch.tensor([0, 4, 4, 9, 17])
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, include_last_offset=True), weight, indices, last)
    if mode == "sum":
        factors = torch.randn(17, generator=torch.Generator().manual_seed(2)).to(dtype)
        check(
            lambda w, i, o, f: F.embedding_bag(i, w, o, mode=mode, per_sample_weights=f),
            weight,
            indices,
            offsets,
            factors,
        )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(reduce: str) -> None:
    data = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    lengths, offsets = torch.tensor([3, 0, 5, 2]), torch.tensor([0, 3, 3, 8, 10])
    check(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, unsafe=True), data, lengths)
    check(lambda x, n: torch.segment_reduce(x, reduce, offsets=n, unsafe=True), data, offsets)
    check(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, unsafe=True, initial=1), data, lengths)


def test_histograms() -> None:
    x = torch.randn(500, generator=torch.Generator().manual_seed(0))
    weights = torch.rand(500, generator=torch.Generator().manual_seed(1))
    edges = torch.tensor([-2.0, -0.5, 0.0, 0.25, 3.0])
    check(lambda x: torch.histogram(x, 13), x)
    check(lambda x: torch.histogram(x, 7, range=(-1.0, 2.0)), x)
    check(lambda x, w: torch.histogram(x, 7, weight=w, density=True), x, weights)
    check(torch.histogram, x, edges)
    check(torch.histogram, edges[None], edges)
