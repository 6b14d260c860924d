"""The same Triton kernels through openxpu's OpenCL and through Triton's CUDA backend, on one NVIDIA GPU.

Requires a CUDA build of PyTorch with its Triton, and openxpu built against it; start it with `openxpu run
bench/gpu/triton_kernels.py`. A ratio is CUDA's time divided by xpu's: above 1 xpu is faster. With the
argument `products` it measures only `tl.dot`, in a matrix product, and compares it with eager `mm`. With
`attention` it compares flex attention on xpu with `scaled_dot_product_attention`.
"""

# mypy: ignore-errors
from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable

COMPARED = "attention" not in sys.argv  # PyTorch's tracing supports one accelerator
if COMPARED:
    os.environ["OPENXPU_KEEP_CUDA"] = "1"

import torch
import triton
import triton.language as tl
from openxpu.triton.driver import XPUDriver
from triton.backends.nvidia.driver import CudaDriver


def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v, w = tl.load(x + at, mask=at < n).to(tl.float32), tl.load(y + at, mask=at < n).to(tl.float32)
    tl.store(out + at, v + w, mask=at < n)


def gelu(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, 0.5 * v * (1 + tl.erf(v * 0.70710678)), mask=at < n)


def dropout(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(7, at) > 0.25
    v = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(out + at, tl.where(kept, v / 0.75, 0.0), mask=at < n)


def row_sum(x, y, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * BLOCK + at), axis=0))


def softmax(x, y, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * BLOCK + at).to(tl.float32)
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * BLOCK + at, v / tl.sum(v, axis=0))


