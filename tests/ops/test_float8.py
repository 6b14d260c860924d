"""What PyTorch can do with float8 tensors on the CPU, bit by bit the same on xpu."""

from collections.abc import Callable

import pytest
import torch

DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def every_number(dtype: torch.dtype) -> torch.Tensor:
    """All 256 bit patterns, NaN and infinities among them, in rows."""
    return torch.arange(256).to(torch.uint8).view(dtype).view(16, 16)


def assert_same(xpu: torch.Tensor, cpu: torch.Tensor) -> None:
    assert xpu.is_xpu and xpu.dtype == cpu.dtype and xpu.shape == cpu.shape
    if cpu.dtype == torch.bool:
        assert torch.equal(xpu.cpu(), cpu)
        return
    numbers, expected = xpu.cpu().float(), cpu.float()
    assert torch.equal(numbers.isnan(), expected.isnan())
    assert torch.equal(numbers.nan_to_num(7.0), expected.nan_to_num(7.0))


OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "eq": lambda x: x == x.t(),
    "ne": lambda x: x != x.flip(0),
    "eq number": lambda x: x == 0.3,  # rounded to float8 first
    "isnan": torch.isnan,
    "where": lambda x: torch.where(x == x, x, x.t()),
    "flip": lambda x: x[:, 1:].flip(0),
    "roll": lambda x: x.roll(3, 1),
    "masked_select": lambda x: x.masked_select(x == x),
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_a_cpu_kernel(name: str, dtype: torch.dtype) -> None:
    x = every_number(dtype)
    assert_same(OPERATORS[name](x.to("xpu")), OPERATORS[name](x))


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_products_and_absolute_values_are_rounded_as_on_the_cpu(dtype: torch.dtype) -> None:
    x = every_number(dtype)
    assert_same(x.to("xpu") * x.t().to("xpu"), x * x.t())
    assert_same(x.to("xpu").abs(), x.abs())


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_index_put_adds(dtype: torch.dtype) -> None:
    x = torch.linspace(-4, 4, 24).view(6, 4).to(dtype)
    rows, values = torch.tensor([4, 0, 3]), torch.linspace(-1, 1, 12).view(3, 4).to(dtype)
    got = x.to("xpu").index_put((rows.to("xpu"),), values.to("xpu"), accumulate=True)
    assert_same(got, x.index_put((rows,), values, accumulate=True))


def test_flip_of_rows_moves_bits() -> None:
    x = every_number(torch.float8_e8m0fnu)[:, 1:]
    assert torch.equal(x.to("xpu").flip(1).view(torch.uint8).cpu(), x.view(torch.uint8).flip(1))


def test_arithmetic_that_pytorch_lacks_raises() -> None:
    x = every_number(torch.float8_e4m3fn).to("xpu")
    for fails in (lambda: x + x, lambda: x.sum(), lambda: x < x, lambda: x.exp()):
        with pytest.raises(NotImplementedError, match="Float8_e4m3fn"):
            fails()
