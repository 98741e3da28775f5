"""The machine's FMA peak, measured: a C kernel of independent multiply-adds, built when the benchmark starts."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

_SOURCE = r"""
#include <pthread.h>

/* Enough independent chains to cover the latency of two FMA units, few enough to stay in registers. */
#define TWELVE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define TWELVE_MORE(DO) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23)
#if defined(__AVX512F__)
#define LANES 16
#define CHAINS 24
#define EACH(DO) TWELVE(DO) TWELVE_MORE(DO)
#elif defined(__AVX__)
#define LANES 8
#define CHAINS 12
#define EACH(DO) TWELVE(DO)
#else
#define LANES 4
#define CHAINS 24
#define EACH(DO) TWELVE(DO) TWELVE_MORE(DO)
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));

static volatile float seed = 1.0f;

static void *burn(void *count) {
  vec a, b, sum;
  for (int i = 0; i < LANES; ++i) a[i] = seed * 0.999f, b[i] = seed * 0.001f, sum[i] = 0;
#define START(c) vec acc##c = b * (float)c;
#define STEP(c) acc##c = acc##c * a + b;
#define ADD(c) sum += acc##c;
  EACH(START)
  for (long n = *(long *)count; n > 0; --n) {
    EACH(STEP)
  }
  EACH(ADD)
  seed = sum[0] * 0.0f + 1.0f;
  return 0;
}

/* Runs `count` steps on each thread; returns the floating-point operations done. */
double fma_run(long count, int threads) {
  pthread_t others[256];
  if (threads > 257) threads = 257;
  for (int i = 0; i < threads - 1; ++i) pthread_create(&others[i], 0, burn, &count);
  burn(&count);
  for (int i = 0; i < threads - 1; ++i) pthread_join(others[i], 0);
  return 2.0 * LANES * CHAINS * (double)count * threads;
}
"""


class PeakUnavailableError(Exception):
    """There is no C compiler to build the calibrator with."""


def build_calibrator(directory: Path) -> Path:
    """Compiles the calibrator into ``directory``; the shared object's path."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise PeakUnavailableError("no C compiler found")
    source, library = directory / "peak.c", directory / "peak.so"
    source.write_text(_SOURCE)
    command = [compiler, "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread"]
    done = subprocess.run([*command, str(source), "-o", str(library)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeakUnavailableError(f"{compiler} failed: {done.stderr.strip().splitlines()[-1]}")
    return library


def load_calibrator(library: str, threads: int) -> tuple[Callable[[], None], float]:
    """A call of a few milliseconds and the floating-point operations it does."""
    run = ctypes.CDLL(library).fma_run
    run.argtypes, run.restype = [ctypes.c_long, ctypes.c_int], ctypes.c_double
    steps = 1_000_000
    return (lambda: run(steps, threads)), run(steps, threads)
