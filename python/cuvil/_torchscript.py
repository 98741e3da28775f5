"""The TorchScript door: a module whose forward interprets a TorchScript graph, which torch.export then traces.

What is known while tracing (numbers, lists, attributes) is computed here, branches on it are decided and loops over it
unrolled. Tensors are PyTorch's own business. Branches and loops that depend on data become ``if_op`` and ``loop_op``.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import torch
from torch.utils import _pytree as pytree

from cuvil import _torchscript_ops as ops
from cuvil import _torchscript_values as values
from cuvil._errors import CompileError, ModelRaises
from cuvil._torchscript_values import NumberTensor, RunTimeList, RunTimeNumber, RunTimeOptional, scalar_tensor

_MOST_UNROLLED_NODES = 20000

Key = Tuple[str, str]
"""An attribute: its module's path and its name."""


def load(path: str) -> Any:
    try:
        return torch.jit.load(path, map_location="cpu")
    except (RuntimeError, ValueError, OSError) as error:
        raise CompileError(
            f"cannot load '{path}' as TorchScript: {error}\n"
            "A file of torch.export goes through torch.export.load, one of torch.save holds no program."
        ) from error


def scripted(model: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.jit.script(model)
    except Exception as error:
        raise CompileError(f"torch.jit.script cannot compile it: {error}") from error


def copied(state: Dict[Key, Any]) -> Dict[Key, Any]:
    result: Dict[Key, Any] = pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, state
    )
    return result


def tensors_of(state: Dict[Key, Any]) -> List[Any]:
    return [leaf for leaf in pytree.tree_leaves(state) if hasattr(leaf, "shape")]


def structure(value: Any, dynamic: bool = False) -> Any:
    """What of the value a variant depends on: all but the elements of tensors, and their sizes if ``dynamic``."""
    leaves, spec = pytree.tree_flatten(value)
    return spec, tuple(
        ("tensor", None if dynamic else tuple(leaf.shape)) if hasattr(leaf, "shape") else (type(leaf), leaf)
        for leaf in leaves
    )


def as_tensors(tree: Any) -> Any:
    """Arrays as tensors."""
    return pytree.tree_map(lambda leaf: torch.from_numpy(leaf) if type(leaf).__name__ == "ndarray" else leaf, tree)


def with_held_numbers(state: Dict[Key, Any], held: Set[Key]) -> Dict[Key, Any]:
    """Numbers among these attributes as tensors; arrays, which a call with arrays gives, as tensors too."""
    tensors = as_tensors(state)
    return {
        key: scalar_tensor(value) if key in held and not hasattr(value, "shape") else value
        for key, value in tensors.items()
    }


@dataclass
class _Module:
    path: str
    script: Any

    def child(self, name: str, script: Any) -> _Module:
        return _Module(f"{self.path}.{name}" if self.path else name, script)


@dataclass
class _Object:
    """An instance of a TorchScript class that the graph makes."""

    path: str


@dataclass
class _Effects:
    """What the nodes of blocks use and change of what is outside of them."""

    used: Set[str] = field(default_factory=set)
    read_attributes: Set[str] = field(default_factory=set)
    set_attributes: Set[str] = field(default_factory=set)
    changed_tensors: Set[str] = field(default_factory=set)
    changed_containers: Dict[str, List[Any]] = field(default_factory=dict)
    constants: Set[str] = field(default_factory=set)
    nodes: int = 0


def _gives_view(schema: str) -> bool:
    """Whether what an operator returns shares memory with its first argument, or may."""
    returns = schema.rpartition("->")[2]
    return "(a" in returns or "(*" in returns


