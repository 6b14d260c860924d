"""Compares results with references: one table of tolerances, one meaning of each option, one message.

``assert_close(actual, expected, dtype=..., times=...)`` is what most tests need: ``actual`` is the device's
result, ``expected`` a reference, in most tests float64. ``assert_close_with_gradients`` computes both.
``assert_equal`` allows no error.

How large an error may be
-------------------------
Each error may be a limit times a scale, plus ``atol``. The limit is one of these:

- ``times * TOLERANCE[dtype]``, beside a reference of higher precision. The table is for results that
  accumulate up to some thousand terms in float32 (float64 for float64) and are rounded to their dtype once
  or twice: 8 roundings in float16, 5 in bfloat16, and in wider types the errors of sums in another order.
  ``times`` is one number or one by dtype (1 for those left out); the test says why it is not 1.
- ``roundings * ROUNDING[dtype]``, where the number of roundings is known.
- ``rtol``, a number that belongs to the algorithm and not to the dtype.
- With none of these and no ``dtype``, ``expected`` is another device's or operator's result in the same
  dtype, and PyTorch's own tolerances hold: ``BETWEEN_DEVICES``, as in ``torch.testing.assert_close``.

``relative_to`` chooses the scale:

- ``"element"``: the expected element's magnitude + ``floor``; ``floor`` is 1, or 0 with ``rtol``.
- ``"largest"``: the largest expected magnitude, at least ``floor`` (0), for sums whose small elements
  result from cancellation.
- ``"norm"``: the norm of all expected elements, at least ``floor`` (0); the norm of all errors is bounded.

Integers and bools must be equal unless ``rtol`` or ``atol`` is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

TOLERANCE = {
    torch.float16: 4e-3,
    torch.bfloat16: 2e-2,
    torch.float32: 2e-5,
    torch.float64: 1e-12,
}
# rtol and atol
BETWEEN_DEVICES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
# Half a unit in the last place of half types, which are computed in float32; a whole one of the others, where
# each step is rounded.
ROUNDING = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-23, torch.float64: 2**-52}
SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by size in bytes
Times = float | Mapping[torch.dtype, float]
Scale = Literal["element", "largest", "norm"]


def real_of(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a complex dtype's parts, or a dtype that the tables have itself."""
    real = dtype.to_real() if dtype.is_complex else dtype
    if real not in TOLERANCE:
        raise TypeError(f"{dtype} has no tolerance of its own: give one with rtol or atol")
    return real


def tolerance(dtype: torch.dtype, times: Times = 1) -> float:
    """Return the table's value for a dtype, or for a complex dtype's parts, times a multiple."""
    real = real_of(dtype)
    return TOLERANCE[real] * (times.get(real, 1) if isinstance(times, Mapping) else times)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    dtype: torch.dtype | None = None,
    times: Times | None = None,
    roundings: float | None = None,
    rtol: float | None = None,
    atol: float | Tensor = 0.0,
    relative_to: Scale = "element",
    floor: float | None = None,
    equal_nan: bool = False,
    device: str | None = "xpu",
    what: str = "",
) -> None:
    """Assert that a tensor has a reference's dtype, shape and values, within a tolerance.

    Parameters
    ----------
    actual, expected
        Tensors, or sequences of tensors, numbers and None. NaN differs from NaN unless ``equal_nan``.
    dtype
        The dtype that ``actual`` must have. Default: that of ``expected``.
    times, roundings, rtol
        At most one of them. Default: ``times=1`` with ``dtype``, ``floor`` or another scale than the
        element's, ``rtol=0`` with ``atol``, else PyTorch's tolerances.
    atol
        Added to what the limit allows; a tensor has a value for each element.
    device
        The type of device that ``actual`` must be on; None for any.
    what
        Stands first in the message: the operator, its options.
    """
    __tracebackhide__ = True
    options = dict(
        times=times, roundings=roundings, rtol=rtol, atol=atol, relative_to=relative_to, floor=floor
    )
    options |= dict(equal_nan=equal_nan, device=device)
    if isinstance(expected, (float, complex)) and type(actual) is type(expected):
        actual, expected = (torch.tensor(x, dtype=torch.complex128) for x in (actual, expected))
        dtype, device = None, None
    if not isinstance(expected, Tensor):
        for one, other, name in parts(actual, expected, what):
            assert_close(one, other, dtype=dtype, what=name, **options)
        return
    check_kind(actual, expected, dtype, device, what)
    given = [x is not None for x in (times, roundings, rtol)]
    assert sum(given) <= 1, "times, roundings and rtol exclude each other"
    assert relative_to in ("element", "largest", "norm"), relative_to
    is_exact = not (actual.is_floating_point() or actual.is_complex())
    has_atol = isinstance(atol, Tensor) or atol != 0
    if rtol is None and (is_exact or (has_atol and not any(given))):
        rtol = 0.0
    elif not any(given) and dtype is None and relative_to == "element" and floor is None:
        rtol, atol = BETWEEN_DEVICES[real_of(actual.dtype)]
    if rtol is not None:
        limit = rtol
    elif roundings is not None:
        limit = roundings * ROUNDING[actual.dtype]
    else:
        limit = tolerance(actual.dtype, 1 if times is None else times)
    if floor is None:
        floor = 1.0 if relative_to == "element" and rtol is None else 0.0
    if is_exact and actual.dtype == expected.dtype and not limit and not has_atol:
        same = raw(actual) == raw(expected)
        found, wanted = actual.detach().cpu(), expected.detach().cpu()
        error, allowed = (~same).double(), torch.zeros(same.shape, dtype=torch.float64)
    else:
        found, wanted = wide(actual), wide(expected)
        if not found.numel():
            return
        if relative_to == "norm":
            check_norm(actual, found, wanted, limit, floor, atol, what)
            return
        same = found == wanted
        if equal_nan:
            same |= found.isnan() & wanted.isnan()
        size = wanted.abs()
        if relative_to == "element":
            scale = size + floor
        else:
            finite = size[size.isfinite()]
            scale = torch.full_like(size, max(float(finite.max()) if finite.numel() else 0.0, floor))
        error, allowed = (found - wanted).abs(), atol + limit * scale
        same |= found.isfinite() & wanted.isfinite() & (error <= allowed)
    if not same.all():
        raise AssertionError(message(actual, expected, found, wanted, ~same, error, allowed, what))


