"""Parts of random programs: values with their known properties, constants, indices, loads and stores.

For every float the generator knows its largest magnitude and a power of two that divides it. As long as both
fit the type, arithmetic is exact in any order. Otherwise the value carries an error bound, and no discrete
decision depends on it.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from test_corpus import interpret, run

LENGTH = 2048  # elements of an input
GRID = 2
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
MANTISSA = {
    "f64": 53,
    "f32": 24,
    "f16": 11,
    "bf16": 8,
    "f8E4M3FN": 4,
    "f8E5M2": 3,
    "f8E4M3FNUZ": 4,
    "f8E5M2FNUZ": 3,
}
LARGEST = {"f16": 65504.0, "f8E4M3FN": 448.0, "f8E5M2": 57344.0, "f8E4M3FNUZ": 240.0, "f8E5M2FNUZ": 57344.0}
LEAST = {
    "f16": -24,
    "f8E4M3FN": -9,
    "f8E5M2": -16,
    "f8E4M3FNUZ": -10,
    "f8E5M2FNUZ": -17,
}  # exponent of the smallest value
INTS = ("i8", "i16", "i32", "i64")
ARITHMETIC = ("f16", "bf16", "f32", "f64")  # 8-bit floats are only converted
FLOAT8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")


@dataclass(frozen=True)
class Value:
    """A name, its type, and the known properties of a float."""

    name: str
    element: str
    shape: tuple[int, ...]
    most: float = math.inf  # largest magnitude; infinite: may be infinite or NaN
    unit: int = -149  # all are multiples of 2**unit
    error: float = 0.0  # largest difference between device and reference

    @property
    def type(self) -> str:
        return type_of(self.element, self.shape)

    @property
    def is_exact(self) -> bool:
        return self.error == 0 and self.most < math.inf


def type_of(element: str, shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>" if shape else element


def fits(element: str, most: float, unit: int) -> bool:
    """Return whether the type represents every multiple of 2**unit up to ``most``."""
    bits = math.log2(max(most, 2.0**unit)) - unit
    return (
        bits <= MANTISSA[element] and most <= LARGEST.get(element, 1e38) and unit >= LEAST.get(element, -126)
    )


@dataclass
class Output:
    """A buffer that the program writes."""

    parameter: int
    element: str
    error: float


@dataclass
class Program:
    """A module, its arguments and the outputs to compare."""

    lines: list[str | None]
    spans: list[tuple[int, int, list[Value]]]  # first and last line, results of each removable operation
    arguments: list[np.ndarray | int | float]
    outputs: list[Output]
    target: str | int
    num_warps: int

    @property
    def text(self) -> str:
        return "\n".join(line for line in self.lines if line is not None) + "\n"


def stored_values(array: np.ndarray, element: str) -> np.ndarray:
    """Decode values from their stored form."""
    if element not in interpret.STORED:
        return array.view(interpret.DTYPES[element])
    if element == "i1":
        return array
    machine = interpret.Interpreter(None, [array], (1, 1, 1))
    places = np.arange(array.size, dtype=np.int64) * array.itemsize
    return machine.read(places, element, np.ones(array.size, bool), np.zeros(()))


class Writer:
    """Writes the text of a program and its leaves; the generator adds the operations."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        targets = ["cpu", "cpu", "bmg", "generic", "dg2"] if run.TARGETS[0] == "cpu" else run.TARGETS
        self.target = targets[seed % len(targets)]
        self.has_fp64 = self.target not in ("generic", "dg2")
        self.lines: list[str] = []
        self.spans: list[tuple[int, int, list[Value]]] = []
        self.parameters: list[str] = []
        self.arguments: list[np.ndarray | int | float] = []
        self.outputs: list[Output] = []
        self.inputs: dict[str, tuple[str, Value]] = {}
        self.scopes: list[list[Value]] = [[]]
        self.count = 0
        self.depth = 0  # nesting of loops and branches
        self.limit = 1024 if self.target != "generic" else 256
        shapes = set()
        while len(shapes) < 3:
            rank = self.random.choice([1, 1, 2, 2, 2, 3, 4])
            shape = tuple(2 ** self.random.randint(0, 8 if rank == 1 else 5) for _ in range(rank))
            if math.prod(shape) <= self.limit:
                shapes.add(shape)
        self.shapes = sorted(shapes)

    # --- text ---

    def new(self, element: str, shape: tuple[int, ...], **facts: float) -> Value:
        self.count += 1
        return Value(f"%v{self.count}", element, shape, **facts)

    def line(self, text: str) -> None:
        self.lines.append("  " * (2 + self.depth) + text)

    def keep(self, *values: Value) -> None:
        self.scopes[-1].extend(values)

    def op(self, text: str, result: Value) -> Value:
        """Write ``result = text``; return the result."""
        self.spans.append((len(self.lines), len(self.lines), [result]))
        self.line(f"{result.name} = {text}")
        self.keep(result)
        return result

    def effect(self, text: str) -> None:
        self.spans.append((len(self.lines), len(self.lines), []))
        self.line(text)

    def parameter(self, type_text: str, argument: np.ndarray | int | float) -> str:
        name = f"%p{len(self.parameters)}"
        attribute = (
            " {tt.divisibility = 16 : i32}" if type_text[0] == "!" and self.random.random() < 0.7 else ""
        )
        self.parameters.append(f"{name}: {type_text}{attribute}")
        self.arguments.append(argument)
        return name

    # --- choosing ---

    def visible(self) -> list[Value]:
        return [v for scope in self.scopes for v in scope]

    def pick(self, wanted: Callable[[Value], bool]) -> Value | None:
        """Choose a value; newer ones are more likely."""
        found = [v for v in self.visible() if wanted(v)]
        if not found:
            return None
        return found[-1 - int(len(found) * self.random.random() ** 2)]

    def shape(self) -> tuple[int, ...]:
        return self.random.choice(self.shapes)

    def element(self) -> str:
        floats = ["f32"] * 4 + ["f16", "bf16"] + (["f64"] if self.has_fp64 else [])
        return self.random.choice(["i32"] * 4 + ["i64", "i16", "i8", "i1"] + floats)

    def any_value(self) -> Value:
        return self.pick(lambda v: True) or self.take(self.element(), self.shape())

    def take(self, element: str, shape: tuple[int, ...]) -> Value:
        """Return a value of the given type: existing, derived from an existing one, or new."""
        choice = self.random.random()
        if choice < 0.6:
            found = self.pick(lambda v: v.element == element and v.shape == shape)
            if found:
                return found
        if choice < 0.85:
            found = self.pick(lambda v: v.element != element and v.shape == shape)
            made = found and self.convert(found, element)
            if made:
                return made
        if choice < 0.95 and shape:
            found = self.pick(lambda v: v.element == element and v.shape != shape)
            made = found and self.fit_shape(found, shape)
            if made:
                return made
        if element == "i1":
            return self.compare(self.take(self.random.choice(["i32", "f32", "i8"]), shape))
        if choice > 0.97 or (choice > 0.93 and not shape):
            return self.constant(element, shape)
        return self.load(element, shape)

    def exact(self, v: Value) -> Value | None:
        """Make a float finite; None if it is not known exactly."""
        if v.error:
            return None
        return v if v.most < math.inf else self.clean(v)

    def clean(self, v: Value) -> Value:
        """Replace NaN by 1 and bring other values into [-64, 64], as multiples of 1/8."""
        if v.element in FLOAT8:
            v = self.convert(v, "f32") or v
        one = self.constant(v.element, v.shape, 1.0)
        holds = self.op(f"arith.cmpf ord, {v.name}, {v.name} : {v.type}", self.new("i1", v.shape))
        kept = self.op(f"arith.select {holds.name}, {v.name}, {one.name} : {type_of('i1', v.shape)}, {v.type}"
                       if v.shape else f"arith.select {holds.name}, {v.name}, {one.name} : {v.type}",
                       replace(self.new(v.element, v.shape)))  # fmt: skip
        return self.settle(kept)

    def settle(self, v: Value) -> Value:
        """Convert a float without NaN to an integer in [-64, 64]."""
        low, high = self.constant(v.element, v.shape, -64.0), self.constant(v.element, v.shape, 64.0)
        if self.random.random() < 0.3:
            v = self.op(f"tt.clampf {v.name}, {low.name}, {high.name}, propagateNan = none : {v.type}",
                        self.new(v.element, v.shape, most=64.0, unit=v.unit))  # fmt: skip
        else:
            v = self.op(f"arith.maxnumf {v.name}, {low.name} : {v.type}", self.new(v.element, v.shape))
            v = self.op(f"arith.minnumf {v.name}, {high.name} : {v.type}",
                        self.new(v.element, v.shape, most=64.0, unit=v.unit))  # fmt: skip
        return self.op(f"math.floor {v.name} : {v.type}", self.new(v.element, v.shape, most=64.0, unit=0))

    # --- leaves ---

    def constant(self, element: str, shape: tuple[int, ...], value: float | None = None) -> Value:
        if element in BITS:
            if value is None:
                bits = BITS[element]
                value = self.random.choice([0, 1, -1, 2, 3, 7, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1])
                value = max(-(2 ** (bits - 1)), min(value, 2 ** (bits - 1) - 1))
            text = ("true" if value else "false") if element == "i1" else str(int(value))
            result = self.new(element, shape)
        else:
            value = self.random.choice([0.0, 1.0, -1.0, 0.5, 3.0, -2.25, 8.0]) if value is None else value
            text = f"{value:e}"
            result = self.new(
                element,
                shape,
                most=max(abs(value), 0.25),
                unit=min(-3, math.floor(math.log2(abs(value) or 1))),
            )
        if shape:
            return self.op(f"arith.constant dense<{text}> : {result.type}", result)
        return self.op(f"arith.constant {text}{'' if element == 'i1' else f' : {element}'}", result)

    def along(self, shape: tuple[int, ...], dim: int) -> Value:
        """Return each element's coordinate along ``dim``."""
        size = shape[dim]
        v = self.op(
            f"tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>",
            self.new("i32", (size,)),
        )
        order = [d for d in range(len(shape)) if d != dim]
        self.random.shuffle(order)
        for d in sorted(order, key=lambda d: d < dim, reverse=True):  # outer ones first: they shift it
            axis = 0 if d < dim else len(v.shape)
            wide = v.shape[:axis] + (1,) + v.shape[axis:]
            v = self.op(
                f"tt.expand_dims {v.name} {{axis = {axis} : i32}} : {v.type} -> {type_of('i32', wide)}",
                self.new("i32", wide),
            )
        return self.broadcast(v, shape)

    def broadcast(self, v: Value, shape: tuple[int, ...]) -> Value:
        if v.shape == shape:
            return v
        name = "tt.broadcast" if v.shape else "tt.splat"
        return self.op(
            f"{name} {v.name} : {v.type} -> {type_of(v.element, shape)}",
            replace(v, name=self.new("", ()).name, shape=shape),
        )

    def binary(self, name: str, a: Value, b: Value, **facts: float) -> Value:
        return self.op(f"{name} {a.name}, {b.name} : {a.type}", self.new(a.element, a.shape, **facts))

    def with_number(self, name: str, a: Value, number: int) -> Value:
        return self.binary(name, a, self.constant(a.element, a.shape, number))

    def linear(self, shape: tuple[int, ...], strides: list[int], start: int = 0) -> Value:
        """Sum the products of coordinates and strides."""
        total = None
        for dim, stride in enumerate(strides):
            if shape[dim] == 1 and total is not None and self.random.random() < 0.8:
                continue
            part = self.along(shape, dim)
            if stride != 1:
                part = self.with_number("arith.muli", part, stride)
            total = part if total is None else self.binary("arith.addi", total, part)
        return total if not start else self.with_number("arith.addi", total, start)

    def dense_strides(self, shape: tuple[int, ...]) -> list[int]:
        """Return the strides of a dense block with a random dimension order."""
        order = list(range(len(shape)))
        if self.random.random() < 0.4:
            self.random.shuffle(order)
        strides, step = [0] * len(shape), 1
        for dim in reversed(order):
            strides[dim] = step
            step *= shape[dim]
        return strides

    def index(self, shape: tuple[int, ...], below: int) -> Value:
        """Compute indices less than ``below`` in one of many ways."""
        count = math.prod(shape)
        if not shape:
            v = self.pick(lambda v: v.element in ("i32", "i64") and not v.shape)
            if not v or self.random.random() < 0.4:
                return self.constant("i32", (), self.random.randrange(below))
            return self.with_number("arith.remui", v, below)
        kind = self.random.random()
        if kind < 0.15:
            v = self.pick(lambda v: v.element in ("i32", "i64") and v.shape == shape)
            if v:
                return self.with_number("arith.remui", v, below)
        v, top = self.linear(shape, self.dense_strides(shape)), count - 1
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2, 3])):
            n = self.random.choice([1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 100])
            change = self.random.choice(
                ["add", "mul", "div", "rem", "and", "shr", "xor", "reverse", "scalar", "wrap"]
            )
            if change == "add" and top + n < 2**20:
                v, top = self.with_number("arith.addi", v, n), top + n
            elif change == "mul" and top * n < 2**20:
                v, top = self.with_number("arith.muli", v, n), top * n
            elif change == "div":
                v, top = self.with_number(self.random.choice(["arith.divsi", "arith.divui"]), v, n), top // n
            elif change == "rem":
                v, top = (
                    self.with_number(self.random.choice(["arith.remsi", "arith.remui"]), v, n),
                    min(top, n - 1),
                )
            elif change == "and":
                v, top = self.with_number("arith.andi", v, n), min(top, n)
            elif change == "shr":
                v, top = (
                    self.with_number(self.random.choice(["arith.shrsi", "arith.shrui"]), v, n % 5),
                    top >> (n % 5),
                )
            elif change == "xor":
                v, top = self.with_number("arith.xori", v, n), 2 ** max(top, n).bit_length() - 1
            elif change == "reverse":
                v = self.binary("arith.subi", self.constant("i32", shape, top), v)
            elif change == "scalar":
                s = self.with_number("arith.remui", self.take("i32", ()), 32)
                v, top = self.binary("arith.addi", v, self.broadcast(s, shape)), top + 31
            elif change == "wrap":  # recombine quotient and remainder
                q = self.with_number("arith.divsi", v, n)
                r = self.with_number("arith.remsi", v, n)
                v = self.binary("arith.addi", self.with_number("arith.muli", q, n), r)
        if self.random.random() < 0.1:  # scattered: products overflow
            for _ in range(self.random.randint(1, 2)):
                v = self.with_number(
                    "arith.muli", v, self.random.choice([1103515245, 747796405, 65537, -1640531535, 40503])
                )
                v = self.with_number("arith.addi", v, self.random.choice([12345, 1 << 30, -(1 << 31), 1]))
            if self.random.random() < 0.5:
                v = self.with_number("arith.shrui", v, self.random.choice([0, 1, 16]))
            v = self.with_number("arith.remui", v, below)
        elif top >= below:
            v = self.with_number(self.random.choice(["arith.remui", "arith.remsi"]), v, below)
        if self.random.random() < 0.2:
            v = self.op(f"arith.extsi {v.name} : {v.type} to {type_of('i64', shape)}", self.new("i64", shape))
        return v

    # --- memory ---

    def input(self, element: str) -> tuple[str, Value]:
        """Return a parameter with values of this type, and their properties."""
        kind = element
        if element == "f32" and self.random.random() < 0.1:
            kind = "wild"
        if kind in self.inputs:
            return self.inputs[kind]
        like = self.new(element, ())
        if element in BITS:
            bits = BITS[element]
            data = self.numbers.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), LENGTH, dtype=np.int64)
            small = self.numbers.random(LENGTH) < 0.3
            data[small] = self.numbers.integers(-3, 4, LENGTH)[small] if bits > 8 else data[small]
            data[:4] = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1
            array = self.numbers.permutation(data).astype(interpret.DTYPES[element])
        elif element in FLOAT8:
            array = self.numbers.integers(0, 256, LENGTH).astype(np.uint8)
            with np.errstate(all="ignore"):
                array[~np.isfinite(stored_values(array, element))] = 1
            like = replace(like, most=LARGEST[element], unit=LEAST[element])
        elif kind == "wild":
            array = self.numbers.integers(0, 2**32, LENGTH).astype(np.uint32).view(np.float32)
            special = [
                np.nan,
                np.inf,
                -np.inf,
                0.0,
                -0.0,
                1.0,
                -1.0,
                448.0,
                464.0,
                465.0,
                65504.0,
                65520.0,
                1e-3,
                3e-8,
                1e-6,
                0.1,
            ]
            array[: 32 * len(special)] = np.repeat(np.array(special, np.float32), 32)
            array = self.numbers.permutation(array)
            array[np.abs(array) < 1e-30] = 0  # a device may flush denormals to 0
            array[np.isnan(array)] = np.nan
        else:
            array = self.numbers.integers(-128, 129, LENGTH) / 8
            like = replace(like, most=16.0, unit=-3)
            if element == "bf16":
                array = (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            else:
                array = array.astype(interpret.DTYPES[element])
        self.inputs[kind] = self.parameter(f"!tt.ptr<{element}>", array), like
        return self.inputs[kind]

    def pointers(self, base: str, element: str, index: Value) -> str:
        """Write the addresses; return their name and type."""
        self.count += 2
        base_type, name = f"!tt.ptr<{element}>", f"%a{self.count}"
        shape = index.shape
        kind = type_of(base_type, shape)
        if shape:
            self.line(f"%b{self.count} = tt.splat {base} : {base_type} -> {kind}")
            base = f"%b{self.count}"
        self.line(f"{name} = tt.addptr {base}, {index.name} : {kind}, {index.type}")
        return f"{name}|{kind}"

    def load(self, element: str, shape: tuple[int, ...]) -> Value:
        base, like = self.input(element)
        first = len(self.lines)
        name, kind = self.pointers(base, element, self.index(shape, LENGTH)).split("|")
        facts = {"most": like.most, "unit": like.unit}
        operands = name
        if shape and self.random.random() < 0.4:
            mask = self.mask(shape)
            operands += f", {mask.name}"
            if self.random.random() < 0.7 or element in FLOAT8:
                other = self.constant(
                    "f32" if element in FLOAT8 else element, shape, 1 if element in BITS else 0.5
                )
                if element in FLOAT8:
                    other = self.convert(other, element)
                operands += f", {other.name}"
                facts["unit"] = min(like.unit, -1)
            else:  # masked-off elements are undefined and must not be used
                loaded = self.op(f"tt.load {operands} : {kind}", self.new(element, shape, **facts))
                self.scopes[-1].pop()
                zero = self.constant(element, shape, 0)
                del first
                return self.op(f"arith.select {mask.name}, {loaded.name}, {zero.name} : {mask.type}, {loaded.type}",
                               self.new(element, shape, **facts))  # fmt: skip
        return self.op(f"tt.load {operands} : {kind}", self.new(element, shape, **facts))

    def mask(self, shape: tuple[int, ...]) -> Value:
        if self.random.random() < 0.4:
            return self.take("i1", shape)
        place = self.linear(shape, self.dense_strides(shape))
        count = math.prod(shape)
        if self.random.random() < 0.5:
            bound = self.broadcast(self.with_number("arith.remui", self.take("i32", ()), count + 1), shape)
        else:
            bound = self.constant(
                "i32",
                shape,
                self.random.choice([0, 1, count // 2, count - 1, count, self.random.randrange(count + 1)]),
            )
        sign = self.random.choice(["slt", "slt", "sle", "ult", "sge", "ne"])
        return self.op(f"arith.cmpi {sign}, {place.name}, {bound.name} : {place.type}", self.new("i1", shape))

    def output(self, v: Value) -> tuple[str, Value]:
        """Create a buffer for such a value; return its parameter and an index without duplicates."""
        count = max(math.prod(v.shape), 1)
        dtype = np.dtype(interpret.STORED.get(v.element, interpret.DTYPES[v.element]))
        step = self.random.choice([1, 1, 1, 2, 3])
        name = self.parameter(f"!tt.ptr<{v.element}>", np.full(count * GRID * step, 1, dtype))
        self.outputs.append(Output(len(self.arguments) - 1, v.element, v.error))
        self.count += 1
        pid = Value(f"%v{self.count}", "i32", ())
        self.line(f"{pid.name} = tt.get_program_id x : i32")
        if not v.shape:
            return name, pid
        place = self.linear(v.shape, self.dense_strides(v.shape))
        change = self.random.random()
        if change < 0.1:
            place = self.with_number("arith.xori", place, self.random.randrange(count))
        elif change < 0.2:
            place = self.binary("arith.subi", self.constant("i32", v.shape, count - 1), place)
        start = self.broadcast(self.with_number("arith.muli", pid, count), v.shape)
        place = self.binary("arith.addi", place, start)
        return name, self.with_number("arith.muli", place, step) if step > 1 else place

    def stored_at(self, v: Value, place: Value, mask: Value | None) -> None:
        """Store to a new buffer at these indices, all less than ``GRID`` times the number of elements."""
        dtype = np.dtype(interpret.STORED.get(v.element, interpret.DTYPES[v.element]))
        base = self.parameter(f"!tt.ptr<{v.element}>", np.full(math.prod(v.shape) * GRID, 1, dtype))
        self.outputs.append(Output(len(self.arguments) - 1, v.element, v.error))
        name, kind = self.pointers(base, v.element, place).split("|")
        self.effect(f"tt.store {name}, {v.name}{f', {mask.name}' if mask else ''} : {kind}")

    def store(self, v: Value) -> None:
        if v.element == "i1":
            v = self.convert(v, "i8")
        base, place = self.output(v)
        name, kind = self.pointers(base, v.element, place).split("|")
        if self.random.random() < 0.3 and v.shape:
            mask = self.mask(v.shape)
            self.effect(f"tt.store {name}, {v.name}, {mask.name} : {kind}")
        else:
            self.effect(f"tt.store {name}, {v.name} : {kind}")
        if self.random.random() < 0.1 and not v.error:
            if self.target != "cpu":  # lanes may read other lanes' stores
                self.line("gpu.barrier")
            self.op(
                f"tt.load {name} : {kind}",
                replace(
                    v, name=self.new("", ()).name, most=max(v.most, 1e30) if v.element not in BITS else v.most
                ),
            )

    def atomic(self) -> None:
        shape = self.shape()
        operation = self.random.choice(["add", "and", "or", "xor", "max", "min", "umax", "umin", "fadd"])
        element = self.random.choice(["i32", "i32", "i64"]) if operation != "fadd" else "f32"
        if element == "i64" and self.target == "generic":
            element = "i32"
        v = self.take(element, shape)
        if operation == "fadd":
            v = self.exact(v)
            if not v or not fits("f32", v.most * math.prod(shape) * GRID * 40 + 1, v.unit):
                return
        unique = self.random.random() < 0.4 and not self.depth
        if unique:
            base, place = self.output(v)
        else:
            base, _ = self.output(v)
            count = max(math.prod(shape), 1) * GRID
            place = self.index(shape, min(count, self.random.choice([1, 2, 7, count])))
        name, kind = self.pointers(base, element, place).split("|")
        mask = self.mask(shape) if shape else self.take("i1", ())
        result = self.new(element, shape, most=v.most, unit=min(v.unit, 0))
        order = self.random.choice(["relaxed", "acq_rel"])
        self.op(
            f"tt.atomic_rmw {operation}, {order}, gpu, {name}, {v.name}, {mask.name} "
            f": ({kind}, {v.type}, {mask.type}) -> {v.type}",
            result,
        )
        self.scopes[-1].pop()
        if unique:  # the old value: 1 in memory, undefined where the mask is off
            zero = self.constant(element, shape, 0)
            if shape:
                self.op(
                    f"arith.select {mask.name}, {result.name}, {zero.name} : {mask.type}, {result.type}",
                    self.new(element, shape, most=1.0, unit=-149),
                )


def merged(a: Value, b: Value) -> dict[str, float]:
    """Return the properties of a float that is one of two."""
    return {"most": max(a.most, b.most), "unit": min(a.unit, b.unit), "error": max(a.error, b.error)}
