"""Random well-typed programs of Triton IR."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import random_choices
from random_values import (
    ARITHMETIC,
    BITS,
    FLOAT8,
    INTS,
    LARGEST,
    LEAST,
    LENGTH,
    MANTISSA,
    Program,
    Value,
    Writer,
    fits,
    merged,
    type_of,
)


class Generator(Writer):
    """Writes a program one random operation at a time, over the values defined so far."""

    # --- element-wise ---

    def integer(self) -> Value:
        a = self.take(self.random.choice(INTS), self.random.choice([self.shape(), self.shape(), ()]))
        bits = BITS[a.element]
        name = self.random.choice(
            ["addi", "subi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui", "shli", "shrsi",
             "shrui", "divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi", "mulhiui", "absi", "ctpop",
             "clz", "cttz"]
        )  # fmt: skip
        if name == "mulhiui":
            if a.element not in ("i32", "i64"):
                return a
            return self.binary("tt.mulhiui", a, self.take(a.element, a.shape))
        if name in ("absi", "ctpop", "clz", "cttz"):
            return self.op(
                f"math.{name.replace('clz', 'ctlz')} {a.name} : {a.type}", self.new(a.element, a.shape)
            )
        b = self.take(a.element, a.shape) if self.random.random() < 0.7 else self.constant(a.element, a.shape)
        if name in ("shli", "shrsi", "shrui"):
            b = self.with_number("arith.andi", b, bits - 1)
        if "div" in name or "rem" in name:
            one = self.constant(a.element, a.shape, 1)
            if (
                self.random.random() < 0.3
            ):  # results of division by zero are not compared, but it must not trap
                zero = self.constant(a.element, a.shape, 0)
                holds = self.op(f"arith.cmpi eq, {b.name}, {zero.name} : {b.type}", self.new("i1", a.shape))
                a = self.with_number("arith.shrsi", a, 1)
                q = self.binary(f"arith.{name}", a, b)
                self.scopes[-1].pop()
                where = f"{holds.type}, {q.type}" if a.shape else q.type
                return self.op(
                    f"arith.select {holds.name}, {one.name}, {q.name} : {where}", self.new(a.element, a.shape)
                )
            b = self.binary("arith.ori", b, one)
            a = self.with_number("arith.shrsi", a, 1)  # the smallest integer divided by -1 overflows
        return self.binary(f"arith.{name}", a, b)

    def affine(self) -> Value:
        """Subtract an integer that fits fewer bits from a product, or add it."""
        wide, narrow = (
            self.random.choice(["i32", "i32", "i64"]),
            self.random.choice(["i1", "i8", "i8", "i16"]),
        )
        a = self.take(wide, self.shape())
        product = self.with_number("arith.muli", a, self.random.choice([3, -5, 33, 100, 70000]))
        is_loaded = narrow == "i8" and self.random.random() < 0.7  # a register of bytes
        v = self.load("i8", a.shape) if is_loaded else self.take(narrow, a.shape)
        name = self.random.choice(["extui", "extui", "extsi"])
        b = self.op(f"arith.{name} {v.name} : {v.type} to {a.type}", self.new(wide, a.shape))
        if self.random.random() < 0.3:
            name, number = self.random.choice([("andi", 15), ("shrui", 2), ("remui", 3), ("xori", -1)])
            b = self.with_number(f"arith.{name}", b, number)
        result = self.binary(self.random.choice(["arith.subi", "arith.subi", "arith.addi"]), product, b)
        if self.random.random() < 0.5:
            self.store(result)
        return result

    def logic(self) -> Value:
        a = self.take("i1", self.shape())
        name = self.random.choice(["andi", "ori", "xori", "addi", "muli", "subi"])
        return self.binary(f"arith.{name}", a, self.take("i1", a.shape))

    def float(self) -> Value | None:
        a = self.take(
            self.random.choice([e for e in ARITHMETIC if e != "f64" or self.has_fp64]),
            self.random.choice([self.shape(), self.shape(), ()]),
        )
        el, shape = a.element, a.shape
        half_ulp = 2.0 ** -MANTISSA[el]
        limit = LARGEST.get(el, 1e30)
        name = self.random.choice(
            ["addf", "subf", "mulf", "mulf", "addf", "fma", "divf", "maxnumf", "minnumf", "maximumf", "minimumf",
             "negf", "absf", "floor", "ceil", "sqrt", "exp", "sin", "cos", "remf", "precise_divf"]
        )  # fmt: skip
        b = self.take(el, shape)
        if name in ("maxnumf", "minnumf", "maximumf", "minimumf"):
            return self.binary(
                f"arith.{name}",
                a,
                b,
                most=max(a.most, b.most),
                unit=min(a.unit, b.unit),
                error=max(a.error, b.error),
            )
        if name in ("negf", "absf"):
            full = "arith.negf" if name == "negf" else "math.absf"
            return self.op(f"{full} {a.name} : {a.type}", replace(a, name=self.new("", ()).name))
        a, b = (v if v.most < math.inf else self.exact(v) for v in (a, b))
        if not a or not b:
            return None
        known, inherited = not a.error and not b.error, a.error + b.error
        if name in ("addf", "subf"):
            most, unit = a.most + b.most, min(a.unit, b.unit)
            if most > limit:
                return None
            return self.binary(
                f"arith.{name}",
                a,
                b,
                most=most,
                unit=max(unit, -149),
                error=0.0 if known else inherited + 2 * most * half_ulp,
            )
        if name in ("mulf", "fma"):
            most, unit = a.most * b.most, a.unit + b.unit
            inherited = a.error * b.most + b.error * a.most + a.error * b.error
            wide = "f64" if el == "f64" else "f32"
            if most > limit:
                return None
            if name == "mulf":
                known = known and fits(wide, most, unit) and (unit > -120)
                return self.binary(
                    "arith.mulf",
                    a,
                    b,
                    most=most,
                    unit=max(unit, -149),
                    error=0.0 if known else inherited + 2 * most * half_ulp + 1e-30,
                )
            c = self.take(el, shape)
            c = c if c.most < math.inf else self.exact(c)
            if not c or most + c.most > limit:
                return None
            most, unit = most + c.most, min(unit, c.unit)
            known = known and not c.error and fits(wide, most, unit)
            facts = {
                "most": most,
                "unit": max(unit, -149),
                "error": 0.0 if known else inherited + c.error + 3 * most * half_ulp + 1e-30,
            }
            return self.op(f"math.fma {a.name}, {b.name}, {c.name} : {a.type}", self.new(el, shape, **facts))
        if name in ("floor", "ceil"):
            if a.error or not fits(el, a.most + 1, 0):
                return None
            return self.op(f"math.{name} {a.name} : {a.type}", self.new(el, shape, most=a.most + 1, unit=0))
        if name in ("divf", "precise_divf", "remf"):
            if b.error or (name == "remf" and a.error):
                return None
            size = self.op(f"math.absf {b.name} : {b.type}", self.new(el, shape, most=b.most, unit=b.unit))
            b = self.binary(
                "arith.maxnumf",
                size,
                self.constant(el, shape, 1.0),
                most=max(b.most, 1.0),
                unit=min(b.unit, 0),
            )
            if name == "remf":
                return self.binary("arith.remf", a, b, most=min(a.most, b.most), unit=min(a.unit, b.unit))
            full = "arith.divf" if name == "divf" else "tt.precise_divf"
            return self.binary(full, a, b, most=a.most, error=a.error + 8 * a.most * half_ulp + 1e-30)
        if name == "sqrt":
            if a.error:
                return None
            size = self.op(f"math.absf {a.name} : {a.type}", self.new(el, shape, most=a.most, unit=a.unit))
            return self.op(
                f"math.sqrt {size.name} : {a.type}",
                self.new(el, shape, most=a.most + 1, error=8 * (math.sqrt(a.most) + 1) * half_ulp),
            )
        if name == "exp":
            low, high = self.constant(el, shape, -8.0), self.constant(el, shape, 8.0)
            a = self.op(
                f"tt.clampf {a.name}, {low.name}, {high.name}, propagateNan = all : {a.type}",
                self.new(el, shape, most=8.0, unit=a.unit, error=a.error),
            )
            return self.op(
                f"math.exp {a.name} : {a.type}",
                self.new(el, shape, most=3000.0, error=3000 * (min(a.error * 2, 1.0) + 16 * half_ulp)),
            )
        if a.most > 1e4:
            return None
        return self.op(
            f"math.{name} {a.name} : {a.type}", self.new(el, shape, most=1.0, error=a.error + 16 * half_ulp)
        )

    def compare(self, a: Value) -> Value:
        if a.element in BITS:
            sign = self.random.choice(["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"])
            if a.element == "i1":
                sign = self.random.choice(["eq", "ne", "ult", "uge", "slt"])
            b = (
                self.take(a.element, a.shape)
                if self.random.random() < 0.7
                else self.constant(a.element, a.shape)
            )
            return self.op(f"arith.cmpi {sign}, {a.name}, {b.name} : {a.type}", self.new("i1", a.shape))
        if a.error or a.element in FLOAT8:
            a = self.load("f32", a.shape)
        b = self.take(a.element, a.shape)
        if b.error:
            b = self.constant(a.element, a.shape)
        sign = self.random.choice(
            ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"]
        )
        return self.op(f"arith.cmpf {sign}, {a.name}, {b.name} : {a.type}", self.new("i1", a.shape))

    def select(self) -> Value:
        a = self.any_value()
        b = self.take(a.element, a.shape)
        where = self.take("i1", a.shape if self.random.random() < 0.8 else ())
        text = f"arith.select {where.name}, {a.name}, {b.name} : "
        text += f"{where.type}, {a.type}" if where.shape else a.type
        return self.op(text, self.new(a.element, a.shape, **merged(a, b)))

    def convert(self, v: Value, element: str) -> Value | None:
        """Cast a value; None if there is no such cast or its result is not known precisely enough."""
        if v.element == element:
            return v
        if v.element in BITS and element in BITS:
            if BITS[element] < BITS[v.element]:
                if element == "i1" and self.random.random() < 0.5:
                    return self.op(
                        f"arith.cmpi ne, {v.name}, {self.constant(v.element, v.shape, 0).name} : {v.type}",
                        self.new("i1", v.shape),
                    )
                name = "trunci"
            else:
                name = self.random.choice(["extsi", "extui"])
            return self.op(
                f"arith.{name} {v.name} : {v.type} to {type_of(element, v.shape)}", self.new(element, v.shape)
            )
        if v.element in BITS:
            return self.from_int(v, element)
        if element in BITS:
            return self.to_int(v, element)
        return self.round(v, element)

    def from_int(self, v: Value, element: str) -> Value | None:
        if element in FLOAT8:
            v = self.from_int(v, "f32")
            return v and self.round(v, element)
        bits = BITS[v.element]
        if element == "f32" and bits == 32 and self.random.random() < 0.2:
            wild = self.op(
                f"tt.bitcast {v.name} : {v.type} -> {type_of('f32', v.shape)}", self.new("f32", v.shape)
            )
            self.scopes[-1].pop()
            size = self.op(f"math.absf {wild.name} : {wild.type}", self.new("f32", v.shape))
            self.scopes[-1].pop()
            least = self.constant("f32", v.shape, 2.0**-100)
            tiny = self.op(
                f"arith.cmpf olt, {size.name}, {least.name} : {size.type}", self.new("i1", v.shape)
            )
            where = f"{tiny.type}, {wild.type}" if v.shape else wild.type
            return self.op(
                f"arith.select {tiny.name}, {least.name}, {wild.name} : {where}", self.new("f32", v.shape)
            )
        if bits == 64:
            v, bits = self.with_number("arith.shrsi", v, 33), 31  # avoids double rounding
        if element == "f16" and bits > 15:
            v, bits = self.with_number("arith.andi", v, 0x7FFF), 16
        name = self.random.choice(["sitofp", "uitofp"])
        if name == "uitofp" and v.element == "i64":
            name = "sitofp"
        most = 2.0**bits if element != "f16" or bits < 16 else 32768.0
        return self.op(
            f"arith.{name} {v.name} : {v.type} to {type_of(element, v.shape)}",
            self.new(element, v.shape, most=most, unit=0),
        )

    def to_int(self, v: Value, element: str) -> Value | None:
        v = self.exact(v)
        if not v:
            return None
        if v.element in FLOAT8:
            v = self.round(v, "f32")
        bits = BITS[element]
        if v.element == "f32" and element == "i32" and self.random.random() < 0.3:
            v = self.binary(
                "arith.addf", v, self.constant("f32", v.shape, 0.0), most=v.most, unit=v.unit
            )  # no -0
            return self.op(
                f"tt.bitcast {v.name} : {v.type} -> {type_of('i32', v.shape)}", self.new("i32", v.shape)
            )
        if element == "i1":
            return self.op(
                f"arith.cmpf une, {v.name}, {self.constant(v.element, v.shape, 0.0).name} : {v.type}",
                self.new("i1", v.shape),
            )
        if v.most >= 2.0 ** min(bits - 1, 30):
            v = self.settle(v)
        name = "fptosi"
        if self.random.random() < 0.2:
            v = self.op(f"math.absf {v.name} : {v.type}", replace(v, name=self.new("", ()).name))
            name = "fptoui"
        return self.op(
            f"arith.{name} {v.name} : {v.type} to {type_of(element, v.shape)}", self.new(element, v.shape)
        )

    def round(self, v: Value, element: str) -> Value | None:
        source, order = v.element, ("f16", "bf16", "f32", "f64")
        if element == "f64" and not self.has_fp64:
            return None
        if "f64" in (source, element) and {source, element} != {"f32", "f64"}:
            middle = self.round(v, "f32")
            return middle and self.round(middle, element)
        if {source, element} == {"f16", "bf16"} or (source in FLOAT8 and element in FLOAT8):
            middle = self.round(v, "f32")
            return middle and self.round(middle, element)
        small = source in FLOAT8 or element in FLOAT8
        widens = element not in FLOAT8 and (small or order.index(element) > order.index(source))
        target = type_of(element, v.shape)
        facts = {"most": v.most, "unit": v.unit, "error": v.error}
        if not widens or (source == "f8E5M2" and element == "f16"):
            if v.most > LARGEST.get(element, 1e38):
                if v.error:
                    return None
                facts["most"] = LARGEST[element] if element == "f8E4M3FN" and v.most < math.inf else math.inf
            if v.error:
                facts["error"] += 2 * v.most * 2.0 ** -MANTISSA[element] + 2.0 ** LEAST.get(element, -126)
        if small:
            mode = "" if widens else ", rounding = rtne"
            return self.op(
                f"tt.fp_to_fp {v.name}{mode} : {v.type} -> {target}", self.new(element, v.shape, **facts)
            )
        return self.op(
            f"arith.{'extf' if widens else 'truncf'} {v.name} : {v.type} to {target}",
            self.new(element, v.shape, **facts),
        )

    def cast(self) -> Value | None:
        v = self.any_value()
        every = [*BITS, "f16", "bf16", "f32", *FLOAT8] + (["f64"] if self.has_fp64 else [])
        made = self.convert(v, self.random.choice(every))
        if made and made.element in FLOAT8 and self.random.random() < 0.7:
            made = self.round(made, "f32")
        return made

    # --- shapes ---

    def fit_shape(self, v: Value, shape: tuple[int, ...]) -> Value | None:
        """Reshape, broadcast or splat a value to a shape, if possible."""
        if not v.shape:
            return self.broadcast(v, shape)
        if math.prod(v.shape) == math.prod(shape):
            return self.changed("tt.reshape", v, shape)
        if len(v.shape) == len(shape) and all(a in (1, b) for a, b in zip(v.shape, shape, strict=True)):
            return self.broadcast(v, shape)
        if len(v.shape) < len(shape):
            for dims in itertools.combinations(range(len(shape)), len(v.shape)):
                if all(v.shape[i] in (1, shape[d]) for i, d in enumerate(dims)):
                    for d in range(len(shape)):
                        if d not in dims:
                            wide = v.shape[:d] + (1,) + v.shape[d:]
                            v = self.changed("tt.expand_dims", v, wide, f" {{axis = {d} : i32}}")
                    return self.broadcast(v, shape)
        return None

    def changed(self, name: str, v: Value, shape: tuple[int, ...], attributes: str = "") -> Value:
        return self.op(
            f"{name} {v.name}{attributes} : {v.type} -> {type_of(v.element, shape)}",
            replace(v, name=self.new("", ()).name, shape=shape),
        )

    def rearrange(self) -> Value | None:
        v = self.pick(lambda v: bool(v.shape)) or self.take(self.element(), self.shape())
        kind = self.random.choice(["trans", "reshape", "join", "split", "cat", "fit", "swap"])
        if kind == "trans":
            order = list(range(len(v.shape)))
            self.random.shuffle(order)
            return self.changed(
                "tt.trans",
                v,
                tuple(v.shape[d] for d in order),
                f" {{order = array<i32: {', '.join(map(str, order))}>}}",
            )
        if kind == "reshape":
            left, shape = math.prod(v.shape), []
            while left > 1 and len(shape) < 3:
                shape.append(2 ** self.random.randint(0, left.bit_length() - 1))
                left //= shape[-1]
            return self.changed("tt.reshape", v, (*shape, left))
        if kind == "fit":
            return self.fit_shape(v, self.shape())
        if kind == "cat" and len(v.shape) == 1 and v.shape[0] < self.limit:
            b = self.take(v.element, v.shape)
            result = self.new(v.element, (2 * v.shape[0],), **merged(v, b))
            return self.op(f"tt.cat {v.name}, {b.name} : {v.type} -> {result.type}", result)
        if kind == "split" and v.shape[-1] != 2 and math.prod(v.shape) > 1:
            v = self.changed("tt.reshape", v, (math.prod(v.shape) // 2, 2))
        if kind == "swap" and v.element in INTS and math.prod(v.shape) > 1:
            return self.swap(v)
        if kind == "split" and v.shape[-1] == 2 and len(v.shape) > 1:
            halves = [replace(v, name=self.new("", ()).name, shape=v.shape[:-1]) for _ in range(2)]
            self.spans.append((len(self.lines), len(self.lines), halves))
            self.line(
                f"{halves[0].name}, {halves[1].name} = tt.split {v.name} : {v.type} -> {halves[0].type}"
            )
            self.keep(*halves)
            return halves[0]
        if math.prod(v.shape) * 2 > self.limit:
            return None
        b = self.take(v.element, v.shape)
        result = self.new(v.element, (*v.shape, 2), **merged(v, b))
        return self.op(f"tt.join {v.name}, {b.name} : {v.type} -> {result.type}", result)

    def swap(self, v: Value) -> Value:
        """Write a step of a sorting network, which swaps elements at a distance that are out of order."""
        count = math.prod(v.shape)
        inner = 2 ** self.random.randint(0, count.bit_length() - 2)
        cube = self.changed("tt.reshape", v, (count // 2 // inner, 2, inner))
        side = self.along(cube.shape, 1)
        zero = self.constant("i32", cube.shape, 0)
        is_left = self.op(
            f"arith.cmpi eq, {side.name}, {zero.name} : {side.type}", self.new("i1", cube.shape)
        )
        none = self.constant(v.element, cube.shape, 0)
        ends = []
        for a, b in ((cube, none), (none, cube)):
            half = self.op(
                f"arith.select {is_left.name}, {a.name}, {b.name} : {is_left.type}, {cube.type}",
                self.new(v.element, cube.shape),
            )
            one = self.reduce([half], 1, "xor")[0]
            one = self.changed("tt.expand_dims", one, (cube.shape[0], 1, inner), " {axis = 1 : i32}")
            ends.append(self.broadcast(one, cube.shape))
        order = self.op(
            f"arith.cmpi {self.random.choice(['sgt', 'slt', 'ugt'])}, {ends[0].name}, {ends[1].name} : {cube.type}",
            self.new("i1", cube.shape),
        )
        both = self.binary("arith.xori", *ends)
        change = self.op(
            f"arith.select {order.name}, {both.name}, {none.name} : {order.type}, {cube.type}",
            self.new(v.element, cube.shape),
        )
        return self.changed("tt.reshape", self.binary("arith.xori", cube, change), v.shape)

    # --- reductions, scans and other combining operations ---

    def reduce(self, values: list[Value], axis: int, kind: str, scan: str = "") -> list[Value]:
        """Write a reduction, or a scan if ``scan`` has its attributes."""
        name = "tt.scan" if scan else "tt.reduce"
        self.count += 1
        n = self.count
        left, right = ([f"%{side}{n}_{i}" for i in range(len(values))] for side in "lr")
        shape = values[0].shape
        out_shape = shape if scan else shape[:axis] + shape[axis + 1 :]
        size = shape[axis]
        body, ends, results = [], [], []
        for i, v in enumerate(values):
            el, facts = v.element, {"most": v.most, "unit": v.unit, "error": v.error}
            text = {"add": "arith.addi", "xor": "arith.xori", "and": "arith.andi", "or": "arith.ori",
                    "max": "arith.maxsi", "min": "arith.minsi", "umax": "arith.maxui", "mul": "arith.muli",
                    "fadd": "arith.addf", "fmax": "arith.maxnumf", "fmin": "arith.minimumf"}.get(kind)  # fmt: skip
            if kind == "fadd":
                facts["most"] = v.most * size
                if v.error or not fits(el, facts["most"], v.unit):
                    facts["error"] = v.error * size + 2 * size * size * v.most * 2.0 ** -MANTISSA[el]
            if text:
                body.append(f"%y{n}_{i} = {text} {left[i]}, {right[i]} : {el}")
                ends.append(f"%y{n}_{i}")
            results.append(self.new(el, out_shape, **facts))
        a, b = left, right
        key = values[0].element
        if kind == "arg":  # the maximum and its first index
            body = [
                f"%g{n} = arith.cmp{'i sgt' if key in BITS else 'f ogt'}, {a[0]}, {b[0]} : {key}",
                f"%e{n} = arith.cmp{'i eq' if key in BITS else 'f oeq'}, {a[0]}, {b[0]} : {key}",
                f"%f{n} = arith.cmpi slt, {a[1]}, {b[1]} : i32",
                f"%h{n} = arith.andi %e{n}, %f{n} : i1",
                f"%w{n} = arith.ori %g{n}, %h{n} : i1",
                f"%y{n} = arith.select %w{n}, {a[0]}, {b[0]} : {key}",
                f"%z{n} = arith.select %w{n}, {a[1]}, {b[1]} : i32",
            ]
            ends = [f"%y{n}", f"%z{n}"]
        elif kind == "affine":  # composition of x → a x + b
            body = [
                f"%y{n} = arith.muli {a[0]}, {b[0]} : {key}",
                f"%x{n} = arith.muli {a[1]}, {b[0]} : {key}",
                f"%z{n} = arith.addi %x{n}, {b[1]} : {key}",
            ]
            ends = [f"%y{n}", f"%z{n}"]
        elif kind == "last":  # the last nonzero element
            body = [
                f"%c{n} = arith.constant 0 : {key}",
                f"%e{n} = arith.cmpi eq, {b[0]}, %c{n} : {key}",
                f"%y{n} = arith.select %e{n}, {a[0]}, {b[0]} : {key}",
            ]
            ends = [f"%y{n}"]
        first = len(self.lines)
        names = results[0].name + (f":{len(values)}" if len(values) > 1 else "")
        head = ", ".join(v.name for v in values)
        self.line(f'{names} = "{name}"({head}) <{{axis = {axis} : i32{scan}}}> ({{')
        arguments = ", ".join(f"{x}: {values[i % len(values)].element}" for i, x in enumerate(left + right))
        self.line(f"^bb0({arguments}):")
        for text in body:
            self.line("  " + text)
        self.line(f"  {name}.return {', '.join(ends)} : {', '.join(v.element for v in values)}")
        if len(values) > 1:
            given, made = (", ".join(v.type for v in some) for some in (values, results))
            self.line(f"}}) : ({given}) -> ({made})")
        else:
            self.line(f"}}) : ({values[0].type}) -> {results[0].type}")
        if len(values) > 1:
            results = [replace(r, name=f"{results[0].name}#{i}") for i, r in enumerate(results)]
        self.spans.append((first, len(self.lines) - 1, results if len(values) == 1 else []))
        self.keep(*results)
        return results

    def combine(self) -> Value | None:
        shape = self.shape()
        axis = self.random.randrange(len(shape))
        scan = self.random.choice(["", "", f", reverse = {self.random.choice(['true', 'false'])}"])
        element = self.random.choice(
            [*INTS, "i32", "f32", "f32", "f16", "bf16", "i1"] + (["f64"] if self.has_fp64 else [])
        )
        v = self.take(element, shape)
        if element == "i1":
            kind = self.random.choice(["and", "or", "xor"])
        elif element in BITS:
            kind = self.random.choice(
                ["add", "add", "xor", "and", "or", "max", "min", "umax", "mul", "arg"]
                + (["affine", "last"] if scan else [])
            )
        else:
            kind = self.random.choice(["fadd", "fadd", "fmax", "fmin"] + ([] if v.error else ["arg"]))
            v = v if v.most < math.inf else self.exact(v)
            if not v or (kind == "fadd" and v.most * shape[axis] > LARGEST.get(element, 1e30)):
                return None
        values = [v]
        if kind == "arg":
            values.append(self.along(shape, axis))
        elif kind == "affine":
            values.append(self.take(element, shape))
        elif self.random.random() < 0.15 and kind not in ("last",):
            second = self.take(element, shape)
            if element in BITS or (second.most * shape[axis] < LARGEST.get(element, 1e30)):
                values.append(second)
        return self.reduce(values, axis, kind, scan)[0]

    def gather(self) -> Value | None:
        shape = self.shape()
        v = self.take(self.element(), shape)
        axis = self.random.randrange(len(shape))
        where = shape[:axis] + (2 ** self.random.randint(0, 5),) + shape[axis + 1 :]
        if math.prod(where) > self.limit:
            where = shape
        at = self.with_number("arith.remui", self.take("i32", where), shape[axis])
        result = replace(v, name=self.new("", ()).name, shape=where)
        return self.op(
            f"tt.gather {v.name}[{at.name}] {{axis = {axis} : i32}} : ({v.type}, {at.type}) -> {result.type}",
            result,
        )

    def histogram(self) -> Value:
        count, bins = 2 ** self.random.randint(0, 8), 2 ** self.random.randint(0, 6)
        v = self.with_number("arith.andi", self.take("i32", (count,)), bins - 1)
        return self.op(f"tt.histogram {v.name} : {v.type} -> tensor<{bins}xi32>", self.new("i32", (bins,)))

    def dot(self) -> Value | None:
        top = 4 if self.target == "generic" else 5
        m, n, k = (2 ** self.random.randint(2, top) for _ in range(3))
        kind = self.random.choice(["i8", "f32", "f16", "bf16"])
        a, b = self.take(kind, (m, k)), self.take(kind, (k, n))
        to = "i32" if kind == "i8" else "f32"
        c = self.take(to, (m, n)) if self.random.random() < 0.5 else self.constant(to, (m, n), 0)
        facts = {}
        if kind != "i8":
            a, b, c = (v if v.most < math.inf else self.exact(v) for v in (a, b, c))
            if not a or not b or not c or max(a.most, b.most) > 1e12:
                return None
            product = a.most * b.most
            facts = {"most": product * k + c.most, "unit": max(min(a.unit + b.unit, c.unit), -149)}
            errors = k * (a.error * b.most + b.error * a.most + a.error * b.error) + c.error
            if errors or not fits("f32", facts["most"], min(a.unit + b.unit, c.unit)):
                facts["error"] = errors + 2 * (k + 1) * facts["most"] * 2.0**-24
        return self.op(
            f"tt.dot {a.name}, {b.name}, {c.name} : {a.type} * {b.type} -> {c.type}",
            self.new(to, (m, n), **facts),
        )

    # --- control flow ---

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def carried(self) -> Value:
        """Choose a loop-carried value."""
        v = self.any_value()
        if v.element in BITS:
            return v
        return self.carriable(v)

    def carriable(self, v: Value) -> Value:
        if v.element in FLOAT8:
            v = self.round(v, "f32")
        if v.error:
            v = self.load(v.element, v.shape)
        if v.most > 64 or v.unit < 0:
            v = self.clean(v) if v.most == math.inf else self.settle(v)
        return replace(v, most=64.0, unit=0)

    def region(self, results: list[Value], count: int, end: str) -> None:
        """Write a body that ends with values of the types of ``results``."""
        self.depth += 1
        self.scopes.append([])
        self.steps(count)
        ends = []
        for r in results:
            v = self.take(r.element, r.shape)
            ends.append(v if r.element in BITS else self.carriable(v))
        if ends:
            self.line(f"{end} {', '.join(v.name for v in ends)} : {', '.join(v.type for v in ends)}")
        self.scopes.pop()
        self.depth -= 1

    def named_results(self, values: list[Value]) -> tuple[str, list[Value]]:
        if not values:
            return "", []
        name = self.new("", ()).name
        if len(values) == 1:
            return f"{name} = ", [replace(values[0], name=name)]
        return f"{name}:{len(values)} = ", [replace(v, name=f"{name}#{i}") for i, v in enumerate(values)]

    def branch(self) -> None:
        where = self.take("i1", ())
        values = [self.carried() for _ in range(self.random.randint(0, 2))]
        first = len(self.lines)
        head, results = self.named_results(values)
        self.line(f"{head}scf.if {where.name}{f' -> ({self.types(values)})' if values else ''} {{")
        self.region(values, self.random.randint(1, 4), "scf.yield")
        if values or self.random.random() < 0.5:
            self.line("} else {")
            self.region(values, self.random.randint(1, 3), "scf.yield")
        self.line("}")
        self.spans.append((first, len(self.lines) - 1, results if len(results) == 1 else []))
        self.keep(*results)

    @staticmethod
    def types(values: list[Value]) -> str:
        return ", ".join(v.type for v in values)

    def loop(self) -> None:
        values = [self.carried() for _ in range(self.random.randint(0, 3))]
        low = self.constant("i32", (), self.random.choice([0, 0, 1]))
        step = self.constant("i32", (), self.random.choice([1, 1, 2]))
        if self.random.random() < 0.5:
            high = self.constant("i32", (), self.random.randint(0, 5))
        else:
            high = self.with_number("arith.remui", self.take("i32", ()), 5)
        first = len(self.lines)
        head, results = self.named_results(values)
        inner = [replace(v, name=self.new("", ()).name) for v in values]
        index = self.new("i32", ())
        start = ", ".join(f"{i.name} = {v.name}" for i, v in zip(inner, values, strict=True))
        carried = f" iter_args({start}) -> ({self.types(values)})" if values else ""
        self.line(
            f"{head}scf.for {index.name} = {low.name} to {high.name} step {step.name}{carried}  : i32 {{"
        )
        self.scopes.append([index, *inner])
        self.region(values, self.random.randint(1, 6), "scf.yield")
        self.scopes.pop()
        self.line("}")
        self.spans.append((first, len(self.lines) - 1, results if len(results) == 1 else []))
        self.keep(*results)

    def while_loop(self) -> None:
        values = [self.carried() for _ in range(self.random.randint(0, 2))]
        zero = self.constant("i32", (), 0)
        limit = self.with_number("arith.remui", self.take("i32", ()), 5)
        values = [zero, *values]
        head, results = self.named_results(values)
        first = len(self.lines)
        inner = [replace(v, name=self.new("", ()).name) for v in values]
        start = ", ".join(f"{i.name} = {v.name}" for i, v in zip(inner, values, strict=True))
        self.line(f"{head}scf.while ({start}) : ({self.types(values)}) -> ({self.types(values)}) {{")
        holds = self.new("i1", ())
        self.line(f"  {holds.name} = arith.cmpi slt, {inner[0].name}, {limit.name} : i32")
        self.line(f"  scf.condition({holds.name}) {', '.join(v.name for v in inner)} : {self.types(values)}")
        self.line("} do {")
        body = [replace(v, name=self.new("", ()).name) for v in values]
        self.line(f"^bb0({', '.join(f'{v.name}: {v.type}' for v in body)}):")
        self.depth += 1
        self.scopes.append(body)
        self.steps(self.random.randint(1, 4))
        one = self.constant("i32", (), 1)
        ends = [self.binary("arith.addi", body[0], one)]
        for v in values[1:]:
            end = self.take(v.element, v.shape)
            ends.append(end if v.element in BITS else self.carriable(end))
        self.line(f"scf.yield {', '.join(v.name for v in ends)} : {self.types(ends)}")
        self.scopes.pop()
        self.depth -= 1
        self.line("}")
        self.spans.append((first, len(self.lines) - 1, []))
        self.keep(*results)

    def accumulate(self) -> None:
        """Write a masked sum over blocks with loop-carried pointers, reduced after the loop."""
        shape, trips = self.shape(), self.random.randint(1, 4)
        element = self.random.choice(["f32", "f32", "i32", "f16"])
        kind = self.random.choice(["add", "max"])
        wide = "f32" if element == "f16" else element
        base, like = self.input("f16" if element == "f16" else element)
        if like.most == math.inf and element != "i32":
            return
        count = math.prod(shape)
        if count * trips > LENGTH:
            return
        strides = self.dense_strides(shape)
        place = self.linear(shape, strides)
        name = {
            "add": "arith.addi" if wide == "i32" else "arith.addf",
            "max": "arith.maxsi" if wide == "i32" else "arith.maxnumf",
        }[kind]
        start = self.constant(wide, shape, 0 if kind == "add" else (-(2**31) if wide == "i32" else -64.0))
        moving = self.random.random() < 0.5
        pointer, kind_text = self.pointers(base, element, place).split("|")
        low, high, one = (self.constant("i32", (), n) for n in (0, trips, 1))
        bound = self.broadcast(
            self.with_number("arith.remui", self.take("i32", ()), count * trips + 1), shape
        )
        block = self.constant("i32", shape, count)
        index, acc, moved, result = (
            self.new("i32", ()),
            self.new(wide, shape),
            f"%m{self.count}",
            self.new(wide, shape),
        )
        carried = f"{acc.name} = {start.name}" + (f", {moved} = {pointer}" if moving else "")
        kinds = acc.type + (f", {kind_text}" if moving else "")
        head = f"{result.name}:2" if moving else result.name
        self.line(
            f"{head} = scf.for {index.name} = {low.name} to {high.name} step {one.name} "
            f"iter_args({carried}) -> ({kinds})  : i32 {{"
        )
        self.depth += 1
        self.scopes.append([])
        size = self.constant("i32", (), count)
        offset = self.broadcast(self.binary("arith.muli", index, size), shape)
        at = self.binary("arith.addi", place, offset)
        mask = self.op(f"arith.cmpi slt, {at.name}, {bound.name} : {at.type}", self.new("i1", shape))
        if moving:
            where, where_type = moved, kind_text
        else:
            where, where_type = self.pointers(base, element, at).split("|")
        other = self.constant(element, shape, 0)
        x = self.op(
            f"tt.load {where}, {mask.name}, {other.name} : {where_type}",
            self.new(element, shape, most=like.most, unit=min(like.unit, -3)),
        )
        if element == "f16":
            x = self.op(
                f"arith.extf {x.name} : {x.type} to {type_of('f32', shape)}",
                self.new("f32", shape, most=x.most, unit=x.unit),
            )
        total = self.binary(name, acc, x)
        kept = self.op(
            f"arith.select {mask.name}, {total.name}, {acc.name} : {mask.type}, {acc.type}",
            self.new(wide, shape),
        )
        yields = kept.name
        if moving:
            self.line(f"%n{self.count} = tt.addptr {moved}, {block.name} : {kind_text}, {block.type}")
            yields += f", %n{self.count}"
        self.line(f"scf.yield {yields} : {kinds}")
        self.scopes.pop()
        self.depth -= 1
        self.line("}")
        facts = {"most": 64.0 * (trips + 1), "unit": -3} if wide != "i32" else {}
        result = Value(result.name + ("#0" if moving else ""), wide, shape, **facts)
        self.keep(result)
        axis = self.random.randrange(len(shape))
        kinds_of = {"add": "add" if wide == "i32" else "fadd", "max": "max" if wide == "i32" else "fmax"}
        out = self.reduce([result], axis, kinds_of[kind])[0]
        self.store(out)

    # --- the program ---

    def step(self) -> None:
        makers: list[tuple[int, Callable[[], object]]] = [
            (8, self.integer),
            (3, self.affine),
            (2, self.logic),
            (8, self.float),
            (3, lambda: self.compare(self.any_value())),
            (3, self.select),
            (6, self.cast),
            (7, self.rearrange),
            (6, self.combine),
            (2, self.gather),
            (1, self.histogram),
            (2, self.dot),
            (2, self.atomic),
            (3, lambda: self.load(self.random.choice([*INTS, "f32", "f16", "bf16", *FLOAT8]), self.shape())),
            (2, lambda: self.store(self.any_value())),
            (2, lambda: random_choices.shared(self)),
        ]
        if self.depth < 2:
            makers += [(2, self.loop), (2, self.branch), (1, self.while_loop)]
        if self.depth == 0:
            makers += [
                (2, self.accumulate),
                (1, lambda: random_choices.carried(self)),
                (1, lambda: random_choices.loads(self)),
                (1, lambda: random_choices.falling(self)),
            ]
        self.random.choices([m for _, m in makers], [w for w, _ in makers])[0]()

    def blocks(self) -> None:
        """End with branches between blocks that merge again."""
        where = self.take("i1", ())
        values = [self.carried() for _ in range(self.random.randint(0, 2))]
        self.line(f"cf.cond_br {where.name}, ^left, ^right")
        for name in ("left", "right"):
            self.line(f"^{name}:")
            self.scopes.append([])
            self.steps(self.random.randint(1, 3))
            ends = []
            for v in values:
                end = self.take(v.element, v.shape)
                ends.append(end if v.element in BITS else self.carriable(end))
            given = f"({', '.join(v.name for v in ends)} : {self.types(ends)})" if ends else ""
            self.line(f"cf.br ^end{given}")
            self.scopes.pop()
        inner = [replace(v, name=self.new("", ()).name) for v in values]
        self.line(f"^end({', '.join(f'{v.name}: {v.type}' for v in inner)}):" if inner else "^end:")
        self.keep(*inner)

    def program(self) -> Program:
        for number in (self.random.randrange(-5, 100), 16 * self.random.randrange(8)):
            self.keep(Value(self.parameter("i32", number), "i32", ()))
        pid = self.op("tt.get_program_id x : i32", self.new("i32", ()))
        del pid
        self.steps(self.random.randint(4, 22))
        if self.random.random() < 0.15:
            self.blocks()
            self.steps(2)
        values = [v for v in self.scopes[0] if v.shape or self.random.random() < 0.2]
        for v in values[-3:] + self.random.sample(values, min(len(values), 4)):
            self.store(v)
        self.line("tt.return")
        head = ["module {", f"  tt.func public @random({', '.join(self.parameters)}) {{"]
        spans = [(a + 2, b + 2, values) for a, b, values in self.spans]
        return Program(
            [*head, *self.lines, "  }", "}"],
            spans,
            self.arguments,
            self.outputs,
            self.target,
            self.random.choice([1, 2, 4, 8]),
        )
