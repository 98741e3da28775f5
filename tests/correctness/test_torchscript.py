"""TorchScript: traced and scripted models, control flow on sizes and on data, lists, state, exceptions."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import cuvil  # noqa: E402


def check(model, *calls, **options):
    """Compiles the model (at its first call, or by ``input_spec``) and compares calls with its own."""
    compiled = cuvil.compile(model, **options)
    for arguments in calls:
        with torch.no_grad():
            expected = model(*(a.clone() if isinstance(a, torch.Tensor) else a for a in arguments))
        torch.testing.assert_close(compiled(*arguments), expected, rtol=1e-4, atol=1e-5)
    return compiled


def scripted(module):
    torch.manual_seed(0)
    return torch.jit.script(module().eval())


class Convolutions(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Conv2d(3, 4, 3, padding=1),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Dropout(),
            torch.nn.Linear(4, 5),
        )


@pytest.mark.parametrize("form", [torch.jit.script, lambda m: torch.jit.trace(m, torch.randn(2, 3, 16, 16))])
def test_convolutions(form) -> None:
    x = torch.randn(2, 3, 16, 16)
    check(form(Convolutions().eval()), (x,))


def test_training_mode_counts_as_evaluation() -> None:
    model = torch.jit.script(Convolutions())
    compiled = cuvil.compile(model, input_spec=[("x", (1, 3, 8, 8), "float32")])
    assert isinstance(compiled, type(cuvil.compile(lambda x: x, input_spec=[("x", (1,), "float32")])))
    x = torch.randn(1, 3, 8, 8)
    torch.testing.assert_close(compiled(x), model.eval()(x), rtol=1e-4, atol=1e-5)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)
        self.lstm = torch.nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(12, 5)

    def forward(self, x):
        y, (h, c) = self.lstm(self.embedding(x))
        return self.gru(y)[0], h, c


@pytest.mark.parametrize("form", [torch.jit.script, lambda m: torch.jit.trace(m, torch.randint(0, 10, (2, 5)))])
def test_recurrent(form) -> None:
    check(form(Recurrent().eval()), (torch.randint(0, 10, (2, 5)),))


def test_transformer_layer() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    check(torch.jit.script(layer), (torch.randn(2, 5, 16),))


def test_sizes_in_a_traced_model_stay_sizes() -> None:
    class Flat(torch.nn.Module):
        def forward(self, x):
            b, c = x.shape[0], x.shape[1]
            return x.view(b * c, -1).softmax(-1).view(b, c, -1).transpose(1, 2)

    traced = torch.jit.trace(Flat(), torch.randn(2, 5, 4))
    compiled = cuvil.compile(traced, input_spec=[("x", ("b", "c", 4), "float32")])
    for shape in ((2, 5, 4), (1, 3, 4), (6, 1, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), traced(x))


@torch.jit.script
def on_shape(x):
    if x.size(0) > 4:
        return x.sum(0)
    return x.mean(0)


def test_branch_on_a_shape() -> None:
    check(on_shape, (torch.randn(3, 2),))
    check(on_shape, (torch.randn(6, 2),))


def test_branch_on_a_size_that_varies() -> None:
    calls = [(torch.randn(n, 3),) for n in (2, 4, 5, 9, 1)]
    check(on_shape, *calls, input_spec=[("x", ("n", 3), "float32")])


@torch.jit.script
def squeezes_one(x):
    if x.size(0) == 1:
        return x.squeeze(0) * 2
    return x.sum(0)


def test_way_that_sizes_of_two_and_more_cannot_take() -> None:
    compiled = check(squeezes_one, *((torch.randn(n, 3),) for n in (2, 5)), input_spec=[("x", ("n", 3), "float32")])
    with pytest.raises(cuvil.InputError, match="assumed to be 2 or more"):
        compiled(torch.randn(1, 3))
    check(squeezes_one, (torch.randn(1, 3),))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x, mask: Optional[torch.Tensor] = None):
        y, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.norm(x + y)


def test_attention_with_sizes_that_vary() -> None:
    calls = [(torch.randn(t, b, 8),) for t, b in ((3, 2), (5, 1), (4, 4))]
    check(scripted(Attention), *calls, input_spec=[("x", ("t", "b", 8), "float32")])
    check(scripted(Attention), (torch.randn(5, 2, 8), torch.zeros(5, 5)))


class Tripled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


@torch.jit.interface
class Part(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class UsesPart(torch.nn.Module):
    __annotations__ = {"part": Part}

    def __init__(self):
        super().__init__()
        self.part = Tripled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part.forward(x) + 1


def test_interface() -> None:
    check(torch.jit.script(UsesPart()), (torch.randn(3),))


def test_frozen_and_optimised() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    check(torch.jit.freeze(torch.jit.script(model)), (x,))
    optimised = torch.jit.optimize_for_inference(torch.jit.script(model))
    with pytest.raises(cuvil.CompileError, match="optimize_for_inference"):
        cuvil.compile(optimised, input_spec=[("x", x)])


class Optionals(torch.nn.Module):
    def forward(self, x, y: Optional[torch.Tensor] = None, scale: float = 2.0, flag: bool = False):
        if y is not None:
            x = x + y
        if flag:
            x = -x
        return x * scale


def test_optional_arguments() -> None:
    model = torch.jit.script(Optionals())
    x, y = torch.randn(3), torch.randn(3)
    for arguments in ((x,), (x, y), (x, None, 0.5), (x, y, 3.0, True)):
        check(model, arguments)
    compiled = cuvil.compile(model)
    torch.testing.assert_close(compiled(x, flag=True), model(x, flag=True))


class Structures(torch.nn.Module):
    def forward(
        self, pair: Tuple[torch.Tensor, torch.Tensor], named: Dict[str, torch.Tensor], many: List[torch.Tensor]
    ):
        total = pair[0] * pair[1]
        for item in many:
            total = total + item
        result: Dict[str, torch.Tensor] = {}
        for name, value in named.items():
            result[name + "_new"] = value + total
        return result, (total, many[0]), [pair[0]]


def test_lists_dicts_tuples() -> None:
    a, b, c = torch.randn(3), torch.randn(3), torch.randn(3)
    model = torch.jit.script(Structures())
    arguments = ((a, b), {"p": c, "q": a}, [b, c])
    torch.testing.assert_close(cuvil.compile(model)(*arguments), model(*arguments))


class Items(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x):
        items = []
        for i in range(x.size(0)):
            if i % 2 == 0:
                items.append(self.linear(x[i]))
        items.reverse()
        return torch.stack(items), len(items)


def test_list_that_a_known_loop_fills() -> None:
    compiled = cuvil.compile(scripted(Items))
    x = torch.randn(5, 3)
    expected = scripted(Items)(x)
    actual = compiled(x)
    torch.testing.assert_close(actual[0], expected[0])
    assert actual[1] == expected[1] == 3


@torch.jit.script
def in_place(x):
    y = x.clone()
    y[0] = 3.0
    y[:, 1] += x[:, 0]
    y.mul_(2)
    y.view(-1)[2:4].fill_(-1.0)
    return y


def test_changes_in_place() -> None:
    check(in_place, (torch.randn(3, 4),))


# Control flow that depends on data


@torch.jit.script
def on_data(x):
    if bool(x.sum() > 0):
        y, n = x + 1, 2
    else:
        y, n = x * 2, 3
    return y * n


def test_branch_on_data() -> None:
    check(on_data, (torch.ones(3),), (-torch.ones(3),), input_spec=[("x", (3,), "float32")])


class Halving(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        i = 0
        while bool(x.abs().sum() > 0.1) and i < 20:
            x = self.linear(x) * 0.5
            i += 1
        return x, torch.tensor(i)


def test_loop_on_data() -> None:
    check(scripted(Halving), (torch.randn(2, 3),), (torch.zeros(2, 3),), (100 * torch.randn(2, 3),))


@torch.jit.script
def nested(x):
    for _ in range(3):
        if bool(x.sum() > 1):
            x = x - 0.5
            while bool(x.max() > 0.7):
                x = x * 0.9
        else:
            x = x + 0.5
    return x


def test_nested_control_flow() -> None:
    check(nested, *((torch.rand(4) * scale,) for scale in (0, 1, 5)))


@torch.jit.script
def rows(x, n):
    out = []
    for i in range(int(n)):
        x = x * 0.5 + i
        out.append(x)
    return torch.stack(out), torch.cat(out, 0)


def test_list_that_a_loop_on_data_fills() -> None:
    x = torch.randn(2, 3)
    check(rows, *((x, torch.tensor(n)) for n in (1, 4, 7)))


class Steps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(4, 6)

    def forward(self, x):
        h, c = torch.zeros(x.size(1), 6), torch.zeros(x.size(1), 6)
        out = []
        for t in range(x.size(0)):
            h, c = self.cell(x[t], (h, c))
            out.append(h)
        return torch.stack(out) + x[:, :, :1], (h, c)


def test_loop_over_a_size_that_varies() -> None:
    calls = [(torch.randn(t, b, 4),) for t, b in ((3, 2), (5, 1), (1, 4))]
    check(scripted(Steps), *calls, input_spec=[("x", ("t", "b", 4), "float32")])


@torch.jit.script
def collected(x, n: int):
    tokens: List[int] = []
    states: List[torch.Tensor] = []
    found: Optional[torch.Tensor] = None
    while bool(x.sum() > 0.5) and len(tokens) < n:
        x = x * 0.5
        tokens.append(int(x.sum() * 10))
        states.append(x)
    if len(tokens) > 1:
        found = torch.tensor(tokens)
    return tokens, states, found, float(x[0]), x.size(0)


def test_results_that_are_no_tensors() -> None:
    calls = [(torch.ones(3) * scale, 4) for scale in (0.01, 0.5, 1.0, 100.0)]
    check(collected, *calls)


@torch.jit.script
def growing(x, n):
    y = x
    for i in range(int(n)):
        y = torch.cat([y, x * i], 0)
    return y


def test_value_that_grows_in_a_loop() -> None:
    x = torch.randn(2, 3)
    check(growing, *((x, torch.tensor(n)) for n in (0, 1, 5)))


@torch.jit.script
def changes_in_branch(x, k):
    y = x.clone()
    if bool(k > 1):
        y[0] = 7.0
        y += 1
    else:
        y.mul_(3.0)
    return y


def test_changes_in_place_in_a_branch() -> None:
    x = torch.randn(3, 2)
    check(changes_in_branch, (x, torch.tensor(1)), (x, torch.tensor(2)))


@torch.jit.script
def numbers(x, k):
    n = int(k)
    f = float(k) * 0.5
    return x[:n], x * n, x + f, x.new_zeros(n + 1)


def test_numbers_of_data() -> None:
    x = torch.randn(5, 2)
    check(numbers, *((x, torch.tensor(k)) for k in (0, 2, 5)))


@torch.jit.script
def breaks(x, limit):
    s = torch.zeros(3)
    for i in range(10):
        if bool(x[i % 3] > limit):
            break
        if i % 2 == 0:
            continue
        s = s + x * i
    return s


@torch.jit.script
def returns_early(x):
    for _ in range(5):
        x = x * 1.5
        if bool(x.sum() > 10):
            return x
    return -x


def test_break_and_return_on_data() -> None:
    x = torch.tensor([0.5, 1.0, 2.0])
    check(breaks, *((x, torch.tensor(limit)) for limit in (-1.0, 0.75, 5.0)))
    check(returns_early, *((torch.ones(3) * scale,) for scale in (0.1, 1.0, 5.0)))


class Decoder(torch.nn.Module):
    """Greedy decoding until a token, by a recurrent cell and by attention to a sequence that grows."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 8)
        self.cell = torch.nn.GRUCell(8, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = torch.nn.Linear(8, 11)


class RecurrentDecoder(Decoder):
    def forward(self, state, tokens):
        last = tokens[:, -1]
        out = [last]
        i = 0
        while i < 12:
            state = self.cell(self.embedding(last), state)
            last = self.head(state).argmax(-1)
            out.append(last)
            i += 1
            if bool((last == 3).all()):
                break
        return torch.stack(out, 1)


class AttentiveDecoder(Decoder):
    def forward(self, state, tokens):
        for _ in range(6):
            if bool((tokens[:, -1] == 3).all()):
                break
            features = self.layer(self.embedding(tokens))
            tokens = torch.cat([tokens, self.head(features[:, -1]).argmax(-1, keepdim=True)], 1)
        return tokens


@pytest.mark.parametrize("decoder", [RecurrentDecoder, AttentiveDecoder])
def test_greedy_decoding(decoder) -> None:
    state = torch.randn(1, 8)
    check(scripted(decoder), *((state * k, torch.tensor([[k, k + 1, k]])) for k in range(6)))


@torch.jit.script
def sets_rows(x, n):
    y = torch.zeros(4, 3)
    z = y
    for i in range(int(n)):
        y[i] = x * i
        z[-1] += 1
    return y


def test_rows_set_in_a_loop_on_data() -> None:
    x = torch.randn(3)
    check(sets_rows, *((x, torch.tensor(n)) for n in (0, 1, 4)))


@torch.jit.script
def sometimes_none(x, y: Optional[torch.Tensor] = None):
    z: Optional[torch.Tensor] = None
    if bool(x.sum() > 0):
        z = x * 2
    if z is not None:
        return z + 1
    return x


def test_none_on_one_way() -> None:
    check(sometimes_none, (torch.ones(3),), (-torch.ones(3),), input_spec=[("x", (3,), "float32")])


def test_changes_that_cannot_be_followed() -> None:
    @torch.jit.script
    def through_a_list(x):
        items = [x * 1, x * 2]
        if bool(x.sum() > 0):
            items[0].add_(1)
        return items[0] + x

    @torch.jit.script
    def through_a_view(x):
        y = x * 1
        v = y.view(-1)
        z = y
        if bool(x.sum() > 0):
            v.add_(1)
            z = y * 2
        return z, v

    for function in (through_a_list, through_a_view):
        with pytest.raises(cuvil.CompileError, match=r"prim::If.*in place"):
            cuvil.compile(function, input_spec=[("x", (3,), "float32")])


class WithoutGradients(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad():
            y = x + 1
        future = torch.jit.fork(torch.relu, y)
        return torch.jit.wait(future) + 1


def test_no_grad_and_fork() -> None:
    check(scripted(WithoutGradients), (torch.randn(3),))


def needs_script(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def test_function_that_export_cannot_take() -> None:
    check(needs_script, (torch.ones(3),), (-torch.ones(3),), input_spec=[("x", (3,), "float32")])


def test_both_errors_are_told() -> None:
    def bad(x):
        if x.sum() > 0:
            return eval("x + 1")
        return x

    with pytest.raises(cuvil.CompileError, match=r"(?s)torch\.export cannot export.*TorchScript.*torch\.jit\.script"):
        cuvil.compile(bad, input_spec=[("x", (3,), "float32")])


# torch.export's own operators


class Checked(torch.nn.Module):
    def forward(self, x, k, z):
        n = k.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0])
        y = x[:n]
        return torch.cat([y, y * 2]) + z


def test_what_export_assumes_of_run_time_sizes_is_checked() -> None:
    auto = {0: torch.export.Dim.AUTO}
    x, z = torch.randn(6, 3), torch.randn(4, 3)
    program = torch.export.export(Checked(), (x, torch.tensor(2), z), dynamic_shapes=(auto, None, auto))
    compiled = cuvil.compile(program)
    torch.testing.assert_close(compiled(x, torch.tensor(2), z), Checked()(x, torch.tensor(2), z))
    for k in (3, 7, -1):
        with pytest.raises(cuvil.InputError):
            compiled(x, torch.tensor(k), z)


class Cond(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos() + 1, (x,))


class CondOnSize(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.shape[0] > 4, lambda v: v.sin(), lambda v: v.cos() + 1, (x,))


def test_cond() -> None:
    calls = [(torch.ones(3),), (-torch.ones(3),)]
    check(Cond(), *calls)
    dim = torch.export.Dim("n", min=2, max=64)
    program = torch.export.export(CondOnSize(), (torch.randn(3),), dynamic_shapes=({0: dim},))
    compiled = cuvil.compile(program)
    for n in (3, 9):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), CondOnSize()(x))


