"""Special functions over their whole ranges, against PyTorch's CPU kernels in float64."""

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from comparing import assert_close
from openxpu import _bridge
from torch import special

INF, NAN = math.inf, math.nan


def line(low: float, high: float) -> torch.Tensor:
    return torch.linspace(low, high, 3001, dtype=torch.float64)


def log_line(low: float, high: float) -> torch.Tensor:
    return torch.logspace(low, high, 3001, dtype=torch.float64)


BOTH_SIDES = torch.cat([line(-40, 40), torch.tensor([0.0, NAN], dtype=torch.float64)])
POSITIVE = torch.cat([log_line(-6, 2), torch.tensor([0.0, -1.0, NAN], dtype=torch.float64)])
UNARY = {
    special.i0: BOTH_SIDES,
    special.i0e: BOTH_SIDES,
    special.i1: BOTH_SIDES,
    special.i1e: BOTH_SIDES,
    special.modified_bessel_i0: BOTH_SIDES,
    special.modified_bessel_i1: BOTH_SIDES,
    special.bessel_j0: BOTH_SIDES,
    special.bessel_j1: BOTH_SIDES,
    special.bessel_y0: POSITIVE,
    special.bessel_y1: POSITIVE,
    special.modified_bessel_k0: POSITIVE,
    special.modified_bessel_k1: POSITIVE,
    special.scaled_modified_bessel_k0: POSITIVE,
    special.scaled_modified_bessel_k1: POSITIVE,
    special.spherical_bessel_j0: BOTH_SIDES,
    special.airy_ai: torch.cat([line(-20, 20), torch.tensor([0.0, INF, NAN], dtype=torch.float64)]),
    special.erfcx: torch.cat([line(-5, 50), torch.tensor([0.0, INF, NAN], dtype=torch.float64)]),
    special.log_ndtr: torch.cat([line(-60, 10), torch.tensor([NAN], dtype=torch.float64)]),
    special.ndtri: torch.cat(
        [line(0, 1), log_line(-30, -1), torch.tensor([-0.5, 1.5, NAN], dtype=torch.float64)]
    ),
}


def agree(
    function: Callable[..., torch.Tensor],
    dtype: torch.dtype,
    *inputs: torch.Tensor,
    relative: float = 1e-5,
    absolute: float = 2e-6,
) -> None:
    """As in float64 on the rounded inputs, without the CPU's kernels.

    PyTorch's own float64 functions have errors of up to 3e-6 (airy_ai); `test_exactly` is stricter.
    """
    rounded = [x.to(dtype) for x in inputs]
    _bridge.fallback_counts(True)
    actual = function(*(x.to("xpu") for x in rounded))
    assert _bridge.fallback_counts() == {}
    expected = function(*(x.double() for x in rounded)).to(dtype)
    rtol, atol = (relative, absolute) if dtype == torch.float32 else (1e-6, 5e-6)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_one_argument(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    agree(function, dtype, UNARY[function])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_polygamma(n: int, dtype: torch.dtype) -> None:
    x = torch.cat([log_line(-2, 3), line(-5.4, -0.1)])
    agree(lambda x: special.polygamma(n, x), dtype, x[(x - x.round()).abs() > 0.01], relative=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeta(dtype: torch.dtype) -> None:
    x = torch.tensor([0.5, 1.0, 1.001, 1.5, 2.0, 3.0, 7.0, 25.0, NAN], dtype=torch.float64)
    q = torch.tensor([-2.3, -2.0, 0.0, 1e-3, 0.3, 1.0, 2.0, 9.0, 9.5, 1e3, 1e6, NAN], dtype=torch.float64)
    agree(special.zeta, dtype, x[:, None], q[None, :])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", [special.gammainc, special.gammaincc], ids=["lower", "upper"])
def test_incomplete_gamma(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    a = torch.cat([torch.tensor([0.0, -1.0, INF, NAN], dtype=torch.float64), log_line(-3, 3.5)[::100]])
    x = torch.cat([torch.tensor([0.0, -1.0, INF, NAN], dtype=torch.float64), log_line(-3, 3.5)[::50]])
    agree(function, dtype, a[:, None], x[None, :], relative=2e-4)
    # near the middle of the distribution, where the series are longest
    agree(function, dtype, a[4:], a[4:] * 1.01 + 0.1, relative=2e-4)


POLYNOMIALS = [
    getattr(special, f"{name}_polynomial_{letter}")
    for name, letters in {
        "chebyshev": "tuvw",
        "shifted_chebyshev": "tuvw",
        "hermite": ("h", "he"),
        "laguerre": "l",
        "legendre": "p",
    }.items()
    for letter in letters
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", POLYNOMIALS, ids=lambda f: f.__name__)
def test_polynomials(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    x = torch.cat([line(-1.5, 1.5)[::60], torch.tensor([-1.0, 0.0, 0.5, 1.0, NAN], dtype=torch.float64)])
    n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 9.0, 12.0], dtype=torch.float64)
    # in float32 the recurrences of high degree lose some digits of the largest value
    agree(function, dtype, x[:, None], n[None, :], relative=1e-4, absolute=1e-4)


def fractional(low: float, high: float) -> list[float]:
    return [low + (high - low) * (k + 0.37) / 40 for k in range(40)]


EXACT = {
    special.i0: (lambda x: mpmath.besseli(0, x), fractional(-20, 20)),
    special.i1e: (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), fractional(-40, 40)),
    special.bessel_j0: (lambda x: mpmath.besselj(0, x), fractional(-40, 40)),
    special.bessel_j1: (lambda x: mpmath.besselj(1, x), fractional(-40, 40)),
    special.bessel_y0: (lambda x: mpmath.bessely(0, x), fractional(0, 40)),
    special.bessel_y1: (lambda x: mpmath.bessely(1, x), fractional(0, 40)),
    special.modified_bessel_k0: (lambda x: mpmath.besselk(0, x), fractional(0, 12)),
    special.modified_bessel_k1: (lambda x: mpmath.besselk(1, x), fractional(0, 12)),
    special.airy_ai: (mpmath.airyai, fractional(-15, 6)),
    special.erfcx: (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), fractional(-3, 12)),
    special.log_ndtr: (lambda x: mpmath.log(mpmath.ncdf(x)), fractional(-20, 5)),
    special.ndtri: (lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1), fractional(0, 1)),
    "trigamma": (lambda x: mpmath.polygamma(1, x), fractional(-3, 20)),
    "polygamma 4": (lambda x: mpmath.polygamma(4, x), fractional(0, 20)),
    "igamma 3.3": (lambda x: mpmath.gammainc(3.3, 0, x, regularized=True), fractional(0, 12)),
    "igamma 70.7": (lambda x: mpmath.gammainc(70.7, 0, x, regularized=True), fractional(50, 100)),
    "igammac 0.2": (lambda x: mpmath.gammainc(0.2, x, regularized=True), fractional(0, 12)),
    "igammac 70.7": (lambda x: mpmath.gammainc(70.7, x, regularized=True), fractional(50, 100)),
}
NAMED = {
    "trigamma": lambda x: special.polygamma(1, x),
    "polygamma 4": lambda x: special.polygamma(4, x),
    "igamma 3.3": lambda x: special.gammainc(torch.full_like(x, 3.3), x),
    "igamma 70.7": lambda x: special.gammainc(torch.full_like(x, 70.7), x),
    "igammac 0.2": lambda x: special.gammaincc(torch.full_like(x, 0.2), x),
    "igammac 70.7": lambda x: special.gammaincc(torch.full_like(x, 70.7), x),
}


