"""softmax, log_softmax and masked softmax on xpu, against float64 on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from comparing import ROUNDING, assert_close

DTYPES = list(ROUNDING)
FUNCTIONS = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}
# rows in registers, rows in loops, long rows, columns, short columns, nothing
SHAPES = [
    ((5, 10), 1),
    ((3, 100), 1),
    ((7, 300), -1),
    ((2, 20000), 1),
    ((4, 33, 40), 1),
    ((3, 9, 3), 1),
    ((6, 1), 1),
    ((9, 4), 0),
    # tiles of columns, held and in chunks
    ((3, 300, 5), 1),
    ((2, 9000, 3), 1),
    ((0, 5), 1),
    ((5, 0), 1),
    ((), 0),
]
# tiles with idle lanes, partly outside; few and long columns; long rows in chunks
MORE_SHAPES = [((2, 40, 33), 1), ((1, 1500, 70), 1), ((1, 900, 40), 1), ((40000, 2), 0), ((2, 60000), 1)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_and_backward(name: str, dtype: torch.dtype) -> None:
    function = FUNCTIONS[name]
    torch.manual_seed(0)
    for shape, dim in SHAPES + MORE_SHAPES * (dtype == torch.float32):
        x = (torch.randn(shape) * 3).to(dtype)
        grad = torch.randn(shape).to(dtype)
        reference = x.double().clone().requires_grad_()
        expected = function(reference, dim)
        expected.backward(grad.double())
        leaf = x.to("xpu").requires_grad_()
        actual = function(leaf, dim)
        # The roundings of a long row's sum add up as a random walk (PyTorch's CPU: 10 units for 20000 values).
        walk = min(1, ROUNDING[torch.float32] / ROUNDING[dtype]) * x.numel() ** 0.5 / 16
        scale = {"dtype": dtype, "relative_to": "largest", "floor": 1e-30}
        assert_close(actual, expected, roundings=4 + walk, what="result", **scale)
        actual.backward(grad.to("xpu"))
        # The gradient takes the rounded output: its error is that of a row's sum.
        slack = (
            8 + walk
            if name == "softmax"
            else 8 + 4 * ROUNDING[torch.float32] / ROUNDING[dtype] * (x.numel() ** 0.5)
        )
        if name == "log_softmax" and dtype in (torch.float16, torch.bfloat16):
            slack = 64
        assert_close(leaf.grad, reference.grad, roundings=slack, what="gradient", **scale)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_layouts(name: str) -> None:
    x = torch.randn(6, 40, 50)
    for view in (lambda t: t.transpose(0, 2), lambda t: t[:, ::2, 1:], lambda t: t.expand(2, 6, 40, 50)):
        for dim in (0, 1, -1):
            expected = FUNCTIONS[name](view(x), dim)
            assert_close(FUNCTIONS[name](view(x.to("xpu")), dim), expected)
    out = torch.empty(50, 40, 6, device="xpu").transpose(0, 2)
    FUNCTIONS[name](x.to("xpu"), 1, out=out)
    assert_close(out, FUNCTIONS[name](x, 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_to_float(dtype: torch.dtype) -> None:
    x = torch.randn(4, 70).to(dtype).to("xpu").requires_grad_()
    y = torch.ops.aten._softmax(x, 1, True)
    assert y.dtype == torch.float32
    assert_close(y, torch.softmax(x.detach().cpu().float(), 1))
    y = F.softmax(x, 1, dtype=torch.float32)
    y.backward(torch.ones_like(y))
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("length", [10, 300, 5000, 40000])
@pytest.mark.parametrize("dim", [0, 1])
def test_extreme_values(length: int, dim: int) -> None:
    x = torch.randn(8, length)
    x[0] = -torch.inf
    x[1, 3] = torch.nan
    x[2, 3] = torch.inf
    x[3, 1:] = -torch.inf
    x[4] *= 1e30
    x[5] += 1e4
    x[6] = 0
    for function in FUNCTIONS.values():
        expected = function(x.double(), 1)
        across = x.to("xpu") if dim == 1 else x.t().contiguous().to("xpu")
        actual = function(across, dim).cpu().double()
        torch.testing.assert_close(
            actual if dim == 1 else actual.t(), expected, rtol=2e-6, atol=1e-30, equal_nan=True
        )
    # NaN and infinities in rows of -inf
    x = torch.full((4, length), -torch.inf)
    x[0, 7], x[1, 7], x[2, 7] = torch.nan, torch.inf, 1.0
    actual = torch.softmax(x.t().contiguous().to("xpu"), 0).t().cpu()
    torch.testing.assert_close(actual, torch.softmax(x, 1), equal_nan=True)


def test_integers_are_refused() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ops.aten._softmax(torch.ones(3, 4, dtype=torch.int64, device="xpu"), 1, False)


def test_masked_columns() -> None:
    for shape in ((2, 100, 7), (2, 5000, 7)):
        x, mask = torch.randn(shape), torch.rand(shape) > 0.6
        expected = torch.masked_fill(x, mask, -torch.inf).softmax(1)
        actual = torch._masked_softmax(x.to("xpu"), mask.to("xpu"), 1, 2)
        assert_close(actual, expected)
        grad = torch.randn_like(x)
        wanted = torch.ops.aten._softmax_backward_data(grad, expected, 1, torch.float32)
        actual = torch.ops.aten._masked_softmax_backward(
            grad.to("xpu"), expected.to("xpu"), mask.to("xpu"), 1
        )
        assert_close(actual, wanted)


def test_masked_softmax() -> None:
    x, mask = torch.randn(2, 3, 5, 5), torch.rand(2, 3, 5, 5) > 0.6
    expected = torch.masked_fill(x, mask, -torch.inf).softmax(-1)
    actual = torch._masked_softmax(x.to("xpu"), mask.to("xpu"), -1, 2)
    assert_close(actual, expected, equal_nan=True)
    padding = torch.tensor([[False, False, True, True, True], [False] * 5])
    expected = torch.masked_fill(x, padding.view(2, 1, 1, 5), -torch.inf).softmax(-1)
    assert_close(torch._masked_softmax(x.to("xpu"), padding.to("xpu"), -1, 1), expected)
    grad = torch.randn_like(x)
    reference = torch.ops.aten._masked_softmax_backward(grad, torch.softmax(x, -1), mask, -1)
    actual = torch.ops.aten._masked_softmax_backward(
        grad.to("xpu"), torch.softmax(x, -1).to("xpu"), mask.to("xpu"), -1
    )
    assert_close(actual, reference)
