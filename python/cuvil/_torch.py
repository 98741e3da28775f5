"""The PyTorch door: exports a model and hands its ATen graph to the engine in one call.

Nothing is computed here: the graph is walked once, and everything else happens in C++ (``cpp/import/aten``).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

import torch

from cuvil import _torch_regions
from cuvil import cuvil_native as _native
from cuvil._errors import CompileError, ExportError

_MAX_SIZE = 2**63 - 1
_REWRITTEN = {"Equality", "LessThan", "StrictLessThan", "GreaterThan", "StrictGreaterThan"}
"""Conditions that are checks of equality; what sizes are not (0, say) is PyTorch's concern, not the graph's."""
_ITEM = {"aten.item.default", "aten._local_scalar_dense.default"}


@dataclass
class ImportedModel:
    """A graph, and how a call's arguments and results map to its inputs and outputs."""

    graph: Any
    in_spec: Any
    """Tree of ``(args, kwargs)``."""
    out_spec: Any
    tensor_positions: List[int]
    """Which leaves of the flattened arguments are the graph's inputs, in order."""
    constants: List[Tuple[int, Any]]
    """Leaves that are not tensors were compiled in: (position, value)."""
    input_names: List[str]
    output_leaves: List[Tuple[str, Any]] = field(default_factory=list)
    """Leaves of the result: ("tensor", number of the graph's output) or ("constant", value)."""


def import_module(
    model: Any,
    args: Tuple[Any, ...],
    kwargs: Optional[Dict[str, Any]] = None,
    dynamic_shapes: Any = None,
    names: Sequence[str] = (),
) -> ImportedModel:
    """Imports an nn.Module, a function of tensors, or an ExportedProgram.

    ``dynamic_shapes`` is what ``torch.export.export`` takes; ``names`` are the inputs' names, if there are as many as
    tensors. Raises CompileError if PyTorch cannot export the model, or
    the model uses operators that Cuvil does not have (all are listed).
    """
    with _no_garbage_collection():
        if isinstance(model, torch.export.ExportedProgram):
            program = _decompose(model)
        else:
            program = _export(model, args, kwargs or {}, dynamic_shapes)
            if not _is_functional_and_known(program):
                program = _decompose(program)
        return _Extractor(program).run(names)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Exporting makes so many objects that collections in between take a fifth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@functools.lru_cache(maxsize=None)
def _known_targets() -> FrozenSet[str]:
    return frozenset(_native.aten_targets())


def _is_functional_and_known(program: Any) -> bool:
    """Whether the program, as exported in evaluation mode, needs no decomposition before the engine takes it."""
    for node in program.graph.nodes:
        if node.op in {"placeholder", "output", "get_attr"}:
            continue
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            return False
        if target._schema.is_mutable or str(target) not in _known_targets():
            return False
        if target is torch.ops.aten.batch_norm.default and node.args[5]:
            return False
    return not program.graph_signature.buffers_to_mutate


def _export(model: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], dynamic_shapes: Any) -> Any:
    module = model if isinstance(model, torch.nn.Module) else _FunctionModule(model)
    was_training = module.training
    if was_training:
        module.eval()
    # Of two inputs one of which is a view of the other, export would make a size of its own.
    args, kwargs = torch.utils._pytree.tree_map(_without_base, (args, kwargs))
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except CompileError:
        raise
    except Exception as error:
        raise ExportError(
            f"PyTorch cannot trace the TorchScript model: {error}"
            if type(model).__name__ == "ScriptProgram"
            else f"torch.export cannot export {type(model).__name__}: {error}\n"
            "Make the model exportable (no data-dependent Python control flow), or pass an ExportedProgram."
        ) from error
    finally:
        if was_training:
            module.train()


def _without_base(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) and leaf._is_view() else leaf


