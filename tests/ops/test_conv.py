"""Convolutions, forward and backward, against float64 on the CPU."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from comparing import TOLERANCE, assert_close
from processes import POISONED_HEAP, run_python
from torch import Tensor

# dims, channels in and out, groups, kernel, stride, padding, dilation
CASES = [
    (1, 4, 6, 1, 3, 1, 1, 1),
    (1, 6, 6, 6, 5, 2, 2, 1),
    (2, 3, 8, 1, 3, 1, 1, 1),
    (2, 16, 24, 1, 1, 1, 0, 1),
    (2, 8, 12, 4, 3, 2, 1, 1),
    (2, 8, 16, 8, 3, 1, 1, 1),
    (2, 16, 16, 16, 3, 1, 1, 1),
    (2, 24, 24, 6, 3, 2, 1, 1),
    (2, 5, 7, 1, 3, 1, 2, 2),
    (2, 40, 36, 1, 3, 2, 0, 1),
    (3, 4, 10, 2, 3, 2, 1, 1),
    (3, 8, 8, 8, 2, 1, 1, 1),
]
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


# relative to the largest value, since long sums lose small terms
close = functools.partial(assert_close, relative_to="largest")


def check(
    dtype: torch.dtype,
    case: tuple[int, ...],
    transposed: bool = False,
    bias: bool = True,
    channels_last: bool = False,
) -> None:
    """Compare one convolution and its three gradients on xpu with float64."""
    dims, cin, cout, groups, kernel, stride, padding, dilation = case
    extent = {1: (23,), 2: (11, 9), 3: (6, 5, 7)}[dims]
    shape = (cin, cout // groups) if transposed else (cout, cin // groups)
    x = torch.randn(2, cin, *extent).to(dtype)
    w = torch.randn(*shape, *[kernel] * dims).to(dtype)
    b = torch.randn(cout).to(dtype) if bias else None
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    if transposed and stride > 1:
        options["output_padding"] = 1
    leaves = [None if t is None else t.to("xpu").detach() for t in (x, w, b)]
    if channels_last:
        leaves[0] = leaves[0].contiguous(memory_format=FORMATS[dims])
    leaves = [None if t is None else t.requires_grad_() for t in leaves]
    wants = [None if t is None else t.double().requires_grad_() for t in (x, w, b)]
    got, want = function(*leaves, **options), function(*wants, **options)
    close(got, want, dtype=dtype)
    if channels_last:
        assert got.is_contiguous(memory_format=FORMATS[dims])
    grad = torch.randn(want.shape).to(dtype)
    got.backward(grad.to("xpu"))
    want.backward(grad.double())
    for leaf, reference in zip(leaves, wants, strict=True):
        if leaf is not None:
            close(leaf.grad, reference.grad, dtype=dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "transposed"])
def test_float32(case: tuple[int, ...], transposed: bool) -> None:
    check(torch.float32, case, transposed)


@pytest.mark.parametrize("case", [c for c in CASES if c[0] > 1], ids=str)
def test_channels_last(case: tuple[int, ...]) -> None:
    check(torch.float32, case, channels_last=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", [CASES[2], CASES[4]], ids=str)
def test_dtypes(dtype: torch.dtype, case: tuple[int, ...]) -> None:
    check(dtype, case)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("transposed, mkldnn", [(True, True), (True, False), (False, False)])
def test_halves_are_rounded_once(dtype: torch.dtype, transposed: bool, mkldnn: bool) -> None:
    """Where PyTorch's CPU kernels add tap by tap: output padding equal to the stride, without oneDNN."""
    x, w = torch.randn(2, 4, 9, 9).to(dtype), torch.randn(4, 4, 3, 3).to(dtype)
    function = F.conv_transpose2d if transposed else F.conv2d
    options = {"dilation": (1, 3)} | ({"output_padding": (0, 1)} if transposed else {})

    def results(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = [t.detach().clone().requires_grad_() for t in (x, w)]
        y = function(*leaves, **options)
        y.backward(torch.full_like(y, 1.5))
        return y.detach(), *(t.grad for t in leaves)

    with torch.backends.mkldnn.flags(enabled=mkldnn):
        found = results(x.to("xpu"), w.to("xpu"))
    wanted, sizes = results(x.double(), w.double()), results(x.double().abs(), w.double().abs())
    for got, want, size in zip(found, wanted, sizes, strict=True):
        error = (got.cpu().double() - want).abs()
        assert (error <= torch.finfo(dtype).eps / 2 * want.abs() + 2**-20 * size + 2**-25).all()


def test_no_bias() -> None:
    check(torch.float32, CASES[2], bias=False)


def test_many_pixels() -> None:
    """The weight gradient sums over so many pixels that split-K is used."""
    x, w = torch.randn(4, 12, 40, 40), torch.randn(12, 12, 3, 3)
    leaves = [t.to("xpu").requires_grad_() for t in (x, w)]
    wants = [t.double().requires_grad_() for t in (x, w)]
    F.conv2d(*leaves, padding=1).square().sum().backward()
    F.conv2d(*wants, padding=1).square().sum().backward()
    for leaf, want in zip(leaves, wants, strict=True):
        close(leaf.grad, want.grad, dtype=torch.float32)


# channels of x and y, groups, kernel, stride, padding, dilation, pixels: images, as GPUs have kernels for
IMAGES = [
    (3, 16, 1, (7, 7), (2, 2), (3, 3), (1, 1), (30, 35)),
    (3, 10, 1, (3, 3), (1, 1), (1, 1), (1, 1), (21, 70)),
    (3, 8, 1, (11, 11), (4, 4), (2, 2), (1, 1), (39, 47)),
    (2, 9, 1, (3, 5), (2, 3), (0, 4), (2, 1), (21, 35)),
    (6, 10, 2, (3, 2), (3, 1), (2, 0), (1, 4), (17, 23)),
    (4, 12, 1, (4, 4), (4, 4), (0, 0), (1, 1), (16, 24)),
    (3, 20, 1, (16, 16), (16, 16), (0, 0), (1, 1), (32, 48)),
    (1, 5, 1, (5, 8), (5, 8), (0, 0), (1, 1), (10, 40)),
    (3, 8, 1, (1, 1), (2, 2), (1, 1), (1, 1), (33, 20)),
    (2, 6, 1, (3, 3), (4, 4), (3, 3), (1, 1), (20, 31)),
]


@pytest.mark.parametrize("case", IMAGES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_images(case: tuple, channels_last: bool, dtype: torch.dtype) -> None:
    """The gradient of x with few channels, and the equivalent transposed convolution."""
    c, k, groups, taps, stride, padding, dilation, pixels = case
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    x, w = torch.randn(2, c, *pixels).to(dtype), torch.randn(k, c // groups, *taps).to(dtype)
    options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    leaf = x.to("xpu").contiguous(memory_format=memory_format).requires_grad_()
    weight = w.to("xpu").contiguous(memory_format=memory_format)
    reference = x.double().requires_grad_()
    got, want = F.conv2d(leaf, weight, **options), F.conv2d(reference, w.double(), **options)
    grad = torch.randn(want.shape).to(dtype)
    given = grad.to("xpu").contiguous(memory_format=memory_format)
    got.backward(given)
    want.backward(grad.double())
    close(leaf.grad, reference.grad, dtype=dtype)
    bias = torch.randn(c).to(dtype)
    back = F.conv_transpose2d(given, weight, bias.to("xpu"), **options)
    close(back, F.conv_transpose2d(grad.double(), w.double(), bias.double(), **options), dtype=dtype)


@pytest.mark.parametrize("pixels", [(14, 14), (9, 12), (1, 5)], ids=str)
@pytest.mark.parametrize("channels", [(32, 48), (65, 30)], ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_taps_of_3_by_3(
    pixels: tuple[int, int], channels: tuple[int, int], channels_last: bool, dtype: torch.dtype
) -> None:
    """Winograd, which GPUs may use, with sums that cancel."""
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    c, k = channels
    x = torch.randn(3, c, *pixels).add(2).to(dtype)
    w, b = torch.randn(k, c, 3, 3).to(dtype), torch.randn(k).to(dtype)
    x[1, 3, 0, 4] = torch.nan
    x[2, 5, 0, 2] = torch.inf
    leaves = [t.to("xpu").requires_grad_() for t in (x.contiguous(memory_format=memory_format), w, b)]
    wants = [t.double().requires_grad_() for t in (x, w, b)]
    got, want = F.conv2d(*leaves, padding=1), F.conv2d(*wants, padding=1)
    assert torch.equal(got.isfinite().cpu(), want.isfinite())
    assert torch.equal(got[1].isnan().cpu(), want[1].isnan())
    close(got.nan_to_num(0, 0, 0), want.nan_to_num(0, 0, 0), dtype=dtype)
    with torch.no_grad():
        for t in (leaves[0], wants[0]):
            t.nan_to_num_(1, 1, 1)
    got, want = F.conv2d(*leaves, padding=1), F.conv2d(*wants, padding=1)
    grad = torch.randn(want.shape).to(dtype)
    got.backward(grad.to("xpu"))
    want.backward(grad.double())
    for leaf, reference in zip(leaves, wants, strict=True):
        close(leaf.grad, reference.grad, dtype=dtype)


def check_gradients(
    x: Tensor,
    w: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    transposed: bool,
    shape: tuple[int, ...],  # of the result
    groups: int = 1,
) -> None:
    """Compare all gradients of a convolution with float64's."""
    sizes = zip(shape[2:], x.shape[2:], stride, padding, w.shape[2:], strict=True)
    more = [n - ((i - 1) * s - 2 * p + k) if transposed else 0 for n, i, s, p, k in sizes]
    how = ([shape[1]], stride, padding, [1] * len(stride), transposed, more, groups)
    dy = torch.randn(shape).to(w.dtype)
    backward = torch.ops.aten.convolution_backward
    got = backward(dy.to("xpu"), x.to("xpu"), w.to("xpu"), *how, [True, True, True])
    want = backward(dy.double(), x.cpu().double(), w.double(), *how, [True, True, True])
    for one, other in zip(got, want, strict=True):
        close(one, other, dtype=w.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("channels", [1, 3, 6, 9, 15, 16, 20])
@pytest.mark.parametrize(
    "stride, extent", [((2, 2), (12, 20)), ((3, 1), (7, 6)), ((2, 1, 3), (4, 5, 6)), ((2,), (9,))]
)
def test_one_tap_that_skips_pixels(
    stride: tuple[int, ...], extent: tuple[int, ...], channels: int, groups: int, dtype: torch.dtype
) -> None:
    """PyTorch's CPU gradients of such weights are wrong for few channels that lie last."""
    dims = len(stride)
    last = FORMATS.get(dims, torch.contiguous_format)
    wide = torch.randn(8, channels * groups, *extent).to(dtype).contiguous(memory_format=last)
    narrow = torch.randn(8, 4 * groups, *(-(-n // s) for n, s in zip(extent, stride, strict=True)))
    narrow = narrow.to(dtype).contiguous(memory_format=last)
    w = torch.randn(4 * groups, channels, *[1] * dims).to(dtype)
    check_gradients(wide.to("xpu"), w, stride, (0,) * dims, False, narrow.shape, groups)
    check_gradients(narrow.to("xpu"), w, stride, (0,) * dims, True, wide.shape, groups)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "size, kernel, stride, padding",
    [
        ((1, 1, 5, 2), (1, 1, 1, 2), (1, 2), (0, 0)),  # one column
        ((1, 1, 2, 2), (1, 1, 2, 2), (1, 1), (0, 0)),
        ((2, 16, 9), (32, 16, 9), (2,), (0,)),
        ((2, 3, 5, 6, 3), (4, 3, 3, 3, 3), (1, 2, 3), (0, 0, 0)),
        ((1, 32, 67, 4), (48, 32, 1, 1), (3, 1), (0, 1)),  # rows that the kernel skips
        ((2, 32, 40, 17), (32, 32, 2, 3), (3, 1), (1, 1)),
        ((1, 16, 11, 9, 8), (32, 16, 1, 3, 3), (2, 1, 1), (0, 1, 1)),
        ((2, 32, 14, 14), (64, 32, 1, 1), (2, 2), (0, 0)),  # as in residual networks
    ],
    ids=str,
)
def test_shapes_that_onednn_gets_wrong_with_amx(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dtype: torch.dtype,
) -> None:
    x, w = torch.randn(size).to(dtype), torch.randn(kernel).to(dtype)
    function = getattr(F, f"conv{len(stride)}d")
    for last in (False, True) if len(stride) == 2 else (False,):
        layout = torch.channels_last if last else torch.contiguous_format
        given = x.to("xpu").contiguous(memory_format=layout)
        got = function(given, w.to("xpu"), stride=stride, padding=padding)
        want = function(x.double(), w.double(), stride=stride, padding=padding)
        assert_close(got, want, dtype=dtype)
        check_gradients(given, w, stride, padding, False, want.shape)
        check_gradients(torch.randn(want.shape, device="xpu").to(dtype), w, stride, padding, True, x.shape)
        if len(stride) > 1:  # with what follows, as torch.compile fuses it
            dilation = [1] * len(stride)
            fused = torch.ops.mkldnn._convolution_pointwise(
                given, w.to("xpu"), None, padding, stride, dilation, 1, "relu", [], ""
            )
            assert_close(fused, want.relu(), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "narrow, kernel, stride",
    [((7, 1), (1, 4), (1, 3)), ((4, 1), (2, 2), (1, 2)), ((2, 3, 1), (3, 3, 3), (3, 1, 3))],
)
def test_transposed_to_one_channel_from_one_column(
    narrow: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], groups: int, dtype: torch.dtype
) -> None:
    """PyTorch's CPU gradient of the input is wrong where channels lie last."""
    dims = len(narrow)
    x = torch.randn(2, 48 * groups, *narrow).to(dtype).contiguous(memory_format=FORMATS[dims])
    wide = [(n - 1) * s + k for n, s, k in zip(narrow, stride, kernel, strict=True)]
    w = torch.randn(48 * groups, 1, *kernel).to(dtype)
    check_gradients(x.to("xpu"), w, stride, (0,) * dims, True, (2, groups, *wide), groups)


SMALL_IMAGES = """
import random
from comparing import assert_close
aten, chosen = torch.ops.aten, random.Random(SEED)

def sizes(least, most):
    return [chosen.randint(least, most) for _ in range(dims)]

def compare(x, w, bias, dy, *how):
    here = [t.to("xpu").contiguous(memory_format=last) for t in (x, w, dy)]
    wide = [t.double() for t in (x, w, dy)]
    options = {"dtype": x.dtype, "what": f"{x.dtype} {(*x.shape,)} {(*w.shape,)} {how}"}
    want = aten.convolution(wide[0], wide[1], bias.double(), *how)
    assert_close(aten.convolution(*here[:2], bias.to("xpu"), *how), want, **options)
    if not how[3] and dims > 1:
        settings = (how[1], how[0], how[2], how[5], "relu", [], "")
        fused = torch.ops.mkldnn._convolution_pointwise(*here[:2], bias.to("xpu"), *settings)
        assert_close(fused, want.relu(), **options)
    got = aten.convolution_backward(here[2], *here[:2], [dy.shape[1]], *how, [True, True, True])
    want = aten.convolution_backward(wide[2], *wide[:2], [dy.shape[1]], *how, [True, True, True])
    for one, other in zip(got, want, strict=True):
        assert_close(one, other, **options)

done = 0
while done < 100:
    dims, groups = chosen.choice([1, 2, 2, 3]), chosen.choice([1, 1, 1, 2])
    many, few = (chosen.choice([1, 2, 3, 8, 16, 20, 32]) for _ in range(2))
    extent, kernel, stride, dilation, padding = sizes(1, 3), sizes(1, 4), sizes(1, 4), sizes(1, 2), sizes(0, 3)
    reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
    result = [(n + 2 * p - r - 1) // s + 1 for n, p, r, s in zip(extent, padding, reach, stride)]
    if min(result) < 1:
        continue
    more = [n - (m - 1) * s + 2 * p - r - 1 for n, m, s, p, r in zip(extent, result, stride, padding, reach)]
    last = chosen.choice([torch.contiguous_format, *({2: [torch.channels_last]}.get(dims, []))])
    dtype = chosen.choice([torch.float32, torch.bfloat16, torch.bfloat16, torch.float16])
    x, y, w, b, c = (
        torch.randn(shape, dtype=dtype)
        for shape in (
            (2, groups * many, *extent), (2, groups * few, *result), (groups * few, many, *kernel),
            (groups * few,), (groups * many,),
        )
    )
    settings = (stride, padding, dilation)
    compare(x, w, b, y, *settings, False, [0] * dims, groups)
    compare(y, w, c, x, *settings, True, more, groups)
    done += 1
"""


@pytest.mark.parametrize("seed", range(4))
def test_images_smaller_than_the_kernel(seed: int) -> None:
    """Where no window lies inside the image, oneDNN reads uninitialized memory or ends the process."""
    run_python(SMALL_IMAGES.replace("SEED", str(seed)), env=POISONED_HEAP)


def test_autocast() -> None:
    conv = torch.nn.Conv2d(3, 4, 3, device="xpu")
    with torch.autocast("xpu", dtype=torch.bfloat16):
        y = conv(torch.randn(1, 3, 8, 8, device="xpu"))
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert conv.weight.grad.dtype == torch.float32


def test_not_batched_and_memory() -> None:
    """The result is device memory: counted in the statistics, and freed."""
    x, w = torch.randn(3, 9, 9, device="xpu"), torch.randn(5, 3, 3, 3, device="xpu")
    y = F.conv2d(x, w)
    assert y.shape == (5, 7, 7) and y.device.type == "xpu"
    del y
    before = torch.xpu.memory_allocated()
    y = F.conv2d(torch.randn(8, 3, 64, 64, device="xpu"), w)
    assert torch.xpu.memory_allocated() - before >= y.numel() * 4
    del y
    assert torch.xpu.memory_allocated() <= before + 2 * 8 * 3 * 64 * 64 * 4
    assert x.add_(1).device.type == "xpu"


def test_errors_are_pytorchs() -> None:
    with pytest.raises(RuntimeError, match="expected input"):
        F.conv2d(torch.ones(1, 4, 8, 8, device="xpu"), torch.ones(2, 3, 3, 3, device="xpu"))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_strides_of_single_elements(dtype: torch.dtype) -> None:
    """Strides of size-1 dimensions mean nothing, but oneDNN derives a layout from them and slow_conv2d rejects them."""
    cases = [  # sizes and strides of x and of w, groups
        ((1, 4, 1, 2), (8, 1, 8, 4), (2, 2, 1, 2), (4, 1, 2, 2), 2),
        ((2, 1, 3, 4), (12, 1, 4, 1), (2, 1, 1, 2), (1, 4, 2, 2), 1),
        ((1, 3, 1, 5), (1, 5, 3, 1), (4, 3, 1, 1), (1, 4, 4, 12), 1),
        ((1, 4, 1, 2, 1), (1, 2, 8, 1, 3), (6, 2, 1, 2, 1), (4, 2, 1, 1, 7), 2),
    ]
    for size, strides, kernel, of_kernel, groups in cases:
        x, w = (
            torch.randn(60).to(dtype).as_strided(size, strides),
            torch.randn(99).to(dtype).as_strided(kernel, of_kernel),
        )
        on_xpu = [
            torch.empty_strided(t.shape, t.stride(), dtype=dtype, device="xpu").copy_(t) for t in (x, w)
        ]
        assert on_xpu[1].stride() == of_kernel
        dims, leaves = len(size) - 2, [t.requires_grad_() for t in on_xpu]
        wants = [t.double().clone(memory_format=torch.contiguous_format).requires_grad_() for t in (x, w)]
        function = getattr(F, f"conv{dims}d")
        got, want = function(*leaves, groups=groups), function(*wants, groups=groups)
        close(got, want, dtype=dtype)
        fused = torch.ops.mkldnn._convolution_pointwise
        if dims == 2:
            ended = fused(*on_xpu, None, [0, 0], [1, 1], [1, 1], groups, "relu", [], "")
            close(ended, want.relu(), dtype=dtype)
        got.sum().backward()
        want.sum().backward()
        for leaf, other in zip(leaves, wants, strict=True):
            close(leaf.grad, other.grad, dtype=dtype)
