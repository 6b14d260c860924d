"""Errors in units in the last place (ulp) of xpu, PyTorch's CPU device and, if available, CUDA.

    python bench/accuracy.py                           # functions and reductions: a few minutes
    python bench/accuracy.py functions -k bessel       # functions with "bessel" in their names
    python bench/accuracy.py functions --dtype float64 bfloat16
    python bench/accuracy.py reductions
    python bench/accuracy.py samples --dtype float32   # every operator on PyTorch's own samples: half an hour
    openxpu run bench/accuracy.py                      # with a CUDA build of PyTorch: also CUDA

The tables list the largest and the mean error of xpu and of each peer, and the location of xpu's largest.

`functions`: every unary and special function against mpmath, at points over its whole range and next to its
zeros. `reductions`: sums, products, norms and scans against float64. `samples`: forward and backward of
PyTorch's op_db (OpInfo) against float64 on the CPU; the table lists the share of results that are at least as
accurate as the peer's.

A correctly rounded result has an error of at most 0.5 ulp. Results below the smallest normal number are
ignored, since devices may flush them. The peer is the more accurate of the CPU and CUDA. The exit status is 1
if the largest error of a function or a reduction exceeds the peer's by more than `--slack` ulp.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mpmath
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, special
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

Real = Callable[..., object]
Points = Callable[[torch.dtype], list[Tensor]]
DTYPES = {str(t)[6:]: t for t in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}
BITS = {torch.float64: torch.int64, torch.float32: torch.int32}


@dataclass
class Function:
    """A function, its exact counterpart in mpmath, and the points at which they are compared.

    Parameters
    ----------
    name : str
        The name in the table.
    call : callable
        Takes the points as tensors of one dtype and device.
    exact : callable
        Takes one point as mpmath numbers; may raise where the function is undefined.
    points : callable
        Maps the dtype to one float64 tensor per argument, with values that the dtype represents.
    """

    name: str
    call: Callable[..., Tensor]
    exact: Real
    points: Points


# --- points ---


def uniform(*ranges: tuple[float, float], count: int = 600) -> Tensor:
    """Return `count` random points in each range."""
    generator = torch.Generator().manual_seed(len(ranges))
    parts = [
        torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low
        for low, high in ranges
    ]
    return torch.cat(parts)


def magnitudes(low: float, high: float, count: int = 400, sides: tuple[int, ...] = (1, -1)) -> Tensor:
    """Return points with magnitudes from 10**low to 10**high, on a logarithmic scale, with both signs."""
    return torch.cat([side * 10 ** uniform((low, high), count=count) for side in sides])


def around(zeros: Iterable[object]) -> Points:
    """Return the nearest points to each zero in the dtype, and points around it."""

    def points(dtype: torch.dtype) -> list[Tensor]:
        zero = torch.tensor([float(z) for z in zeros], dtype=torch.float64)  # type: ignore[arg-type]
        kind = dtype if dtype in BITS else torch.float32
        steps = torch.tensor([0, 1, -1, 2, -2, 3, -3, 5, -5, 17, -17, 117, -117, 1117, -1117, 11117, -11117])
        bits = zero.to(kind).view(BITS[kind])[:, None] + steps.to(BITS[kind])
        wide = zero[:, None] * (
            1 + torch.tensor([1e-2, -1e-2, 3e-3, -3e-3, 1e-3, -1e-3], dtype=torch.float64)
        )
        return [torch.cat([bits.view(kind).double().flatten(), wide.flatten()])]

    return points


def at(*tensors: Tensor, zeros: Iterable[object] = ()) -> Points:
    """Return points of one argument: these, and points around the zeros."""
    zeros = list(zeros)

    def points(dtype: torch.dtype) -> list[Tensor]:
        return [torch.cat([*tensors, *(around(zeros)(dtype) if zeros else [])]).to(dtype).double()]

    return points


def pairs(first: Tensor, second: Tensor) -> Points:
    """Return points of two arguments."""
    return lambda dtype: [first.to(dtype).double(), second.to(dtype).double()]


# --- functions ---


def _zeros(function: Real, ranges: Iterable[tuple[float, float]]) -> list[object]:
    return [mpmath.findroot(function, pair, solver="anderson") for pair in ranges]


def bessel() -> Iterator[Function]:
    """Return Bessel and Airy functions."""
    far = [30, 100, 317, 1000]
    small = magnitudes(-12, 1)
    oscillating = [small, uniform((-10, 10), (-60, 60), (-1000, 1000)), magnitudes(3, 6)]
    for n in (0, 1):
        zeros = [mpmath.besseljzero(n, k) for k in [*range(1, 13), *far]]
        j, y = getattr(special, f"bessel_j{n}"), getattr(special, f"bessel_y{n}")
        yield Function(f"bessel_j{n}", j, lambda x, n=n: mpmath.besselj(n, x), at(*oscillating, zeros=zeros))
        zeros = [mpmath.besselyzero(n, k) for k in [*range(1, 13), *far]]
        positive = [abs(x) for x in oscillating]
        yield Function(f"bessel_y{n}", y, lambda x, n=n: mpmath.bessely(n, x), at(*positive, zeros=zeros))
        growing = [small, uniform((-10, 10), (-90, 90))]
        decaying = [abs(small), uniform((0, 3), (0, 90))]
        for name, exact, parts in (
            (f"i{n}", lambda x, n=n: mpmath.besseli(n, x), growing),
            (
                f"i{n}e",
                lambda x, n=n: mpmath.besseli(n, x) * mpmath.exp(-abs(x)),
                [*growing, magnitudes(2, 5)],
            ),
            (f"modified_bessel_i{n}", lambda x, n=n: mpmath.besseli(n, x), growing),
            (f"modified_bessel_k{n}", lambda x, n=n: mpmath.besselk(n, x), decaying),
            (
                f"scaled_modified_bessel_k{n}",
                lambda x, n=n: mpmath.besselk(n, x) * mpmath.exp(x),
                [*decaying, abs(magnitudes(2, 5))],
            ),
        ):
            yield Function(name, getattr(special, name), exact, at(*parts))
    zeros = [mpmath.airyaizero(k) for k in [*range(1, 13), 30, 100]]
    points = at(small, uniform((-10, 10), (-100, 0), (0, 25)), magnitudes(2, 4, sides=(-1,)), zeros=zeros)
    yield Function("airy_ai", special.airy_ai, mpmath.airyai, points)
    zeros = [k * mpmath.pi for k in (1, 2, 3, 10, 100)]
    points = at(magnitudes(-6, 1), uniform((-10, 10), (-1000, 1000)), zeros=zeros)
    yield Function("spherical_bessel_j0", special.spherical_bessel_j0, lambda x: mpmath.sin(x) / x, points)


def _lgamma_zeros() -> list[object]:
    zeros: list[object] = [mpmath.mpf(1), mpmath.mpf(2)]
    for n in range(2, 12):
        for side in (-n + 1e-12, -n - 1e-12) if n > 2 else (-n - 1e-12,):
            inner = -n + 0.5 if side > -n else -n - 0.5
            zeros += _zeros(lambda x: mpmath.log(abs(mpmath.gamma(x))), [(inner, side)])
    return zeros


def gamma() -> Iterator[Function]:
    """Return the gamma function and its relatives."""
    psi = _zeros(mpmath.digamma, [(1.3, 1.6)] + [(-k + 1e-6, -k + 1 - 1e-6) for k in range(1, 12)])
    wide = [magnitudes(-8, 1), uniform((-5, 5), (-40, 40))]
    positive = [abs(magnitudes(-5, 1)), uniform((0, 4), (0, 50))]
    yield Function("digamma", special.digamma, mpmath.digamma, at(*wide, abs(magnitudes(1, 8)), zeros=psi))
    log_gamma = lambda x: mpmath.log(abs(mpmath.gamma(x)))  # noqa: E731
    yield Function("lgamma", torch.lgamma, log_gamma, at(*wide, abs(magnitudes(1, 6)), zeros=_lgamma_zeros()))
    for p in (2, 5):
        sum_of_gammas = lambda x, p=p: (  # noqa: E731
            p * (p - 1) / mpmath.mpf(4) * mpmath.log(mpmath.pi)
            + sum(mpmath.loggamma(x - mpmath.mpf(j) / 2) for j in range(p))
        )
        call = lambda x, p=p: torch.mvlgamma(x, p)  # noqa: E731
        yield Function(f"mvlgamma {p}", call, sum_of_gammas, at(uniform(((p - 1) / 2 + 0.01, 8), (4, 200))))
    for n in (1, 2, 3, 4, 7, 12, 20):
        points = (
            [*positive, abs(magnitudes(1, 3)), uniform((-5, 0))] if n < 5 else [*positive, uniform((-5, 0))]
        )
        call = lambda x, n=n: special.polygamma(n, x)  # noqa: E731
        yield Function(f"polygamma {n}", call, lambda x, n=n: mpmath.polygamma(n, x), at(*points))
    generator = torch.Generator().manual_seed(5)
    q = 10 ** (torch.rand(1500, generator=generator, dtype=torch.float64) * 5 - 2)
    s = 1 + 10 ** (torch.rand(1500, generator=generator, dtype=torch.float64) * 3 - 1.8)
    yield Function("zeta", special.zeta, mpmath.zeta, pairs(s, q))
    a = 10 ** (torch.rand(2000, generator=generator, dtype=torch.float64) * 5 - 2)
    spread = torch.randn(2000, generator=generator, dtype=torch.float64)
    near = (a + spread * 2 * a.sqrt()).abs()
    x = torch.where(torch.arange(2000) % 2 == 0, near, a * 10 ** (spread * 0.4))
    for name, lower in (("gammainc", True), ("gammaincc", False)):
        part = functools.partial(_incomplete_gamma, lower=lower)
        yield Function(name, getattr(special, name), part, pairs(a, x))


def _incomplete_gamma(a: mpmath.mpf, x: mpmath.mpf, lower: bool) -> object:
    with mpmath.workdps(40):
        if lower:
            return mpmath.exp(a * mpmath.log(x) - x - mpmath.loggamma(a + 1)) * mpmath.hyp1f1(1, a + 1, x)
        return mpmath.gammainc(a, x, regularized=True)


def _quantile(p: mpmath.mpf) -> object:
    with mpmath.workdps(80):
        return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)


def error_functions() -> Iterator[Function]:
    """Return functions of the normal distribution."""
    unit = [uniform((-1, 1), (-0.1, 0.1)), magnitudes(-8, 0)]
    ends = 1 - 10 ** uniform((-7, -1))
    yield Function("erf", special.erf, mpmath.erf, at(magnitudes(-8, 1), uniform((-5, 5))))
    yield Function("erfc", special.erfc, mpmath.erfc, at(magnitudes(-8, 1), uniform((-5, 10))))
    yield Function("erfinv", special.erfinv, mpmath.erfinv, at(*unit, ends, -ends))
    scaled = lambda x: mpmath.exp(x * x) * mpmath.erfc(x)  # noqa: E731
    yield Function("erfcx", special.erfcx, scaled, at(uniform((-9, 5), (0, 50)), abs(magnitudes(-6, 7))))
    probabilities = at(uniform((0, 1)), 10 ** uniform((-30, -1)), ends, zeros=[0.5])
    yield Function("ndtri", special.ndtri, _quantile, probabilities)
    yield Function("ndtr", special.ndtr, mpmath.ncdf, at(uniform((-12, 6)), magnitudes(-6, 1)))
    log_ndtr = lambda x: mpmath.log1p(-mpmath.ncdf(-x)) if x > 0 else mpmath.log(mpmath.ncdf(x))  # noqa: E731
    yield Function(
        "log_ndtr", special.log_ndtr, log_ndtr, at(uniform((-12, 12), (-100, 0)), magnitudes(-6, 1))
    )


def elementary() -> Iterator[Function]:
    """Return elementary functions, activations, and products with logarithms."""
    wide = [magnitudes(-8, 1), uniform((-10, 10))]
    unit = [uniform((-1, 1)), magnitudes(-8, 0)]
    positive = [abs(magnitudes(-30, 30)), uniform((0, 4))]
    half_pi = [k * mpmath.pi / 2 for k in (1, 2, 3, 4, 5, 22, 101, 1000)]
    angles = at(*wide, magnitudes(1, 5), zeros=half_pi)
    for name, points in (
        *((name, at(*wide, uniform((-88, 88)))) for name in ("exp", "expm1", "sinh", "cosh", "tanh")),
        *((name, angles) for name in ("sin", "cos", "tan")),
        *((name, at(*unit)) for name in ("asin", "acos", "atanh")),
        *((name, at(*wide, magnitudes(1, 30))) for name in ("atan", "asinh")),
        ("acosh", at(1 + 10 ** uniform((-6, 10)), zeros=[1])),
        ("log", at(*positive, zeros=[1])),
        ("sqrt", at(*positive)),
    ):
        yield Function(name, getattr(torch, name), getattr(mpmath, name), points)
    yield Function("log1p", torch.log1p, mpmath.log1p, at(uniform((-1, 1)), abs(magnitudes(-8, 30))))
    yield Function("log2", torch.log2, lambda x: mpmath.log(x, 2), at(*positive, zeros=[1]))
    yield Function("log10", torch.log10, mpmath.log10, at(*positive, zeros=[1]))
    yield Function("exp2", torch.exp2, lambda x: mpmath.power(2, x), at(*wide, uniform((-120, 120))))
    yield Function("rsqrt", torch.rsqrt, lambda x: 1 / mpmath.sqrt(x), at(*positive))
    yield Function(
        "sinc", torch.sinc, mpmath.sincpi, at(*wide, uniform((-100, 100)), zeros=[1, 2, 3, 10, 99])
    )
    yield Function(
        "sigmoid", torch.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), at(*wide, uniform((-80, 40)))
    )
    yield Function("logit", torch.logit, lambda x: mpmath.log(x / (1 - x)), at(uniform((0, 1)), zeros=[0.5]))
    yield Function("entr", special.entr, lambda x: -x * mpmath.log(x), at(*positive, zeros=[1]))
    cdf = lambda x: x * mpmath.ncdf(x)  # noqa: E731
    yield Function("gelu", torch.nn.functional.gelu, cdf, at(magnitudes(-8, 0), uniform((-5, 5))))
    yield Function("silu", torch.nn.functional.silu, lambda x: x / (1 + mpmath.exp(-x)), at(*wide))
    mish = lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x)))  # noqa: E731
    yield Function("mish", torch.nn.functional.mish, mish, at(*wide))
    softplus = lambda x: mpmath.log1p(mpmath.exp(x))  # noqa: E731
    yield Function("softplus", torch.nn.functional.softplus, softplus, at(uniform((-20, 20))))
    log_sigmoid = lambda x: -mpmath.log1p(mpmath.exp(-x))  # noqa: E731
    yield Function("logsigmoid", torch.nn.functional.logsigmoid, log_sigmoid, at(*wide, uniform((-80, 40))))
    x, y = magnitudes(-3, 3, sides=(1,), count=1500), uniform((-0.999, 4), count=1500)
    yield Function("xlogy", torch.xlogy, lambda x, y: x * mpmath.log(y), pairs(x, y.abs()))
    yield Function("xlog1py", special.xlog1py, lambda x, y: x * mpmath.log1p(y), pairs(x, y))
    yield Function("pow", torch.pow, mpmath.power, pairs(x, uniform((-10, 10), count=1500)))
    both = pairs(uniform((-20, 20), count=1500), uniform((-20, 20), (-3, 3), (-1, 1), count=500))
    log_sum = lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y))  # noqa: E731
    yield Function("logaddexp", torch.logaddexp, log_sum, both)
    yield Function("atan2", torch.atan2, mpmath.atan2, both)
    yield Function("hypot", torch.hypot, mpmath.hypot, both)


def _chebyshev(x: mpmath.mpf, n: int, kind: str, shifted: bool) -> object:
    x = 2 * x - 1 if shifted else x
    angle = mpmath.acos(x)
    return {
        "t": lambda: mpmath.chebyt(n, x),
        "u": lambda: mpmath.chebyu(n, x),
        "v": lambda: mpmath.re(mpmath.cos((n + 0.5) * angle) / mpmath.cos(angle / 2)),
        "w": lambda: mpmath.re(mpmath.sin((n + 0.5) * angle) / mpmath.sin(angle / 2)),
    }[kind]()


def polynomials() -> Iterator[Function]:
    """Return orthogonal polynomials; near their zeros, mpmath needs more digits for them."""
    inner = at(uniform((-1, 1), (-1.5, 1.5), count=250))
    for n in (3, 8, 20):
        for kind in "tuvw":
            for shifted in ("", "shifted_"):
                name = f"{shifted}chebyshev_polynomial_{kind}"
                value = functools.partial(_chebyshev, n=n, kind=kind, shifted=bool(shifted))
                yield Function(f"{name} {n}", _degree(name, n), value, inner)
        wide = at(uniform((-5, 5), count=500))
        for name, exact, points in (
            ("hermite_polynomial_h", mpmath.hermite, wide),
            (
                "hermite_polynomial_he",
                lambda n, x: mpmath.hermite(n, x / mpmath.sqrt(2)) / mpmath.sqrt(2) ** n,
                wide,
            ),
            ("laguerre_polynomial_l", lambda n, x: mpmath.laguerre(n, 0, x), at(uniform((0, 20), count=500))),
            ("legendre_polynomial_p", mpmath.legendre, inner),
        ):
            yield Function(f"{name} {n}", _degree(name, n), lambda x, n=n, exact=exact: exact(n, x), points)


def _degree(name: str, n: int) -> Callable[[Tensor], Tensor]:
    return lambda x: getattr(special, name)(x, n)


def functions() -> Iterator[Function]:
    """Return all functions."""
    for family in (bessel, gamma, error_functions, elementary, polynomials):
        yield from family()


# --- errors ---


def exactly(
    function: Function, dtype: torch.dtype, cache: Path | None
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return the points and the exact results as a sum of two float64 tensors, NaN where undefined."""
    points = function.points(dtype)
    file = cache / f"{function.name} {str(dtype)[6:]}.pt".replace(" ", "_") if cache else None
    if file and file.exists():
        known, high, low = torch.load(file)
        if all(torch.equal(a, b) for a, b in zip(known, points, strict=True)):
            return points, high, low
    parts = []
    with mpmath.workdps(50 if "polynomial" in function.name else 34):
        for point in zip(*(p.tolist() for p in points), strict=True):
            try:
                value = mpmath.mpmathify(function.exact(*map(mpmath.mpf, point)))
                value = (
                    value if isinstance(value, mpmath.mpf) else value.real if not value.imag else mpmath.nan
                )
            except (
                ValueError,
                ZeroDivisionError,
                OverflowError,
                ArithmeticError,
                mpmath.libmp.NoConvergence,
            ):
                value = mpmath.nan
            high = float(value)
            parts.append((high, float(value - high) if math.isfinite(high) else 0.0))
    high, low = torch.tensor(parts, dtype=torch.float64).unbind(1)
    if file:
        torch.save((points, high, low), file)
    return points, high, low


