"""Exceptions of Cuvil. The engine raises them too."""

from __future__ import annotations

from typing import List, Tuple


class CompileError(Exception):
    """The model or the request is at fault: the message names the node, the reason and the way out."""


class ValuesNeededError(CompileError):
    """The structure of the model depends on the values of some inputs, or the sizes of some axes (input, axis)."""

    def __init__(self, message: str, inputs: List[str], axes: List[Tuple[str, int]], all_inputs: List[str]) -> None:
        super().__init__(message)
        self.inputs = inputs
        self.axes = axes
        self.all_inputs = all_inputs


class ExportError(CompileError):
    """torch.export cannot take the model."""


class ModelRaises(CompileError):  # noqa: N818
    """The model raises an exception for arguments of this structure."""


class InternalError(Exception):
    """Cuvil is at fault. Please report it, with the message."""


class LoadError(Exception):
    """A stored artifact cannot be used here: damaged, or made for another machine or version."""


class InputError(ValueError):
    """An argument of a call does not fit the compiled model."""


class ShapeError(InputError):
    """An argument has another size than the compiled model expects."""
