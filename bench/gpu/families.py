"""Operator families on xpu, compared with CUDA on one NVIDIA GPU.

The families are matrix products, grouped products, attention, convolutions, softmax, embedding bags, fills,
counts, Fourier transforms, torchvision's operators and solvers.

`openxpu run bench/gpu/families.py [--only TEXT …] [--json FILE]`, with a CUDA build of PyTorch. A ratio is
CUDA's time divided by xpu's: above 1 xpu is faster. An operator without an xpu kernel is listed and counts as
failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_ENABLE_XPU_FALLBACK", "0")
os.environ["OPENXPU_KEEP_CUDA"] = "1"

import torch
import torch.nn.functional as F
from side_by_side import Work, compare, seconds  # type: ignore[import-not-found]
from torch import Tensor

Case = tuple[str, Callable[[str], Work], float]  # name, work by device, bar


def differs(ours: Any, theirs: Any) -> bool:
    """Return whether two results (gradients: all) differ by more than the rounding of sums."""
    if isinstance(ours, dict):
        return any(differs(ours[key], theirs[key]) for key in ours)
    a, b = (x[0] if isinstance(x, (tuple, list)) else x for x in (ours, theirs))
    a, b = (torch.view_as_real(x) if x.is_complex() else x for x in (a, b))
    a = a.cpu().to(b.device)  # the cheapest place to compare
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if not a.is_floating_point():
        return not torch.equal(a, b)
    coarse = a.dtype in (torch.bfloat16, torch.float16)
    scale = float(b.abs().max()) if b.numel() else 0.0
    return not torch.allclose(
        a.float(),
        b.float(),
        rtol=2e-2 if coarse else 1e-3,
        atol=(1e-2 if coarse else 1e-4) * scale,
        equal_nan=True,
    )


def to(device: str, *tensors: Tensor) -> list[Tensor]:
    """Copy the tensors to `device`."""
    return [t.to(device) for t in tensors]


def products() -> Iterator[Case]:
    """Yield matrix products in half precision and fp32: all layouts, batched, with bias and gelu, skinny."""
    for size in (1024, 2048, 4096, 8192):
        square = torch.randn(size, size), torch.randn(size, size)
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for turned in range(4):

                def product(
                    device: str,
                    turned: int = turned,
                    dtype: torch.dtype = dtype,
                    of: tuple[Tensor, ...] = square,
                ) -> Work:
                    a, b = (x.to(dtype) for x in to(device, *of))
                    left, right = a.t() if turned & 2 else a, b.t() if turned & 1 else b
                    return lambda: left @ right

                names = ("a.t()" if turned & 2 else "a", "b.t()" if turned & 1 else "b")
                yield (
                    f"product {' @ '.join(names)} of {size} {str(dtype)[6:]}",
                    product,
                    0.7 if dtype == torch.float32 else 0.5,
                )
    cubes = torch.randn(64, 512, 512), torch.randn(64, 512, 512)
    layer = torch.randn(8192, 1024), torch.randn(4096, 1024), torch.randn(4096)
    for dtype in (torch.bfloat16, torch.float16):

        def batched(device: str, dtype: torch.dtype = dtype, of: tuple[Tensor, ...] = cubes) -> Work:
            a, b = (x.to(dtype) for x in to(device, *of))
            return lambda: torch.bmm(a, b)

        def linear(device: str, dtype: torch.dtype = dtype, of: tuple[Tensor, ...] = layer) -> Work:
            x, w, bias = (x.to(dtype) for x in to(device, *of))
            return lambda: F.gelu(F.linear(x, w, bias))

        yield f"product, 64 of 512 {str(dtype)[6:]}", batched, 0.5
        yield f"product, linear 8192×1024 to 4096, bias and gelu {str(dtype)[6:]}", linear, 0.5
    matrix = torch.randn(8193, 8200)
    for dtype in (torch.bfloat16, torch.float32):
        for label, left, right in (
            ("vector @ a", lambda a: a[0, :8192], lambda a: a[:8192, :8192]),
            ("a @ vector", lambda a: a[:8192, :8192], lambda a: a[0, :8192]),
            ("x[:, 1:] of 2000", lambda a: a[:2000, 1:2001], lambda a: a[:2000, 3:2003]),
            ("x[::2, ::2] of 2000", lambda a: a[:4000:2, :4000:2], lambda a: a[:2000, :2000]),
        ):

            def sliced(
                device: str,
                dtype: torch.dtype = dtype,
                left: Callable[[Tensor], Tensor] = left,
                right: Callable[[Tensor], Tensor] = right,
                of: Tensor = matrix,
            ) -> Work:
                (there,) = (x.to(dtype) for x in to(device, of))
                x, y = left(there), right(there)
                return lambda: x @ y

            yield f"product, {label} {str(dtype)[6:]}", sliced, 0.85 if "vector" in label else 0.5


def groups() -> Iterator[Case]:
    """Yield grouped products as in mixtures of experts, forward and backward; float8; jagged attention."""
    aten = torch.ops.aten
    for rows, experts, k, n in ((8192, 8, 4096, 7168), (16384, 64, 2048, 1408), (32, 64, 2048, 1408)):
        torch.manual_seed(0)
        counts_of = torch.bincount(torch.randint(experts, (rows,)), minlength=experts)
        ends = counts_of.cumsum(0).int()
        x, weight, grad = torch.randn(rows, k), torch.randn(experts, n, k), torch.randn(rows, n)
        label = f"{rows} rows, {experts} of {k} × {n}"

        def forward(device: str, of: tuple[Tensor, ...] = (x, weight, ends)) -> Work:
            a, b, offs = to(device, *of)
            a, b = a.bfloat16(), b.bfloat16().transpose(1, 2)
            return lambda: aten._grouped_mm(a, b, offs)

        def of_rows(device: str, of: tuple[Tensor, ...] = (grad, weight, ends)) -> Work:
            a, b, offs = to(device, *of)
            a, b = a.bfloat16(), b.bfloat16()
            return lambda: aten._grouped_mm(a, b, offs)

        def of_weights(device: str, of: tuple[Tensor, ...] = (grad, x, ends)) -> Work:
            a, b, offs = to(device, *of)
            a, b = a.bfloat16().t(), b.bfloat16()
            return lambda: aten._grouped_mm(a, b, offs)

        def scaled(device: str, of: tuple[Tensor, ...] = (x, weight, ends)) -> Work:
            a, b, offs = to(device, *of)
            a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).transpose(1, 2)
            of_a, of_b = torch.ones(a.size(0), device=device), torch.ones(b.size(0), b.size(2), device=device)
            return lambda: aten._scaled_grouped_mm(a, b, of_a, of_b, offs, out_dtype=torch.bfloat16)

        yield f"groups {label} bfloat16", forward, 0.5
        yield f"groups {label} float8", scaled, 0.3
        if rows > 32:
            yield f"groups x's gradient {label}", of_rows, 0.5
            yield f"groups w's gradient {label}", of_weights, 0.5
    lengths = torch.randint(100, 2000, (16,))
    starts = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    tokens = torch.randn(int(starts[-1]), 16 * 64)

    def jagged(device: str) -> Work:
        values, offsets = to(device, tokens, starts)
        whole = torch.nested.nested_tensor_from_jagged(
            values.bfloat16(), offsets, max_seqlen=2000, min_seqlen=100
        )
        y = whole.unflatten(-1, [16, 64]).transpose(1, 2)
        return lambda: F.scaled_dot_product_attention(y, y, y, is_causal=True).values()

    yield "groups attention of 16 jagged sequences", jagged, 0.5


def attention() -> Iterator[Case]:
    """Yield attention forward and backward in half precision and fp32, and decoding."""
    aten = torch.ops.aten
    for depth, length, causal in itertools.product((64, 128), (512, 2048, 8192), (False, True)):
        shape = (16384 // length, 2048 // depth, length, depth)
        of = [torch.randn(shape) for _ in range(4)]
        label = f"S {length} D {depth}{' causal' if causal else ''}"
        for dtype in (torch.bfloat16, torch.float16) if depth == 128 else (torch.bfloat16,):

            def forward(
                device: str, of: list[Tensor] = of, causal: bool = causal, dtype: torch.dtype = dtype
            ) -> Work:
                q, k, v, _ = (x.to(dtype) for x in to(device, *of))
                return lambda: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)

            def backward(
                device: str, of: list[Tensor] = of, causal: bool = causal, dtype: torch.dtype = dtype
            ) -> Work:
                q, k, v, grad = (x.to(dtype) for x in to(device, *of))
                out, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = (
                    aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
                )
                step = aten._scaled_dot_product_flash_attention_backward
                return lambda: dict(
                    zip(
                        "qkv",
                        step(grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset),
                        strict=True,
                    )
                )

            yield f"attention {label} {str(dtype)[6:]}", forward, 0.5
            yield f"attention backward {label} {str(dtype)[6:]}", backward, 0.4

        def single(device: str, of: list[Tensor] = of, causal: bool = causal) -> Work:
            q, k, v, _ = to(device, *of)
            return lambda: aten._scaled_dot_product_efficient_attention(q, k, v, None, False, 0.0, causal)

        if length < 8192:
            yield f"attention {label} float32", single, 0.7
    for batch, heads, key_heads, length, depth in (
        (8, 32, 8, 8192, 128),
        (1, 32, 32, 16384, 128),
        (32, 16, 16, 2048, 64),
    ):
        many = (batch, key_heads, length, depth)
        given = torch.randn(batch, heads, 1, depth), torch.randn(many), torch.randn(many)

        def decode(device: str, of: tuple[Tensor, ...] = given) -> Work:
            query, key, value = (x.bfloat16() for x in to(device, *of))
            return lambda: F.scaled_dot_product_attention(query, key, value, enable_gqa=True)

        yield f"attention decoding {batch}×{heads}/{key_heads} S {length} D {depth} bfloat16", decode, 0.85


# ResNet-50: input and output channels, image side, kernel, stride
RESNET = (
    (3, 64, 224, 7, 2),
    (64, 64, 56, 1, 1),
    (64, 64, 56, 3, 1),
    (64, 256, 56, 1, 1),
    (256, 64, 56, 1, 1),
    (256, 128, 56, 1, 1),
    (128, 128, 56, 3, 2),
    (128, 512, 28, 1, 1),
    (256, 512, 56, 1, 2),
    (512, 128, 28, 1, 1),
    (128, 128, 28, 3, 1),
    (512, 256, 28, 1, 1),
    (256, 256, 28, 3, 2),
    (256, 1024, 14, 1, 1),
    (512, 1024, 28, 1, 2),
    (1024, 256, 14, 1, 1),
    (256, 256, 14, 3, 1),
    (1024, 512, 14, 1, 1),
    (512, 512, 14, 3, 2),
    (512, 2048, 7, 1, 1),
    (1024, 2048, 14, 1, 2),
    (2048, 512, 7, 1, 1),
    (512, 512, 7, 3, 1),
)
# the same with groups: depthwise (MobileNet, EfficientNet, ConvNeXt) and grouped (ResNeXt)
GROUPED = (
    (96, 112, 3, 2, 96),
    (144, 56, 3, 1, 144),
    (384, 14, 3, 1, 384),
    (960, 7, 3, 1, 960),
    (672, 14, 5, 1, 672),
    (96, 56, 7, 1, 96),
    (384, 14, 7, 1, 384),
    (128, 56, 3, 1, 32),
    (512, 14, 3, 1, 32),
)


# images with three channels: the first layers of VGG and AlexNet, and the patches of ConvNeXt and vision
# transformers: input channels, output channels, image side, kernel, stride, padding
IMAGES = ((3, 64, 224, 3, 1, 1), (3, 64, 224, 11, 4, 2), (3, 96, 224, 4, 4, 0), (3, 768, 224, 16, 16, 0))


def convolutions() -> Iterator[Case]:
    """Yield ResNet-50's, depthwise, grouped and transposed convolutions, forward and both gradients."""
    torch.backends.cudnn.allow_tf32 = False  # compare fp32 with fp32
    numbers = torch.randn(1 << 26)
    formats = {"last": torch.channels_last, "first": torch.contiguous_format}

    def cases(
        label: str,
        shape: tuple[int, ...],
        weight: tuple[int, ...],
        stride: int,
        padding: int,
        groups: int = 1,
        transposed: bool = False,
        dtype: torch.dtype = torch.bfloat16,
        channels: str = "last",
    ) -> Iterator[Case]:
        dims = len(shape) - 2
        options = ([stride] * dims, [padding] * dims, [1] * dims, transposed, [0] * dims, groups)

        def operands(device: str) -> tuple[Tensor, Tensor]:
            made = (numbers[: torch.Size(s).numel()].view(s).to(dtype).to(device) for s in (shape, weight))
            x, w = (t.contiguous(memory_format=formats[channels]) if dims == 2 else t for t in made)
            return x, w / (weight[1] * torch.Size(weight[2:]).numel()) ** 0.5

        def forward(device: str) -> Work:
            x, w = operands(device)
            return lambda: torch.ops.aten.convolution(x, w, None, *options)

        def backward(device: str, number: int) -> Work:
            x, w = operands(device)
            y = (
                torch.ops.aten.convolution(x, w, None, *options) / 64
            )  # otherwise float16 sums over pixels overflow
            mask = [number == 0, number == 1, False]
            step = torch.ops.aten.convolution_backward
            return lambda: step(y, x, w, None, *options, mask)[number]

        name = f"convolution {label} {str(dtype)[6:]}{'' if channels == 'last' else ' channels first'}"
        bar = 0.6 if dtype == torch.float32 else 0.45
        yield f"{name} forward", forward, bar
        yield f"{name} gradient of x", lambda device: backward(device, 0), bar
        yield f"{name} gradient of w", lambda device: backward(device, 1), bar

    for c, k, side, taps, stride in RESNET:
        label = f"{taps}×{taps} stride {stride}, {c} to {k} at {side}"
        yield from cases(label, (32, c, side, side), (k, c, taps, taps), stride, taps // 2)
    for c, side, taps, stride, groups in GROUPED:
        label = f"{taps}×{taps} stride {stride}, {groups} groups of {c // groups} at {side}"
        yield from cases(label, (32, c, side, side), (c, c // groups, taps, taps), stride, taps // 2, groups)
    for c, k, side, taps in ((256, 128, 28, 2), (128, 64, 28, 4)):
        label = f"transposed {taps}×{taps} stride 2, {c} to {k} at {side}"
        shapes = (32, c, side, side), (c, k, taps, taps)
        yield from cases(label, *shapes, 2, taps // 2 - 1, transposed=True)
    for c, k, side, taps, stride in (RESNET[0], RESNET[2], RESNET[15], RESNET[16]):
        label = f"{taps}×{taps} stride {stride}, {c} to {k} at {side}"
        shapes = (32, c, side, side), (k, c, taps, taps)
        yield from cases(label, *shapes, stride, taps // 2, channels="first")
        yield from cases(label, *shapes, stride, taps // 2, dtype=torch.float16)
    for c, k, side, taps, stride in (RESNET[0], RESNET[2], RESNET[6], RESNET[12], RESNET[15], RESNET[16]):
        label = f"{taps}×{taps} stride {stride}, {c} to {k} at {side}"
        shapes = (32, c, side, side), (k, c, taps, taps)
        for channels in formats:
            yield from cases(label, *shapes, stride, taps // 2, dtype=torch.float32, channels=channels)
    for c, k, side, taps, stride, padding in IMAGES:
        label = f"{taps}×{taps} stride {stride}, {c} to {k} at {side}"
        shapes = (32, c, side, side), (k, c, taps, taps)
        for channels in formats:
            yield from cases(label, *shapes, stride, padding, dtype=torch.float32, channels=channels)
    yield from cases("3 in 1D, 512 to 512 at 1500", (32, 512, 1500), (512, 512, 3), 1, 1)
    yield from cases("3×3×3, 64 to 64 at 8×28×28", (8, 64, 8, 28, 28), (64, 64, 3, 3, 3), 1, 1)


def softmax() -> Iterator[Case]:
    """Yield softmax along every kind of dimension, forward and backward."""
    for shape, dim in (
        ((128, 65536, 8), 1),
        ((65536, 128, 8), 1),
        ((4, 1000000), 1),
        ((32, 1000, 1000), 1),
        ((64, 4096, 65), 1),
        ((1 << 20, 4), 0),
        ((8192, 4096), 1),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape).to(dtype)
            for name, function in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax)):

                def forward(
                    device: str, x: Tensor = x, dim: int = dim, function: Callable = function
                ) -> Work:
                    (there,) = to(device, x)
                    return lambda: function(there, dim)

                def backward(
                    device: str,
                    x: Tensor = x,
                    dim: int = dim,
                    name: str = name,
                    function: Callable = function,
                ) -> Work:
                    (there,) = to(device, x)
                    out = function(there, dim)
                    step = getattr(torch.ops.aten, f"_{name}_backward_data")
                    return lambda: step(there, out, dim, there.dtype)

                label = f"{'×'.join(map(str, shape))} over {dim} {str(dtype)[6:]}"
                yield f"{name} {label}", forward, 0.7
                yield f"{name} backward {label}", backward, 0.7


def bags() -> Iterator[Case]:
    """Yield embedding_bag with a few long bags and with many short ones."""
    for count, length, width in (
        (8, 65536, 128),
        (64, 8192, 64),
        (512, 1000, 256),
        (16384, 20, 64),
        (1, 1 << 20, 32),
    ):
        rows = 100_000
        weight = torch.randn(rows, width)
        indices = torch.randint(rows, (count * length,))
        offsets = torch.arange(0, count * length, length)
        given = torch.rand(count * length)
        label = f"{count} bags of {length}, {width} wide"
        for number, mode in enumerate(("sum", "mean", "max")):

            def forward(
                device: str,
                mode: str = mode,
                all_of: tuple[Tensor, ...] = (weight, indices, offsets),
            ) -> Work:
                w, i, o = to(device, *all_of)
                return lambda: F.embedding_bag(i, w, o, mode=mode)

            def backward(
                device: str,
                number: int = number,
                all_of: tuple[Tensor, ...] = (weight, indices, offsets),
                rows: int = rows,
            ) -> Work:
                w, i, o = to(device, *all_of)
                out, bag, sizes, chosen = torch.ops.aten._embedding_bag(w, i, o, False, number)
                step = torch.ops.aten._embedding_bag_dense_backward
                return lambda: step(out, i, bag, sizes, chosen, rows, False, number, None)

            yield f"embedding_bag {mode} {label}", forward, 0.7
            yield f"embedding_bag {mode} backward {label}", backward, 0.7

        def weighted(device: str, all_of: tuple[Tensor, ...] = (weight, indices, offsets, given)) -> Work:
            w, i, o, g = to(device, *all_of)
            return lambda: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=g)

        def of_weights(device: str, all_of: tuple[Tensor, ...] = (weight, indices, offsets, given)) -> Work:
            w, i, o, g = to(device, *all_of)
            out, bag, _, _ = torch.ops.aten._embedding_bag(w, i, o, False, 0, False, g)
            step = torch.ops.aten._embedding_bag_per_sample_weights_backward
            return lambda: step(out, w, i, o, bag, 0)

        yield f"embedding_bag weighted {label}", weighted, 0.7
        yield f"embedding_bag weights' gradient {label}", of_weights, 0.7


def fills() -> Iterator[Case]:
    """Yield fills with constants."""
    for dtype in (
        torch.uint8,
        torch.int8,
        torch.bool,
        torch.bfloat16,
        torch.float32,
        torch.int64,
        torch.complex64,
    ):
        for bytes_ in (1 << 16, 1 << 26, 1 << 30):

            def fill(device: str, count: int = bytes_ // dtype.itemsize, dtype: torch.dtype = dtype) -> Work:
                there = torch.empty(count, dtype=dtype, device=device)
                return lambda: there.fill_(1)

            yield f"fill_ {bytes_ >> 10} KiB {str(dtype)[6:]}", fill, 0.9

    def odd(device: str) -> Work:
        there = torch.empty((1 << 26) + 64, dtype=torch.uint8, device=device)[3:-7]
        return lambda: there.fill_(1)

    def zero(device: str) -> Work:
        there = torch.empty(1 << 24, device=device)
        return lambda: there.zero_()

    def zeros(device: str) -> Work:
        return lambda: torch.zeros(1 << 24, device=device)

    yield "fill_ 64 MiB uint8, from an odd place", odd, 0.8
    yield "zero_ 64 MiB", zero, 0.9
    yield "zeros 64 MiB", zeros, 0.9


def counts() -> Iterator[Case]:
    """Yield histograms, binary search, unique and median."""
    n = 1 << 24
    normal, small = torch.randn(n), torch.randint(1000, (n,))
    large = torch.randint(1 << 20, (n,))
    rows = torch.randn(4096, 4096)
    edges = torch.randn(100_000).sort().values
    weights = torch.rand(n)

    yield "histc 100 bins, 2²⁴", on(lambda x: torch.histc(x, 100, -4, 4), normal), 0.7
    yield "histc 10000 bins, 2²⁴", on(lambda x: torch.histc(x, 10000, -4, 4), normal), 0.7
    yield "histc 100 bins, bounds unknown", on(lambda x: torch.histc(x, 100), normal), 0.7
    yield "bincount 1000, 2²⁴", on(torch.bincount, small), 0.7
    yield "bincount 2²⁰, 2²⁴", on(torch.bincount, large), 0.7
    yield "bincount 1000 weighted, 2²⁴", on(torch.bincount, small, weights), 0.7
    yield "searchsorted 2²⁴ in 100000", on(torch.searchsorted, edges, normal), 0.7
    yield "bucketize 2²⁴ in 100000", on(torch.bucketize, normal, edges), 0.7
    yield "bucketize 2²⁴ in 100", on(torch.bucketize, normal, edges[::1000].contiguous()), 0.7
    yield "unique 2²⁴ of 1000", on(torch.unique, small), 0.3
    yield "unique 2²⁴ with inverse", on(lambda x: torch.unique(x, return_inverse=True), small), 0.3
    yield "unique_consecutive 2²⁴", on(torch.unique_consecutive, small), 0.7
    yield "unique rows", on(lambda x: torch.unique(x, dim=0), small[: 1 << 16].view(-1, 4)), 0.3
    yield "median of 2²⁴", on(torch.median, normal), 0.7
    yield "nanmedian of 2²⁴", on(torch.nanmedian, normal), 0.7
    yield "median of rows", on(lambda x: torch.median(x, 1), rows), 0.7
    yield "median of columns", on(lambda x: torch.median(x, 0), rows), 0.7
    yield "kthvalue of rows", on(lambda x: torch.kthvalue(x, 1000, 1), rows), 0.7
    yield "mode of rows", on(lambda x: torch.mode(x, 1), small.view(4096, 4096)), 0.7
    yield "mode of short rows", on(lambda x: torch.mode(x, 1), small.view(-1, 64)), 0.7


def on(work: Callable[..., object], *tensors: Tensor) -> Callable[[str], Work]:
    """Create the tensors of `work` on a device."""

    def make(device: str) -> Work:
        there = to(device, *tensors)
        return lambda: work(*there)

    return make


def transforms() -> Iterator[Case]:
    """Yield FFTs: batches of rows, columns, one long row, prime sizes, images; real and complex."""
    for n in (64, 256, 1000, 1024, 4096, 1 << 14, 1 << 16, 1 << 20, 1 << 24):
        x = torch.randn(max((1 << 24) // n, 1), n, dtype=torch.complex64)
        yield f"fft of rows of {n}", on(torch.fft.fft, x), 0.5
    double = torch.randn(1 << 12, 1 << 10, dtype=torch.complex128)
    yield "fft of rows of 1024 complex128", on(torch.fft.fft, double), 0.5
    for n in (1009, 10007, 1000003):
        x = torch.randn((1 << 23) // n, n, dtype=torch.complex64)
        yield f"fft of rows of {n}, a prime", on(torch.fft.fft, x), 0.5
    columns = torch.randn(1024, 1 << 14, dtype=torch.complex64)
    yield "fft of columns of 1024", on(lambda x: torch.fft.fft(x, dim=0), columns), 0.5
    audio, frames = torch.randn(64, 160_000), torch.randn(1 << 14, 1024)
    images = torch.randn(64, 512, 512)
    window = torch.hann_window(400)
    yield "rfft of rows of 1024", on(torch.fft.rfft, frames), 0.5
    yield "irfft to rows of 1024", on(torch.fft.irfft, torch.fft.rfft(frames)), 0.5
    yield "rfft2 of 512 × 512", on(torch.fft.rfft2, images), 0.5
    yield "irfft2 of 512 × 512", on(torch.fft.irfft2, torch.fft.rfft2(images)), 0.5
    yield "fft2 of 1080 × 1920", on(torch.fft.fft2, torch.randn(8, 1080, 1920, dtype=torch.complex64)), 0.5
    yield "fftn of 256³", on(torch.fft.fftn, torch.randn(256, 256, 256, dtype=torch.complex64)), 0.5
    yield (
        "stft of 10 s, 400, 160",
        on(
            lambda x, w: torch.view_as_real(torch.stft(x, 400, 160, window=w, return_complex=True)),
            audio,
            window,
        ),
        0.5,
    )


def regions() -> Iterator[Case]:
    """Yield torchvision's operators, compared with its CUDA kernels."""
    try:
        import torchvision  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        print("torchvision is not installed", flush=True)
        return
    of = torchvision.ops
    corners = torch.rand(20_000, 2) * 900
    boxes = torch.cat([corners, corners + 10 + torch.rand(20_000, 2) * 90], 1)
    scores, classes = torch.rand(20_000), torch.randint(80, (20_000,))
    for n in (1000, 9000, 20_000):
        yield f"nms of {n} boxes", on(lambda b, s: of.nms(b, s, 0.5), boxes[:n], scores[:n]), 0.5
    yield (
        "batched_nms of 20000 boxes",
        on(lambda b, s, c: of.batched_nms(b, s, c, 0.5), boxes, scores, classes),
        0.5,
    )
    features = torch.randn(2, 256, 200, 200)
    rois = torch.cat([torch.randint(2, (1000, 1)).float(), boxes[:1000]], 1)
    maps = torch.randn(2, 49 * 10, 200, 200)
    for name, function, x in (
        ("roi_align", lambda x, r: of.roi_align(x, r, 7, 0.2, 2), features),
        ("roi_pool", lambda x, r: of.roi_pool(x, r, 7, 0.2), features),
        ("ps_roi_align", lambda x, r: of.ps_roi_align(x, r, 7, 0.2, 2), maps),
        ("ps_roi_pool", lambda x, r: of.ps_roi_pool(x, r, 7, 0.2), maps),
    ):
        yield f"{name} of 1000 regions", on(function, x, rois), 0.5
    x, offset = torch.randn(8, 128, 64, 64), torch.randn(8, 18, 64, 64)
    weight, mask = torch.randn(128, 128, 3, 3) / 30, torch.rand(8, 9, 64, 64)
    yield (
        "deform_conv2d 3 × 3, 128 channels",
        on(lambda x, o, w, m: of.deform_conv2d(x, o, w, padding=1, mask=m), x, offset, weight, mask),
        0.5,
    )


def solvers() -> Iterator[Case]:
    """Yield LU, Cholesky and what builds on them, for one matrix and for many."""
    for count, n in ((1, 1024), (1, 4096), (64, 512), (4096, 32)):
        a = torch.randn(count, n, n) + 2 * n**0.5 * torch.eye(n)
        positive = a @ a.mT / n + torch.eye(n)
        b = torch.randn(count, n, 16)
        label = f"{count} of {n} × {n}"
        yield f"cholesky {label}", on(torch.linalg.cholesky, positive), 0.3
        yield f"lu_factor {label}", on(torch.linalg.lu_factor, a), 0.3
        yield f"solve {label}", on(torch.linalg.solve, a, b), 0.3
        yield f"inv {label}", on(torch.linalg.inv, a), 0.3
        yield f"det {label}", on(torch.linalg.slogdet, a), 0.3
        upper = a.triu()
        yield (
            f"solve_triangular {label}",
            on(lambda u, b: torch.linalg.solve_triangular(u, b, upper=True), upper, b),
            0.3,
        )


def main() -> int:
    """Print the comparison and write JSON; return 0 if every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", help="only cases whose names contain one of these texts")
    arguments = parser.parse_args()
    print(f"{torch.xpu.get_device_name()} through OpenCL, {torch.cuda.get_device_name()} through CUDA")
    results: list[dict[str, object]] = []
    failed = 0
    for family in (
        products,
        groups,
        attention,
        convolutions,
        softmax,
        bags,
        fills,
        counts,
        transforms,
        regions,
        solvers,
    ):
        for name, make, bar in family():
            if arguments.only and not any(text in name for text in arguments.only):
                continue
            try:
                ours, theirs = make("xpu"), make("cuda")
                wrong = differs(ours(), theirs())
                calls = min(
                    max(int(5e-3 / seconds(ours, "xpu", 5)), 5), 50
                )  # keep the wait for them out of the measurement
                result = compare(name, ours, theirs, bar, calls, rounds=5)
                if wrong:
                    print(f"{name:40} RESULTS DIFFER", flush=True)
                    failed += 1
            except (NotImplementedError, RuntimeError) as error:
                print(f"{name:40} {str(error).splitlines()[0][:100]}", flush=True)
                failed += 1
                continue
            results.append(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    below = [r for r in results if float(r["ratio"]) < float(r["bar"])]  # type: ignore[arg-type]
    print(f"{len(results)} cases, {len(below)} below their bars, {failed} failed")
    return 1 if below or failed else 0


if __name__ == "__main__":
    sys.exit(main())
