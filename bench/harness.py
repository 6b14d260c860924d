"""Measures both sides of a benchmark in one process, alternately, and takes the best time of each.

A benchmark file defines `cases() -> Iterator[Case]`. Run one file directly (`python bench/rows.py`) or all of
them with `make bench`. A ratio is the CPU device's time divided by xpu's: above 1 xpu is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table


@dataclass
class Case:
    """Two ways to do the same work.

    Parameters
    ----------
    group, name : str
        The names in the table.
    ours, theirs : callable
        The work on xpu and on the CPU.
    bar : float
        The least acceptable ratio.
    median : bool
        Compare medians of single calls (latency) instead of the best of several rounds.
    without : pair of callables, optional
        Work to exclude from ours and theirs. It is timed in the same rounds, and its time is subtracted.
    """

    group: str
    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    bar: float
    median: bool = False
    without: tuple[Callable[[], object], Callable[[], object]] | None = None


@dataclass
class Result:
    """A measured case; times are in microseconds."""

    group: str
    name: str
    ours: float
    theirs: float
    ratio: float
    bar: float


def _time(work: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    torch.xpu.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def measure(case: Case, rounds: int = 9, seconds: float = 0.05) -> Result:
    """Run both sides alternately, `rounds` times for about `seconds` each."""
    sides = (case.ours, case.theirs, *(case.without or ()))
    calls = []
    for work in sides:
        work()
        once = min(_time(work, 1) for _ in range(2))
        calls.append(max(1, min(100_000, int(seconds * 1e6 / max(once, 0.5)))))
    times: tuple[list[float], ...] = tuple([] for _ in sides)
    for _ in range(rounds):
        for side, work in enumerate(sides):
            times[side].append(_time(work, calls[side]))
    pick = statistics.median if case.median else min
    ours, theirs, *without = (pick(side) for side in times)
    if without:
        ours, theirs = ours - without[0], theirs - without[1]
    return Result(case.group, case.name, ours, theirs, theirs / ours, case.bar)


def report(cases: Iterable[Case], path: Path | None = None, title: str = "xpu beside the CPU device") -> bool:
    """Measure, print a table and write JSON; return whether every bar is reached."""
    console = Console(width=110)
    results = []
    table = Table(title=f"{title}: {torch.xpu.get_device_name()}, {torch.get_num_threads()} threads")
    for column in ("group", "case", "xpu µs", "CPU µs", "ratio", "bar"):
        table.add_column(column, justify="left" if column in ("group", "case") else "right")
    for case in cases:
        r = measure(case)
        results.append(r)
        color = "green" if r.ratio >= r.bar else "red"
        times = (f"{r.ours:,.2f}", f"{r.theirs:,.2f}")
        table.add_row(r.group, r.name, *times, f"[{color}]{r.ratio:.2f}[/]", f"{r.bar:.2f}")
        print(f"{r.group} {r.name}: {r.ratio:.2f} (bar {r.bar:.2f})", file=sys.stderr, flush=True)
    console.print(table)
    if path:
        path.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    return all(r.ratio >= r.bar for r in results)


def main(cases: Callable[[], Iterator[Case]]) -> None:
    """Run the command line of one benchmark file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("-k", default="", help="only cases with this in their group or name")
    arguments = parser.parse_args()
    chosen = (c for c in cases() if arguments.k in f"{c.group} {c.name}")
    report(chosen, arguments.json)
