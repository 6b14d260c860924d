"""The runner tests/legs.py: every leg runs even if another fails, and the summary lists the failures."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import legs  # noqa: E402


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep this test's logs apart from those of a run in progress."""
    monkeypatch.setattr(legs, "LOGS", tmp_path)
    return tmp_path


def run_all(monkeypatch: pytest.MonkeyPatch, commands: dict[str, str], *names: str) -> int:
    """Return the exit status of the runner with these legs."""
    monkeypatch.setattr(legs, "SUITES", {"all": commands})
    monkeypatch.setattr(legs, "LEGS", commands)
    monkeypatch.setattr(sys, "argv", ["legs.py", *(names or ("all",))])
    return legs.main()


def test_a_leg_that_fails_hides_none(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], logs: Path
) -> None:
    """Legs that fail in different ways, between legs that pass."""
    commands = {
        "first": "echo one; echo other >&2",
        "false": "false",
        "lacks": "echo no compiler; exit 77",
        "signal": "kill -SEGV $$",
        "unknown": "no-such-program-here",
        "pipe": "exit 3",
        "last": "echo the last",
    }
    assert run_all(monkeypatch, commands) == 1
    text = capfdbinary.readouterr().out.decode()
    assert "the last" in text
    end = text.partition("== legs")[2]
    lines = {line.split()[0]: line for line in end.splitlines() if line}
    for name in ("first", "last"):
        assert " passed," in lines[name]
    assert " skipped," in lines["lacks"]
    for name, status in {"false": "1", "signal": "-11", "unknown": "127", "pipe": "3"}.items():
        assert f"FAILED ({status})" in lines[name], end
    assert end.splitlines()[-1] == "2 legs passed, 1 skipped, 4 failed"
    assert "FAILED" in end.splitlines()[-2]  # failures come last
    assert (logs / "first.log").read_text() == "one\nother\n"


def test_all_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status of a suite and of single legs."""
    commands = {"a": "true", "b": "exit 77", "c": "false"}
    assert run_all(monkeypatch, {"a": "true", "b": "exit 77"}) == 0
    assert run_all(monkeypatch, commands, "a", "b") == 0
    assert run_all(monkeypatch, commands, "a", "c") == 1
    with pytest.raises(SystemExit):
        run_all(monkeypatch, commands, "a", "d")


def test_what_hangs_is_ended() -> None:
    """A leg that does not end, and a leg that leaves a process running with its output open."""
    start = time.monotonic()
    hangs = legs.run("hangs", "sleep 1000 & sleep 1000", limit=1)
    leaves = legs.run("leaves", "sleep 1000 & echo done")
    assert hangs.failed
    assert "not done" in hangs.what
    assert leaves.what == "passed"
    assert time.monotonic() - start < 500


def test_legs_name_what_there_is() -> None:
    """Every file that a leg's command names exists."""
    for name, command in legs.LEGS.items():
        for word in command.split():
            if word.startswith("tests/") or word.endswith((".py", ".sh")):
                assert (ROOT / word).exists(), f"{name}: {word}"


def test_a_name_has_one_command() -> None:
    """A leg's name repeats the command that its suite ran; "all" runs each leg of "test" in full."""
    for suite in legs.SUITES.values():
        for name, command in suite.items():
            assert legs.LEGS[name] == command
    everything = legs.SUITES["all"]
    assert all(name in everything or f"{name}-all" in everything for name in legs.SUITES["test"])
    assert not [name for name, command in everything.items() if legs.QUICK in command]
