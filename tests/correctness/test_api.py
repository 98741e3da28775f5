"""``cuvil.compile`` and CompiledFunction: forms of models, trees, sizes, threads, processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import cuvil

torch = pytest.importorskip("torch")
DIGITS = Path(cuvil.__file__).parent / "data" / "digits.onnx"


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 20, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(20)
        self.head = torch.nn.Linear(20, 7)

    def forward(self, x):
        return self.head(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


@pytest.fixture(scope="module")
def net():
    return Net().eval()


def close(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_module_function_and_exported_program(net) -> None:
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        expected = net(x)
    close(cuvil.compile(net, input_spec=[("x", x)])(x), expected)
    close(cuvil.compile(lambda v: net(v) * 2, input_spec=[("v", x)])(x), expected * 2)
    close(cuvil.compile(torch.export.export(net, (x,)))(x), expected)
    close(cuvil.compile(net)(x), expected)


def test_training_mode_is_restored(net) -> None:
    net.train()
    cuvil.compile(net, input_spec=[("x", torch.randn(1, 3, 8, 8))])
    assert net.training
    net.eval()


def test_decorators() -> None:
    @cuvil.compile
    def double(x):
        """Doubles."""
        return x * 2

    @cuvil.compile(input_spec=[("x", ("n",), "float32")])
    def triple(x):
        return x * 3

    assert double.__doc__ == "Doubles."
    with pytest.raises(cuvil.InputError, match="not been called"):
        _ = double.compiled
    x = torch.arange(4.0)
    assert torch.equal(double(x), 2 * x)
    assert double.compiled.inputs[0].shape == (4,)
    assert torch.equal(triple(x), 3 * x)
    assert torch.equal(triple(x[:3]), 3 * x[:3])


def test_onnx_path_bytes_and_proto() -> None:
    onnx = pytest.importorskip("onnx")
    images = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    by_path = cuvil.compile(DIGITS)(images)
    assert isinstance(by_path, np.ndarray)
    assert np.array_equal(by_path, cuvil.compile(str(DIGITS))(images))
    assert np.array_equal(by_path, cuvil.compile(DIGITS.read_bytes())(images))
    assert np.array_equal(by_path, cuvil.compile(onnx.load(DIGITS))(image=images))
    fixed = cuvil.compile(DIGITS, input_spec=[("image", (3, 1, 8, 8), "float32")])
    assert fixed.inputs[0].shape == (3, 1, 8, 8)
    np.testing.assert_allclose(by_path, fixed(images), rtol=1e-5, atol=1e-5)


def test_trees_survive() -> None:
    def function(pair, scale=2.0, *, extra):
        a, b = pair
        return {"sum": a + b * scale, "rest": [extra["z"] - a, (b, None, 3)]}

    fast = cuvil.compile(function)
    a, b, z = torch.randn(4), torch.randn(4), torch.randn(4)
    for _ in range(2):
        result = fast((a, b), extra={"z": z})
        expected = function((a, b), extra={"z": z})
        close(result["sum"], expected["sum"])
        close(result["rest"][0], expected["rest"][0])
        assert torch.equal(result["rest"][1][0], b)
        assert result["rest"][1][1:] == (None, 3)


def test_constants_are_compiled_in() -> None:
    fast = cuvil.compile(lambda x, n: x * n)
    x = torch.ones(2)
    assert torch.equal(fast(x, 3), 3 * x)
    with pytest.raises(cuvil.InputError, match="compiled in as 3"):
        fast(x, 4)


def test_a_new_size_compiles_once_more_and_never_again(net) -> None:
    x = torch.randn(1, 3, 8, 8)
    fast = cuvil.compile(net, input_spec=[("x", x)])
    close(fast(x), net(x))
    builds = []
    build = fast._build
    fast._build = lambda: builds.append(1) or build()
    for n in (2, 5, 1, 3):
        x = torch.randn(n, 3, 8, 8)
        close(fast(x), net(x))
    assert len(builds) == 1
    x = torch.randn(2, 3, 10, 12)
    close(fast(x), net(x))
    assert len(builds) == 2


def test_dynamic_batch(net) -> None:
    fast = cuvil.compile(net, input_spec=[("x", ("batch", 3, 8, 8), "float32")])
    assert fast.inputs[0].shape[1:] == (3, 8, 8)
    for n in (1, 2, 3, 7):
        x = torch.randn(n, 3, 8, 8)
        close(fast(x), net(x))
    assert fast(torch.randn(0, 3, 8, 8)).shape == (0, 7)


def test_same_kind_of_tensor_comes_back(net) -> None:
    x = torch.randn(1, 3, 8, 8)
    fast = cuvil.compile(net, input_spec=[("x", x)])
    assert isinstance(fast(x), torch.Tensor)
    assert isinstance(fast(x.numpy()), np.ndarray)
    assert isinstance(fast(x.requires_grad_()), torch.Tensor)


def test_outputs_do_not_share_memory() -> None:
    fast = cuvil.compile(lambda x: (x, x + 1, x), input_spec=[("x", torch.zeros(3))])
    x = torch.zeros(3)
    a, b, c = fast(x)
    a += 7
    assert torch.equal(x, torch.zeros(3))
    assert torch.equal(c, torch.zeros(3))
    assert torch.equal(fast(x)[1], torch.ones(3))
    assert torch.equal(b, torch.ones(3))


def test_nan_weight_is_kept() -> None:
    linear = torch.nn.Linear(4, 3)
    with torch.no_grad():
        linear.weight[1, 2] = float("nan")
    x = torch.randn(2, 4)
    y = cuvil.compile(linear, input_spec=[("x", x)])(x)
    assert torch.equal(torch.isnan(y), torch.isnan(linear(x)))


def test_introspection(net) -> None:
    x = torch.randn(1, 3, 8, 8)
    fast = cuvil.compile(net, input_spec=[("x", x)])
    assert "conv" in fast.explain()
    assert "phase" in fast.explain(loops=True)
    assert "conv" in fast.graph()
    memory = fast.memory()
    assert memory["weight_bytes"] > 4 * 20 * 3 * 9
    assert memory["intermediate_bytes"] > 0
    profile = fast.profile(x, runs=3)
    assert profile.runs == 3
    assert len(profile.kernels) == len(fast.explain().splitlines())
    assert abs(sum(k.share for k in profile.kernels) - 1) < 1e-6
    assert "GFLOP/s" in str(profile)
    assert str(fast.inputs[0]) == "x: f32[1, 3, 8, 8]"
    assert "CompiledFunction" in repr(fast)
    assert {"transform", "lower", "codegen"} <= {step for step, _ in fast.compile_times}
    fast.trim()


def test_profile_files(net, tmp_path) -> None:
    x = torch.randn(1, 3, 8, 8)
    profile = cuvil.compile(net, input_spec=[("x", x)]).profile(x, runs=2)
    profile.chrome_trace(tmp_path / "trace.json")
    profile.html(tmp_path / "profile.html")
    assert '"ph": "X"' in (tmp_path / "trace.json").read_text(encoding="utf-8")
    assert profile.kernels[0].name in (tmp_path / "profile.html").read_text(encoding="utf-8")


THREADS = """
import hashlib, sys, torch, cuvil
from cuvil import cuvil_native
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 40, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(40, 64, 3, stride=2),
                          torch.nn.Flatten(), torch.nn.Linear(64 * 15 * 15, 50), torch.nn.Softmax(-1)).eval()
