"""Random graphs in text form, bounded and seeded, on which compiled code must agree with the reference evaluator.

Two properties of every value are tracked so that agreement is decidable: a bound of its magnitude, so that nothing
overflows or is amplified without limit, and whether it is *exact* (the same bits whatever the order of evaluation).
Functions that jump (floor, comparisons, argmax) are only applied to exact values.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Union

import numpy as np

Size = Union[int, str]  # "b" is the dynamic size
MAX_ELEMENTS = 6000
MAX_BOUND = 200.0
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}


@dataclass(frozen=True)
class Val:
    name: str
    dtype: str
    shape: tuple[Size, ...]
    bound: float
    exact: bool

    @property
    def constant(self) -> list[int]:
        """The sizes, with a stand-in for the dynamic one."""
        return [5 if isinstance(size, str) else size for size in self.shape]

    @property
    def static_axes(self) -> list[int]:
        return [axis for axis, size in enumerate(self.shape) if not isinstance(size, str)]


@dataclass
class RandomGraph:
    text: str
    inputs: list[Val]
    dynamic: bool
    outputs: list[Val]
    seed: int

    def arrays(self, batch: int) -> list[np.ndarray]:
        """Inputs for a batch size; exact inputs are small integers."""
        generator = np.random.default_rng(self.seed + 7919 * batch)
        made = []
        for value in self.inputs:
            shape = [batch if isinstance(size, str) else size for size in value.shape]
            if value.dtype == "bool":
                made.append(generator.integers(0, 2, shape).astype(np.bool_))
            elif value.exact:
                bound = int(value.bound)
                made.append(generator.integers(-bound, bound + 1, shape).astype(NUMPY[value.dtype]))
            else:
                made.append(generator.uniform(-value.bound, value.bound, shape).astype(NUMPY[value.dtype]))
        return made


def random_graph(seed: int, steps: int = 12) -> RandomGraph:
    """The graph of that seed."""
    return _Maker(seed).make(steps)


def _elements(shape: tuple[Size, ...] | list[int]) -> int:
    total = 1
    for size in shape:
        total *= 5 if isinstance(size, str) else size
    return total


def _dims(shape: tuple[Size, ...] | list[Size] | list[int]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.lines: list[str] = []
        self.values: list[Val] = []
        self.inputs: list[Val] = []
        self.used: set[str] = set()
        self.dynamic = self.random.random() < 0.5

    def make(self, steps: int) -> RandomGraph:
        for _ in range(self.random.randint(1, 3)):
            self.add_input()
        tries = 0
        while len(self.lines) < steps and tries < 20 * steps:
            tries += 1
            self.random.choice(_STEPS)(self)
        computed = [value for value in self.values if value not in self.inputs]
        unused = [value for value in computed if value.name not in self.used] or computed or self.values
        outputs = unused[-3:]
        arguments = ", ".join(f"%{v.name}: {v.dtype}{_dims(v.shape)}" for v in self.inputs)
        symbols = " symbols(b in 0..)" if any("b" in v.shape for v in self.inputs) else ""
        returned = ", ".join(f'"y{index}" = %{value.name}' for index, value in enumerate(outputs))
        body = "\n".join(f"  {line}" for line in self.lines)
        text = f"graph fuzz({arguments}){symbols} {{\n{body}\n  return {returned}\n}}\n"
        return RandomGraph(text, self.inputs, bool(symbols), outputs, self.seed)

    def add_input(self) -> None:
        rank = self.random.randint(1, 4)
        shape: list[Size] = [self.random.choice((1, 2, 3, 4, 5, 7, 8, 16, 17, 33)) for _ in range(rank)]
        while _elements(shape) > MAX_ELEMENTS // 4:
            shape[self.random.randrange(rank)] = 2
        if self.dynamic:
            shape[0] = "b"
        dtype = self.random.choice(("f32", "f32", "f32", "f32", "f64", "i32", "i64"))
        exact = dtype[0] == "i" or self.random.random() < 0.4
        value = Val(f"x{len(self.inputs)}", dtype, tuple(shape), 3.0, exact)
        self.inputs.append(value)
        self.values.append(value)

    def emit(
        self,
        op: str,
        operands: list[Val],
        attributes: str,
        shape: list[Size],
        bound: float,
        exact: bool,
        dtype: str = "",
    ) -> Val:
        name = f"v{len(self.lines)}"
        arguments = ", ".join(f"%{value.name}" for value in operands)
        kind = dtype or operands[0].dtype
        braces = f" {{{attributes}}}" if attributes else ""
        self.lines.append(f"%{name} = {op}({arguments}){braces} : {kind}{_dims(shape)}")
        self.used.update(value.name for value in operands)
        # Integers in floats stay exact only while every partial result fits the mantissa.
        value = Val(name, kind, tuple(shape), bound, exact and bound < 1e6)
        self.values.append(value)
        return value

    def pick(self, kinds: str = "fi", exact: bool | None = None, rank: int = 0) -> Val | None:
        fit = [
            value
            for value in self.values
            if value.dtype[0] in kinds and len(value.shape) >= rank and (exact is None or value.exact or not exact)
        ]
        # Later values are likelier, so that graphs grow deep.
        return self.random.choice(fit[-4:] if self.random.random() < 0.7 else fit) if fit else None

    def scalar(self, value: float, dtype: str) -> Val:
        text = f"{value}" if dtype[0] == "f" else f"{int(value)}"
        return self.emit("constant", [], f"value=dense<{dtype}[]: {text}>", [], abs(value), True, dtype)

    def pointwise(self, fn: str, operands: list[Val], bound: float, exact: bool, dtype: str = "") -> Val:
        shape: tuple[Size, ...] = ()
        for value in operands:
            shape = _broadcast(shape, value.shape) or ()
        return self.emit("pointwise", operands, f"fn={fn}", list(shape), bound, exact, dtype)

    # Each step below adds one operation, or a few, or nothing if no value fits.

    def unary(self) -> None:
        x = self.pick("f")
        if x is None:
            return
        fn = self.random.choice(("neg", "abs", "sin", "cos", "tanh", "sigmoid", "erf", "exp", "expm1"))
        if fn in ("neg", "abs"):
            self.pointwise(fn, [x], x.bound, x.exact)
        elif fn in ("exp", "expm1"):
            if x.bound <= 4:
                self.pointwise(fn, [x], 60.0, False)
        else:
            self.pointwise(fn, [x], 1.0, False)

    def positive(self) -> None:
        """A function with a pole or a steep flank at zero, behind a floor."""
        x = self.pick("f")
        if x is None:
            return
        size = self.pointwise("abs", [x], x.bound, x.exact)
        floored = self.pointwise("max", [size, self.scalar(0.5, x.dtype)], max(0.5, x.bound), x.exact)
        fn = self.random.choice(("sqrt", "rsqrt", "reciprocal", "log", "log1p"))
        self.pointwise(fn, [floored], max(2.0, x.bound), False)

    def jump(self) -> None:
        x = self.pick("f", exact=True)
        if x is not None:
            half = self.pointwise("mul", [x, self.scalar(0.5, x.dtype)], x.bound, x.exact)
            fn = self.random.choice(("floor", "ceil", "trunc", "round", "sign"))
            self.pointwise(fn, [half], x.bound + 1, x.exact)

    def binary(self) -> None:
        x = self.pick()
        partners = [v for v in self.values if x and v.dtype == x.dtype and _broadcast(v.shape, x.shape) is not None]
        if x is None or not partners:
            return
        y = self.random.choice(partners)
        exact = x.exact and y.exact
        fn = self.random.choice(("add", "sub", "mul", "max", "min"))
        if fn == "mul":
            if x.bound * y.bound <= MAX_BOUND:
                self.pointwise(fn, [x, y], x.bound * y.bound, exact)
        elif fn in ("max", "min"):
            self.pointwise(fn, [x, y], max(x.bound, y.bound), exact)
        elif x.bound + y.bound <= MAX_BOUND:
            self.pointwise(fn, [x, y], x.bound + y.bound, exact)

    def integer(self) -> None:
        x = self.pick("i")
        if x is not None:
            fn = self.random.choice(("div", "mod", "rem", "and", "or", "xor"))
            other = self.scalar(self.random.choice((-3, -2, 1, 2, 3, 5)), x.dtype)
            self.pointwise(fn, [x, other], 2 * max(x.bound, 8.0), True)

    def choose(self) -> None:
        x = self.pick(exact=True)
        if x is None or x.dtype == "bool":
            return
        comparison = self.random.choice(("eq", "ne", "lt", "le", "gt", "ge"))
        condition = self.pointwise(comparison, [x, self.scalar(1, x.dtype)], 1.0, True, "bool")
        fit = [v for v in self.values if v.dtype != "bool" and _broadcast(v.shape, x.shape) is not None]
        y = self.random.choice(fit)
        self.pointwise("select", [condition, y, self.scalar(2, y.dtype)], max(2.0, y.bound), y.exact, y.dtype)

    def cast(self) -> None:
        x = self.pick("fi", exact=True)
        if x is not None:
            dtype = self.random.choice([name for name in ("f32", "f64", "i32", "i64") if name != x.dtype])
            self.emit("cast", [x], f"dtype={dtype}", list(x.shape), x.bound, x.exact, dtype)

    def reshape(self) -> None:
        x = self.pick("fib", rank=2)
        if x is None:
            return
        fixed = [size for size in x.shape if isinstance(size, int)]
        lead: list[Size] = [size for size in x.shape if isinstance(size, str)]
        if lead and x.shape[0] != "b":
            return  # moving the dynamic axis to the front would not keep the order of elements
        total = _elements(fixed)
        factor = self.random.choice([d for d in range(1, total + 1) if total % d == 0] or [1])
        rest: list[Size] = [total] if self.random.random() < 0.4 or total == 0 else [factor, total // factor]
        self.emit("reshape", [x], f"shape={_dims(lead + rest)}", lead + rest, x.bound, x.exact)

    def transpose(self) -> None:
        x = self.pick("fib", rank=2)
        if x is not None:
            perm = list(range(len(x.shape)))
            self.random.shuffle(perm)
            self.emit("transpose", [x], f"perm={perm}", [x.shape[p] for p in perm], x.bound, x.exact)

    def broadcast(self) -> None:
        x = self.pick("fib")
        if x is None:
            return
        grown: list[Size] = [self.random.choice((2, 3)) if size == 1 else size for size in x.shape]
        shape = [self.random.choice((1, 2)), *grown] if len(grown) < 4 else grown
        if _elements(shape) <= MAX_ELEMENTS:
            self.emit("broadcast", [x], f"shape={_dims(shape)}", shape, x.bound, x.exact)

    def slice(self) -> None:
        x = self.pick("fib")
        if x is None or not x.static_axes:
            return
        starts: list[Size] = [0] * len(x.shape)
        limits, steps, shape = list(x.shape), [1] * len(x.shape), list(x.shape)
        axis = self.random.choice(x.static_axes)
        size = int(x.shape[axis])
        if size == 0:
            return
        first, last = sorted((self.random.randrange(size), self.random.randrange(size)))
        step = self.random.choice((1, 1, 2, 3))
        steps[axis], shape[axis] = step, (last - first) // step + 1
        starts[axis], limits[axis] = first, last + 1
        if self.random.random() < 0.3:
            starts[axis], limits[axis], steps[axis] = last, first - 1, -step
        attributes = f"starts={_dims(starts)}, limits={_dims(limits)}, steps={steps}"
        self.emit("slice", [x], attributes, shape, x.bound, x.exact)

    def pad(self) -> None:
        x = self.pick("fi")
        if x is None or not x.static_axes:
            return
        low, high = [0] * len(x.shape), [0] * len(x.shape)
        for axis in x.static_axes:
            low[axis], high[axis] = self.random.randint(0, 2), self.random.randint(0, 2)
        shape = [size + low[i] + high[i] if isinstance(size, int) else size for i, size in enumerate(x.shape)]
        if _elements(shape) <= MAX_ELEMENTS:
            value = float(self.random.choice((0, 0, 1, -2)))
            self.emit("pad", [x], f"low={low}, high={high}, value={value}", shape, max(2.0, x.bound), x.exact)

    def concat(self) -> None:
        x = self.pick("fib")
        if x is None or not x.static_axes:
            return
        axis = self.random.choice(x.static_axes)

        def off_axis(value: Val) -> tuple[Size, ...]:
            return value.shape[:axis] + value.shape[axis + 1 :]

        fit = [
            v
            for v in self.values
            if v.dtype == x.dtype
            and len(v.shape) == len(x.shape)
            and off_axis(v) == off_axis(x)
            and isinstance(v.shape[axis], int)
        ]
        parts = [x, *(self.random.choice(fit) for _ in range(self.random.randint(1, 2)))]
        shape = list(x.shape)
        shape[axis] = sum(int(part.shape[axis]) for part in parts)
        if _elements(shape) <= MAX_ELEMENTS:
            bound, exact = max(part.bound for part in parts), all(part.exact for part in parts)
            self.emit("concat", parts, f"axis={axis}", shape, bound, exact)

    def positions(self, size: int, count: int) -> Val:
        """Indices into one axis, which mean nothing to other operations."""
        indices = ", ".join(str(self.random.randint(-size, size - 1)) for _ in range(count))
        kind = self.random.choice(("i32", "i64"))
        index = self.emit("constant", [], f"value=dense<{kind}[{count}]: {indices}>", [count], float(size), True, kind)
        self.values.pop()
        return index

    def gather(self) -> None:
        x = self.pick("fib")
        if x is None or not x.static_axes:
            return
        axis = self.random.choice(x.static_axes)
        size = int(x.shape[axis])
        if size == 0:
            return
        count = self.random.randint(1, 6)
        shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
        if _elements(shape) <= MAX_ELEMENTS:
            self.emit("gather", [x, self.positions(size, count)], f"axis={axis}", shape, x.bound, x.exact, x.dtype)

    def scatter(self) -> None:
        """Slices of a value, or a function of them, go to other places of it."""
        x = self.pick("fi")
        if x is None or not x.static_axes:
            return
        axis = self.random.choice(x.static_axes)
        size, count = int(x.shape[axis]), self.random.randint(1, 6)
        shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
        fn = self.random.choice(("", "sum", "max", "min"))
        bound = x.bound * (count + 1 if fn == "sum" else 1)
        if size == 0 or _elements(shape) > MAX_ELEMENTS or bound > MAX_BOUND:
            return
        updates = self.emit("gather", [x, self.positions(size, count)], f"axis={axis}", shape, x.bound, x.exact)
        if self.random.random() < 0.5:
            updates = self.pointwise("neg", [updates], x.bound, x.exact)
        attributes = f"axis={axis}" + (f", fn={fn}" if fn else "")
        self.emit("scatter", [x, self.positions(size, count), updates], attributes, list(x.shape), bound, x.exact)

    def sort(self) -> None:
        x = self.pick("fib", exact=True)
        if x is None or not x.static_axes:
            return
        axis = self.random.choice(x.static_axes)
        size = int(x.shape[axis])
        count = self.random.randint(0, size) if self.random.random() < 0.5 else size
        shape: list[Size] = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
        attributes = f"axis={axis}, count={count}, descending={self.random.choice(('true', 'false'))}"
        order = self.emit("sort_indices", [x], attributes, shape, float(max(1, size)), True, "i64")
        if self.random.random() < 0.7:
            self.emit("gather_elements", [x, order], f"axis={axis}", shape, x.bound, x.exact)

    def reduce(self) -> None:
        x = self.pick("fi")
        if x is None:
            return
        fn = self.random.choice(("sum", "max", "min", "argmax", "argmin"))
        static = x.static_axes
        if fn[:3] == "arg":
            if not (x.exact and static):
                return
            axes = [self.random.choice(static)]
            if x.shape[axes[0]] == 0:
                return
        else:
            axes = sorted(self.random.sample(static, self.random.randint(1, len(static)))) if static else []
        if not axes:
            return
        folded = _elements([x.shape[axis] for axis in axes])
        keep = self.random.random() < 0.5
        shape = [1 if i in axes else size for i, size in enumerate(x.shape) if keep or i not in axes]
        attributes = f"fn={fn}, axes={axes}, keepdims={'true' if keep else 'false'}"
        if fn == "sum":
            total = self.emit("reduce", [x], attributes, list(shape), x.bound * folded, x.exact)
            if x.dtype[0] == "f" and total.bound > MAX_BOUND:
                self.pointwise("mul", [total, self.scalar(1 / folded, x.dtype)], x.bound, False)
                self.values.remove(total)
        elif fn in ("max", "min"):
            if folded:
                self.emit("reduce", [x], attributes, list(shape), x.bound, x.exact)
        else:
            self.emit("reduce", [x], attributes, list(shape), float(folded), True, "i64")

    def softmax(self) -> None:
        x = self.pick("f")
        if x is None or isinstance(x.shape[-1] if x.shape else "b", str) or x.bound > 30:
            return
        axes = f"axes=[{len(x.shape) - 1}], keepdims=true"
        row: list[Size] = [*x.shape[:-1], 1]
        top = self.emit("reduce", [x], f"fn=max, {axes}", row, x.bound, x.exact)
        shifted = self.pointwise("sub", [x, top], 2 * x.bound, x.exact)
        powers = self.pointwise("exp", [shifted], 1.0, False)
        total = self.emit("reduce", [powers], f"fn=sum, {axes}", row, MAX_BOUND, False)
        self.pointwise("div", [powers, total], 1.0, False)

    def scan(self) -> None:
        x = self.pick("fi")
        if x is None or not x.static_axes:
            return
        axis = self.random.choice(x.static_axes)
        bound = x.bound * max(1, int(x.shape[axis]))
        if bound <= MAX_BOUND:
            flags = [self.random.choice(("true", "false")) for _ in range(2)]
            attributes = f"fn=sum, axis={axis}, exclusive={flags[0]}, reverse={flags[1]}"
            self.emit("scan", [x], attributes, list(x.shape), bound, x.exact)

    def matmul(self) -> None:
        x = self.pick("f", rank=2)
        if x is None or isinstance(x.shape[-1], str):
            return
        inner, columns = int(x.shape[-1]), self.random.choice((1, 3, 8, 16, 31, 64))
        if inner == 0 or _elements(list(x.shape[:-1])) * columns > MAX_ELEMENTS:
            return
        weight = self.weights([inner, columns], x.dtype)
        self.emit("matmul", [x, weight], "", [*x.shape[:-1], columns], x.bound, False)

    def weights(self, shape: list[int], dtype: str) -> Val:
        """A constant with magnitudes under which sums of products don't grow."""
        scale = 1.0 / max(1, _elements(shape) // shape[-1] if len(shape) == 2 else _elements(shape[1:]))
        numbers = ", ".join(f"{self.random.uniform(-scale, scale):.6g}" for _ in range(_elements(shape)))
        numbers = ", ".join(n if "." in n or "e" in n else n + ".0" for n in numbers.split(", "))
        value = self.emit(
            "constant", [], f"value=dense<{dtype}{_dims(shape)}: {numbers}>", list(shape), 1.0, False, dtype
        )
        self.values.pop()
        return value

    def conv(self) -> None:
        x = self.pick("f", rank=3)
        if x is None or any(isinstance(size, str) for size in x.shape[1:]):
            return
        channels = int(x.shape[1])
        spatial = [int(size) for size in x.shape[2:]]
        groups = self.random.choice([g for g in (1, 1, 2, 3, channels) if g and channels % g == 0])
        out = groups * self.random.choice((1, 2, 4, 8) if groups > 1 else (1, 3, 16, 17, 32))
        kernel = [self.random.randint(1, min(3, size)) for size in spatial if size]
        if len(kernel) != len(spatial) or not channels or out * max(1, channels // groups) > 600:
            return
        strides = [self.random.choice((1, 1, 2)) for _ in spatial]
        dilations = [self.random.choice((1, 2)) if (k - 1) * 2 < size else 1 for k, size in zip(kernel, spatial)]
        shape: list[Size] = [x.shape[0], out]
        for size, k, stride, dilation in zip(spatial, kernel, strides, dilations):
            shape.append((size - (k - 1) * dilation - 1) // stride + 1)
        if _elements(shape) > MAX_ELEMENTS:
            return
        weight = self.weights([out, channels // groups, *kernel], x.dtype)
        attributes = f"strides={strides}, dilations={dilations}, groups={groups}"
        self.emit("conv", [x, weight], attributes, shape, x.bound, False)

    def window(self) -> None:
        x = self.pick("f", rank=3)
        if x is None or any(isinstance(size, str) or size == 0 for size in x.shape[1:]):
            return
        spatial = [int(size) for size in x.shape[2:]]
        window = [self.random.randint(1, min(3, size)) for size in spatial]
        strides = [self.random.choice((1, 2)) for _ in spatial]
        fn = self.random.choice(("max", "min", "sum"))
        bound = x.bound * (_elements(window) if fn == "sum" else 1)
        if bound > MAX_BOUND:
            return
        shape: list[Size] = list(x.shape[:2])
        shape += [(size - w) // s + 1 for size, w, s in zip(spatial, window, strides)]
        attributes = f"fn={fn}, window={window}, strides={strides}, dilations={[1] * len(window)}"
        self.emit("window_reduce", [x], attributes, shape, bound, x.exact)


def _broadcast(a: tuple[Size, ...], b: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The common shape; None if there is none within bounds."""
    rank = max(len(a), len(b))
    shape: list[Size] = []
    for m, n in zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b):
        if m != n and 1 not in (m, n):
            return None
        shape.append(n if m == 1 else m)
    return tuple(shape) if _elements(shape) <= MAX_ELEMENTS else None


_STEPS = (
    _Maker.unary,
    _Maker.positive,
    _Maker.jump,
    _Maker.binary,
    _Maker.binary,
    _Maker.integer,
    _Maker.choose,
    _Maker.cast,
    _Maker.reshape,
    _Maker.transpose,
    _Maker.broadcast,
    _Maker.slice,
    _Maker.pad,
    _Maker.concat,
    _Maker.gather,
    _Maker.scatter,
    _Maker.sort,
    _Maker.reduce,
    _Maker.softmax,
    _Maker.scan,
    _Maker.matmul,
    _Maker.conv,
    _Maker.conv,
    _Maker.window,
)
