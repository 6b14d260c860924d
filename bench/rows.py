"""Reductions, softmax and norms over rows, forward and backward; batch norm and pooling as in ResNet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import harness
import torch
import torch.nn.functional as F
from harness import Case
from torch import Tensor

ELEMENTS = 1 << 22
Work = Callable[..., Tensor]


def both(group: str, name: str, inputs: list[Tensor], work: Work, backward: bool = True) -> Iterator[Case]:
    """Yield a function of `inputs` forward and, through autograd, backward; the bar is a ratio of 1."""

    def forward(device: str) -> Callable[[], object]:
        moved = [t.to(device) for t in inputs]
        return lambda: work(*moved)

    def gradient(device: str) -> Callable[[], object]:
        moved = [t.to(device).requires_grad_() for t in inputs]
        result = work(*moved)
        seed = torch.ones_like(result)
        return lambda: torch.autograd.grad(result, moved, seed, retain_graph=True)

    yield Case(group, name, forward("xpu"), forward("cpu"), 1.0)
    if backward:
        yield Case(group, f"{name} backward", gradient("xpu"), gradient("cpu"), 1.0)


def cases() -> Iterator[Case]:
    """Yield rows of 64 to 16,384 out of 2²² elements, and planes of a ResNet."""
    for dtype in (torch.float32, torch.bfloat16):
        for n in (64, 256, 1024, 4096, 16384):
            group = f"rows of {n} {str(dtype)[6:]}"
            x = torch.randn(ELEMENTS // n, n).to(dtype)
            w, b = torch.randn(2, n).to(dtype)
            yield from both(group, "sum", [x], lambda x: x.sum(-1), False)
            yield from both(group, "max", [x], lambda x: x.amax(-1), False)
            yield from both(group, "softmax", [x], lambda x: x.softmax(-1))
            yield from both(group, "layer_norm", [x, w, b], lambda x, w, b, n=n: F.layer_norm(x, (n,), w, b))
    for last in (False, True):
        layout = torch.channels_last if last else torch.contiguous_format
        group = "planes, channels last" if last else "planes"
        for channels, size in ((64, 56), (256, 14)):
            x = torch.randn(8, channels, size, size).to(memory_format=layout)
            w, b = torch.randn(2, channels)
            name = f"batch_norm {channels}×{size}²"
            yield from both(group, name, [x, w, b], lambda x, w, b: F.batch_norm(x, None, None, w, b, True))
        x = torch.randn(8, 64, 112, 112).to(memory_format=layout)
        yield from both(group, "max_pool2d 3×3/2", [x], lambda x: F.max_pool2d(x, 3, 2, 1))
        yield from both(group, "adaptive_avg_pool2d 1", [x], lambda x: F.adaptive_avg_pool2d(x, 1))


if __name__ == "__main__":
    harness.main(cases)
