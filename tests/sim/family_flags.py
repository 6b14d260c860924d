"""cmp, sel, csel, conditions of arithmetic, predication, execution masks, channel offsets.

Sources: intel/intel-graphics-compiler, documentation/visa/instructions/CMP.md (relations with NaN, infinities,
zeros; "all ones or all zeros"), SEL.md, MIN_MAX.md ("if one of the numbers is NaN and the other is not, MIN or MAX
... returns the one that is not NaN"; both NaN: source 1), ADD3O.md (overflow), documentation/visa/3_execution_model.md
(predication, execution masks), visa/iga/IGALibrary/IR/Types.hpp (any and all over groups of channels).

Not tested, since not documented: min and max of zeros of different signs, flags of comparisons of signed with
unsigned integers, whether csel writes the flag.
"""

from collections.abc import Iterator

import number
import numpy as np
from lanes import AnyOf, Operation, denormals, interesting, modes, pack, pairs, sampled
from machine import FILL, Case, Product, Walk
from number import DF, HF, UB, UD, UQ, UW, B, D, F, Format, Q, Real, Type, W

RELATIONS = {
    "eq": lambda x, y: number.equal(x, y),
    "ne": lambda x, y: not number.equal(x, y),
    "gt": lambda x, y: number.less(y, x),
    "ge": lambda x, y: number.less(y, x) or number.equal(x, y),
    "lt": lambda x, y: number.less(x, y),
    "le": lambda x, y: number.less(x, y) or number.equal(x, y),
}


def value(type: Type, bits: int, modifier: str = "", flush: bool = False) -> Real:
    """A source as a real number."""
    if isinstance(type, Format):
        x = type.decode(bits, flush)
    else:
        x = number.real(type.decode(bits))
    if "(abs)" in modifier:
        x = number.absolute(x)
    return number.negate(x) if "-" in modifier else x


def all_types(product: Product) -> list[Type]:
    found: list[Type] = [UB, B, UW, W, UD, D, F, HF]
    return [*found, UQ, Q, DF] if product.hpc else found


def compares(product: Product) -> Iterator[Operation]:
    """Flags and results of cmp: -1 or 0 in the destination, the relation in the flag."""
    for type in all_types(product):
        values = interesting(type)
        if isinstance(type, Format):
            values = [*values, *denormals(type)]
        two = pairs(values, values)
        for name, relation in RELATIONS.items():

            def flag(x: int, y: int, type=type, relation=relation) -> bool:
                return relation(value(type, x), value(type, y))

            def result(x: int, y: int, type=type, flag=flag) -> int:
                return (1 << type.bits) - 1 if flag(x, y) else 0

            wide = type.bits == 64
            if type not in (UQ, Q):  # IGA's model of Xe2 lists no qword for cmp's destination
                yield Operation("cmp", type, (type, type), two, result, flag, condition=f"({name})")
            else:
                yield Operation("cmp", None, (type, type), two, result, flag, condition=f"({name})", lanes=8)
            if not wide:
                yield Operation("cmp", None, (type, type), two, result, flag, condition=f"({name})")
    for modifiers in (("-", ""), ("(abs)", ""), ("", "-(abs)")):
        for type in (F, D):
            values = [x for x in interesting(type) if type is F or x != 1 << 31]

            def modified(x: int, y: int, type=type, modifiers=modifiers) -> bool:
                return number.less(value(type, x, modifiers[0]), value(type, y, modifiers[1]))

            yield Operation(
                "cmp", None, (type, type), pairs(values, values), modified, modified,
                modifiers=modifiers, condition="(lt)",
            )  # fmt: skip

    def flushed(x: int, y: int) -> bool:
        return number.equal(value(F, x, flush=True), value(F, y, flush=True))

    values = [*denormals(F), *interesting(F)]
    yield Operation(
        "cmp", None, (F, F), pairs(values, values), flushed, flushed,
        condition="(eq)", before=modes(denormals=False), after=modes(), label="flush",
    )  # fmt: skip


