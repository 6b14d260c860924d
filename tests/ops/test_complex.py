"""Complex functions on a grid of special values and magnitudes, against mpmath and C99's Annex G (as in NumPy)."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch

INF, NAN = math.inf, math.nan
DTYPES = [torch.complex64, torch.complex128]
SPECIAL = [0.0, 1.0, 0.5, 3.0, INF]
SIZES = {
    torch.complex64: [
        1e-45,
        1e-40,
        1e-20,
        3e-5,
        0.3,
        0.6,
        0.8,
        1.5,
        math.pi / 2,
        20.5,
        89.5,
        92.0,
        7e4,
        1e17,
        1e20,
        3e38,
    ],
    torch.complex128: [
        5e-324,
        1e-310,
        1e-160,
        1e-9,
        0.3,
        0.6,
        0.8,
        1.5,
        math.pi / 2,
        20.5,
        710.5,
        712.0,
        7e8,
        1e17,
        1e160,
        1.7e308,
    ],
}


def by_parts(z: np.ndarray, factor: float = 1.0, more: float = 0.0) -> np.ndarray:
    """Multiply the parts by `factor` and `more`; a complex factor would turn infinities into NaN."""
    out = np.empty_like(z)
    out.real, out.imag = z.real * factor + more, z.imag * factor
    return out


# the mpmath function, and NumPy's for infinities and NaN
FUNCTIONS: dict[str, tuple[Callable, Callable]] = {
    "exp": (mpmath.exp, np.exp),
    "exp2": (lambda z: mpmath.exp(z * mpmath.log(2)), lambda z: np.exp(by_parts(z, math.log(2)))),
    "expm1": (lambda z: mpmath.exp(z) - 1, lambda z: by_parts(np.exp(z), 1, -1)),
    "log": (mpmath.log, np.log),
    "log2": (lambda z: mpmath.log(z) / mpmath.log(2), lambda z: by_parts(np.log(z), 1 / math.log(2))),
    "log10": (lambda z: mpmath.log(z) / mpmath.log(10), lambda z: by_parts(np.log(z), 1 / math.log(10))),
    "log1p": (lambda z: mpmath.log(1 + z), lambda z: np.log(by_parts(z, 1, 1))),
    "sqrt": (mpmath.sqrt, np.sqrt),
    "rsqrt": (lambda z: 1 / mpmath.sqrt(z), lambda z: 1 / np.sqrt(z)),
    "sin": (mpmath.sin, np.sin),
    "cos": (mpmath.cos, np.cos),
    "tan": (mpmath.tan, np.tan),
    "asin": (mpmath.asin, np.arcsin),
    "acos": (mpmath.acos, np.arccos),
    "atan": (mpmath.atan, np.arctan),
    "sinh": (mpmath.sinh, np.sinh),
    "cosh": (mpmath.cosh, np.cosh),
    "tanh": (mpmath.tanh, np.tanh),
    "asinh": (mpmath.asinh, np.arcsinh),
    "acosh": (mpmath.acosh, np.arccosh),
    "atanh": (mpmath.atanh, np.arctanh),
    "reciprocal": (lambda z: 1 / z, lambda z: 1 / z),
    "sigmoid": (lambda z: 1 / (1 + mpmath.exp(-z)), lambda z: 1 / (1 + np.exp(-z))),
    "sgn": (lambda z: z / abs(z), lambda z: z / np.abs(z)),
}


def grid(values: list[float], dtype: torch.dtype) -> torch.Tensor:
    """Return all combinations of these parts, and their negatives."""
    part = torch.tensor([s * v for v in values for s in (1, -1)], dtype=torch.float64)
    real, imag = part.repeat_interleave(len(part)), part.repeat(len(part))
    return torch.complex(real, imag).to(dtype)


def beyond_exp(name: str, z: complex) -> bool:
    """Is the result infinite or 0 because of an exponent that mpmath would still represent?"""
    along = z.imag if name in ("sin", "cos") else z.real
    return name in ("exp", "exp2", "expm1", "sigmoid", "sin", "cos", "sinh", "cosh") and abs(along) > 2000


def off(got: float, wanted: mpmath.mpf, size: mpmath.mpf, dtype: torch.dtype) -> float:
    """Return the error in units in the last place of the complex value."""
    info = torch.finfo(dtype)
    if abs(wanted) > info.max * (1 - 8 * info.eps):  # may be rounded to the maximum or to infinity
        return 0.0 if abs(got) > info.max * (1 - 16 * info.eps) and (got > 0) == (wanted > 0) else INF
    if not math.isfinite(got):
        return INF
    size = abs(wanted) if size > info.max else size
    return float(abs(mpmath.mpf(got) - wanted) / (size * info.eps + info.smallest_normal * info.eps))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact(name: str, dtype: torch.dtype) -> None:
    """Values of all magnitudes, within a few ulp; exp2 needs twice the digits for its angle."""
    every = grid(SIZES[dtype], dtype)
    z = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(1))[:250]]
    got = getattr(torch, name)(z.to("xpu")).cpu()
    with mpmath.workprec(400 if dtype == torch.complex64 else 1500):
        for at, value in zip(z.tolist(), got.tolist(), strict=True):
            if beyond_exp(name, at) or (name == "exp2" and abs(at.imag) > 1e6):
                continue
            wanted = mpmath.mpc(FUNCTIONS[name][0](mpmath.mpc(at)))
            error = max(
                off(value.real, wanted.real, abs(wanted), dtype.to_real()),
                off(value.imag, wanted.imag, abs(wanted), dtype.to_real()),
            )
            assert error < 8, f"{name}({at}) = {value}, not {complex(wanted)}"


def same(got: float, wanted: float, eps: float, signs: bool) -> bool:
    if math.isnan(wanted):
        return math.isnan(got)
    if math.isinf(wanted) or wanted == 0:
        return got == wanted and (not signs or math.copysign(1, got) == math.copysign(1, wanted))
    return abs(got - wanted) <= 8 * eps * abs(wanted)


SIGNED = ["exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan"]
SIGNED += ["sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SIGNED)
def test_special_values(name: str, dtype: torch.dtype) -> None:
    """Zeros, infinities and NaN, with their signs, and both sides of the branch cuts.

    Annex G leaves signs open where a part is NaN.
    """
    z = grid([*SPECIAL, NAN, 0.25, 100.0 if dtype == torch.complex64 else 800.0], dtype)
    z = z[(z.real == 0) | (z.imag == 0) | ~z.isfinite()]
    got = getattr(torch, name)(z.to("xpu")).cpu()
    with np.errstate(all="ignore"):
        wanted = torch.from_numpy(FUNCTIONS[name][1](z.to(torch.complex128).numpy())).to(dtype)
    for at, a, b in zip(z.tolist(), got.tolist(), wanted.tolist(), strict=True):
        eps, signs = torch.finfo(dtype).eps, at == at
        assert same(a.real, b.real, eps, signs) and same(a.imag, b.imag, eps, signs), (
            f"{name}({at}) = {a}, not {b}"
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "name", ["exp2", "expm1", "log2", "log10", "log1p", "sigmoid", "reciprocal", "rsqrt", "sgn"]
)
def test_infinities_of_composed_functions(name: str, dtype: torch.dtype) -> None:
    """As accurate as exp, log and a quotient; sigmoid keeps its limits where the quotient has none."""
    z = grid([*SPECIAL, NAN, 100.0], dtype)
    z = z[~z.isfinite()]
    got = getattr(torch, name)(z.to("xpu")).cpu()
    with np.errstate(all="ignore"):
        if name in ("reciprocal", "rsqrt", "sgn"):
            wanted = getattr(torch, name)(z)
        else:
            wanted = torch.from_numpy(FUNCTIONS[name][1](z.to(torch.complex128).numpy())).to(dtype)
    for at, a, b in zip(z.tolist(), got.tolist(), wanted.tolist(), strict=True):
        if name == "sigmoid" and math.isinf(at.real):
            b = complex(at.real > 0)
        eps = torch.finfo(dtype).eps
        assert same(a.real, b.real, eps, False) and same(a.imag, b.imag, eps, False), (
            f"{name}({at}) = {a}, not {b}"
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients_are_exact(dtype: torch.dtype) -> None:
    """Whenever the quotient is representable, also for the smallest and largest values."""
    z = grid(SIZES[dtype][1::3], dtype)
    a, b = z[torch.randperm(len(z), generator=torch.Generator().manual_seed(2))], z
    got = torch.div(a.to("xpu"), b.to("xpu")).cpu()
    info = torch.finfo(dtype)
    with mpmath.workprec(200):
        for x, y, value in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            wanted = mpmath.mpc(x) / mpmath.mpc(y)
            if max(abs(x.real), abs(x.imag)) < info.smallest_normal / info.eps < abs(wanted):
                continue  # subnormal numbers have few digits
            error = max(
                off(p, q, abs(wanted), dtype.to_real())
                for p, q in ((value.real, wanted.real), (value.imag, wanted.imag))
            )
            assert error < 8, f"{x} / {y} = {value}, not {complex(wanted)}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_powers(dtype: torch.dtype) -> None:
    """As accurate as the exponential of b log a can be."""
    z = grid([0.3, 0.8, 1.5, 3.0, 20.5], dtype)
    a, b = z.repeat_interleave(len(z)), z.repeat(len(z))
    at = torch.randperm(len(a), generator=torch.Generator().manual_seed(3))[:400]
    a, b = a[at], b[at]
    got = torch.pow(a.to("xpu"), b.to("xpu")).cpu()
    with mpmath.workprec(300):
        for x, y, value in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            exponent = mpmath.mpc(y) * mpmath.log(mpmath.mpc(x))
            wanted = mpmath.exp(exponent)
            error = max(
                off(p, q, abs(wanted), dtype.to_real())
                for p, q in ((value.real, wanted.real), (value.imag, wanted.imag))
            )
            assert error < 8 + 4 * float(abs(exponent)), f"{x} ** {y} = {value}, not {complex(wanted)}"
