"""Pooling on xpu against the CPU in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close, assert_close_with_gradients, assert_equal

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# averages of few elements; as many times as much in gradients, which sum over windows
TIMES = {torch.float16: 0.5, torch.bfloat16: 1, torch.float32: 0.1, torch.float64: 0.01}
GRADIENT_TIMES = {dtype: 4 * times for dtype, times in TIMES.items()}


def compare(function, x: torch.Tensor, dtype: torch.dtype, exact: bool = False) -> torch.Tensor:
    """Compare function(x) and its gradient; with `exact` the values must be equal."""
    x = x.to(dtype, copy=True).requires_grad_()
    return assert_close_with_gradients(
        function, x, times=0 if exact else TIMES, gradient_times=GRADIENT_TIMES
    )


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


MAX_2D = [
    dict(kernel_size=3, stride=2, padding=1),
    dict(kernel_size=2),
    dict(kernel_size=(3, 2), stride=1, dilation=(2, 1)),
    dict(kernel_size=3, stride=2, ceil_mode=True),
    dict(kernel_size=5, stride=3, padding=2, dilation=2),
]
AVG_2D = [
    dict(kernel_size=3, stride=2, padding=1),
    dict(kernel_size=2),
    dict(kernel_size=(4, 3), stride=(2, 1)),
    dict(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
    dict(kernel_size=3, padding=1, ceil_mode=True, stride=2),
    dict(kernel_size=3, divisor_override=5),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", MAX_2D)
def test_max_pool2d(options: dict, dtype: torch.dtype) -> None:
    for shape in [(2, 3, 14, 17), (5, 9, 70)]:
        x = torch.randn(shape)
        compare(lambda x: F.max_pool2d(x, **options), x, dtype, exact=True)
        expected = F.max_pool2d(x, **options, return_indices=True)[1]
        assert torch.equal(F.max_pool2d(x.to("xpu"), **options, return_indices=True)[1].cpu(), expected)


@pytest.mark.parametrize("options", MAX_2D)
def test_max_pool2d_channels_last(options: dict) -> None:
    y = compare(
        lambda x: F.max_pool2d(channels_last(x), **options),
        torch.randn(2, 20, 14, 17),
        torch.float32,
        exact=True,
    )
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_max_pool_of_nan_and_infinity() -> None:
    x = torch.randn(1, 2, 8, 8)
    x[0, 0, 3, 3] = torch.nan
    x[0, 1] = -torch.inf
    for mine, reference in zip(
        F.max_pool2d(x.to("xpu"), 3, 2, return_indices=True), F.max_pool2d(x, 3, 2, return_indices=True)
    ):
        assert_equal(mine, reference, equal_nan=True)


@pytest.mark.parametrize("channels", [1, 15, 16, 63, 64, 65, 130])
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_of_channels(channels: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, channels, 9, 11).to(dtype)
    x[0, 0, 3, 3] = x[1, -1, 4, 5] = torch.nan
    x[0, -1] = -torch.inf
    on_xpu = channels_last(x.to("xpu"))
    for options in (dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=(2, 3), dilation=2)):
        mine, reference = (F.max_pool2d(t, **options, return_indices=True) for t in (on_xpu, x.double()))
        assert torch.equal(mine[1].cpu(), reference[1])
        assert_equal(mine[0], reference[0], dtype=dtype, equal_nan=True)
    mine, reference = (F.adaptive_max_pool2d(t, (4, 3), return_indices=True) for t in (on_xpu, x.double()))
    assert torch.equal(mine[1].cpu(), reference[1])
    assert_equal(mine[0], reference[0], dtype=dtype, equal_nan=True)
    limits = {"rtol": 1e-2, "atol": 1e-2} if dtype.itemsize == 2 else {"rtol": 1e-5, "atol": 1e-6}
    for average in (lambda t: F.avg_pool2d(t, 3, 2, 1), lambda t: F.adaptive_avg_pool2d(t, (4, 3))):
        assert_close(average(on_xpu), average(x.double()), dtype=dtype, equal_nan=True, **limits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", AVG_2D)
def test_avg_pool2d(options: dict, dtype: torch.dtype) -> None:
    for shape in [(2, 3, 14, 17), (5, 9, 70)]:
        compare(lambda x: F.avg_pool2d(x, **options), torch.randn(shape), dtype)
    y = compare(lambda x: F.avg_pool2d(channels_last(x), **options), torch.randn(2, 20, 14, 17), dtype)
    assert y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("size", [(1, 1), (7, 7), (5, 3), (20, 25)])
def test_adaptive_pool2d(size: tuple[int, int]) -> None:
    for layout in (lambda x: x, channels_last):
        x = torch.randn(3, 10, 14, 17)
        compare(lambda x: F.adaptive_avg_pool2d(layout(x), size), x, torch.float32)
        compare(lambda x: F.adaptive_max_pool2d(layout(x), size), x, torch.float32, exact=True)
    expected = F.adaptive_max_pool2d(x, size, return_indices=True)[1]
    assert torch.equal(F.adaptive_max_pool2d(x.to("xpu"), size, return_indices=True)[1].cpu(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 14, 17), (2, 1, 130, 130), (1, 3, 14, 17), (2, 70, 14, 17)])
def test_few_planes_large_ones_and_many_channels(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape)
    for layout in (lambda x: x, channels_last):
        compare(lambda x: F.max_pool2d(layout(x), 3, 2, 1), x, dtype, exact=True)
        compare(lambda x: F.avg_pool2d(layout(x), 3, 2, 1), x, dtype)
        compare(lambda x: F.adaptive_avg_pool2d(layout(x), (3, 4)), x, dtype)


def test_one_and_three_dimensions() -> None:
    x = torch.randn(2, 5, 33)
    compare(lambda x: F.max_pool1d(x, 3, 2, 1), x, torch.float32, exact=True)
    compare(lambda x: F.avg_pool1d(x, 3, 2, 1), x, torch.float32)
    compare(lambda x: F.adaptive_avg_pool1d(x, 7), x, torch.float32)
    x = torch.randn(2, 4, 9, 8, 11)
    for layout in (lambda x: x, channels_last):
        compare(lambda x: F.max_pool3d(layout(x), 3, 2, 1), x, torch.float32, exact=True)
        compare(lambda x: F.avg_pool3d(layout(x), 3, 2, 1), x, torch.float32)
        compare(lambda x: F.adaptive_avg_pool3d(layout(x), (4, 3, 5)), x, torch.float32)
        compare(lambda x: F.adaptive_max_pool3d(layout(x), (4, 3, 5)), x, torch.float32, exact=True)


def test_empty_and_refused() -> None:
    assert F.max_pool2d(torch.ones(0, 3, 8, 8, device="xpu"), 2).shape == (0, 3, 4, 4)
    with pytest.raises(RuntimeError):
        F.max_pool2d(torch.ones(1, 3, 2, 2, device="xpu"), 5)


def test_max_pool3d_without_a_batch_keeps_channels_last() -> None:
    x = channels_last(torch.randn(1, 4, 6, 6, 6)).squeeze(0)
    expected = F.max_pool3d(x, 2, return_indices=True)
    actual = F.max_pool3d(x.to("xpu"), 2, return_indices=True)
    for mine, reference in zip(actual, expected, strict=True):
        assert torch.equal(mine.cpu(), reference)
        assert mine.stride() == reference.stride() == (1, 36, 12, 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "kernel", "size"),
    [
        ((2, 3, 14, 17), (2, 3), (6, 7)),
        ((3, 65, 9), 2, (20, 1)),
        ((1, 2, 4, 4), 1, (3, 3)),
        ((2, 70, 10, 9, 12), (2, 1, 3), (4, 5, 4)),
        ((5, 6, 7, 8), 2, (3, 4, 1)),
    ],
)
def test_fractional_pool(
    shape: tuple[int, ...], kernel: Any, size: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    dims = len(size)
    pool = F.fractional_max_pool2d if dims == 2 else F.fractional_max_pool3d
    batch = shape[0] if len(shape) == dims + 2 else 1
    samples = torch.rand(batch + 1, shape[-1 - dims], dims, dtype=torch.float64).to(dtype)
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    x[..., 1, 2] = torch.nan
    # window starts are computed in single precision for half types
    exact = dtype if dtype == torch.float64 else torch.float32
    mine, reference = x.to("xpu").requires_grad_(), x.to(exact).clone().requires_grad_()
    actual, at = pool(mine, kernel, size, return_indices=True, _random_samples=samples.to("xpu"))
    expected, places = pool(reference, kernel, size, return_indices=True, _random_samples=samples.to(exact))
    assert_equal(actual, expected, dtype=dtype, equal_nan=True)
    assert torch.equal(at.cpu(), places)
    grad = torch.randn(expected.shape).to(dtype)
    actual.backward(grad.to("xpu"))
    expected.backward(grad.to(exact))
    assert_close(mine.grad, reference.grad, dtype=dtype, times=GRADIENT_TIMES)


def test_fractional_pool_of_what_does_not_fit() -> None:
    x = torch.randn(1, 3, 8, 8, device="xpu")
    with pytest.raises(RuntimeError, match="too large relative to input"):
        F.fractional_max_pool2d(x, 4, (6, 6))
    with pytest.raises(RuntimeError, match="same dtype as input"):
        F.fractional_max_pool2d(x, 2, (3, 3), _random_samples=torch.rand(1, 3, 2, device="xpu").double())
    with pytest.raises(RuntimeError, match="channel size"):
        F.fractional_max_pool2d(x, 2, (3, 3), _random_samples=torch.rand(1, 2, 2, device="xpu"))
