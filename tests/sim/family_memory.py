"""LSC messages: loads, stores, atomics, local memory, barriers.

Sources: intel/intel-graphics-compiler, documentation/visa/instructions/LSC_UNTYPED.md (semantics of each
operation), visa/iga/IGALibrary/Backend/Messages/MessageDecoderLSC.cpp (bits of descriptors; "upper bits are
undefined" of d8u32 and d16u32 before Xe2, "zero-extend" from Xe2 on; immediate offsets of Xe2).

Not tested, since not documented: what idec returns, fmin and fmax of NaN, the order of atomics of lanes that
share an address (only sums are looked at).
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import assembler
import number
import numpy as np
from lanes import pack, unpack
from machine import FILL, MEMORY, Case, Product, Walk
from number import DF, HF, UD, UQ, UW, D, F, Format, Integer, Q, Type

LOAD, LOAD_QUAD, STORE, STORE_QUAD = 0x00, 0x02, 0x04, 0x06
D8, D16, D32, D64, D8U32, D16U32, D16U32H = range(7)
A16, A32, A64 = 1, 2, 3
VECTOR = {1: 0, 2: 1, 3: 2, 4: 3, 8: 4, 16: 5, 32: 6, 64: 7}
MEMORY_BYTES = {D8: 1, D16: 2, D32: 4, D64: 8, D8U32: 1, D16U32: 2, D16U32H: 2}
REGISTER_BYTES = {D8: 1, D16: 2, D32: 4, D64: 8, D8U32: 4, D16U32: 4, D16U32H: 4}
DATA_NAMES = {
    D8: "d8",
    D16: "d16",
    D32: "d32",
    D64: "d64",
    D8U32: "d8u32",
    D16U32: "d16u32",
    D16U32H: "d16u32h",
}
ADDRESSES, DATA, DATA2, RESULT = 20, 40, 60, 80
SIZE = 8192  # bytes of memory


@dataclass(frozen=True)
class Message:
    """One LSC message."""

    operation: int
    data: int
    vector: int = 1  # or, of quads, the mask of components
    address: int = A64
    lanes: int = 16
    transposed: bool = False
    unit: str = "ugm"
    offset: int = 0  # immediate
    surface: int | None = None  # entry of the binding table; 255: none, addresses are absolute
    list_at: int | None = None  # Xe3: the quadword of s0 that lists the payload's registers

    @property
    def quad(self) -> bool:
        return self.operation in (LOAD_QUAD, STORE_QUAD)

    @property
    def components(self) -> int:
        return self.vector.bit_count() if self.quad else self.vector

    def registers(self, product: Product, bytes_: int) -> int:
        """Of one component: lanes of a message fill whole registers, at least one."""
        lanes = 1 if self.transposed else max(self.lanes, product.register // 4)
        return max(1, lanes * bytes_ // product.register)

    def data_registers(self, product: Product) -> int:
        if self.transposed:
            return max(1, self.vector * REGISTER_BYTES[self.data] // product.register)
        return self.components * self.registers(product, REGISTER_BYTES[self.data])

    def address_registers(self, product: Product) -> int:
        return 1 if self.transposed else self.registers(product, 2 << (self.address - 1))

    def text(self, product: Product, loads: bool, data: int, forced: str = "") -> str:
        """IGA's text; data: registers of src1."""
        vector = self.vector << 12 if self.quad else VECTOR[self.vector] << 12
        bits = self.operation | self.address << 7 | self.data << 9 | vector | self.transposed << 15
        bits |= (self.data_registers(product) if loads else 0) << 20
        bits |= self.address_registers(product) << 25
        result = f"r{RESULT}" if loads else "null"
        source = f"r{DATA}:{data}" if data else "null:0"
        extended = self.offset << 12 & 0xFFFFFFFF
        if self.surface is not None:
            extended |= self.surface << 24
            bits |= 3 << 29
        mask = f"{forced or '(W)' if self.transposed else forced}"
        send = f"{mask} send.{self.unit} ({1 if self.transposed else self.lanes}|M0) {result}"
        if self.list_at is None:
            return f"{send} r{ADDRESSES} {source} {extended:#x} {bits:#x}"
        payload = [*range(ADDRESSES, ADDRESSES + self.address_registers(product)), *range(DATA, DATA + data)]
        numbers = int.from_bytes(bytes(payload), "little")
        return (
            f"(W) mov (1|M0) s0.{self.list_at}<1>:uq {numbers:#x}:uq\n"
            f"{send} r[s0.{8 * self.list_at}] {extended:#x} {bits + (data << 25):#x}"
        )


