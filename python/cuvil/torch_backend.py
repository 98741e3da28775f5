"""``torch.compile(model, backend="cuvil")``.

TorchDynamo hands over one graph per stretch of Python without a graph break. Parameters and buffers are compiled in as
constants, as in every model that Cuvil compiles, so the backend is for inference: where gradients are wanted, and where
a graph uses what Cuvil cannot compile, PyTorch runs the graph itself and one warning says why.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from cuvil._compile import CompiledFunction, CompileOptions
from cuvil._errors import CompileError
from cuvil._sources import FunctionSource

_MOST_SIZES = 16
"""Sets of sizes for which one graph with variable sizes is compiled; PyTorch runs it for others."""


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """A TorchDynamo backend. ``options`` are those of ``cuvil.compile`` (``target``, ``precision``, ``tune``)."""
    compile_options = CompileOptions(**options.pop("options", None) or {}, **options)
    if torch.is_grad_enabled() and any(
        getattr(value, "requires_grad", False) for value in _tensors(graph, example_inputs)
    ):
        return _fall_back(graph, "gradients are wanted (run it under torch.no_grad() or torch.inference_mode())")
    if any(isinstance(value, (int, torch.SymInt)) for value in example_inputs):
        return _SizedGraph(graph, example_inputs, compile_options)
    try:
        return _Graph(graph, example_inputs, compile_options, {})
    except CompileError as error:
        return _fall_back(graph, str(error))


def _tensors(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> List[Any]:
    return [*example_inputs, *graph.parameters()]


def _fall_back(graph: torch.fx.GraphModule, reason: str) -> Callable[..., Any]:
    warnings.warn(f"cuvil leaves a graph to PyTorch: {reason}", RuntimeWarning, stacklevel=2)
    return _eager(graph)


def _eager(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    forward: Callable[..., Any] = graph.forward
    return forward


def _is_static(value: Any) -> bool:
    """A parameter or buffer that TorchDynamo passes as an input: the same tensor at every call."""
    return isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None


class _Bound(torch.nn.Module):
    """A graph with some of its inputs given."""

    def __init__(self, graph: torch.fx.GraphModule, values: Dict[int, Any], count: int) -> None:
        super().__init__()
        self.graph_module = graph
        self._count = count
        self._values: Dict[int, Any] = {}
        for position, value in values.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(f"given_{position}", value.detach(), persistent=False)
            self._values[position] = None if isinstance(value, torch.Tensor) else value

    def forward(self, *inputs: Any) -> Any:
        rest = iter(inputs)
        arguments = []
        for position in range(self._count):
            if position not in self._values:
                arguments.append(next(rest))
            elif self._values[position] is None:
                arguments.append(getattr(self, f"given_{position}"))
            else:
                arguments.append(self._values[position])
        return self.graph_module(*arguments)


class _Graph:
    """A compiled graph: called with all of the graph's inputs."""

    def __init__(
        self, graph: torch.fx.GraphModule, inputs: Sequence[Any], options: CompileOptions, sizes: Dict[int, int]
    ) -> None:
        given: Dict[int, Any] = {position: value for position, value in enumerate(inputs) if _is_static(value)}
        given.update(sizes)
        self._positions = [position for position in range(len(inputs)) if position not in given]
        examples = tuple(_concrete(inputs[position]) for position in self._positions)
        module = _Bound(graph, given, len(inputs)).eval()
        self._function = CompiledFunction(FunctionSource(module, examples, {}, None), options)

    def __call__(self, *inputs: Any) -> Any:
        return self._function(*[inputs[position] for position in self._positions])


class _SizedGraph:
    """A graph with sizes among its inputs: compiled once for each set of sizes it meets."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], options: CompileOptions) -> None:
        self._graph = graph
        self._static = {position: value for position, value in enumerate(inputs) if _is_static(value)}
        self._positions = [p for p, value in enumerate(inputs) if isinstance(value, (int, torch.SymInt))]
        self._options = options
        self._lock = threading.Lock()
        self._compiled: Dict[Tuple[int, ...], Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        key = tuple(int(inputs[position]) for position in self._positions)
        function = self._compiled.get(key)
        if function is None:
            with self._lock:
                function = self._compiled.get(key) or self._compile(key, inputs)
        return function(*inputs)

    def _compile(self, key: Tuple[int, ...], inputs: Sequence[Any]) -> Callable[..., Any]:
        if len(self._compiled) >= _MOST_SIZES:
            return _eager(self._graph)
        values = [self._static.get(position, value) for position, value in enumerate(inputs)]
        function: Callable[..., Any]
        try:
            function = _Graph(self._graph, values, self._options, dict(zip(self._positions, key)))
        except CompileError as error:
            function = _fall_back(self._graph, str(error))
        self._compiled[key] = function
        return function


def _concrete(value: Any) -> Any:
    """An example of the input's shape and dtype whose values nobody needs."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.zeros([int(size) for size in value.shape], dtype=value.dtype)
