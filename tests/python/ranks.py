"""Processes of one group that run many cases, in step, since each takes seconds to start.

A test file starts itself once for each rank, with four arguments: the rank, a folder that all share, what to run,
and the number of ranks.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

Cases = dict[str, Callable[[], None]]


def entering(
    cases: Cases, *also: Cases
) -> Callable[..., Callable[[Callable[..., None]], Callable[..., None]]]:
    """Make a decorator that enters a function among the cases, once for each name, its argument, if there is one."""

    def case(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        def enter(function: Callable[..., None]) -> Callable[..., None]:
            title = function.__name__
            for each in (cases, *also):
                for name in names:
                    each[f"{title}-{name}"] = functools.partial(function, name)
                if not names:
                    each[title] = function
            return function

        return enter

    return case


# --- in a process ---


def rank() -> int:
    return dist.get_rank()


def folder() -> str:
    """What all processes share."""
    return sys.argv[2]


def kind() -> str:
    """What this process is to run."""
    return sys.argv[3]


def write(results: dict[str, str]) -> None:
    """Whole or not at all: the test reads it of processes that were killed, too."""
    unfinished = Path(folder(), f"{rank()}.json.part")
    unfinished.write_text(json.dumps(results))
    unfinished.replace(Path(folder(), f"{rank()}.json"))


def begin(seconds: int = 30, device: torch.device | None = None) -> None:
    """Join the group, bound to the device if there is one."""
    faulthandler.dump_traceback_later(200, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group(
        "cpu:gloo,xpu:xccl",
        init_method=f"file://{folder()}/store",
        rank=int(sys.argv[1]),
        world_size=int(sys.argv[4]),
        timeout=timedelta(seconds=seconds),
        device_id=device,
    )
    torch.xpu.set_device(rank() % torch.xpu.device_count())


def run(cases: Cases, device: torch.device | None = None) -> None:
    """Run each case, in step with the others."""
    begin(device=device)
    results = {}
    for name, function in cases.items():
        try:
            function()
            results[name] = ""
        except BaseException:
            results[name] = traceback.format_exc()
        write(results)
        failed = torch.tensor([bool(results[name])], dtype=torch.int32)
        dist.all_reduce(failed)
        if failed.item() % dist.get_world_size():
            break  # on some ranks only: they are out of step
    dist.destroy_process_group()


# --- in the test's process ---


def environment() -> dict[str, str]:
    """Settings in which a process finds openxpu as these tests do."""
    from helpers import SOURCE

    path = f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}"
    # without workers that compile: to start them takes longer than to compile here
    threads = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    others = {"GLOO_SOCKET_IFNAME": "lo", "TORCH_FR_BUFFER_SIZE": "2000"}
    return dict(os.environ, PYTHONPATH=path, **others, **threads)


@functools.cache
def results(
    file: str, ranks: int, kind: str, settings: tuple[tuple[str, str], ...] = ()
) -> list[dict[str, str]]:
    """What each process says of each case: nothing, or a traceback. Under "" is its output."""
    with tempfile.TemporaryDirectory() as shared:
        # what the flight recorder writes when a collective fails goes there, too
        dumps = {"TORCH_FR_DUMP_TEMP_FILE": f"{shared}/trace_"}
        variables = {**environment(), **dumps, **dict(settings)}
        logs = [open(os.path.join(shared, f"{r}.log"), "w+") for r in range(ranks)]
        processes = [
            subprocess.Popen(
                [sys.executable, file, str(r), shared, kind, str(ranks)],
                env=variables,
                stdout=logs[r],
                stderr=logs[r],
            )
            for r in range(ranks)
        ]
        for process in processes:
            process.wait(timeout=240)
        said = []
        for r, log in enumerate(logs):
            log.seek(0)
            text = log.read()
            log.close()
            path = Path(shared, f"{r}.json")
            said.append({"": text, **(json.loads(path.read_text()) if path.exists() else {})})
        return said


def check(name: str, said: list[dict[str, str]]) -> None:
    """Fail if the case failed in one of the processes, or if one didn't come so far, with what failed before."""
    for r, process in enumerate(said):
        if name not in process:
            pytest.fail(f"rank {r} did not come so far{what_ended(said)}", pytrace=False)
        if process[name]:
            pytest.fail(f"on rank {r}: {process[name]}", pytrace=False)


def what_ended(said: list[dict[str, str]]) -> str:
    """What failed first, on each rank, how far the ranks came, and the end of their output."""
    order = max(([case for case in process if case] for process in said), key=len)
    first = next((case for case in order if any(process.get(case) for process in said)), None)
    text = [":"]
    for r, process in enumerate(said):
        last = [case for case in process if case][-1:]
        text.append(f"rank {r} came to {last[0] if last else 'no case'}")
        if first and process.get(first):
            text.append(f"{first} failed on rank {r}: {process[first]}")
        text.append(f"rank {r} said:\n{process[''][-3000:]}")
    return "\n".join(text)
