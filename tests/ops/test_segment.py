"""Reductions of segments, forward and backward, against the CPU's in float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from comparing import assert_close_with_gradients
from openxpu import _bridge

REDUCTIONS = ["sum", "mean", "max", "min", "prod"]
# the table's is for sums of thousands
TIMES = {torch.float64: 0.1, torch.float32: 0.5, torch.float16: 0.75, torch.bfloat16: 1}


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def compare(data: torch.Tensor, reduce: str, **given: object) -> None:
    """Compare result and gradient, with lengths or offsets, with the CPU in float64."""
    assert_close_with_gradients(
        lambda x, *values: torch.segment_reduce(x, reduce, **dict(zip(given, values, strict=True))),
        data.detach().requires_grad_(),
        *given.values(),
        times=TIMES,
        gradient_times={dtype: 4 * times for dtype, times in TIMES.items()},
        equal_nan=True,
    )


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (torch.rand(shape, dtype=torch.float64) + 0.5).mul(torch.randn(shape).sign()).to(dtype)


@pytest.mark.parametrize("dtype", TIMES, ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_lengths_and_offsets(reduce: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([3, 0, 1, 70, 5, 0])
    for shape in ((79,), (79, 1), (79, 3), (79, 33), (79, 2, 9)):
        for initial in (None, 2):
            data = numbers(shape, dtype)
            compare(data, reduce, lengths=lengths, axis=0, initial=initial)
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
            compare(data, reduce, offsets=offsets, axis=0, initial=initial)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_each_row_has_lengths_of_its_own(reduce: str, index: torch.dtype) -> None:
    torch.manual_seed(1)
    lengths = torch.tensor([[2, 4, 1], [7, 0, 0], [0, 3, 4]], dtype=index)
    for inner in ((), (5,), (40,)):
        data = numbers((3, 7, *inner), torch.float64)
        compare(data, reduce, lengths=lengths, axis=1)
        compare(data.movedim(0, 1).contiguous().movedim(1, 0), reduce, lengths=lengths, axis=-1 - len(inner))


@pytest.mark.parametrize("reduce", ["max", "min", "prod", "sum", "mean"])
def test_ties_zeros_and_nan(reduce: str) -> None:
    x = torch.tensor([1.0, 1.0, 0.0, 0.0, -2.0, torch.nan, 3.0, 3.0, 3.0, -1.0], dtype=torch.float64)
    compare(x, reduce, lengths=torch.tensor([4, 3, 3]))
    compare(x[:, None].expand(-1, 17).contiguous(), reduce, lengths=torch.tensor([4, 3, 3]))


def test_elements_in_no_segment_have_no_gradient() -> None:
    data = torch.arange(8.0, device="xpu").requires_grad_()
    result = torch.segment_reduce(data, "sum", offsets=torch.tensor([2, 4, 7], device="xpu"))
    result.sum().backward()
    assert result.tolist() == [5.0, 15.0]
    assert data.grad.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]


def test_what_does_not_fit() -> None:
    data = torch.randn(6, 2, device="xpu")
    lengths = torch.tensor([2, 3], device="xpu")
    with pytest.raises(RuntimeError, match="sum to"):
        torch.segment_reduce(data, "sum", lengths=lengths)
    with pytest.raises(RuntimeError, match="negative"):
        torch.segment_reduce(data, "sum", lengths=torch.tensor([7, -1], device="xpu"))
    with pytest.raises(RuntimeError, match="Either lengths or offsets"):
        torch.segment_reduce(data, "sum")
    with pytest.raises(RuntimeError, match="last dimension of lengths"):
        torch.segment_reduce(data, "sum", lengths=lengths, axis=1)
    with pytest.raises(RuntimeError, match="don't fit data"):
        torch.segment_reduce(data, "sum", lengths=torch.ones(5, 2, dtype=torch.int64, device="xpu"), axis=1)
    with pytest.raises(RuntimeError, match="not implemented for 'Int'"):
        torch.segment_reduce(data.int(), "sum", lengths=torch.tensor([2, 4], device="xpu"))
    empty = torch.segment_reduce(
        torch.empty(0, 3, device="xpu"), "mean", lengths=torch.zeros(2, dtype=torch.int64, device="xpu")
    )
    assert empty.shape == (2, 3) and empty.isnan().all()
