"""Chains of kernels that run band by band of rows: right for any number of threads, with the same bits."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cuvil  # noqa: E402

# A named target counts on a slow L3, so chains form whatever this machine is.
TARGETS = ["x86-64-v3", "x86-64-v4"]


class InvertedBottleneck(torch.nn.Module):
    def __init__(self, channels, expanded, stride, kernel=3, residual=True):
        super().__init__()
        self.expand = torch.nn.Conv2d(channels, expanded, 1)
        self.depthwise = torch.nn.Conv2d(expanded, expanded, kernel, stride, kernel // 2, groups=expanded)
        self.project = torch.nn.Conv2d(expanded, channels, 1)
        self.residual = residual and stride == 1

    def forward(self, x):
        y = torch.nn.functional.relu6(self.expand(x))
        y = self.project(torch.nn.functional.relu6(self.depthwise(y)))
        return x + y if self.residual else y


def compiled(model, x, target, **options):
    return cuvil.compile(model, input_spec=[("x", x)], target=target, **options)


def has_bands(function):
    return any("bands" in line for line in function.explain(loops=True).splitlines())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("channels", "expanded", "stride", "kernel", "size"),
    [(8, 144, 1, 3, (56, 56)), (8, 96, 2, 3, (113, 90)), (4, 96, 1, 5, (83, 77)), (8, 192, 2, 5, (57, 70))],
)
def test_right_with_the_same_bits_for_any_number_of_threads(target, channels, expanded, stride, kernel, size):
    torch.manual_seed(0)
    model = InvertedBottleneck(channels, expanded, stride, kernel).eval()
    x = torch.randn(1, channels, *size)
    with torch.no_grad():
        expected = model(x)
    try:
        function = compiled(model, x, target)
    except cuvil.CompileError as error:
        pytest.skip(str(error))
    assert has_bands(function)
    results = []
    before = cuvil.get_num_threads()
    try:
        for threads in (1, 2, 3):
            cuvil.set_num_threads(threads)
            results.append(function(x))
    finally:
        cuvil.set_num_threads(before)
    torch.testing.assert_close(results[0], expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())
    assert all(torch.equal(results[0], result) for result in results[1:])


def test_any_batch():
    torch.manual_seed(0)
    model = InvertedBottleneck(8, 144, 1).eval()
    function = cuvil.compile(model, input_spec=[("x", ("n", 8, 56, 56), "float32")], target="x86-64-v3")
    assert has_bands(function)
    for batch in (1, 2, 5, 0):
        x = torch.randn(batch, 8, 56, 56)
        with torch.no_grad():
            torch.testing.assert_close(function(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_images_that_read_of_each_other(target):
    # New numbers for each run: what an earlier one left in the arena would hide a row that is read too soon.
    def numbers(seed):
        return torch.randint(0, 9, (40, 64, 256), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)

    try:
        function = compiled(lambda x: torch.cumsum(x.flip(0), 0), numbers(0), target)
    except cuvil.CompileError as error:
        pytest.skip(str(error))
    before = cuvil.get_num_threads()
    try:
        for threads in (1, 2, 3):
            cuvil.set_num_threads(threads)
            for seed in range(5):
                assert torch.equal(function(numbers(seed)), torch.cumsum(numbers(seed).flip(0), 0))
    finally:
        cuvil.set_num_threads(before)
