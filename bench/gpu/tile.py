"""Triton kernels through libxpu's compiler and OpenCL beside Triton's own CUDA backend, on one NVIDIA GPU.

    OPENXPU_LIBRARY=build/libxpu.so OPENXPU_DEVICE=gpu PYTHONPATH=python python bench/gpu/tile.py

The libxpu side compiles the IR of ``tests/tile/data``; the CUDA side the same kernels from their source.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

os.environ["OPENXPU_TILE_DEVICE"] = "1"
TILE = Path(__file__).parents[2] / "tests" / "tile"
_spec = importlib.util.spec_from_file_location("tile_run", TILE / "run.py")
run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(run)
xpu = run._xpu


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    mask = at < n
    tl.store(o + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def layernorm(X, Y, W, Bi, Mean, Rstd, stride, N, eps, B: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    total = tl.zeros([B], dtype=tl.float32)
    for off in range(0, N, B):
        c = off + tl.arange(0, B)
        total += tl.load(X + c, mask=c < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros([B], dtype=tl.float32)
    for off in range(0, N, B):
        c = off + tl.arange(0, B)
        x = tl.load(X + c, mask=c < N, other=0.0).to(tl.float32)
        x = tl.where(c < N, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, B):
        c = off + tl.arange(0, B)
        m = c < N
        x = tl.load(X + c, mask=m, other=0.0).to(tl.float32)
        w, b = tl.load(W + c, mask=m), tl.load(Bi + c, mask=m)
        tl.store(Y + c, (x - mean) * rstd * w + b, mask=m)


def best(work: Callable[[], None], finish: Callable[[], None], repeats: int = 10) -> float:
    """Return the least time of one call, in seconds, of several timed in tens."""
    times = []
    for _ in range(repeats):
        finish()
        start = time.perf_counter()
        for _ in range(10):
            work()
        finish()
        times.append((time.perf_counter() - start) / 10)
    return min(times)


class Device:
    """Memory and launches on libxpu's device 0."""

    def __init__(self) -> None:
        self.stream = ctypes.c_void_p()
        run.check(xpu.xpu_stream_default(0, ctypes.byref(self.stream)))

    def memory(self, size: int) -> int:
        pointer, one = ctypes.c_void_p(), ctypes.c_int(0)
        run.check(xpu.xpu_malloc(self.stream, ctypes.c_size_t(size), ctypes.byref(pointer)))
        run.check(
            xpu.xpu_memset(self.stream, pointer, ctypes.byref(one), ctypes.c_size_t(4), ctypes.c_size_t(size))
        )
        return pointer.value

    def launcher(self, kernel: run.Kernel, grid: tuple[int, int, int], *values: bytes) -> Callable[[], None]:
        p = kernel.program
        packed = (ctypes.c_char * p.params_size)()
        for value, param in zip(values, p.params, strict=True):
            packed[param.offset : param.offset + param.size] = value[: param.size]
        packed[p.grid_offset : p.grid_offset + 12] = b"".join(g.to_bytes(4, "little") for g in grid)
        shape = run._Range(3, (ctypes.c_size_t * 3)(*grid), (ctypes.c_size_t * 3)(p.local_size, 1, 1), 0)
        size = ctypes.c_size_t(p.params_size)
        return lambda: run.check(
            xpu.xpu_launch(self.stream, kernel.kernel, ctypes.byref(shape), packed, size)
        )

    def finish(self) -> None:
        run.check(xpu.xpu_stream_synchronize(self.stream))


def main() -> None:
    """Print bandwidths side by side."""
    device = Device()
    with tarfile.open(TILE / "data" / "ttir.tar.xz") as archive:
        wanted = ("ttir/hand_vadd.ttir", "ttir/hand_layernorm_fwd.ttir")
        ir = {name: archive.extractfile(name).read().decode() for name in wanted}
    address = lambda a: a.to_bytes(8, "little")  # noqa: E731
    integer = lambda v: v.to_bytes(4, "little")  # noqa: E731

    n = 1 << 26
    ours = device.launcher(
        run.Kernel(ir[wanted[0]]),
        (n // 1024, 1, 1),
        *(address(device.memory(4 * n)) for _ in range(3)),
        integer(n),
    )
    x, y, o = (torch.ones(n, device="cuda") for _ in range(3))
    theirs = lambda: add[(n // 1024,)](x, y, o, n, B=1024)  # noqa: E731
    report("add", 12 * n, best(ours, device.finish), best(theirs, torch.cuda.synchronize))

    rows, columns = 1 << 16, 1024
    halves = 2 * rows * columns
    epsilon = b"\xac\xc5\x27\x37"  # 1e-5 as float32
    memory = [device.memory(s) for s in (halves, halves, 2 * columns, 2 * columns, 4 * rows, 4 * rows)]
    ours = device.launcher(
        run.Kernel(ir[wanted[1]]),
        (rows, 1, 1),
        *map(address, memory),
        integer(columns),
        integer(columns),
        epsilon,
    )
    xh = torch.ones(rows, columns, device="cuda", dtype=torch.half)
    yh, w = torch.empty_like(xh), torch.ones(columns, device="cuda", dtype=torch.half)
    mean = torch.empty(rows, device="cuda")
    theirs = lambda: layernorm[(rows,)](xh, yh, w, w, mean, mean, columns, columns, 1e-5, B=1024)  # noqa: E731
    report("layernorm", 2 * halves, best(ours, device.finish), best(theirs, torch.cuda.synchronize))


def report(name: str, size: int, ours: float, theirs: float) -> None:
    """Print one line: bandwidths in GB/s and their ratio."""
    print(
        f"{name:10} libxpu {size / ours / 1e9:7.0f} GB/s   CUDA {size / theirs / 1e9:7.0f} GB/s   {theirs / ours:.2f}"
    )


if __name__ == "__main__":
    main()
