"""The first call of a compiled model with empty caches: on xpu, and with Inductor's C++ backend on the CPU.

Each call runs in a process of its own, and the two sides alternate; the best of all rounds counts for each
side. The time runs from the call of `torch.compile` until the first call's results are available. It covers
tracing, Inductor, Triton, this compiler and the driver's, or Inductor's C++ backend and the system compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

import networks
import torch
from rich.console import Console
from rich.table import Table

MODELS = ("ViT training step", "ResNet training step", "MiniLM inference", "GPT-2 decode step")


def first_call(name: str, device: str) -> float:
    """Return the seconds until a model's first results in this process."""
    torch.manual_seed(0)
    start = time.perf_counter()
    if name == "ViT training step":
        vit = networks.VisionTransformer(32, 4, 3, 10, 192, 6, 3)
        networks.training_step(vit, device, (32, 3, 32, 32), torch.compile)()
    elif name == "ResNet training step":
        resnet = networks.ResNet(3, 10, (32, 64, 128))
        networks.training_step(resnet, device, (32, 3, 32, 32), torch.compile)()
    elif name == "MiniLM inference":
        torch.compile(networks.encoder(device, 1))()
    else:
        torch.compile(networks.decode_step(networks.Decoder(8192, 128, 384, 6, 6), device))()
    if device == "xpu":
        torch.xpu.synchronize()
    return time.perf_counter() - start


def fresh(name: str, device: str) -> float:
    """Run first_call in a new process with empty caches."""
    caches = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {variable: f"{folder}/{variable}" for variable in caches}
        run = subprocess.run(
            [sys.executable, __file__, "--one", name, device],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    return float(run.stdout.split()[-1])


def main() -> int:
    """Return 0 if ViT is ready on xpu at least as early as on the CPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "DEVICE"), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("models", nargs="*", default=MODELS[:1], help=f"any of {', '.join(MODELS)}")
    arguments = parser.parse_args()
    if arguments.one:
        print(first_call(*arguments.one))
        return 0
    table = Table(title="Seconds of a compiled model's first call with empty caches")
    for column in ("model", "xpu", "C++ on the CPU", "ratio"):
        table.add_column(column, justify="left" if column == "model" else "right")
    good = True
    for name in arguments.models:
        both = [[fresh(name, device) for device in ("xpu", "cpu")] for _ in range(arguments.rounds)]
        ours, theirs = (min(side) for side in zip(*both, strict=True))
        good &= ours <= theirs
        table.add_row(name, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}")
    Console(width=110).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