def memory_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, SIZE).astype(np.uint8)


def scattered(lanes: int, step: int, seed: int) -> np.ndarray:
    """Different offsets in the upper half of memory, aligned to `step`."""
    random = np.random.default_rng(seed)
    return SIZE // 2 + random.permutation(SIZE // 4 // step)[:lanes] * step


def address_input(message: Message, product: Product, offsets: np.ndarray, base: int) -> np.ndarray:
    type = {A16: UW, A32: UD, A64: UQ}[message.address]
    registers = message.address_registers(product)
    values = np.array([[base + int(x) for x in offsets]], np.uint64)
    return pack(type, values, 1, 0, registers * product.register)


def aligned(message: Message) -> int:
    """Bytes that addresses are multiples of."""
    step = MEMORY_BYTES[message.data] * (4 if message.quad else message.vector)
    return 1 << max(0, (step - 1).bit_length())


def component_bytes(message: Message, memory: np.ndarray, at: int) -> list[bytes]:
    """Data elements at an address, one for each component."""
    size = MEMORY_BYTES[message.data]
    wanted = [i for i in range(4) if message.vector >> i & 1] if message.quad else range(message.vector)
    return [memory[at + i * size : at + (i + 1) * size].tobytes() for i in wanted]


def in_register(product: Product, data: int, element: bytes) -> list[int | None]:
    """Bytes of a register element that a load writes; None: undefined or kept."""
    if data in (D8U32, D16U32):
        rest: list[int | None] = [0 if product.xe2 else None] * (4 - len(element))
        return [*element, *rest]
    if data == D16U32H:
        return [None, None, *element]
    return list(element)


def loads(product: Product, message: Message, mask: int = 0xFFFFFFFF) -> Case:
    """A load from scattered addresses; lanes that are off keep the destination."""
    memory = memory_of(1)
    lanes = 1 if message.transposed else message.lanes
    offsets = scattered(lanes, aligned(message), 2)
    base = MEMORY - message.offset
    registers = message.data_registers(product)
    size = REGISTER_BYTES[message.data]

    def check(found: dict[int, np.ndarray], after: bytes) -> list[str]:
        got = found[RESULT][0]
        wrong = [] if after == memory.tobytes() else ["a load changed memory"]
        expected: list[int | None] = [None] * len(got)
        if lanes * size >= product.register or message.transposed or mask != 0xFFFFFFFF:
            expected = [FILL] * len(got)
        for lane, offset in enumerate(offsets):
            if not mask >> lane & 1:
                continue
            for i, element in enumerate(component_bytes(message, memory, int(offset))):
                at = i * size if message.transposed else i * len(got) // message.components + lane * size
                expected[at : at + size] = in_register(product, message.data, element)
        for at, (want, have) in enumerate(zip(expected, got.tolist(), strict=True)):
            if want is not None and want != have:
                wrong.append(f"byte {at} of the result is {have:#x}, expected {want:#x}")
        return wrong

    forced = "" if mask != 0xFFFFFFFF else "(W)" if message.transposed else ""
    return Case(
        f"load {describe(message)} mask {mask:#x}",
        message.text(product, True, 0, forced),
        {ADDRESSES: address_input(message, product, offsets, base)},
        {RESULT: registers},
        check,
        memory=memory,
        walk=Walk(mask=mask),
    )


