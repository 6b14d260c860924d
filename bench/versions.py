"""Compares two checkouts: the times of the same cases on xpu, alternating between the two.

    python bench/versions.py OTHER [--parts rows gemm] [-k layer_norm]

Build both first (`make build` in each). One process per checkout runs the same case, and they alternate many
times so that other work on the machine affects both alike. A ratio is the other checkout's least time divided
by this one's: below 1 this checkout is slower. Cases below 0.97 are measured again for twice as long, and the
better ratio counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLOWER = 0.97


def work(parts: list[str], text: str) -> None:
    """Run a worker: each input line makes it proceed to the next case or measure the current one."""
    from run import cases

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirects the cases' output
    import torch

    case = None
    rest = (c for c in cases(tuple(parts)) if text in f"{c.group} {c.name}")
    for line in sys.stdin:
        if line == "next\n":
            case = next(rest, None)
            answer: object = f"{case.group}: {case.name}" if case else None
            if case:
                case.ours()
        else:
            assert case
            least, end = math.inf, time.perf_counter() + float(line)
            calls = 1
            while time.perf_counter() < end:
                start = time.perf_counter()
                for _ in range(calls):
                    case.ours()
                torch.xpu.synchronize()
                spent = time.perf_counter() - start
                least = min(least, spent / calls)
                if spent < 1e-3:
                    calls *= 2
            answer = least
        print(json.dumps(answer), file=answers, flush=True)


class Side:
    """The worker of a checkout."""

    def __init__(self, checkout: Path, parts: list[str], text: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "python")}
        words = [sys.executable, __file__, str(ROOT), "--work", "--parts", *parts, "-k", text]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, line: str) -> object:
        """Send a line; return the answer."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a worker ended with {self.process.wait()}")
        return json.loads(answer)


def ratio(this: Side, other: Side, rounds: int, seconds: float) -> tuple[float, float]:
    """Return the other's least time divided by this one's, and this one's, over `rounds` rounds."""
    least = [math.inf, math.inf]
    for turn in range(rounds):
        for at in (0, 1) if turn % 2 else (1, 0):
            time_now = (this, other)[at].ask(str(seconds))
            assert isinstance(time_now, float)
            least[at] = min(least[at], time_now)
    return least[1] / least[0], least[0]


def main() -> int:
    """Return 0 if no case is slower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--parts", nargs="+", default=list(importlib.import_module("run").PARTS))
    parser.add_argument("-k", default="", help="only cases with this in their group or name")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.parts, arguments.k)
        return 0
    this, other = (
        Side(checkout, arguments.parts, arguments.k) for checkout in (ROOT, arguments.other.resolve())
    )
    ratios = []
    while (name := this.ask("next")) is not None:
        if other.ask("next") != name:
            raise SystemExit(f"the other checkout has no case {name}")
        got, spent = ratio(this, other, 8, 0.03)
        for again in (1, 2):
            if got < SLOWER:
                got = max(got, ratio(this, other, 16, 0.03 * again)[0])
        ratios.append(got)
        print(f"{got:.2f} {name} ({spent * 1e6:,.1f} µs){' SLOWER' if got < SLOWER else ''}", flush=True)
    slower = sum(r < SLOWER for r in ratios)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1
    print(f"{len(ratios)} cases, geometric mean {mean:.3f}, {slower} below {SLOWER}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
