"""LSTM and GRU, whose cells are fused on xpu, against float64 on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_layers(kind: type[torch.nn.RNNBase], dtype: torch.dtype, bias: bool) -> None:
    model = kind(6, 7, num_layers=2, bidirectional=True, bias=bias).to(dtype)
    twin, model = copy.deepcopy(model).to("xpu"), model.double()
    x = torch.randn(5, 3, 6).to(dtype)
    leaf, want_leaf = x.to("xpu").requires_grad_(), x.double().requires_grad_()
    got, want = twin(leaf), model(want_leaf)
    assert (got[0].cpu().double() - want[0]).abs().max() < TOLERANCE[dtype]
    got[0].square().sum().backward()
    want[0].square().sum().backward()
    pairs = [(leaf.grad, want_leaf.grad)]
    pairs += [(p.grad, q.grad) for p, q in zip(twin.parameters(), model.parameters(), strict=True)]
    for grad, reference in pairs:
        error = (grad.cpu().double() - reference).abs().max()
        assert error <= TOLERANCE[dtype] * (1 + reference.abs().max())


@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_cells(kind: type[torch.nn.RNNCellBase]) -> None:
    cell = kind(4, 5)
    twin = copy.deepcopy(cell).to("xpu")
    x = torch.randn(3, 4)
    got, want = twin(x.to("xpu")), cell(x)
    for a, b in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert torch.allclose(a.cpu(), b, atol=1e-6)


def test_only_cell_state_has_gradient() -> None:
    cell = torch.nn.LSTMCell(4, 5)
    twin = copy.deepcopy(cell).to("xpu")
    x = torch.randn(3, 4)
    twin(x.to("xpu"))[1].square().sum().backward()
    cell(x)[1].square().sum().backward()
    for p, q in zip(twin.parameters(), cell.parameters(), strict=True):
        assert torch.allclose(p.grad.cpu(), q.grad, atol=1e-5)
