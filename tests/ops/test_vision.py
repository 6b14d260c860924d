"""torchvision's operators, against formulas in float64; their schemas, if torchvision is not installed."""

import itertools
import warnings

import pytest
import torch
from comparing import assert_close, tolerance
from torch import Tensor

SCHEMAS = """
nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, \
int sampling_ratio, bool aligned) -> Tensor
_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, \
SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor
roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) \
-> (Tensor, Tensor)
_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, \
SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, \
int sampling_ratio) -> (Tensor, Tensor)
_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, \
SymInt pooled_height, SymInt pooled_width, int sampling_ratio, SymInt batch_size, SymInt channels, SymInt height, \
SymInt width) -> Tensor
ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) \
-> (Tensor, Tensor)
_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, \
SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, \
SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, \
SymInt offset_groups, bool use_mask) -> Tensor
_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, \
SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, \
SymInt offset_groups, bool use_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)
"""
ops = torch.ops.torchvision
library = torch.library.Library("torchvision", "FRAGMENT")
for schema in SCHEMAS.strip().splitlines():
    if not hasattr(ops, schema.split("(")[0]):
        library.define(schema)

KINDS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
TIMES = {torch.float64: 10, torch.bfloat16: 1.5}  # positions between elements are sums, too


def interpolated(image: Tensor, y: float | Tensor, x: float | Tensor, reach: bool) -> Tensor:
    """Interpolate each channel of (channels, height, width) at a point; `reach`: borders extend by one element."""
    height, width = image.shape[1:]
    y, x = torch.as_tensor(y, dtype=torch.float64), torch.as_tensor(x, dtype=torch.float64)
    if reach:
        if not (-1 <= y <= height and -1 <= x <= width):
            return image.new_zeros(len(image))
        y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    total = image.new_zeros(len(image))
    low = int(y.detach().floor()), int(x.detach().floor())
    for i, j in itertools.product((low[0], low[0] + 1), (low[1], low[1] + 1)):
        if 0 <= i < height and 0 <= j < width:
            total = total + image[:, i, j] * (1 - (y - i).abs()) * (1 - (x - j).abs())
    return total


def half_up(value: float) -> int:
    """Round like C: ties away from zero."""
    return int(abs(value) + 0.5) * (1 if value >= 0 else -1)


