"""Triton kernels that write to memory that they read: all reads of a block precede its writes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from comparing import assert_close
from inner_run import passes

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

_spec = importlib.util.spec_from_file_location("tile_run", Path(__file__).parent / "run.py")
run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(run)

SIZES = [4, 16, 64]


def numbers(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return normally distributed values on xpu and on the CPU."""
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
def neighbors(x, n: tl.constexpr):
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
        (neighbors, n, lambda r: r - r.roll(-1)),
        (swap, 2 * n, lambda r: r.flip(0)),
    ):
        x, r = numbers(length)
        kernel[(1,)](x, n)
        assert torch.equal(x.cpu(), exact(r)), kernel.fn.__name__
    x, r = numbers(n)
    running_sums_backwards[(1,)](x, n)
    assert_close(x, r.cumsum(0).flip(0))


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
    """Reduce values that the kernel also modifies, as Inductor does."""
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
        assert_close(x, r * r + 1)
        assert_close(out, (r * r + 1).sum()[None])
    x, r = numbers(3, n - 1)
    softmax[(3,)](x, n - 1, n)
    assert_close(x, r.softmax(1))


@triton.jit
def takes_a_number(counter, out, n: tl.constexpr):
    mine = tl.load(counter)
    tl.store(counter, mine + 1)
    i = tl.arange(0, n)
    tl.store(out + mine * n + i, i + mine)


@triton.jit
def takes_a_number_at_once(counter, out, n: tl.constexpr):
    mine = tl.load(counter)
    tl.atomic_add(counter, 1)
    i = tl.arange(0, n)
    tl.store(out + mine * n + i, i + mine)


@pytest.mark.parametrize("n", SIZES)
def test_a_number_that_all_lanes_read(n: int) -> None:
    for kernel in (takes_a_number, takes_a_number_at_once):
        counter = torch.ones(1, dtype=torch.int32, device="xpu")
        out = torch.zeros(4, n, dtype=torch.int32, device="xpu")
        for _ in range(2):
            kernel[(1,)](counter, out, n)
        assert counter.item() == 3, kernel.fn.__name__
        i = torch.arange(n, dtype=torch.int32)
        assert torch.equal(out.cpu(), torch.stack([i * 0, i + 1, i + 2, i * 0])), kernel.fn.__name__


@triton.jit
def add_reversed(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.atomic_add(x + n - 1 - i, tl.load(x + i))


@triton.jit
def exchange_reversed(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.atomic_xchg(x + n - 1 - i, tl.load(x + i)))


@triton.jit
def compare_reversed(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.atomic_cas(x + n - 1 - i, tl.load(x + n - 1 - i), tl.load(x + i)))


@triton.jit
def add_neighbors(x, out, n: tl.constexpr):
    at = x + tl.arange(0, n) // 2
    tl.atomic_add(at, tl.load(at))


@triton.jit
def add_every_other(x, out, n: tl.constexpr):
    at = x + tl.arange(0, n) % 2
    tl.atomic_add(at, tl.load(at))


@triton.jit
def copy_and_count_the_last(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x + i))
    tl.atomic_add(x + n - 1, 1.0)


