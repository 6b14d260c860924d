"""Indices out of range in every operator with indices: an error, and nothing else is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from inner_run import passes

Function = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
ROWS, GUARD = 4, 3  # rows of the destination, and of the guard areas before and after it


def wide(i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the index of each row for all of its elements."""
    return i[:, None].expand(v.shape)


def reduced(name: str, scatter: bool, include_self: bool) -> Function:
    """Return scatter_reduce_ or index_reduce_ along dimension 0."""
    if scatter:
        return lambda x, i, v: x.scatter_reduce_(0, wide(i, v), v, name, include_self=include_self)
    return lambda x, i, v: x.index_reduce_(0, i, v, name, include_self=include_self)


WRITING: dict[str, Function] = {
    "index_add": lambda x, i, v: x.index_add_(0, i, v),
    "index_add, alpha": lambda x, i, v: x.index_add_(0, i, v, alpha=2),
    "index_add, columns": lambda x, i, v: x.t().index_add_(1, i, v.t()),
    "index_copy": lambda x, i, v: x.index_copy_(0, i, v),
    "index_fill": lambda x, i, v: x.index_fill_(0, i, 5),
    "scatter": lambda x, i, v: x.scatter_(0, wide(i, v), v),
    "scatter, value": lambda x, i, v: x.scatter_(0, wide(i, v), 5),
    "scatter, add": lambda x, i, v: x.scatter_(0, wide(i, v), v, reduce="add"),
    "scatter, multiply": lambda x, i, v: x.scatter_(0, wide(i, v), v, reduce="multiply"),
    "scatter_add": lambda x, i, v: x.scatter_add_(0, wide(i, v), v),
    "scatter_add, index without strides": lambda x, i, v: x.scatter_add_(0, wide(i, v).contiguous(), v),
    "scatter_add, columns": lambda x, i, v: x.t().scatter_add_(1, wide(i, v).t().contiguous(), v.t()),
    "index_put": lambda x, i, v: x.index_put_((i,), v),
    "index_put, sums": lambda x, i, v: x.index_put_((i,), v, accumulate=True),
    "index_put, two sums": lambda x, i, v: x.index_put_((i, i * 0), v[:, 0], accumulate=True),
    "index_put, two sums, the second wrong": lambda x, i, v: x.index_put_(
        (i * 0, i * 1000), v[:, 0], accumulate=True
    ),
    "index_put, two sums of rows": lambda x, i, v: x.view(2, ROWS // 2, -1).index_put_(
        (i * 0, i), v, accumulate=True
    ),
    "index_put, columns": lambda x, i, v: torch.ops.aten.index_put_(x.t(), [None, i], v.t(), True),
    "put": lambda x, i, v: x.put_(i * 1000, v[:, 0]),
    "put, sums": lambda x, i, v: x.put_(i * 1000, v[:, 0], accumulate=True),
}
WRITING |= {
    f"{'scatter' if scatter else 'index'}_reduce, {name}, {include_self}": reduced(
        name, scatter, include_self
    )
    for scatter in (True, False)
    for name in ("prod", "mean", "amax", "amin", *(["sum"] if scatter else []))
    for include_self in (True, False)
}
INTO_NOTHING = {
    name: f
    for name, f in WRITING.items()
    if not name.startswith(("put", "index_put")) and "columns" not in name
}


def refuses(function: Callable[[], object]) -> None:
    with pytest.raises(
        (IndexError, RuntimeError),
        match=r"out of (range|bounds)|empty tensor|should be|max.* ind|lass values|inconsistent|negative",
    ):
        function()
        torch.xpu.synchronize()


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize(
    ("dtype", "columns"),
    [
        (torch.float32, 1),
        (torch.float32, 16),
        (torch.float32, 100),
        (torch.int64, 3),
        (torch.bfloat16, 1),
        (torch.complex64, 40),
    ],
    ids=lambda x: str(x).removeprefix("torch."),
)
def test_destination(name: str, dtype: torch.dtype, columns: int) -> None:
    """One index out of range, alone and among others: all other memory is unchanged."""
    if dtype.is_complex and ("am" in name or "reduce" in name or "index_put" in name and "columns" in name):
        pytest.skip("no order of complex numbers")
    before = torch.arange(1, (ROWS + 2 * GUARD) * columns + 1).view(-1, columns).to(dtype)
    for beyond in (ROWS, ROWS + 5, -ROWS - 5):
        for others in ((), (2,), (2,) * 40):
            memory = before.to("xpu")
            indices = torch.tensor([*others, beyond, *others])
            values = torch.full((indices.numel(), columns), 3, dtype=dtype)
            at = indices.to("xpu")
            refuses(lambda m=memory, i=at, v=values: WRITING[name](m[GUARD : GUARD + ROWS], i, v.to("xpu")))
            after = memory.cpu()
            kept = torch.ones(len(before), dtype=torch.bool)
            # Valid elements may or may not have been written when the error is detected.
            if others:
                kept[GUARD : GUARD + ROWS] = False
                kept[GUARD + 1 if "two" not in name else GUARD + 3] = "put" not in name or "two" in name
            assert torch.equal(after[kept], before[kept]), (beyond, others)


