"""What `make run` shows: fits a terminal of 80 columns, and ends with a picture."""

import io
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))

import chart
import compiled
import main_job
from main_job import Row
from processes import run_python

# the longest possible values
ROWS = [
    Row(
        "MiniLM search, 400 sentences",
        123.45,
        123.45,
        123.45,
        "cosine ≥ 0.999999, error ≤ 1.2e-07",
        True,
        123,
    ),
    Row(
        "ResNet training, bf16, an epoch",
        12.34,
        9.99,
        9.99,
        "held-out accuracy 100.0%, CPU 100.0%",
        True,
        123,
        123,
    ),
    Row("GPT-2 decoding, 96 tokens × 2", 0.05, 123.45, 123.45, "192 of 192 tokens equal", False, 0, 123),
]


def shown(table):
    """The lines that a table takes at 80 columns."""
    out = io.StringIO()
    Console(file=out, width=80).print(table)
    return out.getvalue().splitlines()


def body(lines):
    return [line for line in lines if line.startswith("│")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.job)
def test_rows_of_the_main_job(row):
    lines = shown(main_job.closing_table([row]))
    assert max(map(len, lines)) <= 80
    assert 1 <= len(body(lines)) <= 3
    text = " ".join("".join(lines).replace("│", " ").split())
    seconds = (row.first_seconds, row.xpu_seconds, row.cpu_seconds)
    for word in (*(f"{s:.2f}" for s in seconds), f"{row.built} / {row.loaded}", "✓" if row.good else "✗"):
        assert word in text
    assert "first: seconds of the first batch" in text
    assert "…" not in text


@pytest.mark.parametrize("cpp", [False, True])
@pytest.mark.parametrize("name", compiled.MODELS)
def test_rows_of_compiled_models(name, cpp):
    ways = list(compiled.WAYS)[: 3 if cpp else 2]
    table = compiled.closing_table(ways)
    medians, first = [1234.56, 1811.25, 1345.67][: len(ways)], [123.4, 567.8][: len(ways) - 1]
    compiled.add_row(table, name, medians, first, 1.2e-7, True)
    lines = shown(table)
    assert max(map(len, lines)) <= 80
    assert 1 <= len(body(lines)) <= 3
    text = "".join(lines)
    for word in ("1234.6", "1811.2", "123.4", "1.2e-07", *(("1345.7", "567.8") if cpp else ())):
        assert word in text
    assert "…" not in text


def test_answers_have_scores_and_fit():
    long = "Return a [list] of " + "words " * 30
    lines = shown(main_job.answered("How?", [(0.5, long), (0.25, "Short."), (0.125, "Sweet.")]))
    assert max(map(len, lines)) <= 80
    assert "[list]" in lines[1] and lines[1].startswith("0.50") and lines[-1].startswith("0.12")
    assert main_job.console.width <= 80


def test_chart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bars = {"a < b": {"xpu": 2.0, "CPU": 4.0}, "c": {"xpu": 1.0, "CPU": 0.0}}
    path = chart.write(tmp_path / "made" / "x.svg", "times & more", "s", bars)
    assert path == Path("made/x.svg")
    tree = ElementTree.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    drawn = [r for r in tree.iter(f"{space}rect") if r.get("x") == str(chart.LABELS)]
    widths = [float(r.get("width")) for r in drawn]
    assert widths[0] == 2 * widths[2] and widths[1] == 2 * widths[0] and widths[3] == 1
    assert len({r.get("fill") for r in drawn}) == 2
    words = [t.text for t in tree.iter(f"{space}text")]
    assert {"times & more", "a < b", "c", "xpu", "CPU", "2 s", "4 s"} <= set(words)
    for t in tree.iter(f"{space}text"):
        assert 0 <= float(t.get("x")) <= chart.WIDTH


def test_no_warnings_of_what_no_user_can_change():
    done = run_python("""
import torch.utils.cpp_extension
from torch._inductor import config, utils
assert not utils.is_big_gpu(torch.device("xpu")) or torch.xpu.get_device_properties().gpu_eu_count >= 16
""")
    assert "SYCL_HOME" not in done.stderr and "SMs" not in done.stderr
    done = run_python("""
import logging
from torch._inductor import config
config.max_autotune = True
logging.getLogger("torch._inductor.utils").warning("Not enough SMs to use max_autotune_gemm mode")
logging.getLogger("torch._inductor.utils").warning("something else")
""")
    assert "Not enough SMs" in done.stderr and "something else" in done.stderr
