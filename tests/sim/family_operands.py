"""Immediate operands of arithmetic, accumulators, stochastic rounding, instructions without effect.

Sources: intel/intel-graphics-compiler, instruction pages as in family_integer.py and family_floating.py
("Operand class: ... immediate"; add3: 16-bit immediates for src0 and src2), documentation/visa/instructions/SRND.md
("Those 8 or 13 bits are added to mantissa of Src0 ... normalized and truncate").

Not tested, since not documented: results of srnd that overflow or are denormal, sums beyond the type in accumulators.
"""

from collections.abc import Callable, Iterator
from typing import Any

import number
from lanes import SKIP, Operation, interesting, modes, sampled
from machine import Case, Product
from number import BF8, HF, UD, UW, D, F, Format, Q, Type, W


def with_text(operation: Operation, text: Callable[[int], str]) -> Operation:
    """Replaces the instruction's text; `text` gets the number of lanes."""
    operation._instruction = lambda lanes, *_: text(lanes)  # type: ignore[method-assign]
    return operation


def immediate(
    op: str, type: Type, operands: str, reference: Callable[[int], Any], condition: str = ""
) -> Operation:
    """An instruction with one register source; `operands` is the text of all, with S for the register."""
    values = [(x,) for x in interesting(type)]
    operation = Operation(op, type, (type,), values, reference, label=operands)

    def text(lanes: int) -> str:
        source = f"r20.0<1;1,0>:{type.name}"
        result = f"{op} ({lanes}|M0) {condition} r80.0<1>:{type.name} "
        return result + operands.replace("S", source).replace("T", f"r20.0<1;0>:{type.name}").replace(
            "U", f"r20.0<1>:{type.name}"
        )

    return with_text(operation, text)


def integers(product: Product) -> Iterator[Operation]:
    yield immediate("add", D, "S 5:w", lambda x: D.encode(D.decode(x) + 5))
    yield immediate("add", D, "S -300:w", lambda x: D.encode(D.decode(x) - 300))
    yield immediate("add", D, "-S 77:w", lambda x: D.encode(77 - D.decode(x)))
    yield immediate("add", UD, "S 0x12345678:ud", lambda x: UD.encode(x + 0x12345678))
    yield immediate("add", UD, "S 0xFFFF:uw", lambda x: UD.encode(x + 0xFFFF))
    yield immediate("mul", D, "S -3:w", lambda x: D.encode(D.decode(x) * -3))
    yield immediate("mul", UD, "S 0xFFFF:uw", lambda x: UD.encode(x * 0xFFFF))
    yield immediate("and", UD, "S 0xFF00FF00:ud", lambda x: x & 0xFF00FF00)
    yield immediate("and", UD, "~S 0xFF00FF00:ud", lambda x: ~x & 0xFF00FF00)
    yield immediate("or", UW, "S 0x8001:uw", lambda x: x | 0x8001)
    yield immediate("xor", UD, "S 0x80000000:ud", lambda x: x ^ 0x80000000)
    yield immediate("shl", D, "S 7:w", lambda x: D.encode(x << 7))
    yield immediate("asr", D, "S 31:w", lambda x: D.encode(D.decode(x) >> 31))
    yield immediate("shr", UD, "S 9:w", lambda x: x >> 9)
    yield immediate("add3", D, "T T 100:w", lambda x: D.encode(2 * D.decode(x) + 100))
    yield immediate("add3", D, "-9:w T U", lambda x: D.encode(2 * D.decode(x) - 9))
    yield immediate("bfn.0x1E", UD, "T T 0x0F0F:uw", lambda x: _bfn(0x1E, x, x, 0x0F0F))
    yield immediate("sel", D, "S 10:w", lambda x: D.encode(min(D.decode(x), 10)), "(lt)f0.0")
    yield immediate("sel", D, "S -10:w", lambda x: D.encode(max(D.decode(x), -10)), "(ge)f0.0")
    if product.hpc:
        yield immediate("add", Q, "S -1:w", lambda x: Q.encode(Q.decode(x) - 1))
        yield immediate("shl", Q, "S 33:w", lambda x: Q.encode(x << 33))
        yield immediate("mov", Q, "0x123456789ABCDEF0:q", lambda x: 0x123456789ABCDEF0)


def _bfn(code: int, *sources: int) -> int:
    result = 0
    for bit in range(32):
        index = sum((source >> bit & 1) << place for place, source in enumerate(sources))
        result |= (code >> index & 1) << bit
    return result


