"""Scatter and similar operators: combined elements, in every order and dtype."""

from __future__ import annotations

import os

import pytest
import torch
from comparing import assert_close
from inner_run import passes
from processes import run_python

from .indexing_samples import DTYPES, HALVES, exact, refused, same
from .test_index import by_dtype, numbers

REDUCED = [d for d in DTYPES if not d.is_complex]
by_real = pytest.mark.parametrize("dtype", REDUCED, ids=lambda d: str(d)[6:])


@by_dtype
def test_scatter(dtype: torch.dtype) -> None:
    x, v = numbers(6, 7, 8, dtype=dtype), numbers(5, 6, 7, dtype=dtype)
    for dim in range(3):
        i = torch.stack([torch.randperm(x.size(dim))[: v.size(dim)] for _ in range(v.numel() // v.size(dim))])
        shape = [v.size(dim)] + [n for d, n in enumerate(v.shape) if d != dim]
        i = i.t().reshape(shape).movedim(0, dim)
        same(lambda x, d, i, v: x.scatter_(d, i, v), x, dim, i, v)
        same(lambda x, d, i: x.scatter_(d, i, 1), x, dim, i)
        many = i % 3
        few, some = exact(x), exact(v)
        same(lambda x, d, i, v: x.scatter_add_(d, i, v), few, dim, many, some)
        same(lambda x, d, i, v: x.scatter_(d, i, v, reduce="multiply"), few, dim, many[:, :2], some)
        same(lambda x, d, i, v: x.scatter_add_(d, i, v), few, dim, many.int(), some)
        bad = many.clone()
        bad[0, 1, 2] = 99
        same(lambda x, d, i, v: x.scatter_add_(d, i, v), x, dim, bad, v)
        same(lambda x, d, i, v: x.scatter_(d, i, v), x, dim, bad, v)
    same(lambda x, i, v: x.scatter_(0, i, v), x, torch.empty(0, 6, 7, dtype=torch.long), v)
    same(lambda x, i, v: x.scatter_(0, i, v), torch.tensor(1.0), torch.tensor(0), torch.tensor(2.0))


@by_real
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_reduce(dtype: torch.dtype, reduce: str, include_self: bool) -> None:
    if dtype == torch.bool and reduce == "mean":
        pytest.skip("no mean of booleans")
    x = exact((numbers(6, 7, dtype=dtype).to(torch.float32) % 4).to(dtype))
    v = exact((numbers(9, 7, dtype=dtype).to(torch.float32) % 4).to(dtype))
    i = torch.randint(5, (9, 7))
    tolerance = 0 if dtype in HALVES else 1e-6
    same(
        lambda x, i, v: x.scatter_reduce(0, i, v, reduce, include_self=include_self), x, i, v, rtol=tolerance
    )
    same(
        lambda x, i, v: x.t().scatter_reduce(1, i.t(), v.t(), reduce, include_self=include_self),
        x,
        i,
        v,
        rtol=tolerance,
    )
    if reduce != "sum" and dtype != torch.bool:
        same(
            lambda x, i, v: x.index_reduce(0, i, v, reduce, include_self=include_self),
            x,
            i[:, 0],
            v,
            rtol=tolerance,
        )


def test_nan_wins() -> None:
    x = torch.tensor([1.0, float("nan"), 3.0])
    i, v = torch.tensor([0, 1, 2, 2]), torch.tensor([float("nan"), 0.0, 9.0, -9.0])
    for reduce in ("amax", "amin"):
        same(lambda x, i, v, r=reduce: x.scatter_reduce(0, i, v, r), x, i, v)


@by_dtype
def test_index_add(dtype: torch.dtype) -> None:
    x = numbers(6, 7, 8, dtype=dtype)
    for dim in range(3):
        i = torch.tensor([2, 0, 2, 5, 2])
        v = numbers(*[5 if d == dim else n for d, n in enumerate(x.shape)], dtype=dtype)
        few, some = exact(x), exact(v)
        same(lambda x, dim, i, v: x.index_add_(dim, i, v), few, dim, i, some)
        same(lambda x, dim, i, v: x.index_add(dim, i.int(), v, alpha=2), few, dim, i, some, rtol=1e-6)
        refused(lambda x, dim, i, v: x.index_add_(dim, i, v), x, dim, i + 9, v)
    same(lambda x, i, v: x.index_add_(0, i, v), torch.tensor(1.0), torch.tensor([0]), torch.tensor([2.0]))


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.complex64],
    ids=lambda d: str(d)[6:],
)
@pytest.mark.parametrize("columns", [33, 100, 300])
@pytest.mark.parametrize("count", [200, 450], ids=["few", "many"])
def test_rows(dtype: torch.dtype, columns: int, count: int) -> None:
    """Rows shared by lanes, in whole and partial blocks; some destinations are repeated, others unused."""
    x, v = (torch.randint(5, (n, columns)).to(dtype) for n in (150, count))  # small integers: sums are exact
    i = torch.randint(140, (count,))
    same(lambda x, i, v: x.index_add_(0, i, v), x, i, v)
    same(lambda x, i, v: x.index_add_(0, i.int(), v), x[:, 1:], i, v[:, :-1])
    same(lambda x, i, v: x.index_put_((i - 150,), v, accumulate=True), x, i, v)
    same(lambda x, i, v: x.index_add_(1, i, v), x[:120].view(2, 60, -1), i % 60, torch.stack((v, v)))
    refused(lambda x, i, v: x.index_add_(0, i, v), x, i + 100, v)


def test_rows_without_places() -> None:
    """There is no valid destination."""
    x, i, v = torch.zeros(0, 64), torch.zeros(10, dtype=torch.int64), torch.ones(10, 64)
    for function in (torch.Tensor.index_add_, torch.Tensor.index_copy_):
        with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
            function(x.to("xpu"), 0, i.to("xpu"), v.to("xpu"))
            torch.xpu.synchronize()


def test_rows_at_one_place() -> None:
    """An expanded tensor's elements are one element: everything is added to it, as on the CPU."""
    i, v = torch.randint(150, (4000,)), torch.ones(4000, 512)
    for _ in range(5):
        x = torch.zeros(1, 512, device="xpu")
        x.expand(150, 512).index_put_((i.to("xpu"),), v.to("xpu"), accumulate=True)
        assert torch.equal(x.cpu(), torch.full((1, 512), 4000.0))


@pytest.mark.parametrize("reduce", ["prod", "amax", "amin", "mean"])
def test_reduced_rows(reduce: str) -> None:
    """All go to one of many destinations, or to the last and the first."""
    x, v = torch.randn(150, 200, dtype=torch.float64), torch.randn(300, 200, dtype=torch.float64)
    for i in (torch.full((300,), 7), torch.tensor([149] * 200 + [0] * 100)):
        same(lambda x, i, v: x.index_reduce_(0, i, v, reduce), x, i, v, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@by_real
def test_rows_of_any_width(dtype: torch.dtype, reduce: str) -> None:
    """Widths around 16 and 64 columns, few and many destinations, runs of equal indices; NaN in a column."""
    for columns in (31, 32, 47, 64, 65, 143, 1089, 2100):
        for places, index in (
            (1, torch.zeros(50)),
            (3, torch.arange(90) // 40),
            (70, torch.randint(70, (60,))),
            (130, torch.arange(64) * 2),
        ):
            i = index.long()
            x, v = (torch.randint(1, 9, (n, columns)).to(dtype) for n in (places, len(i)))
            if reduce == "prod":
                v = (v % 2 + 1).to(dtype)
            if dtype.is_floating_point:
                v[len(i) // 2, columns // 3] = float("nan")
            wide = wide_sums(x), i[:, None].expand(-1, columns), wide_sums(v)
            wanted = wide[0].scatter_reduce(0, wide[1], wide[2], reduce)
            there = x.to("xpu"), i.to("xpu"), v.to("xpu")
            if reduce == "sum":
                got = there[0].index_add(0, there[1], there[2])
            else:
                got = there[0].index_reduce(0, there[1], there[2], reduce)
            if not dtype.is_floating_point:
                right(got, wanted)
                continue
            assert_close(got, wanted.to(dtype), rtol=torch.finfo(dtype).eps, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_places_without_elements_keep_their_bits(dtype: torch.dtype, reduce: str) -> None:
    """Payloads of quiet NaN and signs of zeros, in numbers of destinations around vectors and blocks of them."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    nan = {
        torch.bfloat16: 0x7FE5,
        torch.float16: 0x7E5A,
        torch.float32: 0x7FE00005,
        torch.float64: 0x7FF8 << 48 | 5,
    }
    for places in (1, 15, 16, 17, 1000, 1024, 1041, 30_000):
        x = torch.zeros(places, 2, dtype=dtype)
        x.view(bits)[::2] = nan[dtype]
        x[1::2] = -0.0
        i = torch.arange(0, places, 3)
        i, v = i.repeat(40_000 // len(i) + 1), torch.ones((), dtype=dtype)
        for part in (x, x[:, 0], x[:, 0].contiguous()):
            index = i if part.dim() == 1 else i[:, None].expand(-1, 2)
            values = v.expand(index.shape).contiguous().to("xpu")
            got = part.to("xpu").scatter_reduce(0, index.to("xpu"), values, reduce).cpu()
            rest = torch.arange(places) % 3 > 0
            assert torch.equal(got[rest].view(bits), part[rest].contiguous().view(bits)), (places, part.shape)


@pytest.mark.skipif(
    os.environ.get("OPENXPU_POLICY") == "gpu" or torch.xpu.get_device_properties().type != "cpu",
    reason="GPUs round each sum",
)
@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: str(d)[6:])
def test_rows_are_rounded_once(dtype: torch.dtype) -> None:
    x, v = torch.randn(150, 130, dtype=dtype), torch.rand(5000, 130, dtype=dtype)
    i = torch.arange(5000) % 150
    sums = x.to("xpu").index_add_(0, i.to("xpu"), v.to("xpu")).cpu()
    wanted = x.double().index_add_(0, i, v.double())
    torch.testing.assert_close(sums.double(), wanted, rtol=0.51 * torch.finfo(dtype).eps, atol=0.0)


SORTED = """
import numpy as np
import torch

# NumPy's ufunc.at takes the elements in order; PyTorch's CPU kernels of some processors don't.
def run(function, reference, x, *tensors):
    same = [function(*(t.to("xpu", copy=True) for t in (x, *tensors))).cpu() for _ in range(2)]
    want = x.clone()
    reference(want.numpy(), *(t.numpy() for t in tensors))
    assert torch.equal(same[0], same[1]), "differs from run to run"
    assert torch.equal(same[0], want), (same, want)

def put(x, i, v):
    x[i] = v

torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
for n, c in ((70, 1), (1000, 3), (3001, 40), (5000, 1)):
    x, v, i = torch.randn(10, c), torch.randn(n, c), torch.randint(-10, 10, (n,))
    spread, columns = (i[:, None] + torch.arange(c)) % 10, np.arange(c)
    run(lambda x, i, v: x.index_put_((i,), v, accumulate=True), np.add.at, x, i, v)
    run(lambda x, i, v: torch.ops.aten.index_put_(x.t(), [None, i], v.t(), True).t(), np.add.at, x, i, v)
    run(lambda x, i, v: x.index_put_((i,), v), put, x, i, v)
    run(lambda x, i, v: x.index_add_(0, i, v), np.add.at, x, i % 10, v)
    run(lambda x, i, v: x.scatter_add_(0, i, v), lambda x, i, v: np.add.at(x, (i, columns), v), x, spread, v)
    run(lambda x, i, v: x.scatter_reduce_(0, i, v, "amax"), lambda x, i, v: np.maximum.at(x, (i, columns), v), x,
        spread, v)
    cube, j = torch.randn(4, 5, c), torch.randint(5, (n // 7, 7))
    run(lambda x, i, j, v: x.index_put_((i, j), v, accumulate=True),
        lambda x, i, j, v: np.add.at(x, (i, j), v), cube, i[: j.numel()].view_as(j) % 4, j,
        v[: j.numel()].view(*j.shape, c))
try:
    indices = (torch.full((99,), 7, device="xpu"),)
    torch.zeros(3, device="xpu").index_put_(indices, torch.ones(99, device="xpu"), accumulate=True)
    torch.xpu.synchronize()
except IndexError:
    print("refused")
"""


# By default: half-type sums are rounded once, and also where few elements share a destination.
UNASKED = """
import torch

torch.manual_seed(0)
for dtype in (torch.float16, torch.bfloat16):
    x, v, i = torch.randn(16, 64).to(dtype), torch.rand(30000, 64).to(dtype), torch.randint(16, (30000,))
    ours = x.to("xpu").index_put_((i.to("xpu"),), v.to("xpu"), accumulate=True)
    wanted = x.double().index_put_((i,), v.double(), accumulate=True)
    torch.testing.assert_close(ours.cpu().double(), wanted, rtol=0.51 * torch.finfo(dtype).eps, atol=0.0)
for n in (3, 16):
    x, v, i = torch.randn(5, 200, 300), torch.randn(n, 200, 300), torch.randint(5, (n, 200, 300))
    for name in ("sum", "prod"):
        ours = x.to("xpu").scatter_reduce(0, i.to("xpu"), v.to("xpu"), name)
        assert torch.equal(ours.cpu(), x.scatter_reduce(0, i, v, name)), (n, name)
print("refused")
"""


@pytest.mark.parametrize("code", [SORTED, UNASKED], ids=["asked", "unasked"])
def test_sums_in_order(code: str) -> None:
    """What GPUs do with and without use_deterministic_algorithms, on a CPU device."""
    assert run_python(code, env={"OPENXPU_POLICY": "gpu"}).stdout == "refused\n"


# As on processors with many threads.
PARTITIONED = """
import torch

torch.manual_seed(0)
n = 70_001
for places in (40_000, 100_003):
    every = torch.randint(places, (n,)), torch.randint(places, (n,)).sort().values, torch.full((n,), places - 1)
    wide = [torch.float64] * torch.xpu.get_device_properties().has_fp64
    for dtype in (torch.float32, *wide, torch.bfloat16, torch.int64, torch.uint8, torch.complex64):
        for i in every:
            x, v = torch.randint(9, (places,)).to(dtype), torch.randint(1, 3, (n,)).to(dtype)
            for to, there in ((x, x.to("xpu")), (x.repeat(3)[::3], x.repeat(3).to("xpu")[::3])):
                wanted = to.clone().scatter_add_(0, i, v)
                got = there.clone().scatter_add_(0, i.to("xpu"), v.to("xpu"))
                if dtype == torch.bfloat16:
                    wanted = to.double().scatter_add_(0, i, v.double()).to(dtype)
                assert torch.equal(got.cpu(), wanted), (places, dtype)
            if dtype.is_complex:
                continue
            wanted = x.scatter_reduce(0, i, v, "amax")
            assert torch.equal(x.to("xpu").scatter_reduce(0, i.to("xpu"), v.to("xpu"), "amax").cpu(), wanted)
    columns = 7
    x, v = (torch.randn(shape, dtype=(*wide, torch.float32)[0]) for shape in ((places // columns, columns), n))
    for i in (i % (places // columns * columns) for i in every):
        rows, column = i // columns, i % columns - columns
        wanted = x.index_put((rows, column), v, accumulate=True)
        got = x.to("xpu").index_put((rows.to("xpu"), column.to("xpu")), v.to("xpu"), accumulate=True)
        torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=1e-9 if wide else 0.05)  # up to all in one place
long = torch.randint(1 << 20, ((1 << 22) + 5,))  # more than are partitioned at a time
x, v = torch.zeros(1 << 20, dtype=torch.int32), torch.arange(len(long), dtype=torch.int32)
got = x.to("xpu").scatter_add_(0, long.to("xpu"), v.to("xpu"))
assert torch.equal(got.cpu(), x.scatter_add_(0, long, v))
i[n // 2] = places
x = torch.zeros(places, device="xpu")
try:
    x.scatter_add_(0, i.to("xpu"), torch.ones(n, device="xpu"))
    torch.xpu.synchronize()
except (IndexError, RuntimeError) as error:
    is_gpu = torch.xpu.get_device_capability()["type"] == "gpu"
    where = f"a dimension of size {places}" if is_gpu else f"dimension 0 with size {places}"
    assert isinstance(error, IndexError if is_gpu else RuntimeError)
    assert f"index {places} is out of bounds for {where}" in str(error), error
    assert x.sum() == n - 1
    print("refused")
"""


def test_long_lines_by_parts_of_their_destinations() -> None:
    assert run_python(PARTITIONED, env={"OPENXPU_TUNING": "scatter_partition=1"}).stdout == "refused\n"


def test_deterministic() -> None:
    x, v, i = torch.zeros(10, 3), torch.randn(1000, 3), torch.randint(10, (1000,))
    torch.use_deterministic_algorithms(True)
    try:
        same(lambda x, i, v: x.index_put_((i,), v, accumulate=True), x, i, v)
        same(lambda x, i, v: x.index_put_((i,), v), x, i, v)
        same(lambda x, i, v: x.index_copy_(0, i, v), x, i, v)
        same(lambda x, i, v: x.index_add_(0, i, v), x, i, v)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_the_largest_integers(name: str) -> None:
    source = torch.tensor([5, 7, 2**63 + 9], dtype=torch.uint64, device="xpu")
    index, out = torch.tensor([0, 0, 1], device="xpu"), torch.zeros(2, dtype=torch.uint64, device="xpu")
    got = out.scatter_reduce(0, index, source, name, include_self=False)
    assert got.tolist() == [7 if name == "amax" else 5, 2**63 + 9]


# Elements, destinations, columns, sorted: one destination, few, some, many, all different, more than elements.
SHAPES = [
    (40_000, 1, 1, False),
    (40_000, 100, 1, False),
    (40_000, 100, 1, True),
    (40_000, 5_000, 1, False),
    (40_000, 40_000, 1, True),
    (1_000, 30_000, 1, False),
    (3_000, 1, 5, True),
    (300, 7, 200, False),
    (40, 3_000, 60, False),
    (900, 33, 64, False),
    (900, 33, 64, True),
    (900, 1_300, 64, True),
]


def wide_sums(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor in a type whose sums neither round nor wrap visibly."""
    return x.to(
        torch.complex128 if x.is_complex() else torch.float64 if x.is_floating_point() else torch.int64
    )


def right(got: torch.Tensor, wanted: torch.Tensor, epsilons: float = 0.51) -> None:
    """Assert that a result equals the wide one, rounded once if it is in half precision."""
    if got.dtype == torch.bool:
        wanted = wanted != 0
    exact = not (got.is_floating_point() or got.is_complex())
    half = got.dtype in HALVES
    rtol = (
        0.0
        if exact
        else epsilons * torch.finfo(got.dtype).eps
        if half
        else 1e-12
        if got.dtype in (torch.float64, torch.complex128)
        else 2e-5
    )
    atol = 0.0 if exact else 1e-6 if half else 1e-4 * rtol if rtol < 1e-9 else 1e-5
    torch.testing.assert_close(
        wide_sums(got.cpu()), wide_sums(wanted.to(got.dtype) if exact else wanted), rtol=rtol, atol=atol
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@by_dtype
def test_sums_of_any_shape(dtype: torch.dtype, shape: tuple[int, int, int, bool]) -> None:
    """All operators that add by index, against sums in a wider type."""
    elements, places, columns, in_order = shape
    rows = torch.randint(places, (elements,))
    if in_order:
        rows = rows.sort().values
    index = rows[:, None] if columns == 1 else torch.randint(places, (elements, columns))
    integers = not (dtype.is_floating_point or dtype.is_complex)
    low, high = (0, 2) if dtype == torch.bool else (0, 120)
    x, v = (
        torch.randint(low, high, (n, columns)).to(dtype)
        if integers
        else torch.rand(n, columns, dtype=torch.float64).to(dtype)
        for n in (places, elements)
    )
    there = [t.to("xpu") for t in (x, index, v, rows)]
    right(there[0].scatter_add(0, there[1], there[2]), wide_sums(x).scatter_add(0, index, wide_sums(v)))
    by_rows = wide_sums(x).index_add(0, rows, wide_sums(v))
    right(there[0].index_add(0, there[3], there[2]), by_rows)
    right(there[0].index_put((there[3] - places,), there[2], accumulate=True), by_rows)
    right(there[0].t().contiguous().index_add(1, there[3], there[2].t()).t(), by_rows)
    if columns == 1:
        pairs = torch.zeros(places, 3, dtype=dtype)
        wanted = wide_sums(pairs).index_put((rows, rows % 3), wide_sums(v[:, 0]), accumulate=True)
        right(pairs.to("xpu").index_put((there[3], there[3] % 3), there[2][:, 0], accumulate=True), wanted)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8],
    ids=lambda d: str(d)[6:],
)
def test_reductions_of_any_shape(dtype: torch.dtype, name: str, shape: tuple[int, int, int, bool]) -> None:
    elements, places, columns, in_order = shape
    rows = torch.randint(places, (elements,))
    if in_order:
        rows = rows.sort().values
    index = rows[:, None] if columns == 1 else torch.randint(places, (elements, columns))
    v = torch.randint(0, 120, (elements, columns))
    if name == "prod":
        v = torch.where(v > 60, 1, -1) if dtype != torch.uint8 else v % 2 + 1
    elif dtype.is_floating_point:
        v = v - 60 if name != "mean" else v
    x, v = torch.ones(places, columns, dtype=dtype), v.to(dtype)
    if name.startswith("am") and dtype.is_floating_point:
        v[elements // 3] = float("nan")
    for include in (True, False):
        wanted = wide_sums(x).scatter_reduce(0, index, wide_sums(v), name, include_self=include)
        there = x.to("xpu").scatter_reduce(0, index.to("xpu"), v.to("xpu"), name, include_self=include)
        right(there, wanted) if wanted.isnan().sum() == 0 else assert_close(
            there, wanted.to(dtype), rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: str(d)[6:])
def test_halves_go_on_growing(dtype: torch.dtype) -> None:
    """Counts and sums beyond the exact range of half precision."""
    v = torch.tensor([0.0, 1.0] * 2048, dtype=dtype, device="xpu")
    i, x = torch.zeros(4096, dtype=torch.int64, device="xpu"), torch.zeros(1, dtype=dtype, device="xpu")
    assert x.index_add(0, i, v).item() == 2048
    assert x.scatter_add(0, i, v).item() == 2048
    assert x.index_put((i,), v, accumulate=True).item() == 2048
    assert x.put(i, v, accumulate=True).item() == 2048
    assert x.scatter_reduce(0, i, v, "mean", include_self=False).item() == 0.5
    assert x.index_reduce(0, i, v, "mean", include_self=False).item() == 0.5
    leaf = torch.zeros(2, dtype=dtype, device="xpu", requires_grad=True)
    leaf[i].backward(v)
    assert leaf.grad is not None and leaf.grad[0].item() == 2048
    many = torch.zeros(100_000, dtype=dtype, device="xpu")  # too many destinations for a wide accumulator
    assert many.index_add(0, i + 7, v)[7].item() == 2048
    untouched = torch.tensor([-0.0, float("nan"), 3.0], dtype=dtype, device="xpu")
    assert torch.equal(
        untouched.index_add(0, i + 2, v)[:2].view(torch.int16), untouched[:2].view(torch.int16)
    )


@pytest.mark.parametrize("op", ["multiply", "add"])
def test_lengths_around_a_group_of_work_items(op: str) -> None:
    """Short sums into few destinations, one index per row, which GPUs count before sorting."""
    for count in (1, 31, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 600):
        for columns in (1, 3, 16):
            rows = torch.full((count,), 2)
            rows[count // 2] = 3
            v = torch.randint(0, 2, (count, columns), dtype=torch.float64) * 2 - 1
            x = torch.ones(10, columns, dtype=torch.float64)
            index = rows[:, None].expand(-1, columns)
            wanted = x.scatter(0, index, v, reduce=op)
            there = x.float().to("xpu").scatter(0, index.to("xpu"), v.float().to("xpu"), reduce=op)
            assert torch.equal(there.cpu().double(), wanted), (count, columns)


@pytest.mark.parametrize("tuning", ["", "atomic_sums=1"])
def test_sums_as_gpus_take_them(tuning: str) -> None:
    """With atomic updates, private copies, and sorted runs, on a CPU device."""
    chosen = "test_sums_of_any_shape or test_reductions_of_any_shape or test_halves or test_lengths"
    passes({__file__: chosen}, every=7, optimized=False, OPENXPU_POLICY="gpu", OPENXPU_TUNING=tuning)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("op", ["sum", "prod", "amax", "mean"])
def test_spread_lengths(op: str, dtype: torch.dtype) -> None:
    """Short lines whose destinations have few elements each: GPUs combine them without sorting."""
    generator = torch.Generator().manual_seed(0)
    for count in (1, 2, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 600):
        places = count // 2 + 1
        index = torch.randint(places, (count,), generator=generator)
        v = torch.randint(2, 4, (count,), generator=generator).to(dtype)
        x = torch.ones(places, dtype=dtype)
        wanted = x.double().scatter_reduce(0, index, v.double(), op)
        if not dtype.is_floating_point:
            wanted = wanted.floor()  # means of integers
        got = x.to("xpu").scatter_reduce(0, index.to("xpu"), v.to("xpu"), op)
        assert_close(
            got.double(), wanted, rtol=1e-5 if op == "mean" and dtype == torch.float32 else 0, atol=0
        )


def test_spread_lengths_on_gpus() -> None:
    passes({__file__: "test_spread_lengths and not on_gpus"}, optimized=False, OPENXPU_POLICY="gpu")
