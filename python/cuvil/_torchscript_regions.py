"""prim::If and prim::Loop whose conditions only the data tell, as if_op and loop_op."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch.utils import _pytree as pytree

from cuvil import _torchscript as script
from cuvil import _torchscript_ops as ops
from cuvil import _torchscript_values as values
from cuvil._control_flow import has_local_symbols, if_op, kinds_of, known_symbols, loop_op, without_tracing
from cuvil._errors import CompileError, ModelRaises
from cuvil._torchscript_values import (
    CountedList,
    NumberTensor,
    RunTimeList,
    RunTimeNumber,
    RunTimeOptional,
    scalar_tensor,
)


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, torch.SymInt))


class _Captured:
    """What a region uses of the values around it, as a flat list of tensors and sizes."""

    def __init__(self, interpreter: Any, effects: Any) -> None:
        env = {name: interpreter.env[name] for name in sorted(effects.used) if name in interpreter.env}
        every = "*" in effects.read_attributes
        attributes = {
            key: value
            for key, value in interpreter.attributes.items()
            if every or key[1] in effects.read_attributes | effects.set_attributes or key[0] == "constant"
        }
        if not every:
            attributes = {k: v for k, v in attributes.items() if k[0] != "constant" or k[1] in effects.constants}
        self._leaves, self._spec = pytree.tree_flatten((env, attributes))
        self._places: Dict[int, List[int]] = {}
        for i, leaf in enumerate(self._leaves):
            if _is_traced(leaf):
                self._places.setdefault(id(leaf), []).append(i)
        self.operands = tuple(self._leaves[places[0]] for places in self._places.values())
        self._keys = [key for key in attributes if key[1] in effects.set_attributes]
        self._changed = [env[name] for name in effects.changed_tensors if name in env]
        for changed in self._changed:
            if not isinstance(changed, torch.Tensor):
                raise CompileError("a branch or loop on data changes a tensor of a list, dict or tuple in place")
            if any(_is_other_view(operand, changed) for operand in self.operands):
                raise CompileError("a branch or loop on data changes a tensor in place that it also sees as a view")

    def restore(self, operands: Sequence[Any]) -> Tuple[Dict[str, Any], Dict[Any, Any]]:
        """The values, with these operands. What the region changes in place are copies."""
        leaves = list(self._leaves)
        changed = {id(tensor) for tensor in self._changed}
        for (identity, places), operand in zip(self._places.items(), operands):
            value = operand.clone() if identity in changed else operand
            for place in places:
                leaves[place] = value
        env, attributes = pytree.tree_unflatten(leaves, self._spec)
        for key in self._keys:
            if isinstance(attributes[key], torch.Tensor):
                attributes[key] = attributes[key].clone()
        return env, attributes


def _is_other_view(a: Any, b: Any) -> bool:
    return isinstance(a, torch.Tensor) and a is not b and bool(torch._C._is_alias_of(a, b))


def _check_unchanged(operands: Sequence[Any], versions: Sequence[int]) -> None:
    if _versions(operands) != versions:
        raise CompileError("a branch or loop that depends on data changes a tensor around it in place, in a hidden way")


def _versions(operands: Sequence[Any]) -> List[int]:
    return [operand._version for operand in operands if isinstance(operand, torch.Tensor)]


def _is_leaf(value: Any) -> bool:
    return isinstance(value, (NumberTensor, RunTimeNumber, RunTimeOptional))


def _like(ours: Any, theirs: Any) -> Any:
    """``ours``, with what one way leaves undefined in the structure that the other way gives it."""
    if isinstance(ours, values.Uninitialized):
        return pytree.tree_map(lambda _: ours, theirs, is_leaf=_is_leaf)
    if type(ours) is type(theirs) and isinstance(ours, (list, tuple)) and len(ours) == len(theirs):
        return type(ours)(_like(a, b) for a, b in zip(ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return {key: _like(value, theirs[key]) for key, value in ours.items()}
    return ours


def _kind(leaf: Any) -> str:
    if isinstance(leaf, (torch.Tensor, NumberTensor)):
        return "tensor"
    if isinstance(leaf, RunTimeOptional):
        return "optional"
    return "number" if values.is_number(leaf) else "constant"


def _joint_kind(ours: Any, theirs: Any) -> str:
    """How a leaf leaves a branch that gives the one or the other."""
    if isinstance(ours, values.Uninitialized):
        return _kind(theirs)
    if isinstance(theirs, values.Uninitialized):
        return _kind(ours)
    kinds = {_kind(ours), _kind(theirs)}
    if len(kinds) == 1:
        return kinds.pop()
    if "number" not in kinds and all(_kind(leaf) != "constant" or leaf is None for leaf in (ours, theirs)):
        return "optional"
    return "different"


def _missing(like: Any, known: Any) -> Any:
    """What stands for a tensor that a way does not have."""
    if isinstance(like, RunTimeOptional):
        like = like.tensor
    like = scalar_tensor(like) if _kind(like) != "constant" else torch.zeros(())
    sizes = [0 if has_local_symbols(size, known) else size for size in like.shape]
    return torch.zeros(sizes, dtype=like.dtype)


class _Outputs:
    """A structure of values as tensors: numbers become tensors of rank 0, the rest is the same whatever the data.

    With ``other``, what the other way gives: kinds of values are those that hold for both.
    """

    def __init__(self, structure: Any, other: Optional[_Outputs] = None, operands: Any = ()) -> None:
        self.structure = structure
        if other is not None:
            structure = _like(structure, other.structure)
        self.leaves, self.spec = pytree.tree_flatten(structure, is_leaf=_is_leaf)
        theirs, their_spec = self.leaves, self.spec
        if other is not None:
            theirs, their_spec = pytree.tree_flatten(_like(other.structure, self.structure), is_leaf=_is_leaf)
        self.agrees = self.spec == their_spec
        self.kinds: List[str] = []
        self.tensors: List[Any] = []
        known = known_symbols(operands) if other is not None else set()
        for ours, b in zip(self.leaves, theirs if self.agrees else self.leaves):
            kind = _joint_kind(ours, b)
            self.kinds.append(kind)
            if kind in {"constant", "different"}:
                continue
            if kind == "optional":
                flag = ours.flag if isinstance(ours, RunTimeOptional) else torch.full((), ours is not None)
                tensor = ours.tensor if isinstance(ours, RunTimeOptional) else ours
                self.tensors += [flag.clone(), _missing(b, known) if ours is None else scalar_tensor(tensor).clone()]
            elif isinstance(ours, values.Uninitialized):
                self.tensors.append(_missing(b, known))
            else:
                self.tensors.append(scalar_tensor(ours).clone())


def _merge(ours: _Outputs, theirs: _Outputs, tensors: Sequence[Any]) -> Any:
    """The structure after a branch. Numbers that both ways give alike stay known."""
    if not ours.agrees or ours.spec != theirs.spec:
        raise CompileError(
            "a branch that depends on data gives values of one structure on one way and of another on the other: "
            f"{_brief(ours.structure)} and {_brief(theirs.structure)}"
        )
    results: List[Any] = []
    position = 0
    for a, b, kind in zip(ours.leaves, theirs.leaves, ours.kinds):
        undefined = isinstance(a, values.Uninitialized) or isinstance(b, values.Uninitialized)
        if kind == "optional":
            results.append(RunTimeOptional(*tensors[position : position + 2]))
            position += 2
        elif kind == "tensor":
            results.append(tensors[position])
            position += 1
        elif kind == "number":
            known = (bool, int, float)
            same = isinstance(a, known) and type(a) is type(b) and a == b
            results.append(a if same else RunTimeNumber(tensors[position]))
            position += 1
        elif undefined or a is b or (kind == "constant" and a == b):
            results.append(b if isinstance(a, values.Uninitialized) else a)
        else:
            raise CompileError(
                f"a branch that depends on data gives {_brief(a)} on one way and {_brief(b)} on the other"
            )
    return pytree.tree_unflatten(results, ours.spec)


def _brief(structure: Any) -> str:
    """The structure without the elements of its tensors."""
    if isinstance(structure, torch.Tensor):
        return "a tensor"
    if isinstance(structure, (list, tuple)):
        text = ", ".join(_brief(item) for item in structure)
        return f"[{text}]" if isinstance(structure, list) else f"({text})"
    if isinstance(structure, dict):
        return "{" + ", ".join(f"{key}: {_brief(value)}" for key, value in structure.items()) + "}"
    return "a number" if isinstance(structure, (RunTimeNumber, NumberTensor)) else repr(structure)


class _Region:
    """Interprets a block in a copy of the values it uses."""

    def __init__(self, interpreter: Any, captured: _Captured, effects: Any, keys: Sequence[Any]) -> None:
        self._interpreter = interpreter
        self._captured = captured
        self._changed = sorted(effects.changed_tensors)
        self._containers = sorted(effects.changed_containers)
        self._keys = keys

    def run(self, block: Any, inputs: Dict[str, Any], operands: Sequence[Any]) -> Tuple[List[Any], List[Any]]:
        """The block's outputs, and the new values of what it changes around it."""
        env, attributes = self._captured.restore(operands)
        versions = _versions(operands)
        inner = script._Interpreter(self._interpreter.program, {**self._interpreter.attributes, **attributes})
        inner.env = {**env, **inputs}
        inner.unrolled = self._interpreter.unrolled
        inner.block(block)
        _check_unchanged(operands, versions)
        effects = [inner.env[name] for name in (*self._changed, *self._containers)]
        effects += [inner.attributes[key] for key in self._keys]
        return [inner.get(value) for value in block.outputs()], effects

    def run_trip(
        self, body: Any, inputs: Dict[str, Any], operands: Sequence[Any], changed: Sequence[Any], rows: Dict[str, Any]
    ) -> Tuple[List[Any], List[Any], List[Any]]:
        """The same for a trip of a loop, from the values ``changed``; and what it appends to the lists ``rows``."""
        env, attributes = self._captured.restore(operands)
        versions = _versions(operands)
        inner = script._Interpreter(self._interpreter.program, {**self._interpreter.attributes, **attributes})
        inner.env = {**env, **inputs, **rows}
        for name, value in zip(self._changed, changed):
            before, now = inner.env[name], value.clone()
            inner.env.update({other: now for other, tensor in inner.env.items() if tensor is before})
        for key, value in zip(self._keys, changed[len(self._changed) :]):
            inner.attributes[key] = value.clone() if isinstance(value, torch.Tensor) else value
        inner.unrolled = self._interpreter.unrolled
        inner.block(body)
        _check_unchanged(operands, versions)
        effects = [inner.env[name] for name in self._changed] + [inner.attributes[key] for key in self._keys]
        return (
            [inner.get(value) for value in body.outputs()],
            effects,
            [scalar_tensor(items[0]).clone() for items in rows.values()],
        )

    def apply(self, effects: Sequence[Any]) -> None:
        interpreter = self._interpreter
        for name, value in zip((*self._changed, *self._containers), effects):
            before = interpreter.env[name]
            if isinstance(before, torch.Tensor):
                before.copy_(value)
            elif isinstance(before, dict):
                before.clear()
                before.update(value)
            else:
                before[:] = value
        for key, value in zip(self._keys, effects[len(self._changed) + len(self._containers) :]):
            if interpreter.attributes[key] is not value:
                interpreter.attributes[key] = value
                interpreter.written.add(key)


