"""What TorchScript computes outside of tensors: numbers, strings, lists, dicts."""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Dict, Iterable, List, Tuple

import torch
from torch.utils import _pytree as pytree

from cuvil._errors import CompileError


class RunTimeNumber:
    """An int, float or bool that a tensor of rank 0 holds when the model runs."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __repr__(self) -> str:
        return f"a number known at run time ({self.tensor.dtype})"


class NumberTensor:
    """A tensor of rank 0 with a value known to the compiler, or a size: torch.jit.trace makes them of sizes."""

    def __init__(self, value: Any) -> None:
        self.value = value


class RunTimeOptional:
    """A tensor or None: which, tells ``flag``, a bool of rank 0, when the model runs."""

    def __init__(self, flag: Any, tensor: Any) -> None:
        self.flag = flag
        self.tensor = tensor


class RunTimeList:
    """In a list: the tensors (or numbers) that a loop of unknown length appended, as the rows of one tensor."""

    def __init__(self, rows: Any, numbers: bool = False) -> None:
        self.rows = rows
        self.numbers = numbers

    def items(self) -> List[Any]:
        """Once they are known."""
        return list(self.rows.tolist()) if self.numbers else list(self.rows)


class CountedList(list):  # type: ignore[type-arg]
    """In a loop's body: what the trip has appended, after the items of which only the number (``before``) is known."""

    def __init__(self, before: Any, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.before = before


def _first_and_rest(items: Iterable[Any]) -> Tuple[Any, List[Any]]:
    first, *rest = items
    return first, rest


class Uninitialized:
    """What a variable holds on a way that raises."""


pytree.register_pytree_node(RunTimeNumber, lambda n: ([n.tensor], None), lambda children, _: RunTimeNumber(*children))
pytree.register_pytree_node(
    CountedList, lambda n: ([n.before, *n], None), lambda children, _: CountedList(*_first_and_rest(children))
)
pytree.register_pytree_node(
    RunTimeList,
    lambda n: ([n.rows], n.numbers),
    lambda children, numbers: RunTimeList(next(iter(children)), numbers),
)
pytree.register_pytree_node(
    RunTimeOptional, lambda n: ([n.flag, n.tensor], None), lambda children, _: RunTimeOptional(*children)
)
pytree.register_pytree_node(NumberTensor, lambda n: ([n.value], None), lambda children, _: NumberTensor(*children))

DTYPES: List[Any] = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.qint8,
    torch.quint8,
    torch.qint32,
    torch.bfloat16,
]
"""By TorchScript's numbers."""

MEMORY_FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d]


