"""mov: conversions between all types that IGA's models list, raw moves, immediates.

Sources: intel/intel-graphics-compiler, documentation/visa/2_datatypes.md ("Type Conversion", "Saturation"),
instructions/FCVT.md (bf8, tf32), visa/iga/IGALibrary/Models/bxml/Model*.hpp (types of mov),
visa/VisaToG4/TranslateMath.cpp and Optimizer.cpp ("mov instructions with the same source and destination data
type may retain denorm as output": such results of flushing are not tested).
"""

from collections.abc import Iterator

import assembler
import number
from lanes import SKIP, AnyOf, Operation, denormals, interesting, modes
from machine import Case, Product
from number import BF, BF8, DF, EVEN, HF, HF8, TF32, UB, UD, UQ, UW, B, D, F, Format, Integer, Q, Type, W

SMALL = (UB, B, UW, W, UD, D)
MODES = {"even": EVEN, "up": number.UP, "down": number.DOWN, "zero": number.ZERO}


def table(product: Product) -> list[tuple[Type, Type]]:
    """Pairs (destination, source) of mov in IGA's models."""
    found = [(to, source) for to in SMALL for source in SMALL]
    found += [(F, source) for source in SMALL] + [(to, F) for to in SMALL]
    found += [(HF, source) for source in SMALL] + [(to, HF) for to in SMALL]
    found += [(F, F), (HF, HF), (HF, F), (F, HF), (BF, F)]
    if product.hpc:
        found += [(TF32, F), (BF8, HF), (HF, BF8)]
        if product.generation >= assembler.XE3:  # IGA encodes hf8 for Xe3 only
            found += [(HF8, HF), (HF, HF8)]
        found += [(to, DF) for to in (DF, F, UQ, Q, UW, W, UD, D)]
        found += [(DF, source) for source in (F, UQ, Q, UW, W, UD, D)]
        found += [(to, source) for to in (UQ, Q, F, UW, W, UD, D) for source in (UQ, Q)]
        found += [(to, source) for to in (UQ, Q) for source in (F, UW, W, UD, D)]
    return found


def convert(to: Type, source: Type, bits: int, mode: int, saturate: bool):
    """The result of a mov with modes that keep denormals."""
    if isinstance(source, Integer):
        value = source.decode(bits)
        if isinstance(to, Integer):
            return to.encode(value, saturate)
        exact = number.real(value)
    else:
        exact = source.decode(bits)
        if isinstance(to, Integer):
            return to.encode(number.to_integer(exact, to))
    if saturate:
        clamped = to.encode(number.saturate(exact), mode)
        return AnyOf([0, 1 << (to.bits - 1)]) if clamped == 0 else clamped
    return to.encode(exact, mode)


def values_of(to: Type, source: Type) -> list[int]:
    """Limits of the destination as values of the source, and what is interesting anyway."""
    values = interesting(source)
    if isinstance(source, Integer):
        return values
    values += denormals(source)
    if isinstance(to, Integer):
        edges = [to.most + step for step in (-1, 0, 1)] + [to.least + step for step in (-1, 0, 1)]
        edges += [2**31, 2**32, 2**63, 2**64, 2**15, 2**16, -1, 255, 256]
        exact = [number.real(x) for x in edges]
        exact += [number.real(x / 2) for x in range(-7, 8)] + [
            number.real(x + 0.5) for x in (126, 127, 254, 255)
        ]
    else:
        exact = _ties(to)
    return values + [bits for x in exact if (bits := source.encode(x)) is not None]


def _ties(to: Format) -> list[number.Real]:
    """Halfway between neighbors, next to it, around overflow and underflow."""
    found = []
    one = to.bias << to.mantissa
    for bits in (one, one + 1, one + 2, (to.top << to.mantissa) - 2, 1, 2, (1 << to.mantissa) - 1, 0):
        low, high = to.decode(bits << to.low).value, to.decode(bits + 1 << to.low).value
        middle = (low + high) / 2
        step = (high - low) / 64
        found += [number.real(x) for x in (middle, middle - step, middle + step, -middle, -middle - step)]
    most = to.decode((to.top << to.mantissa) - 1 << to.low).value
    half = (most - to.decode((to.top << to.mantissa) - 2 << to.low).value) / 2
    found += [number.real(x) for x in (most, most + half, most + half / 2, most * 2, -most - half, -most * 2)]
    return found


def conversions(product: Product) -> Iterator[Operation]:
    """Every pair, saturated too; to smaller floating-point types with every rounding mode."""
    for to, source in table(product):
        values = [(x,) for x in values_of(to, source)]
        for saturate in (False, True):
            if saturate and (
                to in (BF8, HF8, TF32, BF)
                or source in (BF8, HF8)
                or (to == source and isinstance(to, Integer))
            ):
                continue
            yield _move(to, source, values, EVEN, saturate)
        if isinstance(to, Format) and to != source and to not in (BF8, HF8, TF32, BF):
            for label, mode in MODES.items():
                if mode != EVEN:
                    yield _move(to, source, values, mode, False, label)


