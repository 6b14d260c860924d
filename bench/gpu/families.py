"""Families of operators beside CUDA on one NVIDIA GPU: products, attention, softmax, bags of embeddings, fills, and what counts or sorts.

`openxpu run bench/gpu/families.py [--only TEXT …] [--json FILE]`, with a CUDA build of PyTorch. A ratio is CUDA's
time over xpu's: above 1 xpu is faster. What has no kernel for xpu is named and counted as failed.
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
from side_by_side import Work, compare  # type: ignore[import-not-found]
from torch import Tensor

Case = tuple[str, Callable[[str], Work], float]  # name, the work on a device, the bar


def differs(ours: Any, theirs: Any) -> bool:
    """Whether the first tensors of two results, of gradients all, differ by more than roundings of sums."""
    if isinstance(ours, dict):
        return any(differs(ours[key], theirs[key]) for key in ours)
    a, b = (x[0] if isinstance(x, (tuple, list)) else x for x in (ours, theirs))
    a, b = a.cpu(), b.cpu()
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
    """The tensors on `device`."""
    return [t.to(device) for t in tensors]


def products() -> Iterator[Case]:
    """Matrix products in half precision and fp32, of all transpositions, batched, and with a bias and gelu."""
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
                yield f"product {' @ '.join(names)} of {size} {str(dtype)[6:]}", product, 0.7 if dtype == torch.float32 else 0.5
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


def attention() -> Iterator[Case]:
    """Forward and backward in half precision, beside PyTorch's flash attention; in fp32; decoding."""
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
                        step(
                            grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset
                        ),
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

        def decode(
            device: str,
            q: Tensor = torch.randn(batch, heads, 1, depth),
            k: Tensor = torch.randn(batch, key_heads, length, depth),
            v: Tensor = torch.randn(batch, key_heads, length, depth),
        ) -> Work:
            query, key, value = (x.bfloat16() for x in to(device, q, k, v))
            return lambda: F.scaled_dot_product_attention(query, key, value, enable_gqa=True)

        yield f"attention decoding {batch}×{heads}/{key_heads} S {length} D {depth} bfloat16", decode, 0.85


def softmax() -> Iterator[Case]:
    """Along every kind of dimension, forward and backward."""
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
    """embedding_bag with few long bags and many short ones."""
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
    """Constants into memory."""
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
    """Histograms, binary search, distinct values, medians."""
    n = 1 << 24
    normal, small = torch.randn(n), torch.randint(1000, (n,))
    large = torch.randint(1 << 20, (n,))
    rows = torch.randn(4096, 4096)
    edges = torch.randn(100_000).sort().values
    weights = torch.rand(n)

    def on(work: Callable[..., object], *tensors: Tensor) -> Callable[[str], Work]:
        def make(device: str) -> Work:
            there = to(device, *tensors)
            return lambda: work(*there)

        return make

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


def main() -> int:
    """Prints the comparison; writes JSON; 0 when every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", help="cases whose names contain one of these texts")
    arguments = parser.parse_args()
    print(f"{torch.xpu.get_device_name()} through OpenCL, {torch.cuda.get_device_name()} through CUDA")
    results: list[dict[str, object]] = []
    failed = 0
    for family in (products, attention, softmax, bags, fills, counts):
        for name, make, bar in family():
            if arguments.only and not any(text in name for text in arguments.only):
                continue
            try:
                ours, theirs = make("xpu"), make("cuda")
                wrong = differs(ours(), theirs())
                result = compare(name, ours, theirs, bar, calls=5, rounds=5)
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
