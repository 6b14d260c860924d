"""Integer arithmetic, logic, shifts and bit fields.

Sources: vISA's instruction pages (intel/intel-graphics-compiler, documentation/visa/instructions/*.md), named
at each group; types that each instruction takes: IGA's models (visa/iga/IGALibrary/Models/bxml/Model*.hpp).
Integer results are exact and then truncated, or clamped with saturation (documentation/visa/2_datatypes.md:
"extra precision is provided within the hardware", "Saturation").
"""

from collections.abc import Iterator

import assembler
from lanes import SKIP, Operation, interesting, pairs, sampled
from machine import Case, Product
from number import UB, UD, UQ, UW, B, D, Integer, Q, W

SMALL = (UB, B, UW, W, UD, D)


def apply(modifier: str, value: int) -> int:
    """A source modifier, in the hardware's extra precision."""
    if "(abs)" in modifier:
        value = abs(value)
    return -value if "-" in modifier else value


def arithmetic(
    op: str,
    compute,
    result: Integer,
    sources: tuple[Integer, ...],
    values,
    modifiers=(),
    saturate=False,
    **more,
) -> Operation:
    """An operation whose result is `compute` of the sources' exact values."""
    modifiers = (*modifiers, *[""] * (len(sources) - len(modifiers)))

    def reference(*bits: int) -> int:
        numbers = [apply(m, type.decode(x)) for m, type, x in zip(modifiers, sources, bits, strict=True)]
        return result.encode(compute(*numbers), saturate)

    return Operation(op, result, sources, values, reference, modifiers=modifiers, saturate=saturate, **more)


def additions(product: Product) -> Iterator[Operation]:
    """ADD.md, AVG.md, ADD3.md: every combination of types, both saturated and not."""
    for a in SMALL:
        for b in SMALL:
            values = sampled(192, 1, interesting(a), interesting(b, 2))
            for result in {a, b, D, UW}:
                if result.bits < min(a.bits, b.bits):
                    continue
                yield arithmetic("add", lambda x, y: x + y, result, (a, b), values)
            # with unsigned and signed sources mixed, the range before saturation is not documented
            if a.signed == b.signed:
                same = a if a.bits >= b.bits else b
                yield arithmetic("add", lambda x, y: x + y, same, (a, b), values, saturate=True)
    for type in SMALL:
        values = pairs(interesting(type), interesting(type, 3))
        for modifiers in (("-", ""), ("", "-"), ("(abs)", ""), ("", "-(abs)"), ("-", "-")):
            if "(abs)" in "".join(modifiers) and not type.signed:
                continue  # of unsigned sources: not documented
            yield arithmetic("add", lambda x, y: x + y, type, (type, type), values, modifiers)
        yield arithmetic("add", lambda x, y: x + y, type, (type, type), values, ("", "-"), True)
        yield arithmetic("avg", lambda x, y: (x + y + 1) >> 1, type, (type, type), values)
    if product.hpc:
        for type in (UQ, Q):
            values = pairs(interesting(type), interesting(type, 3))
            yield arithmetic("add", lambda x, y: x + y, type, (type, type), values)
            yield arithmetic("add", lambda x, y: x + y, type, (type, type), values, ("", "-"))
            for narrow in (D, UD, W, UW):
                values = sampled(128, 4, interesting(type), interesting(narrow))
                yield arithmetic("add", lambda x, y: x + y, type, (type, narrow), values)
    for type in (UW, W, UD, D):
        values = sampled(256, 5, interesting(type), interesting(type, 2), interesting(type, 3))
        yield arithmetic("add3", lambda x, y, z: x + y + z, type, (type,) * 3, values)
        yield arithmetic("add3", lambda x, y, z: x + y + z, type, (type,) * 3, values, ("-", "", "-"))
        yield arithmetic("add3", lambda x, y, z: x + y + z, type, (type,) * 3, values, saturate=True)
    values = sampled(256, 6, interesting(D), interesting(W), interesting(UW))
    yield arithmetic("add3", lambda x, y, z: x + y + z, D, (D, W, UW), values)


