"""The search in the op library distinguishes a fault from rounding."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from operator_calls import Call, random, stepped, turned
from operators import difference, in_double, on_xpu, results

FAULTS = {
    "an integer": (torch.add, torch.int32, lambda x: x[1, 2].add_(1)),
    "a number that was moved": (torch.flip, torch.float32, lambda x: x[1, 2].mul_(1 + 1e-7)),
    "an element that was left out": (torch.sin, torch.float32, lambda x: x[1, 2].fill_(0)),
    "a half": (torch.sin, torch.bfloat16, lambda x: x[1, 2].mul_(1.1)),
    "NaN": (torch.sin, torch.float32, lambda x: x[1, 2].fill_(torch.nan)),
    "a small number beside large ones": (torch.exp, torch.float32, lambda x: x[0, 0].fill_(0.01)),
    "a complex number": (torch.mul, torch.complex64, lambda x: x.imag[1, 2].add_(1)),
}
ARGUMENTS = {torch.flip: ((1,),), torch.add: (2,), torch.mul: (2,)}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_told(fault):
    function, dtype, spoil = FAULTS[fault]
    x = random(dtype, 3, 5, low=1, high=9)
    if function is torch.exp:
        x[0] -= 20
    call = Call("", function, (x, *ARGUMENTS.get(function, ())), {})
    built, wanted = results(call, on_xpu), results(call, on_xpu)
    assert not difference(call, built, wanted)
    spoil(built[0])
    assert difference(call, built, wanted)


def test_rounding_is_none():
    call = Call("", torch.sum, (torch.tensor([1e6, 0.1, -1e6, 0.3]),), {})
    once, again = [torch.tensor(0.375)], [torch.tensor(0.4375)]  # equal errors
    assert not difference(call, once, again)
    assert difference(call, [torch.tensor(9.0)], again)


def test_views_and_gradients():
    x = random(torch.float32, 3, 5).requires_grad_()
    for view in (stepped, turned):
        assert view(torch.tensor(2.0)) == 2
        y = view(x)
        assert y.storage_offset() and not y.is_contiguous()
        moved = on_xpu(y)
        assert (moved.stride(), moved.storage_offset()) == (y.stride(), y.storage_offset())
        value, gradient = results(Call("", torch.exp, (y,), {}), on_xpu)
        wanted = results(Call("", torch.exp, (x,), {}), in_double)
        torch.testing.assert_close(value, wanted[0].float())
        torch.testing.assert_close(gradient, wanted[1].float())


def test_errors_differ_from_results():
    call = Call("", torch.add, (torch.ones(2), torch.ones(3)), {})
    failed = results(call, on_xpu)
    assert failed.startswith("RuntimeError")
    assert not difference(call, failed, failed)
    assert difference(call, failed, [torch.ones(2)])