def stores(product: Product, message: Message, mask: int = 0xFFFFFFFF) -> Case:
    """A store to scattered addresses; all other memory stays."""
    memory = memory_of(3)
    lanes = 1 if message.transposed else message.lanes
    offsets = scattered(lanes, aligned(message), 4)
    registers = message.data_registers(product)
    data = np.random.default_rng(5).integers(0, 256, (1, registers * product.register)).astype(np.uint8)
    size = REGISTER_BYTES[message.data]
    step = MEMORY_BYTES[message.data]

    def check(found: dict[int, np.ndarray], after: bytes) -> list[str]:
        expected = memory.copy()
        wanted = [i for i in range(4) if message.vector >> i & 1] if message.quad else range(message.vector)
        for lane, offset in enumerate(offsets):
            if not mask >> lane & 1:
                continue
            for i, place in enumerate(wanted):
                at = i * size
                if not message.transposed:
                    at = i * data.shape[1] // message.components + lane * size
                at += 2 if message.data == D16U32H else 0
                to = int(offset) + place * step
                expected[to : to + step] = data[0, at : at + step]
        return compare_memory(expected, after)

    forced = "" if mask != 0xFFFFFFFF else "(W)" if message.transposed else ""
    return Case(
        f"store {describe(message)} mask {mask:#x}",
        message.text(product, False, registers, forced),
        {ADDRESSES: address_input(message, product, offsets, MEMORY - message.offset), DATA: data},
        {},
        check,
        memory=memory,
        walk=Walk(mask=mask),
    )


def compare_memory(expected: np.ndarray, after: bytes) -> list[str]:
    got = np.frombuffer(after, np.uint8)
    return [
        f"memory at {at:#x} is {got[at]:#x}, expected {expected[at]:#x}"
        for at in np.flatnonzero(got != expected).tolist()
    ]


def describe(message: Message) -> str:
    order = "t" if message.transposed else ""
    offset = f" offset {message.offset}" if message.offset else ""
    offset += f" bti {message.surface}" if message.surface is not None else ""
    offset += f" gathered from s0.{message.list_at}" if message.list_at is not None else ""
    vector = f".{message.vector:04b}" if message.quad else f"x{message.vector}"
    return (
        f"{message.unit} {DATA_NAMES[message.data]}{vector}{order} "
        f"a{8 << message.address} ({message.lanes}){offset}"
    )


def flat(product: Product) -> Iterator[Case]:
    """Loads and stores of all sizes, vectors and widths."""
    widest = product.register // 2  # lanes of one message: 32 on Xe2, 16 on Xe-HPG
    for data, vector in itertools.product((D8U32, D16U32, D32, D64), (1, 2, 3, 4)):
        if data in (D8U32, D16U32) and vector > 1:
            continue
        for lanes in (1, 4, 8, 16, 32):
            if lanes > widest or (data == D64 and vector > 2 and lanes == 32):
                continue
            message = Message(LOAD, data, vector, lanes=lanes)
            yield loads(product, message)
            yield stores(product, Message(STORE, data, vector, lanes=lanes))
            if lanes >= 8:
                for mask in (0x5A5A0FF1, 0x80, 0):
                    yield loads(product, message, mask)
                    yield stores(product, Message(STORE, data, vector, lanes=lanes), mask)
    for data, vector in itertools.product((D32, D64), (1, 2, 3, 4, 8, 16, 32, 64)):
        if vector * REGISTER_BYTES[data] > 8 * product.register:
            continue
        yield loads(product, Message(LOAD, data, vector, transposed=True))
        yield stores(product, Message(STORE, data, vector, transposed=True))
    for surface in (None, 255):  # decodeLscAddrType; PRMs call entry 255 stateless
        for lanes in (8, 16):
            yield loads(product, Message(LOAD, D32, 2, A32, lanes, surface=surface))
            yield stores(product, Message(STORE, D32, 2, A32, lanes, surface=surface))
        yield loads(product, Message(LOAD, D32, 16, A32, transposed=True, surface=surface))
        yield stores(product, Message(STORE, D32, 16, A32, transposed=True, surface=surface))
    for mask in range(1, 16):
        yield loads(product, Message(LOAD_QUAD, D32, mask))
        yield stores(product, Message(STORE_QUAD, D32, mask))
    if product.generation >= assembler.XE3:  # RegDeps.cpp, findGatherSendMov: bytes of s0, addresses first
        for at, (data, vector, address, lanes) in enumerate(
            ((D32, 4, A32, 16), (D64, 2, A64, 16), (D32, 2, A64, 32), (D32, 1, A64, 8))
        ):
            surface = 255 if address == A32 else None
            yield loads(product, Message(LOAD, data, vector, address, lanes, surface=surface, list_at=at))
            yield stores(product, Message(STORE, data, vector, address, lanes, surface=surface, list_at=at))
        yield stores(product, Message(STORE, D32, 64, transposed=True, list_at=1))
    if product.xe2:  # DecodeLscImmOff: bits 31:12 of the extended descriptor, signed bytes
        for offset in (4, 1024, -8, -4096):
            yield loads(product, Message(LOAD, D32, 2, offset=offset))
            yield stores(product, Message(STORE, D32, 1, offset=offset))


