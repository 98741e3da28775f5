"""The engines: how each loads a model, and how it is called. Peers get their makers' recommended settings."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Job:
    """What a worker is asked to load. Files were written by ``bench.prepare``."""

    model: str
    tiny: bool
    threads: int
    directory: Path

    @property
    def onnx(self) -> Path:
        return self.directory / "model.onnx"


@dataclass
class Loaded:
    """A ready engine: ``call`` runs the model once on the example inputs and returns its outputs."""

    call: Callable[[], Any]
    outputs: Callable[[Any], Sequence[Any]]
    # From a built model to a finished first call.
    compile_s: float


REQUIRES = {
    "cuvil": ("cuvil", "torch"),
    "cuvil-onnx": ("cuvil",),
    "eager": ("torch",),
    "torchscript": ("torch",),
    "inductor": ("torch",),
    "ort": ("onnxruntime",),
    "openvino": ("openvino",),
}
FROM_ONNX = ("cuvil-onnx", "ort", "openvino")


def missing_requirement(engine: str) -> str | None:
    """The first package the engine needs and this Python lacks."""
    for package in REQUIRES[engine]:
        if importlib.util.find_spec(package) is None:
            return package
    return None


def thread_environment(threads: int) -> dict[str, str]:
    """The variables that make every engine use ``threads`` threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUVIL_NUM_THREADS")
    return {name: str(threads) for name in names}


def load(engine: str, job: Job) -> Loaded:
    """Loads ``job``'s model into ``engine`` and makes the first call."""
    prepare = _LOADERS[engine](job)
    start = time.perf_counter()
    call, outputs = prepare()
    call()
    return Loaded(call, outputs, time.perf_counter() - start)


# A loader does what isn't compiling (imports, reading weights and inputs) and returns what is.
Compile = Callable[[], tuple[Callable[[], Any], Callable[[Any], Sequence[Any]]]]


def _torch_model(job: Job) -> Any:
    import torch

    from bench import models

    torch.set_num_threads(job.threads)
    torch.set_grad_enabled(False)
    return models.build(job.model, tiny=job.tiny, state=torch.load(job.directory / "state.pt", weights_only=True))


def _torch_outputs(result: Any) -> Sequence[Any]:
    return [value.numpy() for value in (result if isinstance(result, (tuple, list)) else (result,))]


def _numpy_inputs(job: Job) -> dict[str, Any]:
    import numpy

    with numpy.load(job.directory / "inputs.npz") as file:
        return {name: file[name] for name in file.files}


def _eager(job: Job) -> Compile:
    model = _torch_model(job)
    return lambda: ((lambda: model.module(*model.inputs)), _torch_outputs)


def _torchscript(job: Job) -> Compile:
    import torch

    model = _torch_model(job)

    def compile_() -> Any:
        traced = torch.jit.freeze(torch.jit.trace(model.module, model.inputs, check_trace=False))
        fast = torch.jit.optimize_for_inference(traced)
        fast(*model.inputs)  # the profiling run; the next call is the optimised one
        return (lambda: fast(*model.inputs)), _torch_outputs

    return compile_


def _inductor(job: Job) -> Compile:
    import torch
    from torch._inductor import config

    model = _torch_model(job)
    config.freezing = True

    def compile_() -> Any:
        fast = torch.compile(model.module)
        return (lambda: fast(*model.inputs)), _torch_outputs

    return compile_


def _cuvil(job: Job) -> Compile:
    import cuvil

    model = _torch_model(job)
    cuvil.set_num_threads(job.threads)

    def compile_() -> Any:
        fast = cuvil.compile(model.module, input_spec=list(zip(model.input_names, model.inputs)))
        return (lambda: fast(*model.inputs)), _torch_outputs

    return compile_


def _cuvil_onnx(job: Job) -> Compile:
    import numpy

    import cuvil

    inputs = list(_numpy_inputs(job).values())
    cuvil.set_num_threads(job.threads)

    def compile_() -> Any:
        fast = cuvil.compile(str(job.onnx))

        def outputs(result: Any) -> Sequence[Any]:
            values = result if isinstance(result, (tuple, list)) else (result,)
            return [numpy.asarray(value) for value in values]

        return (lambda: fast(*inputs)), outputs

    return compile_


def _ort(job: Job) -> Compile:
    import onnxruntime

    inputs = _numpy_inputs(job)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL

    def compile_() -> Any:
        session = onnxruntime.InferenceSession(str(job.onnx), options, providers=["CPUExecutionProvider"])
        return (lambda: session.run(None, inputs)), list

    return compile_


def _openvino(job: Job) -> Compile:
    import openvino

    inputs = _numpy_inputs(job)
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": job.threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
    }

    def compile_() -> Any:
        compiled = openvino.Core().compile_model(str(job.onnx), "CPU", settings)
        request = compiled.create_infer_request()

        def outputs(result: Any) -> Sequence[Any]:
            return [result[index] for index in range(len(compiled.outputs))]

        return (lambda: request.infer(inputs, share_inputs=True, share_outputs=True)), outputs

    return compile_


_LOADERS: dict[str, Callable[[Job], Compile]] = {
    "cuvil": _cuvil,
    "cuvil-onnx": _cuvil_onnx,
    "eager": _eager,
    "torchscript": _torchscript,
    "inductor": _inductor,
    "ort": _ort,
    "openvino": _openvino,
}