def minima(product: Product) -> Iterator[Operation]:
    """sel with a condition: min (lt) and max (ge)."""
    for type in [*all_types(product)[:8], *([DF] if product.hpc else [])]:
        values = interesting(type)
        for condition, wants_less in (("(lt)", True), ("(ge)", False)):

            def choose(x: int, y: int, type=type, wants_less=wants_less):
                a, b = value(type, x), value(type, y)
                if isinstance(type, Format) and "nan" in (a.kind, b.kind):
                    return None if a.kind == b.kind else (y if a.kind == "nan" else x)
                if a.kind == b.kind == "zero" and isinstance(type, Format):
                    return AnyOf([x, y])
                return x if number.less(a, b) == wants_less else y

            yield Operation("sel", type, (type, type), pairs(values, values), choose, condition=condition)


def selections(product: Product) -> Iterator[Operation]:
    """sel by a predicate, and csel: src2 compared with zero chooses src0 or src1."""
    for type in [*all_types(product)[:8], *([DF] if product.hpc else [])]:
        values = pairs(interesting(type), interesting(type, 2))
        for predicate, flags in (("(f1.0)", 0x3C5A96F1), ("(~f1.0)", 0x3C5A96F1)):
            yield _Selection("sel", type, (type, type), values, None, predicate=predicate, flags=flags)
    for type in (F, HF, *((D, W) if product.xe2 else ())):
        for name, relation in RELATIONS.items():

            def choose(x: int, y: int, z: int, type=type, relation=relation):
                taken = relation(value(type, z), number.zero())
                chosen = x if taken else y
                return None if isinstance(type, Format) and type.is_nan(chosen) else chosen

            values = sampled(256, 1, interesting(type), interesting(type, 2), interesting(type, 3))
            yield Operation("csel", type, (type,) * 3, values, choose, condition=f"({name})")


class _Selection(Operation):
    """sel by f1.0: the result depends on the lane."""

    def _check(self, found, columns, lanes, stride):
        from lanes import RESULT, matches, show, unpack

        got = unpack(self.result, found[RESULT], stride, 0, lanes)
        wrong = []
        for row in range(len(got)):
            for lane in range(lanes):
                bit = self.flags >> lane & 1
                first = bool(bit) != self.predicate.startswith("(~")
                expected = int(columns[0 if first else 1][row][lane])
                if isinstance(self.result, Format) and self.result.is_nan(expected):
                    expected = None
                if not matches(self.result, got[row][lane], expected):
                    wrong.append(f"lane {lane}: {show(self.result, got[row][lane])}, expected {expected:#x}")
        return wrong


