"""Measures how much of DDP's communication overlaps with backward, for a ViT on two GPUs over Gloo.

`openxpu run bench/gpu/ddp.py [--images N] [--width N] [--depth N] [--json FILE]` with a CUDA build of
PyTorch, or `python` with any other build. `--device cuda --backend nccl` (or gloo) measures CUDA. `--mpi`
uses MPI.

Each of two processes times three things alternately: a step without communication (`no_sync`); the
`all_reduce`s of the step's buckets alone, all started before the first wait; and a step with DDP. The overlap
is the sum of the first two minus the third. It must be at least half of the communication. That requires a
backward that takes at least as long: increase `--images` if it does not. Gradients are compared with those of
one process that has all images.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "examples" / "python"), str(ROOT / "bench")]

from models import VisionTransformer  # noqa: E402
from two_processes import PROCESSES, add_options, join, start  # noqa: E402

BAR = 0.5
ROUNDING = 1e-3  # relative to the gradients' norm: two half-size sums, bfloat16 products


def network(options: argparse.Namespace) -> nn.Module:
    """Make the network with the same weights in each process."""
    torch.manual_seed(0)
    heads = options.width // 64
    return VisionTransformer(options.size, 16, 3, 1000, options.width, options.depth, heads).to(
        options.device
    )


def backward(net: nn.Module, images: Tensor, labels: Tensor, device: str) -> None:
    """Compute the gradients of the mean loss, with matrix products in bfloat16."""
    with torch.autocast(device, torch.bfloat16):
        loss = F.cross_entropy(net(images), labels)
    loss.backward()


def difference(net: nn.Module, images: Tensor, labels: Tensor, options: argparse.Namespace) -> float:
    """Return the relative difference between DDP's gradients and those of one process with all images."""
    every = (
        [torch.empty_like(images) for _ in range(PROCESSES)],
        [torch.empty_like(labels) for _ in range(PROCESSES)],
    )
    dist.all_gather(every[0], images)
    dist.all_gather(every[1], labels)
    alone = network(options)
    for part in zip(*every, strict=True):
        backward(alone, *part, options.device)
    error = norm = 0.0
    for ours, whole in zip(net.parameters(), alone.parameters(), strict=True):
        assert ours.grad is not None and whole.grad is not None
        mean = whole.grad / PROCESSES
        error += float((ours.grad - mean).double().square().sum())
        norm += float(mean.double().square().sum())
    return (error / norm) ** 0.5


def work(rank: int, folder: str, options: argparse.Namespace) -> None:
    """Run one of the processes."""
    torch.set_num_threads(options.threads)
    module = getattr(torch, options.device)
    rank = join(
        rank, folder, f"cpu:gloo,{options.device}:{options.backend}", f"cpu:gloo,{options.device}:mpi"
    )
    module.set_device(rank % module.device_count())
    between = dist.new_group(backend="gloo")
    generator = torch.Generator().manual_seed(rank)
    images = torch.randn((options.images, 3, options.size, options.size), generator=generator).to(
        options.device
    )
    labels = torch.randint(0, 1000, (options.images,), generator=generator).to(options.device)
    net = DistributedDataParallel(network(options))
    sizes: list[int] = []

    def noting(group: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        sizes.append(bucket.buffer().numel())
        return allreduce_hook(group, bucket)  # type: ignore[arg-type]

    noted = DistributedDataParallel(network(options))
    noted.register_comm_hook(None, noting)
    for _ in range(2):  # DDP rebuilds its buckets after the first step
        sizes.clear()
        noted.zero_grad()
        backward(noted, images, labels, options.device)
    del noted
    buckets = [torch.zeros(size, device=options.device) for size in sizes]

    def step(communicates: bool) -> None:
        net.zero_grad()
        with nullcontext() if communicates else net.no_sync():
            backward(net, images, labels, options.device)

    def communicate() -> None:
        for call in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            call.wait()

    def forward() -> None:
        with torch.autocast(options.device, torch.bfloat16):
            F.cross_entropy(net.module(images), labels)

    parts: dict[str, Callable[[], None]] = {
        "alone": lambda: step(False),
        "communication": communicate,
        "together": lambda: step(True),
        "forward": forward,
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(options.rounds + 2):
        for name, part in parts.items():
            module.synchronize()
            dist.barrier(group=between)
            start = time.perf_counter()
            part()
            module.synchronize()
            if turn >= 2:
                times[name].append(time.perf_counter() - start)
    step(True)
    apart = difference(net, images, labels, options)
    if rank == 0:
        record = {name: statistics.median(all_) for name, all_ in times.items()}
        options.json.write_text(json.dumps(record | {"buckets": sizes, "difference": apart}))
    dist.destroy_process_group()


def main() -> int:
    """Return 0 if at least half of the communication overlaps and the gradients are correct."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="xpu")
    parser.add_argument("--backend", default="xccl")
    parser.add_argument("--images", type=int, default=256, help="images per process")
    parser.add_argument("--size", type=int, default=224, help="width and height of an image")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=4)
    add_options(parser, "bench_ddp.json")
    options = parser.parse_args()
    os.environ.setdefault("OPENXPU_DEVICE", "gpu")  # not the CPU device
    if not start(work, options):
        return 0
    record = json.loads(options.json.read_text())
    hidden = (record["alone"] + record["communication"] - record["together"]) / record["communication"]
    megabytes = 4e-6 * sum(record["buckets"])
    milliseconds = {name: 1e3 * record[name] for name in ("alone", "forward", "communication", "together")}
    over = "mpi" if options.mpi else options.backend
    print(f"{options.device}, {over}: {len(record['buckets'])} buckets, {megabytes:.0f} MB; ms:")
    print("  " + ", ".join(f"{name} {time:.1f}" for name, time in milliseconds.items()))
    right = record["difference"] <= ROUNDING
    most = min(1.0, (record["alone"] - record["forward"]) / record["communication"])
    print(
        f"  hidden {hidden:.2f} (bar {BAR}) of at most {most:.2f}, as long as backward takes; gradients "
        f"apart by {record['difference']:.1e}{'' if right else ': WRONG'}"
    )
    return 0 if hidden >= BAR and right else 1


if __name__ == "__main__":
    sys.exit(main())
