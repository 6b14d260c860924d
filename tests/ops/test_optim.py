"""Optimizers train as on the CPU: foreach (the default), fused and single-tensor; gradient scaling."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from inner_run import passes
from processes import run_python
from torch.testing import assert_close

CONFIGURATIONS: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"amsgrad": True, "maximize": True}),
    (torch.optim.Adam, {"weight_decay": 0.1}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}),
    (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
]
OTHERS = [
    torch.optim.RMSprop,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.ASGD,
    torch.optim.Rprop,
]


def train(kind: Any, device: str, dtype: torch.dtype, **options: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    start = [
        torch.randn(s) for s in ((5, 7), (1,), (3000,), (16, 3, 2), (64,), (4097,))
    ]  # the same numbers whatever the dtype
    parameters = [x.to(device, dtype).requires_grad_() for x in start]
    optimizer = kind(parameters, lr=options.pop("lr", 0.01), **options)
    for step in range(4):
        g = torch.Generator().manual_seed(step)
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=g).to(dtype).to(device)
        optimizer.step()
    return [p.detach().cpu() for p in parameters]


@pytest.mark.parametrize("way", ["default", "fused", "foreach", "single"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize(
    ("kind", "options"), CONFIGURATIONS, ids=lambda v: v.__name__ if isinstance(v, type) else "-".join(v)
)
def test_training(kind: Any, options: dict[str, Any], dtype: torch.dtype, way: str) -> None:
    ways = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "single": {"foreach": False},
        "default": {},
    }
    expected = train(
        kind, "cpu", torch.float64 if dtype == torch.bfloat16 else dtype, foreach=False, **options
    )
    actual = train(kind, "xpu", dtype, **ways[way], **options)
    limits = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    assert_close([x.to(e.dtype) for x, e in zip(actual, expected, strict=True)], expected, **limits)


@pytest.mark.parametrize("kind", OTHERS, ids=lambda k: k.__name__)
def test_other_optimizers(kind: Any) -> None:
    expected = train(kind, "cpu", torch.float32, foreach=False)
    assert_close(train(kind, "xpu", torch.float32), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_rate_in_a_tensor(kind: Any) -> None:
    expected = train(kind, "cpu", torch.float32, lr=0.01)
    for device in ("cpu", "xpu"):
        actual = train(kind, "xpu", torch.float32, lr=torch.tensor(0.01, device=device), fused=True)
        assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_gradient_scaler(fused: bool) -> None:
    weight = torch.ones(4, device="xpu", requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("xpu", init_scale=8.0, growth_interval=2)
    scales = []
    for factor in (1.0, 1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        before = weight.detach().clone()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        assert torch.equal(before, weight.detach()) == (factor == float("inf"))
    assert scales == [8.0, 16.0, 8.0, 8.0]


@pytest.mark.skipif("OPENXPU_HIDE_EXTENSIONS" in os.environ, reason="this is the inner run")
def test_gradient_scalers_without_fp64() -> None:
    """PyTorch inverts the scale in float64, which Arc A lacks."""
    passes({__file__: "gradient_scaler"}, OPENXPU_HIDE_EXTENSIONS="cl_khr_fp64")
    sharded = """if True:
        import torch, torch.distributed as dist
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
        from torch.testing._internal.distributed.fake_pg import FakeStore
        assert not torch.xpu.get_device_properties().has_fp64
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        weight = torch.ones(4, device="xpu", requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = ShardedGradScaler("xpu", init_scale=8.0)
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(optimizer)
        assert weight.grad.tolist() == [1.0] * 4 and type(scaler._scale) is torch.Tensor
    """
    run_python(sharded, env={"OPENXPU_HIDE_EXTENSIONS": "cl_khr_fp64"})


def test_unscale_finds_infinities() -> None:
    grads = [
        torch.full((5,), 4.0, device="xpu"),
        torch.full((3000,), 4.0, device="xpu", dtype=torch.bfloat16),
        torch.full((6, 6), 4.0, device="xpu")[:, ::2],
    ]
    found, inverse = torch.zeros(1, device="xpu"), torch.tensor([0.25], device="xpu")
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
    assert found.item() == 0
    assert all((g == 1).all().item() for g in grads)
    grads[1][2999] = float("nan")
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
    assert found.item() == 1


def test_clip_grad_norm() -> None:
    grads = [torch.randn(s) for s in ((5, 7), (3000,), (1,))]
    norms = []
    for device in ("cpu", "xpu"):
        parameters = [torch.zeros_like(g, device=device, requires_grad=True) for g in grads]
        for p, g in zip(parameters, grads, strict=True):
            p.grad = g.clone().to(device)
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).cpu())
        norms.append([p.grad.cpu() for p in parameters])
    assert_close(norms[2:], norms[:2])