@pytest.mark.parametrize("function", EXACT, ids=lambda f: getattr(f, "__name__", f))
def test_exactly(function: Callable[..., torch.Tensor] | str) -> None:
    exact, points = EXACT[function]
    x = torch.tensor(points, dtype=torch.float64)
    with mpmath.workdps(30):
        expected = torch.tensor([float(exact(mpmath.mpf(v))) for v in points], dtype=torch.float64)
    actual = NAMED.get(function, function)(x.to("xpu")).cpu()
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def test_scalar_operands() -> None:
    x = torch.linspace(-1, 1, 9, device="xpu")
    assert_close(special.legendre_polynomial_p(x, 3), special.legendre_polynomial_p(x.cpu(), 3))
    assert_close(special.zeta(2.0, x + 3), special.zeta(2.0, x.cpu() + 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nextafter_steps_on_the_grid_of_halves(dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    for to in (INF, -INF, 0.0, -0.0, 1.0, NAN):
        target = torch.full_like(every, to)
        actual = torch.nextafter(every.to("xpu"), target.to("xpu")).cpu()
        expected = torch.nextafter(every, target)
        assert torch.equal(actual.isnan(), expected.isnan())
        numbers = ~expected.isnan()
        assert torch.equal(actual[numbers].view(torch.int16), expected[numbers].view(torch.int16))


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="ldexp was a product with a power of two")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_ldexp_with_integer_exponents(dtype: torch.dtype, kind: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.5, 3e-5, 6e4, INF, -INF, NAN], dtype=dtype)[:, None]
    e = torch.tensor([0, 1, 3, -1, -3, 12, -12, 100, -100, 127]).to(kind)
    actual, expected = torch.ldexp(x.to("xpu"), e.to("xpu")), torch.ldexp(x.double(), e).to(dtype)
    assert actual.dtype == torch.ldexp(x, e).dtype
    assert torch.equal(actual.isnan().cpu(), expected.isnan())
    assert torch.equal(actual.nan_to_num().cpu(), expected.nan_to_num())


def test_ldexp_of_far_exponents_in_place_and_out() -> None:
    x = torch.tensor([1e-30, 1e30, 1.0], device="xpu", requires_grad=True)
    e = torch.tensor([200, -200, 2**40], device="xpu")
    y = torch.ldexp(x, e)
    assert torch.equal(y.detach().cpu(), torch.tensor([1e-30 * 2.0**200, 1e30 * 2.0**-200, INF]))
    torch.ldexp(x, e.clamp(0, 3)).sum().backward()
    assert x.grad.tolist() == [8.0, 1.0, 8.0]
    out = torch.empty(3, device="xpu")
    assert torch.ldexp(x.detach(), e, out=out) is out and torch.equal(out, y.detach())
    assert torch.equal(x.detach().clone().ldexp_(e), out)
    with pytest.raises(RuntimeError, match="can't be cast"):
        e.ldexp_(out)


def test_equal_promotes_dtypes() -> None:
    ones = torch.ones(2, device="xpu")
    for dtype in (torch.int64, torch.bool, torch.float16, torch.complex64):
        assert torch.equal(ones, ones.to(dtype)) and not torch.equal(ones * 2, ones.to(dtype))
    assert not torch.equal(ones, torch.ones(3, dtype=torch.int64, device="xpu"))
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.equal(ones, torch.ones(2))
