"""Compiles the Triton IR corpus to OpenCL C for Intel GPUs, and that with the offline compiler; lists spills.

Modules that a product cannot run are counted by reason: no fp64, too little local memory, inline assembly.
Kernels whose text differs only in the name are compiled once.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from compile import compile_all
from openxpu import _tile

LACKS = ("no fp64", "local memory", "inline assembly")


def emit(modules: list[Path], product: str, folder: Path) -> tuple[list[Path], bool]:
    """Write each module's OpenCL C for ``product``; return the files, and whether all skips have a reason."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.cl"):
        old.unlink()
    left_out: Counter[str] = Counter()
    seen: dict[str, Path] = {}
    is_right = True
    for module in modules:
        try:
            program = _tile.compile_module(module.read_bytes(), target=product, file=module.name)
        except _tile.CompileError as error:
            reason = next((r for r in LACKS if r in str(error)), "")
            left_out[reason or "error"] += 1
            if not reason:
                print(f"FAILED {product}: {error}")
                is_right = False
            continue
        same = re.sub(rf"\b{program.name}\b", "kernel", program.source)
        if same not in seen:
            seen[same] = folder / f"{module.stem}.cl"
            seen[same].write_text(f"// {module.stem} | {program.build_options}\n{program.source}")
    reasons = "".join(f", {n} left out ({r})" for r, n in left_out.items())
    print(f"{product}: {len(modules)} modules, {len(seen)} different kernels{reasons}", flush=True)
    return list(seen.values()), is_right


def main() -> int:
    """Compile every ``--every``-th module for each product."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ocloc", type=Path)
    parser.add_argument("corpus", type=Path, help="folder of .ttir files")
    parser.add_argument("folder", type=Path, help="output folder for the OpenCL C")
    parser.add_argument("--products", default="bmg,dg2")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    modules = sorted(arguments.corpus.glob("*.ttir"))[arguments.first :: arguments.every]
    jobs, right = [], True
    for product in arguments.products.split(","):
        sources, is_right = emit(modules, product, arguments.folder / product)
        jobs += [(source, product) for source in sources]
        right = right and is_right
    return compile_all(arguments.ocloc, jobs) or int(not right)


if __name__ == "__main__":
    sys.exit(main())
