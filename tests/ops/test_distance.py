"""Distances between rows on xpu against the CPU's in float64, forward and backward."""

from __future__ import annotations

import math

import pytest
import torch
from comparing import assert_close, assert_close_with_gradients

NORMS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)
DTYPES = [torch.float32, torch.float64]
GRADIENT_TIMES = 30  # they divide by distances, of which some are small
DIRECT = "donot_use_mm_for_euclid_dist"
PRODUCTS_TIMES = 50  # a small difference of large squares
PRODUCTS = "use_mm_for_euclid_dist"


def compare_cdist(x1: torch.Tensor, x2: torch.Tensor, p: float, mode: str, times: float = 1) -> None:
    assert_close_with_gradients(
        lambda a, b: torch.cdist(a, b, p=p, compute_mode=mode if a.is_xpu else DIRECT),
        *(x.detach().requires_grad_() for x in (x1, x2)),
        times=times,
        gradient_times=GRADIENT_TIMES * times,
        equal_nan=True,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", NORMS)
def test_cdist(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for shape1, shape2 in (
        ((5, 3), (4, 3)),
        ((33, 17), (70, 17)),
        ((35, 67), (3, 67)),
        ((2, 1, 9, 20), (3, 34, 20)),  # batches that are broadcast
        ((1, 1), (65, 1)),
    ):
        x1, x2 = torch.randn(shape1).to(dtype), torch.randn(shape2).to(dtype)
        compare_cdist(x1, x2, p, DIRECT)


def test_euclidean_distances_by_products() -> None:
    torch.manual_seed(0)
    for rows in (5, 60):
        x1, x2 = torch.randn(2, rows, 7), torch.randn(2, 31, 7)
        compare_cdist(x1, x2, 2.0, PRODUCTS, PRODUCTS_TIMES)
        compare_cdist(x1, x2, 2.0, "use_mm_for_euclid_dist_if_necessary", PRODUCTS_TIMES)
        direct = torch.ops.aten._cdist_forward(x1.to("xpu"), x2.to("xpu"), 2.0, None)
        expected = torch.cdist(x1.double(), x2.double())
        assert_close(direct, expected, dtype=torch.float32, times=PRODUCTS_TIMES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", NORMS)
def test_pdist(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for shape in ((2, 3), (7, 1), (33, 17), (70, 5)):
        assert_close_with_gradients(
            lambda x: torch.nn.functional.pdist(x, p),
            torch.randn(shape).to(dtype).requires_grad_(),
            gradient_times=GRADIENT_TIMES,
            equal_nan=True,
        )


@pytest.mark.parametrize("p", NORMS)
def test_rows_that_are_equal_and_nan(p: float) -> None:
    x = torch.tensor([[1.0, 2, 3], [1, 2, 3], [1, 0, 3], [4, 5, 6]], dtype=torch.float64)
    compare_cdist(x, x.clone(), p, DIRECT)
    x[2, 1] = math.nan
    y = torch.cdist(x.to("xpu"), x.to("xpu"), p=p, compute_mode=DIRECT).cpu()
    # As a norm of the difference, unlike the CPU's maximum: only distances to row 2 are NaN.
    expected = torch.zeros(4, 4, dtype=torch.bool)
    expected[2, :] = expected[:, 2] = True
    assert torch.equal(y.isnan(), expected)
    mine = x.to("xpu").requires_grad_()
    torch.cdist(
        mine, torch.zeros(2, 3, dtype=x.dtype, device="xpu"), p=p, compute_mode=DIRECT
    ).sum().backward()
    assert mine.grad is not None and (p == 0 or mine.grad[2, 1].isnan()) and not mine.grad[:2].isnan().any()


def test_nothing() -> None:
    for shape1, shape2 in (((0, 3), (4, 3)), ((4, 3), (0, 3)), ((4, 0), (5, 0)), ((0, 4, 3), (0, 5, 3))):
        x1, x2 = (torch.ones(s, device="xpu", requires_grad=True) for s in (shape1, shape2))
        expected = torch.cdist(torch.ones(shape1), torch.ones(shape2), p=3)
        actual = torch.cdist(x1, x2, p=3)
        assert torch.equal(actual.detach().cpu(), expected)
        actual.sum().backward()
        assert torch.equal(x1.grad.cpu(), torch.zeros(shape1))
    for shape in ((0, 3), (1, 3), (3, 0)):
        x = torch.ones(shape, device="xpu", requires_grad=True)
        actual = torch.nn.functional.pdist(x)
        assert torch.equal(actual.detach().cpu(), torch.nn.functional.pdist(torch.ones(shape)))
        actual.sum().backward()
        assert torch.equal(x.grad.cpu(), torch.zeros(shape))


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_gradients(p: float) -> None:
    torch.manual_seed(0)
    x1, x2 = (torch.randn(2, n, 4, dtype=torch.float64, device="xpu").mT.mT.requires_grad_() for n in (3, 5))
    assert torch.autograd.gradcheck(lambda a, b: torch.cdist(a, b, p=p, compute_mode=DIRECT), (x1, x2))
    assert torch.autograd.gradcheck(lambda a: torch.nn.functional.pdist(a[0], p), (x2,))


def test_views() -> None:
    x1, x2 = torch.randn(9, 4), torch.randn(4, 12)
    expected = torch.cdist(x1[::2].double(), x2.mT.double(), p=1)
    assert_close(torch.cdist(x1.to("xpu")[::2], x2.to("xpu").mT, p=1), expected, dtype=torch.float32)


def test_errors_are_pytorchs() -> None:
    x = torch.ones(3, 4)
    for arguments in (
        dict(x1=x[0], x2=x),
        dict(x1=x, x2=x[:, :2]),
        dict(x1=x, x2=x, p=-1.0),
        dict(x1=x.long(), x2=x.long(), p=1.0),
        dict(x1=x.half(), x2=x.half(), p=1.0),
    ):
        messages = []
        for device in ("cpu", "xpu"):
            with pytest.raises(RuntimeError) as error:
                torch.cdist(**{k: v.to(device) if hasattr(v, "to") else v for k, v in arguments.items()})
            messages.append(str(error.value).splitlines()[0])
        assert messages[0] == messages[1]
