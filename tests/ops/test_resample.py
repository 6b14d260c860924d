"""Interpolation and padding by reflection or replication on xpu against the CPU in float64, forward and backward."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close, assert_close_with_gradients

# The positions between two points are float32 for all dtypes but float64.
TIMES = {torch.float16: 0.5, torch.bfloat16: 1, torch.float32: 1, torch.float64: 1}
GRADIENT_TIMES = {dtype: 4 * times for dtype, times in TIMES.items()}
# Whether libxpu's own kernels run; on CPU devices PyTorch's faster ones may run instead.
NATIVE = os.environ.get("OPENXPU_HOST_PROVIDER") == "0"
SHAPES = {1: (2, 3, 13), 2: (2, 3, 11, 14), 3: (1, 2, 5, 6, 7)}


def compare(
    function,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layout: torch.memory_format = torch.contiguous_format,
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).contiguous(memory_format=layout)
    # A point sums up to some tens of gradients; half types are rounded once, at the end.
    actual = assert_close_with_gradients(
        function, x.requires_grad_(), times=TIMES, gradient_times=GRADIENT_TIMES
    )
    assert actual.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_nearest(dims: int, mode: str) -> None:
    for dtype in (torch.float32, torch.float16) if dims == 2 else (torch.float32,):
        for factor in (2, 0.5, 1.7):
            compare(lambda x, f=factor: F.interpolate(x, scale_factor=f, mode=mode), SHAPES[dims], dtype)
    compare(lambda x: F.interpolate(x, size=(9, 4, 5)[:dims], mode=mode), SHAPES[dims], torch.float32)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic", "trilinear"])
def test_smooth(mode: str, align: bool) -> None:
    shape = SHAPES[{"linear": 1, "trilinear": 3}.get(mode, 2)]
    for options in (
        dict(scale_factor=2),
        dict(scale_factor=1.7),
        dict(scale_factor=0.6),
        dict(size=(9, 4, 1)[: len(shape) - 2]),
    ):
        compare(
            lambda x, o=options: F.interpolate(x, **o, mode=mode, align_corners=align), shape, torch.float32
        )


@pytest.mark.parametrize("dtype", TIMES, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_dtypes(mode: str, dtype: torch.dtype) -> None:
    compare(lambda x: F.interpolate(x, scale_factor=2, mode=mode), SHAPES[2], dtype)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_channels_last(mode: str) -> None:
    compare(
        lambda x: F.interpolate(x, scale_factor=2, mode=mode), SHAPES[2], torch.float32, torch.channels_last
    )


def test_same_size_and_views() -> None:
    for mode in ("nearest", "bilinear", "bicubic"):
        x = torch.randn(2, 3, 8, 10)
        assert torch.equal(F.interpolate(x.to("xpu"), size=(8, 10), mode=mode).cpu(), x)
        view, reference = x.to("xpu")[:, 1:, ::2].mT, x[:, 1:, ::2].mT
        actual = F.interpolate(view, scale_factor=3, mode=mode)
        assert_close(actual, F.interpolate(reference, scale_factor=3, mode=mode))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pads(dims: int, mode: str) -> None:
    pads = (3, 1, 2, 4, 0, 3)[: 2 * dims]
    compare(lambda x: F.pad(x, pads, mode=mode), SHAPES[dims], torch.float32)
    x = torch.randn(SHAPES[dims])
    assert torch.equal(F.pad(x.to("xpu"), pads, mode=mode).cpu(), F.pad(x, pads, mode=mode))
    # Without a batch dimension, of a view, and with negative padding.
    assert torch.equal(F.pad(x[0].to("xpu"), pads, mode=mode).cpu(), F.pad(x[0], pads, mode=mode))
    y = x.to("xpu").transpose(0, 1)
    assert torch.equal(F.pad(y, pads, mode=mode).cpu(), F.pad(x.transpose(0, 1), pads, mode=mode))
    cut = (2, -1) + pads[2:]
    assert torch.equal(F.pad(x.to("xpu"), cut, mode=mode).cpu(), F.pad(x, cut, mode=mode))


@pytest.mark.parametrize("dtype", TIMES, ids=str)
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pad_dtypes(mode: str, dtype: torch.dtype) -> None:
    compare(lambda x: F.pad(x, (3, 1, 2, 4), mode=mode), SHAPES[2], dtype)


# More, fewer, the same number of and few output positions; changes in only one dimension.
SIZES = ((30, 41), (5, 7), (11, 14), (1, 1), (13, 3), (11, 5), (4, 14))
FILTERS = ["bilinear", "bicubic", *(["lanczos"] if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa") else [])]
LAYOUTS = (torch.contiguous_format, torch.channels_last)


@pytest.mark.parametrize("dtype", TIMES, ids=str)
@pytest.mark.parametrize("mode", FILTERS)
def test_filters(mode: str, dtype: torch.dtype) -> None:
    for layout in LAYOUTS:
        for size in SIZES:
            compare(
                lambda x, s=size: F.interpolate(x, size=s, mode=mode, antialias=True),
                SHAPES[2],
                dtype,
                layout,
            )


@pytest.mark.parametrize("mode", FILTERS)
def test_filters_by_factors_and_corners(mode: str) -> None:
    for factor in (2, 1.7, 0.6, 0.21):
        compare(
            lambda x, f=factor: F.interpolate(x, scale_factor=f, mode=mode, antialias=True),
            SHAPES[2],
            torch.float32,
        )
    if mode == "lanczos":  # which has no align_corners
        return
    for size in SIZES:
        compare(
            lambda x, s=size: F.interpolate(x, size=s, mode=mode, antialias=True, align_corners=True),
            SHAPES[2],
            torch.float32,
        )


@pytest.mark.parametrize("mode", FILTERS)
def test_filters_of_bytes(mode: str) -> None:
    """uint8 results are rounded and clamped once; PyTorch's kernels do it after each dimension."""
    torch.manual_seed(0)
    x = torch.randint(*((0, 256) if NATIVE else (70, 180)), SHAPES[2], dtype=torch.uint8)
    for layout in LAYOUTS:
        for size in SIZES:
            y = x.to("xpu").contiguous(memory_format=layout)
            y = F.interpolate(y, size=size, mode=mode, antialias=True)
            exact = F.interpolate(x.double(), size=size, mode=mode, antialias=True).clamp(0, 255)
            assert y.dtype == torch.uint8
            assert (y.cpu().double() - exact).abs().max() < (0.501 if NATIVE else 2)


