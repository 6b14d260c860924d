"""CUDA's libdevice functions: all are known, and those with a counterpart in PyTorch return its values."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

_spec = importlib.util.spec_from_file_location("tile_run", Path(__file__).with_name("run.py"))
run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(run)

COUNT = 256


def module(symbol: str, operands: list[str], result: str) -> str:
    """Return a kernel that applies ``symbol`` to vectors of the given types."""
    types = [*operands, result]
    lines = [f"    %r = tt.make_range {{end = {COUNT} : i32, start = 0 : i32}} : tensor<{COUNT}xi32>"]
    for i, t in enumerate(types):
        vector = f"tensor<{COUNT}x!tt.ptr<{t}>>"
        lines.append(f"    %s{i} = tt.splat %p{i} : !tt.ptr<{t}> -> {vector}")
        lines.append(f"    %q{i} = tt.addptr %s{i}, %r : {vector}, tensor<{COUNT}xi32>")
        if i < len(operands):
            lines.append(f"    %x{i} = tt.load %q{i} : {vector}")
    names = ", ".join(f"%x{i}" for i in range(len(operands)))
    ins = ", ".join(f"tensor<{COUNT}x{t}>" for t in operands)
    attributes = f'{{libname = "", libpath = "", pure = true, symbol = "__nv_{symbol}"}}'
    lines.append(f"    %y = tt.extern_elementwise {names} {attributes} : ({ins}) -> tensor<{COUNT}x{result}>")
    lines.append(f"    tt.store %q{len(operands)}, %y : tensor<{COUNT}x!tt.ptr<{result}>>")
    parameters = ", ".join(f"%p{i}: !tt.ptr<{t}>" for i, t in enumerate(types))
    body = "\n".join(lines)
    return f"module {{\n  tt.func public @k({parameters}) {{\n{body}\n    tt.return\n  }}\n}}\n"


def unit(lo: float, hi: float) -> np.ndarray:
    return np.linspace(lo, hi, COUNT)


S = torch.special
# name: inputs, reference, relative error in float32 epsilons (CUDA's bounds, or slightly more)
FUNCTIONS = {
    "exp": ([unit(-80, 80)], torch.exp, 4),
    "expm1": ([unit(-5, 5)], torch.expm1, 4),
    "log1p": ([unit(-0.9, 50)], torch.log1p, 4),
    "erf": ([unit(-4, 4)], torch.erf, 4),
    "erfc": ([unit(-4, 9)], torch.erfc, 16),
    "erfcx": ([unit(-4, 30)], S.erfcx, 32),
    "erfinv": ([unit(-0.999, 0.999)], torch.erfinv, 8),
    "erfcinv": ([unit(1e-6, 1.99)], lambda x: torch.erfinv(1 - x), 16),
    "normcdf": ([unit(-5, 5)], S.ndtr, 16),
    "normcdfinv": ([unit(1e-4, 0.9999)], S.ndtri, 16),
    "lgamma": ([unit(0.05, 40)], torch.lgamma, 16),
    "cyl_bessel_i0": ([unit(-40, 40)], S.i0, 16),
    "cyl_bessel_i1": ([unit(-40, 40)], S.i1, 16),
    "tanh": ([unit(-8, 8)], torch.tanh, 6),
    "tan": ([unit(-1.5, 1.5)], torch.tan, 8),
    "rsqrt": ([unit(0.01, 100)], torch.rsqrt, 4),
    "atan2": ([unit(-3, 3), unit(5, -4)], torch.atan2, 6),
    "pow": ([unit(0.1, 9), unit(-8, 8)], torch.pow, 16),
    "hypot": ([unit(-3, 3), unit(5, -4)], torch.hypot, 4),
    "fmod": ([unit(-30, 30), unit(1, 4)], torch.fmod, 1),
    "nextafter": ([unit(-3, 3), unit(5, -4)], None, 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name):
    inputs, reference, units = FUNCTIONS[name]
    inputs = [x.astype(np.float32) for x in inputs]
    out = np.zeros(COUNT, np.float32)
    run.Kernel(module(name + "f", ["f32"] * len(inputs), "f32"))((1,), *inputs, out)
    if reference is None:
        np.testing.assert_array_equal(out, np.nextafter(*inputs))
        return
    wanted = reference(*(torch.from_numpy(x).double() for x in inputs)).numpy()
    np.testing.assert_allclose(out, wanted, rtol=units * 2.0**-23, atol=1e-37)


def exactly(function):
    """Return mpmath's result; PyTorch's float64 Bessel functions have errors of up to 1e-7."""
    return lambda x: torch.tensor([float(function(v)) for v in x.tolist()], dtype=torch.float64)


BESSEL = {
    "j0": exactly(lambda x: mpmath.besselj(0, x)),
    "j1": exactly(lambda x: mpmath.besselj(1, x)),
    "y0": exactly(lambda x: mpmath.bessely(0, x)),
    "y1": exactly(lambda x: mpmath.bessely(1, x)),
}


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_by_absolute_error(name):
    x, out = unit(0.1 if name[0] == "y" else -30, 30).astype(np.float32), np.zeros(COUNT, np.float32)
    run.Kernel(module(name + "f", ["f32"], "f32"))((1,), x, out)
    wanted = BESSEL[name](torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n.startswith(("erf", "norm", "cyl"))] + [*BESSEL])
def test_double(name):
    if name in BESSEL:
        x, reference = unit(0.1 if name[0] == "y" else -30, 30), BESSEL[name]
    else:
        (x,), reference, _ = FUNCTIONS[name]
    if name == "erfcinv":  # where 1 - x is accurate enough
        x = unit(0.25, 1.75)
    out = np.zeros(COUNT)
    run.Kernel(module(name, ["f64"], "f64"))((1,), x, out)
    np.testing.assert_allclose(out, reference(torch.from_numpy(x)).numpy(), rtol=2e-13, atol=2e-14)


def test_integer_functions():
    random = np.random.default_rng(0)
    x = random.integers(-(2**31), 2**31, COUNT).astype(np.int32)
    x[0] = 0
    bits = [format(int(v) % 2**32, "032b") for v in x]
    wanted = {
        "popc": [b.count("1") for b in bits],
        "clz": [len(b) - len(b.lstrip("0")) for b in bits],
        "ffs": [0 if "1" not in b else 32 - b.rindex("1") for b in bits],
        "brev": [int(b[::-1], 2) - (2**32 if b[-1] == "1" else 0) for b in bits],
    }
    for name, values in wanted.items():
        out = np.zeros(COUNT, np.int32)
        run.Kernel(module(name, ["i32"], "i32"))((1,), x, out)
        np.testing.assert_array_equal(out, np.array(values, np.int32), err_msg=name)


def test_conversions_round_as_named():
    x, out = unit(-3, 3).astype(np.float32), np.zeros(COUNT, np.int32)
    x[0], x[1] = 3e9, np.nan
    for way, function in {"rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}.items():
        run.Kernel(module(f"float2int_{way}", ["f32"], "i32"))((1,), x, out)
        np.testing.assert_array_equal(out[2:], function(x[2:]).astype(np.int32), err_msg=way)
        assert out[0] == 2**31 - 1


def test_an_unknown_function_is_named():
    with pytest.raises(run._tile.CompileError, match="unknown function __nv_nothing"):
        run.Kernel(module("nothing", ["f32"], "f32"))
