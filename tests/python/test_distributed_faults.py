"""Collectives that don't fit together, ranks that are late, stopped or killed: three processes run all cases.

A fault must be an error on all ranks, within the group's timeout and 5 s, that names a rank and the collective.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

import openxpu  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from collectives import same
from ranks import Cases, begin, by_mpi, check, entering, rank, results, write

FAULTS: Cases = {}
fault = entering(FAULTS)
WAIT = 2  # seconds


def fails(collective: Callable[[], object], message: str) -> None:
    """Fail unless the collective raises an error with this message in time."""
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=f"(?s){message}"):
        collective()
    assert time.monotonic() - started < WAIT + 5


groups: list[dist.ProcessGroup] = []  # groups without a fault so far
said: dict[str, str] = {}  # messages of each fault so far


def waiting_group() -> dist.ProcessGroup:
    """Return a new group for this fault; all ranks start together."""
    dist.all_reduce(torch.zeros(1))
    return groups.pop()


def goes_on(group: dist.ProcessGroup) -> None:
    """Fail unless the group still works."""
    for n in (4, 1 << 19):
        x = torch.full((n,), float(rank()), device="xpu")
        dist.all_reduce(x, group=group)
        same(x, torch.full((n,), 3.0))


@fault("more", "less", "other_dtype")
def other_tensor(name: str) -> None:
    """Rank 2's tensor differs from the others'; Gloo would abort a rank whose tensor is too small."""
    group = waiting_group()
    sizes = {"more": (4, 1004), "less": (1004, 4), "other_dtype": (4, 4)}[name]
    x = torch.ones(sizes[rank() == 2], device="xpu")
    x = x.int() if rank() == 2 and name == "other_dtype" else x
    its = {"more": "Float .1004.", "less": "Float .4.", "other_dtype": "Int .4."}[name]
    fails(
        lambda: dist.all_reduce(x, group=group),
        rf"xccl:all_reduce of .* failed on rank {rank()}.*"
        + (r"rank [01] called xccl:all_reduce of Float" if rank() == 2 else rf"rank 2 called .*{its}"),
    )


@fault("broadcast", "reduce", "gather", "scatter")
def other_size_than_root(name: str) -> None:
    """All ranks get the error, whatever their role toward the root; then the group goes on."""
    group = waiting_group()
    n = 1004 if rank() == 2 else 4
    x, parts = torch.ones(n, device="xpu"), [torch.ones(n, device="xpu") for _ in range(3)]
    own = parts if rank() == 0 else None
    calls = {
        "broadcast": lambda: dist.broadcast(x, 0, group=group),
        "reduce": lambda: dist.reduce(x, 0, group=group),
        "gather": lambda: dist.gather(x, own, 0, group=group),
        "scatter": lambda: dist.scatter(x, own, 0, group=group),
    }
    other = r"rank [01] called .*Float .4." if rank() == 2 else r"rank 2 called .*Float .1004."
    fails(calls[name], rf"xccl:{name} of Float .{n}..*, root 0.*on rank {rank()}: .*{other}")
    goes_on(group)


@fault(
    *(
        f"{size}-{amount}-{source}"
        for size in ("less", "more")
        for amount in ("few", "many")
        for source in ("one", "any")
    )
)
def other_size_than_sent(name: str) -> None:
    """The receiver gets the error at once, for more or less data; the sender when its message was never received."""
    group = waiting_group()
    size, amount, source = name.split("-")
    room = 4 if amount == "few" else 100_000
    n = room // 2 if size == "less" else room * 2
    if rank() == 2:
        y = torch.zeros(room, device="xpu")
        fails(
            lambda: dist.recv(y, 0 if source == "one" else None, group=group, tag=5),
            rf"xccl:recv.* failed on rank 2: rank 0 sends {4 * n} bytes to rank 2, which has room for {4 * room}",
        )
        same(y, torch.zeros(room))
    if rank() == 0:
        sent = dist.isend(torch.ones(n, device="xpu"), 2, group=group, tag=5)
        if max(n, room) > 4096 and not (amount == "few"):
            fails(sent.wait, "xccl:send of Float.* failed on rank 0: .*rank 2 called xccl:recv")
    if amount == "few":
        goes_on(group)
        x = torch.full((1 << 16,), 7.0, device="xpu")  # the next message with that tag
        for n in (3, 1 << 16):
            if rank() == 0:
                dist.send(x[:n], 2, group=group, tag=5)
            elif rank() == 2:
                y = torch.zeros(n, device="xpu")
                dist.recv(y, 0, group=group, tag=5)
                same(y, torch.full((n,), 7.0))


@fault(
    *(
        f"{collective}-{size}-{amount}"
        for collective in ("all_to_all", "all_to_all_single", "all_gather", "reduce_scatter")
        for size in ("less", "more")
        for amount in ("few", "many")
    )
)
def sizes_of_a_pair(name: str) -> None:
    """Rank 2 sends rank 0 a size other than the one it expects: all ranks get the error, and the group goes on."""
    group = waiting_group()
    collective, size, amount = name.split("-")
    room = 4 if amount == "few" else 100_000
    sent = room // 2 if size == "less" else room * 2
    gives = [sent if (rank(), other) == (2, 0) else room for other in range(3)]
    whole, place = torch.ones(sum(gives), device="xpu"), torch.zeros(3 * room, device="xpu")
    parts, places = list(whole.split(gives)), list(place.split(room))
    calls = {
        "all_to_all": lambda: dist.all_to_all(places, parts, group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(place, whole, [room] * 3, gives, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter(places[0], parts, group=group),
        "all_gather": lambda: dist.all_gather(places, places[0], group=group),
    }
    if collective == "all_gather" and rank() == 2:  # rank 2 sends the same to rank 1
        places[2] = torch.ones(sent, device="xpu")
        calls["all_gather"] = lambda: dist.all_gather(places, places[2], group=group)
    fails(
        calls[collective],
        rf"xccl:{collective.removesuffix('_single')} of Float(, sum)? \(the group's collective number 1\) failed "
        rf"on rank {rank()}: rank 2 sends {4 * sent} bytes to rank [01], which has room for {4 * room}",
    )
    goes_on(group)


@fault("all_to_all", "all_gather")
def dtypes_of_a_pair(name: str) -> None:
    """The pair's dtypes differ, but not the number of bytes."""
    group = waiting_group()
    like = {"dtype": torch.int32 if rank() == 2 else torch.float32, "device": "xpu"}
    parts, places = ([torch.ones(n + 1, **like) for n in range(3)] for _ in range(2))
    if name == "all_to_all":
        parts = [torch.ones(rank() + 1, **like) for _ in range(3)]

        def call() -> None:
            dist.all_to_all(places, parts, group=group)
    else:

        def call() -> None:
            dist.all_gather(places, parts[rank()], group=group)

    other = "rank [01] called .* of Float" if rank() == 2 else "rank 2 called .* of Int"
    fails(call, f"{name}.*not all ranks called the same collective: {other}")
    goes_on(group)