def _set_keys(interpreter: Any, effects: Any) -> List[Any]:
    if "*" in effects.set_attributes:
        raise CompileError("a method called through an interface, in a branch that depends on data")
    for name in effects.set_attributes:
        if not any(key[1] == name for key in interpreter.attributes):
            interpreter.load_attribute(name)
    return sorted(key for key in interpreter.attributes if key[1] in effects.set_attributes)


def branch(interpreter: Any, node: Any, condition: Any) -> None:
    blocks = list(node.blocks())
    raises = [_raises(block) for block in blocks]
    if raises[0] or raises[1]:
        return _checked(interpreter, node, condition, raises)
    effects = script._effects(blocks)
    keys = _set_keys(interpreter, effects)
    captured = _Captured(interpreter, effects)
    region = _Region(interpreter, captured, effects, keys)
    found: Dict[int, _Outputs] = {}

    def function(which: int) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            found[which] = _Outputs(region.run(blocks[which], {}, operands), found.get(1 - which), operands)
            return tuple(found[which].tensors)

        return run

    flag = condition.tensor if isinstance(condition, RunTimeNumber) else condition
    assumed = _assumed(condition)
    if assumed is not None and not _can_branch(function(0), function(1), captured.operands, found):
        # PyTorch's own operators assume the same of sizes: the way that they contradict cannot be traced.
        message = f"sizes that vary are assumed to be 2 or more here: {flag.node.expr} must be {assumed}"
        _take(interpreter, node, flag, 0 if assumed else 1, message)
        return None
    tensors = if_op(flag, function(0), function(1), captured.operands)
    results, changes = _merge(found[0], found[1], tensors)
    region.apply(changes)
    for value, result in zip(node.outputs(), results):
        interpreter.env[value.debugName()] = result
    return None


