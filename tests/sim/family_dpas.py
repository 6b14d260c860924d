"""dpas: systolic products of matrices.

Source: intel/intel-graphics-compiler, documentation/visa/instructions/DPAS.md (layout of operands, precisions,
accumulation in dwords; "XEHP+ only supports a systolic depth of 8"; 16 lanes from Xe-HPC on, else 8).
The order of additions of floating-point products is not documented: values are small integers, whose sums are
exact in any order. Integer sums wrap.
"""

import zlib
from collections.abc import Iterator

import number
import numpy as np
from lanes import matches, show
from machine import Case, Product
from number import BF, HF, TF32, UD, D, F, Format, Integer

DEPTH = 8
PRECISIONS = {
    "u8": Integer("ub", 8, False), "s8": Integer("b", 8, True), "u4": Integer("u4", 4, False),
    "s4": Integer("s4", 4, True), "u2": Integer("u2", 2, False), "s2": Integer("s2", 2, True),
    "bf": BF, "hf": HF, "tf32": TF32,
}  # fmt: skip
IGA_NAMES = {"u8": "ub", "s8": "b"}  # how IGA writes precisions; others by their own name


def bits_of(type, value: int) -> int:
    """A small integer in the format."""
    if isinstance(type, Format):
        bits = type.encode(number.real(value))
        assert bits is not None
        return bits
    return type.encode(value)


