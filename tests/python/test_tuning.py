"""The tuning table: its lines, pins, what is measured and kept, and that it changes speed alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from comparing import assert_close
from openxpu import _tune
from processes import Finished, run_python

ROOT = Path(__file__).parents[2]
NEVER = 1 << 62
# Without PyTorch, which takes longer to import than all the rest.
SHOW = """
from openxpu import _tune
line = _tune.Table(0)["skinny_rows"]
print(line.value, line.source)
"""
KEEP = """
from openxpu import _tune
table = _tune.Table(0)
table.set("skinny_rows", 3)
print(table.keep())
"""


def python(program: str, **environment: str) -> Finished:
    return run_python(program, env={"PYTHONWARNINGS": "ignore", **environment}, status=None)


def printed(program: str, **environment: str) -> str:
    env = {"PYTHONWARNINGS": "ignore", **environment}
    return run_python(program, env=env).stdout.strip()


def command_line(*arguments: str, **environment: str) -> str:
    """What the command prints with these arguments."""
    return run_python("-m", "openxpu.cli", *arguments, env=environment).stdout


@pytest.fixture
def table() -> Iterator[_tune.Table]:
    """The table of the device; values that a test sets are taken back."""
    table = _tune.Table(0)
    before = {line.name: line.value for line in table}
    yield table
    for name, value in before.items():
        table.reset(name)
        assert table[name].value == value


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
        used = rf'TUNED\([^()]*(?:\([^()]*\))?[^()]*, {line.name.upper()}\)|tuning_index\("{line.name}"\)'
        assert re.search(used, sources), f"nothing asks for {line.name}"


def test_info_prints_them() -> None:
    text = command_line("info", "--tuning", COLUMNS="80", OPENXPU_TUNING="skinny_rows=3")
    assert "\nskinny_rows = 3 rows (pinned, bench/products.py)\n    " in text
    assert re.search(r"^parallel_from = [\d,]+ operations \((table|measured), bench/", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "unit, half",
    [
        ("", "portable kernels"),
        ("ptx", "NVIDIA tensor cores, emulated"),
        ("xmx", "Intel XMX, emulated"),
        ("xmx8", "Intel XMX, emulated"),
        ("fma", "multiply-add instructions"),
    ],
)
def test_info_says_what_multiplies(unit: str, half: str) -> None:
    env = {"COLUMNS": "200", "OPENXPU_MATRIX": unit, "OPENXPU_HOST_PROVIDER": "0", "OPENXPU_DEVICE": "cpu"}
    text = command_line("info", **env)
    assert re.search(rf"\bf16, bf16(, f32, f64, c64, c128)?: {half}", text), text
    assert ("f32 with tf32 allowed: NVIDIA tensor cores in tf32, emulated" in text) == (unit == "ptx")


@pytest.mark.parametrize(
    "given, reason",
    [
        ("nonsense=3", 'no parameter "nonsense"'),
        ("parallel_from", '"parallel_from" is not name=number'),
        ("parallel_from=", '"parallel_from=" is not name=number'),
        ("parallel_from=1e3", "is not name=number"),
        ("parallel_from=5,skinny_rows=9", "skinny_rows is 9: must be 0 to 8"),
        ("parallel_from=-1", "parallel_from is -1: must be 0"),
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
    assert printed(SHOW, **cache, OPENXPU_TUNING="skinny_rows=5") == "5 pinned"


def test_damaged_and_foreign_files_are_not_used(tmp_path: Path) -> None:
    cache = {"OPENXPU_CACHE_DIR": str(tmp_path)}
    initial = printed(SHOW, **cache)
    assert initial.endswith("table")
    path = Path(printed(KEEP, **cache))
    kept = path.read_bytes()
    assert path.parent == tmp_path
    problem = f"{SHOW}\nprint(_tune.Table(0).problem())"
    for other in (
        b"",
        kept[:-3],
        kept.replace(b"=3", b"=4"),
        kept + b"parallel_from=1\n",
        b"\x00" * 4096,
    ):
        path.write_bytes(other)
        assert printed(problem, **cache).splitlines() == [
            initial,
            f"{path}: damaged or from another machine, so it is ignored; run `openxpu tune` to measure again",
        ]
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
    table.set("skinny_rows", rows)
    table.set("skinny_rows_bf16", rows)
    table.set("skinny_elements", 256)
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
            "cat of columns": lambda t: torch.cat((t, t.neg(), t[:, :1].contiguous()), 1),
            "cat of rows": lambda t: torch.cat((t[:2], t[:1], t), 0),
        }.items():
            want, got = f(a.double()), f(x)
            options = {"rtol": 1e-4, "relative_to": "largest", "floor": 1}
            assert_close(got, want, dtype=torch.float32, what=f"{name} {shape}", **options)


UP = [1, 2, 4, 8]


@pytest.mark.parametrize(
    "gains, from_on, now, found",
    [
        ([-0.3, -0.3, 0.3, 0.3], True, NEVER, 4),
        ([-0.3, -0.3, 0.3, 0.3], True, 4, 4),
        ([-0.3, -0.3, 0.3, 0.3], True, 3, 3),  # as fast as 4
        ([0.3, 0.3, 0.3, 0.3], True, 4, 1),
        ([-0.3, -0.3, -0.3, -0.3], True, 4, NEVER),
        ([0.02, -0.02, 0.01, -0.01], True, 2, 2),  # as fast
        ([0.0, 0.05, 0.0, 0.0], True, NEVER, NEVER),  # too small a gain
        ([-0.3, 9.0, -0.3, -0.3], True, NEVER, NEVER),  # one outlier: the machine was busy
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


@pytest.mark.extended
def test_tune_measures_and_keeps(tmp_path: Path) -> None:
    pins = "onednn_from_nn=5,onednn_from_nt=5,onednn_from_tn=5,skinny_elements=65536,short_row=64,parallel_from=7"
    env = {"OPENXPU_CACHE_DIR": str(tmp_path), "COLUMNS": "200", "OPENXPU_TUNING": pins}
    text = command_line("tune", "--seconds", "0", **env)
    assert "skinny_rows_bf16" in text
    assert "onednn_from_nn" not in text  # pinned values are not measured
    path = next(tmp_path.glob("*.tuning"))
    assert str(path) in text.replace("\n", "")
    kept = [line.partition("=")[::2] for line in path.read_text().splitlines()[1:]]
    rows = (re.split(r"\s*│\s*", line.strip("│ ")) for line in text.splitlines())
    moved = {row[0]: row[2] for row in rows if row[0].startswith("skinny_rows") and row[1] != row[2]}
    assert dict(kept) == moved  # values that did not change are not saved


def test_what_is_found_as_it_is_is_not_marked(table: _tune.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    question = _tune.Question("skinny_rows", [(m, lambda: None) for m in range(1, 9)], from_on=False)
    for gain, found in ((0.0, "table"), (-1.0, "set"), (1.0, "table")):
        monkeypatch.setattr(_tune, "compare", lambda *_, gain=gain: gain)
        table.reset("skinny_rows")
        answer = _tune.ask(0, question, 0)
        assert answer.before.source == "table"
        assert (answer.after.source, answer.after.value) == (found, 0 if gain < 0 else 8)

    def fails(*_: object) -> float:
        raise OSError

    monkeypatch.setattr(_tune, "compare", fails)
    with pytest.raises(OSError):
        _tune.ask(0, question, 0)
    assert (table["skinny_rows"].source, table["skinny_rows"].value) == ("table", 8)


# --- rates of tiles: on a processor that takes a GPU's kernels ---

FMA = {"OPENXPU_MATRIX": "fma", "OPENXPU_HOST_PROVIDER": "0"}
ALL_KINDS = """
from openxpu import _tune
for products in _tune.Table(0).kinds():
    print(products.shown, _tune.layouts(0, products))