def products(product: Product) -> Iterator[Operation]:
    """MUL.md, MAD.md: 16 by 16 and 32 by 16 bits; of two dwords to a qword in IGA's models from Xe3 on."""
    for a in (UW, W):
        for b in (UW, W):
            values = pairs(interesting(a), interesting(b, 2))
            for result in (UW, W, UD, D):
                yield arithmetic("mul", lambda x, y: x * y, result, (a, b), values)
    for a in (UD, D):
        for b in (UW, W):
            values = pairs(interesting(a), interesting(b, 2))
            yield arithmetic("mul", lambda x, y: x * y, a, (a, b), values)
    for type in (UW, W):
        values = pairs(interesting(type), interesting(type, 2))
        yield arithmetic("mul", lambda x, y: x * y, D, (type, type), values, ("-", ""))
    yield arithmetic("mul", lambda x, y: x * y, D, (D, W), pairs(interesting(D), interesting(W)), ("-", ""))
    yield arithmetic(
        "mul", lambda x, y: x * y, D, (D, W), pairs(interesting(D), interesting(W)), ("(abs)", "")
    )
    if not product.hpc:  # "Byte as source type is not allowed on PVC+"
        for a in (UB, B):
            for b in (UB, B):
                values = pairs(interesting(a), interesting(b, 2))
                for result in (UW, W, D):
                    yield arithmetic("mul", lambda x, y: x * y, result, (a, b), values)
    if product.generation >= assembler.XE3:
        for type, long in ((UD, UQ), (D, Q)):
            values = pairs(interesting(type), interesting(type, 2))
            yield arithmetic("mul", lambda x, y: x * y, long, (type, type), values)
    for type in (UW, W):
        values = sampled(256, 7, interesting(type), interesting(type, 2), interesting(type, 3))
        yield arithmetic("mad", lambda x, y, z: x + y * z, type, (type,) * 3, values)
        values = sampled(256, 7, interesting(D), interesting(type, 2), interesting(type, 3))
        yield arithmetic("mad", lambda x, y, z: x + y * z, D, (D, type, type), values)
        yield arithmetic("mad", lambda x, y, z: x + y * z, D, (D, type, type), values, ("", "-", ""))
        values = sampled(256, 8, interesting(D), interesting(D, 2), interesting(type, 3))
        yield arithmetic("mad", lambda x, y, z: x + y * z, D, (D, D, type), values)


def long_products(product: Product) -> Iterator[Operation]:
    """mul + mach or macl: the halves of a 64-bit product (MULH.md; HWConformity.cpp, generateMacl).

    mach leaves the lower half in the accumulator, from where IGC's sequences for products of 64 bits move it.
    Before Xe-HPC the low half is mach without AccWrEn (BinaryEncodingIGA.cpp: "G4_mach ... Op::MACL").
    """
    register = product.register
    lanes = register // 4
    for type in (UD, D):
        values = pairs(interesting(type), interesting(type, 2))
        first = f"mul ({lanes}|M0) acc0.0<1>:{type.name} r20.0<1;1,0>:{type.name} r40.0<2;1,0>:uw"

        def high(x: int, y: int) -> int:
            return (x * y) >> 32

        annotation = "" if product.hpc else " {AccWrEn}"
        keep = [f"mov ({lanes}|M0) r80.0<1>:{type.name} acc0.0<1;1,0>:{type.name}"]
        for compute, after, label in ((high, [], ""), (lambda x, y: x * y, keep, "accumulator")):
            case = arithmetic(
                "mach",
                compute,
                type,
                (type, type),
                values,
                lanes=lanes,
                before=[first],
                after=after,
                label=label,
            )
            yield _annotated(case, annotation) if annotation else case
        low = "macl" if product.hpc else "mach"
        yield arithmetic(
            low, lambda x, y: x * y, type, (type, type), values, lanes=lanes, before=[first], label="low half"
        )


def _annotated(case: Operation, annotation: str) -> Operation:
    plain = case._instruction

    def instruction(*arguments) -> str:
        return plain(*arguments) + annotation

    case._instruction = instruction  # type: ignore[method-assign]
    return case


def carries(product: Product) -> Iterator[Operation]:
    """ADDC.md, SUBB.md: the sum in the destination, the carry or borrow (0 or 1) in acc0."""
    lanes = product.register // 4
    values = pairs(interesting(UD), interesting(UD, 2))
    keep = [f"mov ({lanes}|M0) r80.0<1>:ud acc0.0<1;1,0>:ud"]
    yield arithmetic("addc", lambda x, y: x + y, UD, (UD, UD), values, lanes=lanes)
    yield arithmetic("subb", lambda x, y: x - y, UD, (UD, UD), values, lanes=lanes)
    yield arithmetic(
        "addc", lambda x, y: (x + y) >> 32, UD, (UD, UD), values, lanes=lanes, after=keep, label="carry"
    )
    yield arithmetic(
        "subb", lambda x, y: x < y, UD, (UD, UD), values, lanes=lanes, after=keep, label="borrow"
    )