def softmax_of_8(x, y, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * 8 + tl.arange(0, 8)
    at = row[:, None] * (BLOCK // 8) + tl.arange(0, BLOCK // 8)[None, :]
    v = tl.load(x + at).to(tl.float32)
    v = tl.exp(v - tl.max(v, axis=1)[:, None])
    tl.store(out + at, v / tl.sum(v, axis=1)[:, None])


def layer_norm(x, y, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * BLOCK + at).to(tl.float32)
    v -= tl.sum(v, axis=0) / BLOCK
    rstd = 1 / tl.sqrt(tl.sum(v * v, axis=0) / BLOCK + 1e-5)
    tl.store(out + row * BLOCK + at, v * rstd * tl.load(y + at).to(tl.float32))


def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    band = 8  # rows of tiles that run concurrently share B's columns in the cache
    program, tiles = tl.program_id(0), tl.cdiv(N, BN)
    first = program // (band * tiles) * band
    rows = min(tl.cdiv(M, BM) - first, band)
    m = (first + program % (band * tiles) % rows) * BM + tl.arange(0, BM)
    n = program % (band * tiles) // rows * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + n[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums.to(c.dtype.element_ty))


def nothing():
    pass


def nothing_of_19(a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t):
    pass


DRIVERS = {"xpu": XPUDriver(), **({"cuda": CudaDriver()} if COMPARED else {})}
N = 1 << 26


def prepared(
    kernel: Callable[..., None], device: str, block: int, dtype: torch.dtype
) -> tuple[Callable[[], object], torch.Tensor]:
    """Return the compiled launch of a kernel on a device, and its output."""
    triton.runtime.driver.set_active(DRIVERS[device])
    jitted = triton.jit(kernel)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(N, generator=generator).to(dtype).to(device) for _ in range(2))
    out = torch.empty(N, device="cpu", dtype=dtype).to(device)
    compiled = jitted[(N // block,)](x, y, out, N, BLOCK=block)
    driver, grid = DRIVERS[device], (N // block, 1, 1)
    stream = driver.get_current_stream(0)

    def launch() -> None:
        compiled.run(
            *grid, stream, compiled.function, compiled.packed_metadata, None, None, None, x, y, out, N, block
        )

    return launch, out


def seconds(work: Callable[[], object], device: str) -> float:
    """Return the least mean time of a call."""
    wait, best = getattr(torch, device).synchronize, float("inf")
    for _ in range(7):
        wait()
        start = time.perf_counter()
        for _ in range(10):
            work()
        wait()
        best = min(best, (time.perf_counter() - start) / 10)
    return best


def launches() -> None:
    """Print the host time of a launch from Python through Triton's own launcher."""
    for kernel, count in ((nothing, 0), (nothing_of_19, 19)):
        times = {}
        for device, driver in DRIVERS.items():
            triton.runtime.driver.set_active(driver)
            jitted = triton.jit(kernel)
            tensors = [torch.empty(16, device="cpu").to(device) for _ in range(5)]
            arguments = [*tensors, *range(3, 17)] if count else []
            wait = getattr(torch, device).synchronize
            best = float("inf")
            for _ in range(8):  # the first call compiles
                wait()
                start = time.perf_counter()
                for _ in range(300):
                    jitted[(1,)](*arguments)
                best = min(best, (time.perf_counter() - start) / 300)
            wait()
            times[device] = best
        print(
            f"launch, {count:2} arguments     xpu {times['xpu'] * 1e6:8.1f} µs  cuda "
            f"{times['cuda'] * 1e6:8.1f} µs",
            flush=True,
        )


TILES = [  # rows, columns, depth, warps
    (64, 64, 64, 4),
    (64, 128, 64, 4),
    (128, 128, 32, 4),
    (128, 128, 32, 8),
    (128, 256, 32, 8),
]


def tera(work: Callable[[], object], device: str, operations: float) -> float:
    """Return the TFLOP/s of a call, after a warm-up call."""
    work()
    return operations / seconds(work, device) / 1e12


def products() -> None:
    """Print the speed of a Triton matrix product by tile, and of eager ones; compare all results."""
    for size, dtype in [(s, torch.bfloat16) for s in (1024, 2048, 4096, 8192)] + [(4096, torch.float16)]:
        a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(s)).to(dtype) for s in (0, 1))
        wanted, best, eager, operations = None, {}, {}, 2 * size**3
        for device, driver in DRIVERS.items():
            triton.runtime.driver.set_active(driver)
            x, y = a.to(device), b.to(device)
            eager[device] = tera(lambda x=x, y=y: x @ y, device, operations)
            wanted = (x @ y).float().cpu() if wanted is None else wanted
            for tile in TILES:
                out, jitted = (
                    torch.empty(size, size, dtype=dtype, device="cpu").to(device),
                    triton.jit(product),
                )
                grid = (triton.cdiv(size, tile[0]) * triton.cdiv(size, tile[1]),)

                def work(x=x, y=y, out=out, jitted=jitted, grid=grid, tile=tile, n=size) -> None:
                    jitted[grid](x, y, out, n, n, n, *tile[:3], num_warps=tile[3], num_stages=3)

                try:
                    best[device, tile] = tera(work, device, operations)
                except triton.OutOfResources:  # OpenCL gives 48 KiB of local memory
                    best[device, tile] = math.nan
                    continue
                torch.testing.assert_close(out.float().cpu(), wanted, rtol=2e-2, atol=2e-2 * size**0.5)
        for tile in TILES:
            print(
                f"product {size:5} {str(dtype)[6:]:8} {tile!s:18} TFLOP/s: "
                f"xpu {best['xpu', tile]:6.1f}  cuda {best['cuda', tile]:6.1f}"
            )
        print(
            f"product {size:5} {str(dtype)[6:]:8} eager              "
            f"TFLOP/s: xpu {eager['xpu']:6.1f}  cuda {eager['cuda']:6.1f}",
            flush=True,
        )


def attention() -> None:
    """Print the speed of compiled flex attention on xpu and of the fused kernel; compare the results."""
    from torch.nn.attention.flex_attention import flex_attention

    triton.runtime.driver.set_active(DRIVERS["xpu"])
    compiled = torch.compile(flex_attention, dynamic=False)
    for length, depth, options in [
        (1024, 64, None),
        (4096, 64, None),
        (4096, 64, {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}),
        (4096, 128, {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}),
    ]:
        q, k, v = (torch.randn(4, 16, length, depth).to(torch.bfloat16).to("xpu") for _ in range(3))
        operations = 4 * 4 * 16 * length**2 * depth

        def flex(q=q, k=k, v=v, options=options) -> torch.Tensor:
            return compiled(q, k, v, kernel_options=options)

        def fused(q=q, k=k, v=v) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

        torch.testing.assert_close(flex().float().cpu(), fused().float().cpu(), rtol=2e-2, atol=2e-2)
        speeds = (tera(flex, "xpu", operations), tera(fused, "xpu", operations))
        print(
            f"attention {length:5} x {depth:3} {options} TFLOP/s: flex "
            f"{speeds[0]:6.1f}  fused {speeds[1]:6.1f}",
            flush=True,
        )


def main() -> int:
    """Print the comparison; return 0 if all ratios reach 0.9 and the results agree."""
    if sys.argv[1:]:
        {"products": products, "attention": attention}[sys.argv[1]]()
        return 0
    reached = True
    f32, bf16 = torch.float32, torch.bfloat16
    cases = [(k, 1024, f32) for k in (add, gelu, dropout)]
    cases += [(k, b, f32) for k in (row_sum, softmax, layer_norm) for b in (1024, 4096)]
    cases += [(softmax_of_8, 2048, f32), (add, 1024, bf16)]
    cases += [(k, b, bf16) for k in (softmax, layer_norm) for b in (1024, 4096)]
    launches()
    for kernel, block, dtype in cases:
        (ours, left), (theirs, right) = (prepared(kernel, device, block, dtype) for device in ("xpu", "cuda"))
        rows = N // block if kernel is row_sum else N
        close = 1e-4 if dtype is f32 else 1e-2
        torch.testing.assert_close(left[:rows].cpu(), right[:rows].cpu(), rtol=close, atol=close)
        xpu, cuda = seconds(ours, "xpu"), seconds(theirs, "cuda")
        reached &= cuda / xpu >= 0.9
        print(
            f"{kernel.__name__:12} {str(dtype)[6:]:8} {block:6} xpu {xpu * 1e6:8.1f} µs  cuda "
            f"{cuda * 1e6:8.1f} µs  ratio {cuda / xpu:.2f}",
            flush=True,
        )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
