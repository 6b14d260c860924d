"""docs/tile.md: its commands, kernels, modules and terms agree with the compiler."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from openxpu import _tile, cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tile.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DUMPS = [text for language, text in BLOCKS if language == "text"]
LEFT_OUT = "…"

# the compilation parameters of the page's kernels
POINTERS = {"out": "*fp32", "x": "*fp32", "columns": "i32"}
KERNELS = {
    "softmax": (POINTERS, {"BLOCK": 256}),
    "norm": (POINTERS, {"BLOCK": 1024}),
    "product": ({"c": "*fp32", "a": "*fp16", "b": "*fp16", "K": "i32"}, {"N": 64, "BLOCK": 32, "STEP": 32}),
}
DIVISIBLE = {"out", "x", "c", "a", "b", "K"}


def pieces(shown: list[str]) -> Iterator[str]:
    """Yield a pattern for each run of lines without omissions."""
    run: list[str] = []
    for line in [*shown, LEFT_OUT]:
        if line.strip() != LEFT_OUT:
            run.append(".*".join(map(re.escape, line.rstrip().split(LEFT_OUT))))
        elif run:
            yield "^" + r"\n".join(run) + "$"
            run = []


@pytest.mark.parametrize("block", DUMPS, ids=lambda block: block.splitlines()[0][len("$ openxpu compile ") :])
def test_commands_print_what_is_shown(block, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    command, *shown = block.splitlines()
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "openxpu" and shown
    cli.main(arguments)
    printed = "".join(capsys.readouterr())
    at = 0
    if shown[0] != LEFT_OUT:
        assert printed.startswith(shown[0])
    for piece in pieces(shown):
        found = re.compile(piece, re.MULTILINE).search(printed, at)
        assert found, f"not printed, or not in this order, by {command}:\n{piece}"
        at = found.end()


def test_the_page_has_dumps_of_all_stages_and_both_devices():
    commands = [block.splitlines()[0] for block in DUMPS]
    for wanted in (
        "after parse",
        "after verify",
        "after analyze",
        "after layout",
        "device cpu",
        "device bmg",
    ):
        assert any(wanted in command for command in commands), wanted


def parsed(module: bytes) -> str:
    """Return the module in generic form, without names and locations."""
    return _tile.compile_module(module, dump_after="parse").dump


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_give_the_modules(name, tmp_path):
    triton = pytest.importorskip("triton")
    if not triton.__version__.startswith("3.7."):
        pytest.skip("the page shows what Triton 3.7 prints")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = "\n".join(text for language, text in BLOCKS if language == "python")
    path = tmp_path / "page_kernels.py"  # Triton reads a kernel's source from its file
    path.write_text(f"import triton\nimport triton.language as tl\n\n{source}")
    spec = importlib.util.spec_from_file_location("page_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, name)
    types, constants = KERNELS[name]
    attributes = {(kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n in DIVISIBLE & types.keys()}
    signature = types | dict.fromkeys(constants, "constexpr")
    built = triton.compile(
        ASTSource(kernel, signature, constants, attributes),
        target=GPUTarget("xpu", _tile.device_target(0), 16),
    )
    ours = (ROOT / "docs" / "data" / f"{name}.ttir").read_bytes()
    assert parsed(ours) == parsed(built.asm["ttir"].encode())


def test_the_lines_shown_of_a_module_are_its_own():
    (shown,) = (text for language, text in BLOCKS if language == "mlir")
    assert shown in (ROOT / "docs" / "data" / "softmax.ttir").read_text()


def test_the_words_are_few_and_their_names_are_the_codes():
    words = re.findall(r"^\|(?!---| Word ).*\|$", PAGE[PAGE.index("## Words") :], re.MULTILINE)
    assert 10 < len(words) <= 25
    names = {name for line in words for name in re.findall(r"`([A-Za-z_]+)`", line)}
    folders = ("src", "include", "bridge", "python/openxpu")
    code = "\n".join(
        path.read_text()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".c", ".h", ".cl", ".def", ".cpp", ".py"}
    )
    assert len(names) > 5
    assert not sorted(names - set(re.findall(r"\w+", code)))
