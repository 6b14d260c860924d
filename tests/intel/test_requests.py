"""Requests for Intel's offline compiler set all needed options, and listings are checked for types."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import run_python

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import compile as offline  # noqa: E402

GPU = (
    "-DXPU_CAPABILITIES -DXPU_HAS_FP16=1 -DXPU_HAS_SUBGROUPS=1 -DXPU_IS_INTEL_GPU=1 -DXPU_HAS_BLOCK_OFFSETS=1"
)
# Options that every build of the library sets.
NAMES = {
    name
    for path in (ROOT / "src" / "ops").rglob("*.c")
    for name in re.findall(r"\bspec_\w+\([^;\"]*\"([A-Z][A-Z0-9_]{3,})\"", path.read_text())
}


def left(text: str, options: str) -> set[str]:
    """Return the option names that remain after preprocessing and that the compiler would not know."""
    return NAMES & set(re.findall(r"\b[A-Z][A-Z0-9_]{3,}\b", offline.preprocessed(text, f"{options} {GPU}")))


def test_requests_set_all_that_their_kernels_want(tmp_path: Path) -> None:
    """For each kernel, one request per set of option names."""
    run_python(HERE / "matrix.py", "-", "--write", tmp_path)
    kinds: dict[tuple[str, ...], Path] = {}
    for path in sorted(tmp_path.glob("*.cl")):
        with path.open() as file:
            label, _, options = file.readline().partition(" | ")
        kinds.setdefault((label.split(" ")[1], *sorted(re.findall(r"-D(\w+)", options))), path)
    assert len(kinds) >= 20
    lacking = {}
    for path in kinds.values():
        text = path.read_text()
        first = text.partition("\n")[0]
        if names := left(text, first):
            lacking[first] = names
    assert not lacking


def test_a_name_that_is_missing_is_found() -> None:
    """The check above finds a name that is used outside #if."""
    assert "UNIT_OFFSET_WEIGHT" in NAMES
    source = "#if NORMED\nint f(int a) { return UNIT_OFFSET_WEIGHT + a; }\n#endif\n"
    assert left(source, "-DNORMED=1") == {"UNIT_OFFSET_WEIGHT"}
    assert not left(source, "-DNORMED=0")
    assert not left(source, "-DNORMED=1 -DUNIT_OFFSET_WEIGHT=0")


OPERANDS = ("i8_i8", "u8_i8", "i8_u8", "u8_u8", "f16_f16", "bf16_bf16", "tf32_tf32")


@pytest.mark.parametrize("operands", OPERANDS)
@pytest.mark.parametrize("other", [*OPERANDS, None])
def test_instructions_are_those_of_the_functions(operands: str, other: str | None, tmp_path: Path) -> None:
    """Listings with other types than the functions, or no instructions, fail."""
    source = "".join(
        f"#ifdef WITH_{name}\n#define MULTIPLY intel_sub_group_{name}_matrix_mad_k32\n#endif\n"
        for name in OPERANDS
    )
    source += "int8 f(int8 a, int8 b, int8 c) { return MULTIPLY(a, b, c); }\n"
    units = offline.preprocessed(source, f"-DWITH_{operands}")
    if other:
        left_type, right_type = (offline.UNIT_TYPES[name] for name in other.split("_"))
        listing = (
            "        dpas.8x8 (16|M0)         r10:d         r20:d        "
            f"r30:{right_type}        r40.0:{left_type}  {{Atomic}}\n"
        )
        (tmp_path / "k.asm").write_text(listing)
    wrong = offline.wrong_instructions(units, tmp_path)
    assert bool(wrong) == (other != operands), wrong
