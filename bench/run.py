"""Runs all benchmarks; prints a table and writes JSON (`make bench`)."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import harness
from harness import Case

PARTS = ("pointwise", "rows", "gemm", "index", "networks")


def cases(parts: tuple[str, ...]) -> Iterator[Case]:
    """Yield the cases of all parts in order."""
    for part in parts:
        yield from importlib.import_module(part).cases()


def main() -> int:
    """Return 0 if every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"any of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"))
    arguments = parser.parse_args()
    arguments.json.parent.mkdir(exist_ok=True)
    return 0 if harness.report(cases(tuple(arguments.parts)), arguments.json) else 1


if __name__ == "__main__":
    sys.exit(main())