def test_filters_of_views_nothing_and_nan() -> None:
    x = torch.randn(3, 4, 9, 12)
    options = dict(size=(5, 17), mode="bicubic", antialias=True)
    view, reference = x.to("xpu")[:, 1:, ::2].mT, x[:, 1:, ::2].mT
    assert_close(F.interpolate(view, **options), F.interpolate(reference, **options))
    assert F.interpolate(x[:0].to("xpu"), **options).shape == (0, 4, 5, 17)
    x[1, 2, 3, 4] = float("nan")
    actual, expected = F.interpolate(x.to("xpu"), **options).cpu(), F.interpolate(x, **options)
    assert torch.equal(actual.isnan(), expected.isnan()) and expected.isnan().any()


def test_filters_into_an_out_with_gaps() -> None:
    x = torch.randn(2, 3, 9, 12)
    out = torch.zeros(2, 3, 5, 14, device="xpu")[..., ::2]
    torch.ops.aten._upsample_bilinear2d_aa.out(x.to("xpu"), [5, 7], False, None, None, out=out)
    expected = F.interpolate(x, size=(5, 7), mode="bilinear", antialias=True)
    assert_close(out, expected)


@pytest.mark.parametrize("mode", FILTERS)
def test_gradients_of_filters(mode: str) -> None:
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64, device="xpu", requires_grad=True)
    for size in ((3, 8), (2, 2)):
        assert torch.autograd.gradcheck(
            lambda t, s=size: F.interpolate(t, size=s, mode=mode, antialias=True), (x,)
        )


def test_errors_are_pytorchs() -> None:
    x = torch.randn(1, 2, 4, 4, device="xpu")
    with pytest.raises(
        RuntimeError, match="Padding size should be less than the corresponding input dimension"
    ):
        F.pad(x, (4, 0, 0, 0), mode="reflect")
    for dims in (1, 2, 3):
        with pytest.raises(RuntimeError, match=f"Expected {dims + 1}D or {dims + 2}D"):
            F.pad(torch.ones(3, 0, *[10] * dims, device="xpu"), [1] * (2 * dims), mode="reflect")
    with pytest.raises(RuntimeError, match="sizes should be greater than 0"):
        F.interpolate(x, size=(0, 3))
    for size in ((0, 3), (2, -1)):
        with pytest.raises(RuntimeError, match="sizes should be greater than 0"):
            F.interpolate(x, size=size, mode="bicubic", antialias=True)
    with pytest.raises(RuntimeError, match="Non-empty 4D data tensor expected"):
        torch._C._nn._upsample_bilinear2d_aa(torch.ones(2, 0, 3, 3, device="xpu"), (2, 2), False)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("shape", "height"), [((1, 3, 4, 2), 8), ((1, 1, 6, 5), 12), ((2, 2, 9, 3), 4), ((2, 3, 5, 7), 1)]
)
def test_filters_to_one_column(shape: tuple[int, ...], height: int, mode: str) -> None:
    # PyTorch 2.13's CPU kernel is wrong here, but right for the transposed image, which has one row
    torch.manual_seed(0)
    x = torch.randn(shape)
    actual = F.interpolate(x.to("xpu"), size=(height, 1), mode=mode, antialias=True)
    turned = x.double().transpose(2, 3).contiguous()
    expected = F.interpolate(turned, size=(1, height), mode=mode, antialias=True).transpose(2, 3)
    assert_close(actual, expected, dtype=torch.float32, times=0.5)
