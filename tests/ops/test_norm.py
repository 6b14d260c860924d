"""layer_norm, rms_norm, batch_norm, group_norm and instance_norm on xpu, against float64 on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from comparing import ROUNDING, assert_close

DTYPES = list(ROUNDING)
HALVES = [torch.float16, torch.bfloat16]


def close(actual: torch.Tensor, expected: torch.Tensor, slack: float = 8, floor: float = 1e-30) -> None:
    """Compare within `slack` units of the dtype's precision, relative to the largest expected value or `floor`."""
    assert_close(actual, expected, dtype=actual.dtype, roundings=slack, relative_to="largest", floor=floor)


def leaf(tensor: torch.Tensor | None, dtype: torch.dtype, device: str) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(dtype).to(device).detach().requires_grad_()


def compare(
    function,
    dtype: torch.dtype,
    tensors: list,
    parameter_dtype: torch.dtype | None = None,
    slack: float = 8,
    layout=lambda t: t,
    normalized=None,
) -> torch.Tensor:
    """Return function(*tensors) and compare it and its gradients with float64.

    The first tensor is the input, the others are parameters. ``normalized`` returns the input before the
    parameters are applied, if its elements may be far from 1.
    """
    dtypes = [dtype] + [parameter_dtype or dtype] * (len(tensors) - 1)
    rounded = [None if t is None else t.to(d) for t, d in zip(tensors, dtypes)]
    actual_leaves = [leaf(t, d, "xpu") for t, d in zip(rounded, dtypes)]
    expected_leaves = [leaf(t, torch.float64, "cpu") for t in rounded]
    actual = function(layout(actual_leaves[0]), *actual_leaves[1:])
    expected = function(expected_leaves[0], *expected_leaves[1:])
    close(actual.detach(), expected.detach(), slack)
    grad = torch.randn(expected.shape).to(dtype)
    actual.backward(grad.to("xpu"))
    expected.backward(grad.double())
    # a parameter's gradient sums many terms, which may cancel; normalized ones are about 1
    terms = grad.double() * (1 if normalized is None else normalized(expected_leaves[0].detach()))
    for mine, reference in zip(actual_leaves, expected_leaves):
        if mine is not None:
            floor = 1e-30 if mine is actual_leaves[0] else float(terms.norm()) / mine.numel() ** 0.5
            close(mine.grad, reference.grad, 2 * slack, floor)
            assert mine.grad.dtype == mine.dtype
    return actual