SEEN = {  # element counts of the two sizes
    "all_reduce-straight": (8, 4),
    "all_reduce-ring": (1 << 19, 1 << 18),
    "all_gather": (4, 1 << 15),
    "reduce_scatter": (1 << 15, 4),
    "broadcast": (1000, 4),
    "reduce": (1000, 4),
    "gather": (1000, 4),
    "scatter": (1000, 4),
}


@fault(*(f"{name}-{size}" for name in SEEN for size in ("less", "more")))
def sizes_seen_before(name: str) -> None:
    """Both sizes were used before by all ranks; now rank 2 uses the other one."""
    group = waiting_group()
    collective, size = name.rsplit("-", 1)

    def call(n: int) -> None:
        x, whole = torch.ones(n, device="xpu"), torch.ones(3 * n, device="xpu")
        parts = list(whole.chunk(3))
        is_root = rank() == 0
        {
            "all_reduce": lambda: dist.all_reduce(x, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, x, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(x, whole, group=group),
            "broadcast": lambda: dist.broadcast(x, 0, group=group),
            "reduce": lambda: dist.reduce(x, 0, group=group),
            "gather": lambda: dist.gather(x, parts if is_root else None, 0, group=group),
            "scatter": lambda: dist.scatter(x, parts if is_root else None, 0, group=group),
        }[collective.split("-")[0]]()

    sizes = sorted(SEEN[collective], reverse=size == "less")  # of the other ranks, and of rank 2
    for _ in range(2):
        for n in (*sizes, sizes[0], sizes[1]):
            call(n)
    mine = sizes[rank() == 2]
    other = f"rank [01] called .*{sizes[0]}" if rank() == 2 else f"rank 2 called .*{sizes[1]}"
    fails(
        lambda: call(mine),
        rf"number 9\) failed on rank {rank()}: not all ranks called the same collective: {other}",
    )
    goes_on(group)


REFUSED = ("all_gather", "reduce_scatter", "all_to_all", "all_to_all_single", "all_gather_into_tensor")
REFUSED += (
    "reduce_scatter_tensor",
    "all_reduce",
    "large_all_reduce",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
)


@fault(*REFUSED)
def refused_by_one(name: str) -> None:
    """An error that only rank 2 can detect is raised on all ranks at once; then they are in step."""
    group = waiting_group()
    x = torch.ones(4, device="xpu")
    wrong = torch.ones(6, device="xpu") if rank() == 2 else x
    parts = [x.clone() for _ in range(3)]
    mixed = [*parts[:2], wrong]
    lists = torch._C._distributed_c10d  # the call itself: Python has checks of its own

    def broadcast(root: int) -> None:
        options = lists.BroadcastOptions()
        options.rootRank = root
        group.broadcast([x], options).wait()

    def gather(mine: torch.Tensor, all_of_them: list[torch.Tensor]) -> None:
        options = lists.GatherOptions()
        options.rootRank = 0
        group.gather([[]] if rank() == 1 else [all_of_them], [mine], options).wait()

    def scatter(mine: torch.Tensor, all_of_them: list[torch.Tensor]) -> None:
        options = lists.ScatterOptions()
        options.rootRank = 0
        group.scatter([mine], [[]] if rank() == 1 else [all_of_them], options).wait()

    whole = torch.ones(12, device="xpu")
    calls = {
        "all_gather": lambda: dist.all_gather(parts, wrong, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter(x, mixed, group=group),
        "all_to_all": lambda: dist.all_to_all(parts, mixed, group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(
            whole, whole.clone(), None, [4, 4, 5 if rank() == 2 else 4], group=group
        ),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, wrong, group=group),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(wrong, whole, group=group),
        "all_reduce": lambda: dist.all_reduce(x.to(torch.int16) if rank() == 2 else x, group=group),
        "large_all_reduce": lambda: dist.all_reduce(
            torch.ones(1 << 19, dtype=torch.int16 if rank() == 2 else torch.float32, device="xpu"),
            group=group,
        ),
        "broadcast": lambda: broadcast(3 if rank() == 2 else 0),
        "reduce": lambda: dist.reduce(x.to(torch.int16) if rank() == 2 else x, 0, group=group),
        "gather": lambda: gather(x if rank() == 0 else wrong, parts if rank() == 0 else parts[:1]),
        "scatter": lambda: scatter(x if rank() == 0 else wrong, parts if rank() == 0 else parts[:1]),
    }
    if rank() == 2:
        with pytest.raises((ValueError, TypeError, RuntimeError)) as raised:
            calls[name]()
        assert "rank 2 refused" not in str(raised.value)
    else:
        fails(calls[name], rf"number 1\) failed on rank {rank()}: rank 2 refused: xccl:\w+: ")
    goes_on(group)


@fault("all_reduce", "all_gather", "broadcast", "reduce_scatter", "float8", "sparse", "half")
def nan(name: str) -> None:
    """With the NaN check all ranks get the error; without it, or if only an output held NaN before, there is none."""
    os.environ["TORCH_XCCL_NAN_CHECK"] = "1"
    group = dist.new_group(timeout=timedelta(seconds=WAIT))
    del os.environ["TORCH_XCCL_NAN_CHECK"]
    unlooked = waiting_group()
    dtype = {"float8": torch.float8_e5m2, "half": torch.float16}.get(name, torch.float32)
    good, bad = torch.ones(6), torch.tensor([1, 2, 3, 4, 5, float("nan")])
    x = (bad if rank() == (0 if name == "broadcast" else 2) else good).to(dtype)
    x = (x.to_sparse() if name == "sparse" else x).to("xpu")
    calls = {
        "all_gather": lambda group: dist.all_gather([good.to("xpu") for _ in range(3)], x, group=group),
        "broadcast": lambda group: dist.broadcast(x.clone(), 0, group=group),
        "float8": lambda group: dist.broadcast(x.clone(), 2, group=group),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(x[:2].clone(), x, group=group),
    }
    call = calls.get(name, lambda group: dist.all_reduce(x.clone(), group=group))
    call(unlooked)
    if x.isnan().any() if name != "sparse" else rank() == 2:
        fails(lambda: call(group), r"xccl:\w+: found NaN in \w+ \[6\] \(TORCH_XCCL_NAN_CHECK\)")
    else:
        fails(lambda: call(group), r"rank [02] refused: xccl:\w+: found NaN")
    if name != "sparse":
        if name == "broadcast":  # what is there before it comes is nobody's concern
            y = (bad if rank() == 1 else good).to("xpu")
            dist.broadcast(y, 0, group=group)
            same(y, good)
        goes_on(group)


@fault("dtype", "refused")
def sparse(name: str) -> None:
    """Gloo's own, which begins when all ranks have said that they do the same; then the group is at its end."""
    group = waiting_group()
    dtype = torch.float32 if rank() != 2 else torch.float64 if name == "dtype" else torch.int16
    x = torch.sparse_coo_tensor([[0, rank() + 1]], [1.0, 2.0], (6,)).to(dtype).to("xpu")
    if rank() == 2 and name == "refused":
        with pytest.raises(TypeError):
            dist.all_reduce(x, group=group)
        return
    its = "rank 2 refused" if name == "refused" else "rank [01] called" if rank() == 2 else "rank 2 called"
    fails(lambda: dist.all_reduce(x, group=group), rf"failed on rank {rank()}: .*{its}")
    fails(lambda: dist.all_reduce(torch.ones(4, device="xpu"), group=group), "ranks are out of step")


@fault()
def other_collective() -> None:
    group = waiting_group()
    x = torch.ones(4, device="xpu")
    if rank() == 2:
        parts = [torch.empty_like(x) for _ in range(3)]
        fails(lambda: dist.all_gather(parts, x, group=group), "all_gather.*rank [01] called .*all_reduce")
    else:
        fails(lambda: dist.all_reduce(x, group=group), "all_reduce.*rank 2 called .*all_gather")


@fault()
def aborted() -> None:
    group = waiting_group()
    x = torch.ones(4, device="xpu")
    dist.all_reduce(x, group=group)
    backend = group._get_backend(torch.device("xpu"))
    if rank() == 0:
        work = dist.all_reduce(x, group=group, async_op=True)
        threading.Timer(0.3, backend.abort).start()
        fails(work.wait, "all_reduce.*on rank 0: it was aborted")
        fails(lambda: dist.all_reduce(x, group=group), "given up: it was aborted")


@fault()
def rank_that_is_late() -> None:
    group = waiting_group()
    x = torch.ones(4, device="xpu")
    if rank() == 2:
        time.sleep(WAIT + 4)
    else:
        fails(lambda: dist.all_reduce(x, group=group), "all_reduce.*number 1.*rank 2 is running")


@fault()
def rank_that_is_stopped() -> None:
    group = waiting_group()
    x = torch.ones(4, device="xpu")
    dist.all_reduce(x, group=group)
    if rank() == 2:
        with subprocess.Popen(["sh", "-c", f"sleep {WAIT + 5}; kill -CONT {os.getpid()}"]):
            os.kill(os.getpid(), signal.SIGSTOP)
    else:
        fails(lambda: dist.all_reduce(x, group=group), r"number 2.*rank 2 \(process \d+\) is stopped")


@fault()
def rank_that_is_killed() -> None:
    """Must be the last case: other ranks remain."""
    group = waiting_group()
    x = torch.ones(4, device="xpu")
    dist.all_reduce(x, group=group)
    if rank() == 2:
        write({**said, "rank_that_is_killed": ""})
        os.kill(os.getpid(), signal.SIGKILL)
    fails(lambda: dist.all_reduce(x, group=group), r"number 2.*rank 2 \(process \d+\) has ended")


def run_faults() -> None:
    """Run the faults one after the other; after a fault in one group the next starts in another."""
    begin()
    groups.extend(dist.new_group(timeout=timedelta(seconds=WAIT)) for _ in FAULTS)
    for name, function in FAULTS.items():
        if by_mpi() and name == "rank_that_is_killed":
            break  # its launcher ends all of them
        try:
            function()
            said[name] = ""
        except BaseException:
            said[name] = traceback.format_exc()
        write(said)
    if not by_mpi():
        os._exit(0)  # rank 2 is gone


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str) -> None:
    check(name, results(__file__, 3, "faults"))


if __name__ == "__main__":
    run_faults()
