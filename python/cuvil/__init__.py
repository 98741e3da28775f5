"""Cuvil compiles trained models into native code and runs them with almost nothing in between.

>>> fast = cuvil.compile(model, input_spec=[("input", torch.randn(1, 3, 224, 224))])
>>> y = fast(x)                                             # the same tree of outputs as model(x)
"""

from __future__ import annotations

from cuvil import cuvil_native as _native
from cuvil._compile import CompiledFunction, LoadedFunction, TensorInfo, compile, load
from cuvil._errors import CompileError, InputError, InternalError, LoadError, ShapeError
from cuvil._profile import KernelProfile, Profile

__version__: str = _native.__version__

__all__ = [
    "CompileError",
    "CompiledFunction",
    "InputError",
    "InternalError",
    "KernelProfile",
    "LoadError",
    "LoadedFunction",
    "Profile",
    "ShapeError",
    "TensorInfo",
    "__version__",
    "compile",
    "get_num_threads",
    "load",
    "set_num_threads",
]


def set_num_threads(count: int) -> None:
    """Sets how many threads a run uses at most, the calling one included.

    Never more than this process may use (its affinity and cgroup quota) and than ``CUVIL_NUM_THREADS`` says. 0 goes
    back to that default. With 1 no thread is ever started.
    """
    if count < 0:
        raise ValueError(f"the number of threads must not be negative, got {count}")
    _native.set_num_threads(count)


def get_num_threads() -> int:
    """How many threads a run uses at most."""
    count: int = _native.num_threads()
    return count
