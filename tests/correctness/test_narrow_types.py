"""Element types of 8 bits and less against ml_dtypes and ONNX's reference.

Compiled code and the reference evaluator give the same bits.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.processor import runnable_targets

import cuvil
from cuvil import cuvil_native

onnx = pytest.importorskip("onnx")
ml_dtypes = pytest.importorskip("ml_dtypes")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
FLOATS = [*FLOAT8, "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
INTEGERS = ["int4", "uint4", "int2", "uint2"]
SCALE = "float8_e8m0fnu"
NARROW = [*FLOATS, SCALE, *INTEGERS]
TINY = np.finfo(np.float32).tiny
SOURCES = ["float32", "float16", "bfloat16"]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def enum_of(name: str) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype_of(name))


def model_of(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, enum_of(t), shape) for n, t, shape in inputs],
        [helper.make_tensor_value_info(n, enum_of(t), None) for n, t in outputs],
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=13)


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def run_all(model, *inputs: np.ndarray) -> list[np.ndarray]:
    """The model's outputs, which must not depend on who computes them."""
    reference = cuvil_native.import_onnx_bytes(model.SerializeToString()).evaluate(list(inputs))
    for target in runnable_targets():
        results = cuvil.compile(model, target=target)(*inputs)
        results = list(results) if isinstance(results, tuple) else [results]
        for got, want in zip(results, reference):
            np.testing.assert_array_equal(bits(got), bits(want), err_msg=target)
    return results


def run(model, *inputs: np.ndarray) -> np.ndarray:
    (result,) = run_all(model, *inputs)
    return result


def casts(x: np.ndarray, to: list[str], **attributes) -> list[np.ndarray]:
    """One model converts x to all the types."""
    nodes = [helper.make_node("Cast", ["x"], [name], to=enum_of(name), **attributes) for name in to]
    return run_all(model_of(nodes, [("x", x.dtype.name, ["n"])], [(name, name) for name in to]), x)


def cast(x: np.ndarray, to: str, **attributes) -> np.ndarray:
    (result,) = casts(x, [to], **attributes)
    return result


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Bit by bit; NaN of a wide type is any NaN."""
    assert got.dtype == want.dtype
    if want.dtype.itemsize > 1 and want.dtype.kind not in "iu":
        nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), nan)
        got, want = got[~nan], want[~nan]
    np.testing.assert_array_equal(bits(got), bits(want))


def all_values(name: str) -> np.ndarray:
    """All bit patterns; the bits that integers don't use are as they come."""
    used = {"float6": 63, "float4": 15}.get(name[:6], 255)
    return (np.arange(256, dtype=np.uint8) & np.uint8(used)).view(dtype_of(name))


