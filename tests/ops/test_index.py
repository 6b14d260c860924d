"""Indexing: get, put, gather, select, take, masks. Elements are copied, so results are bitwise equal."""

from __future__ import annotations

import pytest
import torch

from .indexing_samples import DTYPES, HALVES, LATE, exact, out_of_range, refused, same

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 50
    return x > 0 if dtype == torch.bool else x.abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)


@by_dtype
def test_get(dtype: torch.dtype) -> None:
    x = numbers(7, 5, 6, dtype=dtype)
    i, j = torch.tensor([[3], [-1], [0]]), torch.tensor([1, -5, 4, 2])
    same(lambda x, i: x[i], x, i)
    same(lambda x, i, j: x[i, j], x, i, j)
    same(lambda x, i, j: x[i, :, j], x, i, j)
    same(lambda x, i, j: x[:, i, j], x, i, j)
    same(lambda x, i, j: x[i, j, 2], x, i, j)
    same(lambda x, j: x.transpose(0, 2)[j], x, j)
    same(lambda x, j: x[:, :, None, j], x, j.abs())
    same(lambda x, i: x[i.int()], x, i)
    same(lambda x: x[x != x], x)
    same(lambda x, m: x[m], x, numbers(7, 5) > 0)
    same(lambda x, m: x[:, m], x, numbers(5, 6) > 0)
    same(lambda x, m, j: x[m, j], x, torch.tensor([True, False, True, True, False, False, True]), j)


def test_get_edges() -> None:
    x = numbers(4, 3)
    same(lambda x: x[torch.empty(0, dtype=torch.long, device=x.device)], x)
    same(lambda x, i: x[i], torch.empty(0, 3), torch.empty(0, 2, dtype=torch.long))
    same(lambda x, i: x[i], x, torch.tensor(2))
    same(lambda x, i: x[i], x, torch.tensor([4]))
    same(lambda x, i: x[i], x, torch.tensor([-5]))
    same(lambda x, i, j: x[i, j], x, torch.tensor([0, 1]), torch.tensor([0, 3]))
    same(lambda x, i: x[i], torch.empty(0, 3), torch.tensor([0]))
    same(lambda x, i, j: x[i, j], x, torch.tensor([0, 1]), torch.tensor([0, 1, 2]))
    same(lambda x, i: x[i, i, i], x, torch.tensor([0]))
    same(lambda x, i: x[i], x, torch.tensor([0.0]))
    same(lambda x, m: x[m], x, torch.tensor([True, False]))
    same(lambda x, i: x.expand(5, 4, 3)[i], x, torch.tensor([3, 4]))
    big = numbers(3, 2, 2, 2, 2, 2, 2, 2, 2, 2)
    order = [9, 1, 8, 2, 7, 0, 6, 3, 5, 4]
    same(lambda x, i: x.permute(order)[i, :, 0], big, torch.tensor([1, 0, 1]))
    same(lambda x, i: x.permute(order)[:, :, :, :, i], big, torch.tensor([1, 0, 1]))
    same(lambda x, i: x[i, i, i, i, i, i], big, torch.tensor([1, 0, 1]))


def test_errors_leave_the_device_usable() -> None:
    x = torch.arange(4.0, device="xpu")
    with out_of_range(IndexError, "index 9 is out of bounds for dimension 0 with size 4"):
        x[torch.tensor([9], device="xpu")]
    assert x[torch.tensor([3], device="xpu")].item() == 3


@by_dtype
def test_put(dtype: torch.dtype) -> None:
    def put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor, accumulate: bool) -> torch.Tensor:
        return x.index_put_((i,), v, accumulate)

    x, v = numbers(9, 5, dtype=dtype), numbers(3, 5, dtype=dtype)
    if LATE or dtype in HALVES:  # whose sums the CPU rounds after each element
        x, v = exact(x), exact(v)
    i, twice = torch.tensor([2, -1, 5]), torch.tensor([2, 2, -7])
    same(put, x, i, v, False)
    same(put, x, i, v[:, :1], False)
    same(put, x, i, v[0, 0], False)
    same(put, x, twice, v, True)
    same(put, x.t(), torch.tensor([2, 2, -3]), v.repeat(1, 2)[:, :9], True)
    same(lambda x, i, j, v: x.index_put_((i, j), v, True), x, twice, torch.tensor([1, 1, -1]), v[:, 0])
    same(lambda x, m, v: x.index_put_((m,), v), x, numbers(9, 5) > 0, v[0, 0])
    same(put, x, torch.tensor([9]), v[:1], False)
    same(put, x, torch.tensor([-10]), v[:1], True)
    same(put, x, i, v[:, :3], False)
    same(put, x, i, v.to(torch.int16 if dtype != torch.int16 else torch.int32), False)


