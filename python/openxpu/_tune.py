"""Choices that are measured where they run: ``openxpu tune``.

A choice is a threshold: from some size on, or up to it, one way is faster than the other. Both ways are
timed by turns at some sizes, the fastest of several rounds counts, and the threshold goes where the sum of
what is won is largest. On GPUs the tiles of matrix products are timed, too, each in a large product, and what
it reaches is its rate, by which libxpu chooses among them (``xpu/ops/tiles.h``). libxpu keeps the results on
disk (``xpu/tuning.h``).
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from openxpu import _tile

# What is faster by less than this, as a logarithm, counts for nothing: timings differ by as much.
INDIFFERENT = math.log(1.03)
# One point that the machine was busy at doesn't decide alone, …
OUTLIER = math.log(1.5)
# … and nothing is moved for less than this in all.
WORTH_MOVING = math.log(1.1)
ROUNDS_LEAST, ROUNDS_MOST = 3, 15
BATCH_SECONDS = 0.001
# Tiles are timed in products of the largest of these sizes that takes no longer than this.
TILE_SIZES = (256, 512, 1024, 2048, 4096)
TILE_SECONDS = 0.03


class _Line(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("name", "unit", "benchmark", "text", "source")),
        *((name, ctypes.c_int64) for name in ("value", "least", "most")),
    )


class _Tile(ctypes.Structure):
    _fields_ = (
        ("is_candidate", ctypes.c_bool),
        *((name, ctypes.c_int) for name in ("m", "n", "depth")),
        ("rate_number", ctypes.c_int * 3),
        ("rate", ctypes.c_double * 3),
    )


@dataclass(frozen=True)
class Tuning:
    """A line of the table as it stands in this process."""

    number: int
    name: str
    unit: str
    benchmark: str
    text: str
    source: str
    value: int
    least: int
    most: int

    @property
    def shown(self) -> str:
        """The value for people."""
        return "never" if self.value >= 1 << 62 else f"{self.value:,}"


@dataclass(frozen=True)
class Products:
    """A kind of products: the name and number of the operands' dtype, and whether float32 goes as tf32."""

    dtype: str
    number: int
    tf32: bool = False

    @property
    def shown(self) -> str:
        """The kind for people."""
        return f"{self.dtype} as tf32" if self.tf32 else self.dtype


@dataclass(frozen=True)
class Tile:
    """A tile of products of a kind.

    Attributes
    ----------
    number
        What the choice ``matrix_tile`` pins it by.
    m, n
        Rows and columns of the result that a work-group computes.
    lines
        The measured rates where 0, 1 or 2 operands lie along k; None where there are no such products.
    rates
        Those that hold, in multiply-adds a microsecond and compute unit: measured, or libxpu's guesses.
    """

    number: int
    m: int
    n: int
    lines: tuple[Tuning | None, ...]
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Unit, size, step and teams: what the names of its rates have in common."""
        return next(line.name for line in self.lines if line).split("_", 1)[1].rsplit("_", 2)[0]

    @property
    def source(self) -> str:
        """Whence the rates are, of those that there are."""
        return ", ".join(dict.fromkeys(line.source for line in self.lines if line))


class Table:
    """The tuning table of a device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._xpu = _tile.library()
        self._xpu.xpu_tuning_set.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64)
        self._xpu.xpu_host_provider_active.restype = ctypes.c_bool
        self._xpu.xpu_dtype_name.restype = ctypes.c_char_p

    def kinds(self) -> list[Products]:
        """The kinds of products that choose among tiles with rates of their own; host libraries know none."""
        if self._xpu.xpu_host_provider_active(self.device):
            return []
        numbers, number = {}, 0
        while (name := self._xpu.xpu_dtype_name(number).decode()) != "unknown":
            numbers[name] = number
            number += 1
        found: dict[frozenset[str], Products] = {}
        for name, tf32 in (("f32", False), ("bf16", False), ("i8", False), ("f32", True)):
            products = Products(name, numbers[name], tf32)
            rates = frozenset(line.name for tile in self.tiles(products) for line in tile.lines if line)
            if rates:
                found.setdefault(rates, products)
        return list(found.values())

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(self._xpu.xpu_last_error().decode())

    def _line(self, number: int) -> Tuning:
        line = _Line()
        self._check(self._xpu.xpu_tuning_get(self.device, number, ctypes.byref(line)))
        return Tuning(
            number,
            name=line.name.decode(),
            unit=line.unit.decode(),
            benchmark=line.benchmark.decode(),
            text=line.text.decode(),
            source=line.source.decode(),
            value=line.value,
            least=line.least,
            most=line.most,
        )

    def __iter__(self) -> Iterator[Tuning]:
        """The choices; there are rates besides, of tiles (`Tile`)."""
        return map(self._line, range(self._xpu.xpu_tuning_count()))

    def _number(self, name: str) -> int:
        number: int = self._xpu.xpu_tuning_number(name.encode())
        if number < 0:
            raise KeyError(name)
        return number

    def __getitem__(self, name: str) -> Tuning:
        return self._line(self._number(name))

    def set(self, name: str, value: int) -> None:
        """Set a value for this process."""
        self._check(self._xpu.xpu_tuning_set(self.device, self._number(name), value))

    def reset(self, name: str) -> None:
        """Take back what was set: the value, and where it is from, are those of before."""
        self._check(self._xpu.xpu_tuning_reset(self.device, self._number(name)))

    def problem(self) -> str:
        """What is wrong with the file of measurements: its path, the line and the reason; or nothing."""
        text = ctypes.c_char_p()
        self._check(self._xpu.xpu_tuning_problem(self.device, ctypes.byref(text)))
        return (text.value or b"").decode()

    def tiles(self, products: Products) -> list[Tile]:
        """The tiles that such products choose from."""
        tile, found = _Tile(), []
        kind = (self.device, products.number, ctypes.c_bool(products.tf32))
        for number in range(self._xpu.xpu_tile_count()):
            self._check(self._xpu.xpu_tile_get(*kind, number, ctypes.byref(tile)))
            if not tile.is_candidate:
                continue
            lines = [self._line(rate) if rate >= 0 else None for rate in tile.rate_number]
            found.append(Tile(number, tile.m, tile.n, tuple(lines), tuple(tile.rate)))
        return found

    def rate(self, products: Products, tile: int, along_k: int, size: int, seconds: float) -> int:
        """The rate of a tile, if a product of size x size x size takes so long."""
        rate = ctypes.c_double()
        kind = (self.device, products.number, ctypes.c_bool(products.tf32))
        sizes = (ctypes.c_int64(size),) * 3
        self._check(
            self._xpu.xpu_tile_rate(
                *kind, tile, *sizes, along_k, ctypes.c_double(seconds), ctypes.byref(rate)
            )
        )
        return max(1, round(rate.value))

    def keep(self) -> str:
        """Write what was set or measured to disk; returns the file's path."""
        path = ctypes.c_char_p()
        self._check(self._xpu.xpu_tuning_keep(self.device))
        self._check(self._xpu.xpu_tuning_path(self.device, ctypes.byref(path)))
        return (path.value or b"").decode()