def numbers(name: str) -> np.ndarray:
    """All finite values in order, zero once."""
    values = all_values(name).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def sweep(source: str, name: str) -> np.ndarray:
    """Every value of a half type; of f32, values of both half types, random ones, and those around every boundary."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    if source != "float32":
        return halves.view(dtype_of(source))
    values = numbers(name).astype(np.float32)
    ends = np.float32(
        [2 * values[-1], 1.5 * values[-1], 3e38, np.inf, -np.inf, np.nan, -np.nan, 0, -0.0, 1e-45, -1e-45]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.concatenate([values, (values[1:] + values[:-1]) / 2, ends])
        edges = np.concatenate(
            [edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, -np.float32(np.inf))]
        )
        patterns = np.random.default_rng(1).integers(0, 1 << 32, 100003, dtype=np.uint32).view(np.float32)
        return np.concatenate(
            [
                edges,
                halves.view(np.float16).astype(np.float32),
                halves.view(ml_dtypes.bfloat16).astype(np.float32),
                patterns,
            ]
        )


@pytest.mark.parametrize("name", NARROW)
def test_every_bit_pattern_decodes(name: str) -> None:
    x = all_values(name)
    wide = x.astype(np.float32)
    floats = ["float32", "float64", "float16", "bfloat16"]
    *got, nonzero = casts(x, [*floats, "bool"])
    same(nonzero, wide != 0)
    for to, result in zip(floats, got):
        with np.errstate(over="ignore"):
            same(result, wide.astype(dtype_of(to)))
    for to in ("int32", "uint8"):
        info = np.iinfo(to)
        fits = np.isfinite(wide) & (np.trunc(wide) >= info.min) & (np.trunc(wide) < info.max)
        same(cast(x[fits], to), wide[fits].astype(to))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", FLOATS)
def test_floats_encode(name: str, source: str) -> None:
    x = sweep(source, name)
    with np.errstate(all="ignore"):
        same(cast(x, name, saturate=0), x.astype(dtype_of(name)))
        want = numpy_helper.saturate_cast(x, dtype_of(name)) if name in FLOAT8 else x.astype(dtype_of(name))
        same(cast(x, name), want)


@pytest.mark.parametrize("name", FLOATS)
def test_doubles_are_rounded_once(name: str) -> None:
    values = numbers(name)
    middles = (values[1:] + values[:-1]) / 2
    x = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), values])
    # Just past a tie, f32 would have it on the tie; on the tie, the even one wins.
    even = np.where(bits(values[1:].astype(dtype_of(name))) % 2 == 0, values[1:], values[:-1])
    want = np.concatenate([even, values[1:], values[:-1], values])
    got = cast(x, name).astype(np.float64)
    np.testing.assert_array_equal(got, want)
    special = cast(np.float64([1e300, -1e300, np.inf, np.nan, 1e-320]), name, saturate=0)
    same(special, np.float32([np.inf, -np.inf, np.inf, np.nan, 0]).astype(dtype_of(name)))


def known_to_reference(x: np.ndarray) -> np.ndarray:
    """ONNX leaves what is not positive open; the reference differs from its definition below f32's normal numbers."""
    wide = x.astype(np.float32)
    return x[(wide >= TINY) & np.isfinite(wide)]


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("source", SOURCES)
def test_scales_encode(source: str, mode: str) -> None:
    x = known_to_reference(sweep(source, SCALE))
    for saturate in (0, 1):
        want = numpy_helper.to_float8e8m0(x, bool(saturate), mode)
        same(cast(x, SCALE, saturate=saturate, round_mode=mode), want)


def test_scales_of_special_values() -> None:
    x = np.float32([0, np.nan, np.inf, 3.4e38, 2.0**-127, 2.0**-128, -1])
    assert bits(cast(x, SCALE)).tolist() == [0, 255, 254, 254, 0, 0, 255]
    got = cast(x, SCALE, saturate=0, round_mode="nearest")
    assert bits(got).tolist() == [255, 255, 255, 255, 0, 255, 255]
    up = np.nextafter(np.float64(4), 5)
    assert bits(cast(np.float64([4, up]), SCALE)).tolist() == [129, 130]


@pytest.mark.parametrize("source", ["int8", "uint8", "int16", "int32", "int64", "uint64", "bool"])
def test_integers_encode(source: str) -> None:
    x = np.array([0, 1] * 9, bool) if source == "bool" else np.arange(-40, 70).astype(source)
    if source in ("int32", "int64"):
        x = np.concatenate([x, np.array([2**30, -(2**30), 16777217, 57345, 447, 449, 463, 464, 465], source)])
    for name, got in zip([*FLOATS, *INTEGERS], casts(x, [*FLOATS, *INTEGERS], saturate=0)):
        same(got, (x if name in INTEGERS else x.astype(np.float32)).astype(dtype_of(name)))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_floats(name: str, source: str) -> None:
    x = (np.arange(-4000, 4000) / 64).astype(dtype_of(source))
    same(cast(x, name), x.astype(np.float32).astype(np.int32).astype(dtype_of(name)))


@pytest.mark.parametrize("name", NARROW)
def test_from_one_to_another(name: str) -> None:
    x = all_values(name)
    x = x[np.isfinite(x.astype(np.float32)) & (np.abs(x.astype(np.float32)) < 1e9)] if name == SCALE else x
    wide = x.astype(np.float32)
    finite = np.isfinite(wide)
    for to, got in zip(NARROW, casts(x, NARROW)):
        if to == name:
            same(got, x)
        elif to in INTEGERS:
            same(got[finite], wide[finite].astype(np.int32).astype(dtype_of(to)))
        elif to == SCALE:
            known = finite & (wide >= TINY)
            same(got[known], numpy_helper.to_float8e8m0(wide[known]))
        elif to in FLOAT8:
            same(got, numpy_helper.saturate_cast(wide, dtype_of(to)))
        else:
            same(got, wide.astype(dtype_of(to)))


