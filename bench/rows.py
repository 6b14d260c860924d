"""Softmax, layer norm, batch norm and pooling on xpu against PyTorch's CPU device: ratios of speed in one process.

Each pair is timed alternately and the least time of each counts. 1.00 is the CPU device's own speed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator

import openxpu  # noqa: F401
import torch
import torch.nn.functional as F

ROWS = (64, 256, 1024, 4096, 16384)
ELEMENTS = 1 << 22
Maker = Callable[[str], Callable[[], object]]


def ratio(make: Callable[[str], Callable[[], object]], repeats: int) -> tuple[float, float]:
    """The time on cpu by that on xpu, and the milliseconds on xpu."""
    functions = {device: make(device) for device in ("cpu", "xpu")}
    best = {device: float("inf") for device in functions}
    for _ in range(repeats):
        for device, function in functions.items():
            function()
            start = time.perf_counter()
            function()
            torch.xpu.synchronize()
            best[device] = min(best[device], time.perf_counter() - start)
    return best["cpu"] / best["xpu"], best["xpu"] * 1e3


def both(
    name: str, tensors: list[torch.Tensor], function: Callable[..., torch.Tensor]
) -> list[tuple[str, Maker]]:
    """Makers of the forward function and of the backward one, from CPU tensors."""

    def forward(device: str) -> Callable[[], object]:
        moved = [t.to(device) for t in tensors]
        return lambda: function(*moved)

    def backward(device: str) -> Callable[[], object]:
        moved = [t.to(device).requires_grad_(t.is_floating_point()) for t in tensors]
        out = function(*moved)
        grad = torch.ones_like(out)
        wanted = [t for t in moved if t.requires_grad]
        return lambda: torch.autograd.grad(out, wanted, grad, retain_graph=True)

    return [(name + " forward", forward), (name + " backward", backward)]


def cases(dtype: torch.dtype) -> Iterator[tuple[str, Maker]]:
    """Names and makers of all that is measured."""
    for n in ROWS:
        x, w, b = (
            torch.randn(ELEMENTS // n, n, dtype=dtype),
            torch.randn(n, dtype=dtype),
            torch.randn(n, dtype=dtype),
        )
        yield from both(f"softmax {n}", [x], lambda x: torch.softmax(x, -1))
        yield from both(f"log_softmax {n}", [x], lambda x: torch.log_softmax(x, -1))
        yield from both(f"layer_norm {n}", [x, w, b], lambda x, w, b, n=n: F.layer_norm(x, (n,), w, b))
    for c, size in ((64, 112), (64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7)):
        batch = max(1, (1 << 22) // (c * size * size))
        parameters = [torch.randn(c), torch.randn(c)]
        for last in (False, True):
            x = torch.randn(batch, c, size, size, dtype=dtype)
            if last:
                x = x.contiguous(memory_format=torch.channels_last)
            yield from both(
                f"batch_norm {batch}x{c}x{size}x{size}{' last' if last else ''}",
                [x, *parameters],
                lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            )
    for last in (False, True):
        x = torch.randn(8, 64, 112, 112, dtype=dtype)
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        layout = " last" if last else ""
        yield from both("max_pool2d 3x3/2" + layout, [x], lambda x: F.max_pool2d(x, 3, 2, 1))
        yield from both("avg_pool2d 2x2/2" + layout, [x], lambda x: F.avg_pool2d(x, 2, 2))
        y = x[:, :, :14, :14].contiguous(
            memory_format=torch.channels_last if last else torch.contiguous_format
        )
        yield from both("adaptive_avg_pool2d 7x7" + layout, [y], lambda x: F.adaptive_avg_pool2d(x, 7))


def main() -> None:
    """Print, and on demand write, the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], action="append")
    parser.add_argument("--json", help="write the ratios to this file")
    options = parser.parse_args()
    results = {}
    for name in options.dtype or ["float32", "bfloat16"]:
        for case, make in cases(getattr(torch, name)):
            if options.only in case:
                speed, ms = ratio(make, options.repeats)
                results[f"{case} {name}"] = speed
                print(f"{name:9} {case:40} {speed:5.2f}x {ms:8.2f} ms", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
