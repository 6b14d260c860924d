"""Losses on xpu against the CPU in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close_with_gradients

from .indexing_samples import out_of_range

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TIMES = {torch.float32: 0.2, torch.float64: 0.1}  # of a few operations for each element
REDUCTIONS = ["none", "mean", "sum"]


def compare(function, x: torch.Tensor, dtype: torch.dtype, *others: torch.Tensor) -> None:
    """Compare function(x, *others) and the gradient of x."""
    x = x.to(dtype, copy=True).requires_grad_()
    assert_close_with_gradients(function, x, *others, times=TIMES, equal_nan=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nll_loss(dtype: torch.dtype, reduction: str) -> None:
    for shape in [(10, 7), (7,), (4, 5, 6, 3), (2, 5, 9)]:
        classes = shape[1] if len(shape) > 1 else shape[0]
        target = torch.randint(classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
        weight = torch.rand(classes).to(dtype)
        compare(lambda x, t: F.nll_loss(x, t, reduction=reduction), torch.randn(shape), dtype, target)
        compare(
            lambda x, t, w: F.nll_loss(x, t, w, ignore_index=2, reduction=reduction),
            torch.randn(shape),
            dtype,
            target,
            weight,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(reduction: str) -> None:
    target = torch.randint(50, (9000,))  # more targets than one work-group sums
    compare(
        lambda x, t: F.cross_entropy(x, t, reduction=reduction, label_smoothing=0.1),
        torch.randn(9000, 50),
        torch.float32,
        target,
    )
    compare(
        lambda x, t: F.cross_entropy(x, t, reduction=reduction),
        torch.randn(3, 5, 4, 4),
        torch.float32,
        torch.randint(5, (3, 4, 4)),
    )


def test_all_targets_ignored() -> None:
    x, target = torch.randn(4, 3), torch.full((4,), -100)
    assert F.nll_loss(x.to("xpu"), target.to("xpu")).isnan()
    assert F.nll_loss(x.to("xpu"), target.to("xpu"), reduction="sum").item() == 0


def test_a_target_out_of_range() -> None:
    with out_of_range(IndexError, "Target 3 is out of bounds"):
        F.cross_entropy(torch.randn(4, 3, device="xpu"), torch.tensor([0, 3, 1, 2], device="xpu"))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise_losses(dtype: torch.dtype, reduction: str) -> None:
    x, target = torch.randn(20, 30) * 2, torch.randn(20, 30).to(dtype)
    compare(lambda x, t: F.mse_loss(x, t, reduction=reduction), x, dtype, target)
    compare(lambda x, t: F.l1_loss(x, t, reduction=reduction), x, dtype, target)
    compare(lambda x, t: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.7), x, dtype, target)
    compare(lambda x, t: F.huber_loss(x, t, reduction=reduction, delta=0.8), x, dtype, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binary_cross_entropy(dtype: torch.dtype, reduction: str) -> None:
    x, target = torch.rand(20, 30) * 0.98 + 0.01, torch.rand(20, 30).to(dtype)
    weight = torch.rand(20, 30).to(dtype)
    compare(lambda x, t: F.binary_cross_entropy(x, t, reduction=reduction), x, dtype, target)
    compare(lambda x, t, w: F.binary_cross_entropy(x, t, w, reduction=reduction), x, dtype, target, weight)
    compare(lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=reduction), x, dtype, target)
    compare(lambda x, t: F.kl_div(x, t, reduction=reduction), x, dtype, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_multilabel_margin_loss(dtype: torch.dtype, reduction: str) -> None:
    torch.manual_seed(0)
    for shape in ((), (1,), (7,), (3, 5), (4, 300), (0, 4)):
        if 0 in shape and reduction != "none":  # the CPU leaves the result uninitialized
            continue
        targets = torch.randint(0, max(1, shape[-1] if shape else 1), shape)
        if shape and shape[-1] > 3:
            targets[..., 2] = targets[..., 0]  # a repeated target counts twice
            targets[..., 3:] = targets[..., 3:].masked_fill(torch.rand(targets[..., 3:].shape) < 0.3, -1)
        compare(
            lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction),
            torch.randn(shape),
            dtype,
            targets,
        )
    no_rows = torch.empty(0, 4, dtype=dtype, device="xpu")
    assert F.multilabel_margin_loss(no_rows, no_rows.long(), reduction="sum") == 0


def test_targets_of_a_multilabel_margin_loss() -> None:
    scores = torch.randn(2, 5)
    targets = torch.tensor([[4, -1, 0, 0, 0], [2, 1, 2, -1, 3]])
    found = torch.ops.aten.multilabel_margin_loss_forward(scores.to("xpu"), targets.to("xpu"), 1)[1]
    expected = torch.ops.aten.multilabel_margin_loss_forward(scores, targets, 1)[1]
    assert torch.equal(found.cpu(), expected)
    for wrong in (5, -2):
        with out_of_range(RuntimeError, match="out of range"):
            F.multilabel_margin_loss(scores.to("xpu"), targets.masked_fill(targets == 3, wrong).to("xpu"))
    with pytest.raises(RuntimeError, match="inconsistent target size"):
        F.multilabel_margin_loss(scores.to("xpu"), targets[:, :4].to("xpu"))
