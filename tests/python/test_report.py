"""``openxpu report``: both files are whole, and hold nothing about the machine's owner."""

from __future__ import annotations

import getpass
import json
import platform
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from openxpu import _report, _report_page, cli
from processes import run_python

EMPTY = {"meta", "br", "path", "rect"}  # elements without an end tag, or that end at once


class Balanced(HTMLParser):
    """Collects the text of a page, and checks that each element ends."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(page: str) -> str:
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    return parser.text


def test_both_files_are_written(tmp_path: Path) -> None:
    done = run_python("-m", "openxpu.cli", "report", "--seconds", "3", "-o", str(tmp_path / "mine"))
    assert done.stdout.split() == [str(tmp_path / "mine.json"), str(tmp_path / "mine.html")]
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("mine.json", "mine.html")]
    report = json.loads(texts[0])
    assert report["device"]["name"] == torch.xpu.get_device_name(0)
    assert len(report["values"]) >= 40 and all(row["ok"] for row in report["values"])
    assert all(row["rate"] > 0 for row in report["rates"]) and not any(c["error"] for c in report["checks"])
    shown = text_of(texts[1])
    for row in report["values"] + report["rates"] + report["checks"]:
        assert row["name"] in shown
    uuid = str(torch.xpu.get_device_properties(0).uuid)
    for private in (platform.node(), getpass.getuser(), str(Path.home()), str(tmp_path), uuid):
        if len(private) > 4:  # "root" may be a part of another word
            assert not any(private in text for text in texts), private


def test_what_is_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        if x.is_xpu:
            raise OSError("/home/somebody/file.cl:3: <no> way\nmore")
        return x

    wrong = [
        _report.Operator("off by a little", lambda x: x + x.is_xpu * 1e-3, lambda: (torch.ones(3).double(),)),
        _report.Operator("not a number", lambda x: x / (not x.is_xpu), lambda: (torch.zeros(3).double(),)),
        _report.Operator("other index", lambda x: x.argmax() + x.is_xpu, lambda: (torch.ones(3).double(),)),
        _report.Operator("other shape", lambda x: x[x.is_xpu :], lambda: (torch.ones(3).double(),)),
        _report.Operator("fails", fails, lambda: (torch.ones(3).double(),)),
    ]
    monkeypatch.setattr(_report, "_operators", lambda: wrong)
    monkeypatch.setattr(_report, "WORK", ())
    assert cli.main(["report", "-o", str(tmp_path / "x")]) == 1
    assert "5 entries of the report failed" in capsys.readouterr().err
    rows = json.loads((tmp_path / "x.json").read_text())["values"]
    assert not any(row["ok"] for row in rows)
    assert rows[-1]["error"] == "OSError: file.cl:3: <no> way"
    page = (tmp_path / "x.html").read_text()
    assert "5 of 5 operators are off" in text_of(page) and "&lt;no&gt;" in page
    assert cli.main(["report", "--device", "99"]) == 1
    assert cli.main(["report", "-o", str(tmp_path / "nowhere" / "x")]) == 1


@pytest.mark.parametrize(
    "text, public",
    [
        ("FileNotFoundError: [Errno 2] No such file: '/home/me/a b/x.cl'", "b/x.cl'"),
        ("RuntimeError: cannot open ~/secret/x.so: no", "RuntimeError: cannot open x.so: no"),
        ("ValueError: 3/4 of 1e-3", "ValueError: 3/4 of 1e-3"),
        ("build of kernel matmul failed", "build of kernel matmul failed"),
    ],
)
def test_folders_are_left_out(text: str, public: str) -> None:
    assert _report._public(text).endswith(public) and "me" not in _report._public(text).split("/")


@pytest.mark.parametrize(
    "version, units, clock, kind, published",  # peak rates that Intel publishes, TFLOP/s or TOP/s
    [
        ((20, 1), 160, 2850, "float16", 116.7),  # Arc B580
        ((20, 1), 160, 2850, "int8", 233),
        ((20, 1), 160, 2670, "float32", 13.67),
        ((12, 55), 512, 2100, "float32", 17.2),  # Arc A770
        ((12, 55), 512, 2100, "float16", 137.6),
        ((12, 60), 1024, 1600, "bfloat16", 839),  # Data Center GPU Max 1550
        ((12, 60), 1024, 1600, "float32", 52.4),
        ((12, 71), 128, 2250, "float16", 9.2),  # Meteor Lake: no XMX
    ],
)
def test_roofs_are_what_intel_publishes(
    version: tuple[int, int], units: int, clock: int, kind: str, published: float
) -> None:
    properties = SimpleNamespace(
        vendor_id=0x8086,
        type="gpu",
        max_compute_units=units,
        max_clock_rate=clock,
        architecture=(version[0] << 22 | version[1] << 14) << 8,
    )
    assert _report._roof(properties, kind) == pytest.approx(published, rel=0.01)
    properties.type = "cpu"
    assert _report._roof(properties, kind) is None


def test_plots() -> None:
    rates = [
        {"name": "a", "dtype": "x", "unit": "GB/s", "rate": 50.0, "roof": 100.0},
        {"name": "b", "dtype": "x", "unit": "GB/s", "rate": 150.0, "roof": 100.0},  # the scale grows
        {"name": "c", "dtype": "x", "unit": "GB/s", "rate": 1.0, "roof": None},
    ]
    plot = _report_page._plot(rates)
    assert "50%" in plot and "150%" in plot and text_of(plot).count("GB/s") == 2
    assert "not known" in _report_page._plot(rates[2:])