@by_dtype
def test_select_and_gather(dtype: torch.dtype) -> None:
    x = numbers(6, 7, 8, dtype=dtype)
    for dim, size in ((0, 6), (1, 7), (-1, 8)):
        i = torch.randint(size, (5,))
        same(torch.index_select, x, dim, i)
        same(torch.index_select, x.transpose(0, 1), dim, i.clamp(max=5).int())
        refused(torch.index_select, x, dim, torch.tensor([size]))
        refused(torch.index_select, x, dim, torch.tensor([-1]))
        g = torch.randint(size, (4, 5, 6))
        same(torch.gather, x, dim, g)
        same(torch.gather, x, dim, g.transpose(0, 2).contiguous().transpose(0, 2))
        g[1, 2, 3] = size
        same(torch.gather, x, dim, g)
    same(torch.index_select, x, 0, torch.empty(0, dtype=torch.long))
    same(torch.index_select, torch.tensor(3.0), 0, torch.tensor([0]))
    same(torch.index_select, torch.tensor(3.0), 0, torch.tensor([0, 0]))
    refused(torch.index_select, x, 0, torch.zeros(2, 2, dtype=torch.long))
    same(torch.index_select, x, 0, torch.zeros(2))
    same(torch.gather, torch.tensor(3.0), 0, torch.tensor([0]))
    same(torch.gather, torch.tensor(3.0), 0, torch.tensor(0))
    same(torch.gather, x, 0, torch.empty(0, 7, 8, dtype=torch.long))