def ulps(actual: Tensor, high: Tensor, low: Tensor | float = 0.0) -> Tensor:
    """Return the errors of `actual` relative to high + low, in units in the last place of its dtype.

    The error is infinite if exactly one of the two is finite. It is NaN if the exact result is undefined or
    smaller than the smallest normal number.
    """
    info = torch.finfo(actual.dtype)
    wide, rounded = actual.double(), high.to(actual.dtype).double()
    _, exponent = torch.frexp(high)
    unit = torch.ldexp(torch.full_like(high, info.eps / 2), exponent)
    error = ((wide - high) - low).abs() / unit
    same = (wide == rounded) & wide.isinf()
    error = torch.where(same, 0.0, torch.where(wide.isfinite() & rounded.isfinite(), error, math.inf))
    return torch.where(high.isnan() | (high.abs() < info.tiny), math.nan, error)


@dataclass
class Errors:
    """The largest and the mean error in ulp, and the location of the largest."""

    largest: float
    mean: float
    where: str

    @staticmethod
    def of(error: Tensor, points: list[Tensor]) -> Errors:
        """Summarize the errors at the points, ignoring NaN."""
        counted = ~error.isnan()
        if not counted.any():
            return Errors(0.0, 0.0, "")
        worst = int(error.nan_to_num(-1.0, posinf=math.inf).argmax())
        where = ", ".join(f"{p[worst]:.9g}" for p in points)
        finite = error[counted & error.isfinite()]
        return Errors(float(error[worst]), float(finite.mean()) if len(finite) else math.inf, where)


