"""Compiles each C++ file of the bridge, or those named, by itself: a unity build hides missing includes.

    python tools/check_alone.py [FILE…]

Prints the compiler's messages; the exit status is 1 if a file does not compile.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "alone"


def commands() -> dict[Path, list[str]]:
    """Return the command that checks each file, without a unity build and precompiled headers."""
    tools = Path(sys.executable).parent
    subprocess.run(
        [
            tools / "cmake",
            *("-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"),
            *(f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
            *("-DCMAKE_UNITY_BUILD=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path, words = Path(entry["file"]), shlex.split(entry["command"])
        if path.suffix == ".cpp" and path.is_relative_to(ROOT / "bridge"):
            at = words.index("-o")
            found[path] = [*words[:at], *words[at + 2 :], "-fsyntax-only"]
    return found


def main() -> int:
    """Check the files of the command line."""
    chosen = {Path(name).resolve() for name in sys.argv[1:]}
    known = commands()
    if unknown := chosen - known.keys():
        print(f"not part of the build: {', '.join(map(str, sorted(unknown)))}", file=sys.stderr)
        return 1
    files = sorted(chosen or known)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        checks = pool.map(lambda path: subprocess.run(known[path], cwd=BUILD, check=False).returncode, files)
    failed = [path for path, status in zip(files, checks, strict=True) if status]
    for path in failed:
        print(f"{path.relative_to(ROOT)}: does not compile by itself")
    print(f"{len(files) - len(failed)} files compile by themselves, {len(failed)} don't")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
