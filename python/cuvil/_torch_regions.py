"""Control flow of an exported program (``cond``, ``while_loop``, and our own ``if_op``, ``loop_op``) for the engine."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch
from torch.utils import _pytree as pytree

from cuvil._errors import CompileError

_COMPARISONS = {
    "Equality": "eq",
    "Unequality": "ne",
    "StrictLessThan": "lt",
    "LessThan": "le",
    "StrictGreaterThan": "gt",
    "GreaterThan": "ge",
}
_INTEGER: Tuple[str, List[str]] = ("int64", [])
_BOOL: Tuple[str, List[str]] = ("bool", [])


def takes(node: Any) -> bool:
    return node.target.name() in {"cond", "cuvil_if", "cuvil_loop", "while_loop"}


def control_flow(extractor: Any, node: Any) -> List[Any]:
    """The engine's nodes for a higher-order operator."""
    name = node.target.name()
    if name == "cuvil_loop":
        return _loop(extractor, node)
    return _while(extractor, node) if name == "while_loop" else _if(extractor, node)


def _value(a: Any) -> Any:
    return a.meta.get("val") if isinstance(a, torch.fx.Node) else a


def _is_tensor(a: Any) -> bool:
    return isinstance(_value(a), torch.Tensor)


def _graph_of(node: Any, argument: Any) -> Any:
    module = node.graph.owning_module
    for part in argument.target.split("."):
        module = getattr(module, part)
    return module


def _placeholders(graph: Any) -> List[Any]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _results(graph: Any) -> List[Any]:
    return list(pytree.arg_tree_leaves(*next(iter(reversed(graph.graph.nodes))).args))


def _argument(extractor: Any, a: Any) -> Any:
    if not isinstance(a, torch.fx.Node):
        raise CompileError(f"a constant {a!r} is passed where a tensor is expected")
    return ("node", extractor.name(a))


def _scalar_node(extractor: Any, name: str, value: Any) -> Any:
    """A size as a tensor."""
    size = ("size", extractor.size_text(value))
    return name, "aten.scalar_tensor.default", "", [size], {"dtype": ("dtype", "int64")}, [_INTEGER]


def _region(extractor: Any, graph: Any, inputs: Sequence[Any], outputs: List[Tuple[str, str]], body: Any) -> Any:
    entries = []
    for p in inputs:
        name = extractor.name(p)
        entries.append((name, extractor.meta(_value(p)) if _is_tensor(p) else _INTEGER, name))
    return {"symbols": [], "inputs": entries, "outputs": outputs, **body}


def _tensor_outputs(extractor: Any, node: Any, results: Sequence[Any]) -> List[Tuple[str, str]]:
    outputs = []
    for number, result in enumerate(results):
        if not isinstance(result, torch.fx.Node) or not _is_tensor(result):
            raise CompileError(f"node '{node.name}': result {number} of a branch is not a tensor")
        outputs.append((f"output{number}", extractor.name(result)))
    return outputs


def _metas(extractor: Any, node: Any) -> List[Any]:
    value = node.meta["val"]
    return [extractor.meta(item) or _INTEGER for item in (value if isinstance(value, (tuple, list)) else [value])]


def _if(extractor: Any, node: Any) -> List[Any]:
    from cuvil._torch import source_of

    condition, then, otherwise, operands = node.args
    graphs = [_graph_of(node, then), _graph_of(node, otherwise)]
    nodes, flag = _condition(extractor, node, condition)
    places = [_placeholders(graph) for graph in graphs]
    kept = [
        number
        for number, operand in enumerate(operands)
        if _is_tensor(operand) and any(inputs[number].users for inputs in places)
    ]
    regions = []
    for graph, inputs in zip(graphs, places):
        body = extractor.body(graph)
        outputs = _tensor_outputs(extractor, node, _results(graph))
        regions.append(_region(extractor, graph, [inputs[number] for number in kept], outputs, body))
    arguments = [flag, [_argument(extractor, operands[number]) for number in kept]]
    nodes.append((extractor.name(node), "if", source_of(node), arguments, {}, _metas(extractor, node), regions))
    return nodes


def _condition(extractor: Any, node: Any, condition: Any) -> Tuple[List[Any], Any]:
    """The condition as a tensor, and the nodes that compute it."""
    value = _value(condition)
    if isinstance(value, torch.Tensor):
        return [], _argument(extractor, condition)
    nodes: List[Any] = []
    if isinstance(value, torch.SymBool):
        return nodes, ("node", _predicate(value.node.expr, f"{node.name}_condition", nodes))
    raise CompileError(f"node '{node.name}': the condition is the constant {value!r}")


def _predicate(e: Any, name: str, nodes: List[Any]) -> str:
    """Adds nodes that compute a condition on sizes; the last one's name."""
    from cuvil._torch import expression_text

    kind = type(e).__name__
    if kind in _COMPARISONS:
        sides = [("size", expression_text(side)) for side in e.args]
        nodes.append((name, "compare", "", [_COMPARISONS[kind], *sides], {}, [_BOOL]))
        return name
    if kind in {"And", "Or", "Not"}:
        parts: List[Any] = [("node", _predicate(part, f"{name}_{i}", nodes)) for i, part in enumerate(e.args)]
        if kind == "Not":
            nodes.append((name, "aten.logical_not.default", "", parts, {}, [_BOOL]))
            return name
        before = parts[0]
        for i, part in enumerate(parts[1:]):
            last = name if i == len(parts) - 2 else f"{name}_part{i}"
            nodes.append((last, f"aten.logical_{kind.lower()}.default", "", [before, part], {}, [_BOOL]))
            before = ("node", last)
        return name
    raise CompileError(f"the condition {e} on sizes is of a form that is not supported yet")