def _effects(blocks: Sequence[Any]) -> _Effects:
    effects = _Effects()
    inside: Dict[str, Any] = {}

    def root(value: Any) -> str:
        """The value whose memory a view shows."""
        name = value.debugName()
        while name in inside and inside[name] is not None:
            node = inside[name]
            if node.kind() == "prim::GetAttr":
                effects.set_attributes.add(node.s("name"))
            is_view = node.kind().startswith("aten::") and _gives_view(node.schema())
            if not is_view and node.kind() != "prim::unchecked_cast":
                break
            value = next(iter(node.inputs()))
            name = value.debugName()
        return str(name)

    def walk(block: Any) -> None:
        for value in block.inputs():
            inside[value.debugName()] = None
        for node in block.nodes():
            effects.nodes += 1
            inputs = list(node.inputs())
            for value in inputs:
                if value.debugName() not in inside:
                    effects.used.add(value.debugName())
            kind = node.kind()
            if kind == "prim::Constant":
                effects.constants.add(node.output().debugName())
            elif kind == "prim::GetAttr":
                effects.read_attributes.add(node.s("name"))
            elif kind == "prim::SetAttr":
                effects.set_attributes.add(node.s("name"))
            elif kind == "prim::CallMethod":
                effects.read_attributes.add("*")
                effects.set_attributes.add("*")
            elif kind.startswith("aten::") and "(a!" in node.schema():
                changed = root(inputs[0])
                if inputs[0].type().kind() == "TensorType":
                    if changed not in inside:
                        effects.changed_tensors.add(changed)
                elif changed not in inside:
                    effects.changed_containers.setdefault(changed, []).append(node)
            for inner in node.blocks():
                walk(inner)
            for value in node.outputs():
                inside[value.debugName()] = node
        for value in block.outputs():
            if value.debugName() not in inside:
                effects.used.add(value.debugName())

    for block in blocks:
        walk(block)
    return effects


class ScriptProgram(torch.nn.Module):
    """Runs as the TorchScript module or function does, in evaluation mode, and can be exported.

    ``state``: attributes with their values. Tensors in them are passed as further arguments, before the others; the
    rest is compiled in. The result is then ``(result, new values of all)``. ``numbers``: those that are numbers of the
    model, though a tensor holds them here.
    """

    def __init__(self, model: Any, state: Optional[Dict[Key, Any]] = None, numbers: Iterable[Key] = ()) -> None:
        super().__init__()
        self._numbers = set(numbers)
        self._script = getattr(model, "_c", model)
        self._is_function = isinstance(model, torch.jit.ScriptFunction)
        self._graphs: Dict[Any, Any] = {}
        self._state = dict(state or {})
        self._state_leaves, self._state_spec = pytree.tree_flatten(self._state)
        self._passed = [i for i, leaf in enumerate(self._state_leaves) if isinstance(leaf, torch.Tensor)]
        self._initial: Dict[Key, Any] = {}
        if self._is_function:
            schema = model.schema
            graph = model.graph
        else:
            try:
                method = self._script._get_method("forward")
            except RuntimeError as error:
                raise CompileError(f"the TorchScript module has no single method 'forward': {error}") from error
            schema, graph = method.schema, method.graph
            self._register(self._script, "")
        self._graph = self._inlined(graph)
        self._register_constants(self._graph)
        arguments = schema.arguments if self._is_function else schema.arguments[1:]
        self.signature = _signature(arguments)
        self.forward = self._make_forward()

    @staticmethod
    def finish(result: Any) -> Any:
        """The model's result from a run's."""
        return expanded(result)

    def _register(self, module: Any, path: str) -> None:
        seen = {}
        for name, tensor in (*torch._C.ParameterDict(module).items(), *torch._C.BufferDict(module).items()):
            seen[name] = tensor
            self._initial[path, name] = self._add_tensor(f"{path}.{name}" if path else name, tensor)
        for name, child in torch._C.ModuleDict(module).items():
            self._register(child, f"{path}.{name}" if path else name)

    def _add_tensor(self, name: str, tensor: Any) -> Any:
        buffer = "t_" + name.replace(".", "__")
        while hasattr(self, buffer):
            buffer += "_"
        self.register_buffer(buffer, tensor.detach())
        return _Stored(buffer)

    def _register_constants(self, block: Any) -> None:
        for node in block.nodes():
            if "mkldnn" in node.kind():
                raise CompileError(
                    f"the model uses {node.kind()}: compile it as it was before torch.jit.optimize_for_inference"
                )
            if node.kind() == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "t":
                if _is_plain_number(node.t("value")):
                    continue
                name = node.output().debugName()
                self._initial["constant", name] = self._add_tensor(f"constant_{name}", node.t("value"))
            for inner in node.blocks():
                self._register_constants(inner)

    @staticmethod
    def _inlined(graph: Any) -> Any:
        """A copy without calls of known methods, in evaluation mode."""
        copy = graph.copy()
        torch._C._jit_pass_inline(copy)
        for node in copy.findAllNodes("prim::GetAttr", True):
            if node.s("name") == "training" and node.output().type().kind() == "BoolType":
                constant = copy.insertConstant(False)
                constant.node().moveBefore(node)
                node.output().replaceAllUsesWith(constant)
        torch._C._jit_pass_constant_propagation(copy)
        torch._C._jit_pass_dce(copy)
        return copy

    def state_keys(self) -> List[Key]:
        """Attributes that the model assigns, and tensors of its that it changes in place."""
        paths = {} if self._is_function else {next(self._graph.inputs()).debugName(): ""}
        keys: Set[Key] = set()
        owners: Dict[str, Key] = {}

        def walk(block: Any) -> None:
            for node in block.nodes():
                inputs = [value.debugName() for value in node.inputs()]
                if node.kind() == "prim::GetAttr" and inputs[0] in paths:
                    path, name, output = paths[inputs[0]], node.s("name"), node.output()
                    if output.type().kind() == "ClassType":
                        paths[output.debugName()] = f"{path}.{name}" if path else name
                    else:
                        owners[output.debugName()] = (path, name)
                elif node.kind() == "prim::SetAttr" and inputs[0] in paths:
                    keys.add((paths[inputs[0]], node.s("name")))
                elif node.kind().startswith("aten::") and inputs and inputs[0] in owners:
                    schema = node.schema()
                    if "(a!" in schema:
                        keys.add(owners[inputs[0]])
                    elif _gives_view(schema):
                        owners[node.output().debugName()] = owners[inputs[0]]
                for inner in node.blocks():
                    walk(inner)

        walk(self._graph)
        return sorted(keys)

    def _make_forward(self) -> Callable[..., Any]:
        parameters = list(self.signature.parameters.values())
        count = len(self._passed)

        def forward(*args: Any, **kwargs: Any) -> Any:
            state, args = args[:count], args[count:]
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return self._run([bound.arguments[p.name] for p in parameters], state)

        if count:
            names = [f"state_{i}" for i in range(count)]
            everything = [*(inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names), *parameters]
        else:
            everything = parameters
        forward.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
        return forward

    def attribute(self, key: Key) -> Any:
        """The value the model's attribute has before any run."""
        module = self._script
        for part in key[0].split(".") if key[0] else ():
            module = module.getattr(part)
        return module.getattr(key[1])

    def _run(self, arguments: List[Any], state: Sequence[Any]) -> Any:
        attributes: Dict[Key, Any] = {key: getattr(self, value.buffer) for key, value in self._initial.items()}
        leaves = list(self._state_leaves)
        for position, tensor in zip(self._passed, state):
            leaves[position] = tensor.clone()
        for key, value in pytree.tree_unflatten(leaves, self._state_spec).items():
            attributes[key] = RunTimeNumber(value) if key in self._numbers else value
        interpreter = _Interpreter(self, attributes)
        leading = [] if self._is_function else [_Module("", self._script)]
        result = _finished(interpreter.call(self._graph, [*leading, *arguments]))
        unknown = interpreter.written - set(self._state)
        if unknown:
            path, name = min(unknown)
            raise CompileError(f"the model assigns its attribute '{path}.{name}' in a method that it calls dynamically")
        if not self._state:
            return result
        return result, {key: _finished(attributes[key]) for key in self._state}