ATOMICS = {
    "iinc": 0x08, "idec": 0x09, "load": 0x0A, "store": 0x0B, "iadd": 0x0C, "isub": 0x0D, "smin": 0x0E,
    "smax": 0x0F, "umin": 0x10, "umax": 0x11, "icas": 0x12, "fadd": 0x13, "fsub": 0x14, "fmin": 0x15,
    "fmax": 0x16, "fcas": 0x17, "and": 0x18, "or": 0x19, "xor": 0x1A,
}  # fmt: skip
SOURCES = {"iinc": 0, "idec": 0, "load": 0, "icas": 2, "fcas": 2}


def combine(name: str, type: Type, old: int, x: int, y: int):
    """Memory after an atomic, from the old value and the sources. Compare-and-swap: LSC_UNTYPED.md, src1, src2."""
    if isinstance(type, Format):
        a, b = type.decode(old), type.decode(x)
        if name in ("fadd", "fsub"):
            return type.encode(number.add(a, b if name == "fadd" else number.negate(b)))
        if name == "fcas":
            return y if number.equal(a, b) else old
        return (x if number.less(b, a) else old) if name == "fmin" else (x if number.less(a, b) else old)
    signed = Integer("", type.bits, True)
    table = {
        "iinc": old + 1, "idec": old - 1, "load": old, "store": x, "iadd": old + x, "isub": old - x,
        "smin": min(signed.decode(old), signed.decode(x)), "smax": max(signed.decode(old), signed.decode(x)),
        "umin": min(old, x), "umax": max(old, x), "icas": y if old == x else old,
        "and": old & x, "or": old | x, "xor": old ^ x,
    }  # fmt: skip
    return type.encode(table[name])


def atomic_types(product: Product, name: str) -> list[tuple[int, Type]]:
    """Data sizes; PRMs and TranslateSendLdStLsc.cpp: d16u32, d32, d64."""
    if name.startswith("f"):
        found: list[tuple[int, Type]] = [(D32, F)]
        if name != "fcas" and product.hpc:
            found += [(D16U32, HF)]
        if name in ("fadd", "fsub") and product.hpc:
            found += [(D64, DF)]
        return found
    return [(D32, UD), (D64, UQ), (D16U32, UW)]


def atomics(product: Product, unit: str = "ugm") -> Iterator[Case]:
    """Every operation on different addresses: memory afterwards, and the old value as the result."""
    for name in ATOMICS:
        for data, type in atomic_types(product, name):
            if unit == "slm" and data == D64:
                continue
            for lanes in (8, 16) if unit == "ugm" else (16,):
                for returns in (True, False):
                    yield atomic(product, name, data, type, lanes, returns)


def atomic_values(type: Type, lanes: int, seed: int, near: np.ndarray | None = None) -> np.ndarray:
    """Values of one row; half of them equal `near`'s, for compare-and-swap."""
    random = np.random.default_rng(seed)
    if isinstance(type, Format):
        values = [type.encode(number.real(int(x) / 8)) for x in random.integers(1, 400, lanes)]
    else:
        values = [int(x) for x in random.integers(0, (1 << type.bits) - 1, lanes, np.uint64)]
    row = np.array(values, np.uint64)
    if near is not None:
        row[::2] = near[::2]
    return row