ROWS = [((5, 10), 1), ((100, 77), 1), ((3, 4, 300), 1), ((4, 5, 6), 2), ((2, 20000), 1), ((70, 128), 1)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(dtype: torch.dtype) -> None:
    for shape, normalized in ROWS:
        size = shape[-normalized:]
        x, w, b = torch.randn(shape) * 2 + 5, torch.randn(size), torch.randn(size)
        compare(lambda x, w, b, size=size: F.layer_norm(x, size, w, b), dtype, [x, w, b])
    compare(lambda x: F.layer_norm(x, (77,)), dtype, [torch.randn(9, 77)])
    compare(lambda x, w: F.layer_norm(x, (77,), w), dtype, [torch.randn(9, 77), torch.randn(77)])


@pytest.mark.parametrize("dtype", HALVES)
def test_layer_norm_with_float_parameters(dtype: torch.dtype) -> None:
    tensors = [torch.randn(9, 77), torch.randn(77), torch.randn(77)]
    compare(lambda x, w, b: F.layer_norm(x, (77,), w, b), dtype, tensors, torch.float32)


def test_layer_norm_statistics_and_layouts() -> None:
    x = torch.randn(8, 6, 40)
    _, mean, rstd = torch.native_layer_norm(x.bfloat16().to("xpu"), (40,), None, None, 1e-5)
    assert mean.dtype == rstd.dtype == torch.float32 and mean.shape == (8, 6, 1)
    view = x.to("xpu").transpose(0, 1)
    assert_close(F.layer_norm(view, (40,)), F.layer_norm(x.transpose(0, 1), (40,)))
    assert F.layer_norm(torch.ones(0, 4, device="xpu"), (4,)).shape == (0, 4)
    w = torch.ones(4, device="xpu", requires_grad=True)
    F.layer_norm(torch.ones(0, 4, device="xpu"), (4,), w).sum().backward()
    assert w.grad.tolist() == [0, 0, 0, 0]


def test_layer_norm_far_from_zero() -> None:
    """A mean of 10,000 standard deviations costs no more accuracy than rounding the input."""
    x = torch.randn(6, 5000) + 1e4
    close(F.layer_norm(x.to("xpu"), (5000,)), F.layer_norm(x.double(), (5000,)), 16)
    x[2, 7] = torch.nan
    x[3, 7] = torch.inf
    y = F.layer_norm(x.to("xpu"), (5000,)).cpu()
    assert y[2:4].isnan().all() and not y[4].isnan().any()


def test_errors_do_not_grow_with_the_row() -> None:
    """Eight million elements: sums in a single chain would be off by 3e-6 and more."""
    x = torch.rand(1, 4, 2_000_003, generator=torch.Generator().manual_seed(4))
    grad = torch.rand(x.shape, generator=torch.Generator().manual_seed(5))
    functions = {
        "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[1:]),
        "rms norm": lambda x: torch.nn.functional.rms_norm(x, x.shape[1:]),
        "group norm": lambda x: torch.nn.functional.group_norm(x, 2),
    }
    for name, function in functions.items():
        leaves = [x.double().requires_grad_(), x.to("xpu").requires_grad_()]
        outs = [function(leaf) for leaf in leaves]
        for leaf, out in zip(leaves, outs, strict=True):
            out.backward(grad.to(out))
        for want, got in ((outs[0], outs[1]), (leaves[0].grad, leaves[1].grad)):
            error = (got.detach().cpu() - want.detach()).abs().max() / want.detach().abs().max()
            assert error < 1e-6, f"{name}: {error}"


def test_layer_norm_gradients_are_reproducible() -> None:
    x, w, g = (
        torch.randn(5000, 96, device="xpu"),
        torch.randn(96, device="xpu"),
        torch.randn(5000, 96, device="xpu"),
    )
    _, mean, rstd = torch.native_layer_norm(x, (96,), w, w, 1e-5)
    runs = [
        torch.ops.aten.native_layer_norm_backward(g, x, (96,), mean, rstd, w, w, [True] * 3) for _ in range(3)
    ]
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(dtype: torch.dtype) -> None:
    for shape in [(5, 10), (40, 300), (2, 9000)]:
        size = shape[-1:]
        compare(
            lambda x, w, size=size: F.rms_norm(x, size, w, 1e-6),
            dtype,
            [torch.randn(shape), torch.randn(size)],
            slack=12,
        )


def test_rms_norm_is_one_kernel() -> None:
    x, w = torch.randn(4, 64, device="xpu"), torch.randn(64, device="xpu")
    y, rstd = torch.ops.aten._fused_rms_norm(x, (64,), w, 1e-6)
    assert rstd.shape == (4, 1)
    assert_close(y, F.rms_norm(x.cpu(), (64,), w.cpu(), 1e-6))


PLANES = [(4, 5, 7, 7), (3, 64, 9), (300, 7), (2, 3, 32, 40), (3, 70, 2, 5, 5)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_norm(dtype: torch.dtype, training: bool) -> None:
    for shape in PLANES:
        c = shape[1]
        x = torch.randn(shape) * 2 + 5 * torch.randn(c).view(1, c, *[1] * (len(shape) - 2))
        mean, variance = torch.randn(c).to(dtype), (torch.rand(c) + 0.5).to(dtype)
        running = {True: [mean.double(), variance.double()], False: [mean.to("xpu"), variance.to("xpu")]}

        def norm(x, w, b, running=running):
            on_cpu = x.device.type == "cpu"
            return F.batch_norm(x, *running[on_cpu], w, b, training, 0.1)

        normalized = None if training else lambda x, stats=running[True]: F.batch_norm(x, *stats)
        compare(norm, dtype, [x, torch.randn(c), torch.randn(c)], slack=16, normalized=normalized)
        if training:
            for mine, reference in zip(running[False], running[True]):
                close(mine, reference, 8)


@pytest.mark.parametrize("dtype", HALVES)
def test_batch_norm_with_float_parameters(dtype: torch.dtype) -> None:
    compare(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        dtype,
        [torch.randn(8, 6, 10, 10), torch.randn(6), torch.randn(6)],
        torch.float32,
    )


@pytest.mark.parametrize("channels", [3, 64, 100])
def test_batch_norm_channels_last(channels: int) -> None:
    x = torch.randn(4, channels, 9, 11)
    y = compare(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        torch.float32,
        [x, torch.randn(channels), torch.randn(channels)],
        slack=16,
        layout=lambda t: t.contiguous(memory_format=torch.channels_last),
    )
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_batch_norm_module_follows_the_cpu() -> None:
    torch.manual_seed(0)
    modules = [torch.nn.BatchNorm2d(5).to(device) for device in ("cpu", "xpu")]
    for _ in range(3):
        x = torch.randn(6, 5, 8, 8)
        outputs = [module(x.to(device)) for module, device in zip(modules, ("cpu", "xpu"))]
        assert_close(outputs[1], outputs[0])
    for module in modules:
        module.eval()
    assert_close(modules[1](x.to("xpu")), modules[0](x))
    assert_close(modules[1].running_var, modules[0].running_var)
    assert modules[1].num_batches_tracked.item() == 3


def test_batch_norm_saved_statistics() -> None:
    x = torch.randn(4, 3, 5, 5, device="xpu").half()
    _, mean, invstd = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    assert mean.dtype == invstd.dtype == torch.float32 and mean.shape == (3,)
    running = [torch.zeros(3, device="xpu"), torch.ones(3, device="xpu")]
    _, mean, invstd = torch.native_batch_norm(x, None, None, *running, False, 0.1, 1e-5)
    assert mean.shape == invstd.shape == (0,)


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (6, 3)])
def test_batch_norm_into_strided_outputs(shape: tuple[int, ...]) -> None:
    """Gaps between the elements of an output are not written."""
    x, c = torch.randn(shape, device="xpu"), shape[1]
    running = [torch.zeros(c, device="xpu"), torch.ones(c, device="xpu")]
    ops = torch.ops.aten
    calls = [
        (ops.native_batch_norm, (None, None, None, None, True, 0.1, 1e-5), "out save_mean save_invstd"),
        (ops._native_batch_norm_legit, (None, None, *running, True, 0.1, 1e-5), "out save_mean save_invstd"),
        (
            ops._native_batch_norm_legit.no_stats_out,
            (None, None, True, 0.1, 1e-5),
            "out save_mean save_invstd",
        ),
        (ops._batch_norm_with_update, (None, None, *running, 0.1, 1e-5), "out save_mean save_invstd reserve"),
    ]
    rows = x.cpu().double().transpose(0, 1).flatten(1)
    mean, invstd = rows.mean(1), (rows.var(1, correction=0) + 1e-5).rsqrt()
    shaped = (1, c, *[1] * (len(shape) - 2))
    y = (x.cpu().double() - mean.view(shaped)) * invstd.view(shaped)
    for op, args, names in calls:
        bases = [torch.full([2 * n + 1 for n in s], 7.0, device="xpu") for s in (shape, (c,), (c,))]
        outs = [b[tuple(slice(1, None, 2) for _ in range(b.dim()))] for b in bases]
        extra = [torch.empty(0, dtype=torch.uint8, device="xpu")] if "reserve" in names else []
        op(x, *args, **dict(zip(names.split(), outs + extra, strict=True)))
        for out, expected in zip(outs, (y, mean, invstd), strict=True):
            close(out, expected, 32)
        for base, out in zip(bases, outs):
            out.fill_(7.0)
            assert (base == 7).all(), str(op)
    with pytest.raises(RuntimeError, match="to have dtype"):
        kinds = (torch.float32, torch.float16, torch.float32)
        wrong = [torch.empty(0, dtype=d, device="xpu") for d in kinds]
        ops.native_batch_norm(x, *calls[0][1], **dict(zip(calls[0][2].split(), wrong)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_group_norm(dtype: torch.dtype) -> None:
    slack = 48 if dtype in HALVES else 16  # as on CUDA, halves keep mean and rstd as halves
    for shape, groups in [((4, 6, 7, 7), 3), ((2, 64), 8), ((30, 8, 2), 1), ((3, 32, 33), 32)]:
        c = shape[1]
        compare(
            lambda x, w, b, groups=groups: F.group_norm(x, groups, w, b),
            dtype,
            [torch.randn(shape) + 1, torch.randn(c), torch.randn(c)],
            slack=slack,
        )
    compare(lambda x: F.group_norm(x, 2), dtype, [torch.randn(3, 4, 5)], slack=slack)


def test_instance_norm() -> None:
    compare(
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        torch.float32,
        [torch.randn(3, 5, 12, 12), torch.randn(5), torch.randn(5)],
        slack=16,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 5), (3, 4, 7), (2, 3, 5, 6)], ids=str)
