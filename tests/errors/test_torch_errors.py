"""Models and requests that cannot be compiled: the message names the node, the reason and the way out."""

from __future__ import annotations

import pytest

import cuvil

torch = pytest.importorskip("torch")


def compile_error(model, spec) -> str:
    with pytest.raises(cuvil.CompileError) as info:
        cuvil.compile(model, input_spec=spec)
    return str(info.value)


def test_unsupported_operators_are_all_listed() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.cholesky(x @ x.T + torch.eye(3)), torch.linalg.qr(x).Q, torch.linalg.qr(x + 1).Q

    message = compile_error(Model(), [("x", torch.randn(3, 3))])
    assert "aten.linalg_cholesky_ex" in message
    assert "aten.linalg_qr.default" in message
    assert message.count("linalg_qr") >= 3
    assert "split the model" in message


def test_export_failure_names_the_way_out() -> None:
    message = compile_error(lambda x: x + 1 if x.sum() > 0 else x, [("x", torch.randn(3))])
    assert "torch.export cannot export" in message
    assert "exportable" in message


def test_mutation_is_refused() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x + self.count

    assert "changes buffer 'count' in place" in compile_error(Counter(), [("x", torch.randn(1))])
    assert "changes input" in compile_error(lambda x: x.mul_(2), [("x", torch.randn(1))])


def test_sizes_that_depend_on_data() -> None:
    message = compile_error(torch.unique, [("x", torch.randn(5))])
    assert "not supported" in message or "cannot export" in message


def test_complex_numbers() -> None:
    compile_error(lambda x: x * 2, [("x", torch.randn(3, dtype=torch.complex64))])


@pytest.mark.parametrize(("spec", "words"), [
    ("x", "must be a list"),
    ([("x",)], "must be (name, example) or (name, shape, dtype)"),
    ([(1, torch.zeros(1))], "must be (name, example)"),
    ([("x", 3, "float32")], "shape must be a tuple"),
    ([("x", (2, -1), "float32")], "must not be negative"),
    ([("x", (2, 1.5), "float32")], "a number, a name or None"),
    ([("x", torch.zeros(1)), ("x", torch.zeros(1))], "'x' twice"),
    ([("x", (2,), "float33")], "no element type 'float33'"),
])  # fmt: skip
def test_input_spec(spec, words: str) -> None:
    assert words in compile_error(lambda *x: x[0] + 1, spec)


def test_not_a_model() -> None:
    with pytest.raises(cuvil.CompileError, match="cannot compile a int"):
        cuvil.compile(3)


def test_unknown_target() -> None:
    with pytest.raises(cuvil.CompileError, match="x86-64-v3"):
        cuvil.compile(lambda x: x + 1, input_spec=[("x", torch.zeros(1))], target="z80")


def test_text_errors_carry_their_place() -> None:
    from cuvil import cuvil_native

    with pytest.raises(cuvil.CompileError, match="line 2, column"):
        cuvil_native.parse_graph("graph g() {\n  nonsense\n}")
