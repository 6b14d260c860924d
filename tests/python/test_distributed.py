"""Collectives and sends of xpu tensors: two processes run all cases of a group, and each case is a test.

Those of the matrix (collectives, dtypes, reductions, layouts, at once and later) are also run by four. What goes
wrong is in test_distributed_faults.py, graphs are in test_distributed_graphs.py.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import re
import sys
import time
from datetime import timedelta

import openxpu  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from collectives import MOVED, NARROW, NUMBERS, PAIRS, REDUCTIONS, given, inputs, reduced, same, wait
from processes import ROOT, run_python
from ranks import Cases, by_mpi, check, entering, environment, kind, own_rank, rank, results, run
from torch import Tensor

RANKS = int(sys.argv[4]) if __name__ == "__main__" else 2
CASES: Cases = {}
case = entering(CASES)
MATRIX: Cases = {}
matrix = entering(CASES, MATRIX)


# --- collectives ---


@matrix(*NUMBERS)
def all_reduce(name: str) -> None:
    dtype = getattr(torch, name)
    for operation in REDUCTIONS:
        reduction = getattr(dist.ReduceOp, operation)
        for is_async in (False, True):
            ranks = inputs((3, 11), dtype)
            x = ranks[rank()].to("xpu")
            if operation.startswith("B") and dtype.is_floating_point:  # as on the CPU
                with pytest.raises(RuntimeError, match=f"{operation} with non-integral"):
                    dist.all_reduce(x, reduction)
                continue
            wait(dist.all_reduce(x, reduction, async_op=is_async), is_async)
            same(x, reduced(ranks, operation))
            if operation != "AVG":  # Gloo has none
                on_cpu = ranks[rank()].clone()
                dist.all_reduce(on_cpu, reduction)
                same(x, on_cpu)


@matrix(*NUMBERS)
def reduce(name: str) -> None:
    ranks = inputs((33,), getattr(torch, name))
    for root in range(RANKS):
        for operation in ("SUM", "AVG", "MAX"):
            x = ranks[rank()].to("xpu")
            dist.reduce(x, root, getattr(dist.ReduceOp, operation))
            if rank() == root:
                same(x, reduced(ranks, operation))


@matrix(*NUMBERS)
def reduce_scatter(name: str) -> None:
    dtype = getattr(torch, name)
    for operation in ("SUM", "AVG", "MIN"):
        reduction = getattr(dist.ReduceOp, operation)
        for is_async in (False, True):
            ranks = inputs((RANKS * 6, 5), dtype)
            want = reduced(ranks, operation).chunk(RANKS)[rank()]
            x = ranks[rank()].to("xpu")
            y = torch.empty_like(want, device="xpu")
            wait(dist.reduce_scatter_tensor(y, x, reduction, async_op=is_async), is_async)
            same(y, want)
            same(x, ranks[rank()])  # unchanged
            y = torch.empty_like(want, device="xpu")
            wait(dist.reduce_scatter(y, list(x.chunk(RANKS)), reduction, async_op=is_async), is_async)
            same(y, want)


@matrix(*PAIRS)
def complex_sums(name: str) -> None:
    """Sums, averages and scaled sums of complex numbers; as on CUDA there is no product, minimum or maximum."""
    dtype = getattr(torch, name)
    half = torch.distributed._make_nccl_premul_sum(0.5)
    scales = {"SUM": 1.0, "AVG": 1 / RANKS, "PREMUL_SUM": 0.5}
    for operation, scale in scales.items():
        reduction = half if operation == "PREMUL_SUM" else getattr(dist.ReduceOp, operation)
        for is_async in (False, True):
            ranks = inputs((RANKS * 2, 5), dtype)
            want = (torch.stack([x.to(torch.complex128) for x in ranks]).sum(0) * scale).to(dtype)
            options = torch._C._distributed_c10d.AllreduceOptions()  # dist.all_reduce would convert to pairs
            options.reduceOp, options.asyncOp = reduction, is_async
            x = ranks[rank()].to("xpu")
            dist.group.WORLD.allreduce([x], options).wait()
            same(x, want)
            x = ranks[rank()].to("xpu")
            wait(dist.reduce(x, 1, reduction, async_op=is_async), is_async)
            if rank() == 1:
                same(x, want)
            x, y = ranks[rank()].to("xpu"), torch.empty_like(want.chunk(RANKS)[0], device="xpu")
            wait(dist.reduce_scatter_tensor(y, x, reduction, async_op=is_async), is_async)
            same(y, want.chunk(RANKS)[rank()])
            wait(dist.reduce_scatter(y, list(x.chunk(RANKS)), reduction, async_op=is_async), is_async)
            same(y, want.chunk(RANKS)[rank()])
    for operation in ("PRODUCT", "MIN", "MAX"):
        reduction = getattr(dist.ReduceOp, operation)
        with pytest.raises((ValueError, RuntimeError), match="does not support.*on complex tensors"):
            dist.all_reduce(x, reduction)
        with pytest.raises(RuntimeError, match=f"does not support {operation} on complex tensors"):
            dist.reduce_scatter_tensor(y, x, reduction)


@matrix(*NARROW)
def float8_reductions(name: str) -> None:
    """float8 reductions accumulate in fp32 and round once."""
    dtype = getattr(torch, name)
    generator = torch.Generator().manual_seed(3)
    ranks = [torch.randn((RANKS * 3, 7), generator=generator).to(dtype) for _ in range(RANKS)]
    wide = torch.stack([x.float() for x in ranks])
    wanted = {
        "SUM": wide.sum(0),
        "AVG": wide.sum(0) / RANKS,
        "PRODUCT": wide.prod(0),
        "MIN": wide.amin(0),
        "MAX": wide.amax(0),
    }
    for operation, wide_result in wanted.items():
        reduction, want = getattr(dist.ReduceOp, operation), wide_result.to(dtype)
        for is_async in (False, True):
            x = ranks[rank()].to("xpu")
            wait(dist.all_reduce(x, reduction, async_op=is_async), is_async)
            same(x, want)
            x = ranks[rank()].to("xpu")
            y = torch.empty_like(want.chunk(RANKS)[0], device="xpu")
            wait(dist.reduce_scatter_tensor(y, x, reduction, async_op=is_async), is_async)
            same(y, want.chunk(RANKS)[rank()])
            wait(dist.reduce(x, 0, reduction, async_op=is_async), is_async)
            if rank() == 0:
                same(x, want)
    with pytest.raises(TypeError, match="PREMUL_SUM"):
        dist.all_reduce(x, torch.distributed._make_nccl_premul_sum(0.5))


@matrix("int16", "bool", "uint16", "uint32", "uint64", "float8_e8m0fnu")
def refused_reduction(name: str) -> None:
    """Reductions that CUDA refuses are refused with its errors."""
    x = given((8,), getattr(torch, name), rank()).to("xpu")
    if name == "bool":
        ranks = inputs((8,), torch.bool)
        any_of, all_of = torch.stack(ranks).any(0), torch.stack(ranks).all(0)
        wanted = {"SUM": any_of, "MAX": any_of, "PRODUCT": all_of, "MIN": all_of}
        for operation, want in wanted.items():
            x = ranks[rank()].to("xpu")
            dist.all_reduce(x, getattr(dist.ReduceOp, operation))
            same(x, want)
        with pytest.raises(TypeError, match="Cannot use ReduceOp.AVG with boolean inputs"):
            dist.all_reduce(x, dist.ReduceOp.AVG)
        return
    error = (
        (RuntimeError, "Unsupported Float8")
        if name.startswith("float8")
        else (TypeError, "not supported for XCCL")
    )
    with pytest.raises(error[0], match=f"all_reduce.*{error[1]}"):
        dist.all_reduce(x)
    with pytest.raises(error[0], match=f"reduce_scatter.*{error[1]}"):
        dist.reduce_scatter_tensor(torch.empty_like(x[: 8 // RANKS]), x)


@matrix("float16", "bfloat16", "complex32")
def averages_of_large_numbers(name: str) -> None:
    """The average is finite where the sum overflows, with the direct exchange and with Gloo's ring."""
    dtype = getattr(torch, name)
    for length in (24, 3 << 19):
        want = torch.full((length,), 2.0**15, dtype=dtype)
        for is_async in (False, True):
            x = want.to("xpu")
            options = torch._C._distributed_c10d.AllreduceOptions()  # dist.all_reduce gives pairs itself
            options.reduceOp, options.asyncOp = dist.ReduceOp(dist.ReduceOp.AVG), is_async
            dist.group.WORLD.allreduce([x], options).wait()
            same(x, want)
            x = want.to("xpu")
            y = torch.empty(length // RANKS, dtype=dtype, device="xpu")
            wait(dist.reduce_scatter_tensor(y, x, dist.ReduceOp.AVG, async_op=is_async), is_async)
            same(y, want[: length // RANKS])
            wait(dist.reduce(x, 1, dist.ReduceOp.AVG, async_op=is_async), is_async)
            if rank() == 1:
                same(x, want)


@matrix("float32", "bfloat16", "int64")
def scattered_unevenly(name: str) -> None:
    """reduce_scatter of a list whose tensors differ in size between ranks; one rank's is empty."""
    dtype = getattr(torch, name)
    parts = [[given((3 * q, 2), dtype, 10 * r + q) for q in range(RANKS)] for r in range(RANKS)]
    for is_async in (False, True):
        y = torch.empty((3 * rank(), 2), dtype=dtype, device="xpu")
        gives = [part.to("xpu") for part in parts[rank()]]
        wait(dist.reduce_scatter(y, gives, async_op=is_async), is_async)
        same(y, reduced([parts[r][rank()] for r in range(RANKS)], "SUM"))
    with pytest.raises(ValueError, match="input for itself"):
        dist.reduce_scatter(torch.empty((3 * RANKS, 2), dtype=dtype, device="xpu"), gives)


@matrix("float32", "bfloat16")
def in_one_order(name: str) -> None:
    """Small sums are bitwise equal on all ranks, and rounded once."""
    dtype = getattr(torch, name)
    generator = torch.Generator().manual_seed(5)
    ranks = [torch.randn(8000, generator=generator).to(dtype) for _ in range(RANKS)]
    x = ranks[rank()].to("xpu")
    dist.all_reduce(x)
    want = ranks[0].float()
    for each in ranks[1:]:
        want = want + each.float()
    same(x, want.to(dtype))


@matrix(*NUMBERS, *PAIRS, *NARROW, *MOVED)
def moving(name: str) -> None:
    """Every collective without a reduction, of any dtype."""
    dtype = getattr(torch, name)
    ranks = inputs((4, 3), dtype)
    mine = ranks[rank()]
    for is_async in (False, True):
        x = mine.to("xpu")
        wait(dist.broadcast(x, 1, async_op=is_async), is_async)
        same(x, ranks[1])

        x = mine.to("xpu")
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        wait(dist.all_gather(parts, x, async_op=is_async), is_async)
        for part, want in zip(parts, ranks, strict=True):
            same(part, want)

        joined = torch.empty((RANKS * 4, 3), dtype=dtype, device="xpu")
        wait(dist.all_gather_into_tensor(joined, x, async_op=is_async), is_async)
        same(joined, torch.cat(ranks))
        stacked = torch.empty((RANKS, 4, 3), dtype=dtype, device="xpu")
        wait(dist.all_gather_into_tensor(stacked, x, async_op=is_async), is_async)
        same(stacked, torch.stack(ranks))

        parts = [torch.empty_like(x) for _ in range(RANKS)] if rank() == 0 else []
        wait(dist.gather(x, parts or None, 0, async_op=is_async), is_async)
        for part, want in zip(parts, ranks, strict=False):
            same(part, want)

        y = torch.empty_like(x)
        parts = [r.to("xpu") for r in ranks] if rank() == 1 else []
        wait(dist.scatter(y, parts or None, 1, async_op=is_async), is_async)
        same(y, mine)

        received = [torch.empty_like(x[: 4 // RANKS]) for _ in range(RANKS)]
        wait(dist.all_to_all(received, list(x.chunk(RANKS)), async_op=is_async), is_async)
        for part, other in zip(received, ranks, strict=True):
            same(part, other.chunk(RANKS)[rank()])

        y = torch.empty_like(x)
        wait(dist.all_to_all_single(y, x, async_op=is_async), is_async)
        same(y, torch.cat([other.chunk(RANKS)[rank()] for other in ranks]))


@matrix(*NUMBERS, *PAIRS, *NARROW, *MOVED)
def point_to_point(name: str) -> None:
    ranks = inputs((7,), getattr(torch, name))
    x = ranks[rank()].to("xpu")
    other = rank() ^ 1
    y = torch.empty_like(x)
    if rank() < other:
        dist.send(x, other)
        dist.recv(y, other)
    else:
        dist.recv(y, other)
        dist.send(x, other)
    same(y, ranks[other])
    y = torch.empty_like(x)
    pair = [dist.P2POp(dist.irecv, y, other), dist.P2POp(dist.isend, x, other)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    same(y, ranks[other])


@case()
def uneven_all_to_all() -> None:
    sent = [[4, 12], [8, 2]]
    for dtype in (torch.float32, torch.int16):
        ranks = [given((sum(sent[r]), 3), dtype, r) for r in range(RANKS)]
        taken = [sent[r][rank()] for r in range(RANKS)]
        y = torch.empty((sum(taken), 3), dtype=dtype, device="xpu")
        dist.all_to_all_single(y, ranks[rank()].to("xpu"), taken, sent[rank()])
        same(y, torch.cat([ranks[r].split(sent[r])[rank()] for r in range(RANKS)]))


@matrix("float32", "bfloat16", "int16", "complex64")
def lists_of_different_sizes(name: str) -> None:
    """Rank r sends rank q r + 2 q rows, but rank 0 sends itself 2: with two ranks one list has equal sizes."""
    dtype = getattr(torch, name)
    sizes = [[r + 2 * q if r + q else 2 for q in range(RANKS)] for r in range(RANKS)]
    for is_async in (False, True):
        parts = [[given((n, 3), dtype, 10 * r + n) for n in sizes[r]] for r in range(RANKS)]
        received = [torch.zeros((sizes[r][rank()], 3), dtype=dtype, device="xpu") for r in range(RANKS)]
        gives = [part.to("xpu") for part in parts[rank()]]
        wait(dist.all_to_all(received, gives, async_op=is_async), is_async)
        for r in range(RANKS):
            same(received[r], parts[r][rank()])
        ones = [given((r + 1, 3), dtype, r) for r in range(RANKS)]
        received = [torch.zeros((r + 1, 3), dtype=dtype, device="xpu") for r in range(RANKS)]
        wait(dist.all_gather(received, ones[rank()].to("xpu"), async_op=is_async), is_async)
        for got, want in zip(received, ones, strict=True):
            same(got, want)
    with pytest.raises(ValueError, match="one for each rank"):
        dist.all_to_all(received[1:], gives)
    with pytest.raises(ValueError, match="output for itself"):
        dist.all_gather(received, torch.zeros((RANKS + 1, 3), dtype=dtype, device="xpu"))


@case()
def receive_from_anyone() -> None:
    ranks = inputs((5,), torch.float32)
    if rank() == 0:
        dist.send(ranks[0].to("xpu"), 1, tag=3)
    else:
        y = torch.empty(5, device="xpu")
        assert dist.recv(y, tag=3) == 0
        same(y, ranks[0])


@case()
def polled_receive() -> None:
    y = torch.empty(5, device="xpu")
    work = dist.irecv(y, 1 - rank())
    sent = dist.isend(torch.full((5,), float(rank()), device="xpu"), 1 - rank())
    deadline = time.monotonic() + 20
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    work.wait()
    sent.wait()
    same(y, torch.full((5,), 1.0 - rank()))


@matrix("transposed", "strided", "offset", "empty", "number", "expanded_source")
def layout(name: str) -> None:
    ranks = inputs((8, 8), torch.float32)

    def view(x: Tensor) -> Tensor:
        return {
            "transposed": lambda: x.t(),
            "strided": lambda: x[:, ::3],
            "offset": lambda: x[3:5],
            "empty": lambda: x[:0],
            "number": lambda: x[2, 2],
            "expanded_source": lambda: x[:1].expand(8, 8),
        }[name]()

    base = ranks[rank()].to("xpu")
    x = view(base)
    if name == "expanded_source":  # read only
        joined = torch.empty((RANKS * 8, 8), device="xpu")
        dist.all_gather_into_tensor(joined, x)
        return same(joined, torch.cat([view(r) for r in ranks]))
    dist.all_reduce(x)
    want = ranks[rank()].clone()
    view(want).copy_(reduced([view(r) for r in ranks], "SUM"))
    same(base, want)  # the gaps between elements are unchanged
    other = view(base)
    dist.broadcast(other, 1)
    parts = [view(torch.zeros(8, 8, device="xpu")) for _ in range(RANKS)]
    dist.all_gather(parts, other)
    sums = reduced([view(r) for r in ranks], "SUM")
    for part in parts:
        same(part, sums)
    y = view(torch.zeros(8, 8, device="xpu"))
    if rank() == 1:
        dist.send(other, 0)
    elif rank() == 0:
        dist.recv(y, 1)
        same(y, sums)
    return None


@matrix()
def coalesced() -> None:
    lists = [inputs((n,), torch.float32, n) for n in (3, 5, 7)]
    mine = [r[rank()].to("xpu") for r in lists]
    with dist._coalescing_manager(device=torch.device("xpu"), async_ops=True) as manager:
        for x in mine:
            dist.all_reduce(x, dist.ReduceOp.AVG)
    manager.wait()
    for x, ranks in zip(mine, lists, strict=True):
        same(x, reduced(ranks, "AVG"))
    joined = [torch.empty(RANKS * r[0].numel(), device="xpu") for r in lists]
    with dist._coalescing_manager(device=torch.device("xpu")):
        for y, ranks in zip(joined, lists, strict=True):
            dist.all_gather_into_tensor(y, ranks[rank()].to("xpu"))
    for y, ranks in zip(joined, lists, strict=True):
        same(y, torch.cat(ranks))
    lists = [inputs((RANKS * n,), torch.float32, n) for n in (3, 5)]
    sums = [torch.empty(r[0].numel() // RANKS, device="xpu") for r in lists]
    with dist._coalescing_manager(device=torch.device("xpu")):
        for y, ranks in zip(sums, lists, strict=True):
            dist.reduce_scatter_tensor(y, ranks[rank()].to("xpu"))
    for y, ranks in zip(sums, lists, strict=True):
        same(y, reduced(ranks, "SUM").chunk(RANKS)[rank()])


@matrix("float32", "int64")
def in_pieces(name: str) -> None:
    """Tensors large enough to be copied in chunks, with a shorter last one."""
    ranks = inputs((2600 * 1024 + 13,), getattr(torch, name))
    mine, want = ranks[rank()], reduced(ranks, "SUM")
    x = mine.to("xpu")
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0] + 1)
    work.wait()
    same(x, want)
    same(future.wait(), want + 1)
    x = mine.to("xpu").view(1, -1)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    same(x, reduced(ranks, "MAX").view(1, -1))


@matrix()
def many_in_flight() -> None:
    lists = [inputs((1000,), torch.float32, n) for n in range(40)]
    mine = [r[rank()].to("xpu") for r in lists]
    works = [dist.all_reduce(x, async_op=True) for x in mine]
    for work in reversed(works):
        work.wait()
    for x, ranks in zip(mine, lists, strict=True):
        same(x, reduced(ranks, "SUM"))


@matrix("float32", "float16", "bfloat16", "float64")
def scaled_sum(name: str) -> None:
    """PREMUL_SUM: a factor before the sum, as a number or a tensor."""
    dtype = getattr(torch, name)
    ranks = inputs((4, 3), dtype)
    for factor in (0.5, torch.full((1,), 2.0, dtype=dtype, device="xpu")):
        reduction = torch.distributed._make_nccl_premul_sum(factor)
        scaled = [r * (factor if isinstance(factor, float) else 2) for r in ranks]
        x = ranks[rank()].to("xpu")
        dist.all_reduce(x, reduction)
        same(x, reduced(scaled, "SUM"))
        x = ranks[rank()].to("xpu")
        y = torch.empty_like(x[: 4 // RANKS])
        dist.reduce_scatter_tensor(y, x, reduction)
        same(y, reduced(scaled, "SUM").chunk(RANKS)[rank()])
        same(x, ranks[rank()])  # is left as it was
    with pytest.raises(RuntimeError, match="floating-point"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32, device="xpu"), reduction)


@matrix()
def memory_is_given_back() -> None:
    """The output of a collective is freed as soon as its owner drops it."""
    x = torch.ones(100_000, device="xpu")

    def gather() -> None:
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        dist.all_gather(parts, x)
        dist.reduce_scatter_tensor(parts[0], torch.cat(parts))

    gather()
    before = torch.xpu.memory_allocated()
    for _ in range(30):
        gather()
    deadline = time.monotonic() + 5
    # Gloo's thread may still hold the last one's
    while torch.xpu.memory_allocated() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert torch.xpu.memory_allocated() <= before


def goes_on(group: dist.ProcessGroup) -> None:
    """Fail unless the group still works."""
    for n in (4, 1 << 19, 5 << 20):
        x = torch.full((n,), rank() + 1.0, device="xpu")
        dist.all_reduce(x, group=group)
        same(x, torch.full((n,), 3.0))


@case()
def other_size_in_pieces() -> None:
    """Staged copies of 16 and 12 MiB have chunks of the same size: each chunk carries its position."""
    group = dist.new_group(timeout=timedelta(seconds=5))
    x = torch.ones((4 - rank()) << 20, device="xpu")
    with pytest.raises(RuntimeError, match=r"xccl:all_reduce of Float"):
        dist.all_reduce(x, group=group)
    goes_on(group)


@case()
def refused_in_pieces() -> None:
    """An error on one rank counts as one collective on all, however many chunks the others use."""
    group = dist.new_group(timeout=timedelta(seconds=20))
    for again in range(3):
        x = torch.ones((4 << 20) + 5 * again, dtype=torch.int16 if rank() else torch.float32, device="xpu")
        began = time.monotonic()
        works = [dist.all_reduce(x, group=group, async_op=True)] if not rank() else []
        with pytest.raises((TypeError, RuntimeError), match="number 1" if not again and works else None):
            works[0].wait() if works else dist.all_reduce(x, group=group)
        assert time.monotonic() - began < 10
        if works:
            with pytest.raises(RuntimeError, match="rank 1 refused"):
                works[0].get_future().wait()
        goes_on(group)


@case()
def sizes_of_as_many_elements() -> None:
    """Ranks' tensors may differ in shape if they have the same number of elements, as with NCCL and Gloo."""
    for sizes in ([(1, 7), (7,)], [(600, 500), (2, 150_000)], [(2, 2 << 20), (4 << 20,)]):
        x = torch.arange(math.prod(sizes[0]), dtype=torch.float32, device="xpu")
        expected = x.cpu()
        x = x.view(sizes[rank()])
        whole = torch.empty((2, *sizes[rank()]), device="xpu")
        dist.all_gather_into_tensor(whole, x)
        same(whole.view(-1), torch.cat([expected, expected]))
        dist.broadcast(x, 1)
        dist.all_reduce(x)
        same(x.view(-1), expected * 2)
        y = torch.empty(sizes[rank()], device="xpu")
        dist.reduce_scatter_tensor(y, whole)
        same(y.view(-1), expected * 2)
        dist.reduce(x, 0)
        if not rank():
            same(x.view(-1), expected * 4)


@case()
def one_element_of_any_stride() -> None:
    x = torch.full((2,), rank() + 1, dtype=torch.int16, device="xpu")[::2]
    dist.broadcast(x, 1)
    assert x.tolist() == [2]


@case()
def destroyed_groups_leave_nothing() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    for _ in range(4):
        group = dist.new_group()
        x = torch.ones(1000, device="xpu")
        dist.all_reduce(x, group=group)
        dist.all_gather_into_tensor(torch.empty(2000, device="xpu"), x, group=group)
        torch.xpu.synchronize()
        dist.barrier()
        dist.destroy_process_group(group)
        del group
    gc.collect()
    assert threads() <= before + 3  # threads of one group may still be ending


@case()
def recorded() -> None:
    """The flight recorder names the call of the transport, e.g. of Gloo for a sparse tensor."""
    import torch._C._distributed_c10d as c10d

    dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (6,)).to("xpu"))
    names = {entry["profiling_name"] for entry in json.loads(c10d._dump_fr_trace_json())["entries"]}
    assert ("xccl:all_reduce" if by_mpi() else "gloo:sparse_all_reduce") in names, names


@case()
def futures() -> None:
    ranks = inputs((50,), torch.float32)
    x = ranks[rank()].to("xpu")
    future = dist.all_reduce(x, async_op=True).get_future()
    assert future.done()  # as NCCL's: callbacks run at once, in one order on all ranks
    nested = future.then(
        lambda done: dist.all_reduce(done.value()[0] * 2, async_op=True).get_future().wait()[0]
    )
    same(nested.wait(), reduced(ranks, "SUM") * 2 * RANKS)
    y = torch.empty_like(x)
    works = [dist.irecv(y, 1 - rank()), dist.isend(x, 1 - rank())]
    for work in works:
        work.get_future().wait()
    same(y, reduced(ranks, "SUM"))


@case()
def on_a_stream() -> None:
    stream = torch.xpu.Stream()
    with torch.xpu.stream(stream):
        x = torch.ones(1 << 20, device="xpu") * (rank() + 1)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        y = x + 1
    torch.xpu.current_stream().wait_stream(stream)
    same(y, torch.full((1 << 20,), 4.0))


@case()
def sparse() -> None:
    ranks = [torch.sparse_coo_tensor([[0, r + 1]], [1.0, 2.0], (6,)) for r in range(RANKS)]
    x = ranks[rank()].to("xpu")
    dist.all_reduce(x)
    same(x.to_dense(), ranks[0].to_dense() + ranks[1].to_dense())


@case()
def objects() -> None:
    box = [{"a": torch.full((2,), 5.0, device="xpu")}, 3] if rank() == 0 else [None, None]
    dist.broadcast_object_list(box, 0, device=torch.device("xpu"))
    same(box[0]["a"], torch.full((2,), 5.0))
    assert box[1] == 3
    all_of_them: list[object] = [None] * RANKS
    dist.all_gather_object(all_of_them, (rank(), "x" * (rank() + 1)))
    assert all_of_them == [(0, "x"), (1, "xx")]
    taken: list[object] = [None]
    dist.scatter_object_list(taken, ["a", "b"] if rank() == 0 else [None, None], 0)
    assert taken == ["ab"[rank()]]


@case()
def barriers() -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    group = dist.new_group(backend="gloo")
    dist.monitored_barrier(group, timeout=timedelta(seconds=20))


@case("xccl", "xpu:gloo", "cpu:gloo,xpu:gloo", "default", "fake")
def names(name: str) -> None:
    assert dist.is_xccl_available()
    x = torch.full((3,), float(rank() + 1), device="xpu")
    if name == "fake":  # does not communicate
        importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend
        dist.all_reduce(x, group=dist.new_group(backend="fake"))
        return same(x, torch.full((3,), float(rank() + 1)))
    group = dist.new_group(backend=None if name == "default" else name)
    backend = group._get_backend(torch.device("xpu"))
    assert isinstance(backend, dist.ProcessGroupXCCL)
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(x, group=group)
    assert backend._get_sequence_number_for_group() == before + 1
    return same(x, torch.full((3,), 3.0))


@case()
def gloo_alone_refuses() -> None:
    group = dist.new_group(backend="gloo")
    with pytest.raises(RuntimeError, match="no backend for xpu tensors.*cpu:gloo,xpu:gloo"):
        dist.all_reduce(torch.ones(2, device="xpu"), group=group)
    with pytest.raises(RuntimeError, match="conjugate"):
        dist.broadcast(torch.ones(2, dtype=torch.complex64, device="xpu").conj(), 0)
    with pytest.raises((RuntimeError, ValueError), match="device|backend"):
        dist.all_gather([torch.ones(2) for _ in range(RANKS)], torch.ones(2, device="xpu"))


@matrix()
def wrong_arguments() -> None:
    """Wrong arguments raise CUDA's errors, on all ranks and before anything is sent."""
    x, whole = (torch.zeros(n, device="xpu") for n in (4, 4 * RANKS))
    with pytest.raises(ValueError, match="output tensor size must be equal to world_size times"):
        dist.all_gather_into_tensor(whole[1:], x)
    with pytest.raises(TypeError, match="output tensor must have the same type as input tensor"):
        dist.all_gather_into_tensor(whole.long(), x)
    with pytest.raises(ValueError, match="same size as output size times world size"):
        dist.reduce_scatter_tensor(x, whole[1:])
    with pytest.raises(TypeError, match="input tensor must be the same type as the output tensor"):
        dist.reduce_scatter_tensor(x.long(), whole)
    group = dist.group.WORLD
    for root in (-1, RANKS):
        options = torch._C._distributed_c10d.BroadcastOptions()
        options.rootRank = root
        with pytest.raises(ValueError, match="invalid root rank"):
            group.broadcast([x], options)


@case()
def sub_groups() -> None:
    alone = [dist.new_group([r]) for r in range(RANKS)]
    x = torch.full((2,), float(rank()), device="xpu")
    dist.all_reduce(x, group=alone[rank()])
    same(x, torch.full((2,), float(rank())))
    mesh = dist.init_device_mesh("xpu", (RANKS, 1), mesh_dim_names=("a", "b"))
    dist.all_reduce(x, group=mesh["b"].get_group())
    dist.all_reduce(x, group=mesh["a"].get_group())
    same(x, torch.full((2,), 1.0))


@case()
def split_of_unbound() -> None:
    with pytest.raises(RuntimeError, match="No device associated with the default pg"):
        dist.split_group(split_ranks=[[0], [1]])


@case()
def functional() -> None:
    import torch.distributed._functional_collectives as collectives

    ranks = inputs((8,), torch.float32)
    x = ranks[rank()].to("xpu")
    world = dist.group.WORLD
    same(collectives.wait_tensor(collectives.all_reduce(x, "avg", world)), reduced(ranks, "AVG"))
    same(collectives.wait_tensor(collectives.all_gather_tensor(x, 0, world)), torch.cat(ranks))
    half = reduced(ranks, "SUM").chunk(RANKS)[rank()]
    same(collectives.wait_tensor(collectives.reduce_scatter_tensor(x, "sum", 0, world)), half)
    leaf = x.clone().requires_grad_()
    weights = torch.arange(16.0, device="xpu")
    (collectives.all_gather_tensor_autograd(leaf, 0, world) * weights).sum().backward()
    same(leaf.grad, RANKS * torch.arange(16.0).chunk(RANKS)[rank()])


# --- groups split from one that is bound to a device ---

LATE: Cases = {}
late = entering(LATE)


@late("async", "awaited", "sent")
def index_out_of_range(name: str) -> None:
    """An error that the device detects in one rank's input is raised on all ranks, and the group goes on."""
    group = dist.new_group(timeout=timedelta(seconds=60))
    x = torch.ones(1 << 20, device="xpu")
    began = time.monotonic()
    if not rank():
        x = x[torch.full((1 << 20,), 1 << 21, device="xpu")]
    if name == "sent":
        with pytest.raises(
            RuntimeError if rank() else IndexError, match="rank 0 refused" if rank() else "2097152"
        ):
            dist.recv(x, 0, group) if rank() else dist.send(x, 1, group)
    else:
        with pytest.raises(
            RuntimeError if rank() else IndexError, match="rank 0 refused" if rank() else "2097152"
        ):
            work = dist.all_reduce(x, group=group, async_op=name == "async")
            work.wait()
    assert time.monotonic() - began < 30
    goes_on(group)


BOUND: Cases = {}
bound = entering(BOUND)


def sum_over(group: dist.ProcessGroup, device: str = "xpu") -> float:
    """Return the sum of the ranks' numbers, computed by the group."""
    x = torch.full((3,), float(rank()), device=device)
    dist.all_reduce(x, group=group)
    return x[0].item()


@bound()
def split() -> None:
    half = dist.split_group(split_ranks=[[0, 1], [2, 3]], timeout=timedelta(seconds=20))
    assert half is not None
    mine = [0, 1] if rank() < 2 else [2, 3]
    assert dist.get_process_group_ranks(half) == mine
    for device in ("xpu", "cpu"):
        assert sum_over(half, device) == sum(mine)
    for device in ("xpu", "cpu"):
        options = half._get_backend(torch.device(device)).options
        assert (options._timeout, options.global_ranks_in_group) == (timedelta(seconds=20), mine)
    # split a half, with ranks counted within it, and with a rank left out
    alone = dist.split_group(half, [[0], [1]])
    assert alone is not None and dist.get_process_group_ranks(alone) == [rank()]
    assert sum_over(alone) == rank()
    odd = dist.split_group(split_ranks=[[1, 3]], pg_options=dist.ProcessGroupXCCL.Options())
    assert (odd is not None) == (rank() in (1, 3))
    if odd is not None:
        assert sum_over(odd) == 4
    # although ranks 1 and 3 are now in more groups
    assert sum_over(dist.split_group(split_ranks=[[0, 1, 2, 3]])) == 6


@bound()
def subgroups_of_bound() -> None:
    pair, pairs = dist.new_subgroups(2)
    assert len(pairs) == 2
    assert sum_over(pair) == (1 if rank() < 2 else 5)
    outer = dist.new_group([0, 3])
    if rank() in (0, 3):
        assert sum_over(outer) == 3


@bound()
def mesh_of_bound() -> None:
    mesh = dist.init_device_mesh("xpu", (2, 2), mesh_dim_names=("a", "b"))
    assert sum_over(mesh["a"].get_group()) == (2 if rank() % 2 == 0 else 4)
    assert sum_over(mesh["b"].get_group()) == (1 if rank() < 2 else 5)
    assert sum_over(mesh._flatten().get_group()) == 6


@bound()
def shrunk() -> None:
    """A group continues without one of its ranks, which does not take part in the shrinking."""
    group = dist.new_group(
        [0, 1, 2, 3], timeout=timedelta(seconds=20), device_id=torch.device("xpu", rank() % 2)
    )
    if rank() != 1:
        less = dist.shrink_group([1], group=group)
        assert dist.get_process_group_ranks(less) == [0, 2, 3]
        x = torch.full((3,), float(rank()), device="xpu")
        dist.all_reduce(x, group=less)
        same(x, torch.full((3,), 5.0))


@bound()
def wrong_splits() -> None:
    for ranks in ([], [[]], [[0, 0]], [[0, 4]], [[-1, 0]]):
        with pytest.raises(ValueError):  # raised on all ranks
            dist.split_group(split_ranks=ranks)
    assert sum_over(dist.group.WORLD) == 6


# --- the processes ---

STAGED = ("OPENXPU_MEMORY", "buffer")


@pytest.mark.parametrize("settings", [(), (STAGED,)], ids=["in_place", "staged"])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    check(name, results(__file__, RANKS, "cases", settings))


@pytest.mark.parametrize("name", MATRIX)
def test_case_of_four(name: str) -> None:
    check(name, results(__file__, 4, "matrix"))


@pytest.mark.parametrize("name", LATE)
def test_late_fault(name: str) -> None:
    check(name, results(__file__, RANKS, "late", (STAGED, ("OPENXPU_DEFERRED_ERRORS", "1"))))


@pytest.mark.parametrize("name", BOUND)
def test_bound(name: str) -> None:
    check(name, results(__file__, 4, "bound", (("OPENXPU_DEVICE", "cpu,cpu"),)))


@pytest.mark.extended
def test_example() -> None:
    example = ROOT / "examples" / "python" / "distributed.py"
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(example)]
    # it counts what goes over the network
    done = run_python(*command, env=environment() | {"OPENXPU_SHARED_MEMORY": "0"}, timeout=240)
    rows = re.findall(r"│ (\S+) +│ +(\S+) │ +(\S+) │ +(\S+) s │ +(\S+) │ +(\S+) │", done.stdout)
    assert [row[0] for row in rows] == ["alone", "DDP", "FSDP2"], done.stdout
    assert all(float(row[1]) < 2.35 and float(row[2]) <= 1e-5 and float(row[4]) > 0 for row in rows)
    assert all(float(row[5]) > 100 for row in rows[1:])  # kB: gradients went over the network


if __name__ == "__main__":
    if kind() == "bound":
        run(BOUND, torch.device("xpu", own_rank() % torch.xpu.device_count()))
    else:
        run({"matrix": MATRIX, "late": LATE}.get(kind(), CASES))
