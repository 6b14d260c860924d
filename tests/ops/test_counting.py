"""Ranks, counts, histograms, unique elements and binary search, against PyTorch's CPU kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from comparing import assert_close
from openxpu import _bridge

REAL = [torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
OWN_KERNELS = os.environ.get("OPENXPU_POLICY") == "gpu" or torch.xpu.get_device_properties().type != "cpu"


def make(shape: tuple[int, ...], dtype: torch.dtype, spread: float = 20) -> torch.Tensor:
    """Return values of both signs with repetitions, without NaN."""
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) * spread).round()
    return x.abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_searchsorted(dtype: torch.dtype) -> None:
    for sequence, values in (
        (make((300,), dtype), make((5, 70), dtype)),
        (make((3, 4, 50), dtype), make((3, 4, 7), dtype)),
        (make((0,), dtype), make((3,), dtype)),
        (make((6,), dtype), make((0, 2), dtype)),
        (make((6,), dtype), make((), dtype)),
    ):
        order = sequence.argsort(dim=-1, stable=True)
        in_order = sequence.gather(-1, order)
        for right in (False, True):
            for narrow in (False, True):
                options = {"right": right, "out_int32": narrow}
                expected = torch.searchsorted(in_order, values, **options)
                actual = torch.searchsorted(in_order.to("xpu"), values.to("xpu"), **options)
                assert actual.dtype == expected.dtype and torch.equal(actual.cpu(), expected)
                actual = torch.searchsorted(
                    sequence.to("xpu"),
                    values.to("xpu"),
                    sorter=order.to("xpu"),
                    side="right" if right else "left",
                )
                assert torch.equal(actual.cpu(), expected.long())
                if sequence.dim() == 1:
                    actual = torch.bucketize(values.to("xpu"), in_order.to("xpu"), **options)
                    assert actual.dtype == expected.dtype and torch.equal(actual.cpu(), expected)


def test_searchsorted_outputs_and_layouts() -> None:
    sequence, values = torch.randn(40, 3).sort(0).values.t(), torch.randn(6, 3).t()
    expected = torch.searchsorted(sequence, values)
    out = torch.empty(6, 3, dtype=torch.int64, device="xpu").t()
    assert torch.searchsorted(sequence.to("xpu"), values.to("xpu"), out=out) is out
    assert torch.equal(out.cpu(), expected) and out.stride() == (1, 3)
    edges = torch.tensor([1.0, 2.0, torch.inf, torch.nan])
    for number in (1.5, 2, torch.inf, torch.nan):
        assert torch.searchsorted(edges.to("xpu"), number).item() == torch.searchsorted(edges, number).item()
        assert torch.bucketize(number, edges.to("xpu")).item() == torch.bucketize(number, edges).item()
    numbers = torch.tensor([1, 2, 3])  # a dtype other than that of the edges
    assert torch.equal(
        torch.bucketize(numbers.to("xpu"), edges.to("xpu")).cpu(), torch.bucketize(numbers, edges)
    )
    with pytest.raises(RuntimeError, match="opposites"):
        torch.searchsorted(edges.to("xpu"), edges.to("xpu"), right=True, side="left")
    with pytest.raises(RuntimeError, match="sorter index out of range"):
        torch.searchsorted(edges.to("xpu"), edges.to("xpu"), sorter=torch.arange(1, 5, device="xpu"))
    with pytest.raises(RuntimeError, match="dtype is wrong"):
        torch.searchsorted(edges.to("xpu"), edges.to("xpu"), out=torch.empty(4, device="xpu"))
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="boundary tensor is non-contiguous"):
            torch.searchsorted(sequence.to("xpu"), values.to("xpu"))
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_histc_of_integers(dtype: torch.dtype) -> None:
    """As on CUDA, unlike on the CPU: mixture-of-experts models count their tokens this way."""
    x = torch.randint(0, 100, (50, 70)).to(dtype)
    for bins, low, high in ((100, 0, 99), (7, 10, 80), (8, 0, 0)):
        for view in (x, x.t(), x[:, ::3], x[:0]):
            actual = torch.histc(view.to("xpu"), bins, low, high)
            known = view.double() if low == high else view[(view >= low) & (view <= high)].double()
            wanted = torch.histc(known, bins, low, high) if known.numel() else torch.zeros(bins)
            assert actual.dtype == dtype and torch.equal(actual.cpu().long(), wanted.to(dtype).long())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histc(dtype: torch.dtype) -> None:
    x = make((50, 70), dtype)
    x[3, 5:9] = torch.nan
    # integers, with bounds at halves: rounding does not matter at the edges of bins
    for bins, low, high in ((10, -25.5, 24.5), (1, -3.5, 3.5), (5000, -2500.5, 2499.5)):
        for view in (x, x.t(), x[:, ::3], x[:0]):
            expected = torch.histc(view, bins, low, high)
            actual = torch.histc(view.to("xpu"), bins, low, high)
            assert actual.dtype == dtype and torch.equal(actual.cpu(), expected)
    out = torch.empty(20, dtype=dtype, device="xpu")[::2]
    torch.histc(x.to("xpu"), 10, -25.5, 24.5, out=out)
    assert torch.equal(out.cpu(), torch.histc(x, 10, -25.5, 24.5))
    known = torch.tensor([1.0, 2.0, 2.0, 5.0], dtype=dtype)
    assert torch.histc(known.to("xpu"), 4).tolist() == torch.histc(known, 4).tolist()
    assert torch.histc(known.to("xpu")[:1], 4).tolist() == torch.histc(known[:1], 4).tolist()
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(known.to("xpu"), 0)
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(known.to("xpu"), 3, 2, 1)
    with pytest.raises(RuntimeError, match="not finite"):
        torch.histc(x.to("xpu"), 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_bincount(dtype: torch.dtype) -> None:
    x = torch.randint(0, 100, (4000,)).to(dtype)
    for view in (x, x[::3], x[:1]):
        for least in (0, 50, 9000):
            assert torch.equal(
                torch.bincount(view.to("xpu"), minlength=least).cpu(), torch.bincount(view, minlength=least)
            )
            for weights in (torch.rand(len(view)), torch.rand(len(view)).double(), torch.arange(len(view))):
                actual = torch.bincount(view.to("xpu"), weights.to("xpu"), least)
                expected = torch.bincount(view, weights, least)
                assert actual.dtype == expected.dtype
                assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert torch.bincount(x[:0].to("xpu"), minlength=3).tolist() == [0, 0, 0]


def test_bincount_refuses_what_the_cpu_refuses() -> None:
    for wrong in (torch.tensor([1, -1]), torch.ones(2, 2, dtype=torch.int64), torch.ones(3)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            torch.bincount(wrong.to("xpu"))
    with pytest.raises(RuntimeError, match="same length"):
        torch.bincount(torch.tensor([1, 2], device="xpu"), torch.rand(3, device="xpu"))


MANY = 2**40  # bins: more memory than any machine has


@pytest.mark.parametrize(
    "count",
    [
        lambda: torch.bincount(torch.tensor([1, MANY], device="xpu")),
        lambda: torch.bincount(torch.tensor([1, MANY], device="xpu"), torch.ones(2, device="xpu")),
        lambda: torch.bincount(torch.tensor([1, 2], device="xpu"), minlength=MANY),
        lambda: torch.bincount(torch.empty(0, dtype=torch.int64, device="xpu"), minlength=MANY),
        lambda: torch.histc(torch.rand(5, device="xpu"), MANY),
        lambda: torch.histogram(torch.rand(5, device="xpu"), MANY),
        lambda: torch.histogramdd(torch.rand(5, 2, device="xpu"), [2**20, 2**20]),
    ],
)
def test_more_bins_than_there_is_memory(count: Callable[[], object]) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        count()


def test_more_bins_than_numbers() -> None:
    with pytest.raises(RuntimeError, match="maximum value of input overflowed"):
        torch.bincount(torch.tensor([2**63 - 1], device="xpu"))
    with pytest.raises(RuntimeError, match="too many bins"):
        torch.histogramdd(torch.rand(5, 4, device="xpu"), [2**16] * 4)


def test_many_bins() -> None:
    """Above 2**24 bins, libxpu's kernels count on CPU devices, too."""
    x, weights = torch.tensor([3, 2**24, 3, 0]), torch.tensor([0.5, 2, 0.25, 4])
    for given in (None, weights):
        actual = torch.bincount(x.to("xpu"), None if given is None else given.to("xpu"))
        assert torch.equal(actual.cpu(), torch.bincount(x, given))
    x = torch.tensor([0, 0.1, 0.7, 1, 2])
    assert torch.histc(x.to("xpu"), 2**24 + 8, 0, 1).nonzero().numel() == 4
    assert torch.histogram(x.to("xpu"), 2**24 + 8, range=(0, 1)).hist.sum() == 4


