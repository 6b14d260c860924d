"""Runs Python programs in forks of a process that has imported PyTorch, which takes longer than most of them.

A server imports PyTorch without openxpu and listens at a socket. A client (preloaded_client.py) stands in for the
program: it hands the server its arguments, environment, folder and standard streams, and ends as the server's fork
ended. If the client is killed, the fork is killed, too. ``command`` returns a client's command.

A variable that Python, PyTorch or its libraries read as they are loaded (``EARLY``) would take effect too late in a
fork, so there is a server for each setting of these.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import random
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EARLY = tuple(
    "PYTHON LD_ LANG LC_ MALLOC_ GLIBC_ OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ NPY_ TORCH_ PYTORCH_ ATEN_ DNNL_ ONEDNN_".split()
)
LATE = tuple(
    "TORCH_DEVICE_BACKEND_AUTOLOAD PYTORCH_ALLOC_CONF TORCH_FR_ "
    "PYTORCH_ENABLE_XPU_ PYTORCH_DEBUG_XPU_ PYTORCH_XPU_".split()
)
CLIENT = Path(__file__).with_name("preloaded_client.py")
MOST = 3  # servers of a process; each takes some 250 MB
Request = dict[str, Any]


# --- in the tests' process ---

_servers: dict[frozenset[tuple[str, str]], str | None] = {}  # by early variables: socket; None: seen once


def command(arguments: list[str], environment: Mapping[str, str]) -> list[str] | None:
    """Return the command that runs ``python ARGUMENTS`` in a fork, in the environment that it will be given.

    None if that environment has no server: the first program of each starts without one.
    """
    key = frozenset(
        (name, value)
        for name, value in environment.items()
        if name.startswith(EARLY) and not name.startswith(LATE)
    )
    if key not in _servers:
        _servers[key] = None
        return None
    if _servers[key] is None:
        if sum(path is not None for path in _servers.values()) >= MOST:
            return None
        _servers[key] = _start(environment)
    # the client imports a few modules of the standard library, and nothing that the environment names
    return [sys.executable, "-I", "-S", str(CLIENT), str(_servers[key]), *arguments]


def _start(environment: Mapping[str, str]) -> str:
    folder = tempfile.mkdtemp(prefix="preloaded-")
    path = str(Path(folder, "socket"))
    server = subprocess.Popen(
        [sys.executable, __file__, path],
        env={**environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdin=subprocess.PIPE,  # which closes when this process ends
        stdout=subprocess.PIPE,
    )
    assert server.stdin and server.stdout

    def stop() -> None:
        server.stdin.close()
        server.wait()
        server.stdout.close()
        with contextlib.suppress(OSError):
            os.unlink(path)
            os.rmdir(folder)

    atexit.register(stop)
    if server.stdout.readline() != b"ready\n":
        raise RuntimeError(f"a server of preloaded programs ended with status {server.wait()}")
    return path


# --- the server ---


def kill(pid: int) -> None:
    """End a process and those that it has started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    doomed = [pid]
    for each in doomed:
        doomed += children.get(each, [])
    for each in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def receive(connection: socket.socket) -> tuple[Request, list[int]]:
    """Return a client's request and its standard streams."""
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    (size,) = struct.unpack("=I", head)
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    return json.loads(text), streams


def serve(path: str) -> Request:
    """Fork for each client; ends when the standard input closes. Returns in forks only: what they have to run."""
    import torch  # noqa: F401

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    ended, wake = os.pipe()
    for end in (ended, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    running: dict[int, socket.socket] = {}
    events = selectors.DefaultSelector()
    for source in (0, ended, listener):
        events.register(source, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fileobj == 0:
                os._exit(0)
            elif key.fileobj == ended:
                os.read(ended, 4096)
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                request, streams = receive(connection)
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    events.close()
                    for each in (listener, connection, *running.values()):
                        each.close()
                    for end in (ended, wake):
                        os.close(end)
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                        os.close(stream)
                    return request
                for stream in streams:
                    os.close(stream)
                running[pid] = connection
                events.register(connection, selectors.EVENT_READ, pid)
            else:  # the client was killed
                events.unregister(key.fileobj)
                kill(key.data)
        for pid in [*running]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            connection = running.pop(pid)
            with contextlib.suppress(KeyError):
                events.unregister(connection)
            with contextlib.suppress(OSError):
                connection.sendall(struct.pack("=i", os.waitstatus_to_exitcode(status)))
            connection.close()


def run(request: Request) -> None:
    """Run a program as Python would have."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    random.seed()
    tempfile.tempdir = None
    import torch

    program, *rest = request["arguments"]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.path[0] = (
        "" if program == "-c" else os.getcwd() if program == "-m" else str(Path(program).resolve().parent)
    )
    if torch._is_device_backend_autoload_enabled():
        torch._import_device_backends()
    if program == "-m":
        sys.argv = rest
        runpy._run_module_as_main(rest[0])
        return
    if program == "-c":
        sys.argv = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    else:
        sys.argv = [program, *rest]
        main.__file__ = program
        code = compile(Path(program).read_bytes(), program, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    run(serve(sys.argv[1]))