def assert_equal(
    actual: Any,
    expected: Any,
    *,
    dtype: torch.dtype | None = None,
    bits: bool = False,
    equal_nan: bool = False,
    device: str | None = "xpu",
    what: str = "",
) -> None:
    """Assert that a tensor equals a reference: dtype, shape and every value.

    Of floats -0 equals 0. With ``bits`` their representations must be the same, that of a NaN only without
    ``equal_nan``.
    """
    __tracebackhide__ = True
    if not bits:
        assert_close(actual, expected, dtype=dtype, rtol=0.0, equal_nan=equal_nan, device=device, what=what)
        return
    if not isinstance(expected, Tensor):
        for one, other, name in parts(actual, expected, what):
            assert_equal(one, other, dtype=dtype, bits=True, equal_nan=equal_nan, device=device, what=name)
        return
    check_kind(actual, expected, dtype, device, what)
    found, wanted = raw(actual), raw(expected)
    same = found == wanted
    if equal_nan and actual.is_floating_point():
        same |= wide(actual).isnan() & wide(expected).isnan()
    if not same.all():
        error, allowed = (~same).double(), torch.zeros(same.shape, dtype=torch.float64)
        text = message(actual, expected, found, wanted, ~same, error, allowed, what)
        raise AssertionError(f"{text}\n  (values as the integers with these bits)")


def assert_snr(actual: Tensor, expected: Tensor, decibels: float, *, what: str = "") -> None:
    """Assert that a floating-point tensor on xpu, of any dtype, has at least this signal-to-noise ratio."""
    __tracebackhide__ = True
    rtol = 10 ** (-decibels / 20)
    assert_close(actual, expected, dtype=actual.dtype, rtol=rtol, relative_to="norm", what=what)


def snr(actual: Tensor, expected: Tensor) -> float:
    """Return the signal-to-noise ratio in decibels: of the expected elements' norm to that of all errors."""
    wanted = wide(expected)
    return float(20 * torch.log10(wanted.norm() / (wide(actual) - wanted).norm()))


def assert_close_with_gradients(
    function: Callable[..., Tensor],
    *inputs: Any,
    gradient_times: Times | None = None,
    times: Times | None = None,
    what: str = "",
    **options: Any,
) -> Tensor:
    """Assert that a function's result and gradients on xpu are close to those of the CPU in float64.

    ``inputs`` are tensors on the CPU, those with ``requires_grad`` in the dtype that the result must have;
    float tensors become float64 for the reference, and other arguments remain as they are. The result's
    gradient is normally distributed. ``gradient_times`` is the gradients' multiple, ``times`` by default.
    Returns the result on xpu.
    """
    __tracebackhide__ = True
    here = [on(x, "xpu", False) for x in inputs]
    there = [on(x, "cpu", True) for x in inputs]
    actual, expected = function(*here), function(*there)
    dtype = next(x.dtype for x in inputs if isinstance(x, Tensor) and x.requires_grad)
    named = f"{what}: " if what else ""
    assert_close(actual, expected, dtype=dtype, times=times, what=f"{named}result", **options)
    gradient = torch.randn(expected.shape, dtype=torch.complex64 if dtype.is_complex else None).to(dtype)
    actual.backward(gradient.to("xpu"))
    expected.backward(gradient.to(expected.dtype))
    for i, (ours, theirs) in enumerate(zip(here, there, strict=True)):
        if isinstance(ours, Tensor) and ours.requires_grad:
            assert_close(
                ours.grad,
                theirs.grad,
                dtype=ours.dtype,
                times=times if gradient_times is None else gradient_times,
                what=f"{named}gradient of input {i}",
                **options,
            )
    return actual.detach()