def test_weighted_bincount_repeats_where_it_is_asked_to() -> None:
    x, weights = torch.randint(50, (20000,)).to("xpu"), torch.rand(20000).to("xpu")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        first = torch.bincount(x, weights)
        assert all(torch.equal(first, torch.bincount(x, weights)) for _ in range(3))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.bool, *REAL], ids=str)
def test_unique(dtype: torch.dtype) -> None:
    for shape in ((), (1,), (0,), (3, 0), (700,), (30, 50)):
        x = make(shape, torch.int64, 3).abs().to(dtype)
        for function in (torch.unique, torch.unique_consecutive):
            options = {"return_inverse": True, "return_counts": True}
            expected, actual = function(x, **options), function(x.to("xpu"), **options)
            for mine, theirs in zip(actual, expected, strict=True):
                assert mine.dtype == theirs.dtype and torch.equal(mine.cpu(), theirs)
            assert torch.equal(function(x.to("xpu")).cpu(), function(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_unique_slices(dtype: torch.dtype) -> None:
    for shape, dim in (((900, 3), 0), ((4, 60, 2), 1), ((2, 300), -1), ((5,), 0), ((0, 3), 0), ((1, 7), 0)):
        x = make(shape, torch.int64, 1).abs().to(dtype)
        for function in (torch.unique, torch.unique_consecutive):
            options = {"return_inverse": True, "return_counts": True, "dim": dim}
            if x.numel() == 0 and function is torch.unique_consecutive:
                continue
            expected, actual = function(x, **options), function(x.to("xpu"), **options)
            for mine, theirs in zip(actual, expected, strict=True):
                assert torch.equal(mine.cpu(), theirs)
    with pytest.raises(RuntimeError, match="0 sized"):
        torch.unique(torch.empty(3, 0, device="xpu"), dim=0)


def test_each_nan_is_different() -> None:
    x = torch.tensor([2.0, torch.nan, 1.0, torch.nan, 2.0])
    values, counts = torch.unique(x.to("xpu"), return_counts=True)
    assert values[:2].tolist() == [1, 2] and values[2:].isnan().all() and counts.tolist() == [1, 2, 1, 1]


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_medians(dtype: torch.dtype) -> None:
    long = [(40000,), (2, 20000)] if dtype in (torch.float32, torch.int16) else []
    for shape in ((), (1,), (6,), (7, 40), (3, 301, 4), *long):
        x = make(shape, dtype)
        nan = x.clone()
        if dtype.is_floating_point and x.numel() > 5:
            nan.view(-1)[::5] = torch.nan
            nan.view(-1)[0] = -0.0
        for values in (x, nan):
            for function in (torch.median, torch.nanmedian):
                assert_close(function(values.to("xpu")), function(values), rtol=0, atol=0, equal_nan=True)
                for dim in range(-1, max(x.dim() - 1, 0)):
                    for keep in (False, True) if x.numel() < 10000 else (False,):
                        actual = function(values.to("xpu"), dim, keep)
                        expected = function(values, dim, keep).values
                        assert_close(actual.values, expected, rtol=0, atol=0, equal_nan=True)
                        if x.dim() == 0:
                            continue
                        there = actual.indices.cpu() if keep else actual.indices.cpu().unsqueeze(dim)
                        torch.testing.assert_close(
                            values.gather(dim, there),
                            expected if keep else expected.unsqueeze(dim),
                            rtol=0,
                            atol=0,
                            equal_nan=True,
                        )
    assert torch.empty(0, device="xpu").median().isnan()
    all_nan = torch.full((3, 4), torch.nan, device="xpu")
    assert all_nan.nanmedian().isnan() and all_nan.nanmedian(1).values.isnan().all()


def test_median_and_kthvalue_into_given_outputs() -> None:
    x = torch.randperm(6 * 50).float().view(6, 50)
    values = torch.empty(12, device="xpu")[::2]
    indices = torch.empty(12, dtype=torch.int64, device="xpu")[::2]
    for function in (lambda t, **k: torch.median(t, 1, **k), lambda t, **k: torch.kthvalue(t, 7, 1, **k)):
        function(x.to("xpu"), out=(values, indices))
        expected = function(x)
        assert torch.equal(values.cpu(), expected.values) and torch.equal(indices.cpu(), expected.indices)
    with pytest.raises(RuntimeError, match="out of range"):
        x.to("xpu").kthvalue(51, 1)
    with pytest.raises(IndexError):
        torch.empty(3, 0, device="xpu").median(1)
    assert torch.empty(0, 3, device="xpu").median(1).values.shape == (0,)
    for k in (1, 20000, 30000):
        long = torch.randperm(30000).int().view(1, -1)
        actual = long.to("xpu").kthvalue(k, 1)
        assert actual.values.item() == k - 1 and actual.indices.item() == (long == k - 1).nonzero()[0, 1]


@pytest.mark.parametrize("dtype", [torch.bool, *REAL], ids=str)
def test_mode(dtype: torch.dtype) -> None:
    for shape, dim in (((), 0), ((1,), 0), ((500,), 0), ((6, 1000), 1), ((90, 7), 0), ((0, 3), 1)):
        x = make(shape, torch.int64, 3).abs().to(dtype)
        for keep in (False, True):
            actual, expected = torch.mode(x.to("xpu"), dim, keep), torch.mode(x, dim, keep)
            assert torch.equal(actual.values.cpu(), expected.values)
            if x.dim() > 0 and x.numel() > 0:
                there = actual.indices.cpu() if keep else actual.indices.cpu().unsqueeze(dim)
                assert torch.equal(x.gather(dim, there), torch.mode(x, dim, True).values)


def test_isin() -> None:
    for elements, tests in (
        (torch.tensor([[1.0, torch.nan], [3.0, 4.5]]), torch.tensor([4.5, torch.nan, 1.0])),
        (torch.arange(300).view(20, 15).t(), torch.arange(0, 300, 7)),
        (torch.arange(6, dtype=torch.uint8), torch.tensor([2, 300])),
        (torch.arange(4), torch.empty(0, dtype=torch.int64)),
    ):
        for invert in (False, True):
            actual = torch.isin(elements.to("xpu"), tests.to("xpu"), invert=invert)
            assert torch.equal(actual.cpu(), torch.isin(elements, tests, invert=invert))


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_mode_into_out_tensors(dtype: torch.dtype) -> None:
    x = make((5, 40), dtype, spread=2)
    values, indices = torch.empty(40, 2, dtype=dtype, device="xpu"), torch.empty(40, device="xpu").long()
    torch.mode(x.to("xpu"), 0, out=(values[:, 1], indices))
    assert torch.equal(values[:, 1].cpu(), x.mode(0).values)
    assert torch.equal(x.gather(0, indices[None].cpu())[0], x.mode(0).values)


@pytest.mark.parametrize(
    "refused",
    [
        lambda x: x.aminmax(),
        lambda x: x.cummax(0),
        lambda x: x.scatter_reduce(0, torch.tensor([0, 0], device="xpu"), x, "amax"),
        lambda x: torch.bincount(x.real),
        lambda x: torch.histc(x),
    ],
)
def test_words_of_what_a_dtype_lacks(refused: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(
        (NotImplementedError, RuntimeError),
        match=r"\"\w+\" not implemented for '(ComplexFloat|Float)'|does not support complex",
    ):
        refused(torch.tensor([1 + 1j, 2], device="xpu"))


# NaN and values outside are not counted; an edge belongs to the bin on its right, the last edge to the last bin.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(dtype: torch.dtype, weighted: bool, density: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 300, dtype=torch.float64).mul(8).round().div(4).to(dtype)
    weight = torch.rand(x.shape, dtype=dtype) if weighted else None
    on_xpu = weight.to("xpu") if weighted else None
    limit = 1e-13 if dtype == torch.float64 else 1e-5
    for bins in (
        {"bins": 10},
        {"bins": 7, "range": (-2.0, 1.5)},
        {"bins": 100, "range": (0.5, 0.5)},
        {"bins": torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.25, 4.0], dtype=dtype)},
        {"bins": torch.tensor([0.25, 0.5], dtype=dtype)},
    ):
        values = (
            x if isinstance(bins["bins"], int) and "range" not in bins else x.masked_fill(x == 1, torch.nan)
        )
        expected = torch.histogram(values, weight=weight, density=density, **bins)
        mine = {k: v.to("xpu") if isinstance(v, torch.Tensor) else v for k, v in bins.items()}
        actual = torch.histogram(values.to("xpu"), weight=on_xpu, density=density, **mine)
        for a, e in zip(actual, expected, strict=True):
            assert_close(a, e, rtol=limit, atol=limit, equal_nan=True)
        out = (torch.empty(0, dtype=dtype, device="xpu"), torch.empty(0, dtype=dtype, device="xpu"))
        torch.histogram(values.to("xpu"), weight=on_xpu, density=density, **mine, out=out)
        assert torch.equal(out[1], actual.bin_edges)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram_of_several_dimensions(weighted: bool, density: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 90, 3, dtype=torch.float64).mul(4).round().div(2)
    weight = torch.rand(5, 90, dtype=torch.float64) if weighted else None
    on_xpu = weight.to("xpu") if weighted else None
    edges = [
        torch.tensor(e, dtype=torch.float64) for e in ([-1.0, 0.0, 2.5], [-9.0, 9.0], [0.0, 0.5, 1.0, 1.5])
    ]
    for bins, more in (([4, 1, 7], {}), ([4, 1, 7], {"range": [-1.0, 1, -2, 2, 0, 0]}), (edges, {}), (5, {})):
        expected = torch.histogramdd(x, bins, weight=weight, density=density, **more)
        mine = [e.to("xpu") for e in bins] if bins is edges else bins
        actual = torch.histogramdd(x.to("xpu"), mine, weight=on_xpu, density=density, **more)
        assert_close(actual.hist, expected.hist, equal_nan=True)
        for a, e in zip(actual.bin_edges, expected.bin_edges, strict=True):
            assert_close(a, e)


def test_histograms_of_what_does_not_fit() -> None:
    x = torch.randn(6, device="xpu")
    for message, call in (
        ("is not finite", lambda: torch.histogram(x.log(), 3)),
        ("min should not exceed max", lambda: torch.histogram(x, 3, range=(2.0, 1.0))),
        ("bins must be > 0", lambda: torch.histogram(x, 0)),
        ("same dtype", lambda: torch.histogram(x, torch.tensor([0.0, 1.0], device="xpu").double())),
        ("same shape", lambda: torch.histogram(x, 3, weight=x[:3])),
        ("size of bins must be equal", lambda: torch.histogramdd(x.view(3, 2), [3, 3, 3])),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
