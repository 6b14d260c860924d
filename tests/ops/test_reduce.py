"""Reductions against PyTorch's CPU in float64 or in the same integer dtype."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable

import pytest
import torch
from comparing import assert_close

ALL = os.environ.get("OPENXPU_TEST_ALL") == "1"
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]

# One shape for each launch: short and long rows, columns, scalars, several reduced dimensions, chunks and partials.
SHAPES = [(), (1,), (7,), (1000,), (70, 64), (64, 300), (300, 17), (3, 70001), (20011, 3), (4, 100, 33)]
FEW_SHAPES = [(), (64, 300), (4, 20, 33)]  # for dtypes whose launches are those of float32
EPSILON = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6, torch.float64: 1e-14}


def make(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash((shape, str(dtype))) % 2**31)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if dtype.is_complex:
        return torch.complex(x, torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    return (x > 0.5) if dtype == torch.bool else (x if dtype.is_floating_point else (x * 40).abs()).to(dtype)


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    views = [x]
    if x.dim() > 1:
        views.append(x.transpose(0, -1))
        views.append(x[..., ::2])
    return views


def dims_of(x: torch.Tensor) -> list[tuple[int, ...]]:
    every = range(x.dim())
    return [dims for n in range(1, x.dim() + 1) for dims in itertools.combinations(every, n)]


def cases(dtype: torch.dtype):
    """Yield tensors on the CPU and on the device.

    Each layout and shape needs several kernels: without ALL float32 has all shapes, other dtypes two, each shape in one
    layout.
    """
    is_main = dtype == torch.float32 or (ALL and dtype == torch.int64)
    turn = (FLOATS + INTEGERS + COMPLEX).index(dtype)
    shapes = SHAPES if is_main else FEW_SHAPES if ALL else [FEW_SHAPES[0], FEW_SHAPES[1 + turn % 2]]
    for number, shape in enumerate(shapes):
        views = layouts(make(shape, dtype))
        for cpu in views if ALL else [views[(turn // 2 + number) % len(views)]]:
            xpu = cpu.to("xpu")
            if cpu.stride() != xpu.stride():
                xpu = make(shape, dtype).to("xpu")
                xpu = xpu[..., ::2] if cpu.shape[-1] != shape[-1] else xpu.transpose(0, -1)
            yield cpu, xpu


def assert_sum(result: torch.Tensor, reference: torch.Tensor, scale: torch.Tensor) -> None:
    """Return the error bound: the rounding of a sum, plus a small share of the sum of magnitudes."""
    assert result.shape == reference.shape
    if not (result.dtype.is_floating_point or result.dtype.is_complex):
        assert torch.equal(result.cpu(), reference.to(result.dtype))
        return
    real = result.dtype.to_real() if result.dtype.is_complex else result.dtype
    computed = EPSILON[torch.float32] if real in (torch.float16, torch.bfloat16) else EPSILON[real]
    error = (result.cpu().to(reference.dtype) - reference).abs()
    assert (error <= EPSILON[real] * reference.abs() + 4 * computed * scale + 1e-30).all()


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + COMPLEX, ids=str)
def test_sum(dtype: torch.dtype) -> None:
    for cpu, xpu in cases(dtype):
        wide = (
            torch.complex128
            if dtype.is_complex
            else torch.float64
            if dtype.is_floating_point
            else torch.int64
        )
        exact = cpu.to(wide)
        for dims in dims_of(cpu):
            assert_sum(xpu.sum(dims), exact.sum(dims), exact.abs().sum(dims))
            assert xpu.sum(dims, keepdim=True).shape == cpu.sum(dims, keepdim=True).shape
        assert_sum(xpu.sum(), exact.sum(), exact.abs().sum())


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX, ids=str)
def test_mean(dtype: torch.dtype) -> None:
    for cpu, xpu in cases(dtype):
        exact = cpu.to(torch.complex128 if dtype.is_complex else torch.float64)
        for dims in dims_of(cpu):
            assert_sum(xpu.mean(dims), exact.mean(dims), exact.abs().mean(dims))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_complex_numbers_with_a_part_that_is_nan_count_for_nothing(dtype: torch.dtype) -> None:
    """The CPU has no kernels for them."""
    for cpu, _ in cases(dtype):
        x, nan = cpu.clone(), float("nan")
        flat = x.view(-1) if x.is_contiguous() else x.t().view(-1) if x.dim() == 2 else x.reshape(-1)
        for n, bad in enumerate((complex(nan, 1), complex(1, nan), complex(nan, nan))):
            flat[n::11] = bad
        for dims in [*dims_of(x), tuple(range(x.dim()))]:
            exact = x.to(torch.complex128).where(~x.isnan(), 0)
            scale = exact.abs().sum(dims)
            assert_sum(x.to("xpu").nansum(dims), exact.sum(dims), scale)
            count = (~x.isnan()).sum(dims)
            if count.min() > 0:
                assert_sum(x.to("xpu").nanmean(dims), exact.sum(dims) / count, scale / count)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_extremes(dtype: torch.dtype) -> None:
    for cpu, xpu in cases(dtype):
        for dims in dims_of(cpu):
            assert torch.equal(xpu.amax(dims).cpu(), cpu.amax(dims))
            assert torch.equal(xpu.amin(dims).cpu(), cpu.amin(dims))
        assert torch.equal(xpu.max().cpu(), cpu.max())
        assert torch.equal(xpu.min().cpu(), cpu.min())
        assert all(torch.equal(a.cpu(), b) for a, b in zip(xpu.aminmax(), cpu.aminmax(), strict=True))


def first_where(condition: torch.Tensor, dim: int) -> torch.Tensor:
    places = torch.arange(condition.shape[dim]).view([-1 if d == dim else 1 for d in range(condition.dim())])
    return torch.where(condition, places, condition.shape[dim]).amin(dim)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_extremes_with_the_first_index(dtype: torch.dtype) -> None:
    for cpu, xpu in cases(dtype):
        for dim in range(cpu.dim()):
            for name, extreme in (("max", torch.amax), ("min", torch.amin)):
                values, indices = getattr(xpu, name)(dim)
                reference = extreme(cpu, dim, keepdim=True)
                assert torch.equal(values.cpu(), reference.squeeze(dim))
                assert torch.equal(indices.cpu(), first_where(cpu == reference, dim))
                if dtype != torch.bool:  # PyTorch has no argmax of booleans
                    assert torch.equal(getattr(xpu, "arg" + name)(dim).cpu(), indices.cpu())
        if cpu.dtype != torch.bool:
            assert xpu.argmax().item() == (cpu.reshape(-1) == cpu.max()).int().argmax().item()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_is_the_extreme_and_the_first_one_counts(dtype: torch.dtype) -> None:
    for shape, dim in (((5, 200), 1), ((200, 40), 0), ((3, 40000), 1)):
        x = torch.ones(shape, dtype=dtype)
        x.narrow(dim, 150, 1).fill_(float("nan"))
        x.narrow(dim, 17, 1).fill_(float("nan"))
        y = x.to("xpu")
        for f in (torch.max, torch.min):
            values, indices = f(y, dim)
            assert values.isnan().all().item() and (indices == 17).all().item()
        assert y.amax(dim).isnan().all().item() and y.aminmax(dim=dim).min.isnan().all().item()
        assert (y.nansum(dim).cpu().double() == x.nansum(dim).double()).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("length", [5, 16, 48, 64, 90, 200])
def test_one_nan_anywhere_in_a_row_is_its_extreme(length: int, dtype: torch.dtype) -> None:
    x = torch.randn(2 * length + 70, length, dtype=dtype)
    x[:length].diagonal().fill_(float("nan"))
    x[length : 2 * length].fill_diagonal_(float("inf"))
    y = x.to("xpu")
    for norm in (float("inf"), float("-inf")):
        got = torch.linalg.vector_norm(y, norm, 1).cpu()
        assert torch.equal(got.isnan(), x.isnan().any(1))
    for name in ("amax", "amin"):
        got, wanted = getattr(y, name)(1).cpu(), getattr(x, name)(1)
        assert torch.equal(got.nan_to_num(7e4), wanted.nan_to_num(7e4))
        assert torch.equal(got.isnan(), x.isnan().any(1))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + COMPLEX, ids=str)
def test_any_all_count(dtype: torch.dtype) -> None:
    for cpu, xpu in cases(dtype):
        for dims in dims_of(cpu):
            assert torch.equal(torch.any(xpu, dims).cpu(), torch.any(cpu, dims))
            assert torch.equal(torch.all(xpu, dims).cpu(), torch.all(cpu, dims))
            assert torch.equal(xpu.count_nonzero(dims).cpu(), cpu.count_nonzero(dims))
        assert xpu.any().item() == cpu.any().item()
        assert xpu.all().item() == cpu.all().item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_variance(dtype: torch.dtype) -> None:
    tolerance = {torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for cpu, xpu in cases(dtype):
        exact = cpu.double() + 3  # a mean far from 0 shows sums of squares
        shifted = (cpu + 3).to("xpu") if dtype != torch.float16 else xpu
        exact = exact if dtype != torch.float16 else cpu.double()
        for dims in dims_of(cpu):
            for correction in (0, 1):
                if exact.numel() // max(1, exact.mean(dims).numel()) <= correction:
                    continue
                variance, mean = torch.var_mean(shifted, dims, correction=correction)
                assert_close(
                    variance,
                    exact.var(dims, correction=correction),
                    dtype=variance.dtype,
                    rtol=tolerance,
                    atol=tolerance,
                )
                assert_close(mean, exact.mean(dims), dtype=mean.dtype, rtol=tolerance, atol=tolerance)
                torch.testing.assert_close(
                    shifted.std(dims, correction=correction).cpu().double(),
                    exact.std(dims, correction=correction),
                    rtol=tolerance,
                    atol=tolerance,
                )


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_vector_norm(dtype: torch.dtype, p: float) -> None:
    x = make((40, 300), dtype)
    for dim in (0, 1, None):
        reference = torch.linalg.vector_norm(
            x.to(torch.complex128 if dtype.is_complex else torch.float64), p, dim
        )
        result = torch.linalg.vector_norm(x.to("xpu"), p, dim).cpu().double()
        torch.testing.assert_close(result, reference, rtol=1e-4 if dtype != torch.float64 else 1e-10, atol=0)


def test_nothing_to_reduce() -> None:
    x = torch.empty(3, 0, device="xpu")
    assert x.sum(1).tolist() == [0, 0, 0] and x.prod(1).tolist() == [1, 1, 1]
    assert x.mean(1).isnan().all().item() and x.var(1).isnan().all().item()
    assert x.any(1).tolist() == [False] * 3 and x.all(1).tolist() == [True] * 3
    assert x.sum(0).shape == (0,) and x.sum().item() == 0
    for f in (torch.amax, torch.argmax):
        with pytest.raises((RuntimeError, IndexError), match="reduction dim"):
            f(x)
    with pytest.raises(IndexError, match="non-zero size"):
        torch.max(x, 1)


def test_dtype_argument() -> None:
    x = torch.tensor([1.7, -2.3, 250.9, 4.0])
    for source in (x, x.to(torch.int32), x.half()):
        for dtype in (torch.int8, torch.int64, torch.float16, torch.float64, torch.complex64):
            assert torch.equal(source.to("xpu").sum(dtype=dtype).cpu(), source.sum(dtype=dtype))


def test_backward() -> None:
    x = torch.randn(20, 30, dtype=torch.float64)
    for f in (
        lambda t: t.sum(0).pow(2).sum(),
        lambda t: t.max(1).values.sum(),
        lambda t: t.var(1).sum(),
        lambda t: t.norm(),
        lambda t: t.prod(1).sum(),
        lambda t: t.amax((0, 1)),
        lambda t: t.logsumexp(1).sum(),
    ):
        a, b = x.clone().requires_grad_(), x.to("xpu").requires_grad_()
        f(a).backward()
        f(b).backward()
        assert_close(b.grad, a.grad)


def test_sum_is_repeatable_and_exact_over_many_elements() -> None:
    x = torch.rand(1 << 22) + 1e3
    y = x.to("xpu")
    assert y.sum().item() == y.sum().item()
    assert abs(y.sum().item() / x.double().sum().item() - 1) < 1e-6
    assert abs(y.view(-1, 4).sum(0).cpu().double() / x.view(-1, 4).double().sum(0) - 1).max() < 1e-6


# Full reduction, short and long rows, columns (wide, narrow, long), scalars, two reduced dimensions.
SUMS = [
    ((10_000,), 0),
    ((300_000,), 0),
    ((1_000_000,), 0),
    ((300, 900), 1),
    ((200, 10_000), 1),
    ((6, 200_000), 1),
    ((100, 512), 0),
    ((1_000, 300), 0),
    ((10_000, 40), 0),
    ((100_000, 16), 0),
    ((60_000, 4), 0),
    ((5_000, 7, 3), (0, 2)),
]


@pytest.mark.parametrize(("shape", "dims"), SUMS, ids=str)
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_sums_are_as_exact_as_in_a_tree(
    shape: tuple[int, ...], dims: int | tuple[int, ...], kind: str
) -> None:
    """A running sum of n values has an error of about √n roundings; pairwise sums have a few.

    A single sum may be off by several times the mean error, so that there are at least 8.
    """
    generator = torch.Generator().manual_seed(len(kind))
    errors = []
    for _ in range(max(8, 1_000_000 // math.prod(shape))):
        x = (torch.randn if kind == "normal" else torch.rand)(shape, generator=generator)
        wide = x.double()
        size = wide.square().sum(dims).sqrt() if kind == "normal" else wide.sum(dims)
        errors.append(((x.to("xpu").sum(dims).cpu().double() - wide.sum(dims)) / size).abs().flatten())
    limit = 3.0 if kind == "normal" else 1.0
    assert torch.cat(errors).mean().item() < limit * 2**-24


VARIANCES = [
    ((300_000,), 0),
    ((80, 100), 1),
    ((3, 7_000), 1),
    ((900, 80), 0),
    ((5_000, 3), 0),
    ((70, 9, 8), (0, 2)),
]


@pytest.mark.skipif(
    torch.xpu.get_device_properties().type != "cpu" or not torch.xpu.get_device_properties().has_fp64,
    reason="takes moments in float",
)
@pytest.mark.parametrize("place", [0.0, -100.0, 3e4])
@pytest.mark.parametrize(("shape", "dims"), VARIANCES, ids=str)
def test_variance_far_from_zero(shape: tuple[int, ...], dims: int | tuple[int, ...], place: float) -> None:
    """Values whose mean is many times their deviation, some with one outlier."""
    generator = torch.Generator().manual_seed(5)
    x = place + torch.rand(shape, generator=generator)
    alone = x.clone()
    alone.flatten()[0] = 5e5
    for numbers in (x, alone):
        given = numbers.to("xpu")
        variance, mean = torch.var_mean(given, dims)
        deviation, again = torch.std_mean(given, dims)
        wide = numbers.double()
        assert_close(variance, wide.var(dims), dtype=variance.dtype, rtol=2e-7, atol=0)
        assert_close(deviation, wide.std(dims), dtype=deviation.dtype, rtol=2e-7, atol=0)
        torch.testing.assert_close(given.var(dims), variance, rtol=0, atol=0)
        torch.testing.assert_close(given.std(dims), deviation, rtol=0, atol=0)
        assert_close(mean, wide.mean(dims), dtype=mean.dtype, rtol=2e-7, atol=0)
        assert torch.equal(mean, again)


@pytest.mark.parametrize(
    ("shape", "dims"), [((20, 100), 1), ((300, 64), 0), ((500, 3), 0), ((20_000,), 0)], ids=str
)
def test_variance_far_from_zero_in_the_dtype_itself(shape: tuple[int, ...], dims: int) -> None:
    """float64 always computes moments relative to an element, as float32 does on GPUs."""
    x = 1e8 + torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    wanted = (x - 1e8).var(dims)  # the differences are exact
    assert_close(x.to("xpu").var(dims), wanted, rtol=1e-13, atol=0)
    assert_close(x.to("xpu").std(dims), wanted.sqrt(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("shape", [(3, 1), (3, 5), (70, 64), (5, 3_000), (200, 2)], ids=str)
def test_variance_of_equal_and_of_infinite_numbers(shape: tuple[int, ...]) -> None:
    for value in (0.1, -1e30, 3e38, math.inf, -math.inf, math.nan):
        x = torch.full(shape, value)
        one = torch.ones(shape)
        one[:, shape[1] // 2] = value
        for numbers, dim in itertools.product((x, one, one.flip(1)), (0, 1)):
            wanted = torch.var_mean(numbers, dim, correction=0)
            got = torch.var_mean(numbers.to("xpu"), dim, correction=0)
            assert_close(got[0], wanted[0], equal_nan=True)
            assert torch.equal(got[1].cpu().isfinite(), wanted[1].isfinite())
            assert (x.to("xpu").var(dim, correction=0).cpu() == 0).all() or not math.isfinite(value)


# A length of up to 128 is a constant of the kernel: each is a program of its own, which the driver's compiler has to
# get through. Around one and two rounds of four subgroups, and around the last length that is a constant.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("length", [1, 2, 15, 17, 63, 64, 65, 96, 100, 127, 128, 129, 192, 256, 1024, 1100])
def test_rows_of_a_constant_length(length: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(70, length, generator=generator, dtype=torch.float64)
    x = x.to(dtype) if dtype.is_floating_point else (x * 3).to(dtype)
    wide = x.double() if dtype.is_floating_point else x
    functions = [lambda t: t.sum(1), lambda t: t.amax(1), lambda t: t.prod(1)]
    if dtype.is_floating_point:
        functions += [lambda t: t.var(1, correction=0), lambda t: torch.linalg.vector_norm(t, dim=1)]
    for function in functions:
        ours, wanted = function(x.to("xpu")).cpu(), function(wide)
        atol = EPSILON.get(dtype, 0.0) * max(float(wanted.abs().max()), length**0.5)
        torch.testing.assert_close(
            ours.to(wanted.dtype), wanted, rtol=4 * EPSILON.get(dtype, 0.0), atol=4 * atol
        )


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex_numbers_in_half_precision() -> None:
    """Against the same values in single precision; the CPU has no kernels for these dtypes."""
    narrow = torch.randn(4, 6, dtype=torch.complex64).to(torch.complex32)
    x, wide = narrow.to("xpu"), narrow.to(torch.complex64)

    def agree(got: torch.Tensor, expected: torch.Tensor) -> None:
        dtype = {torch.complex64: torch.complex32, torch.float32: torch.half}.get(expected.dtype)
        assert_close(got, expected, dtype=dtype, times=0.5)

    for f in (
        lambda t: t + t,
        lambda t: t.t() * t.conj().t(),
        lambda t: t / (t + 1),
        lambda t: torch.add(t, 1j, alpha=2),
        lambda t: t[:, ::2] + t[:1, 1::2],
        lambda t: t.clone().add_(t).mul_(2),
        lambda t: t.exp().sqrt(),
        lambda t: t.abs(),
        lambda t: t == t.t().t(),
        lambda t: t.sum(),
        lambda t: t.sum(0),
        lambda t: t.mean(1),
        lambda t: t[0].prod(),
        lambda t: t.nanmean(0) if t.is_xpu else t.mean(0),
        lambda t: torch.linalg.vector_norm(t),
        lambda t: torch.linalg.vector_norm(t, float("inf"), 0),
        lambda t: t.count_nonzero(),
        lambda t: t.t().conj().resolve_conj().contiguous(),
    ):
        agree(f(x), f(wide))
    for dtype in (torch.complex64, torch.complex128):
        assert_close(x.t().conj().to(dtype), wide.mH.to(dtype).resolve_conj(), rtol=0, atol=0)
    target = torch.empty(6, 4, dtype=torch.complex64, device="xpu").conj()
    torch.testing.assert_close(
        target.copy_(x.mH).cpu().resolve_conj(), wide.mH.resolve_conj(), rtol=0, atol=0
    )


def test_more_dimensions_than_an_iteration_has() -> None:
    """Quantum circuits use one dimension of size two per bit."""
    torch.manual_seed(7)
    cpu = torch.randn((2,) * 18, dtype=torch.float64)
    for x in (cpu, cpu.transpose(0, 17)[:1, :, 1:], cpu[0].unsqueeze(3)):
        xpu = x.to("xpu")
        for dims in ((), (0,), (17,), (3, 9, 14), tuple(range(1, 17)), tuple(range(18))):
            for keepdim in (False, True):
                got, expected = xpu.sum(dims, keepdim), x.sum(dims, keepdim)
                assert got.shape == expected.shape
                assert_close(got, expected)
        assert torch.equal(xpu.amax((2, 5)).cpu(), x.amax((2, 5)))
        assert (xpu.argmax().item(), xpu.argmax(11).cpu().equal(x.argmax(11))) == (x.argmax().item(), True)
        values, where = xpu.max(6)
        assert torch.equal(values.cpu(), x.max(6).values) and torch.equal(where.cpu(), x.max(6).indices)
        for got, expected in zip(torch.var_mean(xpu, (1, 16)), torch.var_mean(x, (1, 16)), strict=True):
            assert_close(got, expected)
        assert (xpu == xpu).all().item() and not (xpu != xpu).any().item()
    empty = torch.empty((2,) * 17 + (0,))
    assert torch.equal(empty.to("xpu").sum((2, 17)).cpu(), empty.sum((2, 17)))
    assert empty.to("xpu").sum(3).shape == empty.sum(3).shape


@pytest.mark.parametrize("reduce", [torch.mean, torch.nansum])
def test_fractions_do_not_go_into_integers(reduce: Callable[..., torch.Tensor]) -> None:
    x, out = torch.tensor([[1.5, 2.5], [1.5, 2.6]], device="xpu"), torch.zeros(2, device="xpu")
    for dtype in (torch.int64, torch.uint8, torch.bool):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            reduce(x, 0, out=out.to(dtype))
    assert torch.nansum(x.long(), 0, out=out.long()).tolist() == [2, 4]


def test_results_whose_elements_lie_on_each_other_are_refused() -> None:
    x, one = torch.randn(3, 5, device="xpu"), torch.zeros(1, device="xpu")
    values, indices = one.expand(5), torch.zeros(5, dtype=torch.int64, device="xpu")
    for call in (
        lambda: torch.max(x, 0, out=(values, indices)),
        lambda: torch.min(x, 0, out=(torch.zeros(5, device="xpu"), indices[:1].expand(5))),
        lambda: torch.aminmax(x, dim=0, out=(values, torch.zeros(5, device="xpu"))),
        lambda: torch.std(x, 0, out=values),
        lambda: torch.linalg.vector_norm(x, torch.inf, 0, out=values),
    ):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert not one.any() and not indices.any()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hash_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    for x in layouts(make(shape, dtype)):
        for dims in dims_of(x) if shape in FEW_SHAPES else [(), (x.dim() - 1,) if x.dim() else ()]:
            for keepdim in (False, True):
                want = torch.hash_tensor(x, dims, keepdim=keepdim)
                got = torch.hash_tensor(x.to("xpu"), dims, keepdim=keepdim)
                assert got.dtype == torch.uint64 and torch.equal(got.cpu(), want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_hash_tensor_of_special_numbers(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    special = [0.0, -0.0, math.inf, -math.inf, info.max, -info.max, info.tiny, -info.tiny, info.eps]
    special += [info.smallest_normal / 2, info.smallest_normal / 8, 3 * info.smallest_normal / 64]
    for value in special:
        x = torch.tensor([value], dtype=torch.float64).to(dtype)
        assert torch.hash_tensor(x.to("xpu")).item() == int(x.double().view(torch.int64)) % 2**64
    for x in (torch.tensor([math.nan]).to(dtype), torch.tensor([-math.nan]).to(dtype)):
        assert math.isnan(torch.hash_tensor(x.to("xpu")).view(torch.float64).item())


def test_hash_tensor_refuses() -> None:
    for x, options, text in [
        (torch.zeros(0), {}, "reduction dim"),
        (torch.zeros(2, 0), {"dim": 1}, "non-zero size"),
        (torch.zeros(2, dtype=torch.complex64), {}, "not implemented"),
    ]:
        with pytest.raises((RuntimeError, IndexError, NotImplementedError), match=text):
            torch.hash_tensor(x.to("xpu"), **options)
