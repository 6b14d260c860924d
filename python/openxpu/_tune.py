"""``openxpu tune``: measure tunable parameters on this machine.

A parameter is a threshold: from some size on, or up to it, one algorithm is faster than another. Both are
timed in alternation at several sizes, taking the fastest of several rounds. The threshold is placed where the
total gain is largest. On GPUs, the tiles of matrix products are timed too, each in a large product. The
result is the tile's rate, by which libxpu selects tiles (``xpu/ops/tiles.h``). libxpu stores the results on
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

# Smaller speed-ups (as a logarithm) are timing noise.
INDIFFERENT = math.log(1.03)
# Limits the weight of a single point, at which the machine may have been busy.
OUTLIER = math.log(1.5)
# Minimum total gain to move a threshold.
WORTH_MOVING = math.log(1.1)
ROUNDS_LEAST, ROUNDS_MOST = 3, 15
BATCH_SECONDS = 0.001
# Tiles are timed in products of the largest of these sizes that doesn't exceed this time.
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
        ("rate_index", ctypes.c_int * 3),
        ("rate", ctypes.c_double * 3),
    )


@dataclass(frozen=True)
class Tuning:
    """An entry of the table, with its value in this process."""

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
        """The value, formatted."""
        return "never" if self.value >= 1 << 62 else f"{self.value:,}"


@dataclass(frozen=True)
class Products:
    """A kind of products: the operands' dtype by name and value, and whether float32 is computed as tf32."""

    dtype: str
    number: int
    tf32: bool = False

    @property
    def shown(self) -> str:
        """The kind, formatted."""
        return f"{self.dtype} as tf32" if self.tf32 else self.dtype


@dataclass(frozen=True)
class Tile:
    """A tile for a kind of products.

    Attributes
    ----------
    number
        The value of ``matrix_tile`` that pins it.
    m, n
        Rows and columns of the result per work-group.
    lines
        Measured rates with 0, 1 or 2 K-major operands; None if there are no such products.
    rates
        Rates in effect, in multiply-adds per microsecond and compute unit: measured, or libxpu's estimates.
    """

    number: int
    m: int
    n: int
    lines: tuple[Tuning | None, ...]
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Engine, size, step and subgroups: the common part of its rates' names."""
        return next(line.name for line in self.lines if line).split("_", 1)[1].rsplit("_", 2)[0]

    @property
    def source(self) -> str:
        """The source of its rates."""
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
        """The kinds of products that select among tiles with their own rates; host libraries have none."""
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
        """Iterate over the parameters; rates are in `Tile`."""
        return map(self._line, range(self._xpu.xpu_tuning_count()))

    def _number(self, name: str) -> int:
        number: int = self._xpu.xpu_tuning_index(name.encode())
        if number < 0:
            raise KeyError(name)
        return number

    def __getitem__(self, name: str) -> Tuning:
        return self._line(self._number(name))

    def set(self, name: str, value: int) -> None:
        """Set a value for this process."""
        self._check(self._xpu.xpu_tuning_set(self.device, self._number(name), value))

    def reset(self, name: str) -> None:
        """Undo ``set``: value and source are the earlier ones."""
        self._check(self._xpu.xpu_tuning_reset(self.device, self._number(name)))

    def problem(self) -> str:
        """What is wrong with the file of measurements (path, line, reason), or an empty text."""
        text = ctypes.c_char_p()
        self._check(self._xpu.xpu_tuning_problem(self.device, ctypes.byref(text)))
        return (text.value or b"").decode()

    def tiles(self, products: Products) -> list[Tile]:
        """The tiles for such products."""
        tile, found = _Tile(), []
        kind = (self.device, products.number, ctypes.c_bool(products.tf32))
        for number in range(self._xpu.xpu_tile_count()):
            self._check(self._xpu.xpu_tile_get(*kind, number, ctypes.byref(tile)))
            if not tile.is_candidate:
                continue
            lines = [self._line(rate) if rate >= 0 else None for rate in tile.rate_index]
            found.append(Tile(number, tile.m, tile.n, tuple(lines), tuple(tile.rate)))
        return found

    def rate(self, products: Products, tile: int, along_k: int, size: int, seconds: float) -> int:
        """The rate of a tile with which a product of size x size x size takes this time."""
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
        """Save what was set or measured to disk; return the file's path."""
        path = ctypes.c_char_p()
        self._check(self._xpu.xpu_tuning_save(self.device))
        self._check(self._xpu.xpu_tuning_path(self.device, ctypes.byref(path)))
        return (path.value or b"").decode()


@dataclass(frozen=True)
class Question:
    """A threshold to be determined.

    Attributes
    ----------
    points
        Ascending values to compare with the threshold, and what to run at each.
    from_on
        Whether the parameter applies from the threshold on; else up to it.
    """

    name: str
    points: Sequence[tuple[int, Callable[[], object]]]
    from_on: bool = True