class While(torch.nn.Module):
    def forward(self, i, x):
        return torch._higher_order_ops.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (i, x))


class WhileWithInteger(torch.nn.Module):
    def forward(self, x):
        return torch._higher_order_ops.while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x * 2 + i), (0, x))[
            1
        ]


def test_while_loop() -> None:
    check(While(), (torch.tensor(0), torch.ones(3)), (torch.tensor(7), torch.ones(3)))
    check(WhileWithInteger(), (torch.ones(3),))


# State


class Stateful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("hidden", torch.zeros(3))
        self.register_buffer("total", torch.zeros(1))
        self.register_buffer("context", torch.zeros(0))
        self.calls = 0

    def forward(self, x):
        if not len(self.context):
            self.context = torch.ones(2)
        self.hidden = self.hidden * 0.5 + x
        self.total.add_(x.sum())
        self.calls += 1
        y = torch.cat([self.context, x])
        self.context = y[-2:]
        return self.hidden + self.calls, y, self.total * 2


def test_state() -> None:
    model, other = scripted(Stateful), scripted(Stateful)
    compiled = cuvil.compile(model, input_spec=[("x", (3,), "float32")])
    inputs = [torch.randn(3) for _ in range(6)]
    first = [compiled(x) for x in inputs]
    for actual, x in zip(first, inputs):
        torch.testing.assert_close(actual, other(x))
    assert compiled.state["calls"] == 6
    assert len(compiled.variants) <= 4
    torch.testing.assert_close(compiled.state["hidden"], other.hidden)
    torch.testing.assert_close(model.hidden, torch.zeros(3))
    compiled.reset_state()
    assert compiled.state["calls"] == 0
    torch.testing.assert_close([compiled(x) for x in inputs], first)


