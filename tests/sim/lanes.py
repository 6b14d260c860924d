"""Cases of one instruction whose lanes are independent: operands, their registers, and comparison lane by lane."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import number
import numpy as np
from machine import FILL, Case, Product, Walk
from number import Format, Integer, Type

SOURCES = (20, 40, 60)  # first registers of sources
RESULT, FLAGS = 80, 100  # first register of the result; of f0.0 and f1.0 after the instruction

SKIP = object()  # documentation does not say what this lane contains
CLEAR_MODES = "(W) and (1|M0) cr0.0<1>:ud cr0.0<0;1,0>:ud 0xFFFFFB0F:ud"
DENORMALS = 0x4C0  # cr0.0: keep denormals of df (6), f (7) and hf (10)


class AnyOf(frozenset):
    """Several results that documentation allows."""


@dataclass(frozen=True)
class Near:
    """A result within an absolute distance of `value`, of a floating-point type."""

    value: float
    distance: float


def modes(rounding: int = number.EVEN, denormals: bool = True) -> list[str]:
    """Sets the floating-point modes in cr0.

    cr0.0[5:4] is the rounding mode, bits 6, 7 and 10 keep denormals of df, f and hf: IGC
    visa/VisaToG4/TranslateMath.cpp, setDefaultRoundDenorm, and the value that IGC's kernels write, 0x4C0.
    """
    bits = rounding << 4 | (DENORMALS if denormals else 0)
    return [CLEAR_MODES, f"(W) or (1|M0) cr0.0<1>:ud cr0.0<0;1,0>:ud {bits:#x}:ud"]


def matches(type: Type, bits: int, expected: Any) -> bool:
    """Whether a result is what is expected: bits, None for any NaN, AnyOf, Near or SKIP."""
    if expected is SKIP:
        return True
    if isinstance(expected, AnyOf):
        return any(matches(type, bits, one) for one in expected)
    if expected is None:
        return isinstance(type, Format) and type.is_nan(bits)
    if isinstance(expected, Near):
        assert isinstance(type, Format)
        got = type.decode(bits)
        if got.kind == "zero":
            return abs(expected.value) <= expected.distance
        return got.kind == "finite" and abs(float(got.value) - expected.value) <= expected.distance
    return bits == expected


def show(type: Type, bits: Any) -> str:
    """Bits and what they mean, for messages."""
    if isinstance(bits, AnyOf):
        return " or ".join(show(type, one) for one in bits)
    if bits is None:
        return "NaN"
    if not isinstance(bits, int):
        return str(bits)
    text = f"{bits:#0{type.bits // 4 + 2}x}"
    if isinstance(type, Format):
        value = type.decode(bits)
        if value.kind == "finite":
            return f"{text} ({float(value.value):g})"
    return text


def pack(type: Type, values: np.ndarray, stride: int, start: int, size: int) -> np.ndarray:
    """Places values (rows, lanes) at `start` bytes, `stride` elements apart, in `size` bytes; FILL elsewhere."""
    bytes_ = type.bits // 8
    data = np.full((values.shape[0], size), FILL, np.uint8)
    raw = values.astype(np.uint64).astype("<u8").view(np.uint8).reshape(*values.shape, 8)
    for lane in range(values.shape[1]):
        at = start + lane * stride * bytes_
        data[:, at : at + bytes_] = raw[:, lane, :bytes_]
    return data


def unpack(type: Type, data: np.ndarray, stride: int, start: int, count: int) -> list[list[int]]:
    """The inverse of pack."""
    bytes_ = type.bits // 8
    wide = np.zeros((data.shape[0], count, 8), np.uint8)
    for lane in range(count):
        at = start + lane * stride * bytes_
        wide[:, lane, :bytes_] = data[:, at : at + bytes_]
    return wide.view("<u8").reshape(data.shape[0], count).tolist()


def rows_of(columns: Sequence[Sequence[int]], lanes: int) -> list[np.ndarray]:
    """Cuts each source's values into rows of lanes; the last row repeats the first values."""
    rows = -(-len(columns[0]) // lanes)
    return [np.resize(np.array(column, np.uint64), (rows, lanes)) for column in columns]


@dataclass
class Operation:
    """One instruction on independent lanes.

    Parameters
    ----------
    op : str
        Mnemonic with its function, e.g. ``math.inv``.
    result : Type or None
        None: the null register.
    sources : sequence of Type
    values : sequence of tuples
        Bits of the sources, one tuple for each lane of data.
    reference : callable
        Bits of the sources -> expected result (see `matches`).
    flag : callable or None
        Bits of the sources -> the flag bit (or SKIP) that `condition` leaves in f0.0.
    modifiers : sequence of str
        Of each source: "", "-", "(abs)", "-(abs)", "~".
    condition : str
        E.g. ``(lt)``.
    predicate : str
        E.g. ``(f1.0)``: with `flags` as f1.0's value.
    before, after : sequences of str
        Instructions around it.
    lanes : int or None
        None: as many as fit in two registers.
    """

    op: str
    result: Type | None
    sources: Sequence[Type]
    values: Sequence[tuple[int, ...]]
    reference: Callable[..., Any]
    flag: Callable[..., Any] | None = None
    modifiers: Sequence[str] = ()
    saturate: bool = False
    condition: str = ""
    predicate: str = ""
    flags: int = 0
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    lanes: int | None = None
    label: str = ""
    walk: Walk = field(default_factory=Walk)

    def name(self) -> str:
        """Names the case in messages."""
        types = " ".join(
            [
                self.result.name if self.result else "null",
                *(
                    modifier + type.name
                    for modifier, type in itertools.zip_longest(self.modifiers, self.sources, fillvalue="")
                ),
            ]
        )
        saturate = ".sat" if self.saturate else ""
        return " ".join(filter(None, [self.predicate, self.op + saturate, self.condition, types, self.label]))

    def _strides(self) -> tuple[int, list[int]]:
        """Of the result and the sources: 64-bit and mixed results keep lanes aligned, as PRMs demand."""
        types = [*self.sources, *([self.result] if self.result else [])]
        largest = max([*(type.bits for type in types), 16])
        widest = max([*(type.bits for type in self.sources), 16])
        result = max(1, widest // self.result.bits) if self.result else 1
        if largest == 64:
            return (64 // self.result.bits if self.result else 1), [64 // type.bits for type in self.sources]
        return result, [1 for _ in self.sources]

    def _widest(self, product: Product) -> int:
        stride, strides = self._strides()
        types = [*self.sources, *([self.result] if self.result else [])]
        steps = [*strides, *([stride] if self.result else [])]
        widest = max(type.bits // 8 * step for type, step in zip(types, steps, strict=True))
        return min(32, 2 * product.register // widest)

    def build(self, product: Product) -> Case:
        """The case, with sources in registers 20, 40, 60 and the result in 80."""
        lanes = self.lanes or self._widest(product)
        stride, strides = self._strides()
        columns = rows_of(list(zip(*self.values, strict=True)), lanes)
        size = 2 * product.register
        inputs = {
            first: pack(type, column, step, 0, size)
            for first, type, column, step in zip(SOURCES, self.sources, columns, strides, strict=False)
        }
        lines = [*self.before]
        if self.flag or self.predicate:
            lines += [
                "(W) mov (1|M0) f0.0<1>:ud 0xA5A5A5A5:ud",
                f"(W) mov (1|M0) f1.0<1>:ud {self.flags:#x}:ud",
            ]
        lines.append(self._instruction(lanes, stride, strides))
        outputs = {RESULT: 2} if self.result else {}
        if self.flag:
            lines += ["(W) mov (1|M0) r100.0<1>:ud f0.0<0;1,0>:ud"]
            outputs[FLAGS] = 1
        lines += self.after

        def check(found: dict[int, np.ndarray]) -> list[str]:
            return self._check(found, columns, lanes, stride)

        return Case(
            self.name(), "\n".join(lines), inputs, outputs, check, walk=self.walk, rows=len(columns[0])
        )

    def _instruction(self, lanes: int, stride: int, strides: Sequence[int]) -> str:
        saturate = "(sat)" if self.saturate else ""
        result = f"r{RESULT}.0<{stride}>:{self.result.name}" if self.result else "null<1>:ud"
        if not self.result and isinstance(self.sources[0], Format):
            result = f"null<1>:{self.sources[0].name}"
        parts = []
        modifiers = [*self.modifiers, *[""] * (len(self.sources) - len(self.modifiers))]
        for i, (type, step, modifier) in enumerate(zip(self.sources, strides, modifiers, strict=True)):
            region = f"<{step};1,0>"
            if len(self.sources) == 3:
                region = f"<{step};0>" if i < 2 else f"<{step}>"
            parts.append(f"{modifier}r{SOURCES[i]}.0{region}:{type.name}")
        condition = f"{self.condition}f0.0 " if self.condition else ""
        head = f"{self.predicate} {self.op} ({lanes}|M0) {condition}{saturate}"
        return f"{head} {result} {' '.join(parts)}".strip()

    def _check(
        self, found: dict[int, np.ndarray], columns: Sequence[np.ndarray], lanes: int, stride: int
    ) -> list[str]:
        wrong: list[str] = []
        rows = [column.tolist() for column in columns]
        flags = found[FLAGS][:, :4].copy().view("<u4")[:, 0].tolist() if self.flag else []
        got = unpack(self.result, found[RESULT], stride, 0, lanes) if self.result else []
        for row in range(len(rows[0])):
            for lane in range(lanes):
                sources = tuple(column[row][lane] for column in rows)
                inputs = ", ".join(show(type, x) for type, x in zip(self.sources, sources, strict=True))
                if self.result:
                    enabled = not self.predicate or self.op == "sel" or self.flags >> lane & 1
                    fill = int.from_bytes(bytes([FILL]) * (self.result.bits // 8), "little")
                    expected = self.reference(*sources) if enabled else fill
                    if not matches(self.result, got[row][lane], expected):
                        have = show(self.result, got[row][lane])
                        wrong.append(f"{inputs} -> {have}, expected {show(self.result, expected)}")
                if self.flag:
                    bit = self.flag(*sources)
                    if bit is not SKIP and bool(bit) != bool(flags[row] >> lane & 1):
                        wrong.append(f"{inputs} -> flag {flags[row] >> lane & 1}, expected {int(bit)}")
        if self.result:
            wrong += self._untouched(found[RESULT], lanes, stride)
        return wrong

    def _untouched(self, data: np.ndarray, lanes: int, stride: int) -> list[str]:
        assert self.result
        written = np.zeros(data.shape[1], bool)
        for lane in range(lanes):
            at = lane * stride * (self.result.bits // 8)
            written[at : at + self.result.bits // 8] = True
        if (data[:, ~written] != FILL).any():
            return ["bytes that are not part of the result were written"]
        return []


def pairs(first: Iterable[int], second: Iterable[int]) -> list[tuple[int, ...]]:
    """Every pair of values."""
    return list(itertools.product(first, second))


def sampled(count: int, seed: int, *columns: Sequence[int]) -> list[tuple[int, ...]]:
    """`count` tuples with random members of each column."""
    random = np.random.default_rng(seed)
    picks = [random.integers(0, len(column), count) for column in columns]
    return [
        tuple(column[int(pick)] for column, pick in zip(columns, row, strict=True))
        for row in zip(*picks, strict=True)
    ]


def interesting(type: Type, seed: int = 1) -> list[int]:
    """Bits worth trying: limits, small values, powers of two, special floating-point values, random ones."""
    random = np.random.default_rng(seed + type.bits)
    if isinstance(type, Integer):
        top = 1 << (type.bits - 1)
        found = [0, 1, 2, 3, 5, 7, 31, 32, 33, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 0x55, 0x80]
        found += [top >> 1, (2 * top - 1) // 3]
        found += [int(x) for x in random.integers(0, 2 * top - 1, 8, np.uint64)]
        return [x & (2 * top - 1) for x in found]
    sign, top = 1 << (type.bits - 1), type.top << type.mantissa
    one = type.bias << type.mantissa
    quiet = top | 1 << (type.mantissa - 1) | 1
    half_up = one | 1
    found = [0, sign, one, sign | one, top, sign | top, quiet, half_up, one >> 1, top - 1, sign | (top - 1)]
    found += [
        type.encode(number.real(x)) or 0 for x in (0.5, -0.5, 1.5, 2, -2.5, 3.5, 7.75, -100, 0.1, 1 / 3)
    ]
    found += [1 << type.mantissa, sign | 1 << type.mantissa, one - 1, one + 3]  # least normal numbers
    found += [int(x) for x in random.integers(0, (1 << type.bits - 1) * 2 - 1, 6, np.uint64)]
    return [x << 0 for x in found if not type.is_denormal(x)]


def denormals(type: Format) -> list[int]:
    """Some denormal numbers of both signs."""
    sign = 1 << (type.bits - 1)
    most = (1 << type.mantissa) - 1
    return [1, sign | 1, most, sign | most, (most >> 1) + 1, most // 3]
