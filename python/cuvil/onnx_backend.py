"""ONNX's backend interface: ``cuvil.onnx_backend.prepare(model).run(inputs)``.

With it the official suite runs unchanged: ``onnx.backend.test.BackendTest(cuvil.onnx_backend, __name__)``. Needs the
``onnx`` package, which defines the interface.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from cuvil._compile import CompileOptions, compile_onnx
from cuvil._sources import OnnxSource


class CuvilRep(BackendRep):
    """A compiled ONNX model."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def run(self, inputs: Any, **kwargs: Any) -> Tuple[Any, ...]:
        """The outputs for these inputs: a sequence in the model's order, a mapping by name, or one array."""
        if isinstance(inputs, Mapping):
            result = self._function(**{name: _array(value) for name, value in inputs.items()})
        else:
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            result = self._function(*[_array(value) for value in values])
        return tuple(result) if isinstance(result, (list, tuple)) else (result,)


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, (np.generic, int, float, bool, list)) else value


class CuvilBackend(Backend):
    """Cuvil as ONNX sees it."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> CuvilRep:
        """Compiles the model. ``kwargs`` are options of ``cuvil.compile``. Raises CompileError."""
        if not cls.supports_device(device):
            raise ValueError(f"Cuvil runs on the CPU, not on {device!r}")
        return CuvilRep(compile_onnx(OnnxSource(model, None), CompileOptions(**kwargs)))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> Tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Union[Sequence[Any], Mapping[str, Any]],
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> Tuple[Any, ...]:
        """Runs one node on arrays. The types of its outputs are inferred."""
        named: Dict[str, Any] = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(node.input, inputs))
        arrays = {name: np.asarray(value) for name, value in named.items() if name}
        declared: List[onnx.ValueInfoProto] = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in arrays.items()
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        graph = onnx.helper.make_graph([node], "node", declared, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
        return cls.run_model(onnx.shape_inference.infer_shapes(model), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":", maxsplit=1)[0] == "CPU"


is_compatible = CuvilBackend.is_compatible
prepare = CuvilBackend.prepare
run_model = CuvilBackend.run_model
run_node = CuvilBackend.run_node
supports_device = CuvilBackend.supports_device