def scalar_tensor(value: Any) -> Any:
    """A tensor of rank 0 that holds the number."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, RunTimeNumber):
        return value.tensor
    if isinstance(value, NumberTensor):
        return scalar_tensor(value.value)
    if isinstance(value, (bool, torch.SymBool)):
        return torch.full((), value, dtype=torch.bool)
    if isinstance(value, (int, torch.SymInt)):
        return torch.full((), value, dtype=torch.int64)
    return torch.full((), value, dtype=torch.float64)


def is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool, RunTimeNumber))


def _number_of(value: Any) -> Any:
    """int(), float() and bool() take tensors of one element, too."""
    if isinstance(value, torch.Tensor):
        return RunTimeNumber(value.reshape(()))
    return value.value if isinstance(value, NumberTensor) else value


def _converted(kind: Callable[[Any], Any], dtype: Any) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        number = _number_of(value)
        if isinstance(number, RunTimeNumber):
            return RunTimeNumber(number.tensor.to(dtype))
        if isinstance(number, torch.SymInt):
            return number if kind is int else number != 0 if kind is bool else torch.sym_float(number)
        if isinstance(number, torch.SymBool) and kind is bool:
            return number
        return kind(number)

    return convert


def implicit(value: Any) -> Any:
    return _number_of(value)


to_int = _converted(int, torch.int64)
to_float = _converted(float, torch.float64)
to_bool = _converted(bool, torch.bool)


def to_condition(value: Any) -> Any:
    """A bool, or a RunTimeNumber that holds one."""
    return to_bool(value)


def _divide_to_zero(a: Any, b: Any) -> Any:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _round(value: Any, digits: Any = None) -> Any:
    return float(round(value)) if digits is None else round(value, digits)


def _and(a: Any, b: Any) -> Any:
    return a & b


def _or(a: Any, b: Any) -> Any:
    return a | b


def _not(a: Any) -> Any:
    return torch.sym_not(a) if isinstance(a, torch.SymBool) else not a


def _range_length(low: Any, high: Any, step: Any) -> Any:
    if step == 0:
        raise CompileError("range() with a step of 0")
    if step > 0:
        return torch.sym_max(0, (high - low + step - 1) // step)
    return torch.sym_max(0, (low - high - step - 1) // -step)


ARITHMETIC: Dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "fmod": math.fmod,
    "mod": operator.mod,
    "neg": operator.neg,
    "pow": operator.pow,
    "abs": abs,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "__and__": _and,
    "__or__": _or,
    "__xor__": operator.xor,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
    "__not__": _not,
    "bitwise_not": operator.invert,
    "max": lambda *a: torch.sym_max(*a) if len(a) == 2 else max(*a),
    "min": lambda *a: torch.sym_min(*a) if len(a) == 2 else min(*a),
    "ceil": math.ceil,
    "floor": math.floor,
    "round": _round,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "__range_length": _range_length,
    "__derive_index": lambda index, start, step: start + index * step,
}

_ON_TENSORS: Dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.true_divide,
    "floordiv": torch.floor_divide,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "mod": torch.remainder,
    "fmod": torch.fmod,
    "neg": torch.neg,
    "pow": torch.pow,
    "abs": torch.abs,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "__and__": torch.bitwise_and,
    "__or__": torch.bitwise_or,
    "__xor__": torch.bitwise_xor,
    "__not__": torch.logical_not,
    "bitwise_not": torch.bitwise_not,
    "max": torch.maximum,
    "min": torch.minimum,
    "ceil": lambda x: torch.ceil(x).to(torch.int64),
    "floor": lambda x: torch.floor(x).to(torch.int64),
    "round": torch.round,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "__derive_index": lambda index, start, step: start + index * step,
}

_ALIKE = {"add", "sub", "mul", "floordiv", "floor_divide", "remainder", "mod", "max", "min", "fmod", "pow"}
_COMPARE = {"eq", "ne", "lt", "le", "gt", "ge"}


def arithmetic(name: str, args: List[Any]) -> Any:
    """A function of numbers (or of strings, lists: + and ==), whether they are known or not."""
    if not any(isinstance(a, RunTimeNumber) for a in args):
        if name in _COMPARE and any(isinstance(a, torch.dtype) or a is None for a in args):
            return ARITHMETIC[name](args[0], args[1])
        return ARITHMETIC[name](*args)
    if name == "__range_length":
        low, high, step = args
        if isinstance(step, RunTimeNumber):
            raise CompileError("range() with a step that depends on data")
        distance = arithmetic("sub", [high, low] if step > 0 else [low, high])
        count = arithmetic("floordiv", [arithmetic("add", [distance, abs(step) - 1]), abs(step)])
        return arithmetic("max", [count, 0])
    function = _ON_TENSORS.get(name)
    if function is None:
        raise CompileError(f"'{name}' of a number that depends on data is not supported")
    tensors = [scalar_tensor(a) for a in args]
    if name in _ALIKE | _COMPARE and len({t.dtype for t in tensors}) > 1:
        wide = torch.float64 if any(t.dtype.is_floating_point for t in tensors) else torch.int64
        tensors = [t.to(wide) for t in tensors]
    if name == "div":
        tensors = [t.to(torch.float64) for t in tensors]
    return RunTimeNumber(function(*tensors))


def _index(items: Any, index: Any) -> Any:
    if isinstance(items, list) and any(isinstance(item, RunTimeList) for item in items):
        raise CompileError("an element is taken of a list that a loop filled whose number of trips depends on data")
    if isinstance(index, (RunTimeNumber, torch.SymInt)):
        raise CompileError("an element of a list is taken at a position that is not known when the model is compiled")
    return items[index]


def _slice(items: Any, start: Any = None, end: Any = None, step: Any = None) -> Any:
    return items[start:end:step]


def _set_item(items: Any, index: Any, value: Any) -> Any:
    items[index] = value
    return items


def _then(items: Any, action: Callable[..., Any], *args: Any) -> Any:
    action(*args)
    return items


def _setdefault(items: Any, key: Any, value: Any) -> Any:
    return items.setdefault(key, value)


def _delete(items: Any, key: Any) -> None:
    del items[key]


def _format(text: str, *args: Any) -> str:
    return text.format(*args)


CONTAINERS: Dict[str, Callable[..., Any]] = {
    "len": len,
    "__getitem__": _index,
    "_set_item": _set_item,
    "append": lambda items, value: _then(items, items.append, value),
    "extend": lambda items, more: _then(items, items.extend, more),
    "insert": lambda items, at, value: _then(items, items.insert, at, value),
    "pop": lambda items, *at: items.pop(*at),
    "clear": lambda items: _then(items, items.clear),
    "remove": lambda items, value: _then(items, items.remove, value),
    "reverse": lambda items: _then(items, items.reverse),
    "sort": lambda items, reverse=False: _then(items, lambda: items.sort(reverse=reverse)),
    "sorted": sorted,
    "list": list,
    "copy": lambda items: items.copy(),
    "dict": dict,
    "Delete": _delete,
    "keys": lambda items: list(items.keys()),
    "values": lambda items: list(items.values()),
    "items": lambda items: list(items.items()),
    "get": lambda items, key, default=None: items.get(key, default),
    "setdefault": _setdefault,
    "update": lambda items, more: _then(items, items.update, more),
    "__contains__": lambda items, key: key in items,
    "slice": _slice,
    "format": _format,
    "str": str,
    "join": lambda text, items: text.join(items),
    "lower": str.lower,
    "upper": str.upper,
    "startswith": lambda text, *a: text.startswith(*a),
    "endswith": lambda text, *a: text.endswith(*a),
    "find": lambda text, *a: text.find(*a),
    "replace": lambda text, *a: text.replace(*a),
    "split": lambda text, *a: text.split(*a),
    "strip": lambda text, *a: text.strip(*a),
    "ord": ord,
    "chr": chr,
    "any": any,
    "all": all,
    "sum": sum,
}
