"""Runs programs in processes of their own: Python programs that find openxpu as these tests do, and others.

A program that ends otherwise than it should fails the test with its command, its status or signal, and what
it printed. One that takes too long is killed with all that it started.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import preloaded

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SOURCE = ROOT / "python"
SHOWN = 6000  # characters of each stream, its last ones
LIMIT = 500  # seconds; a test has 600
# The C library fills memory that it gives and takes back, as OPENXPU_POISON=ff fills that of devices: PyTorch's CPU
# libraries, which compute on CPU devices, must not read what nothing wrote.
POISONED_HEAP = {
    "GLIBC_TUNABLES": "glibc.malloc.perturb=129:glibc.malloc.tcache_count=0:glibc.malloc.mmap_max=0"
}
Variables = Mapping[str, str | None]
Finished = subprocess.CompletedProcess[str]


def environment(variables: Variables | None = None) -> dict[str, str]:
    """Return this process's environment, in which Python finds openxpu and the tests' modules, with changes.

    A variable whose value is None is left out.
    """
    built = (SOURCE / "openxpu" / "_bridge.so").exists()  # else the installed package is tested
    paths = [str(SOURCE)] * built + [str(TESTS), os.environ.get("PYTHONPATH", "")]
    changed = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(variables or {})}
    return {name: value for name, value in changed.items() if value is not None}


def run_python(
    program: str | Path,
    *arguments: str | Path,
    bare: bool = False,
    env: Variables | None = None,
    timeout: float = LIMIT,
    cwd: Path | None = None,
    status: int | None = 0,
) -> Finished:
    """Run a Python program with arguments. For other parameters see ``run``.

    The program is a file, or text, for which openxpu and torch are imported unless ``bare``. ``"-m"`` runs
    the module that the first argument names. Unless ``bare``, the process may be a fork of one that has imported
    PyTorch already (preloaded.py).
    """
    __tracebackhide__ = True
    if isinstance(program, Path) or program == "-m":
        words = [program]
    else:
        words = ["-c", program if bare else f"import openxpu, torch\n{program}"]
    words = [str(word) for word in (*words, *arguments)]
    command = None if bare else preloaded.command(words, environment(env))
    return run(command or [sys.executable, *words], env=env, timeout=timeout, cwd=cwd, status=status)


def run(
    command: Sequence[str | Path],
    *,
    env: Variables | None = None,
    timeout: float = LIMIT,
    cwd: Path | None = None,
    status: int | None = 0,
    text: str | None = None,
    together: bool = False,
) -> Finished:
    """Run a command to its end.

    Parameters
    ----------
    env
        What differs from this process's environment: see ``environment``.
    timeout
        Seconds after which the command, and what it has started, is killed and the test fails.
    status
        The exit status that the command must have, minus a signal's number if one ends it; None for any.
    text
        What the command reads from its standard input; else it reads what this process would.
    together
        Whether what it writes to its standard error goes to ``stdout``, too, in order.

    Returns
    -------
    subprocess.CompletedProcess
        ``returncode``, and the texts ``stdout`` and ``stderr``.
    """
    __tracebackhide__ = True
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment(env),
        cwd=cwd,
        stdin=None if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        text=True,
        errors="replace",
    )
    is_late = False
    try:
        stdout, stderr = process.communicate(text, timeout)
    except subprocess.TimeoutExpired:
        is_late = True
        preloaded.kill(process.pid)
        stdout, stderr = process.communicate()
    finally:  # an interrupted test, too
        if process.poll() is None:
            preloaded.kill(process.pid)
            process.communicate()
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr or "")
    if is_late or (status is not None and done.returncode != status):
        raise AssertionError(described(done, f"did not end within {timeout:g} s" if is_late else None))
    return done


def described(done: Finished, what: str | None = None) -> str:
    """Return a finished process's command, how it ended, and the end of what it printed."""
    if what is None and done.returncode < 0:
        names = {each.value: each.name for each in signal.Signals}
        what = f"was killed by {names.get(-done.returncode, f'signal {-done.returncode}')}"
    lines = [f"{shlex.join(done.args)[:400]}", what or f"ended with status {done.returncode}"]
    for name in ("stdout", "stderr"):
        stream = getattr(done, name)
        cut = f", its last {SHOWN} characters" if len(stream) > SHOWN else ""
        lines += [f"--- {name}{cut}", stream[-SHOWN:].rstrip("\n")] if stream else [f"--- no {name}"]
    return "\n".join(lines)
