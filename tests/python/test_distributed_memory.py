"""Large messages between ranks of one host, which go through memory that they share: right, and over in time.

`_bytes_through_memory` tells that they did go there, or didn't.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import openxpu  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from collectives import given, reduced, same
from ranks import Cases, begin, check, entering, kind, rank, results, run, write

CASES: Cases = {}
case = entering(CASES)
WAIT = 2  # seconds


def ranks() -> int:
    return dist.get_world_size()


def through_memory(group: dist.ProcessGroup | None = None) -> int:
    """Return the number of bytes this rank has sent through shared memory."""
    return (group or dist.group.WORLD)._get_backend(torch.device("xpu"))._bytes_through_memory


def sums(n: int, group: dist.ProcessGroup | None = None, dtype: torch.dtype = torch.float32) -> None:
    """Fail unless an all_reduce of n elements is right."""
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    x = given((n,), dtype, rank()).to("xpu")
    dist.all_reduce(x, group=group)
    same(x, reduced([given((n,), dtype, r) for r in members], "SUM"))


def connected(group: dist.ProcessGroup | None = None) -> None:
    """Run large calls until all ranks have exchanged the handles of their shared memory."""
    for _ in range(4):
        sums(100_000, group)
    before = through_memory(group)
    sums(100_000, group)
    assert through_memory(group) > before


# around the sizes of the first message, a chunk, a ring, a direct all_reduce and one rank's share
SIZES = (4097, 32767, 65537, 131073, 262144, 262145, 1_048_577)


@case("float32", "bfloat16", "complex64", "float8_e4m3fn")
def all_reduces(name: str) -> None:
    connected()
    dtype = getattr(torch, name)
    for n in SIZES:
        whole = [given((n,), dtype, r) for r in range(ranks())]
        for operation in ("SUM", "AVG") if n % 2 else ("SUM",):
            for is_async in (False, True):
                x = whole[rank()].to("xpu")
                work = dist.all_reduce(x, getattr(dist.ReduceOp, operation), async_op=is_async)
                if is_async:
                    work.wait()
                if name.startswith("float8"):
                    wide = torch.stack([each.float() for each in whole]).sum(0)
                    same(x, (wide / ranks() if operation == "AVG" else wide).to(dtype))
                elif dtype.is_complex:
                    want = torch.view_as_real(torch.stack(whole).sum(0))
                    same(x, torch.view_as_complex(want / ranks() if operation == "AVG" else want))
                else:
                    same(x, reduced(whole, operation))


@case("float32", "int16")
def moved(name: str) -> None:
    """Collectives that only move data, with a different size for each pair of ranks."""
    connected()
    dtype, own = getattr(torch, name), rank()
    for n in SIZES[::2]:
        before = through_memory()
        whole = [given((n,), dtype, r) for r in range(ranks())]
        x = whole[own].to("xpu")
        places = [torch.empty_like(x) for _ in whole]
        dist.all_gather(places, x)
        for place, want in zip(places, whole, strict=True):
            same(place, want)
        for root in range(ranks()):
            y = x.clone()
            dist.broadcast(y, root)
            same(y, whole[root])
        places = [torch.zeros_like(x) for _ in whole]
        dist.gather(x, places if own == 0 else None, 0)
        if own == 0:
            for place, want in zip(places, whole, strict=True):
                same(place, want)
        y = torch.zeros_like(x)
        dist.scatter(y, [each.to("xpu") for each in whole] if own == 1 else None, 1)
        same(y, whole[own])
        rows = [[n * (1 + (r + s) % 3) // 2 + r for s in range(ranks())] for r in range(ranks())]
        parts = [given((rows[own][s],), dtype, own).to("xpu") for s in range(ranks())]
        places = [torch.empty(rows[r][own], dtype=dtype, device="xpu") for r in range(ranks())]
        dist.all_to_all(places, parts)
        for r, place in enumerate(places):
            same(place, given((rows[r][own],), dtype, r))
        assert x.nbytes < 1 << 15 or through_memory() - before > x.nbytes


@case("float32", "float16")
def scattered(name: str) -> None:
    """reduce and reduce_scatter leave their inputs unchanged."""
    connected()
    dtype = getattr(torch, name)
    for n in SIZES[2::3]:
        whole = [given((ranks() * n,), dtype, r) for r in range(ranks())]
        x = whole[rank()].to("xpu")
        y = torch.empty(n, dtype=dtype, device="xpu")
        dist.reduce_scatter_tensor(y, x)
        same(y, reduced(whole, "SUM").chunk(ranks())[rank()])
        same(x, whole[rank()])
        dist.reduce(x, 1)
        if rank() == 1:
            same(x, reduced(whole, "SUM"))


@case()
def many_under_way() -> None:
    """More calls in flight than there are rings or slots for first messages; each rank waits in a different order."""
    connected()
    sizes = [SIZES[i % len(SIZES)] + i for i in range(40)]
    tensors = [given((n,), torch.float32, rank()).to("xpu") for n in sizes]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    sums(300_000)  # concurrently
    order = list(range(len(works)))
    for i in order[:: 1 if rank() % 2 else -1]:
        works[i].wait()
    for n, x in zip(sizes, tensors, strict=True):
        same(x, reduced([given((n,), torch.float32, r) for r in range(ranks())], "SUM"))


@case()
def from_two_threads() -> None:
    """Two threads use two groups at once."""
    groups = [dist.new_group() for _ in range(2)]
    failures: list[BaseException] = []

    def use(group: dist.ProcessGroup) -> None:
        try:
            for i in range(21):
                sums(SIZES[i % len(SIZES)], group)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(group,)) for group in groups]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert all(through_memory(group) for group in groups)


@case()
def groups_of_some() -> None:
    for members in ([0, 1], [ranks() - 1, 0]):
        group = dist.new_group(members)
        if rank() in members:
            connected(group)
            sums(1_000_001, group)


def segments() -> int:
    """Return the number of segments this process has open or mapped."""
    files = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    links = [os.readlink(path) for path in files if os.path.islink(path)]
    with open("/proc/self/maps") as maps:
        return sum("memfd:openxpu" in text for text in (*links, *maps))


@case()
def nothing_is_left() -> None:
    """A group that ends leaves no segment; no segment has a name in the file system."""
    named, before = set(os.listdir("/dev/shm")), segments()
    group = dist.new_group()
    connected(group)
    assert segments() == before + 1 + ranks()
    dist.destroy_process_group(group)
    del group
    end = time.monotonic() + 10
    while segments() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert segments() == before
    assert not any("openxpu" in name for name in set(os.listdir("/dev/shm")) - named)


@case()
def forked() -> None:
    """A forked child is not in the group, and its exit changes nothing."""
    connected()
    child = os.fork()
    if not child:
        try:
            dist.all_reduce(torch.ones(100_000, device="xpu"))
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(1)
    sums(1_000_001)
    assert os.waitpid(child, 0)[1] == 0
    sums(1_000_001)


@case()
def misfits() -> None:
    """More mismatches than there are rings: the group goes on."""
    connected()
    for _ in range(10):
        for n in (100_000, 600_000):
            x = torch.ones(n + (rank() == 1), device="xpu")
            with pytest.raises(RuntimeError, match="not all ranks called the same collective"):
                dist.all_reduce(x)
            sums(n)
            sums(1_000_001)


@contextmanager
def switched_off() -> Iterator[None]:
    os.environ["OPENXPU_SHARED_MEMORY"] = "0"
    yield
    del os.environ["OPENXPU_SHARED_MEMORY"]


@contextmanager
def limited(which: int, most: int) -> Iterator[None]:
    before = resource.getrlimit(which)
    resource.setrlimit(which, (most, before[1]))
    yield
    resource.setrlimit(which, before)


def files() -> int:
    """Return the file descriptor that the next file would get."""
    file = os.open("/dev/null", os.O_RDONLY)
    os.close(file)
    return file


OBSTACLES: dict[str, Callable[[], object]] = {
    "variable": switched_off,
    "no_space": lambda: limited(resource.RLIMIT_FSIZE, 1 << 16),
    "no_files": lambda: limited(resource.RLIMIT_NOFILE, files()),
}


@case(*(f"{name}-{whose}" for name in OBSTACLES for whose in ("all", "one")))
def without(name: str) -> None:
    """Ranks that cannot share memory use the other path; other pairs keep sharing."""
    obstacle, whose = name.split("-")
    has = whose == "all" or rank() == 1
    group = dist.new_group()
    if obstacle == "variable" and has:
        with switched_off():
            group = dist.new_group()
    elif obstacle == "variable":
        group = dist.new_group()
    sums(100, group)
    if obstacle != "variable" and has:
        with OBSTACLES[obstacle]():
            sums(100_000, group)
            sums(100_000, group)
    else:
        sums(100_000, group)
        sums(100_000, group)
    for n in SIZES:
        sums(n, group)
    x = given((1_000_001,), torch.float32, rank()).to("xpu")
    places = [torch.empty_like(x) for _ in range(ranks())]
    dist.all_gather(places, x, group=group)
    for r, place in enumerate(places):
        same(place, given((1_000_001,), torch.float32, r))
    assert (through_memory(group) > 0) == (whose == "one" and ranks() > 2 and rank() != 1)


# --- faults amid a large message ---

FAULTS: Cases = {}
fault = entering(FAULTS)
groups: list[dist.ProcessGroup] = []
said: dict[str, str] = {}


def amid(group: dist.ProcessGroup, act: Callable[[], object], message: str, does: bool) -> None:
    """One rank acts in the middle of a 256 MiB message: the others get an error that says so, in time."""
    dist.all_reduce(torch.zeros(1))
    connected(group)
    x = torch.ones(1 << 26, device="xpu")
    before = through_memory(group)
    if does:

        def wait_and_act() -> None:
            while through_memory(group) < before + (16 << 20):
                pass
            act()

        threading.Thread(target=wait_and_act, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(
        RuntimeError, match=f"(?s)xccl:all_reduce of Float.*failed on rank {rank()}.*{message}"
    ):
        dist.all_reduce(x, group=group)
    assert time.monotonic() - started < WAIT + (8 if not does else 20)


@fault()
def aborted() -> None:
    group = groups.pop()
    backend = group._get_backend(torch.device("xpu"))
    amid(
        group,
        backend.abort,
        "aborted" if rank() == 2 else "rank 2|rank [01] has left|[Cc]onnection|aborted",
        rank() == 2,
    )


@fault()
def stopped() -> None:
    def stop() -> None:
        with subprocess.Popen(["sh", "-c", f"sleep {WAIT + 4}; kill -CONT {os.getpid()}"]):
            os.kill(os.getpid(), signal.SIGSTOP)

    group = groups.pop()
    amid(group, stop, "" if rank() == 2 else r"rank 2 \(process \d+\) is stopped", rank() == 2)


@fault()
def killed() -> None:
    """Must be the last case: other ranks remain."""

    def kill() -> None:
        write({**said, "killed": ""})
        os.kill(os.getpid(), signal.SIGKILL)

    amid(groups.pop(), kill, r"rank 2 \(process \d+\) has ended", rank() == 2)


def run_faults() -> None:
    begin()
    for case in reversed(FAULTS):  # a rank's end is told at once, whatever the timeout
        groups.append(dist.new_group(timeout=timedelta(seconds=20 * WAIT if case == "killed" else WAIT)))
    for name, function in FAULTS.items():
        try:
            function()
            said[name] = ""
        except BaseException:
            said[name] = traceback.format_exc()
        write(said)
    os._exit(0)  # rank 2 is gone


# --- the processes ---

STAGED = (("OPENXPU_MEMORY", "buffer"),)


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.extended)])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, number: int) -> None:
    check(name, results(__file__, number, "cases"))


@pytest.mark.extended
@pytest.mark.parametrize("name", CASES)
def test_staged_case(name: str) -> None:
    check(name, results(__file__, 2, "cases", STAGED))


@pytest.mark.extended
@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str) -> None:
    check(name, results(__file__, 3, "faults"))


if __name__ == "__main__":
    if kind() == "faults":
        run_faults()
    else:
        run(CASES)
