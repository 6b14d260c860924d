"""Print the tables of src/kernels/pointwise/erf_double.h, computed with 60 digits.

    python tools/erf_tables.py > src/kernels/pointwise/erf_tables.h

Requires mpmath.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath

NODES = 191  # c = j/32, up to where erf rounds to 1
FAR = 5  # from here on erfc is exp(-x²) times a series in 1/x²
FAR_TERMS = 14
STEPS = 32  # 2^(j/32)
SERIES = (11, 9, 7, 5, 1)  # the terms above 2^-60 of erf, and of erfc up to FAR


def parts(value: mpmath.mpf) -> tuple[float, float]:
    """Return the double-word number hi + lo nearest to `value`."""
    high = float(value)
    return high, float(value - high)


def table(name: str, comment: str, values: list[float], columns: int) -> str:
    """Return the C source of a constant array."""
    rows = [values[k : k + columns] for k in range(0, len(values), columns)]
    body = "".join("    " + " ".join(f"{v!r}," for v in row) + "\n" for row in rows)
    return f"/* {comment} */\n__constant double {name}[] = {{\n{body}}};\n"


def nodes() -> list[float]:
    """Return erf(c) for c < 1/2, erfc(c) from there on, and the derivative of erf, by node."""
    values: list[float] = []
    for j in range(NODES):
        c = mpmath.mpf(j) / 32
        values += parts(mpmath.erf(c) if j < 16 else mpmath.erfc(c))
        values += parts(2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-c * c))
    return values


def chebyshev(function: Callable[[mpmath.mpf], mpmath.mpf], count: int) -> list[float]:
    """Return the first `count` Chebyshev coefficients of a function on [-1, 1]."""
    points = 4 * count
    angles = [mpmath.pi * (k + mpmath.mpf(0.5)) / points for k in range(points)]
    values = [function(mpmath.cos(a)) for a in angles]
    sums = [
        mpmath.fsum(v * mpmath.cos(j * a) for v, a in zip(values, angles, strict=True)) for j in range(count)
    ]
    return [float(s * (1 if j == 0 else 2) / points) for j, s in enumerate(sums)]


def far(t: mpmath.mpf) -> mpmath.mpf:
    """Return (x √π exp(x²) erfc(x) - 1) x² at 1/x² = (t + 1) / 50."""
    z = (t + 1) / (2 * FAR * FAR)
    x = 1 / mpmath.sqrt(z)
    return (x * mpmath.sqrt(mpmath.pi) * mpmath.exp(x * x) * mpmath.erfc(x) - 1) / z


def main() -> None:
    """Print the header."""
    mpmath.mp.dps = 60
    steps = [part for j in range(STEPS) for part in parts(mpmath.mpf(2) ** (mpmath.mpf(j) / STEPS))]
    text = (
        "/* Written by tools/erf_tables.py. Pairs of numbers are sums hi + lo. */\n/* clang-format off */\n"
    )
    text += table(
        "erf_nodes",
        "At c = j/32: erf(c), from j = 16 on erfc(c); 2/sqrt(pi) exp(-c²).",
        nodes(),
        4,
    )
    series = [
        float(1 / (mpmath.factorial(k) * mpmath.factorial(m) * (2 * k + 1 + m)))
        for k, count in enumerate(SERIES)
        for m in range(count)
    ]
    text += table(
        "erf_series", f"1/(k! m! (2k + 1 + m)), {', '.join(map(str, SERIES))} terms of k = 0, 1, …", series, 4
    )
    text += table("exp_steps", "2^(j/32).", steps, 4)
    text += table(
        "erfc_far",
        "Chebyshev series of (x sqrt(pi) exp(x²) erfc(x) - 1) x² in 50/x² - 1, x >= 5.",
        chebyshev(far, FAR_TERMS),
        4,
    )
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