@dataclass
class _Stored:
    buffer: str


def _signature(arguments: Sequence[Any]) -> inspect.Signature:
    parameters = []
    for a in arguments:
        kind = inspect.Parameter.KEYWORD_ONLY if a.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = a.default_value if a.has_default_value() else inspect.Parameter.empty
        name = a.name if a.name.isidentifier() else "_" + "".join(c if c.isalnum() else "_" for c in a.name)
        parameters.append(inspect.Parameter(name, kind, default=default))
    return inspect.Signature(parameters)


def _finished(result: Any) -> Any:
    """Sizes leave as tensors that hold them."""
    sizes = (torch.SymInt, torch.SymFloat, torch.SymBool)

    def finish(leaf: Any) -> Any:
        if isinstance(leaf, NumberTensor):
            return scalar_tensor(leaf)
        return RunTimeNumber(scalar_tensor(leaf)) if isinstance(leaf, sizes) else leaf

    return pytree.tree_map(finish, result, is_leaf=lambda v: isinstance(v, (RunTimeNumber, NumberTensor)))


def expanded(result: Any) -> Any:
    """A run's result with Python's numbers, None and lists, where tensors stood for them."""
    if isinstance(result, RunTimeNumber):
        return result.tensor.item()
    if isinstance(result, RunTimeOptional):
        return result.tensor if bool(result.flag) else None
    if isinstance(result, list):
        items: List[Any] = []
        for item in result:
            items += item.items() if isinstance(item, RunTimeList) else [expanded(item)]
        return items
    if isinstance(result, tuple):
        return tuple(expanded(item) for item in result)
    if isinstance(result, dict):
        return {key: expanded(value) for key, value in result.items()}
    return result


