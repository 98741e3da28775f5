"""What the processor that runs the tests can run."""

from __future__ import annotations

from pathlib import Path

NEEDS = {
    "x86-64-v3": {"avx2", "fma"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"},
}


def runnable_targets() -> list[str]:
    """The targets whose code this processor can run."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return ["generic", *(target for target, wanted in NEEDS.items() if wanted <= flags)]