x = torch.randn(4, 3, 32, 32)
fast = cuvil.compile(net, input_spec=[("x", x)])
results = set()
for threads in (1, 2, 3):
    cuvil_native.set_num_threads(threads, True)
    for _ in range(3):
        results.add(hashlib.sha256(fast(x).numpy().tobytes()).hexdigest())
print(len(results))
"""


def test_same_bits_for_any_number_of_threads() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", THREADS], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "1"


def test_concurrent_calls(net) -> None:
    fast = cuvil.compile(net, input_spec=[("x", ("n", 3, 8, 8), "float32")])
    inputs = [torch.randn(n, 3, 8, 8) for n in (1, 2, 3, 4)]
    expected = [fast(x) for x in inputs]
    failures = []

    def work(number: int) -> None:
        for _ in range(50):
            if not torch.equal(fast(inputs[number]), expected[number]):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


FORK = """
import os, numpy as np, cuvil
fast = cuvil.compile(os.environ["MODEL"])
x = np.random.default_rng(0).random((64, 1, 8, 8), dtype=np.float32)
expected = fast(x)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(fast(x), expected) else 1)
status = os.waitpid(child, 0)[1]
print(status, np.array_equal(fast(x), expected))
"""


def test_fork() -> None:
    environment = {**os.environ, "MODEL": str(DIGITS), "CUVIL_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert run.stdout.split() == ["0", "True"]


def test_number_of_threads() -> None:
    before = cuvil.get_num_threads()
    cuvil.set_num_threads(1)
    assert cuvil.get_num_threads() == 1
    cuvil.set_num_threads(0)
    assert cuvil.get_num_threads() == before
    with pytest.raises(ValueError, match="negative"):
        cuvil.set_num_threads(-1)


def test_importing_is_light() -> None:
    code = "import sys, cuvil; print('torch' in sys.modules, 'numpy' in sys.modules, 'onnx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False", "False"]