def test_state_of_calls_with_arrays() -> None:
    other = scripted(Stateful)
    compiled = cuvil.compile(scripted(Stateful), input_spec=[("x", (3,), "float32")])
    for _ in range(4):
        x = torch.randn(3)
        actual = compiled(x.numpy())
        assert all(type(a) is np.ndarray for a in actual)
        torch.testing.assert_close(tuple(map(torch.from_numpy, actual)), other(x))


class BufferInBranch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        if bool(x.sum() > 0):
            self.total.add_(x)
        for _ in range(int(x.abs().sum())):
            self.total[0] += 1
        return self.total * 2


class StateInBranch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("peak", torch.zeros(()))

    def forward(self, x):
        if bool(x.max() > self.peak):
            self.peak = x.max()
        return x / self.peak


def test_state_set_in_a_branch_on_data() -> None:
    check(scripted(StateInBranch), *((torch.rand(4) * scale,) for scale in (1, 3, 2, 5)))
    check(scripted(BufferInBranch), *((torch.randn(3) * scale,) for scale in (1, 3, 2, 5)))


def test_silero_vad() -> None:
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        pytest.skip("the package silero-vad is not installed")
    path = Path(found.origin).parent / "data" / "silero_vad.jit"
    model, compiled = torch.jit.load(path), cuvil.compile(path)
    torch.manual_seed(0)
    time = torch.arange(512 * 40) / 16000
    voice = 0.3 * torch.sin(2 * math.pi * 220 * time) * (torch.sin(9 * time) > 0)
    chunks = (voice + 0.05 * torch.randn(512 * 40)).split(512)
    for _ in range(2):
        model.reset_states()
        compiled.reset_state()
        for chunk in chunks:
            with torch.no_grad():
                torch.testing.assert_close(compiled(chunk[None], 16000), model(chunk[None], 16000))
    assert len(compiled.variants) == 2
    with pytest.raises(cuvil.InputError, match="Input audio chunk is too short"):
        compiled(torch.zeros(1, 500), 16000)