def test_batch_norm_in_steps(shape, affine, dtype):
    """As in SyncBatchNorm, with batches of different sizes in three processes."""
    channels, eps, momentum = shape[1], 1e-3, 0.3
    batches = [(torch.randn(shape[0] + i, *shape[1:]) * 2 + 3).to(dtype) for i in range(3)]
    grads = [torch.randn_like(batch) for batch in batches]
    weight = torch.rand(channels) + 0.5 if affine else None
    bias = torch.randn(channels) if affine else None
    running = torch.randn(channels), torch.rand(channels)

    x = torch.cat(batches).double().requires_grad_()
    exact = [p.double().requires_grad_() if affine else None for p in (weight, bias)]
    exact_running = [r.double() for r in running]
    want = F.batch_norm(x, *exact_running, *exact, True, momentum, eps)
    want.backward(torch.cat(grads).double())

    xs = [batch.xpu() for batch in batches]
    if len(shape) == 4:
        xs[1] = xs[1].contiguous(memory_format=torch.channels_last)
    w, b = (p.xpu() if affine else None for p in (weight, bias))
    r = [p.xpu() for p in running]
    stats = [torch.batch_norm_stats(x, eps) for x in xs]
    assert all(s.dtype == torch.float32 for pair in stats for s in pair)
    counts = torch.tensor([x.numel() / channels for x in xs], device="xpu")
    means, invstds = (torch.stack([pair[i] for pair in stats]) for i in (0, 1))
    mean, invstd = torch.batch_norm_gather_stats_with_counts(xs[0], means, invstds, *r, momentum, eps, counts)
    got = [torch.batch_norm_elemt(x, w, b, mean, invstd, eps) for x in xs]
    reduced = [
        torch.batch_norm_backward_reduce(g.xpu(), x, mean, invstd, w, True, True, True)
        for g, x in zip(grads, xs, strict=True)
    ]
    sums = [torch.stack([part[i] for part in reduced]).sum(0) for i in range(4)]
    grad_input = [
        torch.batch_norm_backward_elemt(g.xpu(), x, mean, invstd, w, *sums[:2], counts.int())
        for g, x in zip(grads, xs, strict=True)
    ]
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 4e-3, "atol": 8e-3}
    for part, whole in ((got, want), (grad_input, x.grad)):
        assert all(p.dtype == dtype for p in part)
        torch.testing.assert_close(torch.cat(part).cpu().double(), whole.detach(), **tolerance)
    for i, parameter in ((2, exact[0]), (3, exact[1])):
        if affine:
            torch.testing.assert_close(sums[i].cpu().double(), parameter.grad, rtol=2e-3, atol=2e-3)
    for ours, theirs in zip(r, exact_running, strict=True):
        assert_close(ours, theirs, dtype=ours.dtype, rtol=1e-4, atol=1e-4)