def threshold(points: Sequence[int], gains: Sequence[float], from_on: bool, off: int, now: int) -> int:
    """Determine a threshold.

    Parameters
    ----------
    points, gains
        Ascending values, and the speed-up of the selected algorithm at each, as a logarithm.
    from_on
        Whether the parameter applies from the threshold on; else up to it.
    off
        The threshold that disables the algorithm.
    now
        The current threshold. It is kept unless another one gains more than timing noise.
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
    """Time the work with several settings in alternation; return the minimum seconds of each.

    Parameters
    ----------
    work, ways
        What is timed, and for each setting a function to call before it.
    seconds
        Total time; excludes building kernels.
    wait
        Waits until the device has finished.
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
    """Time two settings in alternation; return the speed-up of the second, as a logarithm."""
    first, second = fastest(work, ways, seconds, wait)
    return math.log(first / second)


def questions(device: int) -> list[Question]:
    """Return the thresholds to measure on the device."""
    import torch

    is_host = torch.xpu.get_device_properties(device).type == "cpu"
    return host_questions(device) if is_host else gpu_questions(device)


def half_precision_engine(device: int) -> str:
    """Return the prefix of rate names for half-precision matrix engines, or an empty text."""
    table = Table(device)
    for products in table.kinds():
        if products.dtype == "bf16":
            return next((tile.name.partition("_")[0] for tile in table.tiles(products)), "")
    return ""


def gpu_questions(device: int, largest: int = 4096) -> list[Question]:
    """Return the thresholds for a GPU, with matrices of up to ``largest`` rows, a power of two."""
    import torch

    where = f"xpu:{device}"
    units = [products.dtype for products in Table(device).kinds()]
    # Misaligned rows cost FMA tiles less than matrix engines, by as much as libxpu's model assumes.
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
    made = {"ptx": "quantized_tiles", "xmx": "quantized_xmx16"}.get(half_precision_engine(device), "")
    return [
        Question("packed_product", [(n**3 // share, misaligned(n)) for n in sizes]),
        Question("quantized_rows", [(m, few(m)) for m in (1, 4, 8, 16, 24, 32, 48, 64)], from_on=False),
        *([Question(made, [(m, few(m)) for m in heights], from_on=False)] if made else []),
        Question("short_row", [(n, summed(n)) for n in lengths], from_on=False),
        Question("long_row", [(n, normed(n)) for n in lengths], from_on=False),
    ]


def host_questions(device: int) -> list[Question]:
    """Return the thresholds for a CPU device."""
    import torch

    where = f"xpu:{device}"

    def square(n: int, layout: str) -> Callable[[], object]:
        a, b = torch.randn(n, n, device=where), torch.randn(n, n, device=where)
        a, b = (a.t() if layout == "tn" else a), (b.t() if layout == "nt" else b)
        return lambda: a @ b

    def skinny(rows: Sequence[int], n: int, dtype: torch.dtype) -> Callable[[], object]:
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
            "skinny_elements",
            [(n * n, skinny((1, 2, 4), n, torch.float32)) for n in (64, 128, 256, 512, 1024, 2048)],
        ),
        Question("skinny_rows", [(m, skinny((m,), 1536, torch.float32)) for m in range(1, 9)], from_on=False),
        Question(
            "skinny_rows_bf16", [(m, skinny((m,), 1536, torch.bfloat16)) for m in range(1, 9)], from_on=False
        ),
        Question("parallel_from", [(1 << n, add(1 << n)) for n in range(11, 19)]),
        Question("short_row", [(1 << n, rows(1 << n)) for n in range(4, 13)], from_on=False),
    ]


@dataclass(frozen=True)
class Answer:
    """The result for a parameter: its value before and after, and the gain at the measured points."""

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
    """Measure a threshold, `seconds` per point, and set the parameter if it changed."""
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
    """Return a product of size x size x size with this number of K-major operands."""
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
    """Allow or forbid tf32 for float32 products."""
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
    """The result for a kind of products of one layout: its tiles, and their rates before and after."""

    products: Products
    along_k: int
    tiles: tuple[Tile, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def fastest(self) -> tuple[int, int]:
        """The fastest tile in large products, by the rates before and after."""
        first, last = (max(range(len(rates)), key=rates.__getitem__) for rates in (self.before, self.after))
        return first, last


def layouts(device: int, products: Products) -> list[int]:
    """Return the numbers of K-major operands with rates to measure; pinned rates are skipped."""
    tiles = Table(device).tiles(products)
    return [n for n in range(3) if all((line := tile.lines[n]) and line.source != "pinned" for tile in tiles)]


def measure(device: int, products: Products, along_k: int, seconds: float, size: int = 0) -> Rates:
    """Time each tile in a large product, and set the rates.

    Parameters
    ----------
    device, products, along_k
        The device, the kind of products, and the number of K-major operands.
    seconds
        For all tiles; excludes building kernels.
    size
        Size of the product in each dimension; 0: what the device computes in a moment.
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