def peers() -> list[str]:
    """Return the devices that xpu is compared with."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def number(value: float) -> str:
    """Format an error in five columns."""
    return f"{value:.2f}" if value < 100 else f"{value:.0f}" if value < 1e5 else f"{value:.0e}"


class Report:
    """A table of the largest and mean errors by device, and whether xpu is as accurate as its peers."""

    def __init__(self, title: str, slack: float, show_all: bool) -> None:
        self.table, self.slack, self.show_all = Table(title=title), slack, show_all
        self.total = self.worse = 0
        self.table.add_column("")
        for device in ("xpu", *peers()):
            self.table.add_column(device, justify="right")
            self.table.add_column("mean", justify="right")
        self.table.add_column("worst at")

    def add(self, name: str, errors: dict[str, Errors]) -> None:
        """Add a row; it fails if xpu's largest error exceeds that of the best peer."""
        best = min(errors[p].largest for p in peers())
        worse = errors["xpu"].largest > best + self.slack
        self.total += 1
        self.worse += worse
        if sys.stderr.isatty():
            print(name, file=sys.stderr, flush=True)
        cells = [text for e in errors.values() for text in (number(e.largest), number(e.mean))]
        cells[0] = f"[{'red' if worse else 'green'}]{cells[0]}[/]"
        if worse or self.show_all:
            self.table.add_row(name, *cells, errors["xpu"].where)

    def print(self) -> bool:
        """Print the table; return whether xpu is nowhere less accurate."""
        console = Console(width=max(80, Console().width))
        if self.table.row_count:
            console.print(self.table)
        console.print(f"{self.total - self.worse} of {self.total} at least as accurate as the best peer")
        return not self.worse


