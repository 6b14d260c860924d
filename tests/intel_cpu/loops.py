"""Search generated loops for wrong code from Intel's CPU compiler.

    python tests/intel_cpu/loops.py [--kernels COUNT] [--first SEED] [--jobs N] [--without MEND]

Each kernel is a small random Triton program for the CPU from ``tests/tile/random_choices.py``: uniform and
varying loads, selects and masks, sums and other reductions, loops of all lengths, all types. It is built
twice, as openxpu builds it and with the optimizer disabled, and both builds run on the same data. A kernel is
a finding if the two results differ and the optimized one also differs from NumPy's; the unoptimized build can
be wrong too.

A build has a high fixed cost, so up to 100 kernels share one OpenCL program. If the compiler or a kernel
crashes, the kernels of that group are run again one by one, which names the seed; the search then continues
with the next group.

``--without MEND`` removes one of the workarounds from the generated OpenCL C. Some kernels in a hundred must
then be wrong, or the generator does not cover that fault:

- ``meet``: the subgroup barrier that keeps a loop from being unswitched;
- ``hints``: that barrier and the limit on unrolling;
- ``counts``: that barrier, and loops that count iterations instead of elements; unrolling, which hides this
fault, is
  disabled.

libxpu also disables loop unswitching in the driver (``CL_CONFIG_LLVM_OPTIONS``). This script does not,
because the generated code must be correct without it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from builds import REFERENCE, differing, supervise

sys.path.insert(0, str(Path(__file__).parents[1] / "tile"))
import random_choices
from random_programs import Generator
from random_values import BITS, GRID, Program, Value, stored_values
from test_corpus import interpret, run

GROUP = 100  # seeds; kernels whose sources start with the same declarations share one OpenCL program
CHUNK = 4  # groups per process
WORKER = [sys.executable, __file__, "--work"]
PARTS = {
    "shared": random_choices.shared,
    "carried": random_choices.carried,
    "loads": random_choices.loads,
    "falling": random_choices.falling,
}


class Loops(Generator):
    """Generates a program of one or two parts for the CPU."""

    def __init__(self, seed: int, parts: tuple[str, ...] = tuple(PARTS)) -> None:
        super().__init__(seed)
        self.target, self.has_fp64, self.limit = "cpu", True, 1024
        self.parts = parts

    def steps(self, count: int) -> None:
        parts = [PARTS[p] for p in self.parts for _ in range(4 if p == "shared" else 1)]
        for _ in range(self.random.choice([1, 1, 2])):
            self.random.choice(parts)(self)

    def program(self) -> Program:
        self.keep(Value(self.parameter("i32", self.random.randrange(100)), "i32", ()))
        self.steps(1)
        self.line("tt.return")
        head = ["module {", f"  tt.func public @random({', '.join(self.parameters)}) {{"]
        return Program([*head, *self.lines, "  }", "}"], [], self.arguments, self.outputs, "cpu", 4)


def without(source: str, mend: str) -> str:
    """Remove a workaround from a kernel's source."""
    if mend:
        source = source.replace("#define TILE_RECONVERGE sub_group_barrier(0)", "#define TILE_RECONVERGE")
    if mend == "hints":
        source = re.sub(r"__attribute__\(\(opencl_unroll_hint\(\d+\)\)\)", "", source)
    if mend == "counts":
        source = re.sub(r"opencl_unroll_hint\(\d+\)", "opencl_unroll_hint(1)", source)
        source = re.sub(
            r"for \(int (\w+) = 0; \1 < (\d+); \1\+\+\) \{\n\s*const int (\w+) = \1 \* (\d+);",
            lambda m: (
                f"for (int {m[3]} = 0; {m[3]} < {int(m[2]) * int(m[4])}; {m[3]} += {m[4]}) {{\n"
                f"const int {m[1]} = {m[3]} / {m[4]};"
            ),
            source,
        )
    return source


class Built(run.Kernel):
    """One kernel of an OpenCL program that contains many."""

    def __init__(self, program: object, source: str, name: str, options: str) -> None:
        self.program, self.texts, self.kernel = program, (), ctypes.c_void_p()
        options = f"{program.build_options} {options}".strip()
        run.check(
            run._xpu.xpu_kernel_create(
                0, source.encode(), options.encode(), name.encode(), None, ctypes.byref(self.kernel)
            )
        )


class Member(NamedTuple):
    """A kernel of a merged program."""

    seed: int
    program: Program
    compiled: object
    name: str


def joined(first: int, count: int, mend: str, parts: tuple[str, ...]) -> list[tuple[str, list[Member]]]:
    """Generate kernels; merge those with the same declarations and build options into one source."""
    sources: dict[str, list[str]] = defaultdict(list)
    members: dict[str, list[Member]] = defaultdict(list)
    for seed in range(first, first + count):
        program = Loops(seed, parts).program()
        compiled = run._tile.compile_module(program.text.encode(), target="cpu")
        above, body = compiled.source.split("typedef struct params", 1)
        above = above.partition("\n")[2]  # drop the first line, which names the kernel
        name = f"loops_{seed}"
        body = "typedef struct params" + body
        body = re.sub(r"\bparams\b", f"params_{seed}", body).replace(f" {compiled.name}(", f" {name}(")
        key = above + compiled.build_options
        sources[key].append(without(above * (not sources[key]) + body, mend))
        members[key].append(Member(seed, program, compiled, name))
    return [("\n".join(sources[key]), members[key]) for key in sources]