def _assumed(condition: Any) -> Optional[bool]:
    """What a condition on sizes is, if they are 2 or more."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not isinstance(condition, torch.SymBool):
        return None
    if statically_known_true(condition):
        return True
    return False if statically_known_true(torch.sym_not(condition)) else None


def _can_branch(then: Any, otherwise: Any, operands: Sequence[Any], found: Dict[int, _Outputs]) -> bool:
    """Whether both ways can be traced, and give values of the same kinds."""
    try:
        with without_tracing(operands):
            for _ in range(2):
                tensors = [then(*operands), otherwise(*operands)]
        _merge(found[0], found[1], tensors[0])
        return kinds_of(tensors[0]) == kinds_of(tensors[1])
    except (CompileError, RuntimeError, IndexError, ValueError):
        return False
    finally:
        found.clear()


def _flag_of(condition: Any) -> Any:
    """A condition as a tensor."""
    if not isinstance(condition, torch.SymBool):
        return scalar_tensor(condition)
    (flag,) = if_op(condition, lambda: (torch.full((), True),), lambda: (torch.full((), False),), ())
    return flag


def _take(interpreter: Any, node: Any, condition: Any, way: int, message: str) -> None:
    """Takes one way of a branch, after a check that it is the right one."""
    flag = _flag_of(condition)
    torch.ops.aten._assert_async.msg(torch.logical_not(flag) if way == 1 else flag, message)
    block = list(node.blocks())[way]
    interpreter.block(block)
    for value, result in zip(node.outputs(), block.outputs()):
        interpreter.env[value.debugName()] = interpreter.get(result)


def _raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


def _checked(interpreter: Any, node: Any, condition: Any, raises: Sequence[bool]) -> None:
    """One way raises: the other is taken, after a check."""
    message = ""
    for block, way in zip(node.blocks(), raises):
        if way:
            try:
                interpreter.block(block)
            except ModelRaises as error:
                message = str(error)
    if raises[0] and raises[1]:
        raise ModelRaises(message)
    _take(interpreter, node, condition, 1 if raises[0] else 0, message or "the model raises")


def loop(interpreter: Any, node: Any, trip: int, trips: Any, condition: Any, carried: Sequence[Any]) -> None:
    """The trips that are left of a loop, ``trip`` of which have been unrolled."""
    body = next(iter(node.blocks()))
    effects = script._effects([body])
    keys = _set_keys(interpreter, effects)
    rows = _appended(body, effects)
    for name in rows:
        effects.changed_containers.pop(name)
    lengths = {name: ops.length(interpreter.env[name]) for name in rows}
    if not all(isinstance(length, int) for length in lengths.values()):
        raise CompileError("two loops whose numbers of trips depend on data append to one list")
    captured = _Captured(interpreter, effects)
    region = _Region(interpreter, captured, effects, keys)
    parameters = [value.debugName() for value in body.inputs()]
    outer_effects = [interpreter.env[name] for name in (*sorted(effects.changed_tensors),)]
    if effects.changed_containers:
        raise CompileError("a list or dict is changed in a loop whose number of trips depends on data")
    outer_effects += [interpreter.attributes[key] for key in keys]
    start = _Outputs((list(carried), outer_effects))
    found: List[_Outputs] = []

    def restored(tensors: Sequence[Any]) -> Any:
        """Carried numbers are known at run time only."""
        leaves, position = [], 0
        for leaf, kind in zip(start.leaves, start.kinds):
            if kind == "constant":
                leaves.append(leaf)
                continue
            if kind == "optional":
                leaves.append(RunTimeOptional(*tensors[position : position + 2]))
                position += 2
                continue
            leaves.append(RunTimeNumber(tensors[position]) if kind == "number" else tensors[position])
            position += 1
        return pytree.tree_unflatten(leaves, start.spec)

    count = len(start.tensors)

    def run(number: Any, *arguments: Any) -> Any:
        values_in, changed_in = restored(arguments[:count])
        index = RunTimeNumber(number + trip if trip else number)
        inputs = dict(zip(parameters, [index, *values_in]))
        (goes_on, *outputs), changes, appended = region.run_trip(
            body,
            inputs,
            arguments[count:],
            changed_in,
            {name: CountedList(values.arithmetic("add", [RunTimeNumber(number), lengths[name]])) for name in rows},
        )
        end = _Outputs((outputs, changes))
        found[:] = [end]
        if end.kinds != start.kinds or end.spec != start.spec:
            raise CompileError("a loop that depends on data changes the structure of a value it carries")
        return (scalar_tensor(goes_on).to(torch.bool), *end.tensors, *appended)

    flag = scalar_tensor(values.to_condition(condition))
    if isinstance(trips, (RunTimeNumber, torch.SymInt)):
        trips = values.arithmetic("sub", [trips, trip]) if trip else trips
        limit = scalar_tensor(trips)
    else:
        limit = scalar_tensor(trips - trip)
    results = loop_op(run, limit, flag, tuple(start.tensors), captured.operands, len(rows))
    outputs, changes = restored(results[:count])
    end = found[0]
    _keep_constants(start, end)
    names = sorted(effects.changed_tensors)
    for name, value in zip(names, changes):
        interpreter.env[name].copy_(value)
    for key, value in zip(keys, changes[len(names) :]):
        interpreter.attributes[key] = value
        interpreter.written.add(key)
    if _is_endless(node, body) and isinstance(trips, torch.SymInt):
        for stack in results[count:]:
            torch._check(stack.shape[0] == trips)
    for (name, numbers), stack in zip(rows.items(), results[count:]):
        interpreter.env[name].append(RunTimeList(stack, numbers))
    for value, result in zip(node.outputs(), outputs):
        interpreter.env[value.debugName()] = result


def _is_endless(node: Any, body: Any) -> bool:
    """Whether the loop runs for all its trips."""
    conditions = [list(node.inputs())[1], next(iter(body.outputs()))]
    return all(value.node().kind() == "prim::Constant" and value.toIValue() is True for value in conditions)


def _keep_constants(start: _Outputs, end: _Outputs) -> None:
    for a, b, kind in zip(start.leaves, end.leaves, start.kinds):
        if kind == "constant" and a is not b and a != b:
            raise CompileError(f"a loop that depends on data changes {a!r} to {b!r}, which is not a tensor or number")


def _note_uses(block: Any, kinds: Dict[str, Set[str]]) -> None:
    """The kinds of the nodes that use each value."""
    for node in block.nodes():
        for value in node.inputs():
            kinds.setdefault(value.debugName(), set()).add(node.kind())
        for inner in node.blocks():
            _note_uses(inner, kinds)
    for value in block.outputs():
        kinds.setdefault(value.debugName(), set()).add("output")


def _appended(body: Any, effects: Any) -> Dict[str, bool]:
    """Lists to which each trip appends one tensor or number (True)."""
    top: Set[str] = set()
    for node in body.nodes():
        if node.kind() == "aten::append":
            top.add(next(iter(node.inputs())).debugName())
    kinds: Dict[str, Set[str]] = {}
    _note_uses(body, kinds)
    found: Dict[str, bool] = {}
    for name, nodes in sorted(effects.changed_containers.items()):
        only = len(nodes) == 1 and nodes[0].kind() == "aten::append" and kinds[name] <= {"aten::append", "aten::len"}
        if name in top and only:
            kind = list(nodes[0].inputs())[1].type().kind()
            if kind in {"TensorType", "IntType", "FloatType", "BoolType"}:
                found[name] = kind != "TensorType"
    return found
