"""`openxpu warm`: lists of requests, building them in several processes, recording a program."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openxpu import _warm
from processes import run, run_python

PROGRAM = """
import json, sys, torch, openxpu
a = torch.arange(1000.0).to("xpu")
b = (a * 2 + a).reshape(10, 100)
b.sum(1), b.cumsum(1), torch._foreach_add([a], 1.0), b.softmax(-1)
total = b.sum().item()
print(json.dumps({**openxpu.program_stats(), "sum": total}))
"""


def warm(*arguments: str, cache: Path, status: int = 0) -> str:
    """Run the command, check its exit status and return its output."""
    env = {"COLUMNS": "200", "OPENXPU_CACHE_DIR": str(cache), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-m", "openxpu.cli", "warm", *arguments]
    return run(command, env=env, status=status, together=True).stdout


def run_program(cache: Path) -> dict[str, float]:
    """Use the device in a new process; return the number of programs it built and loaded."""
    done = run_python(PROGRAM, env={"OPENXPU_CACHE_DIR": str(cache)})
    result: dict[str, float] = json.loads(done.stdout)
    assert result["sum"] == 3 * 999 * 1000 / 2
    return result


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the list of the program's requests."""
    folder = tmp_path_factory.mktemp("recorded")
    script, path = folder / "program.py", folder / "list"
    script.write_text("import os\nos.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '1'\n" + PROGRAM)
    warm("--record", str(path), "--name", "program", str(script), cache=folder / "cache")
    assert list(_warm.RequestList.parse(path.read_text()).programs) == ["program"]
    return path


def test_warm_then_run_builds_nothing(recorded: Path, tmp_path: Path) -> None:
    """The command builds everything that a recorded program builds; a second run has nothing to do."""
    requests = len(_warm.RequestList.parse(recorded.read_text()).requests)
    assert requests >= 6
    assert f"{requests} kernels built" in warm("--jobs", "2", str(recorded), cache=tmp_path)
    used = run_program(tmp_path)
    assert (used["built"], used["loaded"]) == (0, requests)
    again = warm(str(recorded), cache=tmp_path)
    assert "0 kernels built" in again
    assert f"{requests} were already cached" in again
    # only the damaged program is rebuilt
    damaged = next(tmp_path.glob("*.bin"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert "1 kernels built" in warm(str(recorded), cache=tmp_path)


def test_two_at_once(recorded: Path, tmp_path: Path) -> None:
    """Two commands that fill one cache at the same time do not corrupt it."""
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(warm, "--jobs", "1", str(recorded), cache=tmp_path) for _ in range(2)]
        for run in runs:
            run.result()
    assert not list(tmp_path.glob("*.tmp"))
    assert "0 kernels built" in warm(str(recorded), cache=tmp_path)


def test_errors_are_told(tmp_path: Path) -> None:
    """A request that fails to build is named, the others are built, and the exit status is an error."""
    kind = _warm.kind_of(0)
    path = tmp_path / "list"
    listed = _warm.RequestList()
    wrong = "sort.cl|sort_tiles|-DT=nothing|a wrong sort [/of] [red]|"
    listed.add("p", [(kind, wrong), (kind, "copy.cl|copy|-DE=4|copy 4 bytes|")])
    path.write_text(str(listed))
    told = warm(str(path), cache=tmp_path, status=1)
    assert "\na wrong sort [/of] [red] kernel a wrong" in told
    assert "1 kernels built" in told
    path.write_text("not a list\n")
    assert "malformed line in a list" in warm(str(path), cache=tmp_path, status=1)


ANSWERS = """
import sys
for line in sys.stdin:
    if "deadly" in line: sys.exit(1)
    print('{"built": 1, "error": null}', flush=True)
"""


@pytest.fixture
def builders(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Builders that end at a deadly request: a list of those that were started."""
    from openxpu import _builder

    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen([sys.executable, "-c", ANSWERS], stdin=pipe, stdout=pipe, text=True))
        return started[-1]

    monkeypatch.setattr(_builder, "start", start)
    _builder._builder.cache_clear()
    return started


def test_a_builder_that_dies(builders: list[subprocess.Popen[str]]) -> None:
    """If a build process crashes, only its request is lost."""
    steps: list[None] = []
    outcome = _warm.build(0, ["a", "deadly", "b", "c"], 1, lambda: steps.append(None))
    assert (outcome.built, list(outcome.errors), len(steps)) == (3, ["deadly"], 4)


def test_building_ahead_goes_on_after_a_crash(builders: list[subprocess.Popen[str]]) -> None:
    """A compile worker whose builder has ended starts another one, at most twice for a kernel."""
    from openxpu import _builder

    for image, expected in ((b"a", 1), (b"b", 1), (b"deadly", 2), (b"c", 3), (b"d", 3)):
        _builder.build_ahead(image)
        assert len(builders) == expected
    _builder._builder.cache_clear()


def test_lists(tmp_path: Path) -> None:
    """A list survives writing and reading; adding a program again replaces it; the most common requests come first."""
    listed = _warm.RequestList()
    listed.add("one: first", [("cpu", "a"), ("cpu", "b"), ("gpu", "c"), ("cpu", "b")])
    listed.add("two", [("cpu", "b"), ("cpu", "d")])
    assert _warm.RequestList.parse(str(listed)) == listed
    assert listed.commonest("cpu") == ["b", "a", "d"]
    listed.add("one: first", [("cpu", "d")])
    assert listed.commonest("cpu") == ["d", "b"] and listed.commonest("gpu") == []
    with pytest.raises(ValueError, match="not in the list"):
        _warm.RequestList.parse("cpu\ta\n> p: 0 1\n")


def test_the_list_that_comes_with_openxpu() -> None:
    """The list has requests for this kind of device, and all can be read."""
    common = _warm.common()
    assert len(common.programs) >= 20
    assert len(common.commonest("cpu")) >= 200