class _FunctionModule(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _decompose(program: Any) -> Any:
    try:
        return program.run_decompositions(_decompositions())
    except Exception as error:
        raise CompileError(f"torch.export cannot export the model in terms of core operators: {error}") from error


def _decompositions() -> Any:
    """PyTorch's core decompositions, except for operators that the engine lowers better as a whole."""
    table = torch.export.default_decompositions()
    aten = torch.ops.aten
    for kept in (
        aten.linear.default,
        aten.matmul.default,
        aten.scaled_dot_product_attention.default,
        aten.silu.default,
        aten.hardswish.default,
        aten.hardsigmoid.default,
        aten.softplus.default,
        aten.mish.default,
        aten.upsample_nearest2d.vec,
    ):
        table.pop(kept, None)
    return table


class _Extractor:
    def __init__(self, program: Any) -> None:
        self.program = program
        self.signature = program.graph_signature
        self.names: Dict[Any, str] = {}
        """Names of nodes that differ from their own: those of graphs that are put into others."""
        self.symbols: Dict[Any, Any] = {}
        """The same for symbols."""
        self._run_time = self._run_time_ranges()

    def run(self, input_names: Sequence[str]) -> ImportedModel:
        self._reject_mutation()
        kinds = {spec.arg.name: spec for spec in self.signature.input_specs if hasattr(spec.arg, "name")}
        inputs: List[Any] = []
        weights: List[Any] = []
        names = {}
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            spec = kinds.get(node.name)
            kind = spec.kind.name if spec is not None else "USER_INPUT"
            if kind == "USER_INPUT":
                names[node.name] = node
            elif spec is not None and kind in {"PARAMETER", "BUFFER", "CONSTANT_TENSOR"}:
                weights.append(self._weight(node.name, self._stored(spec.target)))
        body = self.body(self.program.graph_module)
        weights += body["weights"]
        outputs, output_leaves = self._outputs(next(iter(reversed(self.program.graph.nodes))))
        tensor_positions: List[int] = []
        constants: List[Tuple[int, Any]] = []
        user_inputs = [spec for spec in self.signature.input_specs if spec.kind.name == "USER_INPUT"]
        for position, spec in enumerate(user_inputs):
            value = getattr(spec.arg, "value", None)
            name = getattr(spec.arg, "name", "")
            meta = names[name].meta.get("val") if name in names else None
            if isinstance(meta, torch.Tensor):
                tensor_positions.append(position)
                inputs.append((name, self.meta(meta), name))
            elif isinstance(meta, (torch.SymInt, torch.SymFloat)):
                raise CompileError(f"input '{name}' is a number that varies; pass it as a tensor")
            else:
                constants.append((position, value))
        if len(input_names) == len(inputs):
            inputs = [(node, meta, name) for (node, meta, _), name in zip(inputs, input_names)]
        graph = _native.import_aten(
            {
                "symbols": self._symbols(),
                "inputs": inputs,
                "weights": weights,
                "nodes": body["nodes"],
                "outputs": outputs,
            }
        )
        call_spec = self.program.call_spec
        return ImportedModel(
            graph=graph,
            in_spec=call_spec.in_spec,
            out_spec=call_spec.out_spec,
            tensor_positions=tensor_positions,
            constants=constants,
            input_names=[name for _, _, name in inputs],
            output_leaves=output_leaves,
        )

    def _reject_mutation(self) -> None:
        for spec in self.signature.output_specs:
            kind = spec.kind.name
            if kind in {"BUFFER_MUTATION", "USER_INPUT_MUTATION", "PARAMETER_MUTATION"}:
                what = "buffer" if kind == "BUFFER_MUTATION" else "input" if "INPUT" in kind else "parameter"
                raise CompileError(
                    f"the model changes {what} '{spec.target}' in place, which is not supported yet: "
                    "return the new value instead"
                )

    def _stored(self, target: str) -> torch.Tensor:
        for store in (self.program.state_dict, self.program.constants):
            if target in store:
                return store[target]
        raise CompileError(f"the exported program has no tensor '{target}'")

    def _weight(self, name: str, tensor: torch.Tensor) -> Tuple[str, int, str, List[int], Any]:
        tensor = tensor.detach()
        if tensor.device.type != "cpu":
            raise CompileError(f"weight '{name}' is on {tensor.device}; move the model to the CPU first")
        tensor = tensor.contiguous()
        return name, tensor.data_ptr(), _dtype(tensor.dtype), list(tensor.shape), tensor

    def _symbols(self) -> List[Tuple[str, int, int]]:
        symbols = {}
        for symbol, bounds in self.program.range_constraints.items():
            low, high = _bound(bounds.lower, 0), _bound(bounds.upper, _MAX_SIZE)
            # PyTorch assumes sizes of 2 and more while it traces; the graph itself holds for 0 and 1 too.
            symbols[str(symbol)] = (0 if low <= 2 else low, high)
        for symbol, bounds in self._run_time.items():
            symbols[str(symbol)] = (_bound(bounds.lower, -_MAX_SIZE // 4), _bound(bounds.upper, _MAX_SIZE))
        return [(name, low, high) for name, (low, high) in symbols.items()]

    def _run_time_ranges(self) -> Dict[Any, Any]:
        """Bounds of the symbols whose values are found when the model runs."""
        from torch.fx.experimental.symbolic_shapes import symbol_is_type
        from torch.utils._sympy.symbol import SymT

        for node in self.program.graph.nodes:
            mode = getattr(node.meta.get("val"), "fake_mode", None)
            if mode is not None and mode.shape_env is not None:
                ranges = mode.shape_env.var_to_range
                return {s: r for s, r in dict(ranges).items() if symbol_is_type(s, SymT.UNBACKED_INT)}
        return {}

    def meta(self, value: Any) -> Any:
        """(dtype, sizes) of a tensor; None for what is not one."""
        if not isinstance(value, torch.Tensor):
            return None
        return _dtype(value.dtype), [self.size_text(size) for size in value.shape]

    def body(self, module: Any) -> Dict[str, List[Any]]:
        """Weights and nodes of a graph, without its inputs and outputs."""
        weights: List[Any] = []
        nodes: List[Any] = []
        for node in module.graph.nodes:
            if node.op == "get_attr":
                value = _attribute(module, node.target)
                if isinstance(value, torch.Tensor):
                    weights.append(self._weight(self.name(node), value))
            elif node.op == "call_function":
                nodes += self._nodes(node)
        return {"weights": weights, "nodes": nodes}

    def renamed_symbol(self, symbol: Any, name: str) -> Any:
        """Another symbol with the same bounds."""
        other = type(symbol)(name, integer=True)
        if symbol in self._run_time:
            self._run_time[other] = self._run_time[symbol]
        return other

    def size_text(self, size: Any) -> str:
        """A size as text that the engine parses."""
        if isinstance(size, int):
            return str(size)
        return expression_text(size.node.expr.xreplace(self.symbols))

    def name(self, node: Any) -> str:
        return str(self.names.get(node, node.name))

    def _nodes(self, node: Any) -> List[Any]:
        """What the engine is given for a node: most often one node."""
        if isinstance(node.target, torch._ops.HigherOrderOperator) and _torch_regions.takes(node):
            return _torch_regions.control_flow(self, node)
        if str(node.target) == "aten._assert_scalar.default":
            return self._size_check(node)
        value = node.meta.get("val")
        if isinstance(value, torch.SymFloat) and str(node.target) in _ITEM:
            self.names[node] = self.name(node.args[0])  # operators take the tensor in place of the number
            return []
        if isinstance(value, (torch.SymInt, torch.SymBool)) and str(node.target) in _ITEM:
            return [self.sizes_node(node, node.args[0])] if node.meta.get("unbacked_bindings") else []
        if value is not None and not isinstance(value, (torch.Tensor, tuple, list)):
            return []
        if str(node.target) == "aten.index.Tensor":
            return self._indexing(node)
        return [self._node(node)]

    def _size_check(self, node: Any) -> List[Any]:
        """What PyTorch found must hold for sizes that depend on data; the graph relies on it."""
        value = node.args[0].meta.get("val") if isinstance(node.args[0], torch.fx.Node) else node.args[0]
        if not isinstance(value, torch.SymBool):
            return []
        condition = value.node.expr.xreplace(self.symbols)
        kind = type(condition).__name__
        if not condition.free_symbols & self._run_time.keys() or kind not in _REWRITTEN:
            return []
        left, right = (expression_text(side) for side in condition.args)
        if kind != "Equality":
            less, more = (left, right) if "Less" in kind else (right, left)
            less = f"({less} + 1)" if kind.startswith("Strict") else less
            left, right = f"min({less}, {more})", less
        message = f"sizes that depend on data do not fit the model: {condition} does not hold"
        return [(self.name(node), "check_equal", source_of(node), [("size", left), ("size", right), message], {}, [])]

    def _indexing(self, node: Any) -> List[Any]:
        """A mask among the indices becomes the positions of its true elements."""
        indices = list(node.args[1])
        masks = [i for i, a in enumerate(indices) if a is not None and a.meta["val"].dtype in {torch.bool, torch.uint8}]
        found = self._node(node)
        if len(masks) != 1 or sum(a is not None for a in indices) != 1:
            return [found]
        place = masks[0]
        mask = indices[place]
        name, rank = f"{self.name(node)}_positions", mask.meta["val"].dim()
        count = self.size_text(node.meta["val"].shape[place])
        nodes: List[Any] = [
            (name, "aten.nonzero.default", "", [("node", self.name(mask))], {}, [("int64", [count, str(rank)])])
        ]
        columns = []
        for axis in range(rank):
            columns.append(("node", f"{name}_{axis}"))
            nodes.append((columns[-1][1], "aten.select.int", "", [("node", name), 1, axis], {}, [("int64", [count])]))
        arguments = list(found[3])
        arguments[1] = [*arguments[1][:place], *columns, *arguments[1][place + 1 :]]
        return [*nodes, (*found[:3], arguments, *found[4:])]

    def sizes_node(self, node: Any, tensor: Any) -> Any:
        """Makes an element of a tensor the value of the symbol that the node binds."""
        (symbol,) = node.meta["unbacked_bindings"]
        arguments = [self._argument(tensor) if isinstance(tensor, torch.fx.Node) else ("node", tensor)]
        return (
            self.name(node),
            "sizes",
            source_of(node),
            [*arguments, [("size", str(self.symbols.get(symbol, symbol)))]],
            {},
            [],
        )

    def _node(self, node: Any) -> Tuple[Any, ...]:
        value = node.meta.get("val")
        metas = [self.meta(item) for item in value] if isinstance(value, (tuple, list)) else [self.meta(value)]
        target = "getitem" if node.target is operator.getitem else str(node.target)
        if target in {"aten.as_strided.default", "aten.as_strided_copy.default"}:
            target = _strided_target(node)
        elif target == "aten.as_strided_scatter.default":
            _check_contiguous(node)
        return (
            self.name(node),
            target,
            source_of(node),
            [self._argument(a) for a in node.args],
            {key: self._argument(a) for key, a in node.kwargs.items()},
            metas,
        )

    def _argument(self, a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            value = a.meta.get("val")
            if isinstance(value, torch.SymInt):
                return ("size", self.size_text(value))
            if isinstance(value, (int, float, bool)):
                return value
            return ("node", self.name(a))
        if isinstance(a, (list, tuple)):
            return [self._argument(item) for item in a]
        if isinstance(a, torch.SymInt):
            return ("size", self.size_text(a))
        if isinstance(a, torch.dtype):
            return ("dtype", str(a).rpartition(".")[2])
        if a is None or isinstance(a, (bool, int, float, str)):
            return a
        return str(a)

    def _outputs(self, node: Any) -> Tuple[List[Tuple[str, str]], List[Tuple[str, Any]]]:
        outputs: List[Tuple[str, str]] = []
        leaves: List[Tuple[str, Any]] = []
        for position, item in enumerate(node.args[0]):
            if isinstance(item, torch.fx.Node) and isinstance(item.meta.get("val"), torch.Tensor):
                leaves.append(("tensor", len(outputs)))
                outputs.append((f"output{position}", item.name))
            elif isinstance(item, torch.fx.Node):
                raise CompileError(f"output {position} is a number that depends on sizes, which is not supported yet")
            else:
                leaves.append(("constant", item))
        return outputs, leaves


def _strided_target(node: Any) -> str:
    """as_strided speaks of memory, which graphs do not have: it is a no-op, or a gather from a row-major tensor."""
    x, size, stride = node.args[0].meta["val"], node.args[1], node.args[2]
    same_elements = len(node.args) < 4 and list(x.shape) == list(size)
    for axis, extent in enumerate(size if same_elements else ()):
        same_elements &= extent == 1 or x.stride()[axis] == stride[axis]
    if same_elements:
        return "aten.alias.default"
    _check_contiguous(node)
    return "aten.as_strided.default"


def _check_contiguous(node: Any) -> None:
    if not node.args[0].meta["val"].is_contiguous():
        raise CompileError(f"node '{node.name}': as_strided of a tensor that is not contiguous is not supported")


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def _bound(value: Any, infinite: int) -> int:
    """An end of a symbol's range; PyTorch writes "no bound" as one of several infinities."""
    if not getattr(value, "is_Integer", isinstance(value, int)):
        return infinite
    number = int(value)
    return number if abs(number) < _MAX_SIZE // 2 else infinite


def source_of(node: Any) -> str:
    """Where a node comes from in the user's model: its module's path."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    prefix = "L['self']."
    return path[len(prefix) :] if path.startswith(prefix) else path


def expression_text(e: Any) -> str:
    if e.is_Integer:
        return str(int(e))
    if e.is_Symbol:
        return str(e)
    kind = type(e).__name__
    parts: Sequence[str] = [expression_text(a) for a in e.args]
    if kind == "Add":
        return "(" + " + ".join(parts) + ")"
    if kind == "Mul":
        return "(" + "*".join(parts) + ")"
    if kind == "Pow" and e.args[1].is_Integer and int(e.args[1]) > 0:
        return "(" + "*".join([parts[0]] * int(e.args[1])) + ")"
    if kind in {"FloorDiv", "CleanDiv"}:
        return f"({parts[0]}//{parts[1]})"
    if kind in {"Mod", "PythonMod"}:
        return f"({parts[0]}%{parts[1]})"
    if kind == "CeilDiv":
        return f"ceildiv({parts[0]}, {parts[1]})"
    if kind in {"Max", "Min"}:
        name, text = kind.lower(), parts[0]
        for part in parts[1:]:
            text = f"{name}({text}, {part})"
        return text
    if kind in {"Identity", "ToInt"} and len(parts) == 1:
        return parts[0]
    raise CompileError(f"the size {e} is of a form that is not supported yet")
