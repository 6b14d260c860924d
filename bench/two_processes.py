"""Two processes on this machine that share a process group, for benchmarks of collectives."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

PROCESSES = 2


def add_options(parser: argparse.ArgumentParser, result: str) -> None:
    """Add the options that `start` needs."""
    parser.add_argument("--json", type=Path, default=Path("build") / result)
    parser.add_argument(
        "--mpi", metavar="MPIEXEC", nargs="?", const="mpiexec", help="use MPI, with this launcher"
    )
    parser.add_argument("--folder", help=argparse.SUPPRESS)  # set in a process that MPI's launcher started


def start(work: Callable[[int, str, argparse.Namespace], None], options: argparse.Namespace) -> bool:
    """Run `work(rank, folder, options)` in two processes; return False in a process started by MPI."""
    options.json.parent.mkdir(exist_ok=True)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if options.folder:
        work(-1, options.folder, options)
        return False
    with tempfile.TemporaryDirectory() as folder:
        if options.mpi:
            itself = [sys.executable, *sys.argv, "--folder", folder]
            subprocess.run([*options.mpi.split(), "-n", str(PROCESSES), *itself], check=True)
        else:
            torch.multiprocessing.spawn(work, (folder, options), PROCESSES)
    return True


def join(rank: int, folder: str, name: str, by_mpi: str) -> int:
    """Make the default group with backend `name`, or `by_mpi` if MPI assigns the rank; return the rank."""
    if rank < 0:
        dist.init_process_group(by_mpi)
    else:
        store = dist.FileStore(os.path.join(folder, "store"), PROCESSES)
        dist.init_process_group(name, store=store, rank=rank, world_size=PROCESSES)
    return dist.get_rank()
