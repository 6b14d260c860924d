"""oneDNN's quantized linear layers and convolutions with post-ops, against float64."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close, assert_equal
from torch import Tensor

OPS = torch.ops.onednn
UNITS = os.environ.get("OPENXPU_MATRIX") == "ptx"
ALL = os.environ.get("OPENXPU_TEST_ALL") == "1"
Function = Callable[[Tensor], Tensor]

UNARY: dict[str, tuple[list[float], str, Function]] = {
    "none": ([], "", lambda t: t),
    "relu": ([], "", torch.relu),
    "gelu": ([], "none", F.gelu),
    "gelu tanh": ([], "tanh", lambda t: F.gelu(t, approximate="tanh")),
    "swish": ([], "", F.silu),
    "hardswish": ([], "", F.hardswish),
    "hardsigmoid": ([], "", F.hardsigmoid),
    "sigmoid": ([], "", torch.sigmoid),
    "tanh": ([], "", torch.tanh),
    "mish": ([], "", F.mish),
    "leaky_relu": ([0.1], "", lambda t: F.leaky_relu(t, 0.1)),
    "hardtanh": ([-0.5, 2.0], "", lambda t: F.hardtanh(t, -0.5, 2.0)),
}


def stored(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(info.min, info.max + 1, shape, dtype=dtype, generator=generator)


def per_channel(n: int, zeros: bool = False) -> tuple[Tensor, Tensor]:
    scale = torch.rand(n, generator=torch.Generator().manual_seed(n)) / 50 + 1e-3
    zero = torch.arange(n) % 7 - 3 if zeros else torch.zeros(n, dtype=torch.int64)
    return scale, zero


def numbers(q: Tensor, scale: Any, zero: Any) -> Tensor:
    """Return parameters per channel of dimension 0, or a single one."""
    if isinstance(scale, Tensor) and scale.numel() != 1:
        shape = (-1, *[1] * (q.dim() - 1))
        scale, zero = scale.double().view(shape), zero.view(shape)
    return (q.double() - zero) * scale


def compare(actual: Tensor, expected: Tensor, dtype: torch.dtype, scale: float = 1, zero: int = 0) -> None:
    if dtype.is_floating_point:
        rtol = 1e-5 if dtype == torch.float32 else 3e-3
        assert_close(actual, expected, dtype=dtype, rtol=rtol, relative_to="norm")
        return
    info = torch.iinfo(dtype)
    steps = expected / scale
    whole = (steps.round() + zero).clamp(info.min, info.max)
    clear = ((steps - steps.floor()) - 0.5).abs() > 1e-3  # ties may be rounded either way
    assert clear.double().mean() > 0.95
    assert_equal(actual, torch.where(clear, whole, actual.cpu().double()), dtype=dtype)


def on_xpu(*tensors: Tensor) -> list[Tensor]:
    return [t.to("xpu") for t in tensors]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("kind", [torch.int8, torch.uint8])
def test_linear(name: str, kind: torch.dtype) -> None:
    scalars, algorithm, function = UNARY[name]
    m, n, k = 9, 21, 40
    x, w = stored((m, k), kind, 1), stored((n, k), torch.int8, 2)
    scale, zero = per_channel(n)
    bias = torch.linspace(-3, 3, n)
    expected = function(numbers(x, 0.02, 5) @ numbers(w, scale, zero).t() + bias.double())
    packed = OPS.qlinear_prepack(w.to("xpu"), None)
    tensors = on_xpu(scale, zero, bias)
    results = [
        (torch.float32, 1.0, 0),
        (torch.bfloat16, 1.0, 0),
        (torch.int8, 0.07, -3),
        (torch.uint8, 0.05, 90),
    ]
    # each is a separate kernel: half of them run with each dtype
    if not ALL and name not in ("none", "relu"):
        results = results[kind == torch.uint8 :: 2]
    for dtype, to, at in results:
        end = (to, at, dtype, name.split()[0], scalars, algorithm)
        compare(OPS.qlinear_pointwise(x.to("xpu"), 0.02, 5, packed, *tensors, *end), expected, dtype, to, at)
        for device in ("xpu", "cpu"):
            parameters = torch.tensor(0.02, device=device), torch.tensor(5, device=device)
            actual = OPS.qlinear_pointwise.tensor(
                x.to("xpu"), parameters[0], parameters[1], packed, *tensors, *end
            )
            compare(actual, expected, dtype, to, at)


@pytest.mark.parametrize(
    "m, n, k", [(1, 64, 256), (17, 5, 33), (130, 70, 129), (0, 8, 16), (3, 8, 0), (2, 0, 8)]
)
@pytest.mark.parametrize("zeros", [False, True])
def test_linear_shapes(m: int, n: int, k: int, zeros: bool) -> None:
    x, w = stored((m, k), torch.uint8, 1), stored((n, k), torch.int8, 2)
    scale, zero = per_channel(n, zeros)
    expected = numbers(x, 0.02, 128) @ numbers(w, scale, zero).t()
    end = (1.0, 0, torch.float32, "none", [], "")
    packed = OPS.qlinear_prepack(w.to("xpu"), [m, k])
    actual = OPS.qlinear_pointwise(x.to("xpu"), 0.02, 128, packed, *on_xpu(scale, zero), None, *end)
    compare(actual, expected, torch.float32)
    batched = x.view(1, m, k).to("xpu")
    again = OPS.qlinear_pointwise(batched, 0.02, 128, packed, *on_xpu(scale, zero), None, *end)
    assert torch.equal(again, actual.view(1, m, n))
    one = OPS.qlinear_pointwise(x.to("xpu"), 0.02, 128, packed, *on_xpu(scale[:1], zero[:1] + 2), None, *end)
    if n:
        compare(one, numbers(x, 0.02, 128) @ numbers(w, scale[0].double(), zero[0] + 2).t(), torch.float32)


def test_linear_of_rows_and_numbers() -> None:
    x, w = stored((6, 32), torch.int8, 1), stored((8, 32), torch.int8, 2)
    scale, zero = per_channel(8)
    rows, zeros = torch.rand(6) / 10 + 0.01, torch.arange(6) - 2
    packed, tensors = OPS.qlinear_prepack(w.to("xpu"), None), on_xpu(scale, zero)
    end = (None, 1.0, 0, torch.float32, "none", [], "")
    weight = numbers(w, scale, zero).t()
    actual = OPS.qlinear_pointwise.tensor(x.to("xpu"), *on_xpu(rows, zeros), packed, *tensors, *end)
    compare(actual, numbers(x, rows, zeros) @ weight, torch.float32)
    plain = torch.randn(6, 32)
    actual = OPS.qlinear_pointwise(plain.to("xpu"), 1.0, 0, packed, *tensors, *end)
    compare(actual, plain.double() @ weight, torch.float32)


@pytest.mark.parametrize("binary", ["add", "sum"])
@pytest.mark.parametrize("unary", ["none", "relu"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int8, torch.uint8])
def test_linear_and_another(binary: str, unary: str, kind: torch.dtype) -> None:
    m, n, k = 7, 12, 24
    x, w = stored((m, k), torch.int8, 1), stored((n, k), torch.int8, 2)
    scale, zero = per_channel(n)
    if kind.is_floating_point:
        other, of_other, to, at = torch.randn(m, n).to(kind), (1.0, 0), 1.0, 0
    else:
        other, of_other, to, at = stored((m, n), kind, 3), (0.04, 4), 0.06, 11
    expected = numbers(x, 0.02, -3) @ numbers(w, scale, zero).t() + numbers(other, *of_other)
    expected = UNARY[unary][2](expected)
    packed, tensors = OPS.qlinear_prepack(w.to("xpu"), None), on_xpu(scale, zero)
    there = other.to("xpu")
    end = (to, at, kind, *of_other, binary, 1.0, unary, [], "")
    actual = OPS.qlinear_pointwise.binary(x.to("xpu"), 0.02, -3, packed, *tensors, there, None, *end)
    compare(actual, expected, kind, to, at)
    assert (actual.data_ptr() == there.data_ptr()) == (binary == "sum")
    there = other.to("xpu")
    parameters = torch.tensor(0.02), torch.tensor(-3)
    actual = OPS.qlinear_pointwise.binary_tensor(
        x.to("xpu"), *parameters, packed, *tensors, there, None, *end
    )
    compare(actual, expected, kind, to, at)


CONVOLUTIONS = [
    # input, weight, stride, padding, dilation, groups
    ((2, 6, 9, 11), (8, 6, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    ((1, 6, 9, 11), (8, 3, 3, 2), [2, 1], [0, 1], [1, 2], 2),
    ((3, 5, 8, 8), (5, 1, 3, 3), [1, 1], [1, 1], [1, 1], 5),
    ((2, 4, 17), (6, 4, 3), [2], [1], [1], 1),
    ((1, 3, 5, 6, 7), (4, 3, 2, 3, 2), [1, 1, 1], [0, 1, 0], [1, 1, 1], 1),
    ((2, 16, 5, 7), (32, 16, 1, 1), [1, 1], [0, 0], [1, 1], 1),
    # by whole steps of units
    ((2, 32, 9, 11), (48, 32, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    ((1, 64, 8, 9), (32, 32, 3, 3), [2, 2], [1, 1], [1, 1], 2),
    ((1, 16, 9, 9), (16, 16, 3, 3), [1, 1], [2, 2], [2, 2], 1),
    ((2, 32, 8, 8), (16, 32, 1, 1), [2, 2], [0, 0], [1, 1], 1),
    ((2, 16, 20), (32, 16, 3), [1], [1], [1], 1),
]


def lying(t: Tensor, last: bool) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.dim()]) if last and t.dim() in formats else t


def convolved(case: Any, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    _, _, stride, padding, dilation, groups = case
    function = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
    return function(x, w, bias, stride, padding, dilation, groups)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: str(case[1]))
@pytest.mark.parametrize("last", [False, True])
def test_convolution(case: Any, last: bool) -> None:
    sizes, weights, *how = case
    for kind in (torch.int8, torch.uint8):
        x, w = stored(sizes, kind, 1), stored(weights, torch.int8, 2)
        scale, zero = per_channel(weights[0], zeros=kind == torch.uint8)
        bias = torch.linspace(-2, 2, weights[0])
        result = convolved(case, numbers(x, 0.02, 7), numbers(w, scale, zero), bias.double())
        there = lying(x.to("xpu"), last)
        packed = OPS.qconv_prepack(lying(w.to("xpu"), last), scale.to("xpu"), 0.02, 7, *how, list(sizes))
        tensors = on_xpu(scale, zero, bias)
        names = ["none", "relu", "hardtanh", "hardswish", "swish", "gelu"]
        for name in names if ALL else [*names[:2], *names[2 + (kind == torch.uint8) :: 2]]:
            scalars, algorithm, function = UNARY[name]
            for dtype, to, at in ((torch.float32, 1.0, 0), (torch.bfloat16, 1.0, 0), (kind, 0.06, 20)):
                end = (to, at, dtype, name, scalars, algorithm)
                actual = OPS.qconv_pointwise(there, 0.02, 7, packed, *tensors, *how, *end)
                compare(actual, function(result), dtype, to, at)
                dense = there.is_contiguous()
                assert actual.is_contiguous() or not dense
                if not dense:
                    assert actual.stride(1) == 1
        parameters = torch.tensor(0.02), torch.tensor(7)
        again = OPS.qconv_pointwise.tensor(there, *parameters, packed, *tensors, *how, *end)
        assert torch.equal(again, actual)


@pytest.mark.skipif(not UNITS, reason="only where products of bytes have units")
def test_units_are_taken() -> None:
    for case in CONVOLUTIONS[6:]:
        sizes, weights, *how = case
        x, w = stored(sizes, torch.uint8, 1), stored(weights, torch.int8, 2)
        scale, zero = per_channel(weights[0])
        expected = convolved(case, numbers(x, 0.02, 7), numbers(w, scale, zero), None).relu()
        packed = OPS.qconv_prepack(w.to("xpu"), torch.ones(1), 0.02, 7, *how, list(sizes))
        there, tensors = x.to("xpu"), on_xpu(scale, zero)
        end = (0.06, 20, torch.uint8, "relu", [], "")
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.XPU]
        with torch.profiler.profile(activities=activities) as profile:
            actual = OPS.qconv_pointwise(there, 0.02, 7, packed, *tensors, None, *how, *end)
        compare(actual, expected, torch.uint8, 0.06, 20)
        names = [event.key for event in profile.key_averages()]
        assert "conv_matrix i8 to u8" in names
        assert not [name for name in names if "dequantize" in name]


@pytest.mark.skipif(not UNITS, reason="only where products of bytes have units")
def test_forms_are_kept() -> None:
    """A weight that no engine supports is dequantized once, although every call tries the engine."""
    x, w = stored((1, 16, 6, 7), torch.uint8, 1), stored((16, 4, 3, 3), torch.int8, 2)
    scale, zero = per_channel(16)
    there, weight, *tensors = on_xpu(x, w, scale, zero)
    how = [1, 1], [1, 1], [1, 1], 4
    end = (None, *how, 1.0, 0, torch.float32, "none", [], "")
    OPS.qconv_pointwise(there, 0.02, 7, weight, *tensors, *end)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.XPU]
    with torch.profiler.profile(activities=activities) as profile:
        actual = OPS.qconv_pointwise(there, 0.02, 7, weight, *tensors, *end)
    compare(actual, F.conv2d(numbers(x, 0.02, 7), numbers(w, scale, zero), None, *how), torch.float32)
    names = [event.name for event in profile.events() if "dequantize" in event.name]
    assert len(names) == 1, names  # of x


@pytest.mark.parametrize("unary", ["none", "relu", None])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int8, torch.uint8])
@pytest.mark.parametrize("number", [0, 6])
def test_convolution_and_another(number: int, unary: str | None, kind: torch.dtype) -> None:
    case = CONVOLUTIONS[number]
    sizes, weights, *how = case
    x, w = stored(sizes, torch.int8, 1), stored(weights, torch.int8, 2)
    scale, zero = per_channel(weights[0])
    result = convolved(case, numbers(x, 0.02, 7), numbers(w, scale, zero), None)
    if kind.is_floating_point:
        other, of_other, to, at = torch.randn(result.shape).to(kind), (1.0, 0), 1.0, 0
    else:
        other, of_other, to, at = stored(result.shape, kind, 3), (0.04, 4), 0.06, 11
    expected = UNARY[unary or "none"][2](result + numbers(other, *of_other))
    for last in (False, True):
        there = lying(other.to("xpu"), last)
        end = (to, at, kind, *of_other, "sum", None, unary, [], None)
        actual = OPS.qconv2d_pointwise.binary(
            lying(x.to("xpu"), last), 0.02, 7, w.to("xpu"), *on_xpu(scale, zero), there, None, *how, *end
        )
        assert actual.data_ptr() == there.data_ptr()
        compare(actual, expected, kind, to, at)


@pytest.mark.parametrize("last", [False, True])
def test_convolution_of_pixels_and_another(last: bool) -> None:
    x, w = stored((2, 16, 5, 7), torch.uint8, 1), stored((32, 16, 1, 1), torch.int8, 2)
    scale, zero = per_channel(32)
    how = [1, 1], [0, 0], [1, 1], 1
    packed = OPS.qconv_prepack(w.to("xpu"), scale.to("xpu"), 0.02, 7, *how, None)
    other = stored((2, 32, 5, 7), torch.int8, 3)
    expected = F.conv2d(numbers(x, 0.02, 7), numbers(w, scale, zero)) + numbers(other, 0.04, 4)
    there = lying(other.to("xpu"), last)
    end = (0.06, 11, torch.int8, 0.04, 4, "sum", None, "relu", [], None)
    actual = OPS.qconv2d_pointwise.binary(
        lying(x.to("xpu"), True), 0.02, 7, packed, *on_xpu(scale, zero), there, None, *how, *end
    )
    assert actual.data_ptr() == there.data_ptr()
    compare(actual, expected.relu(), torch.int8, 0.06, 11)


def test_weights_that_change() -> None:
    """Cached facts about a weight or its zero points are dropped when it changes."""
    x, w = stored((40, 64), torch.uint8, 1), stored((32, 64), torch.int8, 2)
    scale, zero = per_channel(32)
    packed, zeros = OPS.qlinear_prepack(w.to("xpu"), None), zero.to("xpu")
    end = (None, 1.0, 0, torch.float32, "none", [], "")
    for _ in range(2):
        actual = OPS.qlinear_pointwise(x.to("xpu"), 0.02, 7, packed, scale.to("xpu"), zeros, *end)
        compare(actual, numbers(x, 0.02, 7) @ numbers(w, scale, zero).t(), torch.float32)
        packed.add_(3)
        zeros.add_(1)
        w, zero = w + 3, zero + 1


@pytest.mark.parametrize("zeros", [False, True])
def test_convolution_weights_that_change(zeros: bool) -> None:
    """Cached forms of a weight are dropped when it or its scales change, or another convolution uses it."""
    x, w = stored((1, 16, 6, 7), torch.uint8, 1), stored((16, 16, 3, 3), torch.int8, 2)
    scale, zero = per_channel(16, zeros)
    there, weight, scales, zero_points = on_xpu(x, w, scale, zero)
    for padding in ([1, 1], [0, 2], [0, 2]):
        how = [1, 1], padding, [1, 1], 1
        end = (None, *how, 1.0, 0, torch.float32, "none", [], "")
        for _ in range(2):
            actual = OPS.qconv_pointwise(there, 0.02, 7, weight, scales, zero_points, *end)
            expected = F.conv2d(numbers(x, 0.02, 7), numbers(w, scale, zero), None, *how)
            compare(actual, expected, torch.float32)
        weight.add_(3)
        scales.mul_(2)
        w, scale = w + 3, scale * 2


CONVOLUTION = {
    "sizes": (1, 16, 8, 8), "weights": (16, 16, 3, 3), "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1],
    "groups": 1, "bias": 16, "scales": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"stride": [0, 1]}, "stride must be at least 1"),
        ({"stride": [1, 1, 1]}, "expected 1 or 2 values for stride"),
        ({"padding": [-1, 0]}, "padding must be at least 0"),
        ({"dilation": [0, 1]}, "dilation must be at least 1"),
        ({"groups": 0}, "in 0 groups"),
        ({"groups": 3}, "in 3 groups"),
        ({"weights": (16, 8, 3, 3)}, "doesn't fit a weight of shape"),
        ({"weights": (16, 16, 3)}, "doesn't fit a weight of shape"),
        ({"sizes": (1, 16, 8, 2)}, "larger than the padded input"),
        ({"dilation": [1, 4]}, "larger than the padded input"),
        ({"bias": 3}, "expected a bias of 16"),
        ({"scales": 3}, "zero point of the weight, or 16, got 3"),
    ],
    ids=str,
)
def test_convolutions_that_do_not_fit(change: dict[str, Any], error: str) -> None:
    case = {**CONVOLUTION, **change}
    x, w = stored(case["sizes"], torch.uint8, 1), stored(case["weights"], torch.int8, 2)
    tensors = on_xpu(x, w, torch.ones(case["scales"]), torch.zeros(case["scales"], dtype=torch.int64))
    there, weight, scale, zero = tensors
    how = case["stride"], case["padding"], case["dilation"], case["groups"]
    end = (1.0, 0, torch.float32, "none", [], "")
    bias = torch.ones(case["bias"], device="xpu")
    with pytest.raises(RuntimeError, match=error):
        OPS.qconv_pointwise(there, 0.02, 7, weight, scale, zero, bias, *how, *end)


def test_one_number_for_all_dimensions() -> None:
    x, w = stored((1, 16, 8, 8), torch.uint8, 1), stored((16, 16, 3, 3), torch.int8, 2)
    scale, zero = per_channel(16)
    there, weight, *tensors = on_xpu(x, w, scale, zero)
    end = (1.0, 0, torch.float32, "none", [], "")
    actual = OPS.qconv_pointwise(there, 0.02, 7, weight, *tensors, None, [2], [1], [1], 1, *end)
    compare(actual, F.conv2d(numbers(x, 0.02, 7), numbers(w, scale, zero), None, 2, 1), torch.float32)


def test_refused() -> None:
    x, w = stored((2, 8), torch.int8, 1).to("xpu"), stored((4, 8), torch.int8, 2).to("xpu")
    scale, zero = on_xpu(*per_channel(4))
    packed = OPS.qlinear_prepack(w, None)

    def linear(*end: Any, weight: Tensor = packed, scales: Tensor = scale) -> Tensor:
        result: Tensor = OPS.qlinear_pointwise(x, 0.1, 0, weight, scales, zero, None, *end)
        return result

    for end, message in (
        ((1.0, 0, torch.float32, "softplus", [], ""), "post op 'softplus'"),
        ((1.0, 0, torch.float32, "hardtanh", [1.0], ""), "needs more than 1"),
        ((1.0, 0, torch.int32, "none", [], ""), "int8, uint8 or floating"),
    ):
        with pytest.raises((RuntimeError, NotImplementedError), match=message):
            linear(*end)
    end = (1.0, 0, torch.float32, "none", [], "")
    with pytest.raises(RuntimeError, match="fit"):
        linear(*end, weight=packed[:5])
    with pytest.raises(RuntimeError, match="expected one scale"):
        linear(*end, scales=scale[:3])
    with pytest.raises(RuntimeError, match="int8 or float8"):
        linear(*end, weight=packed.float())
