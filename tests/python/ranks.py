"""Processes of one group that run many cases, in step, since each takes seconds to start.

A test file starts itself once for each rank, with four arguments: the rank, a folder that all share, what to run,
and the number of ranks; or MPI's launcher does, and knows the rank.
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
from typing import Any

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
    """Return the folder that all processes share."""
    return sys.argv[2]


def kind() -> str:
    """Return the name of what this process runs."""
    return sys.argv[3]


def by_mpi() -> bool:
    return sys.argv[1] == "mpi"


def own_rank() -> int:
    """Return this process's rank; usable before the group exists."""
    known = (os.environ.get(name) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"))
    return int(next(each for each in known if each) if by_mpi() else sys.argv[1])


def write(results: dict[str, str]) -> None:
    """Write this rank's results atomically: the test also reads those of processes that were killed."""
    unfinished = Path(folder(), f"{rank()}.json.part")
    unfinished.write_text(json.dumps(results))
    unfinished.replace(Path(folder(), f"{rank()}.json"))


def begin(seconds: int = 30, device: torch.device | None = None) -> None:
    """Join the group, bound to the device if one is given."""
    faulthandler.dump_traceback_later(200, exit=True)
    torch.set_num_threads(1)
    wait = timedelta(seconds=seconds)
    if by_mpi():
        dist.init_process_group("mpi", timeout=wait, device_id=device)
    else:
        dist.init_process_group(
            "cpu:gloo,xpu:xccl",
            init_method=f"file://{folder()}/store",
            rank=int(sys.argv[1]),
            world_size=int(sys.argv[4]),
            timeout=wait,
            device_id=device,
        )
    torch.xpu.set_device(rank() % torch.xpu.device_count())


def run(cases: Cases, device: torch.device | None = None) -> None:
    """Run each case on all ranks, one after the other."""
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
    """Return the environment in which a process finds the same openxpu as these tests."""
    import processes

    # without workers that compile: to start them takes longer than to compile here
    threads = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    others = {"GLOO_SOCKET_IFNAME": "lo", "TORCH_FR_BUFFER_SIZE": "2000"}
    return processes.environment(others | threads)


def python(*arguments: str, env: dict[str, str]) -> list[str]:
    """Return the command of a Python program, which may be a fork of a process that has imported PyTorch."""
    import preloaded

    return preloaded.command([*arguments], env) or [sys.executable, *arguments]


@functools.cache
def launcher() -> tuple[str, ...]:
    """Return the command of the launcher next to the MPI compiler that openxpu uses; () without MPI."""
    from openxpu import _mpi

    if not _mpi.is_there():
        return ()
    compiler = _mpi._compiler().path
    for name in ("mpiexec", "mpirun"):
        path = Path(compiler).with_name(Path(compiler).name.replace("mpicc", name))
        if path.exists():
            return (str(path),)
    return ()


# Open MPI's launcher wants to be told that root may run it, and more ranks than there are processors.
LAUNCHING = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def launch(ranks: int, arguments: list[str], python: bool = True, env: dict[str, str] | None = None) -> Any:
    """Run Python or another program in this number of MPI processes."""
    import processes
    from openxpu import _mpi

    command = [*launcher(), "-n", str(ranks), *([sys.executable] if python else []), *arguments]
    variables = {"OPENXPU_MPICC": _mpi._compiler().path, **LAUNCHING, **(env or environment())}
    return processes.run(command, env=variables, timeout=240, status=None, together=True)


@functools.cache
def results(
    file: str, ranks: int, kind: str, settings: tuple[tuple[str, str], ...] = (), mpi: bool = False
) -> list[dict[str, str]]:
    """Return each process's result for each case: "" or a traceback; key "": its output (with MPI: all ranks')."""
    with tempfile.TemporaryDirectory() as shared:
        # what the flight recorder writes when a collective fails goes there, too
        dumps = {"TORCH_FR_DUMP_TEMP_FILE": f"{shared}/trace_"}
        variables = {**environment(), **dumps, **dict(settings)}
        if mpi:
            done = launch(ranks, [file, "mpi", shared, kind, str(ranks)], env=variables)
            text = f"{done.stdout}\nThe launcher's end: {done.returncode}"
            return [{"": text, **said_by(r, shared)} for r in range(ranks)]
        logs = [open(os.path.join(shared, f"{r}.log"), "w+") for r in range(ranks)]
        processes = [
            subprocess.Popen(
                python(file, str(r), shared, kind, str(ranks), env=variables),
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
            said.append({"": text, **said_by(r, shared)})
        return said


def said_by(r: int, shared: str) -> dict[str, str]:
    """Return the results that a rank has written."""
    path = Path(shared, f"{r}.json")
    return json.loads(path.read_text()) if path.exists() else {}


def check(name: str, said: list[dict[str, str]]) -> None:
    """Fail if the case failed in a process or was not reached there; the message then names what failed before."""
    for r, process in enumerate(said):
        if name not in process:
            pytest.fail(f"rank {r} did not come so far{what_ended(said)}", pytrace=False)
        if process[name]:
            pytest.fail(f"on rank {r}: {process[name]}", pytrace=False)


def what_ended(said: list[dict[str, str]]) -> str:
    """Return each rank's first failure, how far the ranks got, and the end of their output."""
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