def check_both(
    kernel: Any,
    n: int,
    exact: Callable[[torch.Tensor], torch.Tensor],
    seen: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Check a kernel's modified memory against `exact` and its other result against `seen`."""
    x, r = numbers(n)
    out = torch.zeros_like(x)
    kernel[(1,)](x, out, n)
    for got, wanted in ((x, exact(r)), (out, seen(r))):
        assert_close(got, wanted, what=kernel.fn.__name__)


@pytest.mark.parametrize("n", SIZES)
def test_atomics(n: int) -> None:
    last = (torch.arange(n) == n - 1).float()
    for kernel, exact, seen in (
        (add_reversed, lambda r: r + r.flip(0), torch.zeros_like),
        (exchange_reversed, lambda r: r.flip(0), lambda r: r.flip(0)),
        (compare_reversed, lambda r: r.flip(0), lambda r: r.flip(0)),
        (add_neighbors, lambda r: torch.cat([r[: n // 2] * 3, r[n // 2 :]]), torch.zeros_like),
        (add_every_other, lambda r: torch.cat([r[:2] * (1 + n // 2), r[2:]]), torch.zeros_like),
        (copy_and_count_the_last, lambda r: r + last, torch.clone),
    ):
        check_both(kernel, n, exact, seen)


@triton.jit
def keep_and_clear(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    v = tl.load(x + i)
    tl.store(x + n - 1 - i, 0.0)
    tl.store(out + i, v)


@triton.jit
def copy_and_clear(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x + i))
    tl.store(x + n - 1 - i, 0.0)


@triton.jit
def add_up_and_clear(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    total = tl.sum(tl.load(x + i), 0)
    tl.store(x + n - 1 - i, 0.0)
    tl.store(out + i, total)


@triton.jit
def keep_and_count(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    v = tl.load(x + i)
    tl.atomic_add(x + n - 1 - i, 1.0)
    tl.store(out + i, v)


@triton.jit
def copy_and_count(x, out, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x + i))
    tl.atomic_add(x + n - 1 - i, 1.0)


@pytest.mark.parametrize("n", SIZES)
def test_numbers_that_come_from_elsewhere(n: int) -> None:
    for kernel, exact, seen in (
        (keep_and_clear, torch.zeros_like, torch.clone),
        (copy_and_clear, torch.zeros_like, torch.clone),
        (add_up_and_clear, torch.zeros_like, lambda r: r.sum().expand(n)),
        (keep_and_count, lambda r: r + 1, torch.clone),
        (copy_and_count, lambda r: r + 1, torch.clone),
    ):
        check_both(kernel, n, exact, seen)


DESCRIPTORS = """
module {{
  tt.func public @k(%x: !tt.ptr<f32>) {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %rows = arith.constant {rows} : i32
    %columns = arith.constant {n} : i32
    %one = arith.constant 1 : i64
    %pitch = arith.constant {n} : i64
    %d = tt.make_tensor_descriptor %x, [%rows, %columns], [%pitch, %one] : !tt.ptr<f32>, !tt.tensordesc<{n}x{n}xf32>
    %r = tt.make_tensor_descriptor %x, [%rows, %columns], [%pitch, %one] : !tt.ptr<f32>, !tt.tensordesc<1x{n}xf32>
    %i = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>
    %last = arith.constant dense<{last}> : tensor<{n}xi32>
    %up = arith.subi %last, %i : tensor<{n}xi32>
    %e = tt.expand_dims %i {{axis = 1 : i32}} : tensor<{n}xi32> -> tensor<{n}x1xi32>
    %f = tt.expand_dims %i {{axis = 0 : i32}} : tensor<{n}xi32> -> tensor<1x{n}xi32>
    %m = arith.constant dense<{n}> : tensor<{n}x1xi32>
    %em = arith.muli %e, %m : tensor<{n}x1xi32>
    %g = tt.broadcast %em : tensor<{n}x1xi32> -> tensor<{n}x{n}xi32>
    %h = tt.broadcast %f : tensor<1x{n}xi32> -> tensor<{n}x{n}xi32>
    %at = arith.addi %g, %h : tensor<{n}x{n}xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<{n}x{n}x!tt.ptr<f32>>
    %p = tt.addptr %xs, %at : tensor<{n}x{n}x!tt.ptr<f32>>, tensor<{n}x{n}xi32>
    {body}
    tt.return
  }}
}}
"""
BLOCK, ROWS = "!tt.tensordesc<{n}x{n}xf32>, tensor<{n}x{n}xf32>", "!tt.tensordesc<1x{n}xf32>"
LOAD = "%v = tt.descriptor_load %d[%c0, %c0] : !tt.tensordesc<{n}x{n}xf32> -> tensor<{n}x{n}xf32>"
PLAIN = "%v = tt.load %p : tensor<{n}x{n}x!tt.ptr<f32>>"
GATHER = (
    f"%v = tt.descriptor_gather %r[%i, %c0] : ({ROWS}, tensor<{{n}}xi32>, i32) -> tensor<{{n}}x{{n}}xf32>"
)
TURN = "%w = tt.trans %v {{order = array<i32: 1, 0>}} : tensor<{n}x{n}xf32> -> tensor<{n}x{n}xf32>"
STORE_TURNED = f"tt.descriptor_store %d[%c0, %c0], %w : {BLOCK}"
STORE_BELOW = f"tt.descriptor_store %d[%c1, %c0], %v : {BLOCK}"
ADD_BELOW = f"tt.descriptor_reduce add, %d[%c1, %c0], %v : {BLOCK}"
SCATTER = f"tt.descriptor_scatter %r[%up, %c0], %v : {ROWS}, tensor<{{n}}xi32>, i32, tensor<{{n}}x{{n}}xf32>"
STORE_PLAIN = "tt.store %p, %w : tensor<{n}x{n}x!tt.ptr<f32>>"


@pytest.mark.parametrize("target", run.TARGETS)
@pytest.mark.parametrize("n", SIZES)
def test_descriptors(n: int, target: str | int) -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:n].t(), x[n:]])

    def below(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:1], x[:n]])

    for lines, exact in (
        ([LOAD, TURN, STORE_TURNED], turned),
        ([PLAIN, TURN, STORE_TURNED], turned),
        ([LOAD, TURN, STORE_PLAIN], turned),
        ([LOAD, STORE_BELOW], below),
        ([PLAIN, STORE_BELOW], below),
        ([LOAD, ADD_BELOW], lambda x: x + torch.cat([x[:1] * 0, x[:n]])),
        ([GATHER, SCATTER], lambda x: torch.cat([x[:n].flip(0), x[n:]])),
    ):
        text = DESCRIPTORS.format(n=n, rows=n + 1, last=n - 1, body="\n    ".join(lines).format(n=n))
        x = torch.randn(n + 1, n, generator=torch.Generator().manual_seed(0))
        wanted = exact(x)
        run.Kernel(text, target)((1,), x.numpy())
        torch.testing.assert_close(x, wanted, msg=lambda m, lines=lines: f"{lines}: {m}")


@pytest.mark.skipif("OPENXPU_TEST_EVERY" in os.environ, reason="this is that run")
def test_lanes_one_after_the_other() -> None:
    """Lanes run sequentially on a CPU whose compiler does not vectorize."""
    passes({Path(__file__): ""}, optimized=False)
