"""Thousands of loops that choose by the lane, many in a program: built as openxpu does and without the optimiser.

    python tests/intel_cpu/loops.py [--kernels COUNT] [--first SEED] [--jobs N] [--without MEND]

Each kernel is a small random one of Triton's (``tests/tile/random_choices.py``), compiled for the processor: uniform
and varying loads, selects and masks, sums and other combinations, loops of all lengths, all types. What an optimised
kernel computes has to be what the same kernel does when it is not optimised, or what NumPy does (the build that is
not optimised has faults of its own). Building kernels together spares most of what a build costs.

``--without meet``, ``hints`` (and meeting) or ``counts`` (and meeting, and all unrolling, which hides that fault) takes
a mend out of the source that the compiler printed. Then there have to be findings, some in a hundred kernels, or the
family doesn't look where that fault is. What libxpu tells the driver to leave out
(``CL_CONFIG_LLVM_OPTIONS``) is not left out here: the forms have to be right by themselves.
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

PROGRAM = 100  # kernels of a program, before they are sorted by what stands above them
PARTS = {
    "shared": random_choices.shared,
    "carried": random_choices.carried,
    "loads": random_choices.loads,
    "falling": random_choices.falling,
}


class Loops(Generator):
    """Writes a program of one or two such parts, for the processor."""

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
    """Take a mend out of a kernel's source."""
    if mend:
        source = source.replace("#define TILE_MEET sub_group_barrier(0)", "#define TILE_MEET")
    if mend == "hints":
        source = re.sub(r"__attribute__\(\(opencl_unroll_hint\(\d+\)\)\)", "", source)
    if mend == "counts":
        source = re.sub(r"opencl_unroll_hint\(\d+\)", "opencl_unroll_hint(1)", source)
        source = re.sub(
            r"for \(int (\w+) = 0; \1 < (\d+); \1\+\+\) \{\n\s*const int (\w+) = \1 \* (\d+);",
            lambda m: f"for (int {m[3]} = 0; {m[3]} < {int(m[2]) * int(m[4])}; {m[3]} += {m[4]}) {{",
            source,
        )
    return source


class Built(run.Kernel):
    """One kernel of a program of many."""

    def __init__(self, program: object, source: str, name: str, options: str) -> None:
        self.program, self.texts, self.kernel = program, (), ctypes.c_void_p()
        options = f"{program.build_options} {options}".strip()
        run.check(
            run._xpu.xpu_kernel_create(
                0, source.encode(), options.encode(), name.encode(), None, ctypes.byref(self.kernel)
            )
        )


class Member(NamedTuple):
    """A kernel of a joint program."""

    seed: int
    program: Program
    compiled: object
    name: str


def joint(first: int, count: int, mend: str, parts: tuple[str, ...]) -> list[tuple[str, list[Member]]]:
    """Compile random kernels; put those into one source that need the same above them."""
    sources: dict[str, list[str]] = defaultdict(list)
    members: dict[str, list[Member]] = defaultdict(list)
    for seed in range(first, first + count):
        program = Loops(seed, parts).program()
        compiled = run._tile.compile_module(program.text.encode(), target="cpu")
        above, body = compiled.source.split("typedef struct params", 1)
        above = above.partition("\n")[2]  # the first line has the kernel's name
        name = f"loops_{seed}"
        body = "typedef struct params" + body
        body = re.sub(r"\bparams\b", f"params_{seed}", body).replace(f" {compiled.name}(", f" {name}(")
        key = above + compiled.build_options
        sources[key].append(without(above * (not sources[key]) + body, mend))
        members[key].append(Member(seed, program, compiled, name))
    return [("\n".join(sources[key]), members[key]) for key in sources]


def result(member: Member, source: str, options: str) -> list[np.ndarray]:
    """Run a kernel; give its outputs as they lie in memory."""
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in member.program.arguments]
    Built(member.compiled, source, member.name, options)((GRID,), *arguments)
    return [arguments[o.parameter] for o in member.program.outputs]


def difference(program: Program, built: list[np.ndarray], wanted: list[np.ndarray]) -> str | None:
    """Say where two runs differ by more than rounding."""
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
    """Compute a program's outputs by NumPy."""
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in program.arguments]
    interpret.interpret(program.text, (GRID, 1, 1), arguments)
    return [arguments[o.parameter] for o in program.outputs]


def findings(
    first: int, count: int, mend: str = "", parts: tuple[str, ...] = tuple(PARTS)
) -> tuple[int, list[str]]:
    """Run a range of seeds both ways; give how many kernels ran and what is wrong."""
    compared, found = 0, []
    for source, members in joint(first, count, mend, parts):
        for member in members:
            built = result(member, source, "")
            compared += 1
            if difference(member.program, built, result(member, source, REFERENCE)):
                wrong = difference(member.program, built, interpreted(member.program))
                if wrong:
                    found.append(f"seed {member.seed}: {wrong}")
    return compared, found


def work(first: int, count: int, mend: str) -> None:
    """Run a range, a program at a time; print what ``supervise`` reads."""
    for start in range(first, first + count, PROGRAM):
        print(f"begin {start} seeds {start} to {start + PROGRAM - 1}", flush=True)
        compared, found = findings(start, min(PROGRAM, first + count - start), mend)
        print(f"DIFFERS {found}" if found else "same", flush=True)
        print(f"compared {compared}", flush=True)


def main() -> int:
    """Share the work among processes; print a sum."""
    if sys.argv[1:2] == ["--work"]:
        mend, first, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        work(first, count, mend.strip("-"))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernels", type=int, default=20_000, metavar="COUNT")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--without", default="", choices=["meet", "hints", "counts"])
    options = parser.parse_args()
    command = [sys.executable, __file__, "--work", options.without or "-"]
    chunk = 4 * PROGRAM
    starts = range(options.first, options.first + options.kernels, chunk)

    def supervised(start: int) -> tuple[int, int, list[str]]:
        count = min(chunk, options.first + options.kernels - start)
        return supervise(command, start, count, {"OPENXPU_CACHE": "0", "CL_CONFIG_LLVM_OPTIONS": ""})

    with ThreadPoolExecutor(options.jobs) as pool:
        sums = list(pool.map(supervised, starts))
    found = sum(len(s[2]) for s in sums)
    print(
        f"loops: {options.kernels} kernels in {sum(s[0] for s in sums)} programs, {found} programs with findings"
    )
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
