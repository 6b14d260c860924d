"""The self-test that ``openxpu doctor`` and ``openxpu report`` run on a device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass
class Result:
    """The outcome of a check; ``error`` is "" if it passed."""

    name: str
    error: str
    seconds: float


def _same(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 0.0) -> None:
    torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)


def _copies(device: str) -> None:
    """Copy to the device and back, also from pinned memory, and transpose."""
    data = torch.arange(1 << 20, dtype=torch.int32)
    _same(data.to(device), data)
    _same(
        data.pin_memory().to(device, non_blocking=True).reshape(1024, 1024).t().contiguous(),
        data.reshape(1024, 1024).t(),
    )


def _arithmetic(device: str) -> None:
    """Multiply and add with a broadcast operand."""
    a, b = torch.randn(1000, 257), torch.randn(257)
    _same(a.to(device) * b.to(device) + 1, a * b + 1, 1e-6)


def _reductions(device: str) -> None:
    """Sum and find the largest of rows."""
    a = torch.randn(300, 1000)
    _same(a.to(device).sum(1), a.sum(1), 1e-4)
    _same(a.to(device).argmax(1), a.argmax(1))


def _products(device: str) -> None:
    """Multiply two matrices."""
    a, b = torch.randn(130, 70), torch.randn(70, 90)
    _same(a.to(device) @ b.to(device), a @ b, 1e-4)


def _training(device: str) -> None:
    """Train a small model for 30 steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(64, 16, device=device)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < losses[0] / 2:
        raise AssertionError(f"the loss only went from {losses[0]:.4f} to {losses[-1]:.4f}")


def _events(device: str) -> None:
    """Measure time by events."""
    start, end = torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)
    start.record()
    (torch.ones(1 << 20, device=device) * 2).sum()
    end.record()
    end.synchronize()
    if not start.elapsed_time(end) >= 0:
        raise AssertionError("the end event is earlier than the start event")


def _random(device: str) -> None:
    """Draw the same numbers from the same seed."""
    generator = torch.Generator(device).manual_seed(1)
    first = torch.randn(10000, device=device, generator=generator)
    generator.manual_seed(1)
    _same(torch.randn(10000, device=device, generator=generator), first.cpu())
    if not abs(first.mean().item()) < 0.05:
        raise AssertionError(f"the mean of 10,000 normally distributed values is {first.mean().item():.3f}")


CHECKS = {
    "copies": _copies,
    "arithmetic": _arithmetic,
    "reductions": _reductions,
    "matrix products": _products,
    "random numbers": _random,
    "events": _events,
    "training step": _training,
}


def run(index: int) -> Iterator[Result]:
    """Run the checks on a device."""
    for name, check in CHECKS.items():
        start, error = time.perf_counter(), ""
        try:
            with torch.xpu.device(index):
                check(f"xpu:{index}")
        except Exception as failure:  # whatever it is
            error = f"{type(failure).__name__}: {failure}"
        yield Result(name, error, time.perf_counter() - start)
