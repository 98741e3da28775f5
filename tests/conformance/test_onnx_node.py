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
ml_dtypes = pytest.importorskip("ml_dtypes")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    CASES = {case.name: case for case in collect_testcases(None)}

LIST = Path(__file__).parent / "onnx_node_not_yet.txt"
NOT_YET = frozenset(LIST.read_text(encoding="utf-8").split())
# Rounding of half types after each function may differ by a unit in the last place from a computation in other steps.
HALF_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2}
# Where an exact result is 0, the expected values hold the rounding of NumPy's transform.
ATOL_BY_PREFIX = {"test_dft_": 1e-6}
# Their expected values are those of NumPy's generator.
RANDOM = frozenset(
    [f"test_bernoulli{kind}{form}" for kind in ("", "_double", "_seed") for form in ("", "_expanded")]
    + [f"test_training_dropout{kind}{mask}" for kind in ("", "_default") for mask in ("", "_mask")]
)


def to_array(value):
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def is_defined(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Where a conversion of ``value`` to ``dtype`` has a meaning: ONNX gives a float beyond an integer's range none.

    The expected values there are those of the ml_dtypes installed, and differ between its versions.
    """
    if dtype.name not in {"int2", "uint2", "int4", "uint4"} or value.dtype.kind != "f":
        return np.ones(value.shape, bool)
    limits = ml_dtypes.iinfo(dtype)
    return (value >= limits.min) & (value <= limits.max)


def run_case(case) -> None:
    function = cuvil.compile(case.model)
    for inputs, expected in case.data_sets:
        result = function(*map(to_array, inputs))
        result = result if isinstance(result, tuple) else (result,)
        assert len(result) == len(expected)
        for mine, wanted in zip(result, map(to_array, expected)):
            mine = np.asarray(mine)  # noqa: PLW2901
            half = HALF_TOLERANCE.get(wanted.dtype.name)
            if wanted.dtype.name == "bfloat16":
                mine = mine.view(wanted.dtype)  # noqa: PLW2901
            assert mine.dtype == wanted.dtype
            if case.name.startswith("test_cast"):
                defined = is_defined(to_array(inputs[0]), wanted.dtype)
                mine, wanted = mine[defined], wanted[defined]  # noqa: PLW2901
            if half or mine.dtype.kind == "f":
                rtol, atol = (half, half) if half else (case.rtol, max(case.atol, ATOL_BY_PREFIX.get(case.name[:9], 0)))
                np.testing.assert_allclose(mine.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)
            elif mine.dtype.itemsize == 1:
                np.testing.assert_array_equal(mine.view(np.uint8), wanted.view(np.uint8))
            else:
                np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("name", CASES)
def test_node(name: str) -> None:
    if name in RANDOM:
        pytest.skip("compares random numbers")
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
        except AssertionError:
            if case_name not in RANDOM:
                raise
    LIST.write_text("".join(f"{item}\n" for item in failing), encoding="utf-8")