def test_batch_norm_in_steps_of_equal_batches():
    x = torch.randn(4, 3, 5, device="xpu")
    means, invstds = (torch.stack([s, s]) for s in torch.batch_norm_stats(x, 1e-5))
    mean, invstd = torch.batch_norm_gather_stats(x, means, invstds, None, None, 0.1, 1e-5, 20)
    out = torch.empty(0, device="xpu")
    torch.batch_norm_elemt(x, None, None, mean, invstd, 1e-5, out=out)
    want = F.batch_norm(x.cpu().double(), None, None, training=True)
    assert_close(out, want, dtype=out.dtype, rtol=1e-4, atol=1e-5)


def test_batch_norm_in_steps_keeps_to_a_far_mean():
    """A mean that is large compared with the deviation costs no more accuracy than necessary."""
    x = torch.randn(64, 2, 32) + 1000
    mean, invstd = torch.batch_norm_stats(x.xpu(), 1e-5)
    got = torch.batch_norm_elemt(x.xpu(), None, None, mean, invstd, 1e-5)
    assert_close(
        got, F.batch_norm(x.double(), None, None, training=True), dtype=got.dtype, rtol=1e-3, atol=1e-3
    )


HALF_AND_WIDE = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


@pytest.mark.parametrize("dtype", HALF_AND_WIDE, ids=str)
@pytest.mark.parametrize("junk", [7.0, float("inf")])
def test_statistics_of_no_elements(dtype: torch.dtype, junk: float) -> None:
    aten = torch.ops.aten

    def empty(*shape: int) -> torch.Tensor:
        # fill the memory that the next allocation reuses
        del [torch.full((64,), junk, dtype=dtype, device="xpu") for _ in range(4)][:]
        return torch.empty(shape, dtype=dtype, device="xpu")

    results = [
        aten.native_layer_norm(empty(3, 0), [0], None, None, 1e-5)[1:],
        aten.native_layer_norm(empty(2, 3, 4, 0), [4, 0], None, None, 1e-5)[1:],
        aten.native_group_norm(empty(2, 4, 0), None, None, 2, 4, 0, 2, 1e-5)[1:],
        aten.native_group_norm(empty(2, 0, 3), None, None, 2, 0, 3, 2, 1e-5)[1:],
        aten.native_batch_norm(empty(2, 4, 0), None, None, None, None, True, 0.1, 1e-5)[1:],
        aten.native_batch_norm(empty(0, 4), None, None, None, None, True, 0.1, 1e-5)[1:],
    ]
    for mean, rstd in results:
        assert mean.numel() > 0 and (mean == 0).all() and rstd.isnan().all()
    assert aten._fused_rms_norm(empty(3, 0), [0], None, 1e-5)[1].isnan().all()


