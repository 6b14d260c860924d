"""math functions, and the macros for division and square root.

Sources: intel/intel-graphics-compiler, documentation/visa/instructions/{INV,LOG,EXP,SQRT,RSQRT,SIN,COS}.md
(formulas; logarithm and exponential have base 2), DIVM.md and SQRTM.md ("IEEE compliant result"), INVM.md,
RSQTM.md ("If a bit in preddst is set, its corresponding dst is a special number"),
visa/VisaToG4/TranslateMath.cpp (sequences of madm after math.invm and math.rsqtm).

The documents give no error of the functions. OpenCL's native_ functions, which they serve, have none either; the
bounds here are generous: 4 units in the last place (hf: 1), for sin and cos 2^-10 absolute for |x| <= 100, for
log 2^-20 absolute near 1.
"""

import math
from collections.abc import Iterator

import mpmath
import number
from lanes import SKIP, Near, Operation, interesting, pairs
from machine import Case, Product
from number import HF, F, Format, Real


def float_of(x: Real) -> float:
    """For mpmath; finite values only."""
    return float(x.value)


def ulp(type: Format, value: float) -> float:
    """The distance of neighbors at `value`."""
    if value == 0:
        return 2.0 ** (1 - type.bias - type.mantissa)
    return 2.0 ** (max(math.frexp(value)[1] - 1, 1 - type.bias) - type.mantissa)


def special(function: str, x: Real):
    """Results that are not ordinary numbers, or None."""
    nan, least = number.NAN, number.zero()
    if x.kind == "nan":
        return nan
    table = {
        "inv": {"inf": number.zero(x.negative), "zero": number.infinity(x.negative)},
        "sqt": {"inf": nan if x.negative else number.infinity(), "zero": number.zero(x.negative)},
        "rsqt": {"inf": nan if x.negative else least, "zero": number.infinity(x.negative)},
        "log": {"inf": nan if x.negative else number.infinity(), "zero": number.infinity(True)},
        "exp": {"inf": least if x.negative else number.infinity(), "zero": number.real(1)},
        "sin": {"inf": nan, "zero": number.zero(x.negative)},
        "cos": {"inf": nan, "zero": number.real(1)},
    }
    if x.kind in table[function]:
        return table[function][x.kind]
    if x.negative and function in ("sqt", "rsqt", "log"):
        return nan
    return None


EXACT = {
    "inv": lambda x: 1 / x,
    "sqt": mpmath.sqrt,
    "rsqt": lambda x: 1 / mpmath.sqrt(x),
    "log": lambda x: mpmath.log(x, 2),
    "exp": lambda x: mpmath.power(2, x),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}


def function(name: str, type: Format, modifier: str = ""):
    """The reference of a function of one variable."""

    def reference(bits: int):
        x = type.decode(bits)
        if modifier == "-":
            x = number.negate(x)
        found = special(name, x)
        if found is not None:
            encoded = type.encode(found)
            if name == "rsqt" and x.kind == "zero" and x.negative:
                return SKIP  # whether 1/sqrt(-0) is -inf is not documented
            if name == "exp" and x.kind == "zero" or name == "cos" and x.kind == "zero":
                return Near(1.0, 4 * ulp(type, 1.0))
            return encoded
        value = float_of(x)
        if name in ("sin", "cos") and abs(value) > 100:
            return SKIP
        if name == "exp" and abs(value) > 1 << type.exponent:
            return type.encode(number.zero() if value < 0 else number.infinity())
        exact = float(EXACT[name](mpmath.mpf(value)))
        rounded = type.encode(number.real(exact)) if exact else 0
        if rounded is None or type.is_denormal(rounded) or type.decode(rounded).kind != "finite":
            return SKIP if name != "log" else Near(0.0, 2.0**-20)
        distance = (4 if type is F else 1.01) * ulp(type, exact)
        if name in ("sin", "cos"):
            distance = max(distance, 2.0**-10)
        if name == "log":
            distance = max(distance, 2.0**-20 if type is F else 2.0**-10)
        return Near(exact, distance)

    return reference


