"""JAX functions and modules, by way of ONNX (the package ``jax2onnx``)."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from cuvil._errors import CompileError
from cuvil._sources import OnnxSource, Source, Varying
from cuvil._spec import InputSpec

_TRACED_SIZE = 3
"""Size that a varying axis has where only dtypes matter."""
_PACKAGES = ("jax", "jaxlib", "flax", "equinox")


def is_jax(value: Any) -> bool:
    """Whether the value is of JAX's world: an array, a transformed function, a module of flax or equinox."""
    return any(base.__module__.split(".")[0] in _PACKAGES for base in type(value).__mro__)


def wants_jax(model: Any, specs: Optional[List[InputSpec]], args: Sequence[Any] = ()) -> bool:
    """Whether a callable is to be traced by JAX: because of its type, or of its examples'."""
    examples = [spec.example for spec in specs or [] if spec.shape is None]
    return is_jax(model) or any(is_jax(leaf) for value in [*examples, *args] for leaf in _leaves(value))


def _leaves(value: Any) -> List[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


class JaxSource(Source):
    """A function of JAX arrays, or of trees of them. The results' tree is kept; its arrays are those of the inputs'
    framework."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Optional[Tuple[Any, ...]],
        kwargs: Dict[str, Any],
        specs: Optional[List[InputSpec]],
    ) -> None:
        try:
            jax: Any = importlib.import_module("jax")
            importlib.import_module("jax2onnx")
        except ImportError as error:
            raise CompileError(f"compiling JAX functions needs the packages jax and jax2onnx ({error})") from error
        self._jax = jax
        self._function = function
        self._names = [spec.name for spec in specs or []]
        if args is None:
            args = tuple(self._example(spec) for spec in specs or [])
        leaves, self._tree = jax.tree_util.tree_flatten((args, kwargs))
        self._shapes = [self._shape(leaf) for leaf in leaves]
        self._onnx: Optional[OnnxSource] = None
        self._result_tree: Any = None

    def _example(self, spec: InputSpec) -> Any:
        if spec.shape is None:
            return spec.example
        return _Symbolic(tuple(spec.shape), spec.dtype)

    def _shape(self, leaf: Any) -> Tuple[Tuple[Any, ...], Any]:
        import numpy as np

        if isinstance(leaf, _Symbolic):
            return leaf.shape, np.dtype(leaf.dtype)
        array = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf)
        if not hasattr(leaf, "dtype"):
            array = self._jax.numpy.asarray(array)
        return tuple(array.shape), np.dtype(array.dtype)

    def _flat(self, *leaves: Any) -> Any:
        args, kwargs = self._jax.tree_util.tree_unflatten(self._tree, leaves)
        results, self._result_tree = self._jax.tree_util.tree_flatten(self._function(*args, **kwargs))
        return results[0] if len(results) == 1 else tuple(results)

    def _examples(self) -> List[Any]:
        return [
            self._jax.ShapeDtypeStruct([size if isinstance(size, int) else _TRACED_SIZE for size in shape], dtype)
            for shape, dtype in self._shapes
        ]

    def import_graph(self, varying: Varying) -> Any:
        import numpy as np

        jax2onnx: Any = importlib.import_module("jax2onnx")

        structs = []
        for number, (shape, dtype) in enumerate(self._shapes):
            sizes = tuple(
                f"n{number}_{axis}" if size is None or (number, axis) in varying else size
                for axis, size in enumerate(shape)
            )
            structs.append(self._struct(sizes, dtype))
        double = any(dtype.itemsize == (16 if dtype.kind == "c" else 8) for _, dtype in self._shapes)
        try:
            model = jax2onnx.to_onnx(self._flat, structs, enable_double_precision=double)
        except Exception as error:
            raise CompileError(f"jax2onnx cannot convert the function: {type(error).__name__}: {error}") from error
        self._onnx = OnnxSource(model, None)
        graph = self._onnx.import_graph(frozenset())
        leaf = self._jax.tree_util.tree_structure(0)
        results = self._jax.eval_shape(self._flat, *self._examples())
        self._complex = [np.dtype(r.dtype).kind == "c" for r in self._jax.tree_util.tree_leaves(results)]
        self._complex_inputs = any(dtype.kind == "c" for _, dtype in self._shapes)
        self.positional = not self._complex_inputs and self._tree == self._jax.tree_util.tree_structure(
            (tuple(range(len(structs))), {})
        )
        count = self._result_tree.num_leaves
        self.plain_result = not any(self._complex) and (
            self._result_tree == leaf
            or (count > 1 and self._result_tree == self._jax.tree_util.tree_structure(tuple(range(count))))
        )
        return graph

    def _struct(self, sizes: Tuple[Any, ...], dtype: Any) -> Any:
        if all(isinstance(size, int) for size in sizes):
            return self._jax.ShapeDtypeStruct(sizes, dtype)
        shape = self._jax.export.symbolic_shape(", ".join(map(str, sizes)) + ("," if len(sizes) == 1 else ""))
        return self._jax.ShapeDtypeStruct(shape, dtype)

    def flatten(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Sequence[Any]:
        from cuvil._errors import InputError
        from cuvil._sources import by_name

        if self._names and kwargs:
            args, kwargs = tuple(by_name(args, kwargs, self._names)), {}
        leaves, tree = self._jax.tree_util.tree_flatten((args, kwargs))
        if tree != self._tree:
            raise InputError(f"the arguments do not have the structure the function was compiled for: {tree}")
        if not self._complex_inputs:
            return list(leaves)
        # ONNX has no complex tensors: the last axis holds the parts.
        import numpy as np

        return [
            np.stack([np.real(leaf), np.imag(leaf)], -1) if dtype.kind == "c" else leaf
            for leaf, (_, dtype) in zip(leaves, self._shapes)
        ]

    def unflatten(self, result: Any) -> Any:
        leaves = result if self._result_tree.num_leaves != 1 else (result,)
        leaves = [leaf[..., 0] + 1j * leaf[..., 1] if both else leaf for leaf, both in zip(leaves, self._complex)]
        return self._jax.tree_util.tree_unflatten(self._result_tree, leaves)


class _Symbolic:
    """An input known by its sizes; a leaf of trees."""

    def __init__(self, shape: Tuple[Any, ...], dtype: str) -> None:
        self.shape = shape
        self.dtype = dtype
