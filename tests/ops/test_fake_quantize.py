"""Fake quantization and quantization to integers, bitwise equal to PyTorch's CPU kernels."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines quantized_decomposed)
from comparing import assert_close, assert_equal
from torch import Tensor
from torch.utils._pytree import tree_leaves

ATEN = torch.ops.aten
LOW = torch.ops.quantized_decomposed
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
RANGES = ((-128, 127), (0, 255), (-8, 7), (0, 0), (-(2**31), 2**31 - 1))


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, wide: float = 4) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64) * wide
    return x.to(dtype)


def special(x: Tensor, *others: float) -> Tensor:
    """Return values including special ones and ties between steps of 0.5."""
    flat = x.clone().flatten()
    odd = torch.tensor([float("nan"), -0.0, 0.25, 0.75, -0.25, 1e30, -1e30, 1e-40, *others])
    flat[: odd.numel()] = odd.to(x.dtype)
    return flat.view(x.shape)


def same(actual: Any, expected: Any) -> None:
    """Assert bitwise equality, except that any NaN equals any other."""
    assert_equal(actual, expected, bits=True, equal_nan=True)
    assert [x.stride() for x in tree_leaves(actual)] == [x.stride() for x in tree_leaves(expected)]


def both(op: Any, *arguments: Any) -> None:
    there = [a.to("xpu") if isinstance(a, Tensor) else a for a in arguments]
    same(op(*there), op(*arguments))


def layouts(x: Tensor) -> list[Tensor]:
    """Return the tensor in several layouts."""
    wider = torch.zeros(*x.shape[:-1], x.shape[-1] * 2, dtype=x.dtype)
    wider[..., ::2] = x
    return [x, x.transpose(0, -1), wider[..., ::2]]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("quant_min, quant_max", RANGES)
def test_per_tensor(dtype: torch.dtype, quant_min: int, quant_max: int) -> None:
    x = special(values((7, 5, 13), dtype), float("inf"), -float("inf"))
    on, off = torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    zeros = {z for z in (quant_min, quant_max, max(quant_min, 0)) if z < 2**24}  # fp32 rounds larger ones
    for scale, zero in itertools.product((0.5, 0.1, 1e-3, 17.3), zeros):
        both(ATEN.fake_quantize_per_tensor_affine_cachemask, x, scale, zero, quant_min, quant_max)
        for switch in (on, off):
            both(
                ATEN._fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
                x,
                torch.tensor([scale]),
                torch.tensor([zero], dtype=torch.int32),
                switch,
                quant_min,
                quant_max,
            )


def test_per_tensor_lying_otherwise() -> None:
    for x in layouts(values((6, 3, 10))):
        moved = torch.empty_strided(x.size(), x.stride(), device="xpu").copy_(x)
        arguments = (0.1, 3, -8, 7)
        same(
            ATEN.fake_quantize_per_tensor_affine_cachemask(moved, *arguments),
            ATEN.fake_quantize_per_tensor_affine_cachemask(x, *arguments),
        )
    both(ATEN.fake_quantize_per_tensor_affine_cachemask, torch.empty(0, 3), 0.1, 0, -8, 7)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [torch.int32, torch.float32, torch.float16])
def test_per_channel(dtype: torch.dtype, kind: torch.dtype) -> None:
    x = special(values((6, 5, 11), dtype))
    for axis, (quant_min, quant_max) in itertools.product(range(3), ((-128, 127), (0, 15))):
        n = x.shape[axis]
        generator = torch.Generator().manual_seed(axis)
        scale = torch.rand(n, generator=generator) + 0.01
        zero = torch.rand(n, generator=generator) * (quant_max - quant_min) + quant_min
        if kind == torch.int32:
            zero = zero.round()
        arguments = (scale, zero.to(kind), axis, quant_min, quant_max)
        limit = min(1e18, torch.finfo(dtype).max)  # beyond, the CPU's conversions to integers are undefined
        both(ATEN.fake_quantize_per_channel_affine_cachemask, x.clamp(-limit, limit), *arguments)


@pytest.mark.parametrize("kind", [torch.int32, torch.float32])
def test_per_channel_keeps_to_the_limits(kind: torch.dtype) -> None:
    x = torch.tensor([[float("inf"), -float("inf"), float("nan"), 1e30, -1e30]], device="xpu")
    scale, zero = torch.tensor([0.5], device="xpu"), torch.zeros(1, dtype=kind, device="xpu")
    out, mask = ATEN.fake_quantize_per_channel_affine_cachemask(x, scale, zero, 0, -8, 7)
    assert out.tolist() == [[3.5, -4, -4, 3.5, -4]]
    assert not mask.any()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0.1, 0, 7, -8), "quant_min"),
        ((0.1, 9, -8, 7), "zero_point"),
        ((0.1, 0, 0, 2**40), "32 bits"),
    ],
)
def test_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        ATEN.fake_quantize_per_tensor_affine_cachemask(torch.ones(3, device="xpu"), *arguments)
    with pytest.raises(RuntimeError, match="consistent"):
        torch.fake_quantize_per_channel_affine(
            torch.ones(3, 4, device="xpu"),
            torch.ones(3, device="xpu"),
            torch.zeros(3, dtype=torch.int32, device="xpu"),
            1,
            0,
            7,
        )
    with pytest.raises(RuntimeError, match="zero_point"):
        torch.fake_quantize_per_channel_affine(
            torch.ones(3, 4, device="xpu"),
            torch.ones(3, device="xpu"),
            torch.full((3,), 8, dtype=torch.int32, device="xpu"),
            0,
            0,
            7,
        )


def gradients(device: str, per_channel: bool, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    x = values((4, 6, 5), dtype).to(device).requires_grad_()
    n = x.shape[1] if per_channel else 1
    scale = (
        (torch.rand(n, generator=torch.Generator().manual_seed(2)) + 0.1).to(device, dtype).requires_grad_()
    )
    zero = torch.linspace(-3.5, 2.5, n).to(device, dtype).requires_grad_()
    arguments: tuple[Any, ...] = (x, scale, zero, *((1,) if per_channel else ()), -8, 7, 0.3)
    name = "channel" if per_channel else "tensor"
    out = getattr(torch, f"_fake_quantize_learnable_per_{name}_affine")(*arguments)
    out.backward(values((4, 6, 5), dtype, 1).flip(0).to(device))
    assert x.grad is not None
    assert scale.grad is not None
    assert zero.grad is not None
    return [out.detach(), x.grad, scale.grad, zero.grad]


@pytest.mark.parametrize("per_channel", [False, True])
def test_learnable(per_channel: bool) -> None:
    actual, expected = gradients("xpu", per_channel), gradients("cpu", per_channel)
    same(actual[:2], expected[:2])
    for one, other in zip(actual[2:], expected[2:], strict=True):  # sums, whose order differs
        assert_close(one, other, times=0.5)


@pytest.mark.parametrize("one_each", [False, True])
def test_gradient_of_each_element(one_each: bool) -> None:
    """With one element per channel nothing is summed, so results are bitwise equal."""
    x = special(values((64,)))[1:].clamp(-1e18, 1e18)
    grad = values((63,), wide=1)
    scale, zero = torch.rand(63) + 0.1, torch.linspace(-8, 7, 63)
    if one_each:
        arguments = (grad[None], x[None], scale, zero, 1, -8, 7, 0.7)
        both(ATEN._fake_quantize_learnable_per_channel_affine_backward, *arguments)
    else:
        for i in range(16):
            arguments = (grad[i : i + 1], x[i : i + 1], scale[i : i + 1], zero[i * 4 : i * 4 + 1], -8, 7, 0.7)
            both(ATEN._fake_quantize_learnable_per_tensor_affine_backward, *arguments)


def test_masked_gradient() -> None:
    grads = []
    for device in ("cpu", "xpu"):
        x = values((9, 4)).to(device).requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 2, -8, 7).mul(2).sum().backward()
        scale = torch.linspace(0.1, 1, 4, device=device)
        zero = torch.zeros(4, dtype=torch.int32, device=device)
        torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7).sum().backward()
        assert x.grad is not None
        grads.append(x.grad)
    same(grads[1], grads[0])


def observed(device: str, x: Tensor, symmetric: bool, per_row: bool, range_: tuple[int, int]) -> list[Tensor]:
    on = torch.ones(1, dtype=torch.int64, device=device)
    n = x.shape[0] if per_row else 1
    infinity = torch.full((n,), float("inf"), device=device)
    state = [
        infinity,
        -infinity,
        torch.ones(n, device=device),
        torch.zeros(n, dtype=torch.int32, device=device),
    ]
    results = []
    for step in (x, x * 0.5 + 1, x * 3):
        moved = step.to(device)
        for observe, fake in ((on, on), (on, on * 0), (on * 0, on)):
            out = ATEN._fused_moving_avg_obs_fq_helper(
                moved, observe, fake, *state, 0.01, *range_, 0, per_row, symmetric
            )
            results += [*out, *(s.clone() for s in state)]
    return results


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_moving_average(per_row: bool, symmetric: bool) -> None:
    for x in (
        values((5, 12)),
        values((5, 12)).abs(),
        -values((5, 12)).abs(),
        torch.zeros(5, 12),
        values((3, 7)) * 1e-5,
    ):
        for range_ in ((-128, 127), (0, 255), (-8, 7)):
            actual = observed("xpu", x, symmetric, per_row, range_)
            expected = observed("cpu", x, symmetric, per_row, range_)
            if torch.xpu.get_device_properties().has_fp64:
                same(actual, expected)
            else:  # averages and scales in float
                torch.testing.assert_close([y.cpu() for y in actual], expected, rtol=3e-7, atol=0)


def test_quantization_aware_training() -> None:
    """torch.ao's modules on xpu: the loss decreases, and the model equals the CPU's."""
    from torch.ao.quantization import FakeQuantize, FusedMovingAvgObsFakeQuantize, MovingAverageMinMaxObserver

    results = []
    for device in ("cpu", "xpu"):
        torch.manual_seed(0)
        plain = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)()
        fused = FusedMovingAvgObsFakeQuantize(quant_min=0, quant_max=255)
        model = torch.nn.Sequential(
            fused, torch.nn.Linear(6, 8), torch.nn.ReLU(), plain, torch.nn.Linear(8, 1)
        )
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        x = values((32, 6), wide=1).to(device)
        losses = []
        for _ in range(20):
            loss = (model(x).squeeze(1) - x.sum(1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] / 2
        results.append(losses[0])
    assert results[1] == pytest.approx(results[0], rel=1e-5)


# --- quantized_decomposed, made of other operators ---

INT8 = (-128, 127, torch.int8)
UINT8 = (0, 255, torch.uint8)
MINMAX = (torch.finfo(torch.float32).eps, torch.int8)


def decomposed_cases() -> list[Any]:
    x, q = values((6, 10)), torch.randint(-128, 128, (6, 10), dtype=torch.int8)
    scales, zeros = torch.rand(6) + 0.01, torch.randint(-8, 8, (6,))
    columns = (torch.rand(10) + 0.01, torch.randint(-8, 8, (10,)))
    scale, zero = torch.tensor(0.03), torch.tensor(3)
    tokens, offsets = torch.rand(6, 1) + 0.01, torch.randint(-8, 8, (6, 1))
    groups = (torch.rand(6, 2) + 0.01, torch.zeros(6, 2, dtype=torch.int32))
    return [
        (LOW.quantize_per_tensor, x, 0.03, 3, *INT8),
        (LOW.quantize_per_tensor, x, 0.03, 3, *UINT8),
        (LOW.quantize_per_tensor.tensor, x, scale, zero, *INT8),
        (LOW.quantize_per_tensor.tensor2, x, scale, zero, torch.tensor(-128), torch.tensor(127), torch.int8),
        (LOW.dequantize_per_tensor, q, 0.03, 3, *INT8),
        (LOW.dequantize_per_tensor.tensor, q, scale, zero, *INT8),
        (LOW.choose_qparams.tensor, x, -128, 127, *MINMAX),
        (LOW.choose_qparams_symmetric.tensor, x, -128, 127, *MINMAX),
        (LOW.quantize_per_channel, x, scales, zeros, 0, *INT8),
        (LOW.quantize_per_channel, x, *columns, 1, *INT8),
        (LOW.dequantize_per_channel, q, *columns, 1, *INT8),
        (LOW.choose_qparams_per_token, x, torch.int8),
        (LOW.choose_qparams_per_token_asymmetric, x, torch.int8),
        (LOW.quantize_per_token, x, tokens, offsets, *INT8),
        (LOW.dequantize_per_token, q, tokens, offsets, *INT8, torch.float32),
        (LOW.quantize_per_channel_group, x, *groups, *INT8, 5),
        (LOW.dequantize_per_channel_group, q, *groups, *INT8, 5, torch.float32),
    ]


@pytest.mark.parametrize("case", decomposed_cases(), ids=lambda case: str(case[0]).split(".", 1)[1])
def test_decomposed(case: Any) -> None:
    both(*case)
