"""Connectionist temporal classification on xpu against the CPU's in float64, forward and backward."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close, assert_close_with_gradients

DTYPES = [torch.float32, torch.float64]


def compare(
    x: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: object,
    target_lengths: object,
    **options: object,
) -> None:
    options = {"reduction": "none", **options}
    assert_close_with_gradients(
        lambda x, targets: F.ctc_loss(x.log_softmax(-1), targets, input_lengths, target_lengths, **options),
        x.detach().requires_grad_(),
        targets,
        times=10,  # logarithms of sums over hundreds of steps, of which each adds an error
        equal_nan=True,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("target_dtype", [torch.int32, torch.int64])
def test_padded_and_concatenated_targets(target_dtype: torch.dtype, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for time, batch, labels, longest, blank in ((11, 3, 5, 4, 0), (150, 2, 70, 40, 3), (4, 1, 2, 1, 1)):
        x = torch.randn(time, batch, labels, dtype=torch.float64).to(dtype)
        targets = torch.randint(labels - 1, (batch, longest), dtype=target_dtype)
        targets += (targets >= blank).to(target_dtype)
        input_lengths = [time - b for b in range(batch)]
        target_lengths = [longest - b for b in range(batch)]
        compare(x, targets, input_lengths, target_lengths, blank=blank)
        flat = torch.cat([targets[b, :n] for b, n in enumerate(target_lengths)])
        compare(x, flat, input_lengths, target_lengths, blank=blank)
        compare(x, targets, torch.tensor(input_lengths), torch.tensor(target_lengths), blank=blank)


def test_more_states_than_work_items() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 2, 9, dtype=torch.float64)
    compare(x, torch.randint(1, 9, (2, 180)), [400, 390], [180, 161])


def test_all_paths() -> None:
    """Compute the loss by its definition, enumerating all paths."""
    torch.manual_seed(0)
    log_probs = torch.randn(5, 1, 3, dtype=torch.float64).log_softmax(-1)
    for targets in ([1, 2], [1, 1], [2], []):
        total = 0.0
        for path in itertools.product(range(3), repeat=5):
            kept = [label for i, label in enumerate(path) if i == 0 or path[i - 1] != label]
            if [label for label in kept if label != 0] == targets:
                total += float(sum(log_probs[t, 0, label] for t, label in enumerate(path)).exp())
        loss = F.ctc_loss(
            log_probs.to("xpu"),
            torch.tensor([targets], dtype=torch.int64, device="xpu").view(1, len(targets)),
            [5],
            [len(targets)],
            reduction="none",
        )
        assert_close(loss, -torch.tensor([total], dtype=torch.float64).log(), times=1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_targets_without_a_path(zero_infinity: bool, reduction: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4, 4, dtype=torch.float64)
    # Targets: too long, empty, with repetitions that need a blank, one that fits.
    targets = torch.tensor([[1, 2, 3, 1], [0, 0, 0, 0], [2, 2, 2, 2], [1, 2, 3, 3]])
    compare(x, targets, [3, 6, 6, 6], [4, 0, 4, 4], zero_infinity=zero_infinity, reduction=reduction)


def test_no_steps_and_no_targets() -> None:
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    compare(x, torch.tensor([[1, 2], [1, 2]]), [5, 0], [2, 0])
    compare(x, torch.zeros(2, 0, dtype=torch.int64), [5, 3], [0, 0])
    loss = F.ctc_loss(x.to("xpu"), torch.tensor([[1], [1]], device="xpu"), [5, 0], [1, 1], reduction="none")
    assert loss[1].item() == float("inf")


def test_labels_that_are_impossible() -> None:
    """A probability of 0 does not give NaN, unlike on the CPU."""
    x = torch.randn(5, 1, 4, dtype=torch.float64)
    x[:, :, 3] = -float("inf")
    log_probs = x.log_softmax(-1).to("xpu").requires_grad_()
    F.ctc_loss(log_probs, torch.tensor([[1, 2]], device="xpu"), [5], [2]).backward()
    reference = x[:, :, :3].log_softmax(-1).requires_grad_()
    F.ctc_loss(reference, torch.tensor([[1, 2]]), [5], [2]).backward()
    assert_close(log_probs.grad[:, :, :3], reference.grad, times=1)
    assert not log_probs.grad[:, :, 3].any()


def test_views_and_nan() -> None:
    x = torch.randn(3, 12, 5, dtype=torch.float64).transpose(0, 1)
    targets = torch.randint(1, 5, (4, 3)).t()[:, ::2]
    compare(x, targets, [12, 10, 9], [2, 1, 2])
    x = x.contiguous()
    x[2, 1, 3] = float("nan")
    x[:, 2] = float("nan")
    for zero_infinity in (False, True):
        mine, reference = x.to("xpu").requires_grad_(), x.clone().requires_grad_()
        options = {"reduction": "none", "zero_infinity": zero_infinity}
        loss = F.ctc_loss(mine, targets.to("xpu"), [12, 10, 9], [2, 2, 2], **options)
        expected = F.ctc_loss(reference, targets, [12, 10, 9], [2, 2, 2], **options)
        assert torch.equal(loss.isnan().cpu(), expected.isnan()) and expected[2].isnan()
        loss.nansum().backward()
        assert mine.grad is not None and mine.grad[:9, 2].isnan().all()


def test_gradients() -> None:
    x = torch.randn(7, 2, 4, dtype=torch.float64, device="xpu", requires_grad=True)
    targets = torch.tensor([[1, 1, 2], [3, 2, 0]], device="xpu")
    assert torch.autograd.gradcheck(
        lambda t: F.ctc_loss(t.log_softmax(-1), targets, [7, 6], [3, 2], reduction="none"), (x,)
    )


def test_a_target_out_of_range_is_an_error() -> None:
    x = torch.randn(5, 2, 4, device="xpu")
    with pytest.raises(IndexError, match="9"):
        F.ctc_loss(x, torch.tensor([[1, 9], [1, 2]], device="xpu"), [5, 5], [2, 2])
        torch.xpu.synchronize()


def test_errors_are_pytorchs() -> None:
    x, targets = torch.randn(5, 2, 4), torch.tensor([[1, 2], [1, 2]])
    for arguments in (
        (x.half(), targets, [5, 5], [2, 2]),
        (x, targets.short(), [5, 5], [2, 2]),
        (x, targets, [5], [2, 2]),
        (x, targets, [5, 5], [2]),
        (x, targets, [5, 6], [2, 2]),
        (x, targets, [5, -1], [2, 2]),
        (x, targets, [5, 5], [2, -1]),
        (x, targets, [5, 5], [2, 3]),
        (x, targets.flatten()[:3], [5, 5], [2, 2]),
        (x, targets, [5, 5], [2, 2], 7),
        (x[0], targets, [5, 5], [2, 2]),
        (x, targets[None], [5, 5], [2, 2]),
        (x, targets[:1], [5, 5], [2, 2]),
        (x[:0], targets, [0, 0], [2, 2]),
    ):
        messages = []
        for device, name in (("cpu", "ctc_loss_allocate_outputs"), ("xpu", "ctc_loss_xpu")):
            moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments]
            with pytest.raises(RuntimeError) as error:
                torch.ops.aten._ctc_loss(*moved)
            message = str(error.value).splitlines()[0].split("; but got")[0]  # devices are named after it
            messages.append(message.replace(name, "ctc_loss").replace("ctc_loss_cpu", "ctc_loss"))
        assert messages[0] == messages[1]