"""
MEASURE = """
import torch
from openxpu import _tune
table = _tune.Table(0)
products, = table.kinds()
assert products.shown == "f32"
before = table.tiles(products)
assert all(tile.source == "table" for tile in before)
rates = _tune.measure(0, products, 1, 0, size=160)
after = table.tiles(products)
assert [tile.rates[1] for tile in after] == list(rates.after)
assert list(rates.before) == [tile.rates[1] for tile in before]
assert all(0 < rate < 1e9 for rate in rates.after)
assert len(set(rates.after)) > len(before) // 2
assert all(tile.lines[1].source == "set" and tile.lines[2].source == "table" for tile in after)
assert table["matrix_tile"].source == "table"
table.keep()
print([tile.rates[1] for tile in after])
"""
SHOW_RATES = """
import torch
from openxpu import _tune
table = _tune.Table(0)
tiles = table.tiles(table.kinds()[0])
assert {tile.lines[1].source for tile in tiles} == {"measured"}
assert {tile.lines[2].source for tile in tiles} == {"table"}
print([tile.rates[1] for tile in tiles])
"""
# The tuner's arithmetic: each tile but one takes a second for 10,000^3, and that one half of it.
MADE_UP = """
from openxpu import _tune
import torch
table = _tune.Table(0)
products, = table.kinds()
tiles = table.tiles(products)
units = torch.xpu.get_device_properties(0).gpu_subslice_count
_tune.product = lambda *_: lambda: None
size = 10_000
for fastest in range(len(tiles)):
    _tune.fastest = lambda work, ways, *_: [0.5 if i == fastest else 1.0 for i in range(len(ways))]
    rates = _tune.measure(0, products, 2, 0, size=size)
    assert rates.fastest[1] == fastest, rates
    for i, (tile, rate) in enumerate(zip(tiles, rates.after)):
        m, n = -(-size // tile.m) * tile.m, -(-size // tile.n) * tile.n
        groups = -(-(m * n // tile.m // tile.n) // units) * units  # of units that all have as many
        expected = groups * tile.m * tile.n * size / units * (2e-6 if i == fastest else 1e-6)
        # Of so many groups little is told by the last ones; few work-items wait for memory.
        assert 0.99 < rate / expected < 1.3, (tile, rate, expected)
"""


@pytest.mark.parametrize(
    "unit, provider, kinds",
    [
        ("fma", "0", ["f32 [0, 1, 2]"]),
        ("dot", "0", ["f32 [0, 1, 2]", "i8 [2]"]),
        ("ptx", "0", [f"{kind} [0, 1, 2]" for kind in ("bf16", "i8", "f32 as tf32")]),
        ("xmx", "0", ["bf16 [0, 1, 2]", "i8 [1, 2]", "f32 as tf32 [1, 2]"]),
        ("xmx8", "0", [f"{kind} [2]" for kind in ("bf16", "i8")]),
        ("fma", "1", []),  # PyTorch's own libraries multiply
    ],
)
def test_what_has_rates(unit: str, provider: str, kinds: list[str]) -> None:
    program = f"import torch; torch.ones(1, device='xpu'){ALL_KINDS}"
    assert printed(program, OPENXPU_MATRIX=unit, OPENXPU_HOST_PROVIDER=provider).splitlines() == kinds


def test_rates_are_measured_and_kept(tmp_path: Path) -> None:
    cache = {"OPENXPU_CACHE_DIR": str(tmp_path), **FMA}
    measured = printed(MEASURE, **cache)
    assert printed(SHOW_RATES, **cache) == measured
    text = command_line("info", "--tuning", COLUMNS="250", **cache)
    rows = [line for line in text.splitlines() if " fma_" in line]
    assert len(rows) >= 5
    assert all("table, measured" in row for row in rows)
    pinned = printed(ALL_KINDS, **FMA, OPENXPU_TUNING="rate_fma_128x128x8_4x2_float32_1=5")
    assert pinned == "f32 [0, 2]"  # what is pinned isn't measured


def test_rates_of_made_up_times() -> None:
    printed(MADE_UP, **FMA)


def test_what_gpus_are_asked() -> None:
    program = """
from openxpu import _tune
for question in _tune.gpu_questions(0, largest=256):
    answer = _tune.ask(0, question, 0)
    assert len(answer.gains) == len(question.points) > 1
    print(answer.name)
"""
    names = ["packed_product", "quantized_rows", "short_row", "long_row"]
    assert printed(program, **FMA).split() == names


def test_units_are_asked_up_to_how_many_rows_numbers_are_made_anew() -> None:
    program = "from openxpu import _tune\nprint([q.name for q in _tune.gpu_questions(0, largest=256)][2])"
    for unit, name in (("ptx", "quantized_tiles"), ("xmx", "quantized_xmx16"), ("xmx8", "short_row")):
        assert printed(program, **{**FMA, "OPENXPU_MATRIX": unit}) == name


def hash_of(name: str, text: str) -> str:
    """The first line of a file of measurements: that of src/core/hash.c, of both with a 0 behind."""
    whole = (1 << 64) - 1
    a, b = 0xCBF29CE484222325, 0x84222325CBF29CE4
    for data in (name.encode() + b"\0", text.encode() + b"\0"):
        words = len(data) // 8 * 8
        for at in range(0, words, 8):
            word = int.from_bytes(data[at : at + 8], "little")
            a = ((a ^ word) * 0x100000001B3) & whole
            a ^= a >> 29
            b = ((b + word) * 0x9E3779B97F4A7C15) & whole
            b ^= b >> 32
        for byte in data[words:]:
            a = ((a ^ byte) * 0x100000001B3) & whole
            b = ((b + byte) * 0x9E3779B97F4A7C15) & whole

    def ended(x: int) -> str:
        x = ((x ^ x >> 33) * 0xFF51AFD7ED558CCD) & whole
        x = ((x ^ x >> 33) * 0xC4CEB9FE1A85EC53) & whole
        return f"{x ^ x >> 33:016x}"

    return ended(a ^ b >> 1) + ended(b)


@pytest.mark.parametrize(
    "line, reason",
    [
        ("skinny_rows", '"skinny_rows" is not name=number'),
        ("parallel_from=", '"parallel_from=" is not name=number'),
        ("parallel_from=7x", '"parallel_from=7x" is not name=number'),
        ("", '"" is not name=number'),
        ("nonsense=3", 'no parameter "nonsense"'),
        ("skinny_rows=9", "skinny_rows is 9: must be 0 to 8 (rows)"),
        ("parallel_from=-1", "parallel_from is -1"),
        ("parallel_from=99999999999999999999", "parallel_from is 9223372036854775807"),
        ("rate_fma_128x128x8_4x2_float32_1=0", "rate_fma_128x128x8_4x2_float32_1 is 0"),
        ("rate_fma_128x128x8_4x2_float32_3=5", 'no parameter "rate_fma_128x128x8_4x2_float32_3"'),
        ("x" * 300, f'"{"x" * 80}" is not name=number'),
    ],
)
def test_bad_lines_are_named_and_the_others_hold(tmp_path: Path, line: str, reason: str) -> None:
    cache = {"OPENXPU_CACHE_DIR": str(tmp_path)}
    path = Path(printed(KEEP, **cache))
    assert path.read_text() == hash_of(path.name, "skinny_rows=3\n") + "\nskinny_rows=3\n"
    text = f"skinny_rows=2\n{line}\nskinny_rows_bf16=3\n"
    path.write_text(f"{hash_of(path.name, text)}\n{text}")
    program = f"{SHOW}\nprint(_tune.Table(0)['skinny_rows_bf16'].value)\nprint(_tune.Table(0).problem())"
    shown = printed(program, **cache).splitlines()
    assert shown[:2] == ["2 measured", "3"]
    assert shown[2].startswith(f"{path}:3: {reason}")


def test_info_names_a_bad_line(tmp_path: Path) -> None:
    cache = {"OPENXPU_CACHE_DIR": str(tmp_path)}
    path = Path(printed(f"import torch; torch.xpu.init(){KEEP}", **cache))
    path.write_text(f"{hash_of(path.name, 'skinny_rows=9')}\nskinny_rows=9")
    text = command_line("info", COLUMNS="80", **cache)
    assert f"{path}:2: skinny_rows is 9: must be 0 to 8 (rows)\n" in text
    assert printed(f"import torch; torch.xpu.init(){KEEP}print(table.problem())", **cache) == str(path)