def logic(product: Product) -> Iterator[Operation]:
    """AND.md, OR.md, XOR.md, NOT.md; BFN.md for all 256 functions."""
    functions = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}
    for type in SMALL:
        values = pairs(interesting(type), interesting(type, 2))
        for op, compute in functions.items():
            for modifiers in (("", ""), ("~", ""), ("", "~"), ("~", "~")):
                yield _bitwise(op, compute, type, values, modifiers)
        yield Operation("not", type, (type,), [(x,) for x in interesting(type)], _not(type))
        yield Operation("mov", type, (type,), [(x,) for x in interesting(type)], lambda x: x, label="copy")
    for code in range(256):
        type = UW if code % 5 == 0 else UD
        values = sampled(64, code, *(interesting(type, seed) for seed in (1, 2, 3)))
        values += [tuple(-(i >> bit & 1) & ((1 << type.bits) - 1) for bit in range(3)) for i in range(8)]
        yield Operation(f"bfn.0x{code:X}", type, (type,) * 3, values, _bfn(code, type))


def _bitwise(op: str, compute, type: Integer, values, modifiers) -> Operation:
    def reference(x: int, y: int) -> int:
        x = ~x if modifiers[0] else x
        y = ~y if modifiers[1] else y
        return type.encode(compute(x, y))

    return Operation(op, type, (type, type), values, reference, modifiers=modifiers)


def _not(type: Integer):
    return lambda x: type.encode(~x)


def _bfn(code: int, type: Integer):
    def reference(x: int, y: int, z: int) -> int:
        result = 0
        for bit in range(type.bits):
            index = (x >> bit & 1) + (y >> bit & 1) * 2 + (z >> bit & 1) * 4
            result |= (code >> index & 1) << bit
        return result

    return reference


def shifts(product: Product) -> Iterator[Operation]:
    """SHL.md, SHR.md, ASR.md ("the last 5 (or 6 for Q type) LSB bits of src1"), ROL.md, ROR.md."""
    counts = {
        UD: [0, 1, 4, 15, 16, 17, 31, 32, 33, 63, 64, 0xFFFFFFFF],
        W: [0, 1, 7, 8, 15, 16, 31, 32, 0xFFFF],
    }
    for type in (UW, W, UD, D):
        for count_type in (UD, W):
            for op in ("shl", "shr" if not type.signed else "asr"):
                values = pairs(interesting(type), counts[count_type])
                yield _shift(op, type, (type, count_type), values, 31)
    yield _shift("shl", D, (UW, UW), pairs(interesting(UW), [0, 1, 8, 15, 16, 17, 31]), 31)
    yield _shift("asr", D, (W, UW), pairs(interesting(W), [0, 1, 8, 15, 16, 17, 31]), 31)
    for type in (UD, D, UW):
        values = [(x, 1) for x in interesting(type)]  # "the shifted result must be within 33 bits"
        yield _shift("shl", type, (type, UW), values, 31, saturate=True)
    # that a shift negates the least integer in extra precision is not documented
    negatable = [x for x in interesting(D) if x != 1 << 31]
    yield _shift("asr", D, (D, UW), pairs(negatable, [0, 1, 30, 31]), 31, ("-", ""))
    if product.hpc:
        long_counts = [0, 1, 31, 32, 33, 63, 64, 65]
        for type, op in ((Q, "shl"), (UQ, "shl"), (Q, "asr"), (UQ, "shr")):
            yield _shift(op, type, (type, UD), pairs(interesting(type), long_counts), 63)
            yield _shift(op, type, (type, type), pairs(interesting(type), long_counts), 63)
    rotated = [UW, UD] + ([UQ] if product.hpc else [])
    for type in rotated:
        values = pairs(interesting(type), [0, 1, 7, 8, 15, 16, 17, 31, 32, 40, 63, 64, 255])
        values = [(x, n & ((1 << type.bits) - 1)) for x, n in values]
        mask = type.bits - 1

        def left(x: int, n: int, type=type, mask=mask) -> int:
            n &= mask
            return type.encode(x << n | x >> (type.bits - n))

        def right(x: int, n: int, type=type, mask=mask) -> int:
            n &= mask
            return type.encode(x >> n | x << (type.bits - n))

        yield Operation("rol", type, (type, type), values, left)
        yield Operation("ror", type, (type, type), values, right)


def _shift(op: str, type: Integer, sources, values, mask: int, modifiers=(), saturate=False) -> Operation:
    def compute(x: int, n: int) -> int:
        n &= mask
        return x << n if op == "shl" else x >> n

    return arithmetic(op, compute, type, sources, values, modifiers, saturate)


