"""User-level Triton kernels on xpu, compared with PyTorch's own operations on the CPU."""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Iterator

import harness
import torch
import triton
import triton.language as tl
from harness import Case
from torch import Tensor


def _configurations() -> list[triton.Config]:
    """Return block sizes that suit GPUs, and some that suit a CPU, whose programs have 16 lanes."""
    blocks = [(128, 256, 64), (64, 256, 32), (128, 128, 32), (128, 64, 32), (64, 64, 32), (64, 32, 32)]
    blocks += [(64, 128, 64), (64, 64, 64), (32, 64, 128), (32, 128, 64), (64, 64, 128), (128, 128, 64)]
    return [
        triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_warps=4, num_stages=2)
        for m, n, k in blocks
    ]


@triton.autotune(configs=_configurations(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    a_row,
    a_column,
    b_row,
    b_column,
    c_row,
    c_column,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Compute c = a @ b with grouped programs, pointers that advance along K, and masks for K and c."""
    tiles_n = tl.cdiv(N, BN)
    group = tl.program_id(0) // (GROUP * tiles_n)
    rows = min(tl.cdiv(M, BM) - group * GROUP, GROUP)
    tile_m = group * GROUP + tl.program_id(0) % (GROUP * tiles_n) % rows
    tile_n = tl.program_id(0) % (GROUP * tiles_n) // rows
    at_m = (tile_m * BM + tl.arange(0, BM)) % M
    at_n = (tile_n * BN + tl.arange(0, BN)) % N
    at_k = tl.arange(0, BK)
    x = a + at_m[:, None] * a_row + at_k[None, :] * a_column
    y = b + at_k[:, None] * b_row + at_n[None, :] * b_column
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(x, mask=at_k[None, :] < K - k * BK, other=0.0)
        right = tl.load(y, mask=at_k[:, None] < K - k * BK, other=0.0)
        total = tl.dot(left, right, total)
        x += BK * a_column
        y += BK * b_row
    to_m, to_n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    tl.store(
        c + to_m[:, None] * c_row + to_n[None, :] * c_column,
        total.to(c.dtype.element_ty),
        mask=(to_m[:, None] < M) & (to_n[None, :] < N),
    )


def matmul(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Launch with the fastest configuration; the first call for a size tries all of them."""
    M, N, K = a.shape[0], b.shape[1], a.shape[1]
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride()
    )


@triton.jit
def nothing():
    """Do nothing, without arguments."""


@triton.jit
def nothing_of_19(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s):  # noqa: E741
    """Do nothing, with nineteen arguments."""


def launches() -> Iterator[Case]:
    """Compare a launch through Triton's launcher with the single call of Inductor's static launcher.

    The call packs the arguments and enqueues the kernel; the difference is the cost of Triton's Python code.
    """
    from openxpu import _bridge

    tensors = [torch.empty(16, device="xpu") for _ in range(5)]
    stream = _bridge._xpu_getCurrentRawStream(0)
    for kernel, arguments, types in (
        (nothing, (), ""),
        (nothing_of_19, (*tensors, *range(3, 17)), "O" * 5 + "i" * 14),
    ):
        function = kernel[(1,)](*arguments).function
        yield Case(
            "launch",
            f"{len(arguments)} arguments, through Triton; directly",
            lambda kernel=kernel, arguments=arguments: kernel[(1,)](*arguments),
            lambda f=function, t=types, a=arguments: _bridge.triton_launch(f, 1, 1, 1, 4, 0, t, a, stream),
            0.0,
        )


def cases() -> Iterator[Case]:
    """Yield launches, and matrix products compared with torch.mm."""
    yield from launches()
    for dtype, bar in ((torch.float32, 0.6), (torch.bfloat16, 0.3)):
        name = str(dtype).removeprefix("torch.")
        a, b = torch.randn(1024, 1024).to(dtype), torch.randn(1024, 1024).to(dtype)
        x, y = a.to("xpu"), b.to("xpu")
        z = torch.empty_like(x)
        matmul(x, y, z)
        torch.testing.assert_close(z.cpu(), a @ b, rtol=1e-2, atol=1e-2 if dtype is torch.float32 else 1.0)
        best = matmul_kernel.best_config
        yield Case(
            "matmul",
            f"1024 {name}, blocks {best.kwargs['BM']}x{best.kwargs['BN']}x{best.kwargs['BK']}",
            lambda x=x, y=y, z=z: matmul(x, y, z),
            lambda a=a, b=b: a @ b,
            bar,
        )


if __name__ == "__main__":
    harness.main(cases)
