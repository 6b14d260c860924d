"""Scans against PyTorch's CPU in float64 or in the same integer dtype."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from comparing import assert_close

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
        assert_close(x.to("xpu").cumprod(dim), x.cumprod(dim))
        y = x.to("xpu")
        assert_close(y.cumprod_(dim), x.cumprod(dim))
    z = torch.randn(9, 40, dtype=torch.complex128)
    assert_close(z.to("xpu").cumprod(1), z.cumprod(1))


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
                assert_close(values, reference.values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logcumsumexp(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for cpu, xpu in views(shape, dtype):
            for dim in range(max(1, cpu.dim())):
                torch.testing.assert_close(
                    xpu.logcumsumexp(dim).cpu().double(), cpu.double().logcumsumexp(dim), rtol=1e-5, atol=1e-5
                )
    x = torch.tensor([float("-inf"), float("-inf"), 1.0, float("inf"), 2.0])
    assert_close(x.to("xpu").logcumsumexp(0), x.logcumsumexp(0))


def log_sums(x: torch.Tensor) -> np.ndarray:
    """logcumsumexp of rows, in C's long double."""
    rows = x.double().numpy().astype(np.longdouble)
    greatest, out = np.maximum.accumulate(rows, 1), np.empty_like(rows)
    total, before = np.zeros(len(rows), np.longdouble), greatest[:, 0]
    for k in range(rows.shape[1]):
        total = total * np.exp(before - greatest[:, k]) + np.exp(rows[:, k] - greatest[:, k])
        before, out[:, k] = greatest[:, k], total
    return greatest + np.log(out)


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="needs fp64")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("count", [1, 2, 10, 700, 5000])
def test_logcumsumexp_is_as_exact_as_the_cpus(dtype: torch.dtype, count: int) -> None:
    """Next to zeros of the result, too, where the logarithm cancels the greatest element."""
    torch.manual_seed(count)
    x = torch.randn(max(1, 1000 // count), count, dtype=torch.float64)
    families = [
        x,
        x.sort(1).values,
        x.sort(1, descending=True).values,
        x * 30,
        x - math.log(count) - 0.5,
        torch.full_like(x, 0.3) - math.log(count / 2),
    ]
    for case in families:
        rows = case.to(dtype)
        exact = log_sums(rows)
        unit = np.ldexp(torch.finfo(dtype).eps / 2, np.frexp(exact.astype(float))[1])

        def error(actual: torch.Tensor, exact: np.ndarray = exact, unit: np.ndarray = unit) -> float:
            return float((np.abs(actual.double().numpy() - exact) / unit).max())

        by_columns = rows.t().contiguous().to("xpu").logcumsumexp(0).t().cpu()
        allowed = max(error(rows.logcumsumexp(1)), 0.51)
        assert error(rows.to("xpu").logcumsumexp(1).cpu()) <= allowed
        assert error(by_columns) <= allowed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_logcumsumexp_of_extremes(dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    extremes = (0.0, -0.0, 1.0, -5.0, inf, -inf, nan, 6e4, -6e4, 80.0)
    rows = torch.tensor(list(itertools.product(extremes, repeat=3))).to(dtype)
    for x in (rows, rows[:200].repeat(1, 40), rows.t()):
        ours, expected = x.to("xpu").logcumsumexp(1).cpu(), x.logcumsumexp(1)
        torch.testing.assert_close(ours, expected, equal_nan=True)
        assert torch.equal(ours.signbit() & ~ours.isnan(), expected.signbit() & ~expected.isnan())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_logcumsumexp_of_complex_numbers(dtype: torch.dtype) -> None:
    tolerance = {"rtol": 2e-5, "atol": 2e-5} if dtype == torch.complex64 else {}
    torch.manual_seed(0)
    for shape in ((), (5,), (300, 7), (4, 5, 6)):
        x = torch.randn(shape, dtype=torch.complex128)
        for cpu in (x, x.transpose(0, -1)) if x.dim() > 1 else (x,):
            for dim in range(max(1, cpu.dim())):
                ours, sums = cpu.to("xpu", dtype).logcumsumexp(dim).cpu(), cpu.exp().cumsum(dim)
                assert ours.dtype == dtype and ours.shape == cpu.shape
                # where the sum is near 0, its logarithm is inaccurate
                sure = sums.abs() > 0.05 * cpu.abs().exp().cumsum(dim).sqrt()
                torch.testing.assert_close(ours.to(x.dtype).exp()[sure], sums[sure], rtol=1e-3, atol=1e-3)
                if cpu.shape[dim : dim + 1].numel() < 10:
                    expected = cpu.to(dtype).logcumsumexp(dim)
                    torch.testing.assert_close(ours[sure], expected[sure], **tolerance)
    inf, nan = float("inf"), float("nan")
    edges = (
        ((-inf, 0), (-inf, 2), (1, 2), (inf, 0), (3, 1)),
        ((0, 1), (inf, 1), (inf, 1)),
        ((1, 1), (nan, 0), (2, 0)),
    )
    for numbers in edges:
        z = torch.tensor([complex(*number) for number in numbers], dtype=dtype)
        assert_close(z.to("xpu").logcumsumexp(0), z.logcumsumexp(0), equal_nan=True)
    # few long rows are cut in chunks
    z = torch.randn(2, 40000, dtype=dtype) * 1j
    torch.testing.assert_close(
        z.to("xpu").logcumsumexp(1)[:, -1].cpu().real,
        z.to(torch.complex128).exp().sum(1).abs().log().to(z.real.dtype),
        rtol=1e-4,
        atol=1e-4,
    )


def test_backward() -> None:
    x = torch.randn(6, 9, dtype=torch.float64)
    for f in (torch.cumsum, torch.cumprod, torch.logcumsumexp, lambda t, d: torch.cummax(t, d).values):
        a, b = x.clone().requires_grad_(), x.to("xpu").requires_grad_()
        f(a, 1).pow(2).sum().backward()
        f(b, 1).pow(2).sum().backward()
        assert_close(b.grad, a.grad)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_results_whose_elements_lie_on_each_other_are_refused(name: str) -> None:
    x, one = torch.randn(3, 5, device="xpu"), torch.zeros(3, 1, device="xpu")
    pairs = name in ("cummax", "cummin")
    outs = [one.expand(3, 5), torch.zeros(3, 5, dtype=torch.int64, device="xpu")]
    for values, indices in (outs, [torch.zeros_like(x), outs[1][:, :1].expand(3, 5)])[: 1 + pairs]:
        with pytest.raises(RuntimeError, match="single memory location"):
            getattr(torch, name)(x, 1, out=(values, indices) if pairs else values)
    assert not one.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(30_000,), (1_000, 40), (40, 3_000), (7, 5_000), (100_000, 1)], ids=str)
@pytest.mark.parametrize("name", ["cumprod", "cumsum", "prod"])
def test_many_numbers_do_not_drift(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Rounding each product of values near 1 to even would give a bias that grows with their number."""
    generator = torch.Generator().manual_seed(3)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    x = (1 + 1e-4 * torch.randn(shape, dtype=wide, generator=generator)).to(dtype)
    for dim in range(len(shape)):
        got = getattr(x.to("xpu"), name)(dim).cpu()
        if dtype == torch.float64:
            exact = np.cumsum if name == "cumsum" else np.cumprod
            wanted = torch.from_numpy(exact(x.numpy().astype(np.longdouble), dim).astype(np.float64))
            wanted = wanted.select(dim, -1) if name == "prod" else wanted
            limit = 1e-12
        else:
            wanted, limit = getattr(x.to(wide), name)(dim), 2.5e-7
        assert ((got - wanted).abs() / wanted.abs()).max().item() < limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("length", [3, 40, 70_000])
def test_infinities_and_nan_in_running_sums_and_products(length: int, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    inf = math.inf
    cases = [
        [1.0, inf, 2.0],
        [inf, -inf, 1.0],
        [math.nan, 1.0, 1.0],
        [0.0, inf, 1.0],
        [2.0, 0.0, -3.0],
        [largest, 2, 1],
    ]
    for values in cases:
        x = torch.ones(length, dtype=dtype)
        x[:3] = torch.tensor(values)
        for name in ("cumsum", "cumprod"):
            got, wanted = getattr(x.to("xpu"), name)(0).cpu(), getattr(x, name)(0)
            if dtype == torch.float16:
                wanted = getattr(x.float(), name)(0).half()
            torch.testing.assert_close(got, wanted, equal_nan=True)
        wide = x if dtype == torch.float64 else x.float()
        assert_close(x.to("xpu").prod(), wide.prod().to(dtype), equal_nan=True)
