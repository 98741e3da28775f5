"""Where a compiled model comes from: how to import it (again), and how calls map to its inputs and outputs."""

from __future__ import annotations

import inspect
import os
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

from cuvil import cuvil_native as _native
from cuvil._errors import CompileError, InputError
from cuvil._spec import InputSpec

Varying = FrozenSet[Tuple[int, int]]
"""Axes whose sizes vary from call to call: (input, axis)."""

_TRACED_SIZE = 3
"""Size that a varying axis of size 0 or 1 has while the model is traced: PyTorch would take those for constants."""


class Source:
    """A model in its original form."""

    positional = False
    """A call's positional arguments are exactly the input tensors."""
    plain_result = True
    """The engine's result (a tensor, or a tuple of several) is the call's."""

    def import_graph(self, varying: Varying) -> Any:
        """The native graph, with these axes variable. Raises CompileError."""
        raise NotImplementedError

    def flatten(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Sequence[Any]:
        """The input tensors of a call, in order. Raises InputError."""
        raise NotImplementedError

    def unflatten(self, result: Any) -> Any:
        """The call's result from the engine's."""
        return result


def by_name(args: Tuple[Any, ...], kwargs: Dict[str, Any], names: Sequence[str]) -> List[Any]:
    """Positional and named arguments in the order of ``names``, all present."""
    if len(args) > len(names):
        raise InputError(f"the model takes {len(names)} inputs ({', '.join(names)}), got {len(args)}")
    values = dict(zip(names, args))
    for name, value in kwargs.items():
        if name not in names:
            raise InputError(f"the model has no input '{name}'; it has {', '.join(names)}")
        if name in values:
            raise InputError(f"input '{name}' is given twice")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(f"missing input {', '.join(repr(name) for name in missing)}")
    return [values[name] for name in names]


class OnnxSource(Source):
    """An ONNX model: a path, bytes, or a ModelProto."""

    def __init__(
        self,
        model: Any,
        specs: Optional[List[InputSpec]],
        values: Optional[Dict[str, Any]] = None,
        sizes: Optional[Dict[Tuple[str, int], int]] = None,
    ) -> None:
        """``values``: inputs that become constants; ``sizes``: sizes of axes (input, axis) that do."""
        self._values = values or {}
        self._sizes = sizes or {}
        self._path: Optional[str] = None
        self._bytes = b""
        if isinstance(model, (str, os.PathLike)):
            self._path = os.fspath(model)
        else:
            self._bytes = model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)
        self._specs = specs or []
        self._names: List[str] = []

    def import_graph(self, varying: Varying) -> Any:
        shapes: Dict[str, List[str]] = {}
        for spec in self._specs:
            if spec.name in self._values:
                continue
            shape = spec.shape if spec.shape is not None else tuple(spec.example.shape)
            shapes[spec.name] = ["" if size is None else str(size) for size in shape]
        graph = self._import(shapes)
        self._names = list(graph.input_names)
        self.positional = True
        if not varying:
            return graph
        for number, shape in enumerate(graph.input_shapes):
            if any(number == input_number for input_number, _ in varying):
                shapes[self._names[number]] = [
                    "" if (number, axis) in varying else str(size) for axis, size in enumerate(shape)
                ]
        return self._import(shapes)

    def _import(self, shapes: Dict[str, List[str]]) -> Any:
        if self._path is not None:
            return _native.import_onnx_file(self._path, shapes, self._values, self._sizes)
        return _native.import_onnx_bytes(self._bytes, shapes, self._values, self._sizes)

    def specialized(self, values: Dict[str, Any], sizes: Dict[Tuple[str, int], int]) -> OnnxSource:
        """The same model with these inputs, and these sizes of axes, as constants."""
        return OnnxSource(self._path if self._path is not None else self._bytes, self._specs, values, sizes)

    def flatten(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Sequence[Any]:
        return by_name(args, kwargs, self._names)


class ArtifactSource(Source):
    """A compiled model's file: there is nothing to import, only inputs to put in order."""

    positional = True

    def __init__(self) -> None:
        self.names: List[str] = []

    def flatten(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Sequence[Any]:
        return by_name(args, kwargs, self.names)


class FunctionSource(Source):
    """An nn.Module, a function of torch tensors, or an ExportedProgram.

    ``args`` and ``kwargs`` are example arguments; ``args=None`` makes them from ``specs``.
    """

    def __init__(
        self, model: Any, args: Optional[Tuple[Any, ...]], kwargs: Dict[str, Any], specs: Optional[List[InputSpec]]
    ) -> None:
        self._model = model
        self._args = args
        self._kwargs = kwargs
        self._specs = specs or []
        self._names = [spec.name for spec in self._specs]
        self._imported: Any = None
        self._finish = model.finish if type(model).__name__ == "ScriptProgram" else None
        self._tree: Any = None
        if args is None:
            self._args = tuple(self._example(spec) for spec in self._specs)

    def import_graph(self, varying: Varying) -> Any:
        from torch.utils import _pytree

        from cuvil import _torch

        if type(self._model).__name__ == "ExportedProgram":
            if varying:
                raise CompileError("an exported program's sizes are fixed by its export")
            imported = _torch.import_module(self._model, (), names=self._names)
        else:
            args, kwargs, shapes = self._dynamic(varying)
            imported = _torch.import_module(self._model, args, kwargs, shapes, self._names or self._parameters(args))
        self._imported = imported
        self._tree = _pytree
        self.positional = self._takes_tensors_only(imported)
        leaves = imported.output_leaves
        tensors_in_order = [leaf for leaf in leaves] == [("tensor", number) for number in range(len(leaves))]
        spec = imported.out_spec
        self.plain_result = tensors_in_order and (
            spec.is_leaf() or (len(leaves) > 1 and spec == self._tree.tree_structure(tuple(range(len(leaves)))))
        )
        return imported.graph

    def _takes_tensors_only(self, imported: Any) -> bool:
        count = len(imported.tensor_positions)
        plain = self._tree.tree_structure((tuple(range(count)), {}))
        return not imported.constants and imported.in_spec == plain

    def _example(self, spec: InputSpec) -> Any:
        if spec.shape is None:
            return spec.example
        import torch

        dtype = getattr(torch, spec.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise CompileError(f"input_spec of '{spec.name}': PyTorch has no element type '{spec.dtype}'")
        shape = [size if isinstance(size, int) else _TRACED_SIZE for size in spec.shape]
        return torch.zeros(shape, dtype=dtype)

    def _dynamic(self, varying: Varying) -> Tuple[Tuple[Any, ...], Dict[str, Any], Any]:
        """Example arguments and torch.export's ``dynamic_shapes`` for axes that vary by spec or by experience."""
        import torch
        from torch.utils import _pytree as pytree

        assert self._args is not None
        leaves, spec = pytree.tree_flatten((self._args, self._kwargs))
        shapes: List[Any] = [None] * len(leaves)
        named: Dict[str, Any] = {}
        tensors = [position for position, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        any_dynamic = False
        for number, position in enumerate(tensors):
            axes: Dict[int, Any] = {}
            sizes = self._specs[number].shape if number < len(self._specs) else None
            for axis in range(leaves[position].dim()):
                size = sizes[axis] if sizes is not None else leaves[position].shape[axis]
                if isinstance(size, str):
                    axes[axis] = named.setdefault(size, torch.export.Dim(size, min=0))
                elif size is None or (number, axis) in varying:
                    axes[axis] = torch.export.Dim.AUTO
            for axis in axes:
                leaves[position] = _enlarged(leaves[position], axis)
            shapes[position] = axes or None
            any_dynamic |= bool(axes)
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        if not any_dynamic:
            return args, kwargs, None
        dynamic_args, dynamic_kwargs = pytree.tree_unflatten(shapes, spec)
        return args, kwargs, self._by_parameter(dynamic_args, dynamic_kwargs)

    def _parameters(self, args: Tuple[Any, ...]) -> List[str]:
        """Names of the parameters that positional arguments bind to; none where that cannot be told."""
        try:
            parameters = inspect.signature(getattr(self._model, "forward", self._model)).parameters.values()
        except (TypeError, ValueError):
            return []
        named = [p.name for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
        return named[: len(args)]

    def _by_parameter(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """torch.export wants one tuple, or a dict by parameter name when keywords are used."""
        if not kwargs:
            forward = getattr(self._model, "forward", None)
            # A function is wrapped in a module whose forward takes *args: its shapes are one tuple of them.
            return args if forward is not None else (args,)
        forward = getattr(self._model, "forward", self._model)
        bound = inspect.signature(forward).bind_partial(*args, **kwargs)
        return dict(bound.arguments)

    def flatten(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Sequence[Any]:
        imported = self._imported
        if self._names and kwargs:
            args, kwargs = tuple(by_name(args, kwargs, self._names)), {}
        leaves, spec = self._tree.tree_flatten((args, kwargs))
        if spec != imported.in_spec:
            expected = len(imported.tensor_positions) + len(imported.constants)
            raise InputError(
                f"the arguments do not have the structure the model was compiled for: got {len(leaves)} values in "
                f"{spec}, expected {expected} in {imported.in_spec}"
            )
        for position, constant in imported.constants:
            value = leaves[position]
            if value is not constant and value != constant:
                raise InputError(
                    f"argument {position} was compiled in as {constant!r}, got {value!r}; "
                    "compile again for another value"
                )
        return [leaves[position] for position in imported.tensor_positions]

    def unflatten(self, result: Any) -> Any:
        imported = self._imported
        count = sum(kind == "tensor" for kind, _ in imported.output_leaves)
        tensors = result if count != 1 else (result,)
        leaves = [tensors[value] if kind == "tensor" else value for kind, value in imported.output_leaves]
        result = self._tree.tree_unflatten(leaves, imported.out_spec)
        return self._finish(result) if self._finish is not None else result


def _enlarged(tensor: Any, axis: int) -> Any:
    """A varying axis of size 0 or 1, repeated to a size that tracing does not take for a constant."""
    import torch

    size = tensor.shape[axis]
    if size == 1:
        return torch.cat([tensor] * _TRACED_SIZE, dim=axis)
    if size == 0:
        shape = list(tensor.shape)
        shape[axis] = _TRACED_SIZE
        return torch.zeros(shape, dtype=tensor.dtype)
    return tensor
