"""Distances between rows on xpu against the CPU's in float64, forward and backward."""

from __future__ import annotations

import math

import pytest
import torch

NORMS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}
DIRECT = "donot_use_mm_for_euclid_dist"
PRODUCTS = "use_mm_for_euclid_dist"


def close(actual: torch.Tensor, expected: torch.Tensor, limit: float) -> None:
    torch.testing.assert_close(
        actual.detach().cpu().double(), expected.detach(), rtol=limit, atol=limit, equal_nan=True
    )


def compare_cdist(x1: torch.Tensor, x2: torch.Tensor, p: float, mode: str, limit: float) -> None:
    mine = [x.to("xpu").requires_grad_() for x in (x1, x2)]
    reference = [x.detach().double().clone().requires_grad_() for x in (x1, x2)]
    actual = torch.cdist(*mine, p=p, compute_mode=mode)
    expected = torch.cdist(*reference, p=p, compute_mode=DIRECT)
    assert actual.dtype == x1.dtype
    close(actual, expected, limit)
    grad = torch.randn(expected.shape).to(x1.dtype)
    actual.backward(grad.to("xpu"))
    expected.backward(grad.double())
    for a, e in zip(mine, reference, strict=True):
        close(a.grad, e.grad, 30 * limit)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
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
        compare_cdist(x1, x2, p, DIRECT, TOLERANCE[dtype])


def test_euclidean_distances_by_products() -> None:
    torch.manual_seed(0)
    for rows in (5, 60):
        x1, x2 = torch.randn(2, rows, 7), torch.randn(2, 31, 7)
        compare_cdist(x1, x2, 2.0, PRODUCTS, 1e-3)
        compare_cdist(x1, x2, 2.0, "use_mm_for_euclid_dist_if_necessary", 1e-3)
        direct = torch.ops.aten._cdist_forward(x1.to("xpu"), x2.to("xpu"), 2.0, None)
        close(direct, torch.cdist(x1.double(), x2.double()), 1e-3)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("p", NORMS)
def test_pdist(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    limit = TOLERANCE[dtype]
    for shape in ((2, 3), (7, 1), (33, 17), (70, 5)):
        x = torch.randn(shape).to(dtype)
        mine, reference = x.to("xpu").requires_grad_(), x.double().requires_grad_()
        actual, expected = (torch.nn.functional.pdist(t, p) for t in (mine, reference))
        close(actual, expected, limit)
        grad = torch.randn(expected.shape).to(dtype)
        actual.backward(grad.to("xpu"))
        expected.backward(grad.double())
        close(mine.grad, reference.grad, 30 * limit)


@pytest.mark.parametrize("p", NORMS)
def test_rows_that_are_equal_and_nan(p: float) -> None:
    x = torch.tensor([[1.0, 2, 3], [1, 2, 3], [1, 0, 3], [4, 5, 6]], dtype=torch.float64)
    compare_cdist(x, x.clone(), p, DIRECT, 1e-12)
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
    close(torch.cdist(x1.to("xpu")[::2], x2.to("xpu").mT, p=1), expected, 2e-5)


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
