"""``openxpu warm``: build the kernels of common programs ahead of time.

Lists are text. First one line per request, "kind of device, tab, request" (``xpu/request.h``). Then one line
per program, "> name: " and the line indices of its requests, from 0, in the order of use. Lines that begin
with # are comments.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class RequestList:
    """Build requests, and the programs that they were recorded from."""

    requests: list[tuple[str, str]] = field(default_factory=list)  # kind of device, request
    programs: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> RequestList:
        """Parse a list; ValueError for a malformed line."""
        parsed = cls()
        for line in text.splitlines():
            if line.startswith("> "):
                name, _, numbers = line[2:].rpartition(": ")
                parsed.programs[name] = [int(number) for number in numbers.split()]
            elif line and not line.startswith("#"):
                kind, tab, request = line.partition("\t")
                if not tab:
                    raise ValueError(f"malformed line in a list of kernel requests: {line!r}")
                parsed.requests.append((kind, request))
        if any(not 0 <= n < len(parsed.requests) for p in parsed.programs.values() for n in p):
            raise ValueError("a program refers to a request that is not in the list")
        return parsed

    def add(self, name: str, requests: Iterable[tuple[str, str]]) -> None:
        """Add or replace a program; unused requests are removed."""
        of_programs = {n: [self.requests[i] for i in p] for n, p in self.programs.items()}
        of_programs[name] = list(dict.fromkeys(requests))
        self.requests = list(dict.fromkeys(r for p in of_programs.values() for r in p))
        numbers = {request: number for number, request in enumerate(self.requests)}
        self.programs = {n: [numbers[r] for r in p] for n, p in of_programs.items()}

    def commonest(self, kind: str) -> list[str]:
        """Return the requests for a kind of device, most widely used first."""
        count = Counter(number for program in self.programs.values() for number in program)
        chosen = (n for n, (of, _) in enumerate(self.requests) if of == kind)
        return [self.requests[n][1] for n in sorted(chosen, key=lambda n: -count[n])]

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        lines = ["# Kernels that programs build at first use, written by: openxpu warm --record"]
        lines += [f"{kind}\t{request}" for kind, request in self.requests]
        lines += [f"> {name}: {' '.join(map(str, p))}" for name, p in self.programs.items()]
        return "\n".join(lines) + "\n"


def common() -> RequestList:
    """Return the list shipped with libxpu."""
    from openxpu._tile import library

    xpu = library()
    xpu.xpu_request_common.restype = ctypes.c_char_p
    return RequestList.parse((xpu.xpu_request_common() or b"").decode())


def record(program: Sequence[str], path: Path, name: str | None = None) -> int:
    """Run a Python program and add its requests to the list at ``path``; return its exit status.

    ``name`` is the program's name in the list, by default its command line.
    """
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "recording"
        environment = {**os.environ, "OPENXPU_RECORD_KERNELS": str(recording)}
        status = subprocess.run([sys.executable, *program], env=environment, check=False).returncode
        lines = recording.read_text().splitlines() if recording.exists() else []
    requests = [(kind, request) for _, kind, request in (line.split("\t", 2) for line in lines)]
    known = RequestList.parse(path.read_text()) if path.exists() else RequestList()
    known.add(name or " ".join(program), requests)
    path.write_text(str(known))
    return status


@dataclass
class Outcome:
    """The result of building a device's requests."""

    wanted: int = 0
    built: int = 0
    errors: dict[str, str] = field(default_factory=dict)  # request: the driver's message


def kind_of(device: int) -> str:
    """Return a device's kind as lists name it; RuntimeError for an unknown device."""
    from openxpu._tile import library

    xpu = library()
    kind = ctypes.c_char_p()
    if xpu.xpu_request_kind(device, ctypes.byref(kind)):
        raise RuntimeError(xpu.xpu_last_error().decode(errors="replace"))
    return (kind.value or b"").decode()


def _ask(builder: subprocess.Popen[str], device: int, request: str) -> dict[str, Any] | None:
    """Return the builder's answer; None if the request crashed it."""
    assert builder.stdin is not None and builder.stdout is not None
    try:
        builder.stdin.write(json.dumps({"device": device, "request": request}) + "\n")
        builder.stdin.flush()
        return dict(json.loads(builder.stdout.readline()))
    except (OSError, ValueError):  # the driver's compiler crashed the process
        return None


def build(device: int, requests: Sequence[str], jobs: int, advance: Callable[[], None]) -> Outcome:
    """Build the requests into the cache, in ``jobs`` processes; ``advance`` is called after each."""
    from openxpu import _builder

    outcome = Outcome(wanted=len(requests))
    waiting = iter(requests)
    lock = threading.Lock()  # guards both

    def work() -> None:
        builder = _builder.start()
        while True:
            with lock:
                request = next(waiting, None)
            if request is None:
                break
            answer = _ask(builder, device, request)
            if answer is None:
                builder.kill()
                builder.communicate()
                builder = _builder.start()
                answer = {"built": 0, "error": "the process that built it ended unexpectedly"}
            with lock:
                outcome.built += answer["built"]
                if answer["error"]:
                    outcome.errors[request] = answer["error"]
                advance()
        builder.communicate()  # it ends with its input

    threads = [threading.Thread(target=work) for _ in range(min(jobs, len(requests)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome
