"""Sums, products, means and extremes by index on xpu, compared with PyTorch's CPU device or CUDA.

`python bench/index_sums.py [--beside cpu|cuda] [--elements N] [--only TEXT …] [--dtypes f32,…] [--json FILE]`

The cases combine operators, dtypes, numbers of indices, and index order. For CUDA, run it under `openxpu run`
with a CUDA build of PyTorch. A ratio is the other device's time divided by xpu's: above 1 xpu is faster.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("PYTORCH_ENABLE_XPU_FALLBACK", "0")
os.environ["OPENXPU_KEEP_CUDA"] = "1"

import torch

Sum = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
}
LONGEST = 0.3  # seconds after which a case is not repeated


def reduced(name: str) -> Sum:
    """Return scatter_reduce_ along dimension 0."""
    return lambda x, i, v: x.scatter_reduce_(0, i, v, name, include_self=False)


def two_indices(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Accumulate at positions given by two index tensors."""
    columns = next(n for n in (1024, 10, 1) if x.size(0) % n == 0)
    return x.view(-1, columns).index_put_((i // columns, i % columns), v, accumulate=True)


def embedding_gradient(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the gradient of an embedding."""
    return torch.ops.aten.embedding_dense_backward(v, i, x.size(0), -1, False)


# columns of a row, timed function
OPERATORS: dict[str, tuple[int, Sum]] = {
    "scatter_add": (0, lambda x, i, v: x.scatter_add_(0, i, v)),
    "amax": (0, reduced("amax")),
    "mean": (0, reduced("mean")),
    "prod": (0, reduced("prod")),
    "index_add": (0, lambda x, i, v: x.index_add_(0, i, v)),
    "index_add, rows of 8": (8, lambda x, i, v: x.index_add_(0, i, v)),
    "index_add, rows of 64": (64, lambda x, i, v: x.index_add_(0, i, v)),
    "index_put": (0, lambda x, i, v: x.index_put_((i,), v, accumulate=True)),
    "index_put, two": (0, two_indices),
    "embedding": (64, embedding_gradient),
}
PLACES = (1, 100, 10_000, 0)  # numbers of distinct indices; 0: as many as elements


def wait(device: str) -> None:
    """Wait for a device."""
    if device != "cpu":
        getattr(torch, device).synchronize()


def measure(work: list[tuple[str, Callable[[], object]]], budget: float) -> list[float]:
    """Return the least time of each work in seconds; the works alternate."""
    least = [float("inf")] * len(work)
    for _, run in work:
        run()
    began = time.perf_counter()
    for turn in range(30):
        for k, (device, run) in enumerate(work):
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            least[k] = min(least[k], time.perf_counter() - start)
        if max(least) > LONGEST or (turn >= 2 and time.perf_counter() - began > budget):
            break
    return least


def main() -> None:
    """Print a line per case, and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", default="cpu")
    parser.add_argument("--elements", type=int, default=1 << 20)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--places", type=int, nargs="*", default=PLACES)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per case")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    ratios: dict[str, float] = {}
    for name, (columns, function) in OPERATORS.items():
        if arguments.only and not any(text in name for text in arguments.only):
            continue
        for token in arguments.dtypes.split(","):
            dtype = DTYPES[token]
            if name == "embedding" and not dtype.is_floating_point:
                continue
            rows = arguments.elements // (columns or 1)
            shape = (rows, columns) if columns else (rows,)
            # small integers: sums are exact, products do not overflow
            values = torch.randint(0, 3, shape) if name != "prod" else torch.randint(0, 2, shape) * 2 - 1
            for places, ordered in ((p, o) for p in arguments.places for o in (False, True)):
                count = places or rows
                index = torch.randint(count, (rows,))
                if ordered:
                    index = index.sort().values
                work: list[tuple[str, Callable[[], object]]] = []
                results: list[torch.Tensor] = []
                for device in ("xpu", arguments.beside):
                    x = torch.zeros(count, *shape[1:], dtype=dtype, device=device)
                    i, v = index.to(device), values.to(dtype).to(device)
                    work.append((device, functools.partial(function, x, i, v)))
                    results.append(function(x.clone(), i, v).float().cpu())
                ours, theirs = measure(work, arguments.budget)
                case = f"{name}, {token}, {places or 'all'}{', sorted' if ordered else ''}"
                ratios[case] = theirs / ours
                # other dtypes are not compared: 8 bits overflow, and xpu rounds less often than the others
                wrong = token in ("f32", "f64", "i64", "i32") and not torch.allclose(
                    results[0], results[1], rtol=1e-5
                )
                print(
                    f"{case:44} {ours * 1e3:9.3f} ms {theirs * 1e3:9.3f} ms {theirs / ours:8.2f}"
                    f"{'  differs' if wrong else ''}",
                    flush=True,
                )
    low = sorted(ratios.items(), key=lambda item: item[1])
    bar = 0.8 if arguments.beside == "cpu" else 0.5
    print(
        f"{len(low)} cases, median {statistics.median(ratios.values()):.2f}, below {bar}: "
        f"{sum(r < bar for _, r in low)}"
    )
    for case, ratio in low[:20]:
        print(f"  {case:44} {ratio:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(ratios, indent=1))


if __name__ == "__main__":
    main()