def one_bin(
    kind: str,
    image: Tensor,
    corners: list[float],
    bins: tuple[int, int],
    at: tuple[int, int],
    samples: int,
    aligned: bool,
) -> Tensor:
    """Return a bin of a region, for all channels of its image (C, height, width); x, y, right, bottom in elements."""
    if kind.endswith("align"):
        shift = 0.5 if aligned or kind == "ps_roi_align" else 0.0
        starts, extents, counts = [], [], []
        for d in (1, 0):  # rows first
            start, end = corners[d] - shift, corners[d + 2] - shift
            starts.append(start)
            extents.append(end - start if shift else max(end - start, 1.0))
        lengths = [extent / count for extent, count in zip(extents, bins, strict=True)]
        counts = [samples if samples > 0 else int(-(-length // 1)) for length in lengths]
        total = image.new_zeros(len(image))
        for i, j in itertools.product(range(counts[0]), range(counts[1])):
            place = [
                starts[d] + at[d] * lengths[d] + (k + 0.5) * lengths[d] / counts[d]
                for d, k in enumerate((i, j))
            ]
            total = total + interpolated(image, *place, reach=True)
        return total / max(counts[0] * counts[1], 1)
    spans = []
    for d, size in ((1, image.shape[1]), (0, image.shape[2])):
        start, end = half_up(corners[d]), half_up(corners[d + 2])
        extent = max(end - start + 1, 1) if kind == "roi_pool" else max(end - start, 1)
        length, k = extent / bins[1 - d], at[1 - d]
        most = size if kind == "roi_pool" else size - 1
        first, last = int(k * length // 1) + start, int(-(-(k + 1) * length // 1)) + start
        spans.append(slice(min(max(first, 0), most), min(max(last, 0), most)))
    part = image[:, spans[0], spans[1]].flatten(1)
    if not part.shape[1]:
        return image.new_zeros(len(image))
    return part.max(1).values if kind == "roi_pool" else part.mean(1)


def regions(
    kind: str, image: Tensor, rois: Tensor, scale: float, bins: tuple[int, int], samples: int, aligned: bool
) -> Tensor:
    rows = []
    for number, *corners in rois.tolist():
        scaled = [corner * scale for corner in corners]
        parts = [
            one_bin(kind, image[int(number)], scaled, bins, at, samples, aligned)
            for at in itertools.product(range(bins[0]), range(bins[1]))
        ]
        row = torch.stack(parts, 1).view(image.shape[1], *bins)
        if kind.startswith("ps"):  # one channel per bin
            planes = row.view(-1, bins[0] * bins[1], bins[0] * bins[1])
            row = planes.diagonal(dim1=1, dim2=2).reshape(-1, *bins)
        rows.append(row)
    return torch.stack(rows)


def some_regions(kind: str, dtype: torch.dtype, bins: tuple[int, int]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    channels = 2 * bins[0] * bins[1] if kind.startswith("ps") else 3
    # no ties between maxima, and no coordinate on an edge between elements
    image = torch.randperm(2 * channels * 11 * 9).view(2, channels, 11, 9) / 64
    corners = torch.randint(-64, 320, (6, 2)) / 32 + 1 / 128
    extents = torch.randint(0, 320, (6, 2)) / 32
    numbers = torch.tensor([[0.0], [1], [1], [0], [1], [0]])
    rois = torch.cat([numbers, corners, corners + extents], 1)
    rois[5, 1:] = torch.tensor([-9.0, -9, -4, -5])  # outside
    return image.to(dtype).double(), rois.to(dtype).double()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_regions(kind: str, dtype: torch.dtype) -> None:
    for bins, samples, aligned, scale in (((2, 3), 2, False, 1.0), ((3, 1), 0, True, 0.5)):
        image, rois = some_regions(kind, dtype, bins)
        image.requires_grad_()
        expected = regions(kind, image, rois, scale, bins, samples, aligned)
        given = image.detach().to("xpu", dtype), rois.to("xpu", dtype)
        more = {"roi_align": (samples, aligned), "ps_roi_align": (samples,)}.get(kind, ())
        result = getattr(ops, kind)(*given, scale, *bins, *more)
        places = ()
        if kind != "roi_align":
            result, places = result[0], (result[1],)
            assert places[0].dtype == torch.int32 and places[0].shape == result.shape
        assert_close(result, expected, dtype=dtype, times=TIMES, relative_to="largest")
        grad = torch.randint(-4, 5, expected.shape).double()
        (wanted,) = torch.autograd.grad(expected, image, grad)
        backward = getattr(ops, f"_{kind}_backward")
        tail = (*given[0].shape,) if "align" not in kind else (*given[0].shape, *more)
        tail = (*more, *given[0].shape) if kind == "ps_roi_align" else tail
        found = backward(grad.to("xpu", dtype), given[1], *places, scale, *bins, *tail)
        assert_close(found, wanted, dtype=dtype, atol=16 * tolerance(dtype, TIMES))


def test_places() -> None:
    image, rois = some_regions("roi_pool", torch.float32, (2, 2))
    result, places = ops.roi_pool(image.float().xpu(), rois.float().xpu(), 1.0, 2, 2)
    for n, c, i, j in itertools.product(*map(range, result.shape)):
        place = int(places[n, c, i, j])
        value = image[int(rois[n, 0]), c].flatten()[place] if place >= 0 else 0.0
        assert result[n, c, i, j].item() == value
    _, channels = ops.ps_roi_pool(
        torch.ones(1, 8, 5, 5, device="xpu"), torch.zeros(1, 5, device="xpu"), 1.0, 2, 2
    )
    assert channels.flatten().tolist() == list(range(8))


def test_regions_that_are_not_there() -> None:
    image = torch.rand(2, 3, 5, 5, device="xpu")
    for number in (2.0, -1.0, 1e30):
        rois = torch.tensor([[number, 0, 0, 2, 2]], device="xpu")
        with pytest.raises(
            IndexError, match="image index .* is out of range for a batch of 2|index .* out of bounds"
        ):
            ops.roi_align(image, rois, 1.0, 2, 2, 2, False)
            torch.xpu.synchronize()  # GPUs report the error here
    assert ops.roi_align(image, image.new_zeros(0, 5), 1.0, 2, 2, 2, False).shape == (0, 3, 2, 2)
    for corner in (float("inf"), float("nan"), -3e38, 3e38):  # stops without reading out of bounds
        rois = torch.tensor([[0, -1, corner, 3, 3], [1, 0, 0, corner, 2]], device="xpu")
        ops.roi_align(image, rois, 1.0, 2, 2, 0, False)
        ops.roi_pool(image, rois, 1.0, 2, 2)
        ops._roi_align_backward(image.new_ones(2, 3, 2, 2), rois, 1.0, 2, 2, 2, 3, 5, 5, 0, True)
    with pytest.raises(RuntimeError, match=r"rois must have shape as Tensor\[K, 5\]"):
        ops.roi_align(image, image.new_zeros(2, 4), 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match="multiple of pooling height"):
        ops.ps_roi_pool(image, image.new_zeros(2, 5), 1.0, 2, 2)
    with pytest.raises(RuntimeError, match="[Ee]xpected.* same"):
        ops.roi_align(image.half(), image.new_zeros(2, 5), 1.0, 2, 2, 2, False)


def test_places_of_another_device() -> None:
    grad, rois = torch.ones(1, 3, 2, 2, device="xpu"), torch.zeros(1, 5, device="xpu")
    places = torch.zeros(1, 3, 2, 2, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="on CPU"):
        ops._roi_pool_backward(grad, rois, places, 1.0, 2, 2, 1, 3, 5, 5)


def test_gradients_that_are_summed_in_any_order_say_so() -> None:
    image, rois = torch.ones(1, 3, 2, 2, device="xpu"), torch.zeros(1, 5, device="xpu")
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="roi_align_backward_kernel does not have a deterministic"):
            ops._roi_align_backward(image, rois, 1.0, 2, 2, 1, 3, 5, 5, 0, True)
    finally:
        torch.use_deterministic_algorithms(False)


def kept(boxes: Tensor, scores: Tensor, threshold: float) -> list[int]:
    """Repeatedly take the best remaining box, and remove all boxes that overlap it too much."""
    order = scores.argsort(descending=True, stable=True)
    boxes, areas = boxes[order], ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))[order]
    is_left, stay = torch.ones(len(boxes), dtype=torch.bool), []
    for i in range(len(boxes)):
        if is_left[i]:
            stay.append(int(order[i]))
            low, high = torch.maximum(boxes[i, :2], boxes[:, :2]), torch.minimum(boxes[i, 2:], boxes[:, 2:])
            common = (high - low).clamp(min=0).prod(1)
            is_left &= ~(common / (areas[i] + areas - common) > threshold)
    return stay


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_nms(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    for count, threshold in ((0, 0.5), (1, 0.5), (63, 0.3), (64, 0.5), (65, 0.7), (300, 0.1), (700, 0.5)):
        corners = torch.randint(0, 60, (count, 2))
        boxes = torch.cat([corners, corners + torch.randint(0, 30, (count, 2))], 1).to(dtype)
        scores = torch.randint(0, 50, (count,)).to(dtype)  # many equal scores
        result = ops.nms(boxes.xpu(), scores.xpu(), threshold)
        assert result.dtype == torch.int64 and result.tolist() == kept(boxes.double(), scores, threshold)


def test_nms_of_more_boxes_than_are_compared_at_a_time() -> None:
    torch.manual_seed(2)
    corners = torch.randint(0, 400, (5001, 2))
    boxes = torch.cat([corners, corners + torch.randint(1, 90, (5001, 2))], 1).float()
    scores = torch.rand(5001)
    assert ops.nms(boxes.xpu(), scores.xpu(), 0.4).tolist() == kept(boxes.double(), scores, 0.4)
    with pytest.raises(RuntimeError, match="boxes should have 4 elements in dimension 1, got 3"):
        ops.nms(boxes.xpu()[:, :3], scores.xpu(), 0.4)
    with pytest.raises(RuntimeError, match="same number of elements in dimension 0, got 5001 and 5000"):
        ops.nms(boxes.xpu(), scores.xpu()[:-1], 0.4)


def deformed(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None, bias: Tensor, stride: tuple[int, int],
    padding: tuple[int, int], dilation: tuple[int, int], groups: int, offset_groups: int,
) -> Tensor:  # fmt: skip
    """Return each filter's sum over its taps, in float64."""
    batch, channels = input.shape[:2]
    filters, _, *kernel = weight.shape
    several = channels // offset_groups
    images = []
    for n in range(batch):
        rows = []
        for oy, ox in itertools.product(range(offset.shape[2]), range(offset.shape[3])):
            taps = []
            for k, (i, j) in enumerate(itertools.product(range(kernel[0]), range(kernel[1]))):
                parts = []
                for g in range(offset_groups):
                    at = 2 * (g * kernel[0] * kernel[1] + k)
                    y = oy * stride[0] - padding[0] + i * dilation[0] + offset[n, at, oy, ox]
                    x = ox * stride[1] - padding[1] + j * dilation[1] + offset[n, at + 1, oy, ox]
                    part = interpolated(input[n, g * several : (g + 1) * several], y, x, reach=False)
                    parts.append(part if mask is None else part * mask[n, at // 2, oy, ox])
                taps.append(torch.cat(parts))
            columns = torch.stack(taps, 1).view(groups, -1)  # channels of a group times filter taps
            sums = torch.einsum("gk,gfk->gf", columns, weight.view(groups, filters // groups, -1))
            rows.append(sums.flatten() + bias)
        images.append(torch.stack(rows, 1).view(filters, *offset.shape[2:]))
    return torch.stack(images)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("groups, offset_groups, masked", [(1, 1, False), (2, 3, True)])
def test_deformable_convolution(groups: int, offset_groups: int, masked: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    stride, padding, dilation, kernel = (2, 1), (1, 0), (1, 2), (3, 2)
    channels, filters, size = 6, 4, (7, 6)
    out = [(size[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(2)]
    taps = offset_groups * kernel[0] * kernel[1]

    def numbers(*shape: int) -> Tensor:
        return (torch.randint(-16, 17, shape) / 8).double()

    def moves(*shape: int) -> Tensor:  # between elements, where the gradient is continuous
        return numbers(*shape) + 1 / 16

    given = [
        numbers(3, channels, *size),
        numbers(filters, channels // groups, *kernel),
        moves(3, 2 * taps, *out),
        numbers(3, taps, *out) if masked else torch.zeros(3, 1).double(),
        numbers(filters),
    ]
    leaves = [t.requires_grad_() for t in given]
    expected = deformed(
        leaves[0], leaves[1], leaves[2], leaves[3] if masked else None, leaves[4], stride, padding, dilation, groups,
        offset_groups,
    )  # fmt: skip
    rest = (*stride, *padding, *dilation, groups, offset_groups, masked)
    there = [t.detach().to("xpu", dtype) for t in given]
    result = ops.deform_conv2d(*there, *rest)
    bound = 16 * tolerance(dtype, TIMES)
    assert_close(result, expected, dtype=dtype, rtol=bound, atol=bound)
    grad = numbers(*expected.shape)
    wanted = torch.autograd.grad(expected, leaves, grad, allow_unused=True)
    found = ops._deform_conv2d_backward(grad.to("xpu", dtype), *there, *rest)
    for one, other, like in zip(found, wanted, given, strict=True):
        other = torch.zeros_like(like) if other is None else other
        assert_close(one, other, dtype=dtype, rtol=bound, atol=4 * bound)


def test_deformable_convolution_refuses() -> None:
    x, w, b = (
        torch.ones(1, 2, 5, 5, device="xpu"),
        torch.ones(3, 2, 3, 3, device="xpu"),
        torch.zeros(3, device="xpu"),
    )
    offset, none = torch.zeros(1, 18, 3, 3, device="xpu"), torch.zeros(1, 1, device="xpu")
    ones = (1, 1, 0, 0, 1, 1, 1, 1, False)
    assert ops.deform_conv2d(x, w, offset, none, b, *ones).unique().item() == 18
    assert ops.deform_conv2d(x[:0], w, offset[:0], none, b, *ones).shape == (0, 3, 3, 3)
    with pytest.raises(RuntimeError, match=r"offset.shape\[1\] is not valid: got: 16 expected: 18"):
        ops.deform_conv2d(x, w, offset[:, :16], none, b, *ones)
    with pytest.raises(RuntimeError, match="on CPU"):
        ops.deform_conv2d(x, w, offset, torch.ones(1, 9, 3, 3), b, *ones[:-1], True)
    with pytest.raises(RuntimeError, match="stride_h: 0 stride_w: 1"):
        ops.deform_conv2d(x, w, offset, none, b, 0, *ones[1:])
    with pytest.raises(RuntimeError, match="output size too small"):
        ops.deform_conv2d(x[:, :, :2], w, offset, none, b, *ones)


def test_nothing_runs_on_the_cpu() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.nms(torch.rand(3, 4, device="xpu"), torch.rand(3, device="xpu"), 0.5)
    for name in ("nms", "roi_align", "_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "XPU")