def test_cast_like_takes_the_attributes_too() -> None:
    x = np.float32([1000, -1000, 3])
    node = helper.make_node("CastLike", ["x", "like"], ["y"], saturate=0)
    like = np.zeros(1, ml_dtypes.float8_e4m3fn)
    model = model_of([node], [("x", "float32", [3]), ("like", "float8_e4m3fn", [1])], [("y", "float8_e4m3fn")])
    same(run(model, x, like), x.astype(ml_dtypes.float8_e4m3fn))


QUANTISED = ["int8", "uint16", *FLOATS, *INTEGERS]


@pytest.mark.parametrize("blocks", ["tensor", "axis", "blocked"])
@pytest.mark.parametrize("source", ["float32", "float16"])
@pytest.mark.parametrize("name", QUANTISED)
def test_quantise_and_back(name: str, source: str, blocks: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((5, 7, 3)) * 4).astype(source)
    shape = {"tensor": (), "axis": (7,), "blocked": (5, 3, 3)}[blocks]
    scale = rng.uniform(0.05, 2, shape).astype(source)
    zero = np.asarray(rng.integers(0, 2, shape) if name in QUANTISED[:2] + INTEGERS else np.zeros(shape)).astype(
        dtype_of(name)
    )
    settings = {"axis": 1, **({"block_size": 3} if blocks == "blocked" else {})}
    inputs = [("x", source, x.shape), ("s", source, shape), ("z", name, shape)]
    quantise = model_of([helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **settings)], inputs, [("y", name)])
    (quantised,) = ReferenceEvaluator(quantise).run(None, {"x": x, "s": scale, "z": zero})
    same(run(quantise, x, scale, zero), quantised)
    inputs[0] = ("x", name, x.shape)
    back = model_of([helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], **settings)], inputs, [("y", source)])
    (want,) = ReferenceEvaluator(back).run(None, {"x": quantised, "s": scale, "z": zero})
    same(run(back, quantised, scale, zero), want)


def test_scales_of_blocks_are_powers_of_two() -> None:
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    scale = np.array([[0.25, 1], [2, 0.5], [1, 1], [4, 0.125]], np.float32).astype(ml_dtypes.float8_e8m0fnu)
    nodes = [
        helper.make_node(
            "QuantizeLinear", ["x", "s"], ["q"], axis=1, block_size=32, output_dtype=TensorProto.FLOAT4E2M1
        ),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"], axis=1, block_size=32, output_dtype=TensorProto.FLOAT),
    ]
    model = model_of(nodes, [("x", "float32", (4, 64)), ("s", SCALE, (4, 2))], [("y", "float32")])
    wide = np.repeat(scale.astype(np.float32), 32, axis=1)
    same(run(model, x, scale), (x / wide).astype(ml_dtypes.float4_e2m1fn).astype(np.float32) * wide)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("name", NARROW)
def test_moved_and_stored(name: str, raw: bool) -> None:
    """An initialiser of odd length, in both forms, joined to an input; only index-like operators."""
    values = np.random.default_rng(5).permutation(256)[:15].astype(np.uint8).view(dtype_of(name))
    values = values.astype(np.float32).astype(dtype_of(name)).reshape(5, 3)
    constant = numpy_helper.from_array(values, "c")
    if not raw:
        # Packed bytes are one number each.
        data = list(constant.raw_data)
        constant.ClearField("raw_data")
        constant.int32_data.extend(data)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Concat", ["t", "c"], ["j"], axis=1),
        helper.make_node("Reshape", ["j", "s"], ["r"]),
        helper.make_node("Slice", ["r", "one", "end", "zero"], ["v"]),
        helper.make_node("Identity", ["v"], ["y"]),
    ]
    constants = [
        constant,
        *(numpy_helper.from_array(np.int64([v]), n) for n, v in (("one", 1), ("end", 99), ("zero", 0))),
    ]
    constants.append(numpy_helper.from_array(np.int64([-1, 5]), "s"))
    x = all_values(name)[:20].reshape(4, 5)
    got = run(model_of(nodes, [("x", name, ("n", 5))], [("y", name)], constants), x)
    same(got, np.concatenate([x.T, values], axis=1).reshape(-1, 5)[1:])


