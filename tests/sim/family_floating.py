"""Floating-point arithmetic: rounding, denormals, special values, saturation.

Sources: intel/intel-graphics-compiler, documentation/visa/2_datatypes.md ("IEEE Floating Point Mode": operations
honor IEEE 754; denormals of f and df are kept or flushed by the control register; "Saturation"), instruction
pages ADD.md, MUL.md, MAD.md, FRC.md, RNDD.md, RNDE.md, RNDU.md, RNDZ.md.

Not tested, since not documented: the payload of NaNs, the sign of a saturated zero, denormals of bf, and
results that are just below the least normal number before rounding while denormals are flushed.
"""

from collections.abc import Iterator
from fractions import Fraction

import number
from lanes import SKIP, AnyOf, Operation, denormals, interesting, modes, pairs, sampled
from machine import Case, Product, Walk
from number import BF, DF, DOWN, EVEN, HF, UP, ZERO, F, Format, Real

ROUNDING = {"even": EVEN, "up": UP, "down": DOWN, "zero": ZERO}


def apply(modifier: str, x: Real) -> Real:
    """A source modifier."""
    if "(abs)" in modifier:
        x = number.absolute(x)
    return number.negate(x) if "-" in modifier else x


def ieee(
    op: str,
    compute,
    result: Format,
    sources,
    values,
    modifiers=(),
    saturate=False,
    mode=EVEN,
    keep=True,
    **more,
) -> Operation:
    """An operation that rounds the exact `compute(*values, mode)` once."""
    modifiers = (*modifiers, *[""] * (len(sources) - len(modifiers)))

    def reference(*bits: int):
        numbers = [
            apply(m, type.decode(x, flush=not keep))
            for m, type, x in zip(modifiers, sources, bits, strict=True)
        ]
        exact = compute(*numbers, mode)
        if saturate:
            clamped = result.encode(number.saturate(exact), mode)
            return AnyOf([0, 1 << (result.bits - 1)]) if clamped == 0 else clamped
        rounded = result.encode(exact, mode, flush=not keep)
        if not keep and exact.kind == "finite":
            unflushed = result.encode(exact, mode)
            if unflushed in (least(result), least(result) | 1 << (result.bits - 1)) and abs(
                exact.value
            ) < 2 ** Fraction(1 - result.bias):
                return SKIP
        return rounded

    setting = {} if mode == EVEN and keep else {"before": modes(mode, keep), "after": modes()}
    return Operation(
        op, result, sources, values, reference, modifiers=modifiers, saturate=saturate, **setting, **more
    )


def least(type: Format) -> int:
    """Bits of the least normal number."""
    return 1 << type.mantissa


def _add(x: Real, y: Real, mode: int) -> Real:
    return number.add(x, y, mode)


def _multiply(x: Real, y: Real, mode: int) -> Real:
    return number.multiply(x, y)


def _mad(x: Real, y: Real, z: Real, mode: int) -> Real:
    return number.add(x, number.multiply(y, z), mode)


def formats(product: Product) -> list[Format]:
    """Formats with their own units; df exists from Xe2 on (and on Xe-HPC)."""
    return [F, HF, DF] if product.hpc else [F, HF]


def sums(product: Product) -> Iterator[Operation]:
    """add, mul and mad of one type, with every rounding mode and modifier."""
    for type in formats(product):
        values = [*interesting(type), *denormals(type)]
        two = pairs(values, [*interesting(type, 2), *denormals(type)])
        three = sampled(640, 1, values, values, values)
        # cancellation: x - (1 + e)^2 shows whether mad rounds its product
        one = type.bias << type.mantissa
        square = [one + 1, one + 2, one + 3, one + 5, one + 7]
        three += [(1 << (type.bits - 1) | x, y, z) for x in square for y in square for z in square]
        for label, mode in ROUNDING.items():
            yield ieee("add", _add, type, (type, type), two, mode=mode, label=label)
            yield ieee("mul", _multiply, type, (type, type), two, mode=mode, label=label)
            yield ieee("mad", _mad, type, (type,) * 3, three, mode=mode, label=label)
        for modifiers in (("-", ""), ("", "(abs)"), ("-(abs)", "-")):
            yield ieee("add", _add, type, (type, type), two, modifiers)
            yield ieee("mul", _multiply, type, (type, type), two, modifiers)
        yield ieee("mad", _mad, type, (type,) * 3, three, ("-", "", ""))
        yield ieee("mad", _mad, type, (type,) * 3, three, ("", "(abs)", "-"))
        yield ieee("add", _add, type, (type, type), two, saturate=True)
        yield ieee("mul", _multiply, type, (type, type), two, saturate=True)
        yield ieee("mad", _mad, type, (type,) * 3, three, saturate=True)
        yield ieee("add", _add, type, (type, type), two, keep=False, label="flush")
        yield ieee("mul", _multiply, type, (type, type), two, keep=False, label="flush")
        yield ieee("mad", _mad, type, (type,) * 3, three, keep=False, label="flush")


