"""Sorting and related operators, with the host's kernels and the portable ones."""

from __future__ import annotations

import pytest
import torch
from comparing import assert_close

DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.float64]


def make(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64) * 20
    x = x > 0 if dtype == torch.bool else x.abs().to(dtype) if not dtype.is_floating_point else x.to(dtype)
    if dtype.is_floating_point and x.numel() > 20:
        x.view(-1)[::7] = float("nan")
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(dtype: torch.dtype, descending: bool) -> None:
    for shape in ((), (1,), (33,), (5, 700), (2, 3, 5000)):
        x = make(shape, dtype)
        for cpu, xpu in ((x, x.to("xpu")), (x.transpose(0, -1), x.to("xpu").transpose(0, -1)))[
            : 1 + (x.dim() > 1)
        ]:
            for dim in range(max(1, cpu.dim())):
                values, indices = torch.sort(xpu, stable=True, dim=dim, descending=descending)
                reference = torch.sort(cpu, stable=True, dim=dim, descending=descending)
                assert torch.equal(indices.cpu(), reference.indices)
                assert_close(values, reference.values, rtol=0, atol=0, equal_nan=True)


def test_topk_and_kthvalue() -> None:
    x = torch.randperm(3000).float().view(3, 1000)
    for dim, k in ((1, 1), (1, 10), (0, 2)):
        for largest in (True, False):
            values, indices = torch.topk(x.to("xpu"), k, dim, largest)
            assert torch.equal(values.cpu(), torch.topk(x, k, dim, largest).values)
            assert torch.equal(torch.gather(x, dim, indices.cpu()), values.cpu())
        for result, reference in zip(
            torch.kthvalue(x.to("xpu"), k, dim), torch.kthvalue(x, k, dim), strict=True
        ):
            assert torch.equal(result.cpu(), reference)


def test_what_is_made_of_sorting() -> None:
    x = torch.tensor([3.0, 1.0, 2.0, 1.0, float("nan"), 5.0])
    y = x.to("xpu")
    assert y.median().isnan().item() and y.nanmedian().item() == 2.0
    assert torch.equal(y[:4].argsort(stable=True).cpu(), x[:4].argsort(stable=True))
    assert torch.equal(y[:4].unique().cpu(), x[:4].unique())
    assert torch.equal(torch.searchsorted(y[1:3], y[:4]).cpu(), torch.searchsorted(x[1:3], x[:4]))
    assert torch.equal(torch.bucketize(y[:4], y[1:3]).cpu(), torch.bucketize(x[:4], x[1:3]))
    assert torch.equal(torch.histc(y[:4], 3).cpu(), torch.histc(x[:4], 3))
    assert torch.equal(torch.bincount(y[:4].long()).cpu(), torch.bincount(x[:4].long()))
    assert torch.isin(y[:4], y[1:2]).tolist() == [False, True, False, True]
    assert torch.equal(y[:4].mode().values.cpu(), x[:4].mode().values)
