"""Collectives and sends over MPI: the cases of Gloo's tests, and how programs begin and end."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import openxpu  # noqa: F401
import pytest
import test_distributed
import test_distributed_faults
import test_distributed_graphs
import test_parallel
import torch
import torch.distributed as dist
from processes import ROOT, Finished
from processes import run as run_command
from ranks import check, environment, launch, launcher, results

needs_mpi = pytest.mark.skipif(not launcher(), reason="needs an MPI: mpicc and mpiexec")

# --- Gloo's tests ---

RANKS = test_distributed.RANKS
LATE = (test_distributed.STAGED, ("OPENXPU_DEFERRED_ERRORS", "1"))
KILLED = "rank_that_is_killed"  # after it MPI's launcher ends all ranks


@needs_mpi
@pytest.mark.parametrize("name", test_distributed.CASES)
def test_case(name: str) -> None:
    check(name, results(test_distributed.__file__, RANKS, "cases", mpi=True))


@pytest.mark.extended
@needs_mpi
@pytest.mark.parametrize("name", test_distributed.MATRIX)
def test_case_of_four(name: str) -> None:
    check(name, results(test_distributed.__file__, 4, "matrix", mpi=True))


@pytest.mark.extended
@needs_mpi
@pytest.mark.parametrize("name", test_distributed.LATE)
def test_late_fault(name: str) -> None:
    check(name, results(test_distributed.__file__, RANKS, "late", LATE, mpi=True))


@pytest.mark.extended
@needs_mpi
@pytest.mark.parametrize("name", test_distributed.BOUND)
def test_bound(name: str) -> None:
    check(name, results(test_distributed.__file__, 4, "bound", (("OPENXPU_DEVICE", "cpu,cpu"),), mpi=True))


@pytest.mark.extended
@needs_mpi
@pytest.mark.parametrize("name", [name for name in test_distributed_faults.FAULTS if name != KILLED])
def test_fault(name: str) -> None:
    check(name, results(test_distributed_faults.__file__, 3, "faults", mpi=True))


@pytest.mark.extended
@needs_mpi
@pytest.mark.parametrize("name", test_distributed_graphs.CASES)
def test_graph(name: str) -> None:
    check(name, results(test_distributed_graphs.__file__, 2, "cases", mpi=True))


@pytest.mark.extended
@needs_mpi
@pytest.mark.parametrize("name", test_parallel.STAGED)
def test_parallel_training(name: str) -> None:
    check(name, results(test_parallel.__file__, 2, "staged", mpi=True))


# --- programs that the launcher starts ---

WAIT = timedelta(seconds=120)


def sums_up(devices: tuple[str, ...] = ("xpu", "cpu")) -> None:
    """Fail unless the default group works on each device."""
    ranks = dist.get_world_size()
    for device in devices:
        for n in (3, 5000, 3 << 20):
            x = torch.full((n,), dist.get_rank() + 1.0, device=device)
            dist.all_reduce(x)
            assert torch.equal(x.cpu(), torch.full((n,), ranks * (ranks + 1) / 2))


def launched_rank() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])


def names() -> None:
    """MPI supplies the rank and the number of ranks; groups can be created again after they were destroyed."""
    for name in ("mpi", "cpu:mpi,xpu:mpi", "cpu:gloo,xpu:mpi", "xpu:mpi", "MPI"):
        dist.init_process_group(name, timeout=WAIT)
        assert dist.is_mpi_available()
        assert (dist.get_rank(), dist.get_world_size()) == (launched_rank(), 2)
        assert dist.get_backend() == name.lower()
        assert isinstance(dist.group.WORLD._get_backend(torch.device("xpu")), dist.ProcessGroupMPI)
        sums_up(("xpu",) if name == "xpu:mpi" else ("xpu", "cpu"))
        if name != "xpu:mpi":
            dist.barrier()
        dist.destroy_process_group()


def by_environment() -> None:
    """The program sets its own ranks, in another order than MPI's."""
    os.environ.update(RANK=str(1 - launched_rank()), WORLD_SIZE="2")
    dist.init_process_group("mpi", timeout=WAIT)
    assert dist.get_rank() == 1 - launched_rank()
    sums_up()
    gathered = [torch.zeros(1, device="xpu") for _ in range(2)]
    dist.all_gather(gathered, torch.full((1,), float(dist.get_rank()), device="xpu"))
    assert [x.item() for x in gathered] == [0, 1]
    dist.destroy_process_group()


