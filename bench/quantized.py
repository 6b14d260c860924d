"""Products with 4- and 8-bit weights, and quantized layers and convolutions (`python bench/quantized.py`).

Products of a few rows dequantize the weights on the fly and take as long as reading them. They are compared
with a copy of the same bytes (read and write: twice the traffic), called one by one and replayed as graphs.
For many rows the weights are first dequantized into a workspace; these products are compared with the
unquantized ones. `openxpu info --tuning` prints the limit, `quantized_rows`.

Layers and convolutions with 8-bit activations, as PT2E lowers them, are compared with float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from harness import Case, main

aten = torch.ops.aten


def products(x: torch.Tensor, n: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Yield each kind of weight: its name, its bytes and the product."""
    k, device = x.size(1), x.device
    int4 = torch.randint(-(1 << 31), 1 << 31, (n, k // 8), dtype=torch.int32, device=device)
    scale = torch.rand(k // 128, n, device=device).to(x.dtype)
    zero = torch.full((k // 128, n), 8, dtype=torch.int8, device=device)
    yield (
        "int4",
        n * k // 2,
        lambda: aten._weight_int4pack_mm_with_scales_and_zeros(x, int4, 128, scale, zero),
    )
    int8 = torch.randint(-128, 128, (n, k), dtype=torch.int8, device=device)
    each = torch.rand(n, device=device).to(x.dtype)
    yield "int8", n * k, lambda: aten._weight_int8pack_mm(x, int8, each)
    one = torch.ones((), device=device)
    float8, a = torch.randn(n, k, device=device).to(torch.float8_e4m3fn).t(), x.to(torch.float8_e4m3fn)
    yield "fp8", n * k, lambda: torch._scaled_mm(a, float8, one, one, out_dtype=x.dtype)


def layers() -> Iterator[Case]:
    """Yield PT2E linear layers, uint8 activations and results, compared with float32."""
    for n, k in ((1024, 1024), (4096, 1024)):
        for rows in (1, 128, 1024):
            x = torch.randint(0, 256, (rows, k), dtype=torch.uint8, device="xpu")
            weight = torch.randint(-128, 128, (n, k), dtype=torch.int8, device="xpu")
            scale, zero = torch.rand(n, device="xpu") / 1024, torch.zeros(n, dtype=torch.int64, device="xpu")
            bias = torch.randn(n, device="xpu")
            packed = torch.ops.onednn.qlinear_prepack(weight, None)
            end: tuple[object, ...] = (0.05, 128, torch.uint8, "relu", [], "")
            wide, w = x.float(), weight.float()
            yield Case(
                "int8 layer with relu beside float32",
                f"{rows} x {k} x {n}",
                lambda x=x, p=packed, s=scale, z=zero, b=bias, end=end: torch.ops.onednn.qlinear_pointwise(
                    x, 0.02, 128, p, s, z, b, *end
                ),
                lambda wide=wide, w=w, bias=bias: torch.nn.functional.linear(wide, w, bias).relu_(),
                0,
            )


def convolutions() -> Iterator[Case]:
    """Yield ResNet-50's convolutions from PT2E, uint8 with channels last, compared with float32."""
    for c, size, k, taps, stride in (
        (3, 224, 64, 7, 2),
        (64, 56, 64, 3, 1),
        (128, 28, 128, 3, 1),
        (256, 14, 256, 3, 1),
        (512, 7, 512, 3, 1),
        (256, 56, 512, 1, 2),
        (64, 56, 256, 1, 1),
    ):
        for images in (1, 32):
            x = torch.randint(0, 256, (images, c, size, size), dtype=torch.uint8, device="xpu")
            x = x.contiguous(memory_format=torch.channels_last)
            weight = torch.randint(-128, 128, (k, c, taps, taps), dtype=torch.int8, device="xpu")
            scale, zero = torch.rand(k, device="xpu") / 1024, torch.zeros(k, dtype=torch.int64, device="xpu")
            bias, half = torch.randn(k, device="xpu"), taps // 2
            how: tuple[object, ...] = ([stride, stride], [half, half], [1, 1], 1)
            packed = torch.ops.onednn.qconv_prepack(weight, scale, 0.02, 128, *how, list(x.shape))
            end: tuple[object, ...] = (0.05, 128, torch.uint8, "relu", [], "")
            wide, w = x.float(), weight.float().contiguous(memory_format=torch.channels_last)
            yield Case(
                "int8 convolution with relu beside float32",
                f"{images} x {c} x {size}² to {k}, {taps} x {taps} by {stride}",
                lambda x=x, p=packed, s=scale, z=zero, b=bias, how=how, end=end: (
                    torch.ops.onednn.qconv_pointwise(x, 0.02, 128, p, s, z, b, *how, *end)
                ),
                lambda wide=wide, w=w, b=bias, s=stride, p=half: torch.nn.functional.conv2d(
                    wide, w, b, s, p
                ).relu_(),
                0,
            )


REPLAYED = 16


def replayed(work: Callable[[], object]) -> Callable[[], object]:
    """Return a graph's replay of several calls, for devices that are faster than the host submits."""
    graph = torch.xpu.XPUGraph()
    work()
    with torch.xpu.graph(graph):
        for _ in range(REPLAYED):
            work()
    return graph.replay


def cases() -> Iterator[Case]:
    """Yield weights of 4096 x 4096 and 14336 x 4096 with 1, 4, 16 and 512 rows."""
    for n, k in ((4096, 4096), (14336, 4096)):
        for rows in (1, 4, 16):
            x = torch.randn(rows, k, device="xpu").bfloat16()
            for name, size, work in products(x, n):
                source = torch.empty(size, dtype=torch.uint8, device="xpu")
                target = torch.empty_like(source)
                copy = partial(target.copy_, source)
                sizes, bar = f"{rows} x {k} x {n} bfloat16", 0.75 if rows == 1 else 0
                yield Case(f"{name} beside a copy of its bytes", sizes, work, copy, bar)
                if rows == 1:
                    both = replayed(work), replayed(copy)
                    yield Case(f"{name} beside a copy of its bytes, {REPLAYED} replayed", sizes, *both, bar)
    yield from layers()
    yield from convolutions()
    w = torch.randn(4096, 4096, device="xpu").bfloat16()
    for rows in (512,) if torch.xpu.get_device_properties().type == "cpu" else (512, 4096):
        x = torch.randn(rows, 4096, device="xpu").bfloat16()
        plain = partial(torch.mm, x, w.t())
        for name, _, work in products(x, 4096):
            yield Case(f"{name} beside a plain product", f"{rows} x 4096 x 4096 bfloat16", work, plain, 0.85)
        a, b = (torch.randint(-128, 128, (n, 4096), dtype=torch.int8, device="xpu") for n in (rows, 4096))
        of_bytes = partial(torch._int_mm, a, b.t())
        yield Case("int8 x int8 beside a plain product", f"{rows} x 4096 x 4096", of_bytes, plain, 1.5)


if __name__ == "__main__":
    main(cases)
