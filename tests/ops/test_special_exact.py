"""Special functions in ulp against mpmath: also next to their zeros, in half precision, and without fp64."""

from collections.abc import Callable
from pathlib import Path

import mpmath
import pytest
import torch
from processes import run_python
from torch import special

Point = mpmath.mpf


def zeros_of(function: Callable[[Point], Point], *ranges: tuple[float, float]) -> list[Point]:
    return [mpmath.findroot(function, pair, solver="anderson") for pair in ranges]


def line(low: float, high: float, count: int = 40) -> list[float]:
    return [low + (high - low) * (k + 0.37) / count for k in range(count)]


BESSEL_ZEROS = (1, 2, 3, 4, 9, 40)
# function: reference, sample points, largest error in ulp of float32
FUNCTIONS = {
    "bessel_j0": (lambda x: mpmath.besselj(0, x), line(-30, 30) + [1e4, 3e8, 2e30], 3.0),
    "bessel_j1": (lambda x: mpmath.besselj(1, x), line(-30, 30) + [1e-30, 1e4, 3e8], 3.0),
    "bessel_y0": (lambda x: mpmath.bessely(0, x), line(0, 30) + [1e-30, 1e4, 3e8], 3.5),
    "bessel_y1": (lambda x: mpmath.bessely(1, x), line(0, 30) + [1e-30, 1e4, 3e8], 3.5),
    "i0": (lambda x: mpmath.besseli(0, x), line(-20, 20) + [91.5], 0.51),
    "i0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), line(-20, 20) + [1e5], 0.51),
    "i1": (lambda x: mpmath.besseli(1, x), line(-20, 20) + [1e-30, 91.5], 0.51),
    "i1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), line(-20, 20) + [1e5], 0.51),
    "modified_bessel_k0": (lambda x: mpmath.besselk(0, x), line(0, 9) + [1e-30], 0.51),
    "modified_bessel_k1": (lambda x: mpmath.besselk(1, x), line(0, 9) + [1e-30], 0.51),
    "scaled_modified_bessel_k0": (lambda x: mpmath.besselk(0, x) * mpmath.exp(x), line(0, 40), 0.51),
    "scaled_modified_bessel_k1": (lambda x: mpmath.besselk(1, x) * mpmath.exp(x), line(0, 40), 0.51),
    "airy_ai": (mpmath.airyai, line(-25, 9) + [-1000.3], 0.51),
    "spherical_bessel_j0": (lambda x: mpmath.sin(x) / x, line(-30, 30), 0.51),
    "digamma": (mpmath.digamma, line(-9, 40) + [1e-6, 1e6], 0.51),
    "erfinv": (mpmath.erfinv, line(-1, 1) + [1e-30, 1e-3, 0.9999999], 0.51),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), line(-9, 12) + [1e6], 0.51),
    "ndtri": (lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1), line(0, 1) + [1e-30], 0.51),
    "log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), line(-40, 9), 0.51),
    "sinc": (mpmath.sincpi, line(-30, 30), 3.0),
}
ZEROS = {
    **{f"bessel_j{n}": [mpmath.besseljzero(n, k) for k in BESSEL_ZEROS] for n in (0, 1)},
    **{f"bessel_y{n}": [mpmath.besselyzero(n, k) for k in BESSEL_ZEROS] for n in (0, 1)},
    "airy_ai": [mpmath.airyaizero(k) for k in (1, 2, 5)],
    "spherical_bessel_j0": [k * mpmath.pi for k in (1, 2, 9)],
    "digamma": zeros_of(mpmath.digamma, (1.4, 1.5), (-0.6, -0.4), (-3.7, -3.6)),
    "ndtri": [mpmath.mpf(0.5)],
    "sinc": [mpmath.mpf(k) for k in (1, 2, 9)],
}
ORDERS = (1, 2, 3, 4, 7, 12, 20)


# the same, in ulp of float64
DOUBLE_FUNCTIONS = {
    "erf": (mpmath.erf, [*line(-6.2, 6.2, 200), 1e-300, 1e-8, 31 / 64, 5.9375], 0.51),
    "erfc": (mpmath.erfc, [*line(-6.2, 27, 300), 1e-300, 5.0, -40.0, 31 / 64], 0.51),
    "erfinv": (mpmath.erfinv, [*line(-1, 1, 300), 1e-300, 1e-3, 9e-4, 0.5, 1 - 2**-53], 0.51),
    "ndtri": (
        lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
        [*line(0, 1, 200), 1e-9, 1e-17, 1e-40],
        0.51,
    ),
    "log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), line(-40, 9, 100), 1.5),
    "spherical_bessel_j0": (
        lambda x: mpmath.sin(x) / x,
        [*line(-30, 30, 200), 1e-9, 0.124, 0.126, 1e3, 2e4, 1e6, 1048575.3],
        0.6,
    ),
    "gelu": (lambda x: x * mpmath.ncdf(x), line(-38, 9, 200), 1.5),
}


def neighbors(zero: Point, dtype: torch.dtype) -> list[float]:
    """Return the values of the dtype next to a zero, and some further away."""
    at = torch.tensor(float(zero), dtype=dtype)
    bits = at.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    far = 30 if dtype.itemsize == 2 else 999
    steps = torch.tensor([-far, -17, -3, -2, -1, 0, 1, 2, 3, 17, far], dtype=bits.dtype)
    return (bits + steps).view(dtype).tolist()


