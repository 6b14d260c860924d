"""grid_sample against PyTorch's CPU kernels in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from openxpu import _bridge
from torch.testing._internal.common_utils import DeterministicGuard

PADDINGS = ["zeros", "border", "reflection"]
TIMES = {
    torch.float64: 100,
    torch.float32: 1,
    torch.bfloat16: 2,
}  # sums over the image of what rounding moved


def agree(image: torch.Tensor, grid: torch.Tensor, **options: object) -> None:
    dtype = image.dtype

    def run(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        x = image.to(device, dtype, copy=True).requires_grad_()
        g = grid.to(device, dtype, copy=True).requires_grad_()
        y = F.grid_sample(x, g, **options)
        weight = torch.arange(y.numel(), dtype=torch.float64).cos().reshape(y.shape)
        y.backward(weight.to(image.dtype).to(device, dtype))
        return [y.detach(), x.grad, g.grad]

    _bridge.fallback_counts(True)
    actual = run("xpu", dtype)
    assert _bridge.fallback_counts() == {}
    for mine, exact in zip(actual, run("cpu", torch.float64), strict=True):
        assert_close(mine, exact, dtype=dtype, times=TIMES, floor=max(1, float(exact.abs().max())))


@pytest.mark.parametrize("dtype", TIMES, ids=str)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images(mode: str, padding: str, align: bool, dtype: torch.dtype) -> None:
    image, grid = torch.randn(2, 3, 5, 7), torch.rand(2, 4, 6, 2) * 3 - 1.5
    if dtype == torch.bfloat16 and mode == "nearest":
        grid = (grid * 4).round() / 4 + 0.01  # avoid points halfway between two elements
    agree(image.to(dtype), grid.to(dtype), mode=mode, padding_mode=padding, align_corners=align)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes(mode: str, padding: str) -> None:
    image, grid = torch.randn(2, 3, 4, 5, 6), torch.rand(2, 3, 4, 2, 3) * 3 - 1.5
    agree(image, grid, mode=mode, padding_mode=padding, align_corners=False)
    agree(image.double(), grid.double(), mode=mode, padding_mode=padding, align_corners=True)


def test_layouts_and_small_images() -> None:
    image, grid = (
        torch.randn(2, 5, 7, 3).permute(0, 3, 1, 2),
        torch.rand(2, 2, 6, 4).permute(0, 2, 3, 1) * 2 - 1,
    )
    agree(image, grid, align_corners=False)
    for padding in PADDINGS:
        agree(image[:, :, :1, :1], grid, padding_mode=padding, align_corners=True)


def test_places_that_are_no_numbers() -> None:
    image = torch.randn(1, 2, 3, 3)
    grid = torch.tensor([[[[math.nan, 0.0], [math.inf, 0.0], [-1e30, 0.0], [0.0, 0.0]]]])
    actual = F.grid_sample(image.to("xpu"), grid.to("xpu"), align_corners=False).cpu()
    assert (actual[..., :3] == 0).all()  # NaN coordinates count as outside
    torch.testing.assert_close(actual[..., 3], image[..., 1, 1].unsqueeze(2))


def test_only_the_grid_wants_a_gradient() -> None:
    image, grid = torch.randn(1, 2, 3, 3), torch.rand(1, 4, 4, 2) * 2 - 1
    mine, theirs = grid.to("xpu").requires_grad_(), grid.clone().requires_grad_()
    F.grid_sample(image.to("xpu"), mine, align_corners=False).sum().backward()
    F.grid_sample(image, theirs, align_corners=False).sum().backward()
    assert_close(mine.grad, theirs.grad, times=0.5)


def test_deterministic_algorithms_refuse_the_gradient() -> None:
    image = torch.randn(1, 2, 5, 5, device="xpu", requires_grad=True)
    grid = torch.randn(1, 3, 3, 2, device="xpu", requires_grad=True)
    with DeterministicGuard(True):
        y = F.grid_sample(image, grid, align_corners=False)
        with pytest.raises(RuntimeError, match="grid_sampler_2d_backward_xpu does not have a deterministic"):
            y.sum().backward()
        # Only the gradient of the grid, without that of the image.
        F.grid_sample(image.detach(), grid, align_corners=False).sum().backward()
    assert grid.grad is not None


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_places_that_are_no_numbers_by_cubes(padding: str) -> None:
    places = [[math.nan, 0], [0, 0], [math.inf, 0.1], [0.3, -math.inf], [5e8, 0.2], [-3e9, 0.1], [1.2, 0.9]]
    image, grid = torch.rand(1, 2, 4, 4), torch.tensor(places).view(1, 1, -1, 2)
    found = []
    for device in ("cpu", "xpu"):
        at, x = grid.to(device, copy=True).requires_grad_(), image.to(device, copy=True).requires_grad_()
        y = F.grid_sample(x, at, "bicubic", padding, align_corners=False)
        y.sum().backward()
        found.append((y.detach().cpu(), at.grad.cpu()))
        for place in grid[0, 0]:  # each has its NaN in the gradient of different pixels
            x.grad = None
            one = place.view(1, 1, 1, 2).to(device)
            F.grid_sample(x, one, "bicubic", padding, align_corners=False).sum().backward()
            found[-1] += (x.grad.cpu(),)
    for wanted, got in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True, atol=1e-4, rtol=1e-4)