def on(x: Any, device: str, is_wide: bool) -> Any:
    """Return an input's copy on a device, a leaf where it requires a gradient."""
    if not isinstance(x, Tensor):
        return x
    there = x.detach().to(device, copy=True)
    if is_wide and (x.is_floating_point() or x.is_complex()):
        there = there.to(torch.complex128 if x.is_complex() else torch.float64)
    return there.requires_grad_(x.requires_grad)


def parts(actual: Any, expected: Any, what: str) -> list[tuple[Any, Any, str]]:
    """Return the elements of two sequences in pairs, each with a name; compare what is no sequence."""
    __tracebackhide__ = True
    named = f"{what}: " if what else ""
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        if not isinstance(actual, Sequence) or len(actual) != len(expected):
            raise AssertionError(f"{named}{described(actual)}, expected {described(expected)}")
        return [
            (one, other, f"{named}result {i}")
            for i, (one, other) in enumerate(zip(actual, expected, strict=True))
        ]
    if isinstance(actual, Tensor) or type(actual) is not type(expected):
        raise AssertionError(f"{named}{described(actual)}, expected {described(expected)}")
    if actual != expected:
        raise AssertionError(f"{named}{actual!r}, expected {expected!r}")
    return []


def described(value: Any) -> str:
    """Return what a value is, in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype} on {value.device}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{len(value)} results"
    return repr(value)


def check_kind(
    actual: Any, expected: Tensor, dtype: torch.dtype | None, device: str | None, what: str
) -> None:
    """Assert that dtype, shape, layout and device are the right ones."""
    __tracebackhide__ = True
    named = f"{what}: " if what else ""
    if not isinstance(actual, Tensor):
        raise AssertionError(f"{named}{described(actual)}, expected {described(expected)}")
    if actual.layout != torch.strided or expected.layout != torch.strided:
        raise TypeError(f"{named}compare the parts of {actual.layout} and {expected.layout} tensors")
    wanted = (dtype or expected.dtype, tuple(expected.shape), device or actual.device.type)
    if (actual.dtype, tuple(actual.shape), actual.device.type) != wanted:
        raise AssertionError(
            f"{named}{described(actual)}, expected {wanted[1]} of {wanted[0]} on {wanted[2]}"
        )


def raw(x: Tensor) -> Tensor:
    """Return the elements as integers of the same bits, complex ones as two; on the CPU."""
    x = x.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if x.is_complex():
        x = torch.view_as_real(x)
    return x.view(SIGNED[x.element_size()])


def wide(x: Tensor) -> Tensor:
    """Return the elements as float64 or complex128 on the CPU."""
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.is_complex():
        return torch.view_as_complex(torch.view_as_real(x).double().contiguous())
    return x.double()


def check_norm(
    actual: Tensor, found: Tensor, wanted: Tensor, limit: float, floor: float, atol: float | Tensor, what: str
) -> None:
    """Assert that the norm of all errors is small enough."""
    __tracebackhide__ = True
    error, size = float((found - wanted).norm()), float(wanted.norm())
    allowed = limit * max(size, floor) + float(atol)
    if not error <= allowed < math.inf:
        errors = (found - wanted).abs()
        text = message(actual, wanted, found, wanted, errors != 0, errors, None, what)
        raise AssertionError(
            f"{text}\n  norm of the errors {error:.4g}, allowed {allowed:.4g}, of the expected {size:.4g}"
        )


def message(
    actual: Tensor,
    expected: Tensor,
    found: Tensor,
    wanted: Tensor,
    wrong: Tensor,
    error: Tensor,
    allowed: Tensor | None,
    what: str,
) -> str:
    """Return how many elements differ, the worst of them, and what was compared."""
    if wrong.shape != tuple(actual.shape):  # parts of complex elements
        wrong, error = wrong.any(-1), error.amax(-1)
        allowed = None if allowed is None else allowed.amax(-1)
    excess = error.double() if allowed is None else error.double() / allowed.clamp_min(1e-300)
    excess = torch.where(wrong, excess.nan_to_num(nan=torch.inf, posinf=torch.inf), -1.0)
    at = int(excess.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), wrong.shape))
    far = f"error {float(error[index]):.4g}"
    if allowed is not None:
        far += f", allowed {float(allowed[index]):.4g}"
    named = f"{what}: " if what else ""
    reference = f", reference {expected.dtype}" if expected.dtype != actual.dtype else ""
    return (
        f"{named}{int(wrong.sum())} of {wrong.numel()} elements differ\n"
        f"  worst at {list(index)}: {found[index].tolist()}, expected {wanted[index].tolist()} ({far})\n"
        f"  shape {tuple(actual.shape)}, {actual.dtype} on {actual.device}{reference}"
    )
