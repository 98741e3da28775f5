"""torch.compile(backend="cuvil"): graph breaks, sizes that vary, what is left to PyTorch."""

from __future__ import annotations

import importlib.metadata
import warnings

import pytest

torch = pytest.importorskip("torch")

import cuvil  # noqa: E402, F401
from cuvil.torch_backend import backend  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def check(model, *inputs):
    compiled = torch.compile(model, backend=backend)
    for arguments in inputs:
        torch.testing.assert_close(compiled(*arguments), model(*arguments), rtol=1e-5, atol=1e-6)
    return compiled


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) + self.shift


def test_a_module_whose_sizes_vary():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        check(Net().eval(), *[(torch.randn(n, 8),) for n in (3, 5, 7, 3, 1)])


def test_a_graph_break():
    class Broken(Net):
        def forward(self, x):
            y = torch.relu(self.first(x))
            torch._dynamo.graph_break()
            return self.second(y), y.sum()

    check(Broken().eval(), (torch.randn(3, 8),), (torch.randn(6, 8),))


def test_control_flow_on_values():
    def choose(x):
        return x * 2 if x.sum() > 0 else x - 1

    check(choose, (torch.ones(4),), (-torch.ones(4),))


def test_sizes_as_numbers_in_the_graph():
    def flat(x, n):
        return x.reshape(n, -1) * x.shape[0]

    check(flat, (torch.randn(4, 6), 2), (torch.randn(6, 6), 3), (torch.randn(8, 6), 4), (torch.randn(10, 6), 5))


def test_gradients_are_left_to_pytorch_with_a_warning():
    net = Net()
    with torch.enable_grad(), pytest.warns(RuntimeWarning, match="gradients"):
        torch.compile(net, backend=backend)(torch.randn(2, 8)).sum().backward()
    assert net.first.weight.grad is not None


def test_what_cannot_be_compiled_is_left_to_pytorch_with_a_warning():
    def svd(x):
        return torch.linalg.svdvals(x)

    with pytest.warns(RuntimeWarning, match="svd"):
        check(svd, (torch.randn(4, 4),))


def test_options_reach_the_compiler():
    net, x = Net().eval(), torch.randn(2, 8)
    strict = torch.compile(net, backend=backend, options={"precision": "strict"})
    torch.testing.assert_close(strict(x), net(x), rtol=1e-5, atol=1e-6)


def test_the_backend_is_registered_by_name():
    names = {entry.name for entry in importlib.metadata.entry_points(group="torch_dynamo_backends")}
    if "cuvil" not in names:
        pytest.skip("Cuvil is not installed, only built")
    net, x = Net().eval(), torch.randn(2, 8)
    torch.testing.assert_close(torch.compile(net, backend="cuvil")(x), net(x), rtol=1e-5, atol=1e-6)
