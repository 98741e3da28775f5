"""Calls that do not fit: each is a clear exception, and the model still works after it."""

from __future__ import annotations

import numpy as np
import pytest

import cuvil

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def fast():
    spec = [("x", ("n", 4), "float32"), ("i", torch.zeros(2).long())]
    function = cuvil.compile(lambda x, i: (x.sum(0), x[i]), input_spec=spec)
    yield function
    x = torch.randn(3, 4)
    assert torch.equal(function(x, torch.tensor([2, 0]))[1], x[[2, 0]])


X, INDEX = torch.randn(3, 4), torch.tensor([0, 1])


def test_wrong_dtype(fast) -> None:
    with pytest.raises(cuvil.InputError, match="input 'x': expected dtype f32, got f64"):
        fast(X.double(), INDEX)


def test_wrong_size() -> None:
    linear = cuvil.compile(torch.nn.Linear(4, 2), input_spec=[("x", torch.zeros(3, 4))])
    with pytest.raises(cuvil.ShapeError, match=r"input 'x': expected f32\[3, 4\], got f32\[3, 5\]"):
        linear(torch.randn(3, 5))
    assert linear(torch.randn(3, 4)).shape == (3, 2)


def test_wrong_rank(fast) -> None:
    with pytest.raises(cuvil.InputError, match="rank"):
        fast(torch.randn(3, 4, 1), INDEX)


def test_too_few_and_too_many(fast) -> None:
    with pytest.raises((cuvil.InputError, TypeError)):
        fast(X)
    with pytest.raises((cuvil.InputError, TypeError)):
        fast(X, INDEX, INDEX)


def test_not_a_tensor(fast) -> None:
    with pytest.raises((cuvil.InputError, TypeError)):
        fast("x", INDEX)
    with pytest.raises((cuvil.InputError, TypeError)):
        fast(None, INDEX)


def test_not_in_host_memory(fast) -> None:
    with pytest.raises(cuvil.InputError, match="meta") as caught:
        fast(X.to("meta"), INDEX)
    assert "\n" not in str(caught.value)  # PyTorch's own stack trace is left out


def test_index_outside_its_axis(fast) -> None:
    for bad in (3, -4, 10**12):
        with pytest.raises(cuvil.InputError, match="outside an axis of size 3"):
            fast(X, torch.tensor([0, bad]))


def test_unknown_name(fast) -> None:
    with pytest.raises(cuvil.InputError, match="no input 'z'"):
        fast(X, z=INDEX)
    with pytest.raises(cuvil.InputError, match="missing input 'i'"):
        fast(x=X)
    with pytest.raises(cuvil.InputError, match="given twice"):
        fast(X, INDEX, x=X)


def test_numpy_arguments_that_need_a_copy(fast) -> None:
    x = np.asfortranarray(X.numpy())
    total, rows = fast(x, INDEX.numpy())
    np.testing.assert_allclose(total, X.numpy().sum(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(rows, X.numpy()[[0, 1]])
    big_endian = X.numpy().astype(">f4")
    with pytest.raises((cuvil.InputError, TypeError)):
        fast(big_endian, INDEX)


def test_runs(fast) -> None:
    with pytest.raises(ValueError, match="positive"):
        fast.profile(X, INDEX, runs=0)


@pytest.mark.parametrize("index", [0, 1, -1])
def test_element_of_an_axis_that_is_too_short(index: int) -> None:
    for function in (lambda x: x[index], lambda x: x.narrow(0, 0, 1 + abs(index)).sum()):
        fast = cuvil.compile(lambda x, f=function: f(x) + x.sum(), input_spec=[("x", (None,), "float32")])
        torch.testing.assert_close(fast(torch.ones(4)), function(torch.ones(4)) + 4)
        with pytest.raises(ValueError, match="outside an axis of size 0"):
            fast(torch.ones(0))
