"""The same Triton kernels through openxpu's OpenCL and through Triton's CUDA backend, on one NVIDIA GPU.

Needs a CUDA build of PyTorch with its Triton, and openxpu built against it; start it by
`openxpu run bench/gpu/triton_kernels.py`. A ratio is CUDA's time over xpu's: above 1 xpu is faster.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

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


def nothing():
    pass


def nothing_of_19(a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t):
    pass


DRIVERS = {"xpu": XPUDriver(), "cuda": CudaDriver()}
N = 1 << 26


def prepared(
    kernel: Callable[..., None], device: str, block: int, dtype: torch.dtype
) -> tuple[Callable[[], object], torch.Tensor]:
    """Return the launch of a kernel on a device, compiled, and what it writes."""
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
    """Print the host's time of a launch from Python, through Triton's own launcher."""
    for kernel, count in ((nothing, 0), (nothing_of_19, 19)):
        times = {}
        for device, driver in DRIVERS.items():
            triton.runtime.driver.set_active(driver)
            jitted = triton.jit(kernel)
            tensors = [torch.empty(16, device="cpu").to(device) for _ in range(5)]
            arguments = [*tensors, *range(3, 17)] if count else []
            wait = getattr(torch, device).synchronize
            best = float("inf")
            for _ in range(8):  # the first compiles
                wait()
                start = time.perf_counter()
                for _ in range(300):
                    jitted[(1,)](*arguments)
                best = min(best, (time.perf_counter() - start) / 300)
            wait()
            times[device] = best
        print(
            f"launch, {count:2} arguments     xpu {times['xpu'] * 1e6:8.1f} µs  cuda {times['cuda'] * 1e6:8.1f} µs",
            flush=True,
        )


def main() -> int:
    """Print the comparison; 0 when all ratios reach 0.9 and the results agree."""
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
            f"{kernel.__name__:12} {str(dtype)[6:]:8} {block:6} xpu {xpu * 1e6:8.1f} µs  cuda {cuda * 1e6:8.1f} µs  ratio {cuda / xpu:.2f}",
            flush=True,
        )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
