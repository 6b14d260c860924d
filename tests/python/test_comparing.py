"""The comparisons that tests make: what they let pass, what they don't, and what they say then."""

from __future__ import annotations

import math

import pytest
import torch
from comparing import (
    ROUNDING,
    TOLERANCE,
    assert_close,
    assert_close_with_gradients,
    assert_equal,
    assert_snr,
    snr,
    tolerance,
)

INF, NAN = math.inf, math.nan
FLOATS = list(TOLERANCE)
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
INTEGERS += [torch.uint16, torch.uint32, torch.uint64]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def differs(actual: object, expected: object, match: str = "differ", **options: object) -> None:
    with pytest.raises(AssertionError, match=match):
        assert_close(actual, expected, **{"device": "cpu"} | options)


def agrees(actual: object, expected: object, **options: object) -> None:
    assert_close(actual, expected, **{"device": "cpu"} | options)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_table_is_relative_to_the_element_and_one(dtype: torch.dtype) -> None:
    expected = torch.tensor([1000.0, -8.0, 0.0, 2.0], dtype=torch.float64)
    exact = expected.to(dtype)
    for i, size in enumerate(expected.abs()):
        for share, passes in ((0.4, True), (1.6, False), (-0.4, True), (-1.6, False)):
            actual = exact.double().clone()
            actual[i] += share * TOLERANCE[dtype] * (size + 1)
            (agrees if passes else differs)(actual.to(dtype), expected, dtype=dtype)
            (agrees if passes else differs)(actual.to(dtype), exact, times=1)
            agrees(actual.to(dtype), expected, dtype=dtype, times=2)
            agrees(actual.to(dtype), expected, dtype=dtype, times={dtype: 2})
            (agrees if passes else differs)(actual.to(dtype), expected, dtype=dtype, times={torch.half: 1})


def test_multiples() -> None:
    assert tolerance(torch.complex64, 3) == 3 * TOLERANCE[torch.float32]
    assert tolerance(torch.complex32) == TOLERANCE[torch.float16]
    assert tolerance(torch.float64, {torch.float32: 7}) == TOLERANCE[torch.float64]
    one = torch.ones(3, dtype=torch.float64)
    for dtype in FLOATS:
        above = (one + 2 * ROUNDING[dtype]).to(dtype)
        agrees(above, one, dtype=dtype, roundings=2)
        differs(above, one, dtype=dtype, roundings=0.9, floor=1)
        differs(above, one, dtype=dtype, times=0)
    with pytest.raises(AssertionError, match="exclude"):
        agrees(one, one, times=1, rtol=1)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.complex128], ids=str)
def test_between_devices_pytorchs_tolerances_hold(dtype: torch.dtype) -> None:
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    expected = torch.tensor([0.0, 1.0, 300.0]).to(dtype)
    wide = expected.to(torch.complex128 if dtype.is_complex else torch.float64)
    for share, passes in ((0.9, True), (1.1, False)):
        actual = wide + share * (atol + rtol * wide.abs())
        for i in range(3 if passes or dtype.itemsize > 2 else 1):
            one = torch.where(torch.arange(3) == i, actual, wide).to(dtype)
            if not passes or dtype.itemsize > 2:
                (agrees if passes else differs)(one, expected)
    torch.testing.assert_close(expected, expected)


def test_scales() -> None:
    expected = torch.tensor([100.0, 1e-3, 0.0])
    actual = expected + torch.tensor([0.0, 0.5, 0.0])
    agrees(actual, expected, rtol=0.0051, relative_to="largest")
    differs(actual, expected, rtol=0.0049, relative_to="largest")
    differs(actual, expected, rtol=0.0051)
    agrees(actual, expected, rtol=0.0051, floor=100)
    agrees(actual, expected, rtol=0.0051, relative_to="norm")
    differs(actual, expected, rtol=0.0049, relative_to="norm", match="norm of the errors 0.5, allowed 0.49")
    agrees(actual, expected, rtol=0.0026, relative_to="norm", floor=200)
    agrees(actual, expected, rtol=0.0026, relative_to="largest", floor=200)
    agrees(actual, expected, atol=0.51)
    differs(actual, expected, atol=0.49)
    agrees(actual, expected, atol=torch.tensor([0.0, 0.51, 0.0]))
    differs(actual, expected, atol=torch.tensor([1.0, 0.49, 1.0]))
    agrees(actual, expected, atol=0.51, relative_to="norm", rtol=0)
    differs(torch.tensor([1e-20]), torch.zeros(1), relative_to="largest")
    differs(torch.tensor([1e-20]), torch.zeros(1), relative_to="norm")
    with pytest.raises(AssertionError, match="shape"):
        agrees(actual, expected, relative_to="shape")


def test_signal_to_noise() -> None:
    expected = torch.tensor([3.0, 4.0])
    assert snr(expected + torch.tensor([0.0, 0.5]), expected.double()) == pytest.approx(20)
    assert snr(expected, expected) == INF
    assert_snr((expected + torch.tensor([0.0, 0.0499])).to("xpu"), expected.double(), 40)
    with pytest.raises(AssertionError, match="norm of the errors 0.0501, allowed 0.05, of the expected 5"):
        assert_snr((expected + torch.tensor([0.0, 0.0501])).to("xpu"), expected.double(), 40)