def conditions(product: Product) -> Iterator[Operation]:
    """Conditions of arithmetic: the result compared with zero; (ov): the exact sum does not fit.

    A conversion's result is what the destination gets: intel-graphics-compiler merges a comparison of it with zero
    into the mov (visa/Optimizer.cpp, foldCmpToCondMod).
    """
    for to in (UD, D):
        values = [(x,) for x in [*interesting(F), 0x3F000000, 0xBF000000, 0x3F7FFFFF, 0xBF800000, 0x3F800000]]
        for name in RELATIONS:

            def integer(x: int, to=to) -> int:
                return to.encode(number.to_integer(F.decode(x), to))

            def holds(x: int, name=name, to=to, integer=integer) -> bool:
                return RELATIONS[name](value(to, integer(x)), number.zero())

            yield Operation("mov", to, (F,), values, integer, holds, condition=f"({name})")
    for type in (UW, W, UD, D):
        values = [
            (x, y)
            for x, y in pairs(interesting(type), interesting(type, 2))
            if type.least <= type.decode(x) + type.decode(y) <= type.most
        ]
        for name in ("eq", "ne", "gt", "lt", "ge", "le"):

            def total(x: int, y: int, type=type) -> int:
                return type.encode(type.decode(x) + type.decode(y))

            def flag(x: int, y: int, type=type, name=name, total=total) -> bool:
                return RELATIONS[name](value(type, total(x, y)), number.zero())

            yield Operation("add", type, (type, type), values, total, flag, condition=f"({name})")
    for type in (UD, D):
        values = pairs(interesting(type), interesting(type, 2))

        def wrapped(*bits: int, type=type) -> int:
            return type.encode(sum(type.decode(x) for x in bits))

        def overflows(*bits: int, type=type) -> bool:
            return not type.least <= sum(type.decode(x) for x in bits) <= type.most

        yield Operation("add", type, (type, type), values, wrapped, overflows, condition="(ov)")
        three = sampled(256, 2, interesting(type), interesting(type, 2), interesting(type, 3))
        yield Operation("add3", type, (type,) * 3, three, wrapped, overflows, condition="(ov)")
    for name in ("eq", "ne", "gt", "lt", "ge", "le"):
        values = pairs(interesting(F), interesting(F, 2))

        def product_of(x: int, y: int):
            return F.encode(number.multiply(F.decode(x), F.decode(y)))

        def sign(x: int, y: int, name=name):
            bits = product_of(x, y)
            return RELATIONS[name](number.NAN if bits is None else F.decode(bits), number.zero())

        yield Operation("mul", F, (F, F), values, product_of, sign, condition=f"({name})")
        for op, compute in (("and", lambda x, y: x & y), ("xor", lambda x, y: x ^ y)):
            if name not in ("eq", "ne"):
                continue

            def zero_or_not(x: int, y: int, name=name, compute=compute) -> bool:
                return (compute(x, y) == 0) == (name == "eq")

            integers = pairs(interesting(UD), interesting(UD))
            yield Operation(op, UD, (UD, UD), integers, compute, zero_or_not, condition=f"({name})")


def predicated(product: Product) -> Iterator[Operation]:
    """Lanes whose predicate is off keep the destination."""
    values = pairs(interesting(D), interesting(D, 2))
    for flags in (0, 0xFFFFFFFF, 0x80000001, 0x5A5A3C0F):

        def total(x: int, y: int) -> int:
            return D.encode(x + y)

        yield Operation("add", D, (D, D), values, total, predicate="(f1.0)", flags=flags, label=f"{flags:#x}")
    yield Operation("add", UB, (UB, UB), pairs(interesting(UB), interesting(UB)), lambda x, y: (x + y) & 255,
                    predicate="(f1.0)", flags=0x12345678)  # fmt: skip


def groups_of(product: Product) -> list[tuple[str, int, bool]]:
    """(suffix, channels of a group, all instead of any) that the product has."""
    if product.hpc:
        return [(".any", 0, False), (".all", 0, True)]
    found = []
    for size in (2, 4, 8, 16, 32):
        found += [(f".any{size}h", size, False), (f".all{size}h", size, True)]
    return found


def joined(product: Product) -> Iterator[Case]:
    """Predicates of groups: any or all bits of each group of channels; .any and .all of the whole instruction.

    The channels of a group count beyond the execution size: intel-graphics-compiler asks with (W&f0.0.any16h) in an
    instruction of one lane whether any of 16 is on (visa/SWWA.cpp). PRM volume 2a (EU instruction fields, PredInv): the
    "effect of PredInv happens after PredCtrl".
    """
    lanes = product.register // 2  # words in one register
    patterns = [
        0,
        1,
        0x80000000,
        0xFFFFFFFF,
        0xFFFFFFFE,
        0x0000FFFF,
        0xFF00F0C2,
        0x55555555,
        0x33333333,
        0x7FFF7F7D,
    ]
    for suffix, size, every in groups_of(product):
        for count in (lanes, 1):
            for inverse in ("", "~"):
                yield _joined(product, count, suffix, size or count, every, inverse, patterns)


