"""The cost of the first use of kernels: with an empty and with a full cache, each in a fresh process.

Measured are an epoch of the main job's vision transformer, and the first use of pairs of operator and dtype.
The rounds of both sides alternate, and the best of each counts. Next to wall time the table lists CPU time,
which depends less on other work on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).parent.parent / "examples" / "python"


def epoch(half: bool = False) -> dict[str, float]:
    """Train for an epoch in this process; return the seconds and the programs built and loaded."""
    sys.path.insert(0, str(EXAMPLES))
    import main_job
    import openxpu
    import torch
    from models import VisionTransformer

    torch.manual_seed(0)
    model = VisionTransformer(8, 2, 1, 10, 64, 3, 4)
    main_job.digits()  # keep scikit-learn's start out of the measurement
    torch.optim.AdamW(model.parameters())
    busy = time.process_time()
    _, seconds, _ = main_job.train(model, "xpu", half, 1, lambda: None)
    return {"seconds": seconds, "busy": time.process_time() - busy, **openxpu.program_stats()}


PAIRS = {
    "add mul exp tanh sigmoid relu gelu": "float32 float16 bfloat16 float64",
    "neg abs lt eq": "float32 int64 int32 uint8 bool",
    "sum": "float32 float16 bfloat16 float64 int64 int32",
    "amax": "float32 bfloat16 int64",
}


def pairs() -> dict[str, float]:
    """Return the seconds of the first use of pairs of operator and dtype in this process."""
    import openxpu
    import torch

    count = 0
    torch.ones(3, device="xpu").cpu()
    start, busy = time.perf_counter(), time.process_time()
    for names, dtypes in PAIRS.items():
        for name in names.split():
            for token in dtypes.split():
                if (name, token) in (("neg", "bool"), ("abs", "bool")):
                    continue
                a = torch.ones(1000, dtype=getattr(torch, token), device="xpu")
                function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
                function(a, a) if name in ("add", "mul", "lt", "eq") else function(a)
                count += 1
    torch.xpu.synchronize()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    return {"seconds": seconds, "busy": busy, "pairs": count, **openxpu.program_stats()}


CASES = {
    "ViT epoch, fp32": epoch,
    "ViT epoch, bf16": lambda: epoch(True),
    "pairs of operator and dtype": pairs,
}


def fresh(case: str, folder: str) -> dict[str, float]:
    """Run the same in a new process whose cache is `folder`."""
    run = subprocess.run(
        [sys.executable, __file__, "--one", case],
        env=os.environ | {"OPENXPU_CACHE_DIR": folder},
        check=True,
        stdout=subprocess.PIPE,
    )
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return result


def main() -> int:
    """Print a table with one row per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(CASES[arguments.one]()))
        return 0
    table = Table(title="First uses of kernels: seconds, and CPU seconds")
    for column in ("case", "programs", "empty cache", "full cache", "ratio", "CPU"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case in CASES:
        sides: tuple[list[dict[str, float]], ...] = ([], [])
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as folder:
                for side in sides:
                    side.append(fresh(case, folder))
        cold, warm = (
            {key: min(run[key] for run in side) for key in ("seconds", "busy", "built", "loaded")}
            for side in sides
        )
        table.add_row(
            case,
            f"{cold['built']:.0f}",
            f"{cold['seconds']:.2f} ({cold['busy']:.2f})",
            f"{warm['seconds']:.2f} ({warm['busy']:.2f})",
            f"{cold['seconds'] / warm['seconds']:.2f}",
            f"{cold['busy'] / warm['busy']:.2f}",
        )
    Console(width=110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