@pytest.mark.parametrize("length", [3, 4, 13, 8195])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.bfloat16, torch.float32, torch.complex128])
def test_lines_of_any_length(length: int, dtype: torch.dtype) -> None:
    """Each element has its own index; CPU kernels process several elements at once."""
    rows = 3 if length > 1000 else 5
    x, v = numbers(rows, 37, dtype=dtype), numbers(rows, length, dtype=dtype)
    i = torch.randint(37, (rows, length))
    down = torch.randint(rows, (rows, length))
    different = torch.rand(rows, length).argsort(1)  # no place comes up twice
    for index in (i, i.int(), i.t().contiguous().t()):
        same(torch.gather, x, 1, index)
        same(torch.gather, x.t().contiguous().t(), 1, index)
    same(torch.gather, v, 0, down)
    same(torch.gather, v[:, : length // 2 + 1], 1, different.clamp(max=length // 2))
    same(torch.scatter, v, 1, different, v.flip(1))
    same(torch.scatter, v.t().contiguous().t(), 1, different, v)
    small = exact(v)
    same(torch.scatter_add, exact(x), 1, i, small)
    same(torch.scatter_add, exact(x).t().contiguous().t(), 1, i, small.t().contiguous().t())
    same(torch.scatter_add, small, 0, down, small)
    for many in (i[0], i[0] - 37, i[0].int(), torch.where(i[0] % 2 == 0, i[0], i[0] - 37)):
        same(lambda x, i: x[i], x[0], many)
        same(lambda x, i: x[:, i], x, many)
        same(lambda x, i, v: x.index_put_((i,), v, True), exact(x[0]), many, small[0])
    same(torch.take, x, i[0] - 37)
    for place in {0, length // 2, length - 1}:
        beyond = i.clone()
        beyond[rows - 1, place] = 37
        refused(torch.gather, x, 1, beyond)
        refused(torch.scatter, x, 1, beyond, v)
        refused(torch.scatter_add, x, 1, beyond, v)
        before = i[0] - 37
        before[place] = -38
        with out_of_range(IndexError, "index -38 is out of bounds for dimension 0 with size 37"):
            x[0].to("xpu")[before.to("xpu")]


def put_rows(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x[1:-1, 1:-1][i] = v
    return x


@pytest.mark.parametrize("width", [*range(1, 20), 31, 33, 96, 384, 1000, 5000])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.complex128])
def test_rows_of_any_width(width: int, dtype: torch.dtype) -> None:
    same(torch.index_select, numbers(37, width, dtype=dtype), 0, torch.randint(37, (53,)))
    same(torch.index_select, numbers(37, width + 1, dtype=dtype)[:, 1:], 0, torch.randint(37, (53,)))
    chosen = torch.randperm(37)[:23] - 37
    same(put_rows, numbers(39, width + 2, dtype=dtype), chosen, numbers(23, width, dtype=dtype))
    same(put_rows, numbers(39, width + 2, dtype=dtype), chosen, numbers(width, 23, dtype=dtype).t())


@by_dtype
def test_copy_and_fill(dtype: torch.dtype) -> None:
    x = numbers(6, 7, 8, dtype=dtype)
    for dim in range(3):
        i = torch.randperm(6)[:4]
        v = numbers(*[4 if d == dim else n for d, n in enumerate(x.shape)], dtype=dtype)
        same(lambda x, dim, i, v: x.index_copy_(dim, i, v), x, dim, i, v)
        same(lambda x, dim, i: x.index_fill_(dim, i, 1), x, dim, i)
        same(lambda x, dim, i: x.index_fill_(dim, i - 3, 1), x, dim, i)
        same(lambda x, dim, i: x.index_fill_(dim, i, 1), x, dim, torch.tensor([9]))
        refused(lambda x, dim, i, v: x.index_copy_(dim, i, v), x, dim, i + 9, v)
    same(lambda x, i: x.index_fill_(0, i, 2), torch.tensor(1.0), torch.tensor([0]))


@by_dtype
def test_take_and_put(dtype: torch.dtype) -> None:
    x = numbers(5, 6, dtype=dtype)
    i = torch.tensor([[0, -1, 29], [7, -30, 7]])
    v = numbers(2, 3, dtype=dtype)
    if LATE or dtype in HALVES:  # whose sums the CPU rounds after each element
        x, v = exact(x), exact(v)
    same(torch.take, x, i)
    same(torch.take, x.t(), i)
    same(torch.take, x, torch.tensor([30]))
    same(lambda x, i, v: x.put_(i, v), x, torch.tensor([[0, -1], [7, -29]]), v[:, :2])
    same(lambda x, i, v: x.put_(i, v, accumulate=True), x, i, v)
    same(lambda x, i, v: x.t().put_(i, v, accumulate=True), x, i, v)
    same(lambda x, i, v: x.put_(i, v), x, i + 30, v)
    same(lambda x, i, v: x.put_(i, v), x, i, v[:, :2])


@by_dtype
def test_nonzero_and_masks(dtype: torch.dtype) -> None:
    for shape in ((), (1,), (0, 3), (5000,), (70, 80), (3, 4, 5, 6)):
        x = numbers(*shape, dtype=dtype) * (numbers(*shape) > 20).to(dtype)
        same(torch.nonzero, x)
        same(lambda x: torch.nonzero(x, as_tuple=True), x)
        same(lambda x: torch.nonzero(x.transpose(0, -1) if x.dim() else x), x)
        same(lambda x: torch.nonzero_static(x, size=7, fill_value=-9), x)
        mask = numbers(*shape) > 10
        same(torch.masked_select, x, mask)
        same(lambda x, m, s: x.masked_scatter_(m, s), x, mask, numbers(max(1, x.numel()), dtype=dtype))
    x = numbers(4, 5, dtype=dtype)
    same(torch.masked_select, x, torch.tensor([True, False, True, False, True]))
    same(lambda x, m, s: x.masked_scatter_(m, s), x, torch.ones(4, 5, dtype=torch.bool), x[:1])
    same(torch.masked_select, x, torch.ones(4, 5, dtype=torch.uint8))


def test_nonzero_lies_in_memory_as_cudas() -> None:
    # The transpose of a contiguous tensor, also where nothing was found.
    for shape in ((), (0,), (3, 0), (7,), (5, 6), (2, 3, 4), (5, 0, 2), (1, 1)):
        for x in (torch.ones(shape), torch.zeros(shape)):
            found = torch.nonzero(x)
            for got in (torch.nonzero(x.to("xpu")), torch.argwhere(x.to("xpu"))):
                assert torch.equal(got.cpu(), found)
                assert got.stride() == torch.empty(x.dim(), found.size(0)).t().stride()
    out = torch.empty(6, 2, dtype=torch.int64, device="xpu")
    assert torch.nonzero(torch.ones(2, 3, device="xpu"), out=out).stride() == (2, 1)
    assert torch.equal(out.cpu(), torch.nonzero(torch.ones(2, 3)))


def test_nonzero_of_many() -> None:
    x = torch.randint(3, (300, 1001))
    same(torch.nonzero, x)
    same(lambda x: x[x > 1], x)


@by_dtype
def test_roll_and_flip(dtype: torch.dtype) -> None:
    x = numbers(4, 5, 6, dtype=dtype)
    same(torch.roll, x, (1, -2), (0, 2))
    same(torch.roll, x, 7)
    same(torch.flip, x, (0, 2))
    same(torch.flip, x.transpose(0, 1), (1,))