def functions(product: Product) -> Iterator[Operation]:
    for type in (F, HF):
        values = [(x,) for x in interesting(type)]
        values += [(type.encode(number.real(x / 8)),) for x in range(-64, 65) if x]
        values += [
            (type.encode(number.real(x)),) for x in (1.0001, 0.9999, 123.456, 1e-3, 3.14159265, 6.2831, -55.5)
        ]
        for name in EXACT:
            for modifier in ("", "-"):
                yield Operation(
                    f"math.{name}",
                    type,
                    (type,),
                    values,
                    function(name, type, modifier),
                    modifiers=(modifier,),
                )


DIVIDE = """
(W) mov ({n}|M0) r30.0<1>:f 0x0:f
(W) mov ({n}|M0) r31.0<1>:f 0x3F800000:f
(W) mov (1|M0) f0.0<1>:ud 0x0:ud
math.invm ({n}|M0) (eo)f0.0 r80.mme0:f r20.nomme:f r40.nomme:f
(~f0.0) madm ({n}|M0) r90.mme1:f r30.nomme:f r20.nomme:f r80.mme0:f
(~f0.0) madm ({n}|M0) r91.mme2:f r31.nomme:f -r40.nomme:f r80.mme0:f
(~f0.0) madm ({n}|M0) r92.mme3:f r80.mme0:f r91.mme2:f r80.mme0:f
(~f0.0) madm ({n}|M0) r93.mme4:f r20.nomme:f -r40.nomme:f r90.mme1:f
(~f0.0) madm ({n}|M0) r90.mme5:f r90.mme1:f r93.mme4:f r92.mme3:f
(~f0.0) madm ({n}|M0) r94.mme6:f r20.nomme:f -r40.nomme:f r90.mme5:f
(~f0.0) madm ({n}|M0) r80.nomme:f r90.mme5:f r94.mme6:f r92.mme3:f
"""

ROOT = """
(W) mov ({n}|M0) r30.0<1>:f 0x0:f
(W) mov ({n}|M0) r31.0<1>:f 0x3F000000:f
(W) mov (1|M0) f0.0<1>:ud 0x0:ud
math.rsqtm ({n}|M0) (eo)f0.0 r80.mme0:f r20.nomme:f
(~f0.0) madm ({n}|M0) r90.mme1:f r30.nomme:f r31.nomme:f r80.mme0:f
(~f0.0) madm ({n}|M0) r91.mme2:f r30.nomme:f r20.nomme:f r80.mme0:f
(~f0.0) madm ({n}|M0) r92.mme3:f r31.nomme:f -r91.mme2:f r90.mme1:f
(~f0.0) madm ({n}|M0) r90.mme4:f r90.mme1:f r92.mme3:f r90.mme1:f
(~f0.0) madm ({n}|M0) r80.mme5:f r91.mme2:f r92.mme3:f r91.mme2:f
(~f0.0) madm ({n}|M0) r93.mme6:f r20.nomme:f -r80.mme5:f r80.mme5:f
(~f0.0) madm ({n}|M0) r80.nomme:f r80.mme5:f r90.mme4:f r93.mme6:f
"""


def macros(product: Product) -> Iterator[Operation]:
    """Correctly rounded division and square root."""
    lanes = product.register // 4
    values = [
        *interesting(F),
        *(F.encode(number.real(x)) for x in (3, 7, 10, 1e-30, 1e30, 1e-5, 49, 2.25, 1e10)),
    ]
    operation = Operation(
        "divide", F, (F, F), pairs(values, values), _divide, lanes=lanes, label="invm, madm"
    )
    operation._instruction = lambda *_: DIVIDE.format(n=lanes).strip()
    yield operation
    roots = [(x,) for x in values] + [(F.encode(number.real(x)),) for x in range(1, 300)]
    operation = Operation("root", F, (F,), roots, _root, lanes=lanes, label="rsqtm, madm")
    operation._instruction = lambda *_: ROOT.format(n=lanes).strip()
    yield operation


def _divide(x: int, y: int):
    return F.encode(number.divide(F.decode(x), F.decode(y)))


def _root(bits: int):
    x = F.decode(bits)
    found = special("sqt", x)
    if found is not None:
        return F.encode(found)
    with mpmath.workprec(200):
        root = mpmath.sqrt(mpmath.mpf(x.value.numerator) / x.value.denominator)
        mantissa, exponent = root.man_exp
    return F.encode(number.real(number.Fraction(int(mantissa)) * number.Fraction(2) ** int(exponent)))


def cases(product: Product) -> list[Case]:
    return [operation.build(product) for group in (functions, macros) for operation in group(product)]