@pytest.mark.parametrize("scale", ["element", "largest", "norm"])
@pytest.mark.parametrize(
    "actual, expected", [(NAN, 1), (1, NAN), (INF, 1), (1, INF), (INF, -INF), (INF, NAN)]
)
def test_no_tolerance_covers_nan_and_infinity(actual: float, expected: float, scale: str) -> None:
    for dtype in (torch.float32, torch.complex64, torch.bfloat16):
        one, other = (torch.tensor([2.0, x], dtype=dtype) for x in (actual, expected))
        for equal_nan in (False, True):
            differs(one, other, rtol=1e30, atol=1e30, relative_to=scale, equal_nan=equal_nan)
            differs(one[1], other[1], rtol=1e30, relative_to=scale, equal_nan=equal_nan)


def test_nan_and_infinity_that_are_expected() -> None:
    x = torch.tensor([INF, -INF, 1.0])
    for scale in ("element", "largest"):
        agrees(x, x.double(), dtype=torch.float32, relative_to=scale)
        differs(x + torch.tensor([0, 0, 1.0]), x, relative_to=scale)  # infinity isn't the largest
    y = torch.tensor([NAN, 1.0])
    differs(y, y)
    agrees(y, -y * torch.tensor([1, -1]), equal_nan=True)
    assert_equal(y, y, equal_nan=True, device=None)
    with pytest.raises(AssertionError, match="1 of 2 elements differ"):
        assert_equal(y, y, device=None)


def test_signs_of_zeros_and_bits() -> None:
    zeros, negative = torch.zeros(2), torch.tensor([0.0, -0.0])
    agrees(zeros, negative)
    assert_equal(zeros, negative, device=None)
    with pytest.raises(AssertionError, match=r"(?s)1 of 2 .*at \[1\].*bits"):
        assert_equal(zeros, negative, bits=True, device=None)
    nans = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert_equal(nans, nans, bits=True, device=None)
    assert_equal(nans, nans.flip(0), bits=True, equal_nan=True, device=None)
    for options in ({"bits": True}, {}, {"bits": True, "equal_nan": True}):
        expected = nans.flip(0) if len(options) < 2 else torch.tensor([NAN, 1.0])
        with pytest.raises(AssertionError, match="differ"):
            assert_equal(nans, expected, device=None, **options)
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert_equal(x.mT.conj(), x.mH.clone(), bits=True, device=None)
    with pytest.raises(AssertionError, match=r"1 of 12 elements differ\n  worst at \[2, 1\]"):
        assert_equal(x, x + (torch.arange(12) == 9).view(3, 4) * 1j, bits=True, device=None)


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
def test_integers_are_exact(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1, 0], dtype=torch.int64).to(dtype)
    y = torch.tensor([0, 1, 0, 0], dtype=torch.int64).to(dtype)
    for times in (None, 1e9):
        agrees(x, x, times=times)
        differs(x, y, match=r"1 of 4 elements differ\n  worst at \[2\]", times=times)
    assert_equal(x, x, bits=True, device="cpu")
    agrees(x, x.double(), dtype=dtype)
    agrees(x, x.long(), dtype=dtype)
    differs(x, y.double(), dtype=dtype)
    if dtype != torch.bool:
        agrees(x, y, atol=1)
        differs(torch.tensor([0, 2, 2, 0]).to(dtype), y, atol=1)


def test_integers_that_floats_do_not_hold() -> None:
    x = torch.tensor([2**62, -(2**62)])
    differs(x, x + torch.tensor([0, 1]), match=rf"{-(2**62)}, expected {1 - 2**62}")
    top = torch.tensor([2**64 - 1], dtype=torch.uint64)
    agrees(top, top.clone())
    agrees(torch.tensor([200], dtype=torch.uint8), torch.tensor([200]), dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex(dtype: torch.dtype) -> None:
    x = torch.complex(torch.arange(6.0), -torch.arange(6.0)).view(2, 3)
    agrees(x.to(dtype), x.to(torch.complex128), dtype=dtype)
    wrong = x.clone()
    wrong[1, 0] += (
        2 * tolerance(dtype) * (1 + abs(wrong[1, 0])) * (0.6 + 0.8j) if dtype != torch.complex128 else 1e-6
    )
    differs(wrong.to(dtype), x.to(torch.complex128), match=r"1 of 6 .*\n.*\[1, 0\]", dtype=dtype)
    differs(x.to(dtype), x.conj().to(torch.complex128), match="5 of 6", dtype=dtype)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8(dtype: torch.dtype) -> None:
    x = torch.tensor([0.5, -3.0, NAN, 0.0]).to(dtype)
    assert_equal(x, x.float(), dtype=dtype, equal_nan=True, device="cpu")
    assert_equal(x, x, bits=True, device="cpu")
    differs(x, x, rtol=0)  # a NaN
    with pytest.raises(TypeError, match="float8.* has no tolerance"):
        agrees(x, x)
    differs(x, torch.tensor([0.5, -3.5, NAN, 0.0]), rtol=0, dtype=dtype, equal_nan=True, match="1 of 4")


def test_empty() -> None:
    for dtype in (torch.float32, torch.int32, torch.complex64):
        for scale in ("element", "largest", "norm"):
            agrees(torch.empty(2, 0, dtype=dtype), torch.empty(2, 0, dtype=dtype), relative_to=scale)
        assert_equal(torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype), bits=True, device="cpu")
        differs(torch.empty(2, 0, dtype=dtype), torch.empty(0, 2, dtype=dtype), match=r"\(2, 0\).*\(0, 2\)")


