"""Runs short instruction sequences on the simulated execution units.

A case gives instructions, the registers that they read, and what registers or memory must contain afterwards.
Many cases share one kernel: each loads its registers from memory with block loads, runs, and stores the
registers that are looked at. The kernel runs once for each row of data, as work-group `row`, so a case tests
one instruction on many values. After a fault, the cases of that kernel run one by one.
"""

import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import assembler
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
INPUT, OUTPUT = 0x200000000, 0x300000000  # 4 GiB each: offsets never carry into the upper dword
MEMORY = 0x40000000  # below 4 GiB, for 32-bit addresses, too; what a case's own messages access
LOAD, STORE = 0x0, 0x4  # LSC operations
D32, A64, TRANSPOSED = 2 << 9, 3 << 7, 1 << 15
VECTOR = {1: 0, 2: 1, 3: 2, 4: 3, 8: 4, 16: 5, 32: 6, 64: 7}  # bits 14:12 of an LSC descriptor
FILL = 0xA5  # what results contain before a case runs


@dataclass(frozen=True)
class Product:
    """A product whose units the table runs on."""

    name: str
    register: int  # bytes
    generation: int

    @property
    def xe2(self) -> bool:
        """Whether this is Xe2 or later."""
        return self.generation >= assembler.XE2

    @property
    def hpc(self) -> bool:
        """Whether this is Xe-HPC or later: 64-byte registers, 64-bit types, macl, 2D block messages."""
        return self.generation >= assembler.XE_HPC


BMG = Product("bmg", 64, assembler.XE2)
DG2 = Product("dg2", 32, assembler.XE_HPG)
PVC = Product("pvc", 64, assembler.XE_HPC)
PTL = Product("ptl", 64, assembler.XE3)
PRODUCTS = (BMG, DG2, PVC, PTL)


@dataclass
class Walk:
    """How the work-groups of a kernel are dispatched."""

    simd: int = 32
    mask: int = 0xFFFFFFFF
    threads: int = 1
    local_bytes: int = 0
    barriers: int = 0
    keep_denormals: bool = True
    rounding: int = 0
    groups: tuple[int, int, int] | None = None  # None: (rows, 1, 1), for data
    local_size: tuple[int, int, int] | None = None  # None: all lanes of all threads in x
    emit_local_ids: int = 0  # bit d: dimension d
    walk_order: int = 0
    inline_data: tuple[int, ...] = ()  # dwords

    def key(self) -> tuple[object, ...]:
        """What cases must have in common to share a kernel."""
        return tuple(vars(self).values())


@dataclass
class Case:
    """Instructions, data and expected results.

    Parameters
    ----------
    name : str
        Unique in its family; names the instruction.
    text : str
        IGA text; ``@`` in labels is replaced so that they are unique.
    inputs : dict[int, np.ndarray]
        First register -> uint8 array (rows, bytes), loaded before the text.
    outputs : dict[int, int]
        First register -> number of registers stored afterwards. They contain FILL where `inputs` says nothing.
    check : callable
        Gets {register: uint8 array (rows, bytes)} and, with `memory`, the memory; returns what is wrong.
    memory : np.ndarray or None
        uint8; placed at MEMORY; such a case runs in a kernel of its own.
    """

    name: str
    text: str
    inputs: dict[int, np.ndarray]
    outputs: dict[int, int]
    check: Callable[..., list[str]]
    memory: np.ndarray | None = None
    walk: Walk = field(default_factory=Walk)
    rows: int = 1


def lsc(operation: int, vector: int, response: int, address: int = 1) -> int:
    """Descriptor of a block message of dwords on flat 64-bit addresses."""
    bits = operation | A64 | D32 | VECTOR[vector] << 12 | TRANSPOSED
    return bits | response << 20 | address << 25


