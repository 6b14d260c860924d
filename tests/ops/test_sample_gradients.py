"""Gradients of gamma and Dirichlet samples with respect to their parameters, in high precision.

PyTorch's own kernels are approximations with errors of up to some hundredths, so the reference is the definition: minus
the derivative of the distribution function with respect to the parameter, over the density, computed with mpmath.
"""

from __future__ import annotations

import mpmath
import pytest
import torch
from comparing import assert_close

aten = torch.ops.aten
# float32 loses digits in logarithms that cancel where concentrations are thousands.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-3, torch.bfloat16: 1e-2, torch.float16: 1e-2}


def moved(distribution, density, parameter: float) -> float:
    """Return minus the derivative of `distribution` with respect to the parameter, over `density`."""
    step = mpmath.mpf(10) ** -15 * parameter
    slope = (distribution(parameter + step) - distribution(parameter - step)) / (2 * step)
    return float(-slope / density)


def gamma_reference(shape: float, x: float) -> float:
    with mpmath.workdps(40):
        a, x = mpmath.mpf(shape), mpmath.mpf(x)
        density = mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))
        if x < a:
            return moved(lambda s: mpmath.gammainc(s, 0, x, regularized=True), density, a)
        return moved(lambda s: -mpmath.gammainc(s, x, mpmath.inf, regularized=True), density, a)


def log_beta(a, b):
    return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)


def beta_distribution(a, b, x):
    """Compute the incomplete beta function by its power series, all of whose terms are positive."""
    term = total = 1 / a
    n = 0
    while term > total * mpmath.mpf(10) ** -38:
        term *= x * (a + b + n) / (a + n + 1)
        total += term
        n += 1
    return total * mpmath.exp(a * mpmath.log(x) + b * mpmath.log(1 - x) - log_beta(a, b))


def dirichlet_reference(x: float, concentration: float, total: float) -> float:
    with mpmath.workdps(40):
        x, a, total = mpmath.mpf(x), mpmath.mpf(concentration), mpmath.mpf(total)
        b = total - a
        density = mpmath.exp((a - 1) * mpmath.log(x) + b * mpmath.log(1 - x) - log_beta(a, b))
        if x < a / total:
            return moved(lambda s: beta_distribution(s, b, x), density, a)
        return moved(lambda s: -beta_distribution(b, s, 1 - x), density, a)


def compare(function, reference, cases: list[tuple[float, ...]], dtype: torch.dtype) -> None:
    columns = torch.tensor(cases, dtype=torch.float64).to(dtype)
    if dtype == torch.float16:
        columns = columns[columns.isfinite().all(1) & (columns > 6e-5).all(1)]
    expected = torch.tensor([reference(*row) for row in columns.tolist()], dtype=torch.float64)
    actual = function(*columns.to("xpu").unbind(1))
    assert_close(actual, expected, dtype=dtype, rtol=TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_gamma(dtype: torch.dtype) -> None:
    cases = []
    for shape in (1e-3, 0.3, 1.0, 2.5, 9.0, 11.0, 31.0, 59.0, 61.0, 300.0, 3999.0, 4100.0):
        for quantile in (-3, -0.5, 0, 0.1, 1, 5):
            near = max(1e-2, 1 - 1 / (9 * shape) + quantile / (3 * shape**0.5)) ** 3 * shape
            cases.append((shape, near if shape > 0.5 else 10.0 ** (quantile - 3)))
    compare(aten._standard_gamma_grad, gamma_reference, cases, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_dirichlet(dtype: torch.dtype) -> None:
    cases = []
    for a in (0.01, 0.3, 1.0, 5.0, 12.0, 80.0, 1000.0):
        for b in (0.02, 0.7, 3.0, 40.0, 3000.0):
            mean = a / (a + b)
            deviation = (mean * (1 - mean) / (a + b + 1)) ** 0.5
            cases += [
                (mean + q * deviation, a, a + b)
                for q in (-2, -0.6, 0, 0.6, 3)
                if 0.03 < mean + q * deviation < 0.97  # outside, the reference's series converges slowly
            ]
    if dtype == torch.float32:  # total - a must not be changed by rounding total
        cases = [(x, a, float(torch.tensor(total))) for x, a, total in cases if total / a < 1e4]
    compare(aten._dirichlet_grad, dirichlet_reference, cases, dtype)


def test_borders() -> None:
    nan = float("nan")
    shapes = torch.tensor([1.0, 2, nan, 2, 1e30, 1e-30], device="xpu")
    x = torch.tensor([0.0, nan, 1, 2e9, 1e30, 1e-3], device="xpu")
    y = aten._standard_gamma_grad(shapes, x).cpu()
    assert y.isnan().tolist() == [False, True, True, False, False, False] and y[0] == 0
    assert y[[3, 4, 5]].isfinite().all() and abs(y[4] - 1) < 1e-6
    x = torch.tensor([0.0, 1, nan, 0.5], device="xpu")
    y = aten._dirichlet_grad(x, torch.full_like(x, 2), torch.full_like(x, 5)).cpu()
    assert y.isnan().tolist() == [False, False, True, False] and y[0] == 0
    assert aten._standard_gamma_grad(x[:0], x[:0]).shape == (0,)


def test_views_and_a_second_dimension() -> None:
    torch.manual_seed(0)
    shapes, x = torch.rand(6, 5, dtype=torch.float64) * 20, torch.rand(5, 6, dtype=torch.float64) * 20
    actual = aten._standard_gamma_grad(shapes.to("xpu")[::2], x.to("xpu").T[::2]).cpu()
    torch.testing.assert_close(actual, aten._standard_gamma_grad(shapes[::2], x.T[::2]), rtol=2e-3, atol=1e-5)


def test_reparameterised_samples() -> None:
    """The mean of the gradients is the gradient of the mean: 1 for gamma, and known for Dirichlet."""
    torch.manual_seed(0)
    shape = torch.full((40000,), 3.5, device="xpu", requires_grad=True)
    torch.distributions.Gamma(shape, 1.0).rsample().mean().backward()
    assert abs(shape.grad.sum().item() - 1) < 0.02
    concentration = torch.tensor([0.7, 2.0, 4.0], device="xpu", requires_grad=True)
    samples = torch.distributions.Dirichlet(concentration.expand(40000, 3)).rsample()
    samples[:, 1].mean().backward()
    total = 6.7
    expected = torch.tensor([-2.0, total - 2.0, -2.0]) / total**2
    assert_close(concentration.grad, expected, rtol=0.05, atol=2e-3)
