"""2D block messages: plain, VNNI and transposed loads, stores, arrays of blocks, what lies outside.

Sources: intel/intel-graphics-compiler, documentation/visa/instructions/LSC_UNTYPED.md (LOAD_BLOCK2D: places of
elements in registers, zeros as padding; STORE_BLOCK2D), visa/VisaToG4/TranslateSendLdStLsc.cpp (A2DBLOCK_PAYLOAD;
lscBlock2dComputeDataRegs), documentation/igc/SPV_INTEL_2d_block_io/BlockLoadSupportedVariants.md (sizes of
blocks), and the extension it documents, SPV_INTEL_2d_block_io: "out-of-bounds" elements of loads are zero, those
of stores are dropped; base and pitch alignment. Only products with Xe2 or later have these messages here.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from machine import FILL, MEMORY, Case, Product

LOAD_BLOCK2D, STORE_BLOCK2D = 0x03, 0x07
DATA_SIZE = {1: 0, 2: 1, 4: 2, 8: 3}  # bits 11:9
PAYLOAD, DATA, RESULT = 20, 40, 40
BASE = 256  # of the surface in memory


@dataclass(frozen=True)
class Block:
    """A block of a surface; sizes in elements, the surface's width in elements and pitch in bytes."""

    element: int  # bytes
    width: int
    height: int
    count: int = 1
    x: int = 0
    y: int = 0
    surface_width: int = 256
    surface_height: int = 48
    pitch: int = 0
    transpose: bool = False
    vnni: bool = False
    offset_x: int = 0
    offset_y: int = 0

    @property
    def row(self) -> int:
        """Bytes from row to row."""
        return self.pitch or self.surface_width * self.element

    def name(self) -> str:
        kind = "t" * self.transpose + "v" * self.vnni
        offset = f" +({self.offset_x},{self.offset_y})" if self.offset_x or self.offset_y else ""
        return (
            f"d{self.element * 8}{kind} {self.count}x{self.width}x{self.height} at {self.x},{self.y} "
            f"of {self.surface_width}x{self.surface_height}{offset}"
        )

    def payload(self) -> np.ndarray:
        """A2DBLOCK_PAYLOAD."""
        shape = self.width - 1 | self.height - 1 << 8 | self.count - 1 << 16
        return np.frombuffer(
            struct.pack(
                "<Q3I2iI32x",
                MEMORY + BASE,
                self.surface_width * self.element - 1,
                self.surface_height - 1,
                self.row - 1,
                self.x,
                self.y,
                shape,
            ),
            np.uint8,
        ).reshape(1, -1)

    def descriptor(self, operation: int, registers: int) -> int:
        bits = operation | DATA_SIZE[self.element] << 9 | self.transpose << 15 | self.vnni << 7
        return bits | registers << 20 | 1 << 25


def power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def surface(block: Block) -> np.ndarray:
    """Memory with the surface in it, no element zero."""
    size = BASE + block.row * block.surface_height + 1024
    return np.random.default_rng(1).integers(1, 256, size).astype(np.uint8)


def element_at(block: Block, memory: np.ndarray, x: int, y: int) -> np.ndarray:
    """Bytes of an element; zeros outside the surface."""
    if not (0 <= x < block.surface_width and 0 <= y < block.surface_height):
        return np.zeros(block.element, np.uint8)
    at = BASE + y * block.row + x * block.element
    return memory[at : at + block.element]


