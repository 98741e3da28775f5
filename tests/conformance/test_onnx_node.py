"""ONNX's own node tests (those that the installed onnx package generates), against compiled code.

``onnx_node_not_yet.txt`` lists the cases that do not pass yet; it may only shrink. A listed case must be refused with a
clear error: a wrong number is never expected. To write the list anew: ``python tests/conformance/test_onnx_node.py``.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import cuvil

onnx = pytest.importorskip("onnx")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    CASES = {case.name: case for case in collect_testcases(None)}

LIST = Path(__file__).parent / "onnx_node_not_yet.txt"
NOT_YET = frozenset(LIST.read_text(encoding="utf-8").split())
# Rounding of half types after each function may differ by a unit in the last place from a computation in other steps.
HALF_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2}


def to_array(value):
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def with_constants(case):
    """The model with its small integer and bool inputs as constants: Cuvil needs to know shapes and axes."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    fixed = set()
    for info, value in zip(case.model.graph.input, case.data_sets[0][0]):
        array = to_array(value)
        if not isinstance(array, (np.ndarray, np.generic)):
            continue
        if array.ndim <= 1 and (array.dtype.kind in "iub" or array.ndim == 0):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), info.name))
            fixed.add(info.name)
    return model, fixed


def run_case(case) -> None:
    fixed: set[str] = set()
    try:
        function = cuvil.compile(case.model)
    except cuvil.CompileError as error:
        if "must be known" not in str(error) and "must be a constant" not in str(error):
            raise
        model, fixed = with_constants(case)
        function = cuvil.compile(model)
    for inputs, expected in case.data_sets:
        arrays = [to_array(x) for x, info in zip(inputs, case.model.graph.input) if info.name not in fixed]
        result = function(*arrays)
        result = result if isinstance(result, tuple) else (result,)
        assert len(result) == len(expected)
        for mine, wanted in zip(result, map(to_array, expected)):
            mine = np.asarray(mine)  # noqa: PLW2901
            half = HALF_TOLERANCE.get(wanted.dtype.name)
            if wanted.dtype.name == "bfloat16":
                mine = mine.view(wanted.dtype)  # noqa: PLW2901
            assert mine.dtype == wanted.dtype
            if half or mine.dtype.kind == "f":
                rtol, atol = (half, half) if half else (case.rtol, case.atol)
                np.testing.assert_allclose(mine.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)
            elif mine.dtype.itemsize == 1:
                np.testing.assert_array_equal(mine.view(np.uint8), wanted.view(np.uint8))
            else:
                np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("name", CASES)
def test_node(name: str) -> None:
    if name in NOT_YET:
        with pytest.raises((cuvil.CompileError, cuvil.InputError)):
            run_case(CASES[name])
    else:
        run_case(CASES[name])


def test_list_names_cases() -> None:
    assert len(NOT_YET) < len(CASES)


if __name__ == "__main__":
    failing = []
    for case_name, test_case in CASES.items():
        try:
            run_case(test_case)
        except (cuvil.CompileError, cuvil.InputError):
            failing.append(case_name)
    LIST.write_text("".join(f"{item}\n" for item in failing), encoding="utf-8")