def by_store() -> None:
    store = dist.FileStore(sys.argv[2] + "/store", 2)
    dist.init_process_group("mpi", store=store, rank=launched_rank(), world_size=2, timeout=WAIT)
    sums_up()
    group = dist.new_group(backend="cpu:gloo,xpu:xccl")  # beside it
    assert not isinstance(group._get_backend(torch.device("xpu")), dist.ProcessGroupMPI)
    x = torch.ones(3, device="xpu")
    dist.all_reduce(x, group=group)
    assert x.tolist() == [2, 2, 2]


def beside_gloo() -> None:
    """One group over MPI in a program whose other groups use Gloo."""
    store = dist.FileStore(sys.argv[2] + "/store", 2)
    dist.init_process_group(store=store, rank=launched_rank(), world_size=2, timeout=WAIT)
    group = dist.new_group(backend="mpi")
    for device in ("xpu", "cpu"):
        x = torch.full((4,), dist.get_rank() + 1.0, device=device)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [3] * 4


def messages() -> None:
    """Messages sent before they are received, in order for each tag, short and long, from any source."""
    dist.init_process_group("mpi", timeout=WAIT)
    pair = dist.new_group([0, 2])
    sizes = (5, 5120, 5121, 1 << 20, 5, 3 << 20)  # up to 20 KiB are sent eagerly
    if dist.get_rank():
        sent = [
            dist.isend(torch.full((n,), dist.get_rank() * 10.0 + i, device="xpu"), 0, tag=i % 2)
            for i, n in enumerate(sizes)
        ]
        if dist.get_rank() == 2:
            sent.append(dist.isend(torch.full((7,), 5.0, device="xpu"), 0, group=pair, tag=0))
        for work in sent:
            work.wait()
    else:
        time.sleep(0.5)
        x = torch.zeros(7, device="xpu")
        assert dist.recv(x, group=pair, tag=0) == 2
        assert x.tolist() == [5] * 7
        for tag in (1, 0):
            for i in range(tag, len(sizes), 2):
                for source in (2, 1):
                    x = torch.zeros(sizes[i], device="xpu")
                    dist.recv(x, source, tag=tag)
                    assert torch.equal(x.cpu(), torch.full((sizes[i],), source * 10.0 + i))
    dist.barrier()
    if dist.get_rank():
        dist.send(torch.full((3,), float(dist.get_rank()), device="xpu"), 0)
    else:
        y = torch.zeros(3, device="xpu")
        sources = set()
        for _ in range(2):
            sources.add(dist.recv(y))
            assert y[0].item() == sorted(sources)[0] if len(sources) == 1 else True
        assert sources == {1, 2}
    dist.barrier()


def left_open() -> None:
    """The process exits cleanly with unreceived messages and groups that were not destroyed."""
    dist.init_process_group("mpi", timeout=WAIT)
    other = 1 - dist.get_rank()
    for n in (10, 1 << 20):
        dist.isend(torch.ones(n, device="xpu"), other, tag=1)
    dist.irecv(torch.ones(10, device="xpu"), other, tag=2)
    work = dist.irecv(torch.ones(10), other, tag=3)
    sums_up()
    del work


def forked() -> None:
    """A forked child must not use its parent's MPI."""
    dist.init_process_group("mpi", timeout=WAIT)
    sums_up()
    child = os.fork()
    if not child:
        try:
            dist.all_reduce(torch.ones(3))
        except RuntimeError as error:
            os._exit(7 if "was forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    sums_up()


def fails() -> None:
    dist.init_process_group("mpi", timeout=WAIT)
    sums_up()
    if dist.get_rank() == 1:
        raise ArithmeticError("on purpose")
    dist.all_reduce(torch.ones(3, device="xpu"))


def is_killed() -> None:
    dist.init_process_group("mpi", timeout=WAIT)
    sums_up()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3, device="xpu"))