def bit_fields(product: Product) -> Iterator[Operation]:
    """BFE.md, BFI.md (bfi1 makes the mask, bfi2 inserts), BFREV.md, CBIT.md, FBH.md, FBL.md, LZD.md."""
    sizes = [0, 1, 3, 8, 15, 16, 17, 30, 31, 32, 33, 0xFFFFFFFF]
    for type in (UD, D):
        values = sampled(512, 9, sizes, sizes, interesting(type))
        yield Operation("bfe", type, (type,) * 3, values, _bfe(type))
    yield Operation("bfi1", UD, (UD, UD), pairs(sizes, sizes), _bfi1)
    masks = [_bfi1(width, offset) for width in (1, 5, 8, 16, 31) for offset in (0, 3, 16, 28)]
    values = sampled(384, 10, [*masks, 0], interesting(UD), interesting(UD, 2))
    yield Operation("bfi2", UD, (UD,) * 3, values, _bfi2)
    words = [
        (x,) for x in [*interesting(UD), *(1 << i for i in range(32)), *(0xFFFFFFFF >> i for i in range(32))]
    ]
    yield Operation("bfrev", UD, (UD,), words, lambda x: int(f"{x:032b}"[::-1], 2))
    for type in (UD, UW, UB):
        values = [(x,) for x in interesting(type)] + [(x & ((1 << type.bits) - 1),) for (x,) in words]
        yield Operation("cbit", UD, (type,), values, lambda x: x.bit_count())
    yield Operation("lzd", UD, (UD,), words, lambda x: 32 - x.bit_length())
    yield Operation("fbl", UD, (UD,), words, lambda x: (x & -x).bit_length() - 1 if x else 0xFFFFFFFF)
    yield Operation("fbh", UD, (UD,), words, lambda x: 32 - x.bit_length() if x else 0xFFFFFFFF)
    words += [(0xFFFFFFFF ^ x,) for (x,) in words]
    yield Operation("fbh", UD, (D,), words, _fbh)


def _bfe(type: Integer):
    def reference(width: int, offset: int, value: int) -> int:
        width, offset = width & 31, offset & 31
        shifted = type.decode(value) >> offset
        if width == 0:
            return 0
        field = shifted & ((1 << width) - 1)
        if not type.signed:
            return field
        if offset + width > 32:
            return SKIP  # a signed field beyond bit 31: BFE.md does not say which bit is its sign
        return type.encode(field - (field >> (width - 1) << width))

    return reference


def _bfi1(width: int, offset: int) -> int:
    return ((1 << (width & 31)) - 1 << (offset & 31)) & 0xFFFFFFFF


def _bfi2(mask: int, insert: int, base: int) -> int:
    if mask == 0:
        return base
    offset = (mask & -mask).bit_length() - 1
    return (insert << offset & mask) | (base & ~mask & 0xFFFFFFFF)


def _fbh(x: int) -> int:
    if x in (0, 0xFFFFFFFF):
        return 0xFFFFFFFF
    if x >> 31:
        x ^= 0xFFFFFFFF
    return 32 - x.bit_length()


def dot_products(product: Product) -> Iterator[Operation]:
    """DP4A.md: bytes of src1 and src2 by their types, added to src0."""
    for a in (UD, D):
        for b in (UD, D):
            values = sampled(384, 11, interesting(D), interesting(UD, 4), interesting(UD, 5))
            values += [
                (0x7FFFFFFF, 0x7F7F7F7F, 0x7F7F7F7F),
                (0, 0x80808080, 0x80808080),
                (0, 0xFFFFFFFF, 0xFFFFFFFF),
            ]
            results = (D, UD) if not a.signed and not b.signed else (D,)
            for result in results:
                for saturate in (False, True):
                    yield Operation(
                        "dp4a",
                        result,
                        (result, a, b),
                        values,
                        _dp4a(result, a, b, saturate),
                        saturate=saturate,
                    )


def _dp4a(result: Integer, a: Integer, b: Integer, saturate: bool):
    bytes_a, bytes_b = (B if a.signed else UB), (B if b.signed else UB)

    def reference(x: int, y: int, z: int) -> int:
        total = result.decode(x)
        for i in range(0, 32, 8):
            total += bytes_a.decode(y >> i) * bytes_b.decode(z >> i)
        return result.encode(total, saturate)

    return reference


def cases(product: Product) -> list[Case]:
    groups = (additions, products, long_products, carries, logic, shifts, bit_fields, dot_products)
    return [operation.build(product) for group in groups for operation in group(product)]
