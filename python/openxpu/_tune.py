"""Choices that are measured where they run: ``openxpu tune``.

A choice is a threshold: from some size on, or up to it, one way is faster than the other. Both ways are
timed by turns at some sizes, the fastest of several rounds counts, and the threshold goes where the sum of
what is won is largest. libxpu keeps the result on disk (``xpu/tuning.h``).
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
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


class _Line(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("name", "unit", "benchmark", "text", "source")),
        *((name, ctypes.c_int64) for name in ("value", "least", "most")),
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


class Table:
    """The tuning table of a device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._xpu = _tile.library()
        self._xpu.xpu_tuning_set.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64)

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(self._xpu.xpu_last_error().decode())

    def __iter__(self) -> Iterator[Tuning]:
        line = _Line()
        for number in range(self._xpu.xpu_tuning_count()):
            self._check(self._xpu.xpu_tuning_get(self.device, number, ctypes.byref(line)))
            yield Tuning(
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

    def __getitem__(self, name: str) -> Tuning:
        return next(line for line in self if line.name == name)

    def set(self, name: str, value: int) -> None:
        """Set a value for this process."""
        self._check(self._xpu.xpu_tuning_set(self.device, self[name].number, value))

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


def _seconds(work: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count


def compare(
    work: Callable[[], object], ways: tuple[Callable[[], None], Callable[[], None]], seconds: float
) -> float:
    """Time two ways by turns; returns by what the second is faster, as a logarithm."""
    counts = []
    for way in ways:
        way()
        work()
        counts.append(max(1, int(BATCH_SECONDS / max(_seconds(work, 1), 1e-7))))
    best = [math.inf, math.inf]
    end = time.perf_counter() + seconds
    for turn in range(ROUNDS_MOST):
        if turn >= ROUNDS_LEAST and time.perf_counter() > end:
            break
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            ways[side]()
            best[side] = min(best[side], _seconds(work, counts[side]))
    return math.log(best[0] / best[1])


def questions(device: int) -> list[Question]:
    """Return what is worth asking on a host device; there is nothing yet for others."""
    import torch

    if torch.xpu.get_device_properties(device).type != "cpu":
        return []
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


def ask(
    device: int, question: Question, seconds: float, advance: Callable[[], object] = lambda: None
) -> Answer:
    """Measure a question's points, `seconds` each, and set what was found."""
    table = Table(device)
    before = table[question.name]
    off, on = (before.most, before.least) if question.from_on else (before.least, before.most)
    ways = (lambda: table.set(question.name, off), lambda: table.set(question.name, on))
    gains = []
    try:
        for _, work in question.points:
            gains.append(compare(work, ways, seconds))
            advance()
    except BaseException:
        table.set(question.name, before.value)
        raise
    points = [point for point, _ in question.points]
    value = threshold(points, gains, question.from_on, off, before.value)
    table.set(question.name, min(max(value, before.least), before.most))
    return Answer(question.name, before, table[question.name], tuple(gains))