def atomic(product: Product, name: str, data: int, type: Type, lanes: int, returns: bool) -> Case:
    """One atomic on different addresses, with some lanes off."""
    mask = 0xFFFFFFFF if returns else 0xA5F35A5F
    message = Message(ATOMICS[name], data, lanes=lanes)
    size = type.bits // 8
    offsets = scattered(lanes, max(4, size), 6)
    memory = memory_of(7)
    old = atomic_values(type, lanes, 8)
    for offset, bits in zip(offsets, old.tolist(), strict=True):
        memory[offset : offset + size] = np.frombuffer(int(bits).to_bytes(size, "little"), np.uint8)
    count = SOURCES.get(name, 1)
    x = atomic_values(type, lanes, 9, old if count == 2 else None)
    y = atomic_values(type, lanes, 10)
    registers = message.registers(product, REGISTER_BYTES[data])
    inputs = {ADDRESSES: address_input(message, product, offsets, MEMORY)}
    wide = {4: UD, 8: UQ}[REGISTER_BYTES[data]]
    sources = [pack(wide, v.reshape(1, lanes), 1, 0, registers * product.register) for v in (x, y)[:count]]
    if sources:
        inputs[DATA] = np.concatenate(sources, axis=1)

    def check(found: dict[int, np.ndarray], after: bytes) -> list[str]:
        expected = memory.copy()
        for lane, offset in enumerate(offsets):
            if mask >> lane & 1:
                new = combine(name, type, int(old[lane]), int(x[lane]), int(y[lane]))
                expected[offset : offset + size] = np.frombuffer(new.to_bytes(size, "little"), np.uint8)
        wrong = compare_memory(expected, after)
        if returns and name not in ("idec", "store"):
            got = unpack(wide, found[RESULT], 1, 0, lanes)[0]
            low = (1 << type.bits) - 1
            for lane in range(lanes):
                if got[lane] & low != int(old[lane]):
                    wrong.append(f"lane {lane} returns {got[lane]:#x}, expected {int(old[lane]):#x}")
        return wrong

    text = message.text(product, returns, registers * count)
    return Case(
        f"atomic {name} {DATA_NAMES[data]} ({lanes}){'' if returns else ' no result'}",
        text,
        inputs,
        {RESULT: registers} if returns else {},
        check,
        memory=memory,
        walk=Walk(mask=mask),
    )


def shared_address(product: Product) -> Iterator[Case]:
    """All lanes of several work-groups add to one dword."""
    message = Message(ATOMICS["iadd"], D32, lanes=16)
    memory = np.zeros(SIZE, np.uint8)
    ones = np.array([range(1, 17)], np.uint64)
    inputs = {
        ADDRESSES: address_input(message, product, np.full(16, 64), MEMORY),
        DATA: pack(UD, ones, 1, 0, message.registers(product, 4) * product.register),
    }

    def check(found: dict[int, np.ndarray], after: bytes) -> list[str]:
        total = int.from_bytes(after[64:68], "little")
        return [] if total == 5 * 136 else [f"the sum is {total}, expected {5 * 136}"]

    text = message.text(product, False, message.registers(product, 4))
    yield Case("atomic iadd, one address", text, inputs, {}, check, memory=memory, rows=5)


def local(product: Product) -> Iterator[Case]:
    """Local memory: what one lane stores another loads, in all sizes; a store and a load in one case."""
    lanes = 16
    for data, vector, address in itertools.product((D8U32, D16U32, D32, D64), (1, 2, 4), (A16, A32)):
        if data in (D8U32, D16U32) and vector > 1:
            continue
        to = Message(STORE, data, vector, address, lanes, unit="slm")
        back = Message(LOAD, data, vector, address, lanes, unit="slm")
        yield _local(product, to, back)
    for vector in (1, 2, 4, 8, 16, 32):
        to = Message(STORE, D32, vector, A32, 1, True, "slm")
        yield _local(product, to, Message(LOAD, D32, vector, A32, 1, True, "slm"))


