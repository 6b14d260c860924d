"""The tuning table: its lines, pins, what is measured and kept, and that it changes speed alone."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from openxpu import _tune

ROOT = Path(__file__).parents[2]
NEVER = 1 << 62
# Without PyTorch, which takes longer to import than all the rest.
SHOW = """
from openxpu import _tune
line = _tune.Table(0)["thin_rows"]
print(line.value, line.source)
"""
KEEP = """
from openxpu import _tune
table = _tune.Table(0)
table.set("thin_rows", 3)
print(table.keep())
"""


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def printed(program: str, **environment: str) -> str:
    run = python(program, **environment)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.fixture
def table() -> Iterator[_tune.Table]:
    """The table of the device; values that a test sets are taken back."""
    table = _tune.Table(0)
    before = {line.name: line.value for line in table}
    yield table
    for name, value in before.items():
        if table[name].value != value:
            table.set(name, value)


def test_every_line_is_used_and_names_a_benchmark() -> None:
    sources = "".join(
        path.read_text()
        for folder in ("src", "bridge")
        for path in (ROOT / folder).rglob("*.c*")
        if path.is_file()
    )
    lines = list(_tune.Table(0))
    assert len(lines) > 20
    for line in lines:
        assert (ROOT / "bench" / line.benchmark).is_file(), line
        assert line.least <= line.value <= line.most
        used = rf'TUNED\([^()]*(?:\([^()]*\))?[^()]*, {line.name.upper()}\)|tuning_number\("{line.name}"\)'
        assert re.search(used, sources), f"nothing asks for {line.name}"


def test_info_prints_them() -> None:
    command = [sys.executable, "-m", "openxpu.cli", "info", "--tuning"]
    environment = os.environ | {"COLUMNS": "250", "OPENXPU_TUNING": "thin_rows=3"}
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    rows = {row[0]: row for row in (re.split(r"\s*│\s*", line.strip("│ ")) for line in text.splitlines())}
    assert rows["thin_rows"][1:5] == ["3", "rows", "pinned", "bench/products.py"]
    assert rows["share_from"][3] in ("table", "measured")


@pytest.mark.parametrize(
    "unit, half",
    [
        ("", "plain kernels"),
        ("ptx", "NVIDIA's matrix units, emulated"),
        ("xmx", "Intel's matrix units, emulated"),
        ("fma", "multiply-adds of GPUs"),
    ],
)
def test_info_says_what_multiplies(unit: str, half: str) -> None:
    command = [sys.executable, "-m", "openxpu.cli", "info"]
    environment = os.environ | {"COLUMNS": "200", "OPENXPU_MATRIX": unit, "OPENXPU_HOST_PROVIDER": "0"}
    environment["OPENXPU_DEVICE"] = "cpu"
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"\bf16, bf16(, f32, f64, c64, c128)?: {half}", text), text
    assert ("f32, where tf32 is allowed: NVIDIA's matrix units as tf32, emulated" in text) == (unit == "ptx")


@pytest.mark.parametrize(
    "given, reason",
    [
        ("nonsense=3", 'there is no "nonsense"'),
        ("share_from", '"share_from" is not name=number'),
        ("share_from=", '"share_from=" is not name=number'),
        ("share_from=1e3", "is not name=number"),
        ("share_from=5,thin_rows=9", "thin_rows is 9: it may be 0 to 8"),
        ("share_from=-1", "share_from is -1: it may be 0"),
    ],
)
def test_wrong_pins_are_refused(given: str, reason: str) -> None:
    run = python("import torch; torch.ones(3, device='xpu')", OPENXPU_TUNING=given)
    assert run.returncode != 0
    assert "OPENXPU_TUNING" in run.stderr
    assert reason in run.stderr


def test_pins_go_before_measurements(tmp_path: Path) -> None:
    cache = {"OPENXPU_CACHE_DIR": str(tmp_path)}
    printed(KEEP, **cache)
    assert printed(SHOW, **cache) == "3 measured"
    assert printed(SHOW, **cache, OPENXPU_TUNING="thin_rows=5") == "5 pinned"


def test_damaged_and_foreign_files_are_not_used(tmp_path: Path) -> None:
    cache = {"OPENXPU_CACHE_DIR": str(tmp_path)}
    initial = printed(SHOW, **cache)
    assert initial.endswith("table")
    path = Path(printed(KEEP, **cache))
    kept = path.read_bytes()
    assert path.parent == tmp_path
    for other in (
        b"",
        kept[:-3],
        kept.replace(b"=3", b"=4"),
        kept + b"share_from=1\n",
        b"\x00" * 4096,
    ):
        path.write_bytes(other)
        assert printed(SHOW, **cache) == initial
    path.write_bytes(kept)
    assert printed(SHOW, **cache) == "3 measured"
    path.rename(path.with_name("0" * 32 + ".tuning"))  # another machine's
    assert printed(SHOW, **cache) == initial


@pytest.mark.parametrize("limit", [0, NEVER])
@pytest.mark.parametrize("size", [(17, 19, 23), (64, 64, 64), (130, 257, 96)])
def test_both_libraries_multiply_right(table: _tune.Table, limit: int, size: tuple[int, int, int]) -> None:
    m, n, k = size
    for form in ("nn", "nt", "tn"):
        table.set(f"onednn_from_{form}", limit)
    a, b, c = (torch.randn(shape, dtype=torch.float64) for shape in ((m, k), (k, n), (m, n)))
    for turned_a in (False, True):
        for turned_b in (False, True):
            x = a.float().t().contiguous().t() if turned_a else a.float()
            y = b.float().t().contiguous().t() if turned_b else b.float()
            want = x.double() @ y.double()
            near = {"rtol": 1e-5, "atol": 1e-5 * math.sqrt(k)}
            torch.testing.assert_close((x.xpu() @ y.xpu()).cpu().double(), want, **near)
            got = torch.addmm(c.float().xpu(), x.xpu(), y.xpu(), beta=0.5).cpu().double()
            torch.testing.assert_close(got, want + 0.5 * c.float().double(), **near)


@pytest.mark.parametrize("rows", [0, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_rows_are_multiplied_right_by_whomever(table: _tune.Table, rows: int, dtype: torch.dtype) -> None:
    table.set("thin_rows", rows)
    table.set("thin_rows_bf16", rows)
    table.set("thin_elements", 256)
    for m in (1, 2, 3, 5, 8):
        a, b = torch.randn(m, 96).to(dtype), torch.randn(70, 96).to(dtype)
        want = a.double() @ b.double().t()
        bound = 1e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close((a.xpu() @ b.xpu().t()).cpu().double(), want, rtol=bound, atol=10 * bound)


@pytest.mark.parametrize("least", [True, False])
def test_bounds_keep_the_numbers(table: _tune.Table, least: bool) -> None:
    """Each value at its bounds: sums, rows, scans, scatters and the like come out the same."""
    torch.manual_seed(0)
    for line in table:
        table.set(line.name, line.least if least else line.most)
    for shape in ((300, 17), (40, 700), (3, 20000), (70000, 2)):
        a = torch.randn(shape, dtype=torch.float64).float()
        x = a.xpu()
        for name, f in {
            "sum rows": lambda t: t.sum(1),
            "sum columns": lambda t: t.sum(0),
            "sum": lambda t: t.sum(),
            "var": lambda t: t.var(1),
            "softmax": lambda t: t.softmax(1),
            "softmax of columns": lambda t: t.softmax(0),
            "layer norm": lambda t: torch.nn.functional.layer_norm(t, t.shape[1:]),
            "cumsum": lambda t: t.cumsum(1),
            "add": lambda t: t + t,
            "kthvalue": lambda t: t.kthvalue(2).values,
        }.items():
            want, got = f(a.double()), f(x).cpu().double()
            assert (got - want).abs().max() < 1e-4 * max(1.0, want.abs().max().item()), (name, shape)


UP = [1, 2, 4, 8]


@pytest.mark.parametrize(
    "gains, from_on, now, found",
    [
        ([-0.3, -0.3, 0.3, 0.3], True, NEVER, 4),
        ([-0.3, -0.3, 0.3, 0.3], True, 4, 4),
        ([-0.3, -0.3, 0.3, 0.3], True, 3, 3),  # as good as 4
        ([0.3, 0.3, 0.3, 0.3], True, 4, 1),
        ([-0.3, -0.3, -0.3, -0.3], True, 4, NEVER),
        ([0.02, -0.02, 0.01, -0.01], True, 2, 2),  # as fast
        ([0.0, 0.05, 0.0, 0.0], True, NEVER, NEVER),  # not worth it
        ([-0.3, 9.0, -0.3, -0.3], True, NEVER, NEVER),  # once the machine was busy
        ([0.3, 0.3, -0.3, -0.3], False, 0, 2),
        ([-0.3, -0.3, -0.3, -0.3], False, 8, 0),
    ],
)
def test_thresholds(gains: list[float], from_on: bool, now: int, found: int) -> None:
    assert _tune.threshold(UP, gains, from_on, NEVER if from_on else 0, now) == found


def test_comparing_finds_the_faster_way() -> None:
    way = 0

    def choose(which: int) -> None:
        nonlocal way
        way = which

    a = torch.randn(200, 200)
    gain = _tune.compare(
        lambda: [a @ a for _ in range(1 if way else 4)], (lambda: choose(0), lambda: choose(1)), 0.1
    )
    assert gain > math.log(1.5)


def test_tune_measures_and_keeps(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "openxpu.cli", "tune", "--seconds", "0"]
    pins = "onednn_from_nn=5,onednn_from_nt=5,onednn_from_tn=5,thin_elements=65536,short_row=64,share_from=7"
    environment = os.environ | {"OPENXPU_CACHE_DIR": str(tmp_path), "COLUMNS": "200", "OPENXPU_TUNING": pins}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "thin_rows_bf16" in run.stdout
    assert "onednn_from_nn" not in run.stdout  # what is pinned isn't measured
    path = next(tmp_path.glob("*.tuning"))
    assert str(path) in run.stdout.replace("\n", "")
    names = {line.partition("=")[0] for line in path.read_text().splitlines()[1:]}
    assert names == {"thin_rows", "thin_rows_bf16"}
