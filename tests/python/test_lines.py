"""tools/check_lines.py: lines that no formatter breaks."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import run

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_lines.py"


@pytest.mark.parametrize(
    "name", ["a.py", "src/a.cl", "tests/run.sh", "b/CMakeLists.txt", "Makefile", ".ci/run"]
)
def test_lines_of_120_characters(tmp_path: Path, name: str) -> None:
    tool, file = tmp_path / "tools" / TOOL.name, tmp_path / name
    for path in (tool, file):
        path.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text(TOOL.read_text())
    (tmp_path / "table.def").write_text("x" * 200)
    file.write_text("x\n" + "é" * 120 + "\n")
    run(["git", "init", "-q", tmp_path])
    run(["git", "-C", tmp_path, "add", "."])
    run([sys.executable, tool])
    file.write_text("x\n" + "x" * 121 + "\n")
    told = subprocess.run([sys.executable, tool], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (1, f"{name}:2: has 121 characters, more than 120\n")