def floats(product: Product) -> Iterator[Operation]:
    def exact(type: Format, function: Callable[[Any], Any]):
        def reference(bits: int):
            x = type.decode(bits)
            if x.kind != "finite":
                return SKIP  # special values are in family_floating.py
            value = function(x.value)
            return type.encode(number.real(value)) if value else SKIP

        return reference

    half = number.Fraction(1, 2)
    yield immediate("add", F, "S 1.0:f", exact(F, lambda x: x + 1))
    yield immediate("mul", F, "S -0.5:f", exact(F, lambda x: -x * half))
    yield immediate("add", F, "-S 0x40490FDB:f", exact(F, lambda x: F.decode(0x40490FDB).value - x))
    yield immediate("add", HF, "S 0x3C00:hf", exact(HF, lambda x: x + 1))
    yield immediate("mul", HF, "S 0x4000:hf", exact(HF, lambda x: x * 2))


def accumulators(product: Product) -> Iterator[Operation]:
    """acc0 and acc1 as destinations and sources."""
    lanes = product.register // 4
    values = sampled(128, 1, [x for x in interesting(D) if abs(D.decode(x)) < 1 << 28], interesting(W))

    def total(x: int, y: int) -> int:
        return D.encode(2 * D.decode(x) + W.decode(y))

    text = "\n".join(
        [
            f"add ({lanes}|M0) acc0.0<1>:d r20.0<1;1,0>:d r40.0<1;1,0>:w",
            f"add ({lanes}|M0) r80.0<1>:d acc0.0<1;1,0>:d r20.0<1;1,0>:d",
        ]
    )
    yield with_text(Operation("add", D, (D, W), values, total, lanes=lanes, label="acc0"), lambda _: text)
    floats = [(x, y) for x, y in sampled(128, 2, interesting(F), interesting(F, 2))]
    text = "\n".join(
        [
            f"mov ({lanes}|M0) acc0.0<1>:f r20.0<1;1,0>:f",
            f"mov ({lanes}|M0) acc2.0<1>:f r40.0<1;1,0>:f",
            f"mov ({lanes}|M0) r80.0<1>:f acc0.0<1;1,0>:f",
        ]
    )
    operation = Operation("mov", F, (F, F), floats, lambda x, y: x, lanes=lanes, label="acc0, acc2")
    yield with_text(operation, lambda _: text)


def stochastic(product: Product) -> Iterator[Operation]:
    """srnd of f to hf with 13 random bits, of hf to bf8 with 8 (the models list it from Xe2 on)."""
    if not product.xe2:
        return
    for source, random, result, bits in ((F, UD, HF, 13), (HF, UW, BF8, 8)):
        values = sampled(400, 3, interesting(source), [0, 1, 3, 0x7F, 0x80, 0xFF, *interesting(random)])
        mask = (1 << bits) - 1

        def reference(x: int, y: int, source=source, result=result, mask=mask):
            value = source.decode(x)
            if value.kind == "nan":
                return None
            if value.kind != "finite":
                return result.encode(value)
            total = source.decode(x + (y & mask))
            if total.kind != "finite":
                return SKIP
            rounded = result.encode(total, number.ZERO)
            most = result.decode((result.top << result.mantissa) - 1).value
            if abs(total.value) > most or abs(total.value) < 2 ** number.Fraction(1 - result.bias):
                return SKIP
            return rounded

        operation = Operation("srnd", result, (source, random), values, reference, lanes=16)

        def text(lanes: int, source=source, random=random, result=result) -> str:
            stride = source.bits // result.bits
            return (
                f"srnd ({lanes}|M0) r80.0<{stride}>:{result.name} "
                f"r20.0<1;1,0>:{source.name} r40.0<1;1,0>:{source.name}"
            )

        yield with_text(operation, text)


def idle(product: Product) -> Iterator[Operation]:
    """nop and sync leave everything as it is."""
    for line in ("nop", "sync.nop null", "sync.allrd null", "sync.allwr null"):
        operation = Operation("mov", UD, (UD,), [(x,) for x in interesting(UD)], lambda x: x, label=line)
        operation.before, operation.after = [line], [line, *modes()]
        yield operation


def cases(product: Product) -> list[Case]:
    groups = (integers, floats, accumulators, stochastic, idle)
    return [operation.build(product) for group in groups for operation in group(product)]
