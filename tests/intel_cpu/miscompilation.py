"""Search for wrong code from Intel's CPU compiler: compare each kernel built with and without optimizer.

    python tests/intel_cpu/miscompilation.py [--corpus EVERY] [--programs COUNT] [--first SEED] [--jobs N]

The script builds every EVERYth module of Triton's corpus and COUNT random programs for the CPU, both as
openxpu does and with ``-cl-opt-disable``. It runs both builds on the same random data and prints the
differences.

Integers must be equal bit by bit. Floats may differ as far as two correct builds can: the optimizer contracts
``a * b + c`` and uses other versions of functions such as ``exp`` for whole vectors. The unoptimized build
can be wrong too (atomics on few elements run twice). A difference in a random program is therefore not a
finding if the optimized build agrees with NumPy.

Each kernel runs in a child process. A crash is a finding too, unless the unoptimized build crashes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from builds import REFERENCE, TOLERANCE, differing, largest, supervise

sys.path.insert(0, str(Path(__file__).parents[1] / "tile"))
import test_corpus
import test_differential
from random_programs import Generator
from random_values import BITS, GRID, stored_values
from test_corpus import run

CHUNK = 40  # kernels per process


class Case(NamedTuple):
    """A module, its grid, and its outputs: parameters, element types and the float error allowed."""

    name: str
    text: str
    grid: tuple[int, ...]
    arguments: list[np.ndarray | int | float]
    outputs: list[tuple[int, str, float | None]]
    seed: int | None = None


def of_corpus(name: str, text: str) -> Case | None:
    """Load a module of the corpus; None if random data makes it access memory out of bounds."""
    data = test_corpus.arguments(text)
    grid = (2, 2, 1) if "get_program_id y" in text else (3, 1, 1)
    try:
        test_corpus.interpret.interpret(text, grid, [v.copy() if e else v for e, v in data])
    except (test_corpus.interpret.Unsupported, IndexError):
        return None
    outputs = [(i, element, None) for i, (element, _) in enumerate(data) if element]
    return Case(name, text, grid, [v for _, v in data], outputs)


def of_seed(seed: int) -> Case:
    """Generate a random program."""
    program = Generator(seed).program()
    outputs = [(o.parameter, o.element, 4 * o.error) for o in program.outputs]
    return Case(f"seed {seed}", program.text, (GRID, 1, 1), program.arguments, outputs, seed)


def numbers(array: np.ndarray, element: str) -> np.ndarray:
    """Decode an array from its stored form."""
    return stored_values(array, element).astype(np.float64 if element not in BITS else array.dtype)


def difference(case: Case) -> str | None:
    """Run both builds and describe their differences; empty if the device lacks a required feature."""
    results = []
    for options in ("", REFERENCE):
        if options:
            print("reference", flush=True)
        try:
            kernel = run.Kernel(case.text, "cpu", more_options=options)
        except run._tile.CompileError as error:
            if "local memory" in str(error) or "inline assembly" in str(error):
                return ""
            raise
        arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in case.arguments]
        kernel(case.grid, *arguments)
        results.append(arguments)
    for parameter, element, error in case.outputs:
        built, wanted = (r[parameter] for r in results)
        if np.array_equal(built.view(np.uint8), wanted.view(np.uint8)):
            continue
        built, wanted = numbers(built, element), numbers(wanted, element)
        if error is None:
            error = TOLERANCE.get(element, 0) * largest(wanted)
        wrong = differing(built, wanted, error)
        if wrong.any():
            at = np.flatnonzero(wrong)
            return (
                f"parameter {parameter} ({element}), {at.size} of {wrong.size} from {at[0]} to {at[-1]}: "
                f"{built[at[0]]}, not {wanted[at[0]]}"
            )
    return None


def is_right(case: Case) -> bool:
    """Return whether the optimized build of a random program agrees with NumPy."""
    if case.seed is None:
        return False
    return not test_differential.difference(replace(Generator(case.seed).program(), target="cpu"))


def cases(what: str, first: int, count: int, every: int) -> Iterator[tuple[str, Case | None]]:
    """Yield the cases of a range of the corpus or of seeds."""
    if what == "programs":
        for seed in range(first, first + count):
            yield f"seed {seed}", of_seed(seed)
        return
    test_corpus.EVERY = every
    for name, text in list(test_corpus.corpus().items())[first : first + count]:
        yield name, of_corpus(name, text)


def work(what: str, first: int, count: int, every: int) -> None:
    """Run a range; print one line before and one after each kernel."""
    for i, (name, case) in enumerate(cases(what, first, count, every)):
        print(f"begin {first + i} {name}", flush=True)
        try:
            wrong = difference(case) if case else ""
            if wrong and case and is_right(case):
                print(f"unoptimized {wrong}", flush=True)
                continue
            print("same" if wrong is None else f"DIFFERS {wrong}" if wrong else "skipped", flush=True)
        except Exception as error:
            print(f"FAILS {type(error).__name__}: {str(error)[:300]!r}", flush=True)


def supervised(what: str, first: int, count: int, every: int) -> tuple[str, tuple[int, int, list[str]]]:
    """Run a range in child processes."""
    return what, supervise([sys.executable, __file__, "--work", what, str(every)], first, count, {})


def main() -> int:
    """Distribute the work over processes; print the totals."""
    if sys.argv[1:2] == ["--work"]:
        every, first, count = map(int, sys.argv[3:])
        work(sys.argv[2], first, count, every)
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--corpus", type=int, default=10, metavar="N", help="test every Nth module of the corpus; 0: none"
    )
    parser.add_argument(
        "--programs", type=int, default=200, metavar="COUNT", help="number of random programs"
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="SEED", help="first seed of the random programs"
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    options = parser.parse_args()
    ranges = [
        ("programs", options.first + i, min(CHUNK, options.programs - i), 1)
        for i in range(0, options.programs, CHUNK)
    ]
    if options.corpus:
        test_corpus.EVERY = options.corpus
        size = len(test_corpus.corpus())
        ranges = [("corpus", i, min(CHUNK, size - i), options.corpus) for i in range(0, size, CHUNK)] + ranges
    found = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        sums = list(pool.map(lambda r: supervised(*r), ranges))
    for what in ("corpus", "programs"):
        counts = [s for w, s in sums if w == what]
        found += sum(len(s[2]) for s in counts)
        print(
            f"{what}: {sum(s[0] for s in counts)} kernels compared, {sum(s[1] for s in counts)} skipped, "
            f"{sum(len(s[2]) for s in counts)} findings"
        )
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
