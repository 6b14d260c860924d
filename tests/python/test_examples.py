"""The short examples do what they say; tests/c/test_install.sh builds and runs those in C."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(autouse=True)
def one_thread():
    """A team of threads would only wait for its turn beside other tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def main_of(name):
    path = EXAMPLES / "python" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def test_eager(capsys):
    main_of("eager")()
    printed = capsys.readouterr().out
    losses = [float(number) for number in re.findall(r"loss (\S+)", printed)]
    assert len(losses) == 5 and losses[-1] < losses[0] / 3
    assert float(re.search(r"(\S+)% of new points", printed)[1]) > 95


@pytest.mark.extended
def test_torch_compile(capsys, fresh_compiler):
    pytest.importorskip("triton")
    main_of("torch_compile")()  # raises where the two differ
    assert re.fullmatch(r"eager \d+\.\d\d ms, compiled \d+\.\d\d ms\n", capsys.readouterr().out)


def test_own_kernel(capsys):
    pytest.importorskip("triton")
    main_of("own_kernel")()
    assert float(capsys.readouterr().out.split()[-1]) < 1e-6


def test_profiler_trace(capsys, tmp_path):
    path = tmp_path / "trace.json"
    main_of("profiler_trace")(str(path))
    assert "Self XPU" in capsys.readouterr().out
    events = json.loads(path.read_text())["traceEvents"]
    assert len([event for event in events if event.get("cat") == "kernel"]) > 30


def test_readme_has_a_line_for_each():
    readme = (ROOT / "README.md").read_text()
    files = [p for p in EXAMPLES.glob("*/*") if p.suffix in {".py", ".c", ".cpp"}]
    imported = {
        name for p in files for name in re.findall(r"^\s*(?:from|import) (\w+)", p.read_text(), re.MULTILINE)
    }
    names = {p.relative_to(ROOT).as_posix() for p in files if p.stem not in imported}
    assert len(names) > 7
    assert not {name for name in names if f"`{name}`" not in readme}
