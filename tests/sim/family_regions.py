"""Regions: strides, widths, scalars, parts of registers, indirect operands.

Source: intel/intel-graphics-compiler, documentation/visa/5_operands.md (a region <v;w,h> of a source: element i lies
v * (i / w) + h * (i % w) elements after the origin; of a destination <h>: h * i) and "Introduction to GEN Assembly"
(Intel, 2016): the same, and r[a0.n, offset] with byte addresses.
"""

from collections.abc import Iterator

import numpy as np
from lanes import RESULT, pack
from machine import FILL, Case, Product
from number import HF, UB, UD, UQ, UW, D, F, Integer, Type, W

SOURCE = 20


def region_case(
    product: Product, type: Type, lanes: int, source: tuple[int, int, int, int], result: tuple[int, int]
) -> Case | None:
    """mov of a region (start, v, w, h) to (start, stride); None where two registers do not hold it."""
    start, vertical, width, horizontal = source
    at, stride = result
    size = type.bits // 8
    places = [start + lane // width * vertical + lane % width * horizontal for lane in range(lanes)]
    if (max(places) + 1) * size > 2 * product.register or (
        at + stride * (lanes - 1) + 1
    ) * size > 2 * product.register:
        return None
    if at * size // product.register != 0 or start * size >= product.register:
        return None
    elements = 2 * product.register // size
    data = np.random.default_rng(1).integers(1, 1 << (type.bits - 1), (1, elements), np.uint64)
    text = (
        f"mov ({lanes}|M0) r{RESULT}.{at}<{stride}>:{type.name} "
        f"r{SOURCE}.{start}<{vertical};{width},{horizontal}>:{type.name}"
    )

    def check(found: dict[int, np.ndarray]) -> list[str]:
        expected = np.full(2 * product.register, FILL, np.uint8)
        raw = data.astype("<u8").view(np.uint8).reshape(elements, 8)
        for lane, place in enumerate(places):
            to = (at + lane * stride) * size
            expected[to : to + size] = raw[place, :size]
        got = found[RESULT][0]
        return [
            f"byte {i} is {got[i]:#x}, expected {expected[i]:#x}" for i in np.flatnonzero(got != expected)[:8]
        ]

    return Case(
        text.replace("mov ", ""),
        text,
        {SOURCE: pack(type, data, 1, 0, 2 * product.register)},
        {RESULT: 2},
        check,
    )


def regions(product: Product) -> Iterator[Case]:
    # (v, w, h) with v = w * h are plain strides; others repeat, skip or reverse groups
    shapes = [
        (1, 1, 0),
        (0, 1, 0),
        (2, 1, 0),
        (4, 1, 0),
        (8, 8, 1),
        (4, 4, 1),
        (16, 8, 2),
        (8, 4, 2),
        (2, 2, 1),
    ]
    shapes += [
        (0, 4, 1),
        (0, 8, 1),
        (1, 4, 0),
        (1, 2, 0),
        (2, 4, 0),
        (2, 4, 1),
        (4, 2, 1),
        (8, 2, 4),
        (8, 4, 1),
        (1, 8, 0),
    ]
    types = [UB, UW, W, UD, D, F, HF] + ([UQ] if product.hpc else [])
    for type in types:
        for lanes in (1, 2, 4, 8, 16, 32):
            for shape in shapes:
                if shape[1] > lanes or (lanes == 1 and shape != (0, 1, 0)):
                    continue
                for start, result in ((0, (0, 1)), (3, (0, 2)), (0, (1, 1)), (4, (0, 4))):
                    if type is UB and result[1] == 1 and lanes > 1 and result[0]:
                        continue
                    if type.bits == 64 and (result[1] > 1 or shape[1] > 1 or start):
                        continue  # PRMs restrict regions of 64-bit elements
                    if type in (F, HF) and (shape[1] > 1 and shape[0] != shape[1] * shape[2]):
                        continue  # and of floating-point elements
                    case = region_case(product, type, lanes, (start, *shape), result)
                    if case:
                        yield case


def between(product: Product) -> Iterator[Case]:
    """Operands that cross from one register to the next, and several scalars in one instruction."""
    lanes = product.register // 4
    values = np.arange(1, 2 * lanes + 1, dtype=np.uint64).reshape(1, -1)
    start = lanes // 2
    text = (
        f"add ({lanes}|M0) r{RESULT}.0<1>:d r{SOURCE}.{start}<1;1,0>:d r{SOURCE + 1}.3<0;1,0>:d\n"
        f"(W) add (1|M0) r{RESULT + 1}.{lanes - 1}<1>:d r{SOURCE}.1<0;1,0>:d r{SOURCE}.{lanes - 1}<0;1,0>:d"
    )

    def check(found: dict[int, np.ndarray]) -> list[str]:
        got = found[RESULT][0].copy().view("<i4")
        want = [start + 1 + lane + lanes + 4 for lane in range(lanes)]
        wrong = [] if got[:lanes].tolist() == want else [f"{got[:lanes].tolist()}, expected {want}"]
        if got[-1] != 2 + lanes:
            wrong.append(f"the scalar sum is {got[-1]}, expected {2 + lanes}")
        return wrong

    yield Case(
        "across registers", text, {SOURCE: pack(D, values, 1, 0, 2 * product.register)}, {RESULT: 2}, check
    )


def indirect(product: Product) -> Iterator[Case]:
    """r[a0.n, offset]: one address for all lanes, with a region; an address for each lane; a destination."""
    size = product.register
    lanes = 8
    data = np.random.default_rng(3).integers(1, 1 << 31, (1, 4 * size // 4), np.uint64)
    raw = data[0].tolist()
    inputs = {SOURCE: pack(UD, data, 1, 0, 4 * size)}
    base = SOURCE * size
    for byte, offset in ((0, 0), (8, 4), (size, 0), (size + 4, -4), (2 * size, 12)):
        first = (byte + offset) // 4
        text = f"(W) mov (1|M0) a0.0<1>:uw {base + byte:#x}:uw\n"
        text += f"mov ({lanes}|M0) r{RESULT}.0<1>:ud r[a0.0,{offset}]<1;1,0>:ud"
        yield _indirect(f"r[a0.0,{offset}]<1;1,0> {byte}", text, inputs, raw[first : first + lanes], lanes)
        scalar = text.replace("<1;1,0>:ud", "<0;1,0>:ud")
        yield _indirect(f"r[a0.0,{offset}]<0;1,0> {byte}", scalar, inputs, [raw[first]] * lanes, lanes)
    places = [5, 0, 17, 9, 2, 30, 11, 31]
    addresses = np.array([[base + 4 * place for place in places]], np.uint64)
    inputs = {SOURCE: pack(UD, data, 1, 0, 4 * size), 40: pack(UW, addresses, 1, 0, size)}
    text = f"(W) mov (8|M0) a0.0<1>:uw r40.0<1;1,0>:uw\nmov ({lanes}|M0) r{RESULT}.0<1>:ud r[a0.0]<1,0>:ud"
    yield _indirect("r[a0.0]<1,0>", text, inputs, [raw[place] for place in places], lanes)
    text = (
        f"(W) mov (1|M0) a0.2<1>:uw {RESULT * size + 8:#x}:uw\n"
        f"mov ({lanes}|M0) r[a0.2]<1>:ud r{SOURCE}.0<1;1,0>:ud"
    )
    fill = FILL * 0x01010101
    yield _indirect("destination r[a0.2]", text, inputs, [fill, fill, *raw[:6]], lanes)


def _indirect(name: str, text: str, inputs, want: list[int], lanes: int) -> Case:
    def check(found: dict[int, np.ndarray]) -> list[str]:
        got = found[RESULT][0, : lanes * 4].copy().view("<u4").tolist()
        return [] if got == want else [f"{[hex(x) for x in got]}, expected {[hex(x) for x in want]}"]

    return Case(name, text, dict(inputs), {RESULT: 2}, check)


def cases(product: Product) -> list[Case]:
    return [*regions(product), *between(product), *indirect(product)]


__all__ = ["Integer", "cases"]