def _local(product: Product, to: Message, back: Message) -> Case:
    lanes = to.lanes
    offsets = np.random.default_rng(11).permutation(lanes) * aligned(to) + 512
    registers = to.data_registers(product)
    data = np.random.default_rng(12).integers(0, 256, (1, registers * product.register)).astype(np.uint8)
    text = to.text(product, False, registers) + "\n" + back.text(product, True, 0)

    def check(found: dict[int, np.ndarray]) -> list[str]:
        wrong = []
        got = found[RESULT][0].tolist()
        size, kept = REGISTER_BYTES[to.data], MEMORY_BYTES[to.data]
        for lane, i in itertools.product(range(lanes), range(to.vector)):
            at = i * size if to.transposed else i * len(got) // to.vector + lane * size
            element = data[0, at : at + kept].tobytes()
            for byte, want in enumerate(in_register(product, to.data, element)):
                if want is not None and got[at + byte] != want:
                    wrong.append(f"lane {lane} byte {byte}: {got[at + byte]:#x}, expected {want:#x}")
        return wrong

    inputs = {ADDRESSES: address_input(to, product, offsets, 0), DATA: data}
    return Case(
        f"store, load {describe(to)}", text, inputs, {RESULT: registers}, check, walk=Walk(local_bytes=4096)
    )


def local_atomics(product: Product) -> Iterator[Case]:
    """Atomics in local memory: store, add, load back."""
    add = Message(ATOMICS["iadd"], D32, 1, A32, 16, unit="slm")
    store = Message(STORE, D32, 1, A32, 16, unit="slm")
    load = Message(LOAD, D32, 1, A32, 16, unit="slm")
    registers = store.data_registers(product)
    offsets = np.arange(16) * 4
    values = np.array([[1000 + 3 * i for i in range(16)]], np.uint64)
    text = "\n".join(
        [
            store.text(product, False, registers),
            add.text(product, True, registers),
            load.text(product, True, 0).replace(f"r{RESULT}", f"r{DATA2}"),
        ]
    )
    inputs = {
        ADDRESSES: address_input(store, product, offsets, 0),
        DATA: pack(UD, values, 1, 0, registers * product.register),
    }

    def check(found: dict[int, np.ndarray]) -> list[str]:
        old = unpack(UD, found[RESULT], 1, 0, 16)[0]
        new = unpack(UD, found[DATA2], 1, 0, 16)[0]
        want = values[0].tolist()
        wrong = [] if old == want else [f"iadd returns {old}, expected {want}"]
        return wrong if new == [2 * x for x in want] else [*wrong, f"memory is {new}"]

    outputs = {RESULT: registers, DATA2: registers}
    yield Case("slm atomic iadd", text, inputs, outputs, check, walk=Walk(local_bytes=1024))


def barriers(product: Product) -> Iterator[Case]:
    """Threads of a group store, meet at the barrier, and load what their neighbor stored.

    A barrier is a gateway message with the barrier's id and numbers of threads in dword 2, then sync.bar:
    visa/VisaToG4/TranslateSendSync.cpp (generateNamedBarrier; generateBarrierSend).
    """
    for threads in (2, 4, 8):
        for rounds in (1, 3):
            yield _barrier(product, threads, rounds)


