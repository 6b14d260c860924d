"""Collectives, sends and barriers that a graph does again: two and four processes run all cases."""

from __future__ import annotations

import contextlib
import os
import time

import openxpu  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from collectives import inputs, reduced, same, wait
from ranks import Cases, check, entering, rank, results, run

CASES: Cases = {}
case = entering(CASES)


def is_staged() -> bool:
    return os.environ.get("OPENXPU_MEMORY") == "buffer"


@case("at_once", "async")
def captured(name: str) -> None:
    """A graph does its collectives in each replay; where tensors are copied it refuses them, and all goes on."""
    shape = (4 * dist.get_world_size(), 3)
    x, whole = (torch.zeros(shape, device="xpu") for _ in range(2))
    part, result = torch.zeros(4, 3, device="xpu"), torch.zeros(shape, device="xpu")
    is_async = name == "async"

    def step() -> None:
        y = x * 2
        wait(dist.all_reduce(y, async_op=is_async), is_async)
        wait(dist.reduce_scatter_tensor(part, y, dist.ReduceOp.AVG, async_op=is_async), is_async)
        wait(dist.all_gather_into_tensor(whole, part, async_op=is_async), is_async)
        result.copy_(whole + 1)

    graph = torch.xpu.XPUGraph()
    if is_staged():
        with (
            pytest.raises(RuntimeError, match="stream is capturing: xccl:all_reduce"),
            torch.xpu.graph(graph),
        ):
            step()
        graph = None
    else:
        with torch.xpu.graph(graph):
            step()
    for seed in (1, 2, 3):
        ranks = inputs(shape, torch.float32, seed)
        x.copy_(ranks[rank()])
        if graph:
            graph.replay()
        else:
            step()
        same(result, reduced(ranks, "SUM") * 2 + 1)


@case("in_turn", "together")
def sends(name: str) -> None:
    """What a replay sends is what was there then, although the graph goes on and writes there again."""
    other = rank() ^ 1
    x, sent, taken = (torch.zeros(5000, device="xpu") for _ in range(3))

    def step() -> None:
        sent.copy_(x * 2)
        if name == "together":  # receives first, on all ranks
            pair = [dist.P2POp(dist.irecv, taken, other), dist.P2POp(dist.isend, sent, other)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()
        elif rank() < other:
            dist.send(sent, other)
            sent.zero_()
            dist.recv(taken, other)
        else:
            dist.recv(taken, other)
            dist.send(sent, other)
        sent.zero_()
        taken.add_(1)

    graph = torch.xpu.XPUGraph()
    if is_staged():
        refused = pytest.raises(RuntimeError, match="stream is capturing: xccl:(send|recv), on this device")
        with refused, torch.xpu.graph(graph):
            step()
        return
    with torch.xpu.graph(graph):
        step()
    for seed in (1, 2, 3):
        ranks = inputs((5000,), torch.float32, seed)
        x.copy_(ranks[rank()])
        graph.replay()
        same(taken, ranks[other] * 2 + 1)


@case()
def barriers() -> None:
    group = dist.new_group(backend="xccl")  # in a group with Gloo, barriers would use Gloo
    x = torch.zeros(3, device="xpu")
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        x.add_(1)
        dist.barrier(group)
        x.add_(1)
    backend = group._get_backend(torch.device("xpu"))
    for turn in (1, 2):
        dist.barrier(group)
        before, start = backend._get_sequence_number_for_group(), time.monotonic()
        if rank() == 1:
            time.sleep(0.5)
        graph.replay()
        torch.xpu.synchronize()
        assert time.monotonic() - start > 0.45
        assert backend._get_sequence_number_for_group() == before + 1
        same(x, torch.full((3,), 2.0 * turn))


@case()
def failed_replay() -> None:
    """The replay's error says what failed."""
    group = dist.new_group()
    x = torch.zeros(3, device="xpu")
    graph = torch.xpu.XPUGraph()
    if is_staged():
        return
    with torch.xpu.graph(graph):
        dist.all_reduce(x, group=group)
    graph.replay()
    group._get_backend(torch.device("xpu")).abort()
    with pytest.raises(RuntimeError, match="this process group was given up: it was aborted"):
        graph.replay()
    graph.reset()
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group(group)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("settings", [(), (("OPENXPU_MEMORY", "buffer"),)], ids=["in_place", "staged"])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, settings: tuple[tuple[str, str], ...], ranks: int) -> None:
    check(name, results(__file__, ranks, "cases", settings))


if __name__ == "__main__":
    run(CASES)
