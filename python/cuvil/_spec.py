"""``input_spec``: what a model's inputs look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple, Union

from cuvil._errors import CompileError

Size = Union[int, str, None]


@dataclass(frozen=True)
class InputSpec:
    """One input: an example, or sizes and an element type. A size is a number, a name or None; the latter two vary."""

    name: str
    example: Any = None
    shape: Optional[Tuple[Size, ...]] = None
    dtype: str = "float32"


def parse_input_spec(entries: Optional[Sequence[Any]]) -> Optional[List[InputSpec]]:
    """Checks ``input_spec`` and brings it to one form. Entries: (name, example) or (name, shape, dtype)."""
    if entries is None:
        return None
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Sequence):
        raise CompileError(f"input_spec must be a list of (name, example) or (name, shape, dtype), got {entries!r}")
    specs = []
    for position, entry in enumerate(entries):
        if isinstance(entry, InputSpec):
            specs.append(entry)
            continue
        if not isinstance(entry, (tuple, list)) or len(entry) not in {2, 3} or not isinstance(entry[0], str):
            raise CompileError(
                f"input_spec[{position}] must be (name, example) or (name, shape, dtype), got {_brief(entry)}"
            )
        if len(entry) == 2:
            specs.append(InputSpec(entry[0], example=entry[1]))
        else:
            specs.append(InputSpec(entry[0], shape=_shape(entry[0], entry[1]), dtype=dtype_name(entry[2])))
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise CompileError(f"input_spec names '{name}' twice")
    return specs


def dtype_name(dtype: Any) -> str:
    """NumPy's name of an element type given as a string, a NumPy dtype or scalar type, or a torch.dtype."""
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, type):
        return {float: "float32", int: "int64", bool: "bool"}.get(dtype, dtype.__name__)
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(dtype).rpartition(".")[2]


def _shape(name: str, shape: Any) -> Tuple[Size, ...]:
    if not isinstance(shape, (tuple, list)):
        raise CompileError(f"input_spec of '{name}': the shape must be a tuple, got {_brief(shape)}")
    for size in shape:
        if isinstance(size, bool) or not (size is None or isinstance(size, (int, str))):
            raise CompileError(f"input_spec of '{name}': a size must be a number, a name or None, got {_brief(size)}")
        if isinstance(size, int) and size < 0:
            raise CompileError(f"input_spec of '{name}': a size must not be negative, got {size}")
    return tuple(shape)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