class _Interpreter:
    def __init__(self, program: ScriptProgram, attributes: Dict[Key, Any]) -> None:
        self.program = program
        self.attributes = attributes
        self.written: Set[Key] = set()
        self.env: Dict[str, Any] = {}
        self.unrolled = 0

    def call(self, graph: Any, arguments: Sequence[Any]) -> Any:
        outer, self.env = self.env, {}
        try:
            for value, argument in zip(graph.inputs(), arguments):
                self.env[value.debugName()] = argument
            self.block(graph)
            results = [self.env[value.debugName()] for value in graph.outputs()]
            return results[0] if len(results) == 1 else tuple(results)
        finally:
            self.env = outer

    def block(self, block: Any) -> None:
        for node in block.nodes():
            try:
                self.node(node)
            except ModelRaises:
                raise
            except CompileError as error:
                if getattr(error, "placed", False):
                    raise
                raise _placed(node, str(error)) from error

    def get(self, value: Any) -> Any:
        return self.env[value.debugName()]

    def node(self, node: Any) -> None:
        kind = node.kind()
        if kind == "prim::If":
            return self.branch(node)
        if kind == "prim::Loop":
            return self.loop(node)
        inputs = [self.get(value) for value in node.inputs()]
        outputs = list(node.outputs())
        if kind == "aten::select" and isinstance(inputs[2], RunTimeNumber):
            select = ops.select_view if _is_changed(outputs[0]) else ops.select_copy
            self.env[outputs[0].debugName()] = select(*inputs)
            return None
        handler = self._WITH_NODE.get(kind)
        results = handler(self, node, inputs) if handler else ops.call(kind, node.schema(), inputs)
        if len(outputs) == 1:
            self.env[outputs[0].debugName()] = results
        elif outputs:
            for value, result in zip(outputs, results):
                self.env[value.debugName()] = result
        return None

    def _constant(self, node: Any, inputs: List[Any]) -> Any:
        output = node.output()
        stored = self.attributes.get(("constant", output.debugName()))
        if stored is not None:
            return stored
        if output.type().kind() == "FunctionType":
            return output.type()
        value = output.toIValue()
        return NumberTensor(value.item()) if isinstance(value, torch.Tensor) and _is_plain_number(value) else value

    def _get_attribute(self, node: Any, inputs: List[Any]) -> Any:
        owner, name = inputs[0], node.s("name")
        key = (owner.path, name)
        if key in self.attributes:
            return self.attributes[key]
        if name == "training" and node.output().type().kind() == "BoolType":
            return False
        if isinstance(owner, _Object):
            raise CompileError(f"attribute '{name}' is read before it is set")
        value = owner.script.getattr(name)
        if isinstance(value, torch._C.ScriptModule) or node.output().type().kind() in {"ClassType", "InterfaceType"}:
            return owner.child(name, getattr(value, "_c", value))
        self.attributes[key] = value
        return value

    def load_attribute(self, name: str) -> None:
        """Makes the attributes of that name known that the program may assign."""
        for key in self.program.state_keys():
            if key[1] == name and key not in self.attributes:
                self.attributes[key] = self.program.attribute(key)

    def _set_attribute(self, node: Any, inputs: List[Any]) -> None:
        key = (inputs[0].path, node.s("name"))
        self.attributes[key] = inputs[1]
        if not isinstance(inputs[0], _Object):
            self.written.add(key)

    def _create_object(self, node: Any, inputs: List[Any]) -> Any:
        self.unrolled += 1
        return _Object(f"object {node.output().debugName()} {self.unrolled}")

    def _call_method(self, node: Any, inputs: List[Any]) -> Any:
        owner, name = inputs[0], node.s("name")
        if not isinstance(owner, _Module):
            raise CompileError(f"method '{name}' of a TorchScript object is called through an interface")
        graph = self.program._inlined(owner.script._get_method(name).graph)
        return self.call(graph, inputs)

    def _call_function(self, node: Any, inputs: List[Any]) -> Any:
        raise CompileError("a function that is chosen while the model runs is called")

    def _unpack(self, node: Any, inputs: List[Any]) -> Any:
        items = list(inputs[0])
        count = len(list(node.outputs()))
        if len(items) != count:
            raise CompileError(f"{count} values are taken from a list of {len(items)}")
        return items if count != 1 else items[0]

    def _slice_tuple(self, node: Any, inputs: List[Any]) -> Any:
        return inputs[0][node.i("beg") : node.i("end")]

    def _raise(self, node: Any, inputs: List[Any]) -> None:
        kind = inputs[1].rpartition(".")[2] if len(inputs) > 1 and isinstance(inputs[1], str) else "an exception"
        raise ModelRaises(f"the model raises {kind}: {inputs[0]}")

    def _fork(self, node: Any, inputs: List[Any]) -> Any:
        return self.call(node.g("Subgraph"), inputs)

    _WITH_NODE: ClassVar[Dict[str, Callable[..., Any]]] = {
        "prim::Constant": _constant,
        "prim::GetAttr": _get_attribute,
        "prim::SetAttr": _set_attribute,
        "prim::CreateObject": _create_object,
        "prim::CallMethod": _call_method,
        "prim::CallFunction": _call_function,
        "prim::ListUnpack": _unpack,
        "prim::TupleUnpack": _unpack,
        "prim::TupleSlice": _slice_tuple,
        "prim::RaiseException": _raise,
        "prim::fork": _fork,
        "aten::wait": lambda self, node, inputs: inputs[0],
    }

    # Control flow

    def branch(self, node: Any) -> None:
        condition = values.to_condition(self.get(next(iter(node.inputs()))))
        blocks = list(node.blocks())
        if isinstance(condition, torch.SymBool):
            condition = _decided(condition)
        if isinstance(condition, bool):
            block = blocks[0 if condition else 1]
            self.block(block)
            for value, result in zip(node.outputs(), block.outputs()):
                self.env[value.debugName()] = self.get(result)
            return
        from cuvil import _torchscript_regions as regions

        regions.branch(self, node, condition)

    def loop(self, node: Any) -> None:
        trips, condition, *carried = [self.get(value) for value in node.inputs()]
        body = next(iter(node.blocks()))
        parameters = [value.debugName() for value in body.inputs()]
        outputs = list(body.outputs())
        size = _effects([body]).nodes
        trip = 0
        while True:
            goes_on = self._goes_on(trip, trips, condition)
            if goes_on is None or (goes_on and self.unrolled + size > _MOST_UNROLLED_NODES):
                from cuvil import _torchscript_regions as regions

                regions.loop(self, node, trip, trips, condition, carried)
                return
            if not goes_on:
                break
            self.unrolled += size
            for name, value in zip(parameters, [trip, *carried]):
                self.env[name] = value
            self.block(body)
            condition, *carried = [self.get(value) for value in outputs]
            trip += 1
        for value, result in zip(node.outputs(), carried):
            self.env[value.debugName()] = result

    @staticmethod
    def _goes_on(trip: int, trips: Any, condition: Any) -> Optional[bool]:
        """None where only the data tell."""
        condition = values.to_condition(condition)
        if isinstance(condition, torch.SymBool):
            condition = _decided(condition)
        if condition is False:
            return False
        more = trip < trips if isinstance(trips, int) else None
        if more is False:
            return False
        return True if condition is True and more is True else None


