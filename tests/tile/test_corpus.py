"""Kernels from Inductor and users, on random data: the CPU device compared with the interpreter.

Runs a sample of the 1,007 modules of the corpus; all of them with ``OPENXPU_TEST_ALL=1``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tarfile
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parent
EVERY = 1 if os.environ.get("OPENXPU_TEST_ALL") == "1" else 40
DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": np.uint16,
    "i1": np.uint8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}
ALWAYS = "ind_misc_td__triton_red_fused_sum_var_2-72f91459"  # has nested loops over materialized values
TOLERANCE = {"f32": 3e-4, "f64": 1e-9, "f16": 1e-2, "bf16": 3e-2}  # sums of up to 2^16 values around 1


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tile_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


run, interpret = load("run"), load("interpret")


@cache
def corpus() -> dict[str, str]:
    with tarfile.open(FOLDER / "data" / "ttir.tar.xz") as archive:
        files = sorted((m for m in archive if m.isfile()), key=lambda m: m.name)
        files = [m for i, m in enumerate(files) if i % EVERY == 0 or Path(m.name).stem == ALWAYS]
        return {Path(m.name).stem: archive.extractfile(m).read().decode() for m in files}


def arguments(text: str) -> list[tuple[str | None, np.ndarray | int | float]]:
    """Return each parameter's element (None for a scalar) and random data that are also valid indices."""
    random, count = np.random.default_rng(1), 1 << 20
    signature = re.search(r"tt\.func public @\w+\((.*?)\)(?: attributes.*?)? \{\n", text, re.DOTALL)[1]
    out: list[tuple[str | None, np.ndarray | int | float]] = []
    for scalar, element in re.findall(r"%\w+: (!tt\.ptr<(\w+)>|\w+)", signature):
        if element in ("f32", "f64", "f16"):
            out.append((element, random.standard_normal(count).astype(DTYPES[element])))
        elif element == "bf16":
            bits = random.standard_normal(count).astype(np.float32).view(np.uint32) >> 16
            out.append((element, bits.astype(np.uint16)))
        elif element:
            least = 2 if element == "i1" else 4
            out.append((element, random.integers(0, least, count).astype(DTYPES.get(element, np.uint8))))
        else:
            out.append((None, 1.5 if scalar[0] == "f" else 64))
    return out


def values(array: np.ndarray, element: str) -> np.ndarray:
    wide = (array.astype(np.uint32) << 16).view(np.float32) if element == "bf16" else array
    return wide.astype(np.float64) if element in TOLERANCE else wide


@pytest.mark.parametrize("name", corpus())
def test_values(name):
    text = corpus()[name]
    data = arguments(text)
    if re.search(
        r'"tt\.reduce"\(%\w+, %\w+, %\w+\)', text
    ):  # weighted means divide by the sum of the weights
        data = [(e, np.abs(v) if e in ("f32", "f64", "f16") else v) for e, v in data]
    grid = (2, 2, 1) if "get_program_id y" in text else (3, 1, 1)
    wanted = [v.copy() if e else v for e, v in data]
    actual = [v.copy() if e else v for e, v in data]
    try:
        interpret.interpret(text, grid, wanted)
    except (interpret.Unsupported, IndexError) as error:
        # unsuitable for random data (indices out of bounds), or covered by test_kernels.py; must still compile
        if "inline_asm" in text:
            with pytest.raises(run._tile.CompileError, match="inline assembly"):
                run._tile.compile_module(text.encode())
        else:
            assert run._tile.compile_module(text.encode()).source, error
        return
    try:
        kernel = run.Kernel(text)
    except run._tile.CompileError as error:
        assert "local memory" in str(error)  # an autotuner configuration too large for the device
        return
    kernel(grid, *actual)
    for index, (element, _) in enumerate(data):
        if element in TOLERANCE:
            tolerance = TOLERANCE[element]
            np.testing.assert_allclose(
                values(actual[index], element),
                values(wanted[index], element),
                tolerance,
                tolerance,
                equal_nan=True,
            )
        elif element:
            np.testing.assert_array_equal(actual[index], wanted[index])


def hidden(kernel: str) -> list[str]:
    """Return names in a kernel's C that shadow a name of an outer scope."""
    declared = re.compile(
        r"(?:for \()?(?:const |volatile |__\w+ )*[a-z]\w*(?: \*const)? \*?([a-z]\w*)(?:\[.*?\])*(?: =|;)"
    )
    scopes: list[set[str]] = [set()]
    found = []
    for line in map(str.strip, kernel.splitlines()):
        name = None if line.startswith(("goto ", "return ", "else ")) else declared.match(line)
        opens = line.endswith("{")
        for _ in range(line.count("}") - (line.count("{") - opens)):
            scopes.pop()
        if opens:
            scopes.append(set())
        if (
            name and name[1] != "lane" and " = ahead" not in line
        ):  # intended: the same value one iteration ahead
            found += [name[1]] if any(name[1] in scope for scope in scopes) else []
            scopes[-1].add(name[1])
    return found


@pytest.mark.parametrize("target", ["cpu", "nvidia", "bmg"])
def test_no_name_hides_another(target):
    assert hidden("{\nint i1 = 0;\nfor (int i1 = 0; i1 < 4; i1++) {\n}\n}") == ["i1"]
    for name, text in corpus().items():
        try:
            source = run._tile.compile_module(text.encode(), target=target).source
        except run._tile.CompileError:
            continue
        assert not hidden(source[source.rindex("__kernel void") :]), name


HANDMADE = sorted((FOLDER / "ir" / "values").glob("*.ttir"))


@pytest.mark.parametrize("target", run.TARGETS)
@pytest.mark.parametrize("path", HANDMADE, ids=lambda path: path.stem)
def test_handmade(path, target):
    text = path.read_text()
    data = arguments(text)
    wanted = [v.copy() if e else v for e, v in data]
    programs = 3 if "get_program_id" in text else 1  # identical programs may interfere
    interpret.interpret(text, (programs, 1, 1), wanted)
    assert any(e and (w != v).any() for (e, v), w in zip(data, wanted, strict=True))
    tf32 = "inputPrecision = tf32"
    for precision in ["inputPrecision = ieee", tf32] if tf32 in text and target == "bmg" else [tf32]:
        actual = [v.copy() if e else v for e, v in data]
        kernel = run.Kernel(text.replace(tf32, precision), target)
        kernel((programs,), *actual)
        rounds = kernel.rounds_to_tf32
        assert rounds == (tf32 in text and precision == tf32) or target != "bmg"
        for index, (element, _) in enumerate(data):
            if element:
                np.testing.assert_allclose(actual[index], wanted[index], 1e-5, 5e-2 if rounds else 1e-5)
