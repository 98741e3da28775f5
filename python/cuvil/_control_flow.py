"""Branches and loops that depend on data, as operators that torch.export carries through: ``if_op`` and ``loop_op``.

Unlike PyTorch's own ``cond`` and ``while_loop``, a loop's values may change their sizes and be stacked: sizes that
differ become symbols. The functions must not change their operands in place.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.utils import reenter_make_fx, unique_graph_id
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)
from torch.utils import _pytree as pytree

from cuvil._errors import CompileError

Function = Callable[..., Sequence[Any]]


class IfOp(HigherOrderOperator):
    """``if_op(condition, then, otherwise, operands)``: the outputs (tensors) of one of two functions."""

    def __init__(self) -> None:
        super().__init__("cuvil_if")

    def __call__(self, condition: Any, then: Function, otherwise: Function, operands: Tuple[Any, ...]) -> Any:
        return super().__call__(condition, then, otherwise, operands)


class LoopOp(HigherOrderOperator):
    """``loop_op(body, trips, condition, carried, operands, rows)``.

    ``body(trip, *carried, *operands)`` gives a condition, the carried values and ``rows`` more tensors; it runs while
    the condition holds, at most ``trips`` times. The results are the carried values and the stacks of the rows.
    """

    def __init__(self) -> None:
        super().__init__("cuvil_loop")

    def __call__(
        self, body: Function, trips: Any, condition: Any, carried: Tuple[Any, ...], operands: Tuple[Any, ...], rows: int
    ) -> Any:
        return super().__call__(body, trips, condition, carried, operands, rows)


if_op = IfOp()
loop_op = LoopOp()


@contextlib.contextmanager
def _unbound_symbols(mode: Any) -> Iterator[None]:
    """Symbols made inside need no node that binds them: they belong to a region."""
    if mode.shape_env is None:
        yield
    else:
        with mode.shape_env.ignore_fresh_unbacked_symbols():
            yield


@contextlib.contextmanager
def without_tracing(values: Any) -> Iterator[None]:
    """What is computed inside leaves no nodes."""
    with disable_proxy_modes_tracing(), _unbound_symbols(_fake_mode(values)):
        yield


def _fake_mode(values: Any) -> Any:
    mode = torch._guards.detect_fake_mode(pytree.tree_leaves(values))
    if mode is None:
        raise CompileError("control flow that depends on data is traced outside of torch.export")
    return mode


_TYPICAL_SIZE = 61
"""Where PyTorch must decide something of a size that depends on data, it decides as for this one. As for all sizes that
vary, 0 and 1 are not special then."""


def _new_size(mode: Any) -> Any:
    size = mode.shape_env.create_unbacked_symint()
    torch._check_is_size(size)
    mode.shape_env.set_real_tensor_prop_unbacked_vals(size.node.expr, _TYPICAL_SIZE)
    return size


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    ours = a.node.expr if isinstance(a, torch.SymInt) else a
    theirs = b.node.expr if isinstance(b, torch.SymInt) else b
    return bool(ours == theirs)


def has_local_symbols(size: Any, known: Any) -> bool:
    if not isinstance(size, torch.SymInt):
        return False
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(size) - known)


def known_symbols(values: Any) -> Any:
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    leaves = [v for v in pytree.tree_leaves(values) if isinstance(v, (torch.Tensor, torch.SymInt))]
    return set(free_unbacked_symbols(leaves))


def _check_kind(a: torch.Tensor, b: torch.Tensor, what: str) -> None:
    if a.dtype != b.dtype or a.dim() != b.dim():
        raise CompileError(f"{what}: {a.dtype} of rank {a.dim()}, and {b.dtype} of rank {b.dim()}")


def _empty(mode: Any, sizes: Sequence[Any], like: torch.Tensor) -> Any:
    with mode:
        return torch.empty(list(sizes), dtype=like.dtype, device=like.device)


@if_op.py_impl(DispatchKey.CompositeExplicitAutograd)
def _if_dense(condition: Any, then: Function, otherwise: Function, operands: Tuple[Any, ...]) -> Any:
    return tuple((then if bool(condition) else otherwise)(*operands))


@if_op.py_autograd_impl
def _if_autograd(condition: Any, then: Function, otherwise: Function, operands: Tuple[Any, ...]) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return if_op(condition, then, otherwise, operands)


@if_op.py_functionalize_impl
def _if_functional(ctx: Any, condition: Any, then: Function, otherwise: Function, operands: Tuple[Any, ...]) -> Any:
    with ctx.redispatch_to_next():
        result = if_op(
            ctx.unwrap_tensors(condition),
            ctx.functionalize(then),
            ctx.functionalize(otherwise),
            ctx.unwrap_tensors(operands),
        )
        return ctx.wrap_tensors(result)


def _outputs_of(graph: Any) -> List[Any]:
    outputs = pytree.arg_tree_leaves(*next(iter(reversed(graph.graph.nodes))).args)
    return [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in outputs]


def kinds_of(outputs: List[Any]) -> List[Any]:
    return [(t.dtype, t.dim()) if isinstance(t, torch.Tensor) else t for t in outputs]


@if_op.py_impl(FakeTensorMode)
def _if_fake(mode: Any, condition: Any, then: Function, otherwise: Function, operands: Tuple[Any, ...]) -> Any:
    with mode, _unbound_symbols(mode):
        ours, theirs = list(then(*operands)), list(otherwise(*operands))
        if kinds_of(ours) != kinds_of(theirs):
            # By now each function knows what the other one gives, and can give the same kinds of values.
            ours, theirs = list(then(*operands)), list(otherwise(*operands))
    return _merged(mode, ours, theirs, operands)


def _merged(mode: Any, ours: List[Any], theirs: List[Any], operands: Any) -> Any:
    if len(ours) != len(theirs):
        raise CompileError(f"the branches give structures of {len(ours)} and {len(theirs)} tensors; they must be alike")
    known = known_symbols(operands)
    results = []
    for number, (a, b) in enumerate(zip(ours, theirs)):
        _check_kind(a, b, f"the branches give value {number} different types")
        sizes = [
            s if _same(s, t) and not has_local_symbols(s, known) else _new_size(mode) for s, t in zip(a.shape, b.shape)
        ]
        results.append(_empty(mode, sizes, a))
    return tuple(results)


@if_op.py_impl(ProxyTorchDispatchMode)
def _if_traced(mode: Any, condition: Any, then: Function, otherwise: Function, operands: Tuple[Any, ...]) -> Any:
    graphs = [reenter_make_fx(then)(*operands), reenter_make_fx(otherwise)(*operands)]
    if kinds_of(_outputs_of(graphs[0])) != kinds_of(_outputs_of(graphs[1])):
        graphs = [reenter_make_fx(then)(*operands), reenter_make_fx(otherwise)(*operands)]
    number, name = unique_graph_id(mode, prefix="then_graph")
    mode.tracer.root.register_module(name, graphs[0])
    mode.tracer.root.register_module(f"else_graph_{number}", graphs[1])
    args = (condition, *graphs, operands)
    proxies = pytree.tree_map(mode.tracer.unwrap_proxy, args)
    proxy = mode.tracer.create_proxy("call_function", if_op, proxies, {}, name="cuvil_if")
    with disable_proxy_modes_tracing():
        result = if_op(condition, graphs[0], graphs[1], operands)
    return track_tensor_tree(result, proxy, constant=None, tracer=mode.tracer)


@loop_op.py_impl(DispatchKey.CompositeExplicitAutograd)
def _loop_dense(
    body: Function, trips: Any, condition: Any, carried: Tuple[Any, ...], operands: Tuple[Any, ...], rows: int
) -> Any:
    values, stacks, trip = list(carried), [[] for _ in range(rows)], 0  # type: ignore[var-annotated]
    while trip < int(trips) and bool(condition):
        condition, *rest = body(torch.tensor(trip), *values, *operands)
        values = rest[: len(values)]
        for stack, row in zip(stacks, rest[len(values) :]):
            stack.append(row)
        trip += 1
    return (*values, *(torch.stack(stack) for stack in stacks))


@loop_op.py_autograd_impl
def _loop_autograd(*args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return loop_op(*args)


@loop_op.py_functionalize_impl
def _loop_functional(ctx: Any, body: Function, *args: Any) -> Any:
    with ctx.redispatch_to_next():
        return ctx.wrap_tensors(loop_op(ctx.functionalize(body), *(ctx.unwrap_tensors(a) for a in args)))


def _settle(mode: Any, body: Function, carried: Sequence[Any], operands: Sequence[Any]) -> Tuple[List[Any], Any, Any]:
    """Carried values whose sizes hold for every trip, those sizes that vary, and the body's outputs for them."""
    settled = [_empty(mode, v.shape, v) for v in carried]
    varying: List[List[str]] = [[""] * v.dim() for v in carried]
    # Sizes that are equal before the loop and after each trip are equal throughout.
    symbols: Dict[str, Any] = {}
    trip = _empty(mode, (), torch.empty((), dtype=torch.int64, device="meta")).to("cpu")
    known = known_symbols((carried, operands))
    while True:
        with mode:
            outputs = list(body(trip, *settled, *operands))
        changed = False
        for number, (before, after) in enumerate(zip(settled, outputs[1:])):
            _check_kind(before, after, f"value {number} that the loop carries changes its type")
            sizes = list(before.shape)
            for axis, size in enumerate(sizes):
                if varying[number][axis] or _same(size, after.shape[axis]):
                    continue
                key = f"{carried[number].shape[axis]} {size} {after.shape[axis]}"
                varying[number][axis], changed = key, True
                sizes[axis] = symbols[key] = symbols[key] if key in symbols else _new_size(mode)
            settled[number] = _empty(mode, sizes, before)
        if not changed:
            return [trip, *settled], (varying, known), outputs