def result(member: Member, source: str, options: str) -> list[np.ndarray]:
    """Run a kernel; return its output arrays in their stored form."""
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in member.program.arguments]
    Built(member.compiled, source, member.name, options)((GRID,), *arguments)
    return [arguments[o.parameter] for o in member.program.outputs]


def difference(program: Program, built: list[np.ndarray], wanted: list[np.ndarray]) -> str | None:
    """Describe where two results differ by more than rounding; None if they agree."""
    for output, b, w in zip(program.outputs, built, wanted, strict=True):
        if np.array_equal(b.view(np.uint8), w.view(np.uint8)):
            continue
        b, w = stored_values(b, output.element), stored_values(w, output.element)
        if output.element not in BITS:
            b, w = b.astype(np.float64), w.astype(np.float64)
        wrong = differing(b, w, 4 * output.error)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            return (
                f"parameter {output.parameter}, {wrong.sum()} of {wrong.size} from {at}: {b[at]}, not {w[at]}"
            )
    return None


def interpreted(program: Program) -> list[np.ndarray]:
    """Compute a program's outputs with NumPy."""
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in program.arguments]
    interpret.interpret(program.text, (GRID, 1, 1), arguments)
    return [arguments[o.parameter] for o in program.outputs]


def findings(
    first: int, count: int, mend: str = "", parts: tuple[str, ...] = tuple(PARTS)
) -> tuple[int, list[str]]:
    """Build and run seeds ``first`` to ``first + count - 1`` both ways.

    Returns the number of kernels compared and a description of each wrong one.
    """
    compared, found = 0, []
    for source, members in joined(first, count, mend, parts):
        for member in members:
            built = result(member, source, "")
            if count == 1:  # tells `supervise` that a later crash comes from the unoptimized build
                print("reference", flush=True)
            reference = result(member, source, REFERENCE)
            compared += 1
            if difference(member.program, built, reference):
                wrong = difference(member.program, built, interpreted(member.program))
                if wrong:
                    found.append(f"seed {member.seed}: {wrong}")
    return compared, found


def work(mend: str, size: int, first: int, end: int, group: int, groups: int) -> None:
    """Run groups ``group`` to ``group + groups - 1`` of seeds ``first`` to ``end - 1``, ``size`` seeds each.

    Prints the lines that ``supervise`` parses: one before and one after each group.
    """
    for number in range(group, group + groups):
        start = first + number * size
        stop = min(start + size, end)
        print(f"begin {number} seeds {start} to {stop - 1}", flush=True)
        try:
            _, found = findings(start, stop - start, mend)
            print(f"DIFFERS {found}" if found else "same", flush=True)
        except Exception as error:
            print(f"FAILS {type(error).__name__}: {str(error)[:300]!r}", flush=True)


class Sum(NamedTuple):
    """The results of a range of seeds.

    Attributes
    ----------
    compared, skipped
        Numbers of kernels. A kernel is skipped if its unoptimized build crashes. Other crashing kernels count
        in neither.
    found
        A description of each finding.
    """

    compared: int
    skipped: int
    found: list[str]


def search(mend: str, first: int, end: int) -> Sum:
    """Run a range of seeds in child processes, which may crash."""
    environment = {"OPENXPU_CACHE": "0", "CL_CONFIG_LLVM_OPTIONS": ""}

    def supervised(size: int, first: int, end: int) -> tuple[int, int, list[str]]:
        command = [*WORKER, mend or "-", *map(str, (size, first, end))]
        return supervise(command, 0, -(-(end - first) // size), environment, quiet=True)

    lost, skipped, found = 0, 0, []
    for what in supervised(GROUP, first, end)[2]:
        seeds = re.match(r"seeds (\d+) to (\d+): (CRASHES|FAILS)", what)
        if not seeds:
            found.append(what)
            continue
        _, unoptimized, alone = supervised(1, int(seeds[1]), int(seeds[2]) + 1)
        skipped += unoptimized
        lost += sum("DIFFERS" not in w for w in alone)
        found += alone
        if not alone and not unoptimized:
            found.append(f"{what}, but none of these kernels does alone")
    for what in found:
        print(what, flush=True)
    return Sum(end - first - skipped - lost, skipped, found)


def main() -> int:
    """Distribute the seeds over processes; print the totals."""
    if sys.argv[1:2] == ["--work"]:
        mend, *numbers = sys.argv[2:]
        work(mend.strip("-"), *map(int, numbers))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=int, default=20_000, metavar="COUNT")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--without", default="", choices=["meet", "hints", "counts"])
    options = parser.parse_args()
    end = options.first + options.kernels
    starts = range(options.first, end, CHUNK * GROUP)
    with ThreadPoolExecutor(options.jobs) as pool:
        sums = list(
            pool.map(lambda start: search(options.without, start, min(start + CHUNK * GROUP, end)), starts)
        )
    found = sum(len(s.found) for s in sums)
    print(
        f"loops: {sum(s.compared for s in sums)} kernels compared, {sum(s.skipped for s in sums)} skipped, "
        f"{found} groups with findings"
    )
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