def misfits() -> dict[str, tuple]:
    """Calls in which one tensor has the wrong size."""

    def x(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="xpu")

    a = torch.ops.aten
    mask3, mask2 = [True] * 3, [True] * 2
    group = dict(N=2, C=6, HxW=5)
    i = x(2, 6, 5)
    m = x(2, 3)
    c = x(6)
    calls = {}
    for name, w in [("short", x(3)), ("long", x(60)), ("none", x(0)), ("matrix", x(2, 6))]:
        calls |= {
            f"group {name} weight": (a.native_group_norm, i, w, None, 2, 6, 5, 3, 1e-5),
            f"group {name} bias": (a.native_group_norm, i, None, w, 2, 6, 5, 3, 1e-5),
            f"group backward {name} weight": (a.native_group_norm_backward, i, i, m, m, w, 2, 6, 5, 3, mask3),
            f"layer backward {name} weight": (
                a.native_layer_norm_backward,
                i,
                i,
                [5],
                x(2, 6, 1),
                x(2, 6, 1),
                w,
                None,
                mask3,
            ),
            f"rms backward {name} weight": (a._fused_rms_norm_backward, i, i, [5], x(2, 6, 1), w, mask2),
            f"batch {name} weight": (a.native_batch_norm, i, w, None, None, None, True, 0.1, 1e-5),
            f"batch {name} bias": (a.native_batch_norm, i, None, w, None, None, True, 0.1, 1e-5),
            f"batch {name} running_mean": (a.native_batch_norm, i, None, None, w, c, False, 0.1, 1e-5),
            f"batch {name} running_var": (a.native_batch_norm, i, None, None, c, w, True, 0.1, 1e-5),
            f"batch backward {name} weight": (
                a.native_batch_norm_backward,
                i,
                i,
                w,
                None,
                None,
                c,
                c,
                True,
                1e-5,
                mask3,
            ),
            f"batch backward {name} running_mean": (
                a.native_batch_norm_backward,
                i,
                i,
                None,
                w,
                c,
                None,
                None,
                False,
                1e-5,
                mask3,
            ),
            f"batch backward {name} save_mean": (
                a.native_batch_norm_backward,
                i,
                i,
                None,
                None,
                None,
                w,
                c,
                True,
                1e-5,
                mask3,
            ),
            f"batch backward {name} save_invstd": (
                a.native_batch_norm_backward,
                i,
                i,
                None,
                None,
                None,
                c,
                w,
                True,
                1e-5,
                mask3,
            ),
        }
    for name, g in [("short", x(2, 6, 4)), ("long", x(2, 6, 50)), ("none", x(0)), ("of batch", x(1, 6, 5))]:
        calls |= {
            f"group backward {name} gradient": (
                a.native_group_norm_backward,
                g,
                i,
                m,
                m,
                None,
                2,
                6,
                5,
                3,
                mask3,
            ),
            f"layer backward {name} gradient": (
                a.native_layer_norm_backward,
                g,
                i,
                [5],
                x(2, 6, 1),
                x(2, 6, 1),
                None,
                None,
                mask3,
            ),
            f"rms backward {name} gradient": (a._fused_rms_norm_backward, g, i, [5], x(2, 6, 1), None, mask2),
            f"batch backward {name} gradient": (
                a.native_batch_norm_backward,
                g,
                i,
                None,
                None,
                None,
                c,
                c,
                True,
                1e-5,
                mask3,
            ),
        }
    for name, s in [("short", x(2)), ("none", x(0)), ("long", x(100))]:
        calls |= {
            f"group backward {name} mean": (
                a.native_group_norm_backward,
                i,
                i,
                s,
                m,
                None,
                2,
                6,
                5,
                3,
                mask3,
            ),
            f"group backward {name} rstd": (
                a.native_group_norm_backward,
                i,
                i,
                m,
                s,
                None,
                2,
                6,
                5,
                3,
                mask3,
            ),
            f"layer backward {name} mean": (
                a.native_layer_norm_backward,
                i,
                i,
                [5],
                s,
                x(2, 6, 1),
                None,
                None,
                mask3,
            ),
            f"layer backward {name} rstd": (
                a.native_layer_norm_backward,
                i,
                i,
                [5],
                x(2, 6, 1),
                s,
                None,
                None,
                mask3,
            ),
            f"rms backward {name} rstd": (a._fused_rms_norm_backward, i, i, [5], s, None, mask2),
        }
    for key in group:
        for value in (0, -1, -6, 7, 3, 1000):
            n, ch, hw = ({**group, key: value}[k] for k in ("N", "C", "HxW"))
            calls[f"group {key}={value}"] = (a.native_group_norm, i, None, None, n, ch, hw, 3, 1e-5)
            calls[f"group backward {key}={value}"] = (
                a.native_group_norm_backward,
                i,
                i,
                m,
                m,
                None,
                n,
                ch,
                hw,
                3,
                mask3,
            )
    for groups in (0, -3, 4, 7):
        calls[f"{groups} groups"] = (a.native_group_norm, i, None, None, 2, 6, 5, groups, 1e-5)
        calls[f"backward {groups} groups"] = (
            a.native_group_norm_backward,
            i,
            i,
            m,
            m,
            None,
            2,
            6,
            5,
            groups,
            mask3,
        )
    calls["layer of another shape"] = (
        a.native_layer_norm_backward,
        i,
        i,
        [6],
        x(2, 6, 1),
        x(2, 6, 1),
        None,
        None,
        mask3,
    )
    calls["batch of one dimension"] = (
        a.native_batch_norm_backward,
        c,
        c,
        None,
        None,
        None,
        c,
        c,
        True,
        1e-5,
        mask3,
    )
    calls["batch without statistics"] = (
        a.native_batch_norm_backward,
        i,
        i,
        None,
        None,
        None,
        None,
        None,
        False,
        1e-5,
        mask3,
    )
    return calls


