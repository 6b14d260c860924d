"""Scans against PyTorch's CPU in float64 or in the same integer dtype."""

from __future__ import annotations

import pytest
import torch

SHAPES = [(), (5,), (300, 7), (3, 40000), (4, 5, 6)]
REALS = [torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]


def views(shape: tuple[int, ...], dtype: torch.dtype):
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) * (3 if dtype.is_floating_point else 50)).abs().to(dtype)
    yield x, x.to("xpu")
    if len(shape) > 1:
        yield x.transpose(0, -1), x.to("xpu").transpose(0, -1)


@pytest.mark.parametrize("dtype", [*REALS, torch.bool, torch.complex64], ids=str)
def test_cumsum(dtype: torch.dtype) -> None:
    tolerance = {torch.float16: 2e-3, torch.float32: 1e-5, torch.complex64: 1e-5}.get(dtype, 1e-12)
    for shape in SHAPES:
        if dtype == torch.float16 and 40000 in shape:
            continue  # the sums overflow
        for cpu, xpu in views(shape, dtype):
            for dim in range(max(1, cpu.dim())):
                result = xpu.cumsum(dim).cpu()
                wide = (
                    torch.complex128
                    if dtype.is_complex
                    else torch.float64
                    if dtype.is_floating_point
                    else torch.int64
                )
                reference = cpu.to(wide).cumsum(dim)
                assert result.dtype == cpu.cumsum(dim).dtype
                torch.testing.assert_close(result.to(wide), reference, rtol=tolerance, atol=tolerance)


def test_cumprod() -> None:
    x = torch.rand(30, 200, dtype=torch.float64) + 0.5
    for dim in (0, 1):
        torch.testing.assert_close(x.to("xpu").cumprod(dim).cpu(), x.cumprod(dim))
        y = x.to("xpu")
        torch.testing.assert_close(y.cumprod_(dim).cpu(), x.cumprod(dim))
    z = torch.randn(9, 40, dtype=torch.complex128)
    torch.testing.assert_close(z.to("xpu").cumprod(1).cpu(), z.cumprod(1))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("cummin", torch.int32), ("cummin", torch.float32)]
    + [("cummax", dtype) for dtype in (*REALS, torch.bool)],
    ids=str,
)
def test_running_extremes(name: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for cpu, xpu in views(shape, dtype):
            if dtype.is_floating_point and cpu.numel() > 20 and cpu.is_contiguous():
                cpu.view(-1)[13] = float("nan")
                xpu.view(-1)[13] = float("nan")
            for dim in range(max(1, cpu.dim())):
                values, indices = getattr(xpu, name)(dim)
                reference = getattr(cpu, name)(dim)
                assert torch.equal(indices.cpu(), reference.indices)
                torch.testing.assert_close(values.cpu(), reference.values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logcumsumexp(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for cpu, xpu in views(shape, dtype):
            for dim in range(max(1, cpu.dim())):
                torch.testing.assert_close(
                    xpu.logcumsumexp(dim).cpu().double(), cpu.double().logcumsumexp(dim), rtol=1e-5, atol=1e-5
                )
    x = torch.tensor([float("-inf"), float("-inf"), 1.0, float("inf"), 2.0])
    torch.testing.assert_close(x.to("xpu").logcumsumexp(0).cpu(), x.logcumsumexp(0))


def test_backward() -> None:
    x = torch.randn(6, 9, dtype=torch.float64)
    for f in (torch.cumsum, torch.cumprod, torch.logcumsumexp, lambda t, d: torch.cummax(t, d).values):
        a, b = x.clone().requires_grad_(), x.to("xpu").requires_grad_()
        f(a, 1).pow(2).sum().backward()
        f(b, 1).pow(2).sum().backward()
        torch.testing.assert_close(b.grad.cpu(), a.grad)
