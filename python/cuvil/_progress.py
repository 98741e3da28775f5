"""A progress bar on standard error for compiles that take a while."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Callable, Optional, Type

_PATIENCE = 0.5
_WIDTH = 30


class Progress:
    """Shows a bar once the work has taken half a second, if standard error is a terminal; removes it at the end."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._visible = False

    def __enter__(self) -> Optional[Callable[[str, float], None]]:
        return self._show if sys.stderr is not None and sys.stderr.isatty() else None

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._visible:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def _show(self, step: str, done: float) -> None:
        if time.monotonic() - self._start < _PATIENCE:
            return
        self._visible = True
        full = round(_WIDTH * min(max(done, 0.0), 1.0))
        bar = "█" * full + "░" * (_WIDTH - full)
        sys.stderr.write(f"\r\033[Kcuvil {bar} {100 * done:3.0f} % {step}")
        sys.stderr.flush()