def named_barriers(product: Product) -> Iterator[Case]:
    """Two pairs of threads, each with a barrier of its own (NBARRIER.md), exchange values in local memory."""
    if not product.hpc:
        return
    store = Message(STORE, D32, 1, A32, 1, unit="slm")
    load = Message(LOAD, D32, 1, A32, 1, unit="slm")
    lines = [
        "(W) and (1|M0) r20.0<1>:ud r0.2<0;1,0>:ud 0xFF:ud",
        "(W) xor (1|M0) r21.0<1>:ud r20.0<0;1,0>:ud 1:ud",
        "(W) shl (1|M0) r22.0<1>:ud r20.0<0;1,0>:ud 2:ud",
        "(W) shl (1|M0) r23.0<1>:ud r21.0<0;1,0>:ud 2:ud",
        "(W) add (1|M0) r24.0<1>:ud r20.0<0;1,0>:ud 100:ud",
        "(W) shr (1|M0) r26.0<1>:ud r20.0<0;1,0>:ud 1:ud",
        "(W) add (1|M0) r26.0<1>:ud r26.0<0;1,0>:ud 1:ud",  # barrier 1 or 2
        "(W) mov (1|M0) f1.0<1>:uw r26.0<0;1,0>:uw",
        "(W) mov (8|M0) r25.0<1>:ud 0x0:ud",
        f"(W) add (1|M0) r25.2<1>:ud r26.0<0;1,0>:ud {2 << 24 | 2 << 16:#x}:ud",
        "(W) " + store.text(product, False, 1).replace(f"r{ADDRESSES}", "r22").replace(f"r{DATA}", "r24"),
        "(W) send.gtwy (1|M0) null r25 null:0 0x0 0x02000004",
        "(W) sync.bar f1.0",
        "(W) " + load.text(product, True, 0).replace(f"r{ADDRESSES}", "r23"),
    ]

    def check(found: dict[int, np.ndarray]) -> list[str]:
        got = found[RESULT][:, :4].copy().view("<u4")[:, 0].tolist()
        return [] if got == [101, 100, 103, 102] else [f"threads have {got}"]

    walk = Walk(threads=4, local_bytes=1024, barriers=4)
    yield Case("named barriers", "\n".join(lines), {}, {RESULT: 1}, check, walk=walk)


def _barrier(product: Product, threads: int, rounds: int) -> Case:
    store = Message(STORE, D32, 1, A32, 1, unit="slm")
    load = Message(LOAD, D32, 1, A32, 1, unit="slm")
    lines = [
        "(W) and (1|M0) r20.0<1>:ud r0.2<0;1,0>:ud 0xFF:ud",
        "(W) add (1|M0) r21.0<1>:ud r20.0<0;1,0>:ud 1:ud",
        f"(W) and (1|M0) r21.0<1>:ud r21.0<0;1,0>:ud {threads - 1:#x}:ud",
        "(W) shl (1|M0) r22.0<1>:ud r20.0<0;1,0>:ud 2:ud",
        "(W) shl (1|M0) r23.0<1>:ud r21.0<0;1,0>:ud 2:ud",
        "(W) add (1|M0) r24.0<1>:ud r20.0<0;1,0>:ud 100:ud",
        "(W) mov (8|M0) r25.0<1>:ud 0x0:ud",
        f"(W) mov (1|M0) r25.2<1>:ud {threads << 24 | threads << 16:#x}:ud",
    ]
    signal = "(W) send.gtwy (1|M0) null r25 null:0 0x0 0x02000004"
    wait = "(W) sync.bar 0x0" if product.hpc else "(W) sync.bar null"
    for turn in range(rounds):
        lines += [
            "(W) " + store.text(product, False, 1).replace(f"r{ADDRESSES}", "r22").replace(f"r{DATA}", "r24"),
            signal, wait,
            "(W) " + load.text(product, True, 0).replace(f"r{ADDRESSES}", "r23").replace(f"r{RESULT} ", "r24 "),
            signal, wait,
        ]  # fmt: skip
    lines.append("(W) mov (1|M0) r80.0<1>:ud r24.0<0;1,0>:ud")

    def check(found: dict[int, np.ndarray]) -> list[str]:
        got = found[80][:, :4].copy().view("<u4")[:, 0].tolist()
        want = [100 + (thread + rounds) % threads for thread in range(threads)]
        return [] if got == want else [f"threads have {got}, expected {want}"]

    walk = Walk(threads=threads, local_bytes=1024, barriers=1)
    return Case(
        f"barrier of {threads} threads, {rounds} rounds", "\n".join(lines), {}, {80: 1}, check, walk=walk
    )


def cases(product: Product) -> list[Case]:
    groups = (flat, atomics, shared_address, local, local_atomics, barriers, named_barriers)
    return [case for group in groups for case in group(product)]


__all__ = ["D", "Q", "cases"]
