"""Processes that tests start: what they find, what a failure says, and that nothing outlives a time limit."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import preloaded
import pytest
from processes import SHOWN, environment, run, run_python


def test_a_program_finds_what_tests_find() -> None:
    done = run_python("import comparing, processes; print(torch.ones(2, device='xpu').sum().item())")
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    bare = run_python("import sys; print('torch' in sys.modules, sys.argv[1:])", "a", "b c", bare=True)
    assert bare.stdout == "False ['a', 'b c']\n"


def test_files_and_modules(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys; print(os.getcwd(), sys.argv[1:], sys.stdin.read())")
    assert run_python(program, "x", cwd=tmp_path).stdout.startswith(f"{tmp_path} ['x'] ")
    assert run_python("-m", "json.tool", "--help").stdout.startswith("usage:")
    assert run(["cat"], text="some\ntext").stdout == "some\ntext"


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("TAKEN", "1")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    changed = environment({"TAKEN": None, "NEW": "2"})
    assert (changed["KEPT"], changed["NEW"], changed.get("TAKEN")) == ("1", "2", None)
    assert changed["PYTHONPATH"].split(os.pathsep)[-1] == "/elsewhere"
    assert environment({"PYTHONPATH": "/only"})["PYTHONPATH"] == "/only"
    assert run(["printenv", "NEW"], env={"NEW": "2"}).stdout == "2\n"
    assert run(["printenv", "TAKEN"], env={"TAKEN": None}, status=1).stdout == ""


def test_a_failure_says_how_it_ended_and_what_it_printed() -> None:
    program = "import sys; print('to stdout'); sys.exit('to stderr')"
    with pytest.raises(AssertionError) as raised:
        run_python(program, bare=True)
    text = str(raised.value)
    assert text.startswith(f"{sys.executable} -c 'import sys;")
    assert text.endswith("ended with status 1\n--- stdout\nto stdout\n--- stderr\nto stderr")
    assert run_python(program, bare=True, status=1).stderr == "to stderr\n"
    assert run_python(program, bare=True, status=None).returncode == 1
    with pytest.raises(AssertionError, match="ended with status 0\n--- no stdout\n--- no stderr"):
        run(["true"], status=1)
    assert run(["sh", "-c", "echo a; echo b >&2; echo c"], together=True).stdout == "a\nb\nc\n"


def test_a_failure_names_a_signal_and_cuts_what_is_long() -> None:
    killed = "import os, signal; print('x' * 100000, flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    with pytest.raises(AssertionError) as raised:
        run_python(killed, bare=True)
    text = str(raised.value)
    assert f"was killed by SIGSEGV\n--- stdout, its last {SHOWN} characters\nx" in text
    assert len(text) < SHOWN + 1000
    assert run_python(killed, bare=True, status=None).returncode == -11


def is_gone(child: Path) -> bool:
    """Whether the process whose number is in a file ends; one that has ended remains until another takes note."""
    status = Path("/proc", child.read_text().strip(), "stat")
    for _ in range(100):
        if not status.exists() or status.read_text().split()[2] in "ZX":
            return True
        time.sleep(0.1)
    return False


def test_what_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    start = time.monotonic()
    with pytest.raises(AssertionError, match=r"(?s)did not end within 2 s\n--- stdout\nbegun\n"):
        run(["sh", "-c", f"echo begun; sleep 77 & echo $! > {child}; wait"], timeout=2)
    assert time.monotonic() - start < 60
    assert is_gone(child)


def test_forks_of_a_preloaded_process_end_as_programs_do(tmp_path: Path) -> None:
    show = "import sys; print(sys.argv[1:], __name__, torch.ones(2, device='xpu').sum().item())"
    for _ in range(2):  # the first is no fork yet
        assert run_python(show, "a", "b c").stdout == "['a', 'b c'] __main__ 2.0\n"
    command = preloaded.command(["-c", ""], environment())
    assert command and str(preloaded.CLIENT) in command
    assert run_python("print(end='x'); raise SystemExit(7)", status=7).stdout == "x"
    assert "ZeroDivisionError" in run_python("1 / 0", status=1).stderr
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert run_python(killed, status=None).returncode == -11
    child = tmp_path / "child"
    sleeps = f"import subprocess; open({str(child)!r}, 'w').write(str(subprocess.Popen(['sleep', '77']).pid))"
    start = time.monotonic()
    with pytest.raises(AssertionError, match="did not end within 9 s"):
        run_python(f"{sleeps}; import time; time.sleep(77)", timeout=9)
    assert time.monotonic() - start < 60
    assert is_gone(child)
