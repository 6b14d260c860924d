"""Fused linear layers and convolutions on xpu, compared with unfused compiled ones (`python bench/fused.py`).

Both sides run on xpu. The left column is the fused operator; the right one is Inductor's code for the same
function without freezing: a product or convolution and a kernel for the rest. The fused operator must not be
slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import harness
import torch
import torch.nn.functional as F
from harness import Case
from torch import Tensor

fused = torch.ops.mkldnn
# batch, channels in and out, width, kernel, groups
CONVOLUTIONS = [
    (1, 64, 64, 56, 3, 1),
    (8, 64, 64, 56, 3, 1),
    (8, 256, 64, 56, 1, 1),
    (8, 128, 128, 28, 3, 1),
    (1, 256, 1024, 14, 1, 1),
    (8, 512, 512, 7, 3, 1),
    (8, 192, 192, 28, 3, 192),
]
# rows, in, out
LINEARS = [(1, 1024, 1024), (32, 768, 3072), (512, 768, 3072), (1024, 1024, 1024)]


def compiled(function: Callable[..., Tensor], *arguments: Tensor) -> Callable[[], object]:
    """Compile the function without freezing."""
    return partial(torch.compile(function, fullgraph=True, dynamic=False), *arguments)


def convolutions(dtype: torch.dtype) -> Iterator[Case]:
    """Yield convolutions with silu, and with a residual connection and relu."""
    name = str(dtype).removeprefix("torch.")
    for n, cin, cout, width, kernel, groups in CONVOLUTIONS:
        x = torch.randn(n, cin, width, width, device="xpu", dtype=dtype).to(memory_format=torch.channels_last)
        w = torch.randn(cout, cin // groups, kernel, kernel, device="xpu", dtype=dtype) / 16
        w = w.to(memory_format=torch.channels_last)
        b, pad = torch.randn(cout, device="xpu", dtype=dtype), kernel // 2
        y = torch.randn(n, cout, width, width, device="xpu", dtype=dtype).to(
            memory_format=torch.channels_last
        )
        what = f"{n} x {cin} to {cout}, {width}², {kernel}², groups {groups}, {name}"
        end = [pad], [1], [1], groups
        convolve = partial(F.conv2d, padding=pad, groups=groups)
        yield Case(
            "convolution, silu",
            what,
            partial(fused._convolution_pointwise, x, w, b, *end, "swish", [], ""),
            compiled(lambda x, w, b, f=convolve: F.silu(f(x, w, b)), x, w, b),
            0.95,
        )
        yield Case(
            "convolution, add, relu",
            what,
            partial(fused._convolution_pointwise.binary, x, y, w, b, *end, "add", None, "relu", [], None),
            compiled(lambda x, w, b, y, f=convolve: F.relu(f(x, w, b) + y), x, w, b, y),
            0.95,
        )


def linears(dtype: torch.dtype) -> Iterator[Case]:
    """Yield linear layers with gelu, and with a residual connection."""
    name = str(dtype).removeprefix("torch.")
    for rows, k, n in LINEARS:
        x, w = (
            torch.randn(rows, k, device="xpu", dtype=dtype),
            torch.randn(n, k, device="xpu", dtype=dtype) / 32,
        )
        b, y = torch.randn(n, device="xpu", dtype=dtype), torch.randn(rows, n, device="xpu", dtype=dtype)
        what = f"{rows} x {k} x {n} {name}"
        yield Case(
            "linear, gelu",
            what,
            partial(fused._linear_pointwise, x, w, b, "gelu", [], "none"),
            compiled(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, b),
            0.95,
        )
        yield Case(
            "linear, add",
            what,
            partial(fused._linear_pointwise.binary, x, y, w, b, "add"),
            compiled(lambda x, w, b, y: F.linear(x, w, b) + y, x, w, b, y),
            0.95,
        )


def cases() -> Iterator[Case]:
    """Yield both in fp32 and bf16."""
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            yield from linears(dtype)
            yield from convolutions(dtype)


if __name__ == "__main__":
    harness.main(cases)
