"""``cuvil.compile`` and what it returns."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

from cuvil import cuvil_native as _native
from cuvil._errors import CompileError, ExportError, InputError, ModelRaises, ShapeError, ValuesNeededError
from cuvil._profile import Profile
from cuvil._progress import Progress
from cuvil._sources import ArtifactSource, FunctionSource, OnnxSource, Source, by_name
from cuvil._spec import InputSpec, parse_input_spec

_SCRIPT_FILES = (".pt", ".pth", ".jit", ".ts", ".torchscript")

Axis = Tuple[int, int]
"""(input, axis)"""


@dataclass(frozen=True)
class TensorInfo:
    """One input or output. A size is a number, or the text of an expression over sizes that vary."""

    name: str
    dtype: str
    shape: Tuple[Union[int, str], ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class CompileOptions:
    """What ``compile`` takes beside the model and its inputs."""

    target: str = ""
    precision: str = "default"
    tune: bool = False


class CompiledFunction:
    """A compiled model: call it like the original.

    Tensors in, tensors of the same kind (torch or NumPy) out, in the same tree. Safe to call from several threads; the
    GIL is released while it runs. A call with a size that was compiled in compiles once more with that axis variable,
    and never again for that axis.

    Raises InputError (a ValueError) for arguments that do not fit, ShapeError for sizes that do not.
    """

    def __init__(self, source: Source, options: CompileOptions) -> None:
        self._source = source
        self._options = options
        self._lock = threading.Lock()
        self._varying: Set[Axis] = set()
        self._install(self._build())

    def _build(self) -> Any:
        graph = self._source.import_graph(frozenset(self._varying))
        with Progress() as progress:
            return _native.compile(
                graph, self._options.target, 0, progress, precision=self._options.precision, tune=self._options.tune
            )

    def _install(self, model: Any) -> None:
        self._model = model
        self._run = model.run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        source = self._source
        tensors = args if source.positional and not kwargs else source.flatten(args, kwargs)
        try:
            result = self._run(*tensors)
        except ShapeError:
            self._widen(tensors)
            result = self._run(*tensors)
        return result if source.plain_result else source.unflatten(result)

    def _widen(self, tensors: Sequence[Any]) -> None:
        """Compiles again with the axes that differ made dynamic; raises the ShapeError that led here if that fails."""
        original = sys.exc_info()[1]
        assert original is not None
        with self._lock:
            # Another thread may have done it already.
            differing: Set[Axis] = set()
            for number, (info, tensor) in enumerate(zip(self.inputs, tensors)):
                shape = tuple(getattr(tensor, "shape", ()))
                if len(shape) != len(info.shape):
                    raise original
                differing |= {
                    (number, axis)
                    for axis, (expected, actual) in enumerate(zip(info.shape, shape))
                    if isinstance(expected, int) and expected != actual
                }
            if not differing:
                return
            before = set(self._varying)
            self._varying |= differing
            try:
                self._install(self._build())
            except CompileError as error:
                self._varying = before
                raise original from error

    @property
    def inputs(self) -> List[TensorInfo]:
        """The tensors a call takes, in order."""
        return [TensorInfo(*info) for info in self._model.inputs]

    @property
    def outputs(self) -> List[TensorInfo]:
        """The tensors a call returns, in the order of the result's leaves."""
        return [TensorInfo(*info) for info in self._model.outputs]

    @property
    def target(self) -> str:
        """The target the code is for."""
        return str(self._model.target)

    @property
    def compile_times(self) -> List[Tuple[str, float]]:
        """Steps of the last compile, with seconds."""
        return list(self._model.compile_times)

    def explain(self, loops: bool = False) -> str:
        """The kernels in the order in which they run, and what each computes; with ``loops``, also how."""
        rows = self._model.kernels({})
        if loops:
            return "\n".join(row["description"] for row in rows)
        width = max((len(row["name"]) for row in rows), default=0)
        return "\n".join(f"{row['name']:<{width}}  {_count_runs(row['ops'])}" for row in rows)

    def profile(self, *args: Any, runs: int = 20, **kwargs: Any) -> Profile:
        """Runs the model ``runs`` times on these inputs and times each kernel."""
        if runs < 1:
            raise ValueError(f"runs must be positive, got {runs}")
        tensors = self._source.flatten(args, kwargs)
        self(*args, **kwargs)
        symbols = self._model.symbol_values([list(getattr(t, "shape", ())) for t in tensors])
        return Profile(self._model.kernels(symbols), [self._model.profile(*tensors) for _ in range(runs)])

    def memory(self) -> Dict[str, Union[int, str]]:
        """Bytes of code, of weights and of one run's intermediate values (an expression if sizes vary)."""
        arena = self._model.arena_bytes({})
        return {
            "code_bytes": self._model.code_bytes,
            "weight_bytes": self._model.weight_bytes,
            "intermediate_bytes": self._model.arena_text if arena is None else arena,
        }

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the model as one ELF shared object: code, weights, and what it says of itself.

        ``cuvil.load`` and the C library (``cuvil/cuvil.h``) run it without the compiler. It holds what the last compile
        made, so an axis that has been found to vary is variable in it. Equal models give equal bytes. Its inputs and
        outputs are tensors: trees of the original model are not kept.
        """
        self._model.save(os.fspath(path))

    def trim(self) -> None:
        """Gives the memory of intermediate values that no run is using back to the system."""
        self._model.trim()

    def graph(self) -> str:
        """The model as imported, in the text form of graphs."""
        return str(self._source.import_graph(frozenset(self._varying)).text(True))

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<cuvil.CompiledFunction ({inputs}) -> ({outputs})>"


class SpecializedFunction:
    """A model whose structure depends on the values of some inputs (axes, say) or on some sizes: compiled at the first
    call for each.

    Those inputs are passed like the others. ``variants`` are the compiled functions, by what they were compiled for.
    """

    _MOST_VARIANTS = 64

    def __init__(self, source: OnnxSource, options: CompileOptions, needed: ValuesNeededError) -> None:
        self._source = source
        self._options = options
        self._names = needed.all_inputs
        self._values: List[str] = []
        self._axes: List[Axis] = []
        self._lock = threading.Lock()
        self.variants: Dict[Tuple[Any, ...], CompiledFunction] = {}
        self._need(needed)

    def _need(self, needed: ValuesNeededError) -> None:
        self._values += [name for name in needed.inputs if name not in self._values]
        axes = [(self._names.index(name), axis) for name, axis in needed.axes]
        self._axes += [axis for axis in axes if axis not in self._axes]
        self.variants = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import numpy as np

        given = by_name(args, kwargs, self._names)
        while True:
            names, axes = list(self._values), list(self._axes)
            values = {name: np.asarray(given[self._names.index(name)]) for name in names}
            sizes = {(self._names[number], axis): _size(given[number], axis) for number, axis in axes}
            key = tuple((v.dtype.str, v.shape, v.tobytes()) for v in values.values()) + tuple(sizes.values())
            function = self.variants.get(key)
            if function is not None:
                return function(*[tensor for name, tensor in zip(self._names, given) if name not in values])
            try:
                compiled = CompiledFunction(self._source.specialized(values, sizes), self._options)
            except ValuesNeededError as more:
                with self._lock:
                    self._need(more)
                continue
            with self._lock:
                if len(self.variants) >= self._MOST_VARIANTS:
                    self.variants.pop(next(iter(self.variants)))
                self.variants[key] = compiled

    def __repr__(self) -> str:
        decided_by = self._values + [f"axis {axis} of {self._names[number]}" for number, axis in self._axes]
        return f"<cuvil.SpecializedFunction of ({', '.join(self._names)}), by {', '.join(decided_by)}>"


def _size(tensor: Any, axis: int) -> int:
    shape = tuple(getattr(tensor, "shape", ()))
    if axis >= len(shape):
        raise InputError(f"an input has rank {len(shape)}, expected more than {axis}")
    return int(shape[axis])


def compile_onnx(source: OnnxSource, options: CompileOptions) -> Union[CompiledFunction, SpecializedFunction]:
    """Compiles now if that is possible before the inputs' values are known."""
    try:
        return CompiledFunction(source, options)
    except ValuesNeededError as needed:
        return SpecializedFunction(source, options, needed)