@dataclass(frozen=True)
class Question:
    """A threshold to find.

    Attributes
    ----------
    points
        The values of what is compared with the threshold, rising, and what runs at each.
    from_on
        Whether the choice holds from the threshold on, else up to it.
    """

    name: str
    points: Sequence[tuple[int, Callable[[], object]]]
    from_on: bool = True


def threshold(points: Sequence[int], gains: Sequence[float], from_on: bool, off: int, now: int) -> int:
    """Place a threshold.

    Parameters
    ----------
    points, gains
        Rising values, and for each by what the chosen way is faster there, as a logarithm.
    from_on
        Whether the choice holds from the threshold on, else up to it.
    off
        The threshold that leaves no point to the choice.
    now
        The threshold as it is. It stays, unless another one wins more than timings differ by anyway.
    """
    sure = [0.0 if abs(gain) < INDIFFERENT else max(-OUTLIER, min(gain, OUTLIER)) for gain in gains]

    def total(limit: int) -> float:
        chosen = (point >= limit if from_on else point <= limit for point in points)
        return sum(gain for gain, on in zip(sure, chosen, strict=True) if on)

    best = max([off, *points], key=total)
    return best if total(best) > total(now) + WORTH_MOVING else now


def _seconds(work: Callable[[], object], count: int, wait: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    wait()
    return (time.perf_counter() - start) / count


def fastest(
    work: Callable[[], object],
    ways: Sequence[Callable[[], None]],
    seconds: float,
    wait: Callable[[], object] = lambda: None,
) -> list[float]:
    """Time the work in several ways by turns; returns the seconds that each took when it was fastest.

    Parameters
    ----------
    work, ways
        What is timed, and what is called before it, each to arrange for one way.
    seconds
        For all of them; kernels are built before.
    wait
        Waits until the device has done the work.
    """
    counts = []
    for way in ways:
        way()
        _seconds(work, 1, wait)
        counts.append(max(1, int(BATCH_SECONDS / max(_seconds(work, 1, wait), 1e-7))))
    best = [math.inf] * len(ways)
    end = time.perf_counter() + seconds
    for turn in range(ROUNDS_MOST):
        if turn >= ROUNDS_LEAST and time.perf_counter() > end:
            break
        order = range(len(ways)) if turn % 2 == 0 else reversed(range(len(ways)))
        for side in order:
            ways[side]()
            best[side] = min(best[side], _seconds(work, counts[side], wait))
    return best


def compare(
    work: Callable[[], object],
    ways: tuple[Callable[[], None], Callable[[], None]],
    seconds: float,
    wait: Callable[[], object] = lambda: None,
) -> float:
    """Time two ways by turns; returns by what the second is faster, as a logarithm."""
    first, second = fastest(work, ways, seconds, wait)
    return math.log(first / second)


def questions(device: int) -> list[Question]:
    """Return what is worth asking on the device."""
    import torch

    is_host = torch.xpu.get_device_properties(device).type == "cpu"
    return host_questions(device) if is_host else gpu_questions(device)


def halves_unit(device: int) -> str:
    """Return how names of rates begin for the unit that multiplies half-precision numbers, or an empty text."""
    table = Table(device)
    for products in table.kinds():
        if products.dtype == "bf16":
            return next((tile.name.partition("_")[0] for tile in table.tiles(products)), "")
    return ""


def gpu_questions(device: int, largest: int = 4096) -> list[Question]:
    """Return what is worth asking on a GPU, with matrices of up to ``largest`` rows, a power of two."""
    import torch

    where = f"xpu:{device}"
    units = [products.dtype for products in Table(device).kinds()]
    # Lines that aren't aligned cost multiply-adds less than units, by as much as libxpu reckons, too.
    dtype, share = (torch.bfloat16, 1) if "bf16" in units else (torch.float32, 32)

    def misaligned(n: int) -> Callable[[], object]:
        a, b = (torch.randn(n, n + 1, device=where).to(dtype)[:, :n] for _ in range(2))
        return lambda: a @ b

    multiply = torch.ops.aten._weight_int4pack_mm_with_scales_and_zeros
    weights = torch.randint(-(1 << 31), 1 << 31, (largest, largest // 8), dtype=torch.int32, device=where)
    scale = torch.rand(largest // 128, largest, device=where).bfloat16()
    zero = torch.full((largest // 128, largest), 8, dtype=torch.int8, device=where)
    numbers = torch.randn(largest * largest, device=where)

    def few(m: int) -> Callable[[], object]:
        a = torch.randn(m, largest, device=where).bfloat16()
        return lambda: multiply(a, weights, 128, scale, zero)

    def summed(n: int) -> Callable[[], object]:
        return lambda: numbers.view(-1, n).sum(1)

    def normed(n: int) -> Callable[[], object]:
        return lambda: numbers.view(-1, n).softmax(1)

    sizes = [n for n in (128, 192, 256, 384, 512, 768, 1024, 1536, 2048) if n <= largest]
    lengths = [1 << n for n in range(5, 15)]
    heights = [m for m in (256, 512, 1024, 2048, 4096, 8192) if m <= 2 * largest]
    made = {"ptx": "quantised_tiles", "xmx": "quantised_blocks"}.get(halves_unit(device), "")
    return [
        Question("packed_product", [(n**3 // share, misaligned(n)) for n in sizes]),
        Question("quantised_rows", [(m, few(m)) for m in (1, 4, 8, 16, 24, 32, 48, 64)], from_on=False),
        *([Question(made, [(m, few(m)) for m in heights], from_on=False)] if made else []),
        Question("short_row", [(n, summed(n)) for n in lengths], from_on=False),
        Question("long_row", [(n, normed(n)) for n in lengths], from_on=False),
    ]


def host_questions(device: int) -> list[Question]:
    """Return what is worth asking on a host device."""
    import torch

    where = f"xpu:{device}"

    def square(n: int, layout: str) -> Callable[[], object]:
        a, b = torch.randn(n, n, device=where), torch.randn(n, n, device=where)
        a, b = (a.t() if layout == "tn" else a), (b.t() if layout == "nt" else b)
        return lambda: a @ b

    def thin(rows: Sequence[int], n: int, dtype: torch.dtype) -> Callable[[], object]:
        b = torch.randn(n, n, device=where).to(dtype).t()
        several = [torch.randn(m, n, device=where).to(dtype) for m in rows]
        return lambda: [a @ b for a in several]

    def add(n: int) -> Callable[[], object]:
        a = torch.randn(n, device=where)
        return lambda: a + a

    def rows(n: int) -> Callable[[], object]:
        a = torch.randn((1 << 18) // n, n, device=where)
        return lambda: a.sum(1)

    sizes = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
    return [
        *(
            Question(f"onednn_from_{form}", [(n**3, square(n, form)) for n in sizes])
            for form in ("nn", "nt", "tn")
        ),
        Question(
            "thin_elements",
            [(n * n, thin((1, 2, 4), n, torch.float32)) for n in (64, 128, 256, 512, 1024, 2048)],
        ),
        Question("thin_rows", [(m, thin((m,), 1536, torch.float32)) for m in range(1, 9)], from_on=False),
        Question(
            "thin_rows_bf16", [(m, thin((m,), 1536, torch.bfloat16)) for m in range(1, 9)], from_on=False
        ),
        Question("share_from", [(1 << n, add(1 << n)) for n in range(11, 19)]),
        Question("short_row", [(1 << n, rows(1 << n)) for n in range(4, 13)], from_on=False),
    ]


@dataclass(frozen=True)
class Answer:
    """What was found for a line: its value before and after, and what that wins at the measured points."""

    name: str
    before: Tuning
    after: Tuning
    gains: tuple[float, ...]


def _waiting(device: int) -> Callable[[], object]:
    import torch

    return lambda: torch.xpu.synchronize(device)


def ask(
    device: int, question: Question, seconds: float, advance: Callable[[], object] = lambda: None
) -> Answer:
    """Measure a question's points, `seconds` each, and set what was found, if that is another value."""
    table = Table(device)
    before = table[question.name]
    off, on = (before.most, before.least) if question.from_on else (before.least, before.most)
    ways = (lambda: table.set(question.name, off), lambda: table.set(question.name, on))
    gains = []
    try:
        for _, work in question.points:
            gains.append(compare(work, ways, seconds, _waiting(device)))
            advance()
    finally:
        table.reset(question.name)
    points = [point for point, _ in question.points]
    value = threshold(points, gains, question.from_on, off, before.value)
    value = min(max(value, before.least), before.most)
    if value != before.value:
        table.set(question.name, value)
    return Answer(question.name, before, table[question.name], tuple(gains))


LAYOUTS = ("a.t() @ b", "a @ b", "a @ b.t()")


def product(device: int, products: Products, along_k: int, size: int) -> Callable[[], object]:
    """A product of size x size x size of whose operands so many lie along k."""
    import torch

    where = f"xpu:{device}"
    if products.dtype == "i8":
        a, b = (torch.randint(-99, 99, (size, size), dtype=torch.int8, device=where) for _ in range(2))
    else:
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[products.dtype]
        a, b = (torch.randn(size, size, device=where).to(dtype) for _ in range(2))
    a, b = (a if along_k else a.t()), (b.t() if along_k == 2 else b)
    return lambda: torch._int_mm(a, b) if products.dtype == "i8" else a @ b


@contextmanager
def _precision(products: Products) -> Iterator[None]:
    """Let products of float32 go as tf32, or not."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if products.tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _tile_size(device: int, products: Products, along_k: int) -> int:
    wait, size = _waiting(device), TILE_SIZES[0]
    for larger in TILE_SIZES[1:]:
        work = product(device, products, along_k, size)
        _seconds(work, 1, wait)
        if _seconds(work, 3, wait) * (larger / size) ** 3 > TILE_SECONDS:
            break
        size = larger
    return size


@dataclass(frozen=True)
class Rates:
    """What was found for a kind of products of one layout: its tiles, and their rates before and after."""

    products: Products
    along_k: int
    tiles: tuple[Tile, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def fastest(self) -> tuple[int, int]:
        """Which of the tiles is the fastest in large products, by the rates before and after."""
        first, last = (max(range(len(rates)), key=rates.__getitem__) for rates in (self.before, self.after))
        return first, last


def layouts(device: int, products: Products) -> list[int]:
    """How many operands may lie along k, of those that have rates to measure; what is pinned isn't."""
    tiles = Table(device).tiles(products)
    return [n for n in range(3) if all((line := tile.lines[n]) and line.source != "pinned" for tile in tiles)]


def measure(device: int, products: Products, along_k: int, seconds: float, size: int = 0) -> Rates:
    """Time each tile in a large product, and set the rates.

    Parameters
    ----------
    device, products, along_k
        Of which products, on which device, so many operands of which lie along k.
    seconds
        For all tiles; kernels are built before.
    size
        Of the product along each dimension; 0: what the device computes in a moment.
    """
    table = Table(device)
    tiles = table.tiles(products)

    def way(tile: Tile) -> Callable[[], None]:
        return lambda: table.set("matrix_tile", tile.number)

    with _precision(products):
        size = size or _tile_size(device, products, along_k)
        try:
            work = product(device, products, along_k, size)
            times = fastest(work, [way(tile) for tile in tiles], seconds, _waiting(device))
        finally:
            table.reset("matrix_tile")
    rates = [
        table.rate(products, tile.number, along_k, size, time)
        for tile, time in zip(tiles, times, strict=True)
    ]
    for tile, rate in zip(tiles, rates, strict=True):
        line = tile.lines[along_k]
        assert line
        table.set(line.name, rate)
    before = tuple(tile.rates[along_k] for tile in tiles)
    return Rates(products, along_k, tuple(table.tiles(products)), before, tuple(map(float, rates)))