def _is_plain_number(tensor: Any) -> bool:
    return bool(tensor.dim() == 0 and tensor.dtype == torch.int64)


def _is_changed(view: Any) -> bool:
    """Whether something writes to the tensor, or to a view of it."""
    for use in view.uses():
        if use.offset != 0 or not use.user.kind().startswith("aten::"):
            continue
        schema = use.user.schema()
        if "(a!" in schema or (_gives_view(schema) and any(_is_changed(value) for value in use.user.outputs())):
            return True
    return False


def _decided(condition: Any) -> Any:
    """A bool, if it is the same for all sizes: PyTorch takes 0 and 1 for sizes that a varying one never has."""
    from sympy import Dummy, S  # type: ignore[import-untyped]

    node = condition.node
    ranges = node.shape_env.var_to_range
    values_ = {}
    for symbol in node.expr.free_symbols:
        low = ranges[symbol].lower if symbol in ranges else None
        if low is not None and low.is_Integer and low >= 0:
            values_[symbol] = Dummy(integer=True, nonnegative=True) + (low if low > 2 else 0)
        else:
            values_[symbol] = Dummy(integer=True)
    result = node.expr.xreplace(values_)
    return True if result is S.true else False if result is S.false else condition


def _placed(node: Any, why: str) -> CompileError:
    where = node.sourceRange().strip().splitlines()
    place = next((line.strip() for line in where if "<--- HERE" not in line and "~~" not in line), "")
    output = next((value.debugName() for value in node.outputs()), "")
    error = CompileError(f"node '{output}' ({node.kind()}{', ' + place if place else ''}): {why}")
    error.placed = True  # type: ignore[attr-defined]
    return error
