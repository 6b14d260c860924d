"""cat: dimensions, dtypes, layouts."""

from __future__ import annotations

import pytest
import torch

from .indexing_samples import same
from .test_index import by_dtype, numbers


@by_dtype
def test_dimensions(dtype: torch.dtype) -> None:
    for dim in range(-3, 3):
        parts = [
            numbers(*[n if d != dim % 3 else k for d, n in enumerate((4, 5, 6))], dtype=dtype)
            for k in (1, 7, 0, 33)
        ]
        same(torch.cat, parts, dim)
        same(lambda p, dim: torch.cat([x.transpose(0, 2) for x in p], -1 - dim % 3), parts, dim)
    same(torch.stack, [numbers(3, dtype=dtype) for _ in range(70)], 1)
    same(torch.stack, [numbers(3, 40, dtype=dtype) for _ in range(70)], 0)


@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 255, 1000, 5003])
def test_widths(width: int) -> None:
    same(torch.cat, [numbers(19, width), numbers(19, 3), numbers(19, width)], 1)
    same(torch.cat, [numbers(width), numbers(3)])


@pytest.mark.parametrize("rows", [1, 7, 300, 20011])
@pytest.mark.parametrize("widths", [(1, 2, 1), (3, 1), (16, 5), (64, 7, 65), (33,) * 31])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.complex128])
def test_rows_of_many(rows: int, widths: tuple[int, ...], dtype: torch.dtype) -> None:
    if rows * sum(widths) < 5_000_000:
        same(torch.cat, [numbers(rows, width, dtype=dtype) for width in widths], 1)


def test_long_rows() -> None:
    same(torch.cat, [numbers(300, 5003), numbers(300, 1), numbers(300, 70)], 1)
    same(torch.cat, [numbers(9, 50021), numbers(9, 3)], 1)


def test_mixed() -> None:
    same(
        torch.cat,
        [
            numbers(3, 4, dtype=torch.int32),
            numbers(3, 4, dtype=torch.float16),
            numbers(3, 4, dtype=torch.bool),
        ],
    )
    same(torch.cat, [torch.empty(0), numbers(3, 4), torch.empty(0)], 1)
    same(torch.cat, [torch.empty(0), torch.empty(0)])
    same(torch.cat, [numbers(3, 4), numbers(3, 5)])
    same(torch.cat, [])
    same(torch.cat, [torch.tensor(1.0), torch.tensor(2.0)])
    same(lambda x: torch.cat([x, x.expand(3, 4), x[:1].expand(2, 4)]), numbers(3, 4))


@pytest.mark.parametrize("dim", range(4))
def test_channels_last(dim: int) -> None:
    parts = [numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last) for _ in range(3)]
    same(torch.cat, parts, dim)
    result = torch.cat([x.to("xpu") for x in parts], dim)
    assert result.is_contiguous(memory_format=torch.channels_last)
    same(torch.cat, [parts[0], parts[1].contiguous()], dim)


def test_out() -> None:
    def into(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.cat([a, b], 1, out=out)

    same(into, numbers(3, 4), numbers(3, 2), numbers(3, 6))
    same(into, numbers(3, 4), numbers(3, 2), numbers(6, 3).t())
    same(into, numbers(3, 4), numbers(3, 2), numbers(3, 6, dtype=torch.float64))