def compare_functions(arguments: argparse.Namespace) -> bool:
    """Compare every function with `-k` in its name."""
    good = True
    for dtype in (DTYPES[name] for name in arguments.dtype):
        title = f"functions, {str(dtype)[6:]}: largest and mean error in ulp"
        report = Report(title, arguments.slack, not arguments.worse)
        for function in functions():
            if arguments.k not in function.name:
                continue
            points, high, low = exactly(function, dtype, arguments.cache)
            errors = {}
            for device in ("xpu", *peers()):
                try:
                    actual = function.call(*(p.to(dtype).to(device) for p in points)).cpu()
                except (RuntimeError, NotImplementedError) as error:
                    if device == "xpu":
                        raise
                    print(f"{function.name} on {device}: {error}", file=sys.stderr)
                    errors[device] = Errors(math.inf, math.inf, "")
                    continue
                errors[device] = Errors.of(ulps(actual, high, low), points)
            report.add(function.name, errors)
        good &= report.print()
    return good


# --- reductions ---


def reductions(dtype: torch.dtype) -> Iterator[tuple[str, Callable[[Tensor], Tensor], Tensor]]:
    """Return sums, products, norms and scans: name, function and argument."""
    torch.manual_seed(0)
    for count in (1000, 10_000, 1_000_000):
        rows = max(1, 100_000 // count)
        signed, positive = torch.randn(rows, count), torch.rand(rows, count)
        near_one = 1 + torch.randn(rows, count) / count**0.5 / 10
        for name, call, x in (
            ("sum of signed", lambda x: x.sum(1), signed),
            ("sum", lambda x: x.sum(1), positive),
            ("sum of columns", lambda x: x.t().contiguous().sum(0), positive),
            ("mean", lambda x: x.mean(1), positive),
            ("prod near 1", lambda x: x.prod(1), near_one),
            ("norm", lambda x: x.norm(dim=1), signed),
            ("norm 3", lambda x: x.norm(3, dim=1), signed),
            ("var", lambda x: x.var(1), signed),
            ("var far from 0", lambda x: x.var(1), positive + 100),
            ("std", lambda x: x.std(1), signed),
            ("logsumexp", lambda x: x.logsumexp(1), signed),
            ("softmax", lambda x: x.softmax(1), signed),
            ("log_softmax", lambda x: x.log_softmax(1), signed),
            ("cumsum", lambda x: x.cumsum(1), positive),
            ("cumprod near 1", lambda x: x.cumprod(1), near_one),
            ("logcumsumexp", lambda x: x.logcumsumexp(1), signed),
            ("dot", lambda x: x @ x[0], positive),
        ):
            yield f"{name} {count:,}", call, x.to(dtype)


def compare_reductions(arguments: argparse.Namespace) -> bool:
    """Compare every reduction with `-k` in its name with float64."""
    good = True
    for dtype in (DTYPES[name] for name in arguments.dtype if name != "float64"):
        report = Report(f"reductions, {str(dtype)[6:]}: error in ulp", arguments.slack, not arguments.worse)
        for name, call, x in reductions(dtype):
            if arguments.k not in name:
                continue
            exact = call(x.double()).flatten()
            errors = {d: Errors.of(ulps(call(x.to(d)).cpu().flatten(), exact), []) for d in ("xpu", *peers())}
            report.add(name, errors)
        good &= report.print()
    return good


# --- PyTorch's own samples ---


def _convert(tree: object, device: str, dtype: torch.dtype | None = None) -> object:
    """Copy the tensors in `tree` to a device; floating-point and complex ones get the dtype's precision."""

    def convert(leaf: object) -> object:
        if isinstance(leaf, Tensor):
            kind = leaf.dtype
            if dtype and leaf.is_floating_point():
                kind = dtype
            elif dtype and leaf.is_complex():
                kind = torch.complex128
            return leaf.detach().to(device, kind, copy=True).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device):
            return torch.device(device)
        return dtype if dtype and isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf

    return pytree.tree_map(convert, tree)


