"""Parts of random programs that select by lane, in the forms that Intel's CPU compiler miscompiles.

Each function writes one part with a generator (``random_programs.Generator``). The faults that they target
are described in ``tests/intel_cpu/faults``: ``shared`` and ``carried`` in choices.cl, ``loads`` in paths.cl,
``falling`` in strided.cl.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from random_values import BITS, GRID, LARGEST, LENGTH, Value, type_of

if TYPE_CHECKING:
    from random_programs import Generator

INTEGER_COMBINES = ("add", "add", "add", "xor", "or", "max", "min", "umax", "mul")
FLOAT_COMBINES = ("fadd", "fadd", "fadd", "fmax", "fmin")


def element(g: Generator) -> str:
    """Choose an element type for a reduction."""
    return g.random.choice(
        ["f32"] * 4 + ["i32"] * 3 + ["i64", "i16", "i8", "f16", "bf16"] + ["f64"] * g.has_fp64
    )


def numbers(g: Generator, kind: str, index: Value) -> Value:
    """Load values from the input; floats are small."""
    base, like = g.input(kind)
    name, kind_text = g.pointers(base, kind, index).split("|")
    v = g.op(f"tt.load {name} : {kind_text}", g.new(kind, index.shape, most=like.most, unit=like.unit))
    if kind in BITS or v.most <= 64:  # a much larger loop is not unswitched
        return v
    return g.carriable(v)


def across(g: Generator, v: Value, shape: tuple[int, ...], axis: int) -> Value:
    """Broadcast a row or a column to a block; elements are equal along dimension ``axis``."""
    size = (1, shape[1]) if axis == 0 else (shape[0], 1)
    return g.broadcast(g.changed("tt.expand_dims", v, size, f" {{axis = {axis} : i32}}"), shape)


def by_column(g: Generator, shape: tuple[int, int]) -> Value:
    """Make a condition on columns: by index, by an upper bound, or by loaded values."""
    columns = shape[1]
    kind = g.random.choice(["bit", "bit", "bit of a pair", "bound", "number", "loaded", "of both"])
    if kind == "of both":
        return g.mask(shape)
    at = g.along((columns,), 0)
    if kind == "loaded":
        at, to = numbers(g, "i32", at), 0
        sign = g.random.choice(["sgt", "slt"])
    elif kind == "bound":
        sign, to = g.random.choice(["slt", "sge"]), None
    elif kind == "number":
        sign, to = g.random.choice(["eq", "slt", "sgt"]), g.random.randrange(columns)
    else:
        at = g.with_number("arith.andi", at, 1 if kind == "bit" else 2)
        sign, to = g.random.choice(["eq", "ne"]), 0
    if to is None:
        number = g.broadcast(g.with_number("arith.remui", g.take("i32", ()), columns + 1), at.shape)
    else:
        number = g.constant("i32", at.shape, to)
    holds = g.op(f"arith.cmpi {sign}, {at.name}, {number.name} : {at.type}", g.new("i1", at.shape))
    return across(g, holds, shape, 0)


def changed(g: Generator, v: Value) -> Value:
    """Change each element of ``v``."""
    is_int = v.element in BITS
    number = g.constant(v.element, v.shape, g.random.choice([2, 3, -1] if is_int else [2.0, 3.0, -1.0]))
    if g.random.random() < 0.2:
        return number
    name = g.random.choice(["add", "mul", "mul", "sub"])
    most = v.most * number.most if name == "mul" else v.most + number.most
    facts = {} if is_int else {"most": most, "unit": min(v.unit, number.unit, v.unit + number.unit)}
    return g.binary(f"arith.{name}{'i' if is_int else 'f'}", v, number, **facts)


def chosen(g: Generator, where: Value, a: Value, b: Value) -> Value:
    facts = {"most": max(a.most, b.most), "unit": min(a.unit, b.unit)}
    return g.op(
        f"arith.select {where.name}, {a.name}, {b.name} : {where.type}, {a.type}",
        g.new(a.element, a.shape, **facts),
    )


def block(g: Generator) -> tuple[int, int]:
    """Choose a block shape."""
    while True:
        shape = 2 ** g.random.randint(1, 7), 2 ** g.random.randint(1, 6)
        if math.prod(shape) <= g.limit:
            return shape


def shared(g: Generator) -> Value | None:
    """Reduce rows of a select, by column, between values that all columns share."""
    shape, kind = block(g), element(g)
    rows = g.along((shape[0],), 0)
    if g.random.random() < 0.3:
        rows = g.with_number("arith.muli", rows, g.random.choice([2, 3, 16]))
    x = numbers(g, kind, rows)
    if g.random.random() < 0.15:
        y = numbers(g, kind, g.with_number("arith.addi", rows, 1))
    else:
        y = changed(g, x)
    where = by_column(g, shape)
    z = chosen(g, where, across(g, x, shape, 1), across(g, y, shape, 1))
    for _ in range(g.random.choice([0, 0, 1])):
        z = chosen(g, by_column(g, shape), z, changed(g, z))
    if kind not in BITS and z.most * shape[0] > LARGEST.get(kind, 1e30):
        return None
    values = [z]
    if g.random.random() < 0.15:
        values.append(chosen(g, where, across(g, y, shape, 1), z))
        if kind not in BITS and values[1].most * shape[0] > LARGEST.get(kind, 1e30):
            return None
    scan = g.random.choice([""] * 5 + [", reverse = false", ", reverse = true"])
    combine = g.random.choice(INTEGER_COMBINES if kind in BITS else FLOAT_COMBINES)
    out = g.reduce(values, 0, combine, scan)
    for v in out:
        g.store(v)
    return out[0]


def carried(g: Generator) -> None:
    """In a loop, sum a select, by lane, between scalars."""
    size, kind = (
        2 ** g.random.randint(0, 6),
        g.random.choice(["f32", "f32", "i32", "i64", "f64" if g.has_fp64 else "i16"]),
    )
    trips = g.random.randint(1, 9)
    low, one = (g.constant("i32", (), n) for n in (0, 1))
    high = g.constant("i32", (), trips)
    if g.random.random() < 0.5:
        high = g.with_number("arith.remui", g.take("i32", ()), trips + 1)
    where = by_column(g, (1, size))
    start = g.constant(kind, (1, size), 0)
    index, total, result = g.new("i32", ()), g.new(kind, (1, size)), g.new(kind, (1, size))
    g.line(
        f"{result.name} = scf.for {index.name} = {low.name} to {high.name} step {one.name} "
        f"iter_args({total.name} = {start.name}) -> ({total.type})  : i32 {{"
    )
    g.depth += 1
    g.scopes.append([index])
    x = g.broadcast(numbers(g, kind, index), (1, size))
    z = chosen(g, where, x, changed(g, x))
    total = g.binary(f"arith.add{'i' if kind in BITS else 'f'}", total, z)
    g.line(f"scf.yield {total.name} : {total.type}")
    g.scopes.pop()
    g.depth -= 1
    g.line("}")
    result = replace(result, most=z.most * trips + 1, unit=z.unit) if kind not in BITS else result
    g.keep(result)
    g.store(result)


def loads(g: Generator) -> None:
    """Select by lane between two loads or store addresses, up to a bound that is uniform in a chunk."""
    size = 2 ** g.random.randint(4, 9)
    kind = g.random.choice(["f32", "f32", "i32", "i64", "i16", "f64" if g.has_fp64 else "i8"])
    first, second = g.input(kind)[0], g.input(kind)[0]
    if g.random.random() < 0.7:  # a different array
        other = g.numbers.integers(-64, 65, LENGTH)
        second = g.parameter(f"!tt.ptr<{kind}>", other.astype(g.arguments[int(first[2:])].dtype))
    g.count += 1
    pid = Value(f"%v{g.count}", "i32", ())
    g.line(f"{pid.name} = tt.get_program_id x : i32")
    start = g.broadcast(g.with_number("arith.muli", pid, size), (size,))
    at = g.binary("arith.addi", start, g.along((size,), 0))
    bit = g.with_number("arith.andi", at, g.random.choice([1, 1, 1, 2, 8]))
    zero = g.constant("i32", (size,), 0)
    where = g.op(f"arith.cmpi eq, {bit.name}, {zero.name} : {at.type}", g.new("i1", (size,)))
    bound = g.constant(
        "i32", (size,), g.random.choice([16 * g.random.randrange(1, 2 + size * GRID // 16), size * GRID - 5])
    )
    inside = g.op(f"arith.cmpi slt, {at.name}, {bound.name} : {at.type}", g.new("i1", (size,)))
    index = g.random.choice([at, g.with_number("arith.shrui", at, 1), g.with_number("arith.divsi", at, 2)])
    none = g.constant(kind, (size,), 0)
    halves = []
    for base in (first, second):
        name, kind_text = g.pointers(base, kind, index).split("|")
        masked = f", {inside.name}, {none.name}" if g.random.random() < 0.8 else ""
        halves.append(
            g.op(
                f"tt.load {name}{masked} : {kind_text}",
                g.new(kind, (size,), most=1e30 if kind in BITS else math.inf),
            )
        )
    both = replace(chosen(g, where, *halves), most=math.inf)
    g.stored_at(both, at, inside if g.random.random() < 0.8 else None)


def falling(g: Generator) -> None:
    """Store values that decrease along the lanes next to narrower ones, from the second element on."""
    size = 2 ** g.random.randint(5, 9)
    at = g.along((size,), 0)
    place = at
    if g.random.random() < 0.7:
        g.count += 1
        pid = Value(f"%v{g.count}", "i32", ())
        g.line(f"{pid.name} = tt.get_program_id x : i32")
        start = g.broadcast(g.with_number("arith.muli", pid, size), (size,))
        place = g.binary("arith.addi", start, at)
    narrow = numbers(g, "i16", at)
    g.stored_at(
        g.op(f"arith.trunci {narrow.name} : {narrow.type} to {type_of('i8', (size,))}", g.new("i8", (size,))),
        place,
        None,
    )
    down = g.with_number("arith.muli", at, -g.random.choice([3, 3, 5, 7]))
    down = g.with_number("arith.addi", down, 3 * size - g.random.randrange(9))
    least = g.constant("i32", (size,), g.random.choice([1, 1, 2, 17]))
    inside = g.op(
        f"arith.cmpi {g.random.choice(['sge', 'sge', 'sgt'])}, {at.name}, {least.name} : {at.type}",
        g.new("i1", (size,)),
    )
    g.stored_at(down, place, inside)
