"""What programs that were compiled against libxpu rely on: numbers, exported functions, the version."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import openxpu
import pytest
from processes import run

ROOT = Path(__file__).parents[2]
HEADERS = sorted((ROOT / "include").rglob("*.h"))
RECORDED = Path(__file__).with_name("numbers.txt")
COMPILER = os.environ.get("CC", "cc")
FLAGS = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'src/ops'}"]
INCLUDES = "".join(f"#include <{header.relative_to(ROOT / 'include')}>\n" for header in HEADERS)


def preprocessed(*options: str) -> str:
    """All public headers in one, with what the tables make of them."""
    command = [COMPILER, "-E", "-P", *options, *FLAGS, "-xc", "-"]
    return run(command, text=INCLUDES).stdout


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Every enumerator and macro of the public headers that is a number; …_COUNT aside, which are to grow."""
    enums = re.findall(r"\benum\b[^{;]*\{([^}]*)\}", preprocessed())
    names = [name for body in enums for name in re.findall(r"(?:^|,)\s*(XPU_\w+)", body)]
    macros = re.findall(r"^#define (XPU_\w+) \(?-?[0-9]\w*\)?$", preprocessed("-dM"), re.MULTILINE)
    names += sorted(name for name in macros if not name.startswith("XPU_VERSION"))
    names = [name for name in names if not name.endswith("_COUNT")]
    assert {"XPU_SUCCESS", "XPU_FLOAT32", "XPU_POINTWISE_ADD", "XPU_REDUCE_SUM", "XPU_MAX_DIMS"} <= {*names}
    program = tmp_path_factory.mktemp("abi") / "numbers"
    prints = "".join(f'printf("{name} %lld\\n", (long long){name});\n' for name in names)
    source = f"{INCLUDES}#include <stdio.h>\nint main(void) {{\n{prints}}}\n"
    run([COMPILER, *FLAGS, "-xc", "-", "-o", program], text=source)
    printed = run([program]).stdout
    return {name: int(value) for name, value in map(str.split, printed.splitlines())}


def test_numbers_stay(numbers: dict[str, int]) -> None:
    recorded = {name: int(value) for name, value in map(str.split, RECORDED.read_text().splitlines())}
    moved = [
        f"{name} was {number} and is {numbers.get(name, 'gone')}"
        for name, number in recorded.items()
        if numbers.get(name) != number
    ]
    assert not moved, (
        "Programs that were compiled earlier know other numbers. What is new goes behind the last of its enum or "
        "table, what isn't used any more keeps its place:\n" + "\n".join(moved)
    )
    new = [f"{name} {number}" for name, number in numbers.items() if name not in recorded]
    assert not new, "Add these lines to tests/c/numbers.txt; from then on they stay:\n" + "\n".join(new)


def test_exports_are_what_the_headers_declare() -> None:
    command = ["nm", "-D", "--defined-only", openxpu.library_path()]
    listed = run(command).stdout
    exported = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    exported = {name for name in exported if not name.startswith(("__gcov_", "mangle_path"))}  # make coverage
    text = "".join(header.read_text() for header in HEADERS)
    declared = set(re.findall(r"^XPU_API [^(;]*?\b(\w+)\(", text, re.MULTILINE))
    assert len(declared) > 100
    assert all(name.startswith("xpu_") for name in exported), exported
    assert exported == declared


def test_version_is_everywhere_the_same() -> None:
    library = ctypes.CDLL(openxpu.library_path())
    major, minor, patch = map(int, openxpu.__version__.split("."))
    assert library.xpu_version() == major * 10000 + minor * 100 + patch
    header = (ROOT / "include/xpu/version.h").read_text()
    found = [int(number) for number in re.findall(r"XPU_VERSION_[A-Z]+ (\d+)", header)]
    assert found == [major, minor, patch]
    command = ["readelf", "-d", openxpu.library_path()]
    dynamic = run(command).stdout
    assert f"[libxpu.so.{major}.{minor}]" in dynamic