@pytest.mark.parametrize("name", misfits())
def test_sizes_that_do_not_fit(name: str) -> None:
    function, *arguments = misfits()[name]
    with pytest.raises((RuntimeError, IndexError)):
        function(*arguments)


@pytest.mark.parametrize(
    "shape", [(64, 100), (8, 1000), (3, 5000), (32, 16, 10, 10), (1000, 3), (3, 7, 49, 3)], ids=str
)
@pytest.mark.parametrize("weight", [1.0, 0.75])
def test_gradients_that_are_zero(shape: tuple[int, ...], weight: float) -> None:
    """Constant rows or channels with a constant gradient: the rounding error of the mean must not become a gradient."""
    functional = torch.nn.functional
    channels = torch.full((shape[1],), weight, device="xpu")
    row = torch.full(shape[1:], weight, device="xpu")
    for value in (1.37, 0.0, -100.1):
        for norm in (
            lambda x: functional.layer_norm(x, shape[1:], row),
            lambda x: functional.batch_norm(x, None, None, channels, training=True),
            lambda x: functional.group_norm(x, 1, channels),
        ):
            x = torch.full(shape, value, device="xpu", requires_grad=True)
            y = norm(x)
            y.backward(torch.ones_like(y))
            assert x.grad.count_nonzero().item() == 0, value