def _move(to: Type, source: Type, values, mode: int, saturate: bool, label: str = "") -> Operation:
    def reference(bits: int):
        if isinstance(source, Format):
            if source.is_denormal(bits) and (to in (TF32, BF) or saturate):
                return SKIP
            if to == source and not saturate:
                return bits  # same type: nothing is converted
            if to in (BF8, HF8) and _overflows(to, bits):
                return SKIP  # FCVT.md does not say whether large numbers become infinities
            if source == HF8 and bits & 0x78 == 0x78:
                return SKIP  # nor what the largest exponent of hf8 stands for
        result = convert(to, source, bits, mode, saturate)
        if to in (TF32, BF) and isinstance(result, int) and to.is_denormal(result):
            return SKIP
        return result

    setting = {} if mode == EVEN else {"before": modes(mode), "after": modes()}
    return Operation("mov", to, (source,), values, reference, saturate=saturate, label=label, **setting)


def _overflows(to: Format, bits: int) -> bool:
    x = HF.decode(bits)
    most = to.decode((to.top << to.mantissa) - 1).value
    return x.kind == "inf" or (x.kind == "finite" and abs(x.value) > most) or (to == HF8 and x.kind == "nan")


def modified(product: Product) -> Iterator[Operation]:
    """Source modifiers of mov."""
    for type in (B, W, D):
        values = [(x,) for x in interesting(type)]
        for modifier in ("-", "(abs)", "-(abs)"):

            def integer(bits: int, type=type, modifier=modifier) -> int:
                x = type.decode(bits)
                x = abs(x) if "(abs)" in modifier else x
                return type.encode(-x if "-" in modifier else x)

            yield Operation("mov", type, (type,), values, integer, modifiers=(modifier,))
    for type in (F, HF, *([DF] if product.hpc else [])):
        values = [(x,) for x in interesting(type)]
        sign = 1 << (type.bits - 1)
        for modifier in ("-", "(abs)", "-(abs)"):

            def floating(bits: int, type=type, modifier=modifier, sign=sign):
                if type.is_nan(bits):
                    return None
                bits = bits & ~sign if "(abs)" in modifier else bits
                return bits ^ sign if "-" in modifier else bits

            yield Operation("mov", type, (type,), values, floating, modifiers=(modifier,))


def immediates(product: Product) -> Iterator[Operation]:
    """Immediate operands: scalars, and the packed vectors v, uv (2_datatypes.md) and vf.

    v and uv have an element for each word of the destination, so that fewer than 8 dwords take every other
    one: intel-graphics-compiler, visa/ReduceExecSize.cpp ("mov (2) r1.0<1>:d 0x21:uv" becomes "0x0201:uv").
    """
    for text, type, lanes in (
        ("0x12345678:ud", UD, [0x12345678] * 8),
        ("-5:d", D, [0xFFFFFFFB] * 8),
        ("-5:w", W, [0xFFFB] * 8),
        ("0xFFFF:uw", UW, [0xFFFF] * 8),
        ("1.5:f", F, [0x3FC00000] * 8),
        ("0x3C00:hf", HF, [0x3C00] * 8),
        ("0x76543210:uv", UW, list(range(8))),
        ("0xFEDCBA98:uv", UW, list(range(8, 16))),
        ("0xFEDC7210:v", W, [0, 1, 2, 7, 0xFFFC, 0xFFFD, 0xFFFE, 0xFFFF]),
        ("0x48403000:vf", F, [0, 0x3F800000, 0x40000000, 0x40400000] * 2),
        ("-5:w", D, [0xFFFFFFFB] * 8),
        ("0x8000:uw", D, [0x8000] * 8),
        ("0xC080400:uv", UD, [0, 4, 8, 12]),
        ("0x201:uv", UD, [1, 2]),
        ("0xF010E00:v", D, [0, 0xFFFFFFFE, 1, 0xFFFFFFFF]),
    ):
        count = len(lanes)
        operation = Operation(
            "mov", type, (UD,), [(i,) for i in range(count)], lanes.__getitem__, lanes=count, label=text
        )
        operation._instruction = lambda *_, text=text, type=type, count=count: (
            f"mov ({count}|M0) r80.0<1>:{type.name} {text}"
        )
        operation._strides = lambda: (1, [1])
        yield operation


def cases(product: Product) -> list[Case]:
    groups = (conversions, modified, immediates)
    return [operation.build(product) for group in groups for operation in group(product)]