def _joined(product, lanes, suffix, size, every, inverse, patterns) -> Case:
    flags = np.array([[x] for x in patterns], "<u4").view(np.uint8)
    text = "\n".join(
        [
            "(W) mov (1|M0) f0.0<1>:ud r20.0<0;1,0>:ud",
            f"({inverse}f0.0{suffix}) mov ({lanes}|M0) r80.0<1>:uw 0x1234:uw",
        ]
    )

    def check(found: dict[int, np.ndarray]) -> list[str]:
        wrong = []
        got = found[80].copy().view("<u2")
        for row, pattern in enumerate(patterns):
            for lane in range(lanes):
                start = lane // size * size
                bits = [pattern >> i & 1 for i in range(start, start + size)]
                on = (all(bits) if every else any(bits)) != bool(inverse)
                expected = 0x1234 if on else FILL * 0x0101
                if got[row][lane] != expected:
                    wrong.append(
                        f"flag {pattern:#x} lane {lane}: {got[row][lane]:#x}, expected {expected:#x}"
                    )
        return wrong

    return Case(
        f"({inverse}f0.0{suffix}) mov ({lanes}|M0)", text, {20: flags}, {80: 1}, check, rows=len(patterns)
    )


def masked(product: Product) -> Iterator[Case]:
    """Channel offsets M0 to M28 choose bits of the execution mask and of flags; (W) ignores the mask."""
    for mask in (0xFFFFFFFF, 0x0F0F3355, 0x80000001, 0x00010000):
        for lanes, offset in ((8, 0), (8, 8), (8, 24), (16, 0), (16, 16), (4, 0), (4, 4), (4, 28), (1, 0)):
            if offset % 8 and product.hpc:
                continue  # Xe2 has no control of nibbles
            for forced in ("", "(W)"):
                yield _masked(product, mask, lanes, offset, forced)


def _masked(product: Product, mask: int, lanes: int, offset: int, forced: str) -> Case:
    values = np.arange(100, 100 + lanes, dtype=np.uint64).reshape(1, lanes)
    enabled = [bool(forced) or bool(mask >> (lane + offset) & 1) for lane in range(lanes)]
    text = "\n".join(
        [
            "(W) mov (1|M0) f0.0<1>:ud 0x0:ud",
            "(W) mov (1|M0) f1.0<1>:ud 0xFFFFFFFF:ud",
            f"{forced} mov ({lanes}|M{offset}) r80.0<1>:d r20.0<1;1,0>:d",
            f"{forced} cmp ({lanes}|M{offset}) (gt)f0.0 null<1>:d r20.0<1;1,0>:d 0:w",
            f"{forced} cmp ({lanes}|M{offset}) (lt)f1.0 null<1>:d r20.0<1;1,0>:d 0:w",
            "(W) mov (2|M0) r100.0<1>:ud f0.0<1;1,0>:ud",
        ]
    )

    def check(found: dict[int, np.ndarray]) -> list[str]:
        wrong = []
        got = found[80][0].copy().view("<u4")
        for lane in range(lanes):
            expected = 100 + lane if enabled[lane] else FILL * 0x01010101
            if got[lane] != expected:
                wrong.append(f"lane {lane}: {got[lane]:#x}, expected {expected:#x}")
        flags = found[100][0, :8].copy().view("<u4")
        bits = sum(1 << (lane + offset) for lane in range(lanes) if enabled[lane])
        for name, expected, flag in (("f0", bits, flags[0]), ("f1", ~bits & 0xFFFFFFFF, flags[1])):
            if flag != expected:
                wrong.append(f"{name} is {flag:#x}, expected {expected:#x}")
        return wrong

    name = f"{forced}mov ({lanes}|M{offset}) mask {mask:#x}"
    return Case(name, text, {20: pack(D, values, 1, 0, 2 * product.register)}, {80: 2, 100: 1}, check,
                walk=Walk(mask=mask))  # fmt: skip


def cases(product: Product) -> list[Case]:
    groups = (compares, minima, selections, conditions, predicated)
    found = [operation.build(product) for group in groups for operation in group(product)]
    return [*found, *joined(product), *masked(product)]