def loaded(product: Product, block: Block, memory: np.ndarray) -> np.ndarray:
    """Registers after the load, as LSC_UNTYPED.md places elements."""
    per_register = product.register // block.element
    per_dword = 4 // block.element if block.element < 4 else 1
    lines = block.width if block.transpose else block.height
    length = block.height if block.transpose else block.width
    pitch = power_of_two(length)
    if block.vnni:
        lines = -(-lines // per_dword) * per_dword
    size = -(-pitch * lines // per_register) * per_register
    data = np.zeros((block.count * size, block.element), np.uint8)
    x0, y0 = block.x + block.offset_x, block.y + block.offset_y
    for b in range(block.count):
        for y in range(-(-block.height // per_dword) * per_dword if block.vnni else block.height):
            for x in range(block.width):
                if block.transpose:
                    at = x * pitch + y
                elif block.vnni:
                    at = y // per_dword * per_dword * pitch + x * per_dword + y % per_dword
                else:
                    at = y * pitch + x
                if y < block.height:
                    data[b * size + at] = element_at(block, memory, x0 + b * block.width + x, y0 + y)
    return data.reshape(-1)


def load(product: Product, block: Block) -> Case:
    """A block load into registers; more registers than it returns stay as they are."""
    memory = surface(block)
    expected = loaded(product, block, memory)
    registers = len(expected) // product.register
    extended = (block.offset_y & 0x3FF) << 22 | (block.offset_x & 0x3FF) << 12
    bits = block.descriptor(LOAD_BLOCK2D, min(registers, 31))
    text = f"(W) send.ugm (1|M0) r{RESULT} r{PAYLOAD} null:0 {extended:#x} {bits:#x}"

    def check(found: dict[int, np.ndarray], after: bytes) -> list[str]:
        got = found[RESULT][0]
        wanted = np.concatenate([expected, np.full(len(got) - len(expected), FILL, np.uint8)])
        wrong = [] if after == memory.tobytes() else ["a load changed memory"]
        for at in np.flatnonzero(got != wanted)[:8].tolist():
            wrong.append(f"byte {at} is {got[at]:#x}, expected {wanted[at]:#x}")
        return wrong

    return Case(
        f"load {block.name()}",
        text,
        {PAYLOAD: block.payload()},
        {RESULT: registers + 1},
        check,
        memory=memory,
    )


def store(product: Product, block: Block) -> Case:
    """A block store; nothing outside the surface or the block changes."""
    memory = surface(block)
    pitch = power_of_two(block.width)
    size = -(-pitch * block.height * block.element // product.register) * product.register
    data = np.random.default_rng(2).integers(1, 256, (1, size)).astype(np.uint8)
    bits = block.descriptor(STORE_BLOCK2D, 0)
    extended = (block.offset_y & 0x3FF) << 22 | (block.offset_x & 0x3FF) << 12
    registers = size // product.register
    text = f"(W) send.ugm (1|M0) null r{PAYLOAD} r{DATA}:{registers} {extended:#x} {bits:#x}"

    def check(found: dict[int, np.ndarray], after: bytes) -> list[str]:
        expected = memory.copy()
        for y in range(block.height):
            for x in range(block.width):
                to_x, to_y = block.x + block.offset_x + x, block.y + block.offset_y + y
                if 0 <= to_x < block.surface_width and 0 <= to_y < block.surface_height:
                    to = BASE + to_y * block.row + to_x * block.element
                    at = (y * pitch + x) * block.element
                    expected[to : to + block.element] = data[0, at : at + block.element]
        got = np.frombuffer(after, np.uint8)
        return [
            f"memory at {at:#x} is {got[at]:#x}, expected {expected[at]:#x}"
            for at in np.flatnonzero(got != expected)[:8].tolist()
        ]

    return Case(
        f"store {block.name()}", text, {PAYLOAD: block.payload(), DATA: data}, {}, check, memory=memory
    )


def places(element: int, width: int) -> list[dict[str, int]]:
    """Inside, across each border, and outside; x in multiples of a dword."""
    step = max(1, 4 // element)
    return [
        {"x": 4 * step, "y": 3},
        {"x": 256 - step, "y": 5},
        {"x": -step, "y": 0},
        {"x": 8 * step, "y": 47},
        {"x": 8 * step, "y": -1},
        {"x": 256 + step, "y": 1},
        {"x": 0, "y": 64},
        {"x": -step, "y": -1},
    ]


def plain(product: Product) -> Iterator[Case]:
    shapes = {
        1: [(4, 1, 1), (16, 4, 1), (16, 8, 4), (32, 8, 2), (64, 16, 1), (64, 32, 1), (24, 5, 1)],
        2: [(2, 8, 1), (8, 4, 1), (16, 8, 2), (32, 32, 1), (16, 32, 2), (8, 8, 4), (12, 3, 1)],
        4: [(1, 1, 1), (4, 8, 2), (8, 8, 1), (16, 8, 1), (16, 32, 1), (8, 16, 2), (5, 7, 1)],
        8: [(2, 4, 1), (4, 8, 1), (8, 8, 1), (8, 16, 1)],
    }
    for element, sizes in shapes.items():
        for width, height, count in sizes:
            for place in places(element, width):
                yield load(product, Block(element, width, height, count, **place))
                if count == 1 and height <= 8:
                    yield store(product, Block(element, width, height, **place))
    narrow = {"surface_width": 50, "surface_height": 9, "pitch": 256}
    yield load(product, Block(4, 16, 8, x=44, y=4, **narrow))
    yield store(product, Block(4, 16, 8, x=44, y=4, **narrow))


def transformed(product: Product) -> Iterator[Case]:
    for element, sizes in (
        (1, [(16, 4, 1), (16, 32, 1), (8, 8, 2), (16, 16, 2), (4, 4, 1)]),
        (2, [(16, 2, 1), (16, 16, 1), (16, 32, 1), (16, 16, 2), (8, 4, 2), (4, 8, 4)]),
    ):
        for width, height, count in sizes:
            for place in places(element, width):
                yield load(product, Block(element, width, height, count, vnni=True, **place))


def transposed(product: Product) -> Iterator[Case]:
    for element, sizes in (
        (4, [(1, 8), (2, 16), (4, 16), (8, 16), (8, 32), (8, 8), (3, 5)]),
        (8, [(1, 8), (2, 8), (4, 8)]),
    ):
        for width, height in sizes:
            for place in places(element, width):
                yield load(product, Block(element, width, height, transpose=True, **place))


def offsets(product: Product) -> Iterator[Case]:
    """Immediate offsets of Xe2: 10 signed bits for x and y (MessageDecoderLSC.cpp, decodeLscImmOff)."""
    if not product.xe2:
        return
    for x, y in ((16, 0), (0, 8), (-8, -4), (100, 20)):
        block = Block(4, 8, 8, x=32, y=16, offset_x=x, offset_y=y)
        yield load(product, block)
        yield store(product, block)


def cases(product: Product) -> list[Case]:
    if not product.hpc:
        return []
    groups = (plain, transformed, transposed, offsets)
    return [case for group in groups for case in group(product)]
