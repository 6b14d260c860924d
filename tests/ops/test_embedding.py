"""Embedding, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import embedding

from .indexing_samples import same


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:]
)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [None, 3, -1])
def test_gradient(dtype: torch.dtype, scale: bool, padding: int | None) -> None:
    weight = torch.randn(11, 24, dtype=dtype, requires_grad=True)
    index = torch.randint(11, (4, 9))

    def gradient(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        weight = weight.detach().requires_grad_()
        out = embedding(index, weight, padding_idx=padding, scale_grad_by_freq=scale)
        (out * torch.arange(9.0, device=out.device)[:, None].to(dtype)).sum().backward()
        return torch.cat([out.detach().flatten(), weight.grad.flatten()])

    half = dtype.itemsize == 2
    same(gradient, weight.detach(), index, rtol=0.02 if half else 1e-6, atol=0.5 if half else 1e-6)
    same(gradient, weight.detach(), index.int(), rtol=0.02 if half else 1e-6, atol=0.5 if half else 1e-6)


def test_out_of_range() -> None:
    same(embedding, torch.tensor([11]), torch.randn(11, 4))
    same(embedding, torch.tensor([-1]), torch.randn(11, 4))


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_renorm(norm: float) -> None:
    weight, index = torch.randn(11, 24), torch.tensor([[1, 2, 2], [3, 1, 9]])
    same(lambda w, i: torch.embedding_renorm_(w, i, 1.5, norm), weight, index, rtol=1e-5, atol=1e-6)
