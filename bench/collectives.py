"""Times all_reduce of xpu and of CPU tensors over Gloo (`python bench/collectives.py`).

Two processes on this machine run both kinds alternately; the fastest tenth of each counts. Before each call
they synchronize in a third group, since a barrier in a measured group would leave its threads busy. CPU
tensors are reduced in place; their bars are 50 µs extra up to 1 MiB and a ratio of 1.10 from 8 MiB on. GPU
tensors are compared with pinned host memory; their bar is a ratio of 1.5 from 8 MiB on.
`OPENXPU_MEMORY=buffer` treats a CPU as a GPU. With `--mpi`, MPI's launcher starts the processes, and xpu
tensors go over MPI as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from two_processes import add_options, join, start

SIZES = tuple(1 << n for n in (10, 14, 17, 20, 23, 26))
MORE = 50e-6  # seconds allowed for small tensors


def seconds(runs: list[Callable[[], object]], rounds: int, between: dist.ProcessGroup) -> list[float]:
    """Return, per work, the time that a tenth of its runs stay below; the works alternate."""
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds + 3):
        for i in range(len(runs)):
            which = (i + turn) % len(runs)
            dist.barrier(group=between)
            start = time.perf_counter()
            runs[which]()
            if turn >= 3:
                times[which].append(time.perf_counter() - start)
    return [sorted(t)[len(t) // 10] for t in times]


def work(rank: int, folder: str, options: argparse.Namespace) -> None:
    """Run one of the processes."""
    torch.set_num_threads(1)
    name, is_by_mpi = "cpu:gloo,xpu:xccl", rank < 0
    rank = join(rank, folder, name, "cpu:gloo,xpu:mpi")
    by_mpi = dist.group.WORLD if is_by_mpi else None
    kinds = [torch.xpu.get_device_properties(i).type for i in range(torch.xpu.device_count())]
    torch.xpu.set_device(rank % kinds.count(kinds[0]))  # GPUs come before the CPU
    rows, between, group = [], dist.new_group(backend="gloo"), dist.new_group(backend=name)
    for size in SIZES:
        on_xpu = torch.ones(size // 4, device="xpu")
        host = torch.ones(size // 4, pin_memory=True)

        def reduce_xpu(x: torch.Tensor = on_xpu, group: dist.ProcessGroup | None = group) -> None:
            dist.all_reduce(x, group=group)
            torch.xpu.synchronize()

        rounds = 300 if size <= 1 << 17 else 60 if size <= 1 << 20 else 15
        runs: list[Callable[[], object]] = [lambda x=host: dist.all_reduce(x, group=group), reduce_xpu]
        if by_mpi is not None:
            runs.append(lambda x=on_xpu: reduce_xpu(x, by_mpi))
        cpu, xpu, *mpi = seconds(runs, rounds, between)
        rows.append({"bytes": size, "cpu": cpu, "xpu": xpu} | ({"mpi": mpi[0]} if mpi else {}))
    if rank == 0:
        host_device = torch.xpu.get_device_properties(0).type == "cpu"
        options.json.write_text(json.dumps({"is_host": host_device, "rows": rows}))
    dist.destroy_process_group()


def main() -> int:
    """Return 0 if every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser, "bench_collectives.json")
    arguments = parser.parse_args()
    if not start(work, arguments):
        return 0
    measured = json.loads(arguments.json.read_text())
    table = Table(title="all_reduce, two processes, µs")
    for column in ("KiB", "CPU, Gloo", "xpu", "more", "ratio", "", *(["MPI"] if arguments.mpi else [])):
        table.add_column(column, justify="right")
    missed = 0
    for row in measured["rows"]:
        more, ratio = row["xpu"] - row["cpu"], row["xpu"] / row["cpu"]
        bar = ""
        if row["bytes"] >= 1 << 23:
            bar = "" if ratio <= (1.10 if measured["is_host"] else 1.5) else "missed"
        elif measured["is_host"]:
            bar = "" if more <= MORE else "missed"
        missed += bool(bar)
        cells = (row["bytes"] >> 10, 1e6 * row["cpu"], 1e6 * row["xpu"], 1e6 * more)
        mpi = [f"{1e6 * row['mpi']:.0f}"] if arguments.mpi else []
        table.add_row(*(f"{cell:.0f}" for cell in cells), f"{ratio:.2f}", bar, *mpi)
    Console().print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