def test_kinds() -> None:
    x = torch.ones(2, 3)
    for compare in (
        differs,
        lambda *given, match, **options: differs(*given, match=match, times=1e9, **options),
    ):
        compare(x, x.double(), match="float32 on cpu, expected .*float64")
        compare(x, x.double(), dtype=torch.float16, match="float32 on cpu, expected .*float16")
        compare(x, x[:1], match=r"\(2, 3\) .*expected \(1, 3\)")
        compare(x, x[0, 0], match=r"expected \(\)")
        compare(x, x, device="xpu", match="on cpu, expected .* on xpu")
        compare([1.0], x, match="1 results, expected a tensor")
        compare(None, x, match="None, expected a tensor")
    with pytest.raises(AssertionError, match="on cpu, expected .* on xpu"):
        assert_close(x, x)
    with pytest.raises(AssertionError, match="on xpu:0, expected .* on cpu"):
        assert_equal(x.to("xpu"), x, device="cpu")
    with pytest.raises(AssertionError, match="float32 on cpu, expected .*int32"):
        assert_equal(x, x.int(), bits=True, device="cpu")
    assert_close(x.to("xpu"), x)
    assert_equal(x.to("xpu").t(), x.t().contiguous(), bits=True)
    with pytest.raises(TypeError, match="parts"):
        agrees(x.to_sparse(), x.to_sparse())


def test_sequences() -> None:
    x, y = torch.ones(2), torch.zeros(3, dtype=torch.int32)
    agrees((x, [y, None, 3, 0.5]), [x, (y, None, 3, 0.5)])
    assert_equal([x, y], (x, y), bits=True, device="cpu")
    differs((x, [y, y]), (x, [y, y + 1]), match="call: result 1: result 1: 3 of 3", what="call")
    differs((x, y), (x,), match="2 results, expected 1 results")
    differs((x, y), (x, None), match="result 1: a tensor .*, expected None")
    differs((x, None), (x, y), match="result 1: None, expected a tensor")
    differs((x, 3), (x, 4), match="result 1: 3, expected 4")
    differs((x, 0.25), (x, 0.5), match="result 1: 1 of 1 elements differ")
    agrees(0.25, 0.5, atol=0.25)
    agrees(torch.max(torch.eye(3), 0), torch.max(torch.eye(3), 0))


def test_the_message_says_all() -> None:
    expected = torch.zeros(3, 4, dtype=torch.float64)
    actual = expected.to(torch.bfloat16).to("xpu")
    actual[1, 2], actual[2, 3], actual[0, 0] = 0.5, 0.25, 0.001
    with pytest.raises(AssertionError) as raised:
        assert_close(actual, expected, dtype=torch.bfloat16, what="softmax(dim=1)")
    assert str(raised.value) == (
        "softmax(dim=1): 2 of 12 elements differ\n"
        "  worst at [1, 2]: 0.5, expected 0.0 (error 0.5, allowed 0.02)\n"
        "  shape (3, 4), torch.bfloat16 on xpu:0, reference torch.float64"
    )
    with pytest.raises(
        AssertionError, match=r"worst at \[\]: nan, expected 0.0 \(error nan, allowed 1e-05\)"
    ):
        assert_close(torch.tensor(NAN), torch.tensor(0.0), device=None)


def test_with_gradients() -> None:
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    index = torch.tensor([2, 0])
    result = assert_close_with_gradients(lambda x, w, i: (x @ w)[i].sin(), x, w, index, what="product")
    assert result.device.type == "xpu" and not result.requires_grad and x.grad is None

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, share):
            return x * 2 if x.dtype == torch.float64 else x * (2 + share)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (2 if gradient.dtype == torch.float64 else 2.5), None

    with pytest.raises(AssertionError, match="^result: "):
        assert_close_with_gradients(lambda x: Wrong.apply(x, 0.5), x)
    with pytest.raises(AssertionError, match="^it: gradient of input 0: "):
        assert_close_with_gradients(lambda x: Wrong.apply(x, 0), x, what="it")
    assert_close_with_gradients(lambda x: Wrong.apply(x, 0), x, times=0, gradient_times=1e5)
    with pytest.raises(AssertionError, match="float32 on xpu:0, expected .*float16"):
        assert_close_with_gradients(
            lambda x: x.double() if x.device.type == "cpu" else x.float(), x.half().detach().requires_grad_()
        )