class Kernel:
    """Cases of equal walks and numbers of rows, joined to one kernel."""

    def __init__(self, product: Product, cases: Sequence[Case]) -> None:
        self.product, self.cases = product, cases
        self.rows = max(case.rows for case in cases)
        self.lines: list[str] = []
        self.loads: list[tuple[int, np.ndarray]] = []  # offset in a row of inputs, values
        self.stores: list[list[tuple[int, int, int]]] = []  # per case: register, offset, bytes
        self.input_bytes = self.output_bytes = 0
        body: list[str] = []
        for index, case in enumerate(cases):
            body += self._case(index, case)
        self.input_stride = _power_of_two(self.input_bytes)
        self.output_stride = _power_of_two(self.output_bytes)
        self.text = "\n".join(
            [
                *self._row(cases[0].walk),
                f"(W) shl (1|M0) r124.4<1>:ud r124.0<0;1,0>:ud {self.input_stride.bit_length() - 1}:uw",
                f"(W) shl (1|M0) r124.5<1>:ud r124.1<0;1,0>:ud {self.output_stride.bit_length() - 1}:uw",
                f"(W) mov (1|M0) r125.1<1>:ud {INPUT >> 32:#x}:ud",
                f"(W) mov (1|M0) r126.1<1>:ud {OUTPUT >> 32:#x}:ud",
                *body,
                "(W) mov (8|M0) r112.0<1>:ud r0.0<1;1,0>:ud",
                "(W) send.gtwy (1|M0) null r112 null:0 0x0 0x02000010 {EOT}",
                "",
            ]
        )

    def _row(self, walk: Walk) -> list[str]:
        """r124.0: the group, which is the row of inputs; r124.1: the row of outputs, one for each thread."""
        lines = ["(W) mov (1|M0) r124.0<1>:ud r0.1<0;1,0>:ud"]
        if walk.groups:  # r0.1, r0.6 and r0.7 are the group's id in x, y and z
            lines += [
                f"(W) mul (1|M0) r124.6<1>:ud r0.7<0;1,0>:ud {walk.groups[1]}:uw",
                "(W) add (1|M0) r124.6<1>:ud r124.6<0;1,0>:ud r0.6<0;1,0>:ud",
                f"(W) mul (1|M0) r124.6<1>:ud r124.6<0;1,0>:ud {walk.groups[0]}:uw",
                "(W) add (1|M0) r124.0<1>:ud r124.0<0;1,0>:ud r124.6<0;1,0>:ud",
            ]
        return [
            *lines,
            f"(W) mul (1|M0) r124.1<1>:ud r124.0<0;1,0>:ud {walk.threads}:uw",
            "(W) and (1|M0) r124.2<1>:ud r0.2<0;1,0>:ud 0xFF:ud",
            "(W) add (1|M0) r124.1<1>:ud r124.1<0;1,0>:ud r124.2<0;1,0>:ud",
        ]

    def _case(self, index: int, case: Case) -> list[str]:
        size = self.product.register
        lines = []
        for first, count in case.outputs.items():
            for register in range(first, first + count):
                lanes = size // 4
                lines.append(f"(W) mov ({lanes}|M0) r{register}.0<1>:ud {FILL * 0x01010101:#x}:ud")
        for first, values in case.inputs.items():
            padded = -(-values.shape[1] // size) * size
            block = np.zeros((values.shape[0], padded), np.uint8)
            block[:, : values.shape[1]] = values
            self.loads.append((self.input_bytes, block))
            for register, offset, vector in _blocks(first, padded, size):
                place = self.input_bytes + offset
                lines.append(f"(W) add (1|M0) r125.0<1>:ud r124.4<0;1,0>:ud {place:#x}:ud")
                response = vector * 4 // size
                lines.append(
                    f"(W) send.ugm (1|M0) r{register} r125 null:0 0x0 {lsc(LOAD, vector, response):#x}"
                )
            self.input_bytes += padded
        lines += case.text.replace("@", f"_{index}_").split("\n")
        stores = []
        for first, count in case.outputs.items():
            stores.append((first, self.output_bytes, count * size))
            for register, offset, vector in _blocks(first, count * size, size):
                place = self.output_bytes + offset
                lines.append(f"(W) add (1|M0) r126.0<1>:ud r124.5<0;1,0>:ud {place:#x}:ud")
                length = vector * 4 // size
                lines.append(
                    f"(W) send.ugm (1|M0) null r126 r{register}:{length} 0x0 {lsc(STORE, vector, 0):#x}"
                )
            self.output_bytes += count * size
        self.stores.append(stores)
        return lines

    def inputs(self) -> bytes:
        """The input range: a row for each work-group; shorter cases repeat their rows."""
        data = np.zeros((self.rows, self.input_stride), np.uint8)
        for offset, values in self.loads:
            repeated = np.resize(values, (self.rows, values.shape[1]))
            data[:, offset : offset + values.shape[1]] = repeated
        return data.tobytes()

    def failures(self, output: bytes, memory: bytes | None) -> dict[str, list[str]]:
        """What each case's check says; cases without complaint are left out."""
        rows = self.rows * self.cases[0].walk.threads
        data = np.frombuffer(output, np.uint8).reshape(rows, self.output_stride)
        found = {}
        for case, stores in zip(self.cases, self.stores, strict=True):
            count = case.rows * case.walk.threads
            values = {register: data[:count, offset : offset + n] for register, offset, n in stores}
            wrong = case.check(values, memory) if case.memory is not None else case.check(values)
            if wrong:
                found[case.name] = wrong
        return found


def _blocks(first: int, count: int, size: int) -> list[tuple[int, int, int]]:
    """Splits `count` bytes from register `first` into (register, offset, dwords) of block messages."""
    blocks, offset = [], 0
    while offset < count:
        vector = next(n for n in (64, 32, 16, 8) if n * 4 <= count - offset and n * 4 % size == 0)
        blocks.append((first + offset // size, offset, vector))
        offset += vector * 4
    return blocks


def _power_of_two(count: int) -> int:
    return 1 << max(6, (count - 1).bit_length())


class Crashed(Exception):
    """The execution units ended the process."""


class Units:
    """A process that runs kernels; it is started again after a crash."""

    def __init__(self, program: Path, library: Path) -> None:
        self.command = [str(program), str(library)]
        self.library = library
        self.process: subprocess.Popen[bytes] | None = None
        self.assemblers: dict[int, assembler.Assembler] = {}

    def assemble(self, product: Product, text: str) -> bytes:
        """Machine code for the product."""
        if product.generation not in self.assemblers:
            self.assemblers[product.generation] = assembler.Assembler(self.library, product.generation)
        return self.assemblers[product.generation].assemble(text)

    def run(
        self,
        product: Product,
        walk: Walk,
        groups: int,
        code: bytes,
        ranges: Sequence[tuple[int, bytes, bool]],
    ) -> tuple[str, list[bytes]]:
        """Runs one kernel: the text of its faults, and the ranges that are wanted back."""
        job = [
            struct.pack(
                "<16s38I",
                product.name.encode(),
                len(code),
                len(ranges),
                walk.simd,
                walk.mask,
                walk.threads,
                *(walk.local_size or (walk.simd * walk.threads, 1, 1)),
                *(0, 0, 0),
                *(walk.groups or (groups, 1, 1)),
                walk.local_bytes,
                walk.barriers,
                walk.keep_denormals,
                walk.rounding,
                128,
                walk.emit_local_ids,
                walk.walk_order,
                4 * len(walk.inline_data),
                *walk.inline_data,
                *[0] * (16 - len(walk.inline_data)),
            ),
            code,
        ]
        for address, data, wanted in ranges:
            job += [struct.pack("<QII", address, len(data), wanted), data]
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin
        try:
            self.process.stdin.write(b"".join(job))
            self.process.stdin.flush()
            status, length = struct.unpack("<iI", self._read(8))
            text = self._read(length).decode(errors="replace")
            results = [self._read(len(data)) for _, data, wanted in ranges if wanted]
        except (BrokenPipeError, EOFError):
            raise Crashed(f"the units' process ended with status {self.process.wait()}") from None
        return text or ("" if status == 0 else f"status {status}"), results

    def _read(self, count: int) -> bytes:
        assert self.process and self.process.stdout
        data = self.process.stdout.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def close(self) -> None:
        """Ends the process."""
        if self.process and self.process.stdin:
            self.process.stdin.close()
            self.process.wait()

    def _run_kernel(self, product: Product, cases: Sequence[Case]) -> tuple[str, dict[str, list[str]]]:
        kernel = Kernel(product, cases)
        code = self.assemble(product, kernel.text)
        walk = cases[0].walk
        ranges = [
            (INPUT, kernel.inputs(), False),
            (OUTPUT, bytes([FILL]) * (kernel.output_stride * kernel.rows * walk.threads), True),
        ]
        memory = cases[0].memory
        if memory is not None:
            ranges.append((MEMORY, memory.tobytes(), True))
        fault, results = self.run(product, walk, kernel.rows, code, ranges)
        if fault:
            return fault, {}
        return "", kernel.failures(results[0], results[1] if memory is not None else None)

    def failures(self, product: Product, cases: Sequence[Case]) -> dict[str, list[str]]:
        """Runs cases and says what is wrong with each; nothing is said of those that pass."""
        found: dict[str, list[str]] = {}
        for batch in batches(cases):
            try:
                fault, wrong = self._run_kernel(product, batch)
            except (Crashed, assembler.AssemblyError) as error:
                fault, wrong = str(error), {}
            found |= wrong
            if not fault:
                continue
            if len(batch) == 1:
                found[batch[0].name] = [fault.strip()]
                continue
            for case in batch:
                found |= self._failures_of_one(product, case)
        return found

    def _failures_of_one(self, product: Product, case: Case) -> dict[str, list[str]]:
        try:
            fault, wrong = self._run_kernel(product, [case])
        except (Crashed, assembler.AssemblyError) as error:
            fault, wrong = str(error), {}
        return {case.name: [fault.strip()]} if fault else wrong


def batches(cases: Sequence[Case], most: int = 48) -> list[list[Case]]:
    """Groups cases that can share a kernel."""
    shared: dict[tuple[object, ...], list[Case]] = {}
    found = []
    for case in cases:
        if case.memory is not None:
            found.append([case])
            continue
        shared.setdefault((_power_of_two(case.rows), *case.walk.key()), []).append(case)
    for group in shared.values():
        found += [group[i : i + most] for i in range(0, len(group), most)]
    return found


def build_units(folder: Path) -> Path:
    """Compiles the harness with the simulator's execution units; returns the program."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [
        *sorted((ROOT / "sim/eu").glob("*.c")),
        *sorted((ROOT / "sim/check").glob("*.c")),
        ROOT / "sim/profile.c",
        ROOT / "sim/predict.c",
        ROOT / "sim/products.c",
        ROOT / "tests/sim/units.c",
    ]
    headers = [*(ROOT / "sim").rglob("*.h"), *(ROOT / "sim").rglob("*.def")]
    newest_header = max(path.stat().st_mtime for path in headers)
    program = folder / "units"
    objects = []
    for source in sources:
        compiled = folder / f"{source.parent.name}-{source.stem}.o"
        objects.append(str(compiled))
        if compiled.exists() and compiled.stat().st_mtime > max(newest_header, source.stat().st_mtime):
            continue
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT / 'sim'}"]
        subprocess.run(["gcc", *flags, "-c", str(source), "-o", str(compiled)], check=True)
    subprocess.run(["gcc", *objects, "-o", str(program), "-ldl", "-lpthread", "-lm"], check=True)
    return program