# Files


def test_files(tmp_path) -> None:
    model = scripted(Items)
    x = torch.randn(4, 3)
    for ending in ("pt", "jit", "pth"):
        path = tmp_path / f"model.{ending}"
        model.save(str(path))
        torch.testing.assert_close(cuvil.compile(str(path))(x)[0], model(x)[0])
    torch.testing.assert_close(cuvil.compile(path)(x)[0], model(x)[0])


def test_file_without_a_program(tmp_path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.zeros(3)}, path)
    with pytest.raises(cuvil.CompileError, match=r"cannot load .*weights\.pt"):
        cuvil.compile(str(path))


def test_compiled_artifact(tmp_path) -> None:
    compiled = cuvil.compile(on_shape, input_spec=[("x", (6, 2), "float32")])
    compiled.save(tmp_path / "model.so")
    x = torch.randn(6, 2)
    torch.testing.assert_close(cuvil.load(tmp_path / "model.so")(x), on_shape(x))


# Exceptions


@torch.jit.script
def rejects_negative(x):
    if bool((x < 0).any()):
        raise ValueError("negative values")
    if x.size(0) > 100:
        raise ValueError("too long")
    return x.sqrt()


def test_exception_that_depends_on_data() -> None:
    compiled = check(rejects_negative, (torch.rand(3),), input_spec=[("x", (3,), "float32")])
    with pytest.raises(cuvil.InputError, match="negative values"):
        compiled(-torch.ones(3))


