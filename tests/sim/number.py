"""Exact arithmetic on the number formats of Intel's execution units.

A floating-point value is a `Real`: NaN, a signed infinity, a signed zero, or an exact fraction. Operations are
exact; `Format.encode` rounds once, as IEEE 754 does.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

EVEN, UP, DOWN, ZERO = 0, 1, 2, 3  # rounding modes, as cr0.0[5:4] numbers them


class Real(NamedTuple):
    """A floating-point value; `value` of finite nonzero ones includes the sign."""

    kind: str  # nan, inf, zero, finite
    negative: bool = False
    value: Fraction = Fraction(0)


NAN = Real("nan")


def infinity(negative: bool = False) -> Real:
    return Real("inf", negative)


def zero(negative: bool = False) -> Real:
    return Real("zero", negative)


def real(value: Fraction | int | float) -> Real:
    """A finite value; zero is positive."""
    value = Fraction(value)
    return Real("finite", value < 0, value) if value else zero()


def negate(x: Real) -> Real:
    return Real(x.kind, not x.negative, -x.value)


def absolute(x: Real) -> Real:
    return Real(x.kind, False, abs(x.value))


def add(x: Real, y: Real, mode: int = EVEN) -> Real:
    """x + y; the sign of an exact zero follows IEEE 754, section 6.3."""
    if "nan" in (x.kind, y.kind):
        return NAN
    if x.kind == "inf":
        return NAN if y.kind == "inf" and x.negative != y.negative else x
    if y.kind == "inf":
        return y
    if x.kind == y.kind == "zero":
        return zero(x.negative if x.negative == y.negative else mode == DOWN)
    total = x.value + y.value
    return real(total) if total else zero(mode == DOWN)


def multiply(x: Real, y: Real) -> Real:
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind) or {x.kind, y.kind} == {"inf", "zero"}:
        return NAN
    if "inf" in (x.kind, y.kind):
        return infinity(negative)
    if "zero" in (x.kind, y.kind):
        return zero(negative)
    return real(x.value * y.value)


def divide(x: Real, y: Real) -> Real:
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind) or (x.kind == y.kind and x.kind in ("inf", "zero")):
        return NAN
    if x.kind == "inf" or y.kind == "zero":
        return infinity(negative)
    if y.kind == "inf" or x.kind == "zero":
        return zero(negative)
    return real(x.value / y.value)


def less(x: Real, y: Real) -> bool:
    """Ordered x < y; zeros are equal."""
    if "nan" in (x.kind, y.kind):
        return False
    return order(x) < order(y)


def equal(x: Real, y: Real) -> bool:
    return "nan" not in (x.kind, y.kind) and order(x) == order(y)


def order(x: Real) -> tuple[int, Fraction]:
    """A sort key of values that are not NaN."""
    if x.kind == "inf":
        return (-1 if x.negative else 1, Fraction(0))
    return (0, x.value)


@dataclass(frozen=True)
class Format:
    """A binary floating-point format, by its sizes of exponent and mantissa."""

    name: str
    bits: int
    exponent: int
    mantissa: int
    low: int = 0  # unused low bits: tf32 lies in the upper 19 of a dword

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def top(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent) - 1

    def decode(self, bits: int, flush: bool = False) -> Real:
        return _decode(self, bits, flush)

    def encode(self, x: Real, mode: int = EVEN, flush: bool = False) -> int | None:
        """Bits of x rounded once; None for NaN, whose payload is not specified."""
        if x.kind == "nan":
            return None
        sign = int(x.negative) << (self.exponent + self.mantissa)
        if x.kind == "inf":
            return (sign | self.top << self.mantissa) << self.low
        if x.kind == "zero":
            return sign << self.low
        return (sign | self._magnitude(abs(x.value), x.negative, mode, flush)) << self.low

    def _magnitude(self, value: Fraction, negative: bool, mode: int, flush: bool) -> int:
        power = value.numerator.bit_length() - value.denominator.bit_length()
        if value < Fraction(2) ** power:
            power -= 1
        power = max(power, 1 - self.bias)  # subnormal numbers share the smallest exponent
        scaled = value / Fraction(2) ** (power - self.mantissa)
        whole = scaled.numerator // scaled.denominator
        rest = scaled - whole
        if mode == EVEN:
            whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1 == 1)
        elif mode in (UP, DOWN):
            whole += rest > 0 and negative == (mode == DOWN)
        # a carry out of the mantissa runs into the exponent, as it should
        field = ((power + self.bias - 1) << self.mantissa) + whole
        if flush and field < 1 << self.mantissa:
            return 0
        if field < self.top << self.mantissa:
            return field
        to_infinity = mode == EVEN or (mode in (UP, DOWN) and negative == (mode == DOWN))
        return (self.top << self.mantissa) - (0 if to_infinity else 1)

    def is_nan(self, bits: int) -> bool:
        return self.decode(bits).kind == "nan"

    def is_denormal(self, bits: int) -> bool:
        bits >>= self.low
        return bits >> self.mantissa & self.top == 0 and bits & ((1 << self.mantissa) - 1) != 0


@lru_cache(1 << 16)
def _decode(format: Format, bits: int, flush: bool) -> Real:
    bits >>= format.low
    fraction = bits & ((1 << format.mantissa) - 1)
    exponent = bits >> format.mantissa & format.top
    negative = bits >> (format.mantissa + format.exponent) & 1 == 1
    if exponent == format.top:
        return NAN if fraction else infinity(negative)
    if exponent == 0 and (fraction == 0 or flush):
        return zero(negative)
    if exponent:
        fraction |= 1 << format.mantissa
    value = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - format.bias - format.mantissa)
    return real(-value if negative else value)


@dataclass(frozen=True)
class Integer:
    """An integer format."""

    name: str
    bits: int
    signed: bool

    @property
    def least(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def most(self) -> int:
        return (1 << (self.bits - int(self.signed))) - 1

    def decode(self, bits: int) -> int:
        bits &= (1 << self.bits) - 1
        return bits - (1 << self.bits) if self.signed and bits >> (self.bits - 1) else bits

    def encode(self, value: int, saturate: bool = False) -> int:
        if saturate:
            value = min(max(value, self.least), self.most)
        return value & ((1 << self.bits) - 1)


F = Format("f", 32, 8, 23)
HF = Format("hf", 16, 5, 10)
BF = Format("bf", 16, 8, 7)
DF = Format("df", 64, 11, 52)
BF8 = Format("bf8", 8, 5, 2)
HF8 = Format("hf8", 8, 4, 3)
TF32 = Format("tf32", 32, 8, 10, 13)
UB, B = Integer("ub", 8, False), Integer("b", 8, True)
UW, W = Integer("uw", 16, False), Integer("w", 16, True)
UD, D = Integer("ud", 32, False), Integer("d", 32, True)
UQ, Q = Integer("uq", 64, False), Integer("q", 64, True)
Type = Format | Integer
INTEGERS = (UB, B, UW, W, UD, D, UQ, Q)


def to_integer(x: Real, type: Integer) -> int:
    """Truncation with clamping; NaN becomes 0.

    IGC documentation/visa/2_datatypes.md, "Float to Integer".
    """
    if x.kind == "nan":
        return 0
    if x.kind == "inf":
        return type.least if x.negative else type.most
    magnitude = abs(x.value)
    whole = magnitude.numerator // magnitude.denominator
    return min(max(-whole if x.negative else whole, type.least), type.most)


def saturate(x: Real) -> Real:
    """Clamps to [0, 1]; NaN becomes 0 (IGC documentation/visa/2_datatypes.md, "Saturation")."""
    if x.kind == "nan" or x.negative:
        return zero()
    return real(1) if x.kind == "inf" or x.value > 1 else x