def _results(operator: OpInfo, sample: SampleInput, device: str, wide: bool, seed: int = 0) -> list[Tensor]:
    """Return the results of an operator and its input gradients, for reproducible output gradients."""
    dtype = torch.float64 if wide else None
    given: Any = _convert((sample.input, sample.args, sample.kwargs), device, dtype)
    first, rest, named = given
    torch.manual_seed(seed)
    found = operator(first, *rest, **named)
    results = [r for r in pytree.tree_leaves(found) if isinstance(r, Tensor)]
    kept = sample.output_process_fn_grad(found)
    roots = [r for r in pytree.tree_leaves(kept) if isinstance(r, Tensor) and r.requires_grad]
    leaves = [t for t in pytree.tree_leaves(given) if isinstance(t, Tensor) and t.requires_grad]
    if roots and leaves:
        generator = torch.Generator().manual_seed(7)
        seeds = [torch.randn(r.shape, generator=generator).bfloat16().to(device, r.dtype) for r in roots]
        gradients = torch.autograd.grad(roots, leaves, seeds, allow_unused=True)
        results += [g for g in gradients if g is not None]
    return [r.detach().cpu().resolve_conj() for r in results]


def _distance(actual: Tensor, exact: Tensor) -> float:
    """Return the largest error in ulp at the largest result's magnitude; infinite where NaN differs."""
    if actual.is_complex():
        actual, exact = torch.view_as_real(actual), torch.view_as_real(exact)
    rounded = exact.to(actual.dtype)
    same = (actual == rounded) | (actual.isnan() & rounded.isnan())
    if bool(same.all()):
        return 0.0
    if not bool((actual.isfinite() | same).all()):
        return math.inf
    largest = exact[exact.isfinite()].abs().max().clamp_min(torch.finfo(actual.dtype).tiny)
    error = torch.where(same, 0.0, (actual.double() - exact).abs()).max()
    return float(error / largest / torch.finfo(actual.dtype).eps)