class LoadedFunction(CompiledFunction):
    """A model that ``cuvil.load`` read from a file: called with its inputs by position or name."""

    def __init__(self, path: str, check_weights: bool) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._source = ArtifactSource()
        self._install(_native.load(path, check_weights))
        self._source.names = [info.name for info in self.inputs]

    def _widen(self, tensors: Sequence[Any]) -> None:
        raise  # noqa: PLE0704  the ShapeError being handled: the sizes were fixed when the model was compiled

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Copies the file."""
        shutil.copyfile(self._path, path)

    def graph(self) -> str:
        raise CompileError("a model loaded from a file does not hold its graph")


def load(path: Union[str, os.PathLike[str]], *, check_weights: bool = True) -> LoadedFunction:
    """Loads a model that ``CompiledFunction.save`` or ``cuvil compile`` wrote. No compiler, no torch takes part.

    The file's weights are mapped, not copied: processes that load it share their memory. With ``check_weights`` all of
    them are read once to verify their checksum.

    Raises LoadError for a file that is damaged, was made for another machine, processor or version of Cuvil's
    runtime, or that anybody may write.
    """
    return LoadedFunction(os.fspath(path), check_weights)


def _compile_script(
    model: Any,
    args: Optional[Tuple[Any, ...]],
    kwargs: Dict[str, Any],
    specs: Optional[List[InputSpec]],
    options: CompileOptions,
) -> Any:
    """A TorchScript module or function. ``args=None`` makes examples from ``specs``, if there are any."""
    from cuvil import _torchscript
    from cuvil._stateful import StatefulFunction

    program = _torchscript.ScriptProgram(model)
    keys = program.state_keys()
    if keys:
        return StatefulFunction(model, keys, specs, options)
    if args is None and specs is None:
        return _LazyFunction(program, None, options)
    return CompiledFunction(FunctionSource(program, args, kwargs, specs), options)


def _compile_callable(
    model: Any,
    args: Optional[Tuple[Any, ...]],
    kwargs: Dict[str, Any],
    specs: Optional[List[InputSpec]],
    options: CompileOptions,
) -> Any:
    """What torch.export cannot take, because control flow depends on data, torch.jit.script may."""
    try:
        return CompiledFunction(_function_source(model, args, kwargs, specs), options)
    except ExportError as error:
        if type(model).__name__ == "ScriptProgram":
            raise
        from cuvil import _torchscript

        try:
            return _compile_script(_torchscript.scripted(model), args, kwargs, specs, options)
        except CompileError as second:
            raise CompileError(f"{error}\nAs TorchScript it fails, too: {second}") from error


def _is_script(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


class _LazyFunction:
    """A decorated function: compiled at its first call, for the arguments of that call."""

    def __init__(self, function: Callable[..., Any], specs: Optional[List[InputSpec]], options: CompileOptions) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._specs = specs
        self._options = options
        self._lock = threading.Lock()
        self._compiled: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled is None:
            with self._lock:
                if self._compiled is None:
                    try:
                        self._compiled = _compile_callable(self._function, args, kwargs, self._specs, self._options)
                    except ModelRaises as error:
                        raise InputError(str(error)) from error
        return self._compiled(*args, **kwargs)

    @property
    def compiled(self) -> Any:
        """The compiled function, once there has been a call."""
        if self._compiled is None:
            raise InputError("the function has not been called yet, so there is nothing compiled")
        return self._compiled


def compile(
    model: Any = None,
    input_spec: Optional[Sequence[Any]] = None,
    *,
    target: str = "",
    precision: str = "default",
    tune: bool = False,
) -> Any:
    """Compiles a model to native code.

    ``model``: an ``nn.Module``, a function of torch tensors, an ``ExportedProgram``, a TorchScript module or function
    or the path of a file that holds one (.pt, .pth, .jit, .ts), an ONNX model as a path, bytes or a ``ModelProto``, or
    a JAX function (jitted, or with JAX arrays as examples) or module of flax or equinox.

    ``input_spec``: a list with one entry per input, ``(name, example)`` or ``(name, shape, dtype)``. A size in a shape
    is a number, a name (equal names are equal sizes) or None; the latter two may vary from call to call. ONNX models
    and exported programs know their inputs; for ONNX it overrides sizes.

    ``target``: "" for ``CUVIL_TARGET`` or else this machine, or a name such as "x86-64-v3".

    ``precision``: "default" may use forms of convolution whose rounding errors stay within 2e-4 of the output's scale
    and in which an infinity or NaN spreads to its neighbours; "strict" keeps to the errors and special values of the
    operators' definitions.

    ``tune``: measure several schedules of each kernel on this machine and take the fastest, which makes compiling
    several times slower. Needs a target that runs here.

    Returns a CompiledFunction. Without ``input_spec``, a function or module is compiled at its first call; so this also
    is a decorator: ``@cuvil.compile``, or ``@cuvil.compile(input_spec=...)``.

    Raises CompileError when the model or the request is at fault, InternalError when Cuvil is.
    """
    if model is None:
        return functools.partial(compile, input_spec=input_spec, target=target, precision=precision, tune=tune)
    options = CompileOptions(target, precision, tune)
    specs = parse_input_spec(input_spec)
    if isinstance(model, (str, os.PathLike)) and os.fspath(model).lower().endswith(_SCRIPT_FILES):
        from cuvil import _torchscript

        model = _torchscript.load(os.fspath(model))
    if isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview)) or hasattr(model, "SerializeToString"):
        return compile_onnx(OnnxSource(model, specs), options)
    if type(model).__name__ == "ExportedProgram":
        return CompiledFunction(FunctionSource(model, (), {}, specs), options)
    if not callable(model):
        raise CompileError(
            f"cannot compile a {type(model).__name__}: give an nn.Module, a function, an ExportedProgram, TorchScript, "
            "or an ONNX model as path, bytes or ModelProto"
        )
    if _is_script(model):
        return _compile_script(model, None, {}, specs, options)
    if specs is None:
        return _LazyFunction(model, None, options)
    return _compile_callable(model, None, {}, specs, options)


def _function_source(
    model: Any, args: Optional[Tuple[Any, ...]], kwargs: Dict[str, Any], specs: Optional[List[InputSpec]]
) -> Source:
    """The source of a callable: JAX's if it or its examples are of JAX, else PyTorch's."""
    from cuvil import _jax

    if _jax.wants_jax(model, specs, [*(args or ()), *kwargs.values()]):
        return _jax.JaxSource(model, args, kwargs, specs)
    return FunctionSource(model, args, kwargs, specs)


def _count_runs(ops: Sequence[str]) -> str:
    """Names in order; those that only move elements are left out."""
    silent = {"reshape", "transpose", "broadcast", "slice", "constant"}
    shown = [op for op in ops if op not in silent] or list(ops)
    return " → ".join(shown)