def test_exception_that_depends_on_sizes() -> None:
    with pytest.raises(cuvil.CompileError, match="too long"):
        cuvil.compile(rejects_negative, input_spec=[("x", (101,), "float32")])
    with pytest.raises(cuvil.InputError, match="too long"):
        cuvil.compile(rejects_negative)(torch.rand(101))


def test_message_names_the_node() -> None:
    @torch.jit.script
    def lists(x):
        items = [x]
        if bool(x.sum() > 0):
            items.append(x + 1)
        return items[-1]

    with pytest.raises(cuvil.CompileError, match=r"prim::If.*structures"):
        cuvil.compile(lists, input_spec=[("x", (3,), "float32")])


@torch.jit.script
def masked(x, y):
    mask = x > 0
    return x[mask], torch.nonzero(mask), y[x[:, 0] > 0], y[:, x[0] > 0] * 2, torch.masked_select(y, mask), x[mask].sum()


def test_masks_and_nonzero() -> None:
    calls = [(torch.randn(3, 4) + shift, torch.randn(3, 4)) for shift in (0, 1, -9)]
    check(masked, *calls, input_spec=[("x", (3, 4), "float32"), ("y", (3, 4), "float32")])
    check(lambda x: (x[x > 0], torch.nonzero(x)), *((x,) for x, _ in calls))
