"""Tells samples disturbed by other processes from clean ones, by the kernel's run-queue statistics."""

from __future__ import annotations

import glob

# A sample counts only if the process's threads waited for a core for at most this share of it.
MAX_WAIT_SHARE = 0.05


def run_queue_wait_ns() -> int | None:
    """Nanoseconds this process's live threads have ever spent runnable but not running; None if not known."""
    total, seen = 0, False
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            with open(path, encoding="ascii") as file:
                total += int(file.read().split()[1])
                seen = True
        except (OSError, IndexError, ValueError):
            continue  # the thread ended meanwhile
    return total if seen else None


def is_clean(wait_before: int | None, wait_after: int | None, elapsed_ns: int) -> bool:
    """Whether a sample between two readings ran undisturbed; without statistics every sample counts."""
    if wait_before is None or wait_after is None:
        return True
    return wait_after - wait_before <= MAX_WAIT_SHARE * elapsed_ns
