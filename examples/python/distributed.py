"""Several processes train one vision transformer: each has all weights (DDP) or a part (fully_shard).

Start it with ``torchrun --nproc-per-node 2 examples/python/distributed.py``, or ``make run-distributed``.
Each way trains on the same batches as one process alone, split among the processes; the losses of all steps
have to be that process's up to rounding. A table says how long the first step took (it builds or loads
kernels) and each one after it, and what went through the machine's network: processes of one machine give
each other large tensors through memory, but with ``OPENXPU_SHARED_MEMORY=0``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from models import VisionTransformer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 30
IMAGES = 64  # a step, of all processes together
ROUNDING = 1e-5


def model() -> VisionTransformer:
    """The same weights in each process."""
    torch.manual_seed(0)
    return VisionTransformer(image=8, patch=2, channels=1, classes=10, width=64, depth=4, heads=4).to("xpu")


def replicated() -> nn.Module:
    """All weights in each process; gradients are averaged while backward runs."""
    return DistributedDataParallel(model(), bucket_cap_mb=0.25)


def sharded() -> nn.Module:
    """A part of each weight in each process; blocks are gathered when they are needed."""
    net = model()
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    return net


def sent() -> int:
    """Bytes that this machine's network interfaces have sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines)


def train(
    net: nn.Module, images: Tensor, labels: Tensor, is_split: bool, progress: Progress, title: str
) -> tuple[list[float], float, float, float]:
    """Each step's loss over all images; seconds of the first step; seconds and bytes of each later one."""
    rank, processes = dist.get_rank(), dist.get_world_size()
    # The large eps keeps gradients that are nothing but rounding from being scaled up.
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, eps=1e-4)
    bar = progress.add_task(title, total=STEPS)
    losses = []
    first, began, before = 0.0, time.perf_counter(), 0
    for step in range(STEPS):
        if step == 1:
            first = time.perf_counter() - began
            dist.barrier()
            began, before = time.perf_counter(), sent()
        rows = slice(step * IMAGES, (step + 1) * IMAGES)
        x, y = images[rows], labels[rows]
        if is_split:
            x, y = x.chunk(processes)[rank], y.chunk(processes)[rank]
        loss = F.cross_entropy(net(x.to("xpu")), y.to("xpu"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if is_split:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        progress.advance(bar)
    seconds, moved = time.perf_counter() - began, sent() - before
    return losses, first, seconds / (STEPS - 1), moved / (STEPS - 1)


def main() -> None:
    """Trains alone, with replicas and with shards, and compares."""
    device = torch.device("xpu", int(os.environ["LOCAL_RANK"]) % torch.xpu.device_count())
    torch.xpu.set_device(device)
    dist.init_process_group(device_id=device)
    rank, processes = dist.get_rank(), dist.get_world_size()
    if IMAGES % processes:
        raise SystemExit(f"{IMAGES} images a step can't be split among {processes} processes")
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1))
    order = order.repeat(STEPS * IMAGES // len(order) + 1)
    images = torch.from_numpy(digits.images)[order].float().unsqueeze(1) / 16
    labels = torch.from_numpy(digits.target)[order]

    console = Console(quiet=rank != 0)
    console.width = min(console.width, 80)
    table = Table(
        title=f"{STEPS} steps of {IMAGES} images, {processes} processes on {torch.xpu.get_device_name()}"
    )
    for column in ("", "last loss", "difference", "first step", "ms a step", "kB sent a step"):
        table.add_column(column, justify="right" if column else "left")
    ways = {"alone": model, "DDP": replicated, "FSDP2": sharded}
    alone: list[float] = []
    furthest = 0.0
    with Progress(console=console, disable=rank != 0) as progress:
        for title, make in ways.items():
            losses, first, seconds, moved = train(make(), images, labels, make is not model, progress, title)
            alone = alone or losses
            difference = max(abs(a - b) / b for a, b in zip(losses, alone, strict=True))
            furthest = max(furthest, difference)
            table.add_row(
                *(
                    title,
                    f"{losses[-1]:.5f}",
                    f"{difference:.1e}",
                    f"{first:.2f} s",
                    f"{1e3 * seconds:.1f}",
                    f"{moved / 1e3:.0f}",
                )
            )
            dist.barrier()
    console.print(table)
    dist.destroy_process_group()
    if furthest > ROUNDING:
        raise SystemExit(
            f"process {rank}: losses differ from those of one process by {furthest:.1e} of themselves"
        )


if __name__ == "__main__":
    main()
