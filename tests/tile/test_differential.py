"""Random well-typed programs: the device compared with the interpreter on NumPy.

Integers are compared exactly. Floats are compared exactly if the generator knows them to be exact, otherwise
within its error bound (random_values.py). ``python tests/tile/test_differential.py FIRST COUNT`` runs many
seeds and prints a reduced program for each failure.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from random_programs import Generator
from random_values import BITS, GRID, Program, Value, stored_values
from test_corpus import interpret, run

SEEDS = 400 if os.environ.get("OPENXPU_TEST_ALL") == "1" else 24


def difference(program: Program) -> str | None:
    """Run a program both ways; describe how the results differ."""
    wanted, actual = (
        [a.copy() if isinstance(a, np.ndarray) else a for a in program.arguments] for _ in range(2)
    )
    interpret.interpret(program.text, (GRID, 1, 1), wanted)
    try:
        kernel = run.Kernel(program.text, program.target, program.num_warps)
    except run._tile.TooLargeError:
        return None
    except (run._tile.CompileError, RuntimeError) as error:
        if "has no fp64" in str(error) and not run.HAS_FP64:
            return None
        return f"does not build: {error}"
    kernel((GRID,), *actual)
    for output in program.outputs:
        w, a = (stored_values(x[output.parameter], output.element) for x in (wanted, actual))
        if output.element in BITS:
            wrong = w != a
        else:
            with np.errstate(all="ignore"):
                w, a = w.astype(np.float64), a.astype(np.float64)
                wrong = ~((w == a) | (np.isnan(w) & np.isnan(a)) | (np.abs(w - a) <= 2 * output.error))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            difference = f"{a[at]}, not {w[at]} (error {output.error}); {wrong.sum()} of {wrong.size}"
            return f"parameter {output.parameter} at {at}: {difference}"
    return None


def without_unused(lines: list[str | None]) -> list[str | None]:
    """Remove operations whose results are unused."""
    lines = list(lines)
    while True:
        uses = Counter(name for line in lines if line for name in re.findall(r"%\w+", line))
        for i, line in enumerate(lines):
            defined = re.match(r"\s*((?:%\w+(?::\d)?(?:, )?)+) = (?!.*\{$)(?!tt\.atomic)", line or "")
            if defined and all(uses[name] == 1 for name in re.findall(r"%\w+", defined[1])):
                lines[i] = None
                break
        else:
            return lines


def reduced(program: Program) -> Program:
    """Remove operations, or replace their results by constants, as long as the program still fails."""
    kind = (difference(program) or "")[:8]

    def fails(candidate: Program) -> bool:
        try:
            run._tile.compile_module(candidate.text.encode(), dump_after="verify")
            return (difference(candidate) or "").startswith(kind)
        except Exception:
            return False

    def simpler(spans: list[tuple[int, int, list[Value]]]) -> Program:
        lines = list(program.lines)
        for start, end, results in spans:
            constants = []
            for v in results:
                number = "false" if v.element == "i1" else "0" if v.element in BITS else "0.0"
                value = (
                    f"dense<{number}> : {v.type}"
                    if v.shape
                    else number + ("" if v.element == "i1" else f" : {v.element}")
                )
                constants.append(f"    {v.name} = arith.constant {value}")
            lines[start : end + 1] = ["\n".join(constants) or None] + [None] * (end - start)
        text = [part for line in lines for part in (line.split("\n") if line else [])]
        kept = set(without_unused(text))
        left = [
            line if line is None else "\n".join(part for part in line.split("\n") if part in kept) or None
            for line in lines
        ]
        return replace(program, lines=left)

    size = len(program.spans)
    while size:
        spans = [
            s
            for s in program.spans
            if program.lines[s[0]] and program.lines[s[1]] and "arith.constant" not in program.lines[s[0]]
        ]
        spans.sort(key=lambda s: -s[0])
        for at in range(0, len(spans), size):
            candidate = simpler(spans[at : at + size])
            if candidate.lines != program.lines and fails(candidate):
                program = candidate
        size //= 2
    return program


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_program(seed):
    program = Generator(seed).program()
    wrong = difference(program)
    assert not wrong, f"{wrong}\n{program.text}"


def main() -> int:
    """Run many seeds; print the reduced failures."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    shrink = len(sys.argv) <= 3
    failed = 0
    for seed in range(first, first + count):
        try:
            program = Generator(seed).program()
            wrong = difference(program)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            failed += 1
            continue
        if wrong:
            failed += 1
            print(f"seed {seed} ({program.target}, {program.num_warps} warps): {wrong[:1500]}", flush=True)
            if shrink:
                small = reduced(program)
                print(f"{difference(small)}\n{small.text}", flush=True)
    print(f"{count} programs, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
