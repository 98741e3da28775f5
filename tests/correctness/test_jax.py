"""JAX functions and modules."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")

import jax.numpy as jnp  # noqa: E402

import cuvil  # noqa: E402


def close(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_a_jitted_function_with_sizes_that_vary():
    @jax.jit
    def f(x, y):
        return jnp.tanh(x @ y).sum(axis=1)

    y = jnp.ones((4, 3)) * 0.3
    fast = cuvil.compile(f, input_spec=[("x", ("n", 4), "float32"), ("y", y)])
    for n in (1, 5):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        close(fast(x, np.asarray(y)), f(x, y))


def test_trees_are_kept_and_results_are_arrays_of_jax():
    def f(tree):
        return {"sum": tree["a"] + tree["b"][0], "pair": (tree["a"] * 2, tree["b"][1])}

    tree = {"a": jnp.arange(3.0), "b": [jnp.ones(3), jnp.zeros(2)]}
    fast = cuvil.compile(f, input_spec=[("tree", tree)])
    result = fast(tree)
    assert isinstance(result["sum"], jax.Array)
    close(result["sum"], f(tree)["sum"])
    close(result["pair"][0], f(tree)["pair"][0])


def test_compiled_at_the_first_call():
    fast = cuvil.compile(lambda x: jax.nn.softmax(x) * 2)
    x = jnp.asarray([1.0, 2.0, 4.0])
    close(fast(x), jax.nn.softmax(x) * 2)


def test_control_flow():
    def f(x):
        return jax.lax.fori_loop(0, 5, lambda i, v: v * 0.5 + i, x), jax.lax.while_loop(
            lambda v: v.sum() < 100, lambda v: v * 2 + 1, x
        )

    x = jnp.asarray([1.0, 2.0])
    for actual, expected in zip(cuvil.compile(f, input_spec=[("x", x)])(x), f(x)):
        close(actual, expected)


def test_complex_numbers():
    x = jnp.asarray([1 + 2j, 3 - 1j, 0.5j, 2.0], jnp.complex64)
    fast = cuvil.compile(jnp.fft.fft, input_spec=[("x", x)])
    close(fast(x), jnp.fft.fft(x))


def test_a_module_of_flax():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
            self.out = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            return self.out(nnx.relu(self.conv(x)).mean(axis=(1, 2)))

    net = Net(nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
    close(cuvil.compile(net, input_spec=[("x", x)])(x), net(x))


def test_what_jax2onnx_cannot_convert_is_refused():
    with pytest.raises(cuvil.CompileError, match="jax2onnx cannot convert"):
        cuvil.compile(lambda x: jax.pure_callback(np.sin, x, x), input_spec=[("x", jnp.eye(3))])