PROGRAMS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        names,
        by_environment,
        by_store,
        beside_gloo,
        messages,
        left_open,
        forked,
        fails,
        is_killed,
    )
}


def launched(name: str, ranks: int, folder: Path) -> Finished:
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port()} if name == "by_environment" else {}
    return launch(ranks, [__file__, name, str(folder)], env=environment() | place)


def free_port() -> str:
    import socket

    with socket.socket() as one:
        one.bind(("localhost", 0))
        return str(one.getsockname()[1])


@needs_mpi
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("messages", "fails", "beside_gloo") else pytest.mark.extended)
        for name in PROGRAMS
    ],
)
def test_program(name: str, tmp_path: Path) -> None:
    done = launched(name, 3 if name == "messages" else 2, tmp_path)
    if name in ("fails", "is_killed"):
        assert done.returncode, done.stdout
        assert name != "fails" or "on purpose" in done.stdout
        assert "timed out" not in done.stdout.lower()  # the other rank does not wait for its timeout
    else:
        assert not done.returncode, done.stdout


@needs_mpi
def test_messages(tmp_path: Path) -> None:
    """The C code without PyTorch: some threads cancel messages while others receive theirs."""
    from openxpu import _mpi

    program = str(tmp_path / "messages")
    folder = ROOT / "bridge/distributed/mpi"
    sources = [ROOT / "tests/races/mpi_messages.c", *folder.glob("*.c")]
    command = [_mpi._compiler().path, "-std=c11", "-O1", "-pthread", f"-I{folder}", "-o", program]
    run_command([*command, *sources], timeout=100)
    done = launch(3, [program], python=False)
    assert not done.returncode and done.stdout.count(": 1140 messages") == 3, done.stdout


# --- what isn't MPI's launcher, or no MPI ---


def said_alone(command: list[str], **variables: str) -> str:
    """Return the output of a program that uses MPI without its launcher, or without MPI installed."""
    done = run_command([sys.executable, *command], env=environment() | variables, timeout=240, status=None)
    return f"{done.returncode} {done.stdout}{done.stderr}"


ASKS = "import torch, torch.distributed as d; print(d.is_mpi_available()); d.init_process_group('mpi')"


def test_without_mpi() -> None:
    text = said_alone(["-c", ASKS], OPENXPU_MPICC="/nowhere/mpicc")
    assert re.search(
        r"(?s)^1 False.*RuntimeError: there is no MPI: /nowhere/mpicc: No such file.*pip install", text
    ), text


@needs_mpi
def test_compiler_that_fails(tmp_path: Path) -> None:
    compiler = tmp_path / "mpicc"
    compiler.write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    compiler.chmod(0o755)
    text = said_alone(["-c", ASKS], OPENXPU_MPICC=str(compiler))
    assert "there is no MPI" in text and "doesn't compile: broken" in text, text


@pytest.mark.extended
@needs_mpi
def test_other_launcher() -> None:
    """Processes started by torchrun, or by another MPI's launcher, each see themselves as MPI process 0 of 1."""
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    text = said_alone([*run, sys.executable, "-c", ASKS])
    assert re.search(r"ranks 0 and 1 are both MPI process 0 of 1.*mpirun or mpiexec", text), text
    variables = {"PMI_SIZE": "4"} if "openmpi" in launcher()[0] else {"OMPI_COMM_WORLD_SIZE": "4"}
    compiler = launcher()[0].replace("mpiexec", "mpicc").replace("mpirun", "mpicc")
    text = said_alone(["-c", ASKS], OPENXPU_MPICC=compiler, **variables)
    assert "4 processes were started" in text and "OPENXPU_MPICC" in text, text


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