@pytest.mark.parametrize("name", NARROW)
def test_large_constants_decode(name: str) -> None:
    """Into what is computed when the model is compiled."""
    values = np.tile(all_values(name), 2).astype(np.float32).astype(dtype_of(name))
    nodes = [helper.make_node("Cast", ["c"], ["w"], to=TensorProto.FLOAT), helper.make_node("Add", ["w", "x"], ["y"])]
    constant = numpy_helper.from_array(values, "c")
    got = run(model_of(nodes, [("x", "float32", [512])], [("y", "float32")], [constant]), np.zeros(512, np.float32))
    same(got, values.astype(np.float32) + np.float32(0))


@pytest.mark.parametrize("name", NARROW)
def test_borders_and_rows(name: str) -> None:
    x = all_values(name).reshape(16, 16)
    value = all_values(name)[3:4]
    nodes = [
        helper.make_node("Gather", ["x", "rows"], ["g"]),
        helper.make_node("Pad", ["g", "pads", "value"], ["p"]),
        helper.make_node("Expand", ["p", "wide"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.int64([5, 1]), "rows"),
        numpy_helper.from_array(np.int64([0, 1, 2, 0]), "pads"),
        numpy_helper.from_array(value.reshape(()), "value"),
        numpy_helper.from_array(np.int64([2, 1, 1]), "wide"),
    ]
    got = run(model_of(nodes, [("x", name, (16, 16))], [("y", name)], constants), x)
    want = np.pad(bits(x)[[5, 1]], ((0, 2), (1, 0)), constant_values=bits(value)[0])
    np.testing.assert_array_equal(bits(got), np.stack([want, want]))


def test_packed_data_of_the_wrong_size_is_refused() -> None:
    constant = helper.make_tensor("c", TensorProto.INT4, [4], bytes(2), raw=True)
    constant.dims[0] = 5
    model = model_of([helper.make_node("Identity", ["c"], ["y"])], [], [("y", "int4")], [constant])
    with pytest.raises(cuvil.CompileError, match="has 2 bytes of data where its shape needs 3"):
        cuvil.compile(model)


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("float16", "int16"),
        ("int16", "float16"),
        ("bfloat16", "uint16"),
        ("uint16", "bfloat16"),
        ("uint8", "float8_e5m2"),
    ],
)
def test_every_bit_pattern_survives_a_bit_cast(source: str, to: str) -> None:
    size = dtype_of(source).itemsize
    x = np.arange(1 << (8 * size), dtype=f"u{size}").view(dtype_of(source))
    node = helper.make_node("BitCast", ["x"], ["y"], to=enum_of(to))
    got = run(model_of([node], [("x", source, ["n"])], [("y", to)]), x)
    assert got.dtype == dtype_of(to)
    np.testing.assert_array_equal(bits(got), bits(x))


def test_bit_casts_between_sizes_are_refused() -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.UINT8)
    with pytest.raises(cuvil.CompileError, match="cannot take the 4 bits of i4 for the 8 of u8"):
        cuvil.compile(model_of([node], [("x", "int4", [4])], [("y", "uint8")]))


@pytest.mark.parametrize("op", ["Add", "MatMul", "Max"])
def test_arithmetic_is_refused(op: str) -> None:
    node = helper.make_node(op, ["x", "x"], ["y"], name="sum")
    with pytest.raises(cuvil.CompileError, match=r"'sum .*narrow types are only stored and converted"):
        cuvil.compile(model_of([node], [("x", "float8_e4m3fn", [4, 4])], [("y", "float8_e4m3fn")]))