def _loop_results(mode: Any, settled: Any, carried: Sequence[Any], rows: int) -> Tuple[Any, ...]:
    _, (varying, known), outputs = settled
    results = []
    symbols = {key: _new_size(mode) for keys in varying for key in keys if key}
    for value, keys in zip(carried, varying):
        sizes = [symbols[key] if key else size for size, key in zip(value.shape, keys)]
        results.append(_empty(mode, sizes, value))
    count = _new_size(mode) if rows else 0
    for row in outputs[len(outputs) - rows :] if rows else []:
        own = [_new_size(mode) if has_local_symbols(size, known) else size for size in row.shape]
        results.append(_empty(mode, [count, *own], row))
    return tuple(results)


@loop_op.py_impl(FakeTensorMode)
def _loop_fake(
    mode: Any,
    body: Function,
    trips: Any,
    condition: Any,
    carried: Tuple[Any, ...],
    operands: Tuple[Any, ...],
    rows: int,
) -> Any:
    with _unbound_symbols(mode):
        settled = _settle(mode, body, carried, operands)
    return _loop_results(mode, settled, carried, rows)


@loop_op.py_impl(ProxyTorchDispatchMode)
def _loop_traced(
    mode: Any,
    body: Function,
    trips: Any,
    condition: Any,
    carried: Tuple[Any, ...],
    operands: Tuple[Any, ...],
    rows: int,
) -> Any:
    fake = _fake_mode((carried, operands, condition))
    with disable_proxy_modes_tracing(), _unbound_symbols(fake):
        settled = _settle(fake, body, carried, operands)
    graph = reenter_make_fx(body)(*settled[0], *operands)
    _, name = unique_graph_id(mode, prefix="loop_graph")
    mode.tracer.root.register_module(name, graph)
    proxies = pytree.tree_map(mode.tracer.unwrap_proxy, (graph, trips, condition, carried, operands, rows))
    proxy = mode.tracer.create_proxy("call_function", loop_op, proxies, {}, name="cuvil_loop")
    with disable_proxy_modes_tracing():
        result = _loop_results(fake, settled, carried, rows)
    return track_tensor_tree(result, proxy, constant=None, tracer=mode.tracer)
