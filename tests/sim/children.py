"""Run with ``openxpu simulate``: children, started in every usual way, add on the simulated GPU."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from opencl_add import add

PROGRAM = str(Path(__file__).with_name("opencl_add.py"))
SUM = "9900"


def check(what: str, output: str) -> None:
    """Print whether a child added on a GPU of Intel's."""
    words = output.split()
    if words[:1] != ["Intel(R)"] or words[-1:] != [SUM]:
        sys.exit(f"{what}: FAILED: {output!r}")
    print(f"{what}: passed", flush=True)


def output_of(*command: str, **options: bool) -> str:
    """Return what a command prints."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **options).stdout


def spawned() -> str:
    """Return what a child of posix_spawn prints, with an environment of its own."""
    reader, writer = os.pipe()
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    child = os.posix_spawn(sys.executable, [sys.executable, PROGRAM], environment, file_actions=actions)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    os.waitpid(child, 0)
    return text


def script() -> str:
    """Return what a script prints that its first line starts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "script")
        file.write_text(f"#!{sys.executable}\n{Path(PROGRAM).read_text()}")
        file.chmod(0o700)
        return output_of(str(file))


def forked(executes: bool) -> str:
    """Return what a forked child prints, which adds itself or executes a program."""
    reader, writer = os.pipe()
    if not os.fork():
        os.dup2(writer, 1)
        if executes:
            os.execl(sys.executable, sys.executable, PROGRAM)
        os.write(writer, " ".join(map(str, add())).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as output:
        return output.read()


def main() -> None:
    """Start the children."""
    check("fork", forked(executes=False))
    check("fork, exec", forked(executes=True))
    check("subprocess", output_of(sys.executable, PROGRAM))
    check("shell", output_of(f"'{sys.executable}' '{PROGRAM}'; :", shell=True))
    check("env", output_of("env", "-i", sys.executable, PROGRAM))
    check("posix_spawn", spawned())
    check("script", script())
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            check(f"multiprocessing, {method}", " ".join(map(str, pool.apply(add))))
    if not os.path.samefile(os.readlink("/proc/self/exe"), sys.executable):
        sys.exit(f"/proc/self/exe: FAILED: {os.readlink('/proc/self/exe')}")


if __name__ == "__main__":
    main()
