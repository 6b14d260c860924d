"""Arguments of mismatched sizes give an error or a result, and no kernel accesses memory out of bounds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from inner_run import passes
from processes import run_python
from torch.nn.attention import SDPBackend, sdpa_kernel

CHANGES = os.environ.get("OPENXPU_TEST_CHANGES", "24")
FAMILIES = {
    "norm": "nn_functional_group_norm nn_functional_layer_norm nn_functional_batch_norm nn_functional_rms_norm",
    "embedding": "nn_functional_embedding_bag nn_functional_embedding nn_functional_nll_loss",
    "pool": "nn_functional_max_pool2d nn_functional_avg_pool2d nn_functional_adaptive_avg_pool2d",
}


@pytest.mark.skipif(
    torch.xpu.get_device_properties().type != "cpu", reason="pages are guarded in a processor's memory"
)
@pytest.mark.parametrize(
    "family",
    ["norm", *(pytest.param(name, marks=pytest.mark.extended) for name in FAMILIES if name != "norm")],
)
def test_sizes_that_do_not_fit(family: str) -> None:
    program, operators = Path(__file__).with_name("misfits.py"), FAMILIES[family].split()
    env = {"PYTORCH_ENABLE_XPU_FALLBACK": "0"}
    run_python(program, *operators, "--changes", CHANGES, env=env, timeout=3600)


@pytest.mark.skipif(
    torch.xpu.get_device_properties().type != "cpu", reason="pages are guarded in a processor's memory"
)
@pytest.mark.parametrize("late", ["0", "1"])
def test_sparse_indices_out_of_range(late: str) -> None:
    env = {"PYTORCH_ENABLE_XPU_FALLBACK": "0", "OPENXPU_DEFERRED_ERRORS": late}
    run_python(Path(__file__).with_name("bad_sparse.py"), env=env)


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="xpu")


def places(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.int64, device="xpu")


def ctc_gradient(
    grad: int = 2, likelihood: int = 2, alpha: tuple[int, ...] = (2, 5, 7), target: int = 3
) -> object:
    return torch.ops.aten._ctc_loss_backward(
        ones(grad), ones(5, 2, 4), places(2, target), [5, 5], [3, 3], ones(likelihood), ones(*alpha), 0
    )


aten = torch.ops.aten
GRADIENT_PADS = {
    f"{kind}_pad{d}d, {wrong}": (
        lambda d=d, kind=kind, wrong=wrong: getattr(aten, f"{kind}_pad{d}d_backward")(
            ones(*((0 if wrong == "batch" else 1), 2, *([6] * (d - 1)), 7 if wrong == "size" else 6)),
            ones(1, 2, *([4] * d)),
            [1, 1] * d,
        )
    )
    for kind in ("reflection", "replication")
    for d in (1, 2, 3)
    for wrong in ("batch", "size")
}
REFUSED: dict[str, Callable[[], object]] = {
    "im2col, stride": lambda: aten.im2col(ones(0, 1, 5, 5), [2, 2], [1, 1], [0, 0], []),
    "im2col, dilation": lambda: aten.im2col(ones(1, 1, 5, 5), [2, 2], [], [0, 0], [2, 2]),
    "im2col, kernel": lambda: aten.im2col(ones(1, 1, 5, 5), [2], [1, 1], [0, 0], [2, 2]),
    "col2im, size": lambda: aten.col2im(ones(1, 4, 16), [5], [2, 2], [1, 1], [0, 0], [1, 1]),
    "col2im, padding": lambda: aten.col2im(ones(1, 4, 16), [5, 5], [2, 2], [1, 1], [], [1, 1]),
    "ctc_loss, gradient": lambda: ctc_gradient(grad=0),
    "ctc_loss, likelihood": lambda: ctc_gradient(likelihood=1),
    "ctc_loss, alpha": lambda: ctc_gradient(alpha=(2, 5, 6)),
    "ctc_loss, empty alpha": lambda: ctc_gradient(alpha=(2, 5, 0)),
    "ctc_loss, short alpha": lambda: ctc_gradient(alpha=(2, 4, 7)),
    "ctc_loss, targets": lambda: ctc_gradient(target=2),
    "softmax": lambda: aten._softmax_backward_data(ones(2, 3), ones(2, 4), 1, torch.float32),
    "log_softmax": lambda: aten._log_softmax_backward_data(ones(0), ones(4), 0, torch.float32),
    "log_softmax, middle": lambda: aten._log_softmax_backward_data(
        ones(2, 0, 1), ones(2, 3, 1), 1, torch.float32
    ),
    "masked_softmax": lambda: aten._masked_softmax_backward(ones(2, 3), ones(2, 4), ones(2, 4).bool(), 1),
    "pdist, gradient": lambda: aten._pdist_backward(ones(0), ones(3, 2), 2.0, ones(3)),
    "pdist, distances": lambda: aten._pdist_backward(ones(3), ones(3, 2), 2.0, ones(2)),
    "cdist, gradient": lambda: aten._cdist_backward(ones(3, 3), ones(3, 2), ones(4, 2), 2.0, ones(3, 4)),
    "cdist, distances": lambda: aten._cdist_backward(ones(3, 4), ones(3, 2), ones(4, 2), 2.0, ones(0, 4)),
    "grid_sampler_2d, mode": lambda: aten.grid_sampler_2d(ones(1, 2, 3, 3), ones(1, 3, 3, 2), -1, 0, False),
    "grid_sampler_2d, padding": lambda: aten.grid_sampler_2d(ones(1, 2, 3, 3), ones(1, 3, 3, 2), 0, 3, False),
    "grid_sampler_3d, mode": lambda: aten.grid_sampler_3d(
        ones(1, 2, 3, 3, 3), ones(1, 3, 3, 3, 3), 7, 0, False
    ),
    "grid_sampler_2d, gradient": lambda: aten.grid_sampler_2d_backward(
        ones(1, 2, 3, 2), ones(1, 2, 3, 3), ones(1, 3, 3, 2), 0, 0, False, [True, True]
    ),
    "lu_unpack, few": lambda: torch.lu_unpack(ones(4, 5), places(1).int()),
    "lu_unpack, none": lambda: torch.lu_unpack(ones(2, 3, 5), places(2, 0).int()),
    "lu_unpack, batch": lambda: torch.lu_unpack(ones(2, 3, 5), places(3).int()),
    "nll_loss, gradient": lambda: aten.nll_loss_backward(
        ones(3), ones(4, 3), places(4), None, 0, -100, ones()
    ),
    "nll_loss2d, gradient": lambda: aten.nll_loss2d_backward(
        ones(), ones(4, 2, 1, 3), places(4, 1, 3), None, 0, -100, ones()
    ),
    "nll_loss2d, gradient of a sum": lambda: aten.nll_loss2d_backward(
        ones(0), ones(4, 2, 1, 3), places(4, 1, 3), None, 1, -100, ones()
    ),
    "addmm, no rows": lambda: torch.addmm(ones(2, 3), ones(0, 4), ones(4, 3)),
    "norm, below 0": lambda: torch.norm(ones(0), -1),
    "norm, infinite": lambda: torch.norm(ones(3, 0), float("inf"), dim=1),
    "dist": lambda: torch.dist(ones(0), ones(0), -1.0),
    "repeat_interleave, more": lambda: torch.repeat_interleave(places(3), output_size=4),
    "repeat_interleave, fewer": lambda: torch.repeat_interleave(places(3), output_size=2),
    "repeat_interleave, none": lambda: torch.repeat_interleave(places(3).int(), output_size=0),
    "repeat_interleave, for nothing": lambda: torch.repeat_interleave(places(3) * 0, output_size=1),
    "repeat_interleave, below 0": lambda: torch.repeat_interleave(places(3) * -1, output_size=-3),
    "repeat_interleave, one below 0": lambda: torch.repeat_interleave(
        torch.tensor([2, -1, 3], device="xpu"), output_size=4
    ),
    "repeat_interleave, rows": lambda: ones(3, 2).repeat_interleave(places(3) * 1000, 0, output_size=2999),
    "attention, no keys' heads": lambda: F.scaled_dot_product_attention(
        ones(1, 4, 2, 8), ones(1, 0, 2, 8), ones(1, 0, 2, 8), enable_gqa=True
    ),
} | GRADIENT_PADS


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError)):  # noqa: PT012 (some report late)
        REFUSED[name]()
        torch.xpu.synchronize()


def test_is_refused_late() -> None:
    passes({__file__: "repeat_interleave"}, OPENXPU_POLICY="gpu", OPENXPU_DEFERRED_ERRORS="1")


@pytest.mark.parametrize("gradient", [False, True])
def test_attention_of_nothing(gradient: bool) -> None:
    for batch, heads, queries, keys, depth, width in itertools.product(
        (2, 0), (4, 0), (5, 0), (6, 0), (8, 0), (8, 0)
    ):
        results = []
        # PyTorch's CPU kernel divides by the number of heads: matrix products are the reference.
        for device, backend in (("cpu", SDPBackend.MATH), ("xpu", None)):
            torch.manual_seed(0)
            query, key, value = (
                torch.randn(batch, heads, *size).to(device).requires_grad_(gradient)
                for size in ((queries, depth), (keys, depth), (keys, width))
            )
            with sdpa_kernel(backend) if backend else nullcontext():
                out = F.scaled_dot_product_attention(query, key, value)
            if gradient:
                out.sum().backward()
            results.append([out, query.grad, key.grad, value.grad] if gradient else [out])
        for want, got in zip(*results, strict=True):
            torch.testing.assert_close(got.cpu(), want, check_stride=False)


def test_variance_of_nothing() -> None:
    for shape, dim in (((0,), None), ((3, 0), 1), ((0, 0, 0), None)):
        for correction in (-5, 0, 1):
            x = torch.zeros(shape)
            for function in (torch.var, torch.std):
                want = function(x, dim=dim, correction=correction)
                assert_close(function(x.to("xpu"), dim=dim, correction=correction), want, equal_nan=True)
            for want, got in zip(
                torch.var_mean(x, dim=dim, correction=correction),
                torch.var_mean(x.to("xpu"), dim=dim, correction=correction),
                strict=True,
            ):
                assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_gradient_of_no_bags(mode: str) -> None:
    weight = ones(10, 5).requires_grad_()
    factors = ones(5).requires_grad_() if mode == "sum" else None
    out = F.embedding_bag(places(5), weight, places(0), mode=mode, per_sample_weights=factors)
    out.sum().backward()
    assert out.shape == (0, 5)
    assert torch.equal(weight.grad.cpu(), torch.zeros(10, 5))
    assert factors is None or torch.equal(factors.grad.cpu(), torch.zeros(5))


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_norm_of_nothing_is_contiguous(shape: tuple[int, ...]) -> None:
    x = torch.empty_strided(shape, (1, 20, 7), device="xpu").requires_grad_()
    for function in (F.rms_norm, F.layer_norm):
        out = function(x, shape[2:])
        (gradient,) = torch.autograd.grad(out.sum(), x)
        assert out.stride() == gradient.stride() == torch.empty(shape).stride()