def test_another_type_than_the_inputs_is_refused() -> None:
    function = cuvil.compile(
        model_of([helper.make_node("Identity", ["x"], ["y"])], [("x", "float8_e4m3fn", [2])], [("y", "float8_e4m3fn")])
    )
    with pytest.raises(cuvil.InputError, match="expected dtype f8e4m3fn, got f8e5m2"):
        function(np.zeros(2, ml_dtypes.float8_e5m2))
    with pytest.raises(cuvil.InputError, match="expected dtype f8e4m3fn, got u8"):
        function(np.zeros(2, np.uint8))


def test_a_number_is_no_narrow_tensor() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    with pytest.raises(cuvil.InputError, match=r"expected a tensor of type f8e5m2\[\], got float"):
        cuvil.compile(model_of([node], [("x", "float8_e5m2", [])], [("y", "float8_e5m2")]))(1.0)


@pytest.mark.parametrize("name", [*FLOAT8, SCALE])
def test_torch_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    node = helper.make_node("Identity", ["x"], ["y"])
    got = cuvil.compile(model_of([node], [("x", name, ["n"])], [("y", name)]))(x)
    assert isinstance(got, torch.Tensor) and got.dtype == x.dtype
    assert torch.equal(got.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("name", FLOAT8)
def test_torch_casts(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    x = torch.from_numpy(sweep("float32", name))
    x = x[: x.numel() // 3 * 3].reshape(-1, 3)

    def function(x):
        return x.to(dtype).transpose(0, 1), x.to(dtype).to(torch.float16)

    got, wide = cuvil.compile(function, input_spec=[("x", x)])(x)
    want, wanted_wide = function(x)
    assert got.dtype == dtype and wide.dtype == torch.float16
    torch.testing.assert_close(wide, wanted_wide, rtol=0, atol=0, equal_nan=True)
    numbers = ~torch.isnan(want.float())
    assert torch.equal(torch.isnan(got.float()), ~numbers)
    assert torch.equal(got.view(torch.uint8)[numbers], want.view(torch.uint8)[numbers])


def test_torch_numbers_and_choices() -> None:
    torch = pytest.importorskip("torch")
    dtype = torch.float8_e5m2

    def function(x, keep):
        ones = torch.full((3, 5), 1.5, dtype=dtype)
        return torch.where(keep, x.to(dtype), ones), torch.arange(5).to(dtype)

    x, keep = torch.linspace(-3, 3, 15).reshape(3, 5), torch.arange(15).reshape(3, 5) % 2 == 0
    got = cuvil.compile(function, input_spec=[("x", x), ("keep", keep)])(x, keep)
    want = torch.where(keep, x.to(dtype).float(), torch.tensor(1.5)), torch.arange(5).float()
    for mine, wanted in zip(got, want):
        assert mine.dtype == dtype
        assert torch.equal(mine.float(), wanted)


def test_a_torch_module_with_narrow_weights() -> None:
    torch = pytest.importorskip("torch")

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.linspace(-3, 3, 512).reshape(16, 32).to(torch.float8_e5m2))

        def forward(self, x):
            return x @ (self.weight.to(torch.float32) * 0.5)

    x = torch.linspace(-1, 1, 48).reshape(3, 16)
    torch.testing.assert_close(cuvil.compile(Scaled(), input_spec=[("x", x)])(x), Scaled()(x))


def test_torch_views_as_another_type() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16)
    function = cuvil.compile(lambda x: (x.view(torch.float16), x.view(torch.bfloat16)), input_spec=[("x", x)])
    for got, dtype in zip(function(x), (torch.float16, torch.bfloat16)):
        assert got.dtype == dtype
        assert torch.equal(got.view(torch.int16), x)
    with pytest.raises(cuvil.CompileError, match="a view as a dtype of another size is not supported"):
        cuvil.compile(lambda x: x.view(torch.uint8), input_spec=[("x", x)])


def test_types_that_dlpack_lacks_come_as_arrays() -> None:
    torch = pytest.importorskip("torch")
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT4)
    got = cuvil.compile(model_of([node], [("x", "float32", [3])], [("y", "int4")]))(torch.tensor([1.0, -2, 3]))
    assert isinstance(got, np.ndarray) and got.tolist() == [1, -2, 3]