def layout(values: list[int], bits: int) -> np.ndarray:
    """Packs elements from the low bits on."""
    total = 0
    for i, value in enumerate(values):
        total |= value << (i * bits)
    return np.frombuffer(total.to_bytes(len(values) * bits // 8, "little"), np.uint8)


def product_case(product: Product, result, b_name: str, a_name: str, repeat: int, initial: str) -> Case:
    """dst[repeat x lanes] = src0 + src2[repeat x k] * src1[k x lanes]."""
    b_type, a_type = PRECISIONS[b_name], PRECISIONS[a_name]
    lanes = product.register // 4
    per_channel = 8 if max(b_type.bits, a_type.bits) <= 4 else 32 // max(b_type.bits, a_type.bits)
    if isinstance(b_type, Integer) and per_channel != 8:
        per_channel = 4
    k = DEPTH * per_channel
    random = np.random.default_rng(zlib.crc32(f"{b_name} {a_name} {repeat}".encode()))
    a = _numbers(random, a_type, (repeat, k))
    b = _numbers(random, b_type, (k, lanes))
    c = np.zeros((repeat, lanes), np.int64)
    if initial != "null":
        limit = 100 if isinstance(result, Format) else 1 << 30
        c = random.integers(0 if result is UD else -limit, limit, (repeat, lanes))
    exact = c + a @ b

    def check(found: dict[int, np.ndarray]) -> list[str]:
        size = result.bits // 8
        got = found[80][0][: repeat * lanes * size].copy().view(f"<u{size}").reshape(repeat, lanes).tolist()
        wrong = []
        for row in range(repeat):
            for lane in range(lanes):
                want = bits_of(result, int(exact[row, lane]))
                if not matches(result, got[row][lane], want):
                    wrong.append(
                        f"row {row} lane {lane}: {show(result, got[row][lane])}, expected {show(result, want)}"
                    )
        return wrong

    registers = max(1, repeat * lanes * result.bits // 8 // product.register)
    inputs = {
        20: layout([bits_of(result, int(x)) for x in c.flatten()], result.bits).reshape(1, -1),
        40: _columns(b, b_type),
        60: layout([bits_of(a_type, int(x)) for x in a.flatten()], a_type.bits).reshape(1, -1),
    }
    source = "null" if initial == "null" else "r20"
    names = [IGA_NAMES.get(name, name) for name in (b_name, a_name)]
    text = (
        f"dpas.{DEPTH}x{repeat} ({lanes}|M0) r80:{result.name} {source}:{result.name} "
        f"r40:{names[0]} r60.0:{names[1]}"
    )
    name = f"dpas {result.name} {b_name} {a_name} x{repeat}{' null' if initial == 'null' else ''}"
    return Case(name, text, inputs, {80: registers}, check)


def rounded_case(product: Product, name: str) -> Case:
    """Ordinary values: sums within the rounding errors of any order of additions in f."""
    type = PRECISIONS[name]
    lanes, k, repeat = product.register // 4, DEPTH * 32 // type.bits, 8
    random = np.random.default_rng(6)
    shapes = ((repeat, k), (k, lanes), (repeat, lanes))
    formats = (type, type, F)
    bits, values = [], []
    for shape, format in zip(shapes, formats, strict=True):
        flat = [format.encode(number.real(float(x))) for x in random.standard_normal(shape).flatten()]
        bits.append(np.array(flat, np.uint64).reshape(shape))
        values.append(np.array([float(format.decode(x).value) for x in flat]).reshape(shape))
    a, b, c = values
    exact, bound = c + a @ b, (abs(c) + abs(a) @ abs(b)) * (k + 2) * 2.0**-23

    def check(found: dict[int, np.ndarray]) -> list[str]:
        got = found[80][0][: repeat * lanes * 4].copy().view("<f4").reshape(repeat, lanes)
        wrong = np.argwhere(~(abs(got - exact) <= bound))
        return [f"row {r} lane {n}: {got[r, n]}, expected {exact[r, n]}" for r, n in wrong]

    inputs = {
        20: layout(bits[2].flatten().tolist(), 32).reshape(1, -1),
        40: _columns_of_bits(bits[1], type),
        60: layout(bits[0].flatten().tolist(), type.bits).reshape(1, -1),
    }
    text = f"dpas.{DEPTH}x{repeat} ({lanes}|M0) r80:f r20:f r40:{name} r60.0:{name}"
    registers = repeat * lanes * 4 // product.register
    return Case(f"dpas f {name} x8, ordinary values", text, inputs, {80: registers}, check)


def _columns_of_bits(bits: np.ndarray, type) -> np.ndarray:
    columns = [layout(column.tolist(), type.bits).reshape(-1, 4) for column in bits.T]
    return np.stack(columns, axis=1).reshape(1, -1)


def _numbers(random: np.random.Generator, type, shape: tuple[int, int]) -> np.ndarray:
    if isinstance(type, Format):
        return random.integers(-4, 5, shape)
    return random.integers(type.least, type.most + 1, shape)


def _columns(b: np.ndarray, type) -> np.ndarray:
    """Src1: column n of B fills channel n's dword of successive registers."""
    return _columns_of_bits(np.array([[bits_of(type, int(x)) for x in row] for row in b], np.uint64), type)


def cases(product: Product) -> list[Case]:
    return list(_cases(product))


def _cases(product: Product) -> Iterator[Case]:
    integers = ("u8", "s8", "u4", "s4", "u2", "s2")
    for b in integers:
        for a in integers:
            for repeat in (1, 2, 4, 8):
                yield product_case(product, D, b, a, repeat, "r20")
    for repeat in (3, 5, 6, 7):
        yield product_case(product, D, "s8", "u8", repeat, "r20")
    yield product_case(product, UD, "u8", "u8", 8, "r20")
    yield product_case(product, D, "s8", "s8", 8, "null")
    for name, type in (("bf", BF), ("hf", HF)):
        for repeat in range(1, 9):
            yield product_case(product, F, name, name, repeat, "r20")
            yield product_case(product, F, name, name, repeat, "null")
        yield rounded_case(product, name)
        if product.hpc:
            for repeat in (1, 2, 4, 8):
                yield product_case(product, type, name, name, repeat, "r20")
    if product.hpc:
        yield rounded_case(product, "tf32")
        for repeat in range(1, 9):
            yield product_case(product, F, "tf32", "tf32", repeat, "r20")
