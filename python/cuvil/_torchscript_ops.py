"""Operators of a TorchScript graph: those of tensors are PyTorch's, the rest is computed at once."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List

import torch
from torch.utils import _pytree as pytree

from cuvil import _torchscript_values as values
from cuvil._errors import CompileError
from cuvil._torchscript_values import (
    CountedList,
    NumberTensor,
    RunTimeList,
    RunTimeNumber,
    RunTimeOptional,
    arithmetic,
    scalar_tensor,
)

_BY_VALUE = {"arange", "linspace", "tril_indices"}
"""Operators to which a number that depends on data is passed as a size."""


def call(kind: str, schema_text: str, inputs: List[Any]) -> Any:
    namespace, _, name = kind.partition("::")
    special = _SPECIAL.get(name) if namespace == "aten" else _PRIM.get(name) if namespace == "prim" else None
    if special is not None:
        return special(*inputs)
    if name in {"stack", "cat"} and any(isinstance(item, RunTimeList) for item in inputs[0]):
        return _joined(name, *inputs)
    if name == "slice" and isinstance(inputs[0], torch.Tensor):
        size = inputs[0].shape[inputs[1]]
        inputs = [*inputs[:2], *(_position(a, size) for a in inputs[2:4]), *inputs[4:]]
    schema = _schema(schema_text)
    of_tensors = any(
        isinstance(leaf, torch.Tensor)
        for leaf in pytree.tree_leaves(inputs, is_leaf=lambda v: isinstance(v, (RunTimeNumber, NumberTensor)))
    )
    if not of_tensors and any(isinstance(a, NumberTensor) for a in inputs):
        result = _of_number_tensors(name, inputs)
        if result is None:
            result = _computed(namespace, name, schema, inputs)
        if result is not None:
            return result
    takes_tensors = any("Tensor" in str(a.type) for a in schema.arguments)
    gives_tensors = any("Tensor" in str(r.type) for r in schema.returns)
    is_list_function = bool(schema.arguments) and str(schema.arguments[0].type).startswith(("List", "Dict"))
    folds = name in {"any", "all", "sum"} and takes_tensors
    if name in values.CONTAINERS and (is_list_function or not takes_tensors) and not folds:
        return values.CONTAINERS[name](*inputs)
    if not takes_tensors and not gives_tensors:
        if name in values.ARITHMETIC:
            return arithmetic(name, inputs)
        return _other(kind, schema, inputs)
    if name in {"eq", "ne", "add", "mul"} and is_list_function and str(schema.arguments[0].type) != "Tensor":
        return arithmetic(name, inputs)
    return _tensor_call(namespace, name, schema, inputs)


@functools.lru_cache(maxsize=4096)
def _schema(text: str) -> Any:
    try:
        return torch._C.parse_schema(text)
    except RuntimeError as error:
        raise CompileError(f"the operator {text.partition('(')[0]} is not supported in TorchScript models") from error


def _other(kind: str, schema: Any, inputs: List[Any]) -> Any:
    if any(isinstance(a, (RunTimeNumber, torch.SymInt)) for a in pytree.tree_leaves(inputs)):
        raise CompileError(f"{kind} of a value that is not known when the model is compiled is not supported")
    try:
        operation, _ = torch._C._jit_get_operation(kind)
        return operation(*inputs)
    except RuntimeError as error:
        raise CompileError(f"{kind} is not supported in TorchScript models: {error}") from error


def _of_number_tensors(name: str, inputs: List[Any]) -> Any:
    numbers = [a.value if isinstance(a, NumberTensor) else a for a in inputs]
    if name in {"to", "detach", "clone", "contiguous", "cpu"}:
        return inputs[0]
    if name in {"add", "sub"} and len(numbers) == 3:
        numbers = [numbers[0], numbers[1] * numbers[2]]
    if name == "rsub" and len(numbers) == 3:
        name, numbers = "sub", [numbers[1], numbers[0] * numbers[2]]
    if name == "div" and len(numbers) == 3:
        if numbers[2] not in {"floor", "trunc"}:
            return None
        name, numbers = "floordiv", numbers[:2]
    if name in {"add", "sub", "mul", "floor_divide", "floordiv", "remainder", "neg", "div"} and len(numbers) <= 2:
        return NumberTensor(arithmetic(name, numbers))
    return None


def _computed(namespace: str, name: str, schema: Any, inputs: List[Any]) -> Any:
    """What PyTorch computes of known numbers, if that is a number too."""
    from torch.utils._python_dispatch import _disable_current_modes

    known = [a.value if isinstance(a, NumberTensor) else a for a in inputs]
    if not all(a is None or isinstance(a, (bool, int, float, str)) for a in known) or name.endswith("_"):
        return None
    with _disable_current_modes():
        result = _tensor_call(namespace, name, schema, inputs)
    if isinstance(result, torch.Tensor) and result.dim() == 0 and result.dtype == torch.int64:
        return NumberTensor(result.item())
    return None


def _tensor_call(namespace: str, name: str, schema: Any, inputs: List[Any]) -> Any:
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        raise CompileError(f"PyTorch has no operator {namespace}::{name}")
    args: List[Any] = []
    kwargs: Dict[str, Any] = {}
    reselect = False
    for a, value in zip(schema.arguments, inputs):
        converted = _argument(a, value)
        if isinstance(converted, RunTimeNumber):
            kind = str(a.type)
            if name in _BY_VALUE and not converted.tensor.dtype.is_floating_point:
                converted = _size(converted)
            elif kind == "number" or "Scalar" in str(a.real_type):
                converted, reselect = _as_operand(converted, inputs), True
            else:
                raise CompileError(f"argument '{a.name}' must be known when the model is compiled")
        if a.kwarg_only:
            kwargs[a.name] = converted
        else:
            args.append(converted)
    if reselect:
        return _operand_call(packet, name, args, kwargs)
    overload = getattr(packet, schema.overload_name or "default", None)
    if overload is None:
        raise CompileError(f"PyTorch has no operator {namespace}::{name}.{schema.overload_name}")
    result = overload(*args, **kwargs)
    if schema.name.endswith("_") and inputs and isinstance(inputs[0], torch.Tensor) and not name.startswith("__"):
        return inputs[0] if isinstance(result, torch.Tensor) else result
    return list(result) if isinstance(result, tuple) and len(schema.returns) == 1 else result


def _position(number: Any, size: Any) -> Any:
    """A position in a slice that depends on data, counted from the start."""
    if not isinstance(number, RunTimeNumber):
        return number
    from_end = number.tensor + size
    return RunTimeNumber(torch.where(number.tensor < 0, from_end, number.tensor).clamp_min(0))


def _as_operand(number: RunTimeNumber, inputs: List[Any]) -> Any:
    """As a tensor of rank 0 that promotes as the number would."""
    tensor = number.tensor
    if not tensor.dtype.is_floating_point:
        return tensor
    floating = [t for t in inputs if isinstance(t, torch.Tensor) and t.dtype.is_floating_point]
    return tensor.to(floating[0].dtype if floating else torch.get_default_dtype())


def _operand_call(packet: Any, name: str, args: List[Any], kwargs: Dict[str, Any]) -> Any:
    if name in {"full", "full_like", "fill", "fill_", "scalar_tensor", "masked_fill", "masked_fill_"}:
        if name in {"fill", "fill_"}:
            return args[0].copy_(args[1]) if name == "fill_" else args[1].expand(args[0].shape).to(args[0].dtype)
        if name == "full":
            return args[1].to(kwargs.get("dtype") or args[1].dtype).expand(args[0]).clone()
        if name == "full_like":
            return args[1].to(kwargs.get("dtype") or args[0].dtype).expand(args[0].shape).clone()
        if name == "scalar_tensor":
            return args[0].to(kwargs.get("dtype") or torch.get_default_dtype())
    if name in {"add", "sub", "add_", "sub_", "rsub"} and len(args) == 3:
        kwargs["alpha"] = args.pop()
    if name == "rsub":
        return torch.sub(args[1], args[0], **kwargs)
    if name in {"clamp", "clamp_min", "clamp_max"}:
        args = [torch.as_tensor(a) if isinstance(a, (int, float)) else a for a in args]
    try:
        return packet(*args, **kwargs)
    except RuntimeError as error:
        raise CompileError(f"aten::{name} of a number that depends on data is not supported: {error}") from error


def _argument(a: Any, value: Any) -> Any:
    real = str(a.real_type)
    if isinstance(value, NumberTensor):
        return scalar_tensor(value) if "Tensor" in real else value.value
    if isinstance(value, RunTimeNumber):
        if real in {"Tensor", "Optional[Tensor]"}:
            return value.tensor
        if "SymInt" in real or real in {"int", "Optional[int]"}:
            return _size(value)
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if "ScalarType" in real:
            return values.DTYPES[value]
        if "Layout" in real:
            return torch.strided
        if "MemoryFormat" in real:
            return values.MEMORY_FORMATS[value]
    if isinstance(value, list):
        if "Tensor" in real:
            return [scalar_tensor(v) if isinstance(v, (NumberTensor, RunTimeNumber)) else v for v in value]
        return [
            _size(v) if isinstance(v, RunTimeNumber) else v.value if isinstance(v, NumberTensor) else v for v in value
        ]
    if "Device" in real and value is not None:
        return torch.device("cpu")
    return value


def _size(number: RunTimeNumber) -> Any:
    """As an integer of the graph: a symbol whose value is found when the model runs."""
    return number.tensor.item()


def _tensor_of(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """torch.tensor(data): numbers, or nested lists of them."""
    wanted = values.DTYPES[dtype] if isinstance(dtype, int) else dtype
    leaves = pytree.tree_leaves(data, is_leaf=lambda v: isinstance(v, (RunTimeNumber, NumberTensor)))
    if isinstance(data, torch.Tensor):
        return data.to(wanted) if wanted is not None else data.clone()
    if isinstance(data, list) and any(isinstance(item, RunTimeList) for item in data):
        return _joined_numbers(data, wanted)
    if wanted is None:
        wanted = _default_dtype(leaves)
    if values.is_number(data) or isinstance(data, NumberTensor):
        if isinstance(data, RunTimeNumber):
            return data.tensor.to(wanted)
        return torch.full((), data.value if isinstance(data, NumberTensor) else data, dtype=wanted)
    if not leaves or (len(leaves) > 64 and all(isinstance(v, (bool, int, float)) for v in leaves)):
        return torch.tensor(data, dtype=wanted)
    return torch.stack([_tensor_of(item, wanted) for item in data])


def _default_dtype(leaves: List[Any]) -> Any:
    kinds = {scalar_tensor(v).dtype for v in leaves if not isinstance(v, torch.Tensor)}
    kinds |= {v.dtype for v in leaves if isinstance(v, torch.Tensor)}
    if not kinds or any(k.is_floating_point for k in kinds):
        return torch.get_default_dtype()
    return torch.bool if kinds == {torch.bool} else torch.int64


def _joined(name: str, items: List[Any], axis: int = 0) -> Any:
    """stack or cat of a list that a loop filled."""
    parts = []
    for item in items:
        if not isinstance(item, RunTimeList):
            parts.append(item.unsqueeze(axis) if name == "stack" else item)
            continue
        at = axis % (item.rows.dim() if name == "stack" else item.rows.dim() - 1)
        rows = item.rows.movedim(0, at)
        parts.append(rows if name == "stack" else rows.flatten(at, at + 1))
    return torch.cat(parts, axis) if len(parts) > 1 else parts[0]


def _joined_numbers(items: List[Any], dtype: Any) -> Any:
    """torch.tensor of a list of numbers that a loop filled."""
    if any(isinstance(item, RunTimeList) and not item.numbers for item in items):
        raise CompileError("torch.tensor of a list of tensors")
    parts = [item.rows if isinstance(item, RunTimeList) else scalar_tensor(item).reshape(1) for item in items]
    if dtype is None:
        dtype = torch.get_default_dtype() if parts[0].dtype.is_floating_point else parts[0].dtype
    return torch.cat([part.to(dtype) for part in parts])


def length(items: Any) -> Any:
    if isinstance(items, torch.Tensor):
        return items.shape[0]
    if isinstance(items, CountedList):
        return arithmetic("add", [items.before, len(items)])
    many = [item.rows.shape[0] - 1 for item in items if isinstance(item, RunTimeList)]
    return len(items) + sum(many)


def _sizes(x: Any, axis: Any = None) -> Any:
    if isinstance(x, NumberTensor):
        return []
    return list(x.shape) if axis is None else x.shape[axis]


def _count(x: Any) -> Any:
    return x.numel()


def _same_object(a: Any, b: Any) -> Any:
    if isinstance(a, RunTimeOptional) and b is None:
        return RunTimeNumber(torch.logical_not(a.flag))
    return a is b


def _different_object(a: Any, b: Any) -> Any:
    return RunTimeNumber(a.flag) if isinstance(a, RunTimeOptional) and b is None else a is not b


def _to_string(value: Any) -> str:
    return str(value)


_SPECIAL: Dict[str, Callable[..., Any]] = {
    "Int": values.to_int,
    "Float": values.to_float,
    "Bool": values.to_bool,
    "FloatImplicit": values.to_float,
    "IntImplicit": values.to_int,
    "ScalarImplicit": values.implicit,
    "item": values.implicit,
    "tensor": _tensor_of,
    "as_tensor": lambda data, dtype=None, device=None: (
        data if isinstance(data, torch.Tensor) and dtype is None else _tensor_of(data, dtype)
    ),
    "len": length,
    "size": _sizes,
    "dim": lambda x: 0 if isinstance(x, NumberTensor) else x.dim(),
    "numel": _count,
    "is_floating_point": lambda x: x.dtype.is_floating_point,
    "is_complex": lambda x: x.dtype.is_complex,
    "is_contiguous": lambda x, *_: True,
    "get_device": lambda x: -1,
    "warn": lambda *_: None,
    "manual_seed": lambda *_: None,
    "__is__": _same_object,
    "__isnot__": _different_object,
    "device": lambda *_: torch.device("cpu"),
    "cpu": lambda x: x,
    "cuda": lambda x, *_: x,
    "requires_grad_": lambda x, *_: x,
    # With gradients, PyTorch's own modules keep to plain operators instead of fused ones.
    "is_grad_enabled": lambda: True,
    "set_grad_enabled": lambda *_: None,
    "format": lambda text, *args: text.format(*args),
    "str": _to_string,
    "grad": lambda x: None,
    "_convolution": lambda x, *args: torch.ops.aten.convolution.default(x, *args[:8]),
}


def _materialized(value: Any) -> Any:
    return scalar_tensor(value) if isinstance(value, (NumberTensor, RunTimeNumber)) else value


def _extreme(name: str) -> Callable[..., Any]:
    return lambda *a: arithmetic(name, a[0] if len(a) == 1 and isinstance(a[0], list) else list(a))


def _no(*_: Any) -> bool:
    return False


def _same(value: Any, *_: Any) -> Any:
    return value.tensor if isinstance(value, RunTimeOptional) else value


def _unknown_type(*_: Any) -> Any:
    raise CompileError("isinstance() of a value whose type is not known when the model is compiled")


def select_copy(x: Any, axis: int, index: RunTimeNumber) -> Any:
    """select, as a copy."""
    return x.index_select(axis, index.tensor.reshape(1)).squeeze(axis)


def select_view(x: Any, axis: int, index: RunTimeNumber) -> Any:
    """select, so that changes of it change x."""
    size = x.shape[axis]
    position = _size(_position(index, size))
    torch._check(position >= 0)
    torch._check(position < size)
    return torch.select(x, axis, position)


_PRIM: Dict[str, Callable[..., Any]] = {
    "Uninitialized": values.Uninitialized,
    "ListConstruct": lambda *items: list(items),
    "TupleConstruct": lambda *items: items,
    "DictConstruct": lambda *items: dict(zip(items[::2], items[1::2])),
    "TupleIndex": lambda items, index: items[index],
    "Enter": lambda *_: None,
    "Exit": lambda *_: None,
    "unchecked_cast": _same,
    "unchecked_unwrap_optional": _same,
    "data": _same,
    "NumToTensor": lambda value: value.tensor if isinstance(value, RunTimeNumber) else NumberTensor(value),
    "isinstance": _unknown_type,
    "Print": lambda *_: None,
    "dtype": lambda x: values.DTYPES.index(_materialized(x).dtype),
    "device": lambda x: torch.device("cpu"),
    "layout": lambda x: 0,
    "shape": _sizes,
    "is_cuda": _no,
    "is_mkldnn": _no,
    "is_sparse": _no,
    "is_quantized": _no,
    "is_meta": _no,
    "is_xpu": _no,
    "is_mps": _no,
    "is_nested": _no,
    "requires_grad": lambda x: True,
    "grad": lambda x: None,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "abs": lambda x: arithmetic("abs", [x]),
}