def _comparable(result: Tensor) -> bool:
    return result.layout == torch.strided and result.is_floating_point() or result.is_complex()


def compare_samples(arguments: argparse.Namespace) -> bool:
    """Compare every operator of PyTorch's op_db with `-k` in its name."""
    from torch.testing._internal.common_methods_invocations import op_db

    table = Table(title="PyTorch's samples: results at least as accurate as the peer's, against float64")
    for column in ("operator", "dtype", "results", "share", "largest error", "peer's"):
        table.add_column(column, justify="left" if column in ("operator", "dtype") else "right")
    total = as_exact = 0
    for operator in op_db:
        for dtype in (DTYPES[name] for name in arguments.dtype if name != "float64"):
            if arguments.k not in operator.name or dtype not in operator.supported_dtypes("cpu"):
                continue
            pairs = list(_sample_errors(operator, dtype, arguments.samples))
            good = sum(ours <= max(theirs, arguments.slack) for ours, theirs in pairs)
            total, as_exact = total + len(pairs), as_exact + good
            if good < len(pairs):
                ours, theirs = max(p for p in pairs if p[0] > max(p[1], arguments.slack))
                share = f"{good / len(pairs):.0%}"
                table.add_row(
                    operator.formatted_name,
                    str(dtype)[6:],
                    str(len(pairs)),
                    share,
                    number(ours),
                    number(theirs),
                )
    console = Console(width=max(80, Console().width))
    console.print(table)
    console.print(f"{as_exact:,} of {total:,} results ({as_exact / max(total, 1):.1%}) at least as accurate")
    return True