def _loop(extractor: Any, node: Any) -> List[Any]:
    from cuvil._torch import source_of

    body_argument, trips, condition, carried, operands, _ = node.args
    graph = _graph_of(node, body_argument)
    inputs = _placeholders(graph)
    first = 1 + len(carried)
    kept = [number for number, operand in enumerate(operands) if _is_tensor(operand) and inputs[first + number].users]
    body = extractor.body(graph)
    outputs = _tensor_outputs(extractor, node, _results(graph))
    region = _region(extractor, graph, [*inputs[:first], *(inputs[first + n] for n in kept)], outputs, body)
    arguments = [
        _argument(extractor, trips),
        _argument(extractor, condition),
        [_argument(extractor, value) for value in carried],
        [_argument(extractor, operands[number]) for number in kept],
    ]
    return [(extractor.name(node), "loop", source_of(node), arguments, {}, _metas(extractor, node), [region])]


def _while(extractor: Any, node: Any) -> List[Any]:
    """Integers that the loop carries travel as tensors, from which each trip takes them."""
    from cuvil._torch import source_of

    condition, body, carried, operands = node.args
    before, trip = _graph_of(node, condition), _graph_of(node, body)
    name = extractor.name(node)
    nodes: List[Any] = []
    initial: List[str] = []
    for number, value in enumerate(carried):
        if isinstance(value, torch.fx.Node) and _is_tensor(value):
            initial.append(extractor.name(value))
        else:
            initial.append(f"{name}_start{number}")
            nodes.append(_scalar_node(extractor, initial[-1], _value(value)))
    kept = [number for number, operand in enumerate(operands) if _is_tensor(operand)]

    # The condition, once before the loop and once after each trip: its graph is put in, under names of its own.
    first = _inlined(extractor, before, f"{name}_first", [*initial, *_names(extractor, operands)], nodes)
    inside: List[Any] = []
    inputs = _placeholders(trip)
    for number, _ in enumerate(carried):
        value = inputs[number]
        if not _is_tensor(value):
            symbol = ("size", str(_value(value).node.expr))
            inside.append(
                (f"{extractor.name(value)}_size", "sizes", "", [("node", extractor.name(value)), [symbol]], {}, [])
            )
    content = extractor.body(trip)
    inside += content["nodes"]
    results: List[str] = []
    for number, value in enumerate(_results(trip)):
        if isinstance(value, torch.fx.Node) and _is_tensor(value):
            results.append(extractor.name(value))
        else:
            results.append(f"{name}_next{number}")
            inside.append(_scalar_node(extractor, results[-1], _value(value)))
    operand_names = _names(extractor, inputs[len(carried) :])
    goes_on = _inlined(extractor, before, f"{name}_again", [*results, *operand_names], inside)
    outputs = [("condition", goes_on), *((f"output{i}", result) for i, result in enumerate(results))]
    taken = [*inputs[: len(carried)], *(inputs[len(carried) + number] for number in kept)]
    region = _region(extractor, trip, taken, outputs, {"weights": content["weights"], "nodes": inside})
    region["inputs"].insert(0, (f"{name}_trip", _INTEGER, "trip"))
    arguments = [
        2**63 - 1,
        ("node", first),
        [("node", n) for n in initial],
        [_argument(extractor, operands[number]) for number in kept],
    ]
    nodes.append((name, "loop", source_of(node), arguments, {}, _metas(extractor, node), [region]))
    for user in node.users:
        if user.target.__name__ == "getitem" and not _is_tensor(user):
            tensor = f"{user.name}_tensor"
            nodes.append((tensor, "getitem", "", [("node", name), user.args[1]], {}, [_INTEGER]))
            symbol = ("size", str(_value(user).node.expr))
            nodes.append((f"{user.name}_size", "sizes", "", [("node", tensor), [symbol]], {}, []))
    return nodes


def _names(extractor: Any, operands: Sequence[Any]) -> List[str]:
    return [extractor.name(a) if _is_tensor(a) else "" for a in operands]


def _inlined(extractor: Any, graph: Any, prefix: str, arguments: Sequence[str], nodes: List[Any]) -> str:
    """Adds a graph's nodes; the name of its only result."""
    names: Dict[Any, str] = {}
    for node in graph.graph.nodes:
        names[node] = f"{prefix}_{node.name}"
    before = dict(extractor.symbols)
    for placeholder, argument in zip(_placeholders(graph), arguments):
        if _is_tensor(placeholder):
            names[placeholder] = argument
        elif argument:
            symbol = _value(placeholder).node.expr
            own = extractor.symbols[symbol] = extractor.renamed_symbol(symbol, f"{prefix}_{symbol}")
            nodes.append((names[placeholder], "sizes", "", [("node", argument), [("size", str(own))]], {}, []))
    extractor.names.update(names)
    content = extractor.body(graph)
    if content["weights"]:
        raise CompileError("the condition of a loop holds constants, which is not supported yet")
    nodes += content["nodes"]
    (result,) = _results(graph)
    name = str(extractor.name(result)) if isinstance(result, torch.fx.Node) else ""
    if isinstance(_value(result), torch.SymBool):
        name = _predicate(_value(result).node.expr.xreplace(extractor.symbols), f"{prefix}_result", nodes)
    extractor.symbols = before
    return name
