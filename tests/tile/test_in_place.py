"""Triton kernels that store to memory that they read: a block is read whole before any of it is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from inner_run import passes

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

SIZES = [4, 16, 64]


def numbers(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normally distributed numbers on xpu, and the same on the CPU."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return x.to("xpu"), x


@triton.jit
def reverse(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + n - 1 - i, tl.load(x + i))


@triton.jit
def shift(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i + 1, tl.load(x + i))


@triton.jit
def neighbours(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i, tl.load(x + i) - tl.load(x + (i + 1) % n))


@triton.jit
def swap(x, n: tl.constexpr):
    i = tl.arange(0, n)
    a, b = tl.load(x + i), tl.load(x + n + n - 1 - i)
    tl.store(x + i, b)
    tl.store(x + n + n - 1 - i, a)


@triton.jit
def running_sums_backwards(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + n - 1 - i, tl.cumsum(tl.load(x + i), 0))


@pytest.mark.parametrize("n", SIZES)
def test_elements_move(n: int) -> None:
    for kernel, length, exact in (
        (reverse, n, lambda r: r.flip(0)),
        (shift, n + 1, lambda r: torch.cat([r[:1], r[:-1]])),
        (neighbours, n, lambda r: r - r.roll(-1)),
        (swap, 2 * n, lambda r: r.flip(0)),
    ):
        x, r = numbers(length)
        kernel[(1,)](x, n)
        assert torch.equal(x.cpu(), exact(r)), kernel.fn.__name__
    x, r = numbers(n)
    running_sums_backwards[(1,)](x, n)
    torch.testing.assert_close(x.cpu(), r.cumsum(0).flip(0))


@triton.jit
def transpose(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i[None, :] * n + i[:, None], tl.load(x + i[:, None] * n + i[None, :]))


@triton.jit
def transpose_values(x, n: tl.constexpr):
    i = tl.arange(0, n)
    at = x + i[:, None] * n + i[None, :]
    tl.store(at, tl.trans(tl.load(at)))


@triton.jit
def symmetric(x, n: tl.constexpr):
    i = tl.arange(0, n)
    at = x + i[:, None] * n + i[None, :]
    v = tl.load(at)
    tl.store(at, v * 2 - tl.trans(v))


@triton.jit
def less_than_the_rows_mean(x, n: tl.constexpr):
    i = tl.arange(0, n)
    at = x + i[:, None] * n + i[None, :]
    v = tl.load(at)
    tl.store(at, v - (tl.sum(v, 1) / n)[:, None])


@pytest.mark.parametrize("n", SIZES)
def test_blocks_of_two_dimensions(n: int) -> None:
    for kernel, exact in (
        (transpose, lambda r: r.t()),
        (transpose_values, lambda r: r.t()),
        (symmetric, lambda r: r * 2 - r.t()),
        (less_than_the_rows_mean, lambda r: r - r.mean(1, keepdim=True)),
    ):
        x, r = numbers(n, n)
        kernel[(1,)](x, n)
        torch.testing.assert_close(x.cpu(), exact(r), msg=lambda m, name=kernel.fn.__name__: f"{name}: {m}")


@triton.jit
def square_and_sum(x, out, m, n: tl.constexpr):
    """As Inductor writes a reduction of what it changes."""
    total = tl.zeros([1, n], tl.float32)
    for at in tl.range(0, m, n):
        i = at + tl.arange(0, n)[None, :]
        v = tl.load(x + i, i < m, other=0.0)
        v = v * v + 1
        total = tl.where(i < m, total + v, total)
        tl.store(x + i, v, i < m)
    tl.store(out + tl.arange(0, 1)[:, None], tl.sum(total, 1)[:, None])


@triton.jit
def softmax(x, m, n: tl.constexpr):
    i = tl.arange(0, n)
    at = x + tl.program_id(0) * m + i
    v = tl.load(at, i < m, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(at, e / tl.sum(e, 0), i < m)


@pytest.mark.parametrize("n", SIZES)
def test_with_reductions(n: int) -> None:
    for m in (n - 1, 3 * n - 1):
        x, r = numbers(m)
        out = torch.zeros(1, device="xpu")
        square_and_sum[(1,)](x, out, m, n)
        torch.testing.assert_close(x.cpu(), r * r + 1)
        torch.testing.assert_close(out.cpu(), (r * r + 1).sum()[None])
    x, r = numbers(3, n - 1)
    softmax[(3,)](x, n - 1, n)
    torch.testing.assert_close(x.cpu(), r.softmax(1))


@triton.jit
def takes_a_number(counter, out, n: tl.constexpr):
    mine = tl.load(counter)
    tl.store(counter, mine + 1)
    i = tl.arange(0, n)
    tl.store(out + mine * n + i, i + mine)


@pytest.mark.parametrize("n", SIZES)
def test_a_number_that_all_lanes_read(n: int) -> None:
    counter = torch.ones(1, dtype=torch.int32, device="xpu")
    out = torch.zeros(4, n, dtype=torch.int32, device="xpu")
    for _ in range(2):
        takes_a_number[(1,)](counter, out, n)
    assert counter.item() == 3
    i = torch.arange(n, dtype=torch.int32)
    assert torch.equal(out.cpu(), torch.stack([i * 0, i + 1, i + 2, i * 0]))


@pytest.mark.skipif("OPENXPU_TEST_EVERY" in os.environ, reason="this is that run")
def test_lanes_one_after_the_other() -> None:
    """As a processor runs them where its compiler makes no vectors of them."""
    passes({Path(__file__): ""}, optimised=False)
