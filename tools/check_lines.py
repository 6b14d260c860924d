"""Check that no line of a tracked source file is longer than 120 characters.

Formatters break C, OpenCL C, C++ and Python at 110 columns (``.clang-format``, ``ruff.toml``), but leave long
strings, comments and tables that are excluded from formatting as they are; shell, CMake and the Makefile have
no formatter. Not looked at are ``*.def``, tables of one entry a line, and data (``*.ttir``, ``*.supp``).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 120
PATTERNS = """*.c *.h *.cl *.cpp *.hpp *.py *.pyi *.sh .ci/run *.cmake *.cmake.in *CMakeLists.txt *Makefile
    *.yml *.yaml *.toml *.ini""".split()


def findings() -> Iterator[str]:
    """Name each line that is too long."""
    command = ["git", "ls-files", "-z", *PATTERNS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        for number, line in enumerate(path.read_text().splitlines() if path.is_file() else (), 1):
            if len(line) > LONGEST:
                yield f"{name}:{number}: has {len(line)} characters, more than {LONGEST}"


if __name__ == "__main__":
    problems = list(findings())
    if problems:
        print("\n".join(problems), file=sys.stderr)
    sys.exit(bool(problems))