@pytest.mark.parametrize("name", INTO_NOTHING)
@pytest.mark.parametrize("columns", [1, 3, 64])
def test_empty_destination(name: str, columns: int) -> None:
    x, v = torch.zeros(0, columns, device="xpu"), torch.ones(10, columns, device="xpu")
    refuses(lambda: INTO_NOTHING[name](x, torch.zeros(10, dtype=torch.int64, device="xpu"), v))
    INTO_NOTHING[name](x, torch.zeros(0, dtype=torch.int64, device="xpu"), v[:0])  # nothing to write


@pytest.mark.parametrize("name", ["put", "put, sums", "index_put", "index_put, sums"])
def test_flat_empty_destination(name: str) -> None:
    x, v = torch.zeros(0, device="xpu"), torch.ones(1, device="xpu")
    with pytest.raises(IndexError):
        WRITING[name](
            x, torch.zeros(1, dtype=torch.int64, device="xpu"), v[:, None] if "index" not in name else v
        )


READING: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, x.size(1))),
    "take": lambda x, i: x.take(i * 1000),
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[i],
    "index, two": lambda x, i: x[i, i * 0],
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "embedding_bag, max": lambda x, i: F.embedding_bag(i[None], x, mode="max"),
    "embedding_bag, factors": lambda x, i: F.embedding_bag(
        i[None], x, mode="sum", per_sample_weights=torch.ones(1, i.numel(), device="xpu")
    ),
    "embedding_bag, offsets": lambda x, i: F.embedding_bag(torch.zeros(3, device="xpu").long(), x, i),
    "embedding_bag, last offset": lambda x, i: F.embedding_bag(
        torch.zeros(3, device="xpu").long(), x, F.pad(i, (1, 0)), include_last_offset=True
    ),
    "embedding_renorm": lambda x, i: torch.embedding_renorm_(x, i, 1e9, 2.0),
    "embedding backward": lambda x, i: torch.ops.aten.embedding_dense_backward(
        torch.ones(i.numel(), x.size(1), device="xpu"), i, ROWS, -1, False
    ),
    "nll_loss": lambda x, i: F.nll_loss(x[:1, :ROWS].expand(i.numel(), -1), i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:1, :ROWS].expand(i.numel(), -1), i),
    "index, unsafe": lambda x, i: torch.ops.aten._unsafe_index(x, [i]),
    "index, three": lambda x, i: x.view(ROWS, 4, 4)[i * 0, i * 0, i],
    "one_hot": lambda x, i: F.one_hot(i, ROWS),
    "nll_loss2d": lambda x, i: F.nll_loss(
        x[:1, :ROWS, None, None].expand(i.numel(), -1, 1, 1), i[:, None, None]
    ),
    "ctc_loss": lambda x, i: F.ctc_loss(
        torch.zeros(200, 1, ROWS, device="xpu"), i[None], [200], [i.numel()], blank=0
    ),
    "max_unpool2d": lambda x, i: torch.ops.aten.max_unpool2d(
        torch.ones(1, 1, 1, i.numel(), device="xpu"), i[None, None, None], [2, 2]
    ),
    "max_unpool3d": lambda x, i: torch.ops.aten.max_unpool3d(
        torch.ones(1, 1, 1, 1, i.numel(), device="xpu"),
        i[None, None, None, None],
        [1, 2, 2],
        [1, 1, 1],
        [0, 0, 0],
    ),
    "sparse": lambda x, i: torch.sparse_coo_tensor(
        i[None], torch.ones(i.numel(), device="xpu"), (ROWS,), check_invariants=True
    ),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:1, :ROWS].expand(i.numel(), -1), i),
}


@pytest.mark.parametrize("name", READING)
def test_source(name: str) -> None:
    """Operators that read by index reject those out of range, too, and don't change their inputs."""
    for beyond in (ROWS, -ROWS - 5):
        for others in ((), (2,), (2,) * 40):
            x = torch.arange(float(ROWS * 16), device="xpu").view(ROWS, 16)
            indices = torch.tensor([*others, beyond, *others], device="xpu")
            refuses(lambda x=x, i=indices: READING[name](x, i))
            assert torch.equal(x.cpu(), torch.arange(float(ROWS * 16)).view(ROWS, 16))


@pytest.mark.parametrize("late", ["0", "1"])
def test_other_devices(late: str) -> None:
    """The same with the GPU policy and with deferred errors, on a CPU device."""
    chosen = "float32-1- or float32-100- or test_source or empty"
    passes({__file__: chosen}, every=3, optimized=False, OPENXPU_POLICY="gpu", OPENXPU_DEFERRED_ERRORS=late)