def worst(actual: torch.Tensor, exact: Callable[[Point], Point], points: list[float]) -> float:
    """Return the largest error, in ulp of the dtype, among the normal results."""
    info, largest = torch.finfo(actual.dtype), 0.0
    with mpmath.workdps(60):
        for value, point in zip(actual.double().tolist(), points, strict=True):
            expected = mpmath.re(exact(mpmath.mpf(point)))
            if not info.tiny <= abs(expected) <= info.max:
                continue
            unit = mpmath.ldexp(info.eps / 2, mpmath.frexp(expected)[1])
            largest = max(largest, float(abs(value - expected) / unit))
    return largest


def error(name: str, dtype: torch.dtype) -> float:
    exact, points, _ = FUNCTIONS[name]
    near = [x for zero in ZEROS.get(name, []) for x in neighbors(zero, dtype)]
    x = torch.tensor(points + near, dtype=dtype)
    x = x[x.isfinite() & (x != 0)]
    function = torch.sinc if name == "sinc" else getattr(special, name)
    return worst(function(x.to("xpu")).cpu(), exact, x.tolist())


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="floats in floats alone")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats(name: str) -> None:
    assert error(name, torch.float32) <= FUNCTIONS[name][2]


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="needs fp64")
@pytest.mark.parametrize("name", DOUBLE_FUNCTIONS)
def test_doubles(name: str) -> None:
    exact, points, bound = DOUBLE_FUNCTIONS[name]
    near = [x for zero in ZEROS.get(name, []) for x in neighbors(zero, torch.float64)]
    function = torch.nn.functional.gelu if name == "gelu" else getattr(special, name)
    x = torch.tensor(points + near, dtype=torch.float64)
    assert worst(function(x.to("xpu")).cpu(), exact, x.tolist()) <= bound


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="needs fp64")
def test_quantiles_of_tiny_probabilities() -> None:
    """In ulp of the quantile: the logarithm of the probability changes by about |x| per unit of x."""
    p = torch.tensor([1e-15, 3e-23, 1e-24, 1e-60, 1e-150, 2e-300], dtype=torch.float64)
    for x, probability in zip(special.ndtri(p.to("xpu")).tolist(), p.tolist(), strict=True):
        with mpmath.workdps(40):
            off = mpmath.log(mpmath.ncdf(x) / mpmath.mpf(probability)) / (abs(x) + 1 / abs(x))
            assert abs(off) <= 0.52 * mpmath.ldexp(2**-53, mpmath.frexp(abs(x))[1])


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="needs fp64")
def test_doubles_at_the_ends() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 1.5, 28.0, -28.0, 5e-324], dtype=torch.float64)
    for function in (special.erf, special.erfc, special.erfinv, special.ndtri, special.spherical_bessel_j0):
        ours, expected = function(x.to("xpu")).cpu(), function(x)
        torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-15, atol=0)
        assert torch.equal(ours.signbit()[:2], expected.signbit()[:2])


def test_tables_of_erf_are_those_of_their_program() -> None:
    root = Path(__file__).parents[2]
    written = run_python(root / "tools/erf_tables.py")
    assert written.stdout == (root / "src/kernels/pointwise/erf_tables.h").read_text()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", ["bessel_j0", "bessel_y1", "i0", "i1e", "modified_bessel_k0", "erfinv", "ndtri"]
)
def test_halves_are_rounded_once(name: str, dtype: torch.dtype) -> None:
    assert error(name, dtype) <= 0.53


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="floats in floats alone")
@pytest.mark.parametrize("n", ORDERS)
def test_polygamma(n: int) -> None:
    x = torch.tensor([*line(0, 30), *line(-5, 0), 1e-3, 1e3, 1e-6])
    actual = special.polygamma(n, x.to("xpu")).cpu()
    assert worst(actual, lambda v: mpmath.polygamma(n, v), x.tolist()) <= 0.51


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="floats in floats alone")
@pytest.mark.parametrize("s", [1.0625, 2.5, 7.25, 30.5])
def test_zeta(s: float) -> None:
    q = torch.tensor([*line(0, 30), 1e-3, 1e4])
    actual = special.zeta(torch.full_like(q, s).to("xpu"), q.to("xpu")).cpu()
    assert worst(actual, lambda v: mpmath.zeta(s, v), q.tolist()) <= 0.51


@pytest.mark.parametrize("a", [0.25, 2.5, 40.0, 700.0])
def test_incomplete_gamma(a: float) -> None:
    x = torch.tensor(line(a * 0.5, a * 1.6))
    first = torch.full_like(x, a).to("xpu")
    lower, upper = special.gammainc(first, x.to("xpu")).cpu(), special.gammaincc(first, x.to("xpu")).cpu()
    bound = 40 if torch.xpu.get_device_properties().has_fp64 else 4500  # as documented
    assert worst(lower, lambda v: mpmath.gammainc(a, 0, v, regularized=True), x.tolist()) <= bound
    assert worst(upper, lambda v: mpmath.gammainc(a, v, regularized=True), x.tolist()) <= bound


def test_without_fp64() -> None:
    """J and Y find their zeros in float32 only; the others are as accurate as sums of floats."""
    code = """if True:
        import test_special_exact as t
        assert not torch.xpu.get_device_properties().has_fp64
        for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"):
            assert t.error(name, torch.float32) <= 5, name
        for name in ("i0", "i1e", "modified_bessel_k1", "erfinv", "erfcx", "ndtri"):
            assert t.error(name, torch.float32) <= 12, name
    """
    run_python(code, cwd=Path(__file__).parent, env={"OPENXPU_HIDE_EXTENSIONS": "cl_khr_fp64"})
