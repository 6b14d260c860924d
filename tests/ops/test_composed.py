"""Composed operators against PyTorch's CPU kernels; none may use the CPU fallback."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close, assert_equal
from openxpu import _bridge

from .indexing_samples import out_of_range


def agree(function: Callable[..., torch.Tensor], *inputs: object, tolerance: float = 1e-5) -> None:
    """Assert the same value and gradients as on the CPU."""

    def run(device: str) -> list[torch.Tensor]:
        leaves = []
        arguments = []
        for x in inputs:
            if isinstance(x, torch.Tensor):
                moved = x.detach().to(device)
                if x.is_floating_point():
                    leaves.append(moved.requires_grad_())
                arguments.append(moved)
            else:
                arguments.append(x)
        result = function(*arguments)
        if leaves and result.requires_grad:
            weight = (
                torch.arange(result.numel(), dtype=torch.float64).reshape(result.shape).cos().to(result.dtype)
            )
            result.backward(weight.to(device))
        return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    _bridge.fallback_counts(True)
    actual = run("xpu")
    assert _bridge.fallback_counts() == {}
    for mine, theirs in zip(actual, run("cpu"), strict=True):
        assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def test_isin_with_a_number() -> None:
    x = torch.tensor([[1, 2], [3, 1]])
    for invert in (False, True):
        agree(lambda x, invert=invert: torch.isin(x, 1, invert=invert), x)
        agree(lambda x, invert=invert: torch.isin(3, x, invert=invert), x)
        agree(lambda x, invert=invert: torch.isin(7, x, invert=invert), x)


def test_where_with_numbers_of_the_cpu() -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    number = torch.tensor(7, dtype=torch.float64)
    for function in (
        lambda x, n: torch.where(x > 0, x, n),
        lambda x, n: torch.where(x > 0, n, 0.5),
        lambda x, n: torch.where(x > 0, n, n + 1),
        lambda x, n: torch.where(n > 0, x, x + 1),
    ):
        expected, actual = function(x, number), function(x.to("xpu"), number)
        assert_equal(actual, expected)


def test_cross() -> None:
    agree(lambda a, b: torch.linalg.cross(a, b), torch.randn(4, 3), torch.randn(4, 3))
    agree(lambda a, b: torch.linalg.cross(a, b, dim=0), torch.randn(3, 5), torch.randn(3, 1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_repeat_interleave(dtype: torch.dtype) -> None:
    repeats = torch.tensor([2, 0, 3, 1], dtype=dtype)
    agree(torch.repeat_interleave, repeats)
    agree(lambda r: torch.repeat_interleave(r, output_size=6), repeats)
    agree(lambda x, r: x.repeat_interleave(r, dim=1), torch.randn(2, 4), repeats)
    agree(torch.repeat_interleave, repeats[:0])
    with pytest.raises(RuntimeError, match="can not be negative"):
        torch.repeat_interleave(torch.tensor([1, -1], device="xpu"))


def test_addr_and_addbmm() -> None:
    agree(
        lambda m, a, b: torch.addr(m, a, b, beta=0.5, alpha=2),
        torch.randn(3, 4),
        torch.randn(3),
        torch.randn(4),
    )
    agree(
        lambda m, a, b: torch.addbmm(m, a, b, beta=0.5, alpha=2),
        torch.randn(3, 5),
        torch.randn(6, 3, 4),
        torch.randn(6, 4, 5),
    )


@pytest.mark.parametrize(("size", "step"), [(3, 1), (2, 2), (3, 4), (4, 2)])
def test_unfold_backward(size: int, step: int) -> None:
    agree(lambda x: x.unfold(1, size, step), torch.randn(2, 11, 3))
    agree(lambda x: x.unfold(0, 1, 1), torch.randn(()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_of_windows_are_rounded_once(dtype: torch.dtype) -> None:
    def sums(windows: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
        x = torch.zeros(2, 64, dtype=grad.dtype, device=grad.device, requires_grad=True)
        x.unfold(1, 9, 1).backward(grad)
        return [F.fold(windows, (12, 12), 3), x.grad]

    given = torch.randn(2, 4 * 9, 100).to(dtype), torch.randn(2, 56, 9).to(dtype)
    found = sums(*(t.to("xpu") for t in given))
    for got, want, size in zip(
        found, sums(*(t.double() for t in given)), sums(*(t.double().abs() for t in given)), strict=True
    ):
        error = (got.cpu().double() - want).abs()
        assert got.dtype == dtype
        assert (error <= torch.finfo(dtype).eps / 2 * want.abs() + 2**-20 * size).all()


@pytest.mark.parametrize("dilation", [1, (2, 1)])
@pytest.mark.parametrize("padding", [0, (1, 2)])
@pytest.mark.parametrize("stride", [1, (2, 3)])
def test_windows_of_images(dilation: object, padding: object, stride: object) -> None:
    x = torch.randn(2, 3, 9, 8)
    agree(lambda x: F.unfold(x, (3, 2), dilation, padding, stride), x)
    agree(lambda x: F.unfold(x, (3, 2), dilation, padding, stride), x[0])
    windows = F.unfold(x, (3, 2), dilation, padding, stride)
    agree(lambda w: F.fold(w, (9, 8), (3, 2), dilation, padding, stride), windows)
    agree(lambda w: F.fold(w, (9, 8), (3, 2), dilation, padding, stride), windows[1])


def test_max_unpool() -> None:
    x = torch.randn(2, 3, 8, 6)
    pooled, where = F.max_pool2d(x, 2, return_indices=True)
    agree(lambda x, i: F.max_unpool2d(x, i, 2), pooled, where)
    agree(lambda x, i: F.max_unpool2d(x, i, 2), pooled.to(memory_format=torch.channels_last), where)
    pooled, where = F.max_pool3d(x, 2, return_indices=True)
    agree(lambda x, i: F.max_unpool3d(x, i, 2), pooled, where)
    with out_of_range(RuntimeError, "out of bounds"):
        F.max_unpool2d(torch.ones(1, 1, 1, 1, device="xpu"), torch.full((1, 1, 1, 1), 9, device="xpu"), 2)


def test_rrelu() -> None:
    x = torch.linspace(-2, 2, 4001, device="xpu")
    agree(lambda x: F.rrelu(x, 0.1, 0.3, training=False), x.cpu())
    y = F.rrelu(x.clone().requires_grad_(), 0.1, 0.3, training=True)
    slopes = (y / x)[x < 0]
    assert torch.equal(y[x >= 0], x[x >= 0])
    assert 0.1 <= slopes.min() < 0.11
    assert 0.29 < slopes.max() <= 0.3001
    assert abs(slopes.mean() - 0.2) < 0.005
    z = x.clone().requires_grad_()
    torch.manual_seed(3)
    F.rrelu(z, 0.1, 0.3, training=True).sum().backward()
    torch.manual_seed(3)
    w = F.rrelu(x.clone(), 0.1, 0.3, training=True, inplace=True)
    torch.testing.assert_close(z.grad[x != 0], (w / x)[x != 0])


MODES = ["sum", "mean", "max"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_embedding_bag(mode: str, last: bool, padding: int | None, dtype: torch.dtype) -> None:
    indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9, 2, 2])
    offsets = torch.tensor([0, 4, 4, 7, 8] + ([10] if last else []))
    agree(
        lambda i, o, w: F.embedding_bag(i, w, o, mode=mode, include_last_offset=last, padding_idx=padding),
        indices,
        offsets,
        torch.randn(10, 5).to(dtype),
        tolerance=1e-5 if dtype != torch.bfloat16 else 2e-2,
    )


def test_embedding_bag_weights_and_frequencies() -> None:
    indices, offsets = (
        torch.tensor([1, 2, 4, 5, 4, 3], dtype=torch.int32),
        torch.tensor([0, 3], dtype=torch.int32),
    )
    table, weights = torch.randn(7, 4), torch.randn(6)
    agree(
        lambda i, o, w, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p),
        indices,
        offsets,
        table,
        weights,
    )
    agree(lambda i, w: F.embedding_bag(i, w, mode="max"), torch.tensor([[1, 2, 3], [4, 4, 0]]), table)
    agree(lambda i, o, w: F.embedding_bag(i, w, o), indices[:0], offsets * 0, table)
    with out_of_range(IndexError, "index out of range in self"):
        F.embedding_bag(torch.tensor([[7]], device="xpu"), table.to("xpu"))


def test_embedding_bag_gradient_by_frequency() -> None:
    # The CPU is no reference: it divides by the frequencies of other rows.
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3], device="xpu"), torch.tensor([0, 3], device="xpu")
    table = torch.randn(7, 4, device="xpu", requires_grad=True)
    F.embedding_bag(indices, table, offsets, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert table.grad[:, 0].tolist() == [0, 1, 1, 1, 1, 1, 0]


def test_assert_async() -> None:
    torch._assert_async(torch.tensor(1, device="xpu"))
    with pytest.raises(RuntimeError, match="what went wrong"):
        torch._assert_async(torch.tensor(0, device="xpu"), "what went wrong")
        torch.xpu.synchronize()  # on a GPU the call returns before the kernel runs


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5, 7), (7,), (1, 1)])
def test_multi_margin_loss(shape: tuple[int, ...], reduction: str) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(shape, dtype=torch.float64), torch.randint(shape[-1], shape[:-1])
    for p, weight in ((1, None), (2, None), (1, torch.rand(shape[-1], dtype=torch.float64))):

        def loss(
            x: torch.Tensor, target: torch.Tensor, p: int = p, weight: torch.Tensor | None = weight
        ) -> torch.Tensor:
            given = None if weight is None else weight.to(x.device)
            return F.multi_margin_loss(x, target, p=p, margin=0.7, weight=given, reduction=reduction)

        agree(loss, x, target)
    half = F.multi_margin_loss(x.bfloat16().to("xpu"), target.to("xpu"), reduction=reduction)
    expected = F.multi_margin_loss(x, target, reduction=reduction)
    assert_close(half, expected, dtype=torch.bfloat16)


def test_multi_margin_loss_refuses() -> None:
    x, target = torch.randn(3, 4, device="xpu"), torch.zeros(3, dtype=torch.long, device="xpu")
    for bad, words in (
        (lambda: F.multi_margin_loss(x, target[:2]), "Expected target size"),
        (lambda: F.multi_margin_loss(x, target, p=3), "expected 1 or 2|p == 1 or p == 2|only p == 1"),
        (lambda: F.multi_margin_loss(x, target.float()), "expected scalar type Long"),
        (
            lambda: F.multi_margin_loss(x, target, weight=torch.ones(5, device="xpu")),
            "inconsistent weight size",
        ),
    ):
        with pytest.raises((RuntimeError, ValueError), match=words):
            bad()
    with out_of_range(RuntimeError, "out of bounds"):
        F.multi_margin_loss(x, target + 9)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_weight_norm(dim: int) -> None:
    torch.manual_seed(0)
    v, sizes = torch.randn(3, 4, 5), [1, 1, 1]
    sizes[dim] = v.size(dim)
    g = torch.rand(sizes)
    agree(lambda v, g: torch._weight_norm(v, g, dim), v, g)
    halves = v.bfloat16(), g.bfloat16()
    actual = torch._weight_norm(*(t.to("xpu") for t in halves), dim)
    expected = torch._weight_norm(*(t.double() for t in halves), dim)
    assert_close(actual, expected, dtype=torch.bfloat16, times=0.5)
    if dim != 1:  # compare with the norms that the CPU kernel returns
        norms, kept = (
            torch.ops.aten._weight_norm_interface(*pair, dim)[1]
            for pair in ((v.to("xpu"), g.to("xpu")), (v, g))
        )
        assert_close(norms, kept)


def test_lists_and_unique() -> None:
    lists = [torch.randn(5, 3), torch.randn(4, 3)]
    agree(lambda a, b: torch._chunk_cat([a, b], 0, 3), *(t.long() for t in lists))
    agree(lambda a, b: torch.stack(torch._foreach_max([a, b])), *(t.long() for t in lists))
    agree(lambda x: torch._safe_softmax(x, 1), torch.tensor([[1.0, 2.0], [float("-inf"), float("-inf")]]))
    x = torch.randint(5, (20,))
    agree(lambda x: torch._unique(x, True, True)[0], x)
    agree(lambda x: torch._unique(x, True, True)[1], x)
    parts = [torch.empty(2, 3, device="xpu"), torch.empty(3, 3, device="xpu")]
    torch.split_with_sizes_copy(lists[0].to("xpu"), [2, 3], out=parts)
    assert torch.equal(torch.cat(parts).cpu(), lists[0])