def accumulations(product: Product) -> Iterator[Operation]:
    """mac: acc0 + src0 * src1, and mad with the accumulator as source and destination."""
    lanes = product.register // 4
    values = sampled(256, 2, interesting(F), interesting(F, 2), interesting(F, 3))
    load = [f"mov ({lanes}|M0) acc0.0<1>:f r60.0<1;1,0>:f"]

    def mac(x: int, y: int, z: int):
        return F.encode(_mad(F.decode(z), F.decode(x), F.decode(y), EVEN))

    operation = Operation("mac", F, (F, F, F), values, mac, before=load, lanes=lanes)
    operation._instruction = lambda *_: f"mac ({lanes}|M0) r80.0<1>:f r20.0<1;1,0>:f r40.0<1;1,0>:f"
    yield operation
    store = [f"mov ({lanes}|M0) r80.0<1>:f acc0.0<1;1,0>:f"]

    def mad(x: int, y: int, z: int):
        return F.encode(_mad(F.decode(z), F.decode(x), F.decode(y), EVEN))

    operation = Operation(
        "mad", F, (F, F, F), values, mad, before=load, after=store, lanes=lanes, label="acc0"
    )
    operation._instruction = lambda *_: f"mad ({lanes}|M0) acc0.0<1>:f acc0.0<1;0>:f r20.0<1;0>:f r40.0<1>:f"
    yield operation


def bfloats(product: Product) -> Iterator[Operation]:
    """Mixed f and bf: exact in f; a bf result is the nearest or the truncated one.

    visa/G4_IR.cpp: "F->BF move has RNE mode while mix mode BF uses RTZ due to HW bug"; newer parts may differ.
    """
    lanes = product.register // 4

    def both(compute, sources):
        def reference(*bits: int):
            exact = compute(*(type.decode(x) for type, x in zip(sources, bits, strict=True)), EVEN)
            if exact.kind == "finite" and abs(exact.value) < 2 ** Fraction(1 - BF.bias):
                return SKIP
            return AnyOf([BF.encode(exact, EVEN), BF.encode(exact, ZERO)])

        return reference

    for op, compute, count in (("add", _add, 2), ("mul", _multiply, 2), ("mad", _mad, 3)):
        for sources in ((F, BF), (BF, F)) if count == 2 else ((F, F, BF), (BF, BF, F)):
            values = sampled(384, 3, *(interesting(type, i) for i, type in enumerate(sources)))
            operation = ieee(op, compute, F, sources, values, lanes=lanes)
            exact = operation.reference
            operation.reference = lambda *bits, exact=exact: _skip_denormal(exact(*bits))
            yield operation
            yield Operation(op, BF, sources, values, both(compute, sources), lanes=lanes)


def _skip_denormal(bits):
    return SKIP if isinstance(bits, int) and F.is_denormal(bits) else bits


def roundings(product: Product) -> Iterator[Operation]:
    """rndd, rndu, rnde, rndz, frc (all of type f)."""
    values = [*interesting(F), *(F.encode(number.real(x / 4)) or 0 for x in range(-40, 41))]
    values += [
        F.encode(number.real(x)) or 0 for x in (8388607.5, 8388608, 4194303.5, -4194304.5, 1e30, 16777217)
    ]
    for op in ("rndd", "rndu", "rnde", "rndz"):
        for modifier in ("", "-"):
            yield Operation(op, F, (F,), [(x,) for x in values], _round(op, modifier), modifiers=(modifier,))
    yield Operation("frc", F, (F,), [(x,) for x in values], _fraction)


def _round(op: str, modifier: str):
    def reference(bits: int):
        x = apply(modifier, F.decode(bits))
        if x.kind != "finite":
            return F.encode(x)
        down = x.value.numerator // x.value.denominator
        up = -(-x.value.numerator // x.value.denominator)
        whole = {"rndd": down, "rndu": up, "rnde": round(x.value), "rndz": up if x.negative else down}[op]
        if whole == 0:  # whether a zero keeps its sign is not documented
            return AnyOf([0, 1 << 31])
        return F.encode(number.real(whole))

    return reference


def _fraction(bits: int):
    x = F.decode(bits)
    if x.kind == "nan":
        return None
    if x.kind == "inf":
        return SKIP  # the table of special values in FRC.md is empty
    fraction = x.value - x.value.numerator // x.value.denominator
    if fraction == 0:
        return AnyOf([0, 1 << 31])
    below_one = F.bias << F.mantissa
    rounded = F.encode(number.real(fraction))
    # a tiny negative number's fraction rounds to 1, which is not less than 1: both are seen in practice
    return AnyOf([rounded, below_one - 1]) if rounded == below_one else rounded


def initial_modes(product: Product) -> Iterator[Operation]:
    """The modes that a walk starts with: rounding, and denormals of f (sim.h, struct sim_walk)."""
    values = [*interesting(F), *denormals(F)]
    two = pairs(values, values)
    for label, mode in ROUNDING.items():
        operation = ieee("add", _add, F, (F, F), two, mode=mode, label=f"walk {label}")
        operation.before, operation.after = (), ()
        operation.walk = Walk(rounding=mode)
        yield operation
    operation = ieee("add", _add, F, (F, F), two, keep=False, label="walk flush")
    operation.before, operation.after = (), ()
    operation.walk = Walk(keep_denormals=False)
    yield operation


def cases(product: Product) -> list[Case]:
    groups = (sums, accumulations, bfloats, roundings, initial_modes)
    return [operation.build(product) for group in groups for operation in group(product)]
