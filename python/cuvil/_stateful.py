"""What a TorchScript model that keeps state between calls compiles to."""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from cuvil import _torchscript
from cuvil._compile import CompiledFunction, CompileOptions
from cuvil._errors import InputError, ModelRaises
from cuvil._sources import FunctionSource, by_name
from cuvil._spec import InputSpec


class StatefulFunction:
    """A TorchScript model that keeps state between calls: attributes that it assigns or changes in place.

    Compiled for each structure of the state it meets (numbers, sizes; a first call often differs from the others), and
    for each value of arguments that are not tensors. Calls run one at a time. ``variants`` are the compiled functions:
    they take the state's tensors before the model's inputs, and return ``(result, new state)``.
    """

    _MOST_VARIANTS = 64

    def __init__(
        self, model: Any, keys: Sequence[Tuple[str, str]], specs: Optional[List[InputSpec]], options: CompileOptions
    ) -> None:
        self._model = model
        self._specs = specs
        self._options = options
        self._lock = threading.RLock()
        program = _torchscript.ScriptProgram(model)
        self._signature = program.signature
        self._initial = {key: program.attribute(key) for key in keys}
        self._state = self._copied()
        # Given sizes, a spec stands for the tensors of those sizes.
        self._examples = tuple(spec.example if spec.shape is None else spec for spec in specs or [])
        self._dynamic = any(not isinstance(size, int) for spec in specs or [] for size in spec.shape or ())
        self._changes = {key: 0 for key in keys}
        self._held: Set[Tuple[str, str]] = set()
        self.variants: Dict[Any, CompiledFunction] = {}
        if specs is not None:
            self._variant(None, {})

    def _copied(self) -> Dict[Tuple[str, str], Any]:
        return _torchscript.copied(self._initial)

    def _variant(self, args: Optional[Tuple[Any, ...]], kwargs: Dict[str, Any]) -> CompiledFunction:
        key = (
            _torchscript.structure(self._state),
            _torchscript.structure((args or self._examples, kwargs), self._dynamic),
        )
        variant = self.variants.get(key)
        if variant is None:
            program = _torchscript.ScriptProgram(self._model, self._state, self._held)
            state = _torchscript.tensors_of(self._state)
            specs = None
            if self._specs is not None:
                specs = [InputSpec(f"state_{i}", example=tensor) for i, tensor in enumerate(state)] + self._specs
            examples = None if args is None else (*state, *_torchscript.as_tensors(args))
            source = FunctionSource(program, examples, _torchscript.as_tensors(kwargs), specs)
            try:
                variant = CompiledFunction(source, self._options)
            except ModelRaises as error:
                if args is None:
                    raise
                raise InputError(str(error)) from error
            if len(self.variants) >= self._MOST_VARIANTS:
                self.variants.pop(next(iter(self.variants)))
            self.variants[key] = variant
        return variant

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._specs:
            args, kwargs = tuple(by_name(args, kwargs, [spec.name for spec in self._specs])), {}
        with self._lock:
            variant = self._variant(args, kwargs)
            tensors = _torchscript.tensors_of(self._state)
            if any(type(a).__name__ == "ndarray" for a in args):
                tensors = [tensor.numpy() for tensor in tensors]  # results are of the inputs' kind
            result, state = variant(*tensors, *args, **kwargs)
            self._note_changes(state)
            self._state = _torchscript.with_held_numbers(state, self._held)
        return result

    def _note_changes(self, state: Dict[Tuple[str, str], Any]) -> None:
        """A number that changes call after call (a counter) becomes a tensor, so that it is not compiled in."""
        for key, value in state.items():
            if key in self._held or not isinstance(value, (int, float)):
                continue
            self._changes[key] = 0 if value == self._state[key] else self._changes[key] + 1
            if self._changes[key] > 1:
                self._held.add(key)

    @property
    def state(self) -> Dict[str, Any]:
        """The attributes that calls change, by their paths in the model."""
        return {
            ".".join(filter(None, key)): value.item() if key in self._held else value
            for key, value in self._state.items()
        }

    def reset_state(self) -> None:
        """Gives the attributes the values they had when the model was compiled."""
        with self._lock:
            self._state = _torchscript.with_held_numbers(self._copied(), self._held)

    def __repr__(self) -> str:
        return f"<cuvil.StatefulFunction {self._signature}, state {', '.join(self.state)}>"
