"""Programs whose lanes don't run in step: values carried by a loop, of fewer elements than a subgroup has lanes.

Intel's CPU compiler without its optimizer runs the lanes of a subgroup one after another between two barriers. A lane
that reads what another has just written would then count twice.
"""

from __future__ import annotations

import os

import pytest
import torch
from inner_run import passes

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

IS_INNER = os.environ.get("OPENXPU_BUILD_OPTIONS") == "-cl-opt-disable"


@triton.jit
def carried(x, sums, products, marks, counts, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.arange(0, ROWS)
    total = tl.zeros([ROWS], tl.float32)
    product = tl.full([ROWS], 1.0, tl.float32)
    mark = tl.zeros([ROWS], tl.int32)
    count = tl.zeros([ROWS], tl.int64)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = (at < n)[None, :]
        block = tl.load(x + row[:, None] * n + at[None, :], mask=inside, other=0.0)
        total += tl.sum(block, 1)
        product *= 1 + tl.max(block, 1)
        mark ^= tl.sum(tl.where(block > 0, at[None, :], 0), 1)
        count += tl.sum((block > 0).to(tl.int64), 1) + 1
    tl.store(sums + row, total)
    tl.store(products + row, product)
    tl.store(marks + row, mark)
    tl.store(counts + row, count)


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("n, block", [(5, 8), (40, 8), (100, 32), (128, 64)])
def test_carried(rows: int, n: int, block: int) -> None:
    x = torch.randint(-2, 3, (rows, n), generator=torch.Generator().manual_seed(n + rows)).float()
    dtypes = (torch.float32, torch.float32, torch.int32, torch.int64)
    found = [torch.zeros(rows, dtype=dtype, device="xpu") for dtype in dtypes]
    carried[(1,)](x.to("xpu"), *found, n, ROWS=rows, BLOCK=block)
    blocks = [x[:, first : first + block] for first in range(0, n, block)]
    padded = [b if b.shape[1] == block else torch.cat([b, torch.zeros(rows, 1)], 1) for b in blocks]
    products = torch.stack([1 + b.max(1).values for b in padded]).prod(0)
    marks = torch.zeros(rows, dtype=torch.int32)
    for i, b in enumerate(blocks):
        at = torch.arange(i * block, i * block + b.shape[1])
        marks ^= torch.where(b > 0, at, 0).sum(1).to(torch.int32)
    expected = (x.sum(1), products, marks, (x > 0).sum(1) + len(blocks))
    for name, got, want in zip(("sum", "product", "mark", "count"), found, expected, strict=True):
        assert torch.equal(got.cpu(), want.to(got.dtype)), name  # small integers: exact


@pytest.mark.skipif(IS_INNER, reason="this is the inner run")
def test_without_the_optimizer() -> None:
    passes({__file__: "test_carried"}, optimized=False)
