"""Writes docs/ops.md: which overloads of PyTorch's operators run natively on xpu.

The build's ``generated/overloads.txt`` and the registrations in ``bridge/*.cpp`` say what is there.
``docs/data/upstream_xpu.txt`` lists what PyTorch 2.14's own XPU build registers, ``docs/data/opinfo.txt``
what PyTorch's OpInfo database needs of a device, with the number of OpInfos that use each overload.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPLEMENTED = re.compile(r'\bimpl\(\s*"(?:aten::)?([\w.]+)"')


def native_overloads(build: Path) -> set[str]:
    """Return the overloads that have a kernel."""
    overloads = set((build / "generated" / "overloads.txt").read_text().split())
    for path in (ROOT / "bridge").rglob("*.cpp"):
        overloads.update(IMPLEMENTED.findall(path.read_text()))
    return overloads


def read_list(name: str) -> dict[str, int]:
    """Read a list of ``docs/data``: overloads, each with a number or 0."""
    lines = (ROOT / "docs" / "data" / name).read_text().splitlines()
    return {words[0]: int(words[1]) if len(words) > 1 else 0 for words in map(str.split, lines)}


def paragraph(overloads: Iterable[str]) -> str:
    """Return names in code style, one paragraph."""
    return ", ".join(f"`{overload}`" for overload in overloads) or "none"


def page(native: set[str]) -> str:
    """Return the text of docs/ops.md."""
    upstream, opinfo = read_list("upstream_xpu.txt"), read_list("opinfo.txt")
    missing_opinfo = sorted(set(opinfo) - native, key=lambda name: (-opinfo[name], name))
    return f"""\
# Operators

Written by `tools/coverage.py`. Overloads without a kernel run on the CPU, with a warning (see `limits.md`).

| | overloads | native | |
|---|---|---|---|
| what PyTorch 2.14's own XPU build registers | {len(upstream)} | {len(native & set(upstream))} | \
{len(native & set(upstream)) / len(upstream):.0%} |
| what PyTorch's OpInfo database needs of a device | {len(opinfo)} | {len(native & set(opinfo))} | \
{len(native & set(opinfo)) / len(opinfo):.0%} |
| native in all | {len(native)} | | |

## Missing for the OpInfo database, the most used first

{paragraph(missing_opinfo)}

## Missing of upstream's

{paragraph(sorted(set(upstream) - native))}

## Native

{paragraph(sorted(native))}
"""


def main() -> int:
    """Run as a program; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="CMake's build folder")
    parser.add_argument("--check", action="store_true", help="fail if docs/ops.md is out of date")
    options = parser.parse_args()
    text, path = page(native_overloads(options.build)), ROOT / "docs" / "ops.md"
    if options.check:
        return 0 if path.exists() and path.read_text() == text else 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