def _sample_errors(operator: OpInfo, dtype: torch.dtype, most: int) -> Iterator[tuple[float, float]]:
    """Yield xpu's and the best peer's error per result; skip random results and unsupported samples."""
    gradients = operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    try:
        samples = list(itertools.islice(operator.sample_inputs("cpu", dtype, requires_grad=gradients), most))
    except Exception as error:  # samples that this machine cannot make
        print(f"{operator.formatted_name}: {error}", file=sys.stderr)
        return
    for sample in samples:
        try:
            exact = _results(operator, sample, "cpu", True)
            again = _results(operator, sample, "cpu", True, seed=1)
            found = {device: _results(operator, sample, device, False) for device in ("xpu", *peers())}
        except Exception as error:
            print(f"{operator.formatted_name}, {dtype}: {str(error)[:200]}", file=sys.stderr)
            continue
        for i, reference in enumerate(exact):
            tensors = {d: r[i] for d, r in found.items() if i < len(r)}
            if len(tensors) < len(found) or not all(map(_comparable, (reference, *tensors.values()))):
                continue
            if any(t.shape != reference.shape for t in tensors.values()) or not torch.equal(
                reference.nan_to_num(), again[i].nan_to_num()
            ):
                continue
            errors = {d: _distance(t, reference) for d, t in tensors.items()}
            yield errors["xpu"], min(errors[p] for p in peers())


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", choices=["functions", "reductions", "samples", []], help=argparse.SUPPRESS
    )
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["float32"])
    parser.add_argument("-k", default="", help="only functions whose names contain this")
    parser.add_argument("--slack", type=float, default=0.51, help="by how many ulp xpu may be less accurate")
    parser.add_argument("--samples", type=int, default=12, help="samples per operator")
    parser.add_argument("--worse", action="store_true", help="show only cases in which xpu is less accurate")
    parser.add_argument("--cache", type=Path, help="folder that caches mpmath's results")
    arguments = parser.parse_args()
    if arguments.cache:
        arguments.cache.mkdir(parents=True, exist_ok=True)
    parts = {"functions": compare_functions, "reductions": compare_reductions, "samples": compare_samples}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's samples call deprecated functions
        good = [parts[part](arguments) for part in arguments.what or ("functions", "reductions")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
