"""LU factors, solves, determinants and triangular systems with the GPU algorithms (OPENXPU_POLICY=gpu)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from comparing import assert_close, tolerance
from inner_run import IS_GPU
from openxpu import _bridge
from processes import run_python

from .sampled import agrees

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
TOLERANCE = {dtype: tolerance(dtype, {torch.float32: 5}) for dtype in DTYPES}  # of float32, n steps' errors
SIZES = [0, 1, 2, 31, 32, 33, 64, 65, 200, 300]
# All sizes in the smallest dtype and the largest, two in the others.
CASES = [(n, dtype) for dtype in DTYPES for n in SIZES if dtype in (DTYPES[0], DTYPES[3]) or n in (33, 65)]
ROOT = Path(__file__).parents[2]
NATIVE = IS_GPU or os.environ.get("OPENXPU_POLICY") == "gpu"


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64)


def close(got: torch.Tensor, want: torch.Tensor, limit: float) -> None:
    """Within a share of the largest value, or of 1."""
    assert_close(got, exact(want), dtype=got.dtype, rtol=limit, relative_to="largest", floor=1, device=None)


def lapack(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Factorize each matrix separately: PyTorch's batched results are wrong once the number of threads was set."""
    batch = a.shape[:-2]
    if not batch.numel():
        return tuple(torch.linalg.lu_factor_ex(a))
    parts = zip(*(torch.linalg.lu_factor_ex(x) for x in a.reshape(batch.numel(), *a.shape[-2:])), strict=True)
    lu, pivots, info = (torch.stack(part) for part in parts)
    return lu.unflatten(0, batch) if batch else lu[0], pivots.reshape(*batch, -1), info.reshape(batch)


def solution(a: torch.Tensor, b: torch.Tensor, left: bool) -> torch.Tensor:
    """Return X of A X = B, or X A = B, from NumPy, one system after the other."""
    if not left:
        return solution(a.mT, b.mT, True).mT
    return torch.from_numpy(np.linalg.solve(a.resolve_conj().numpy(), b.resolve_conj().numpy()))


@pytest.mark.parametrize(("n", "dtype"), CASES, ids=str)
def test_factors_are_those_of_lapack(n: int, dtype: torch.dtype) -> None:
    for shape in ((n, n), (n, 2 * n + 3), (n + 40, n), (3, n, n), (2, 3, n, 7), (2, 0, n, n)):
        a = numbers(*shape, dtype=dtype)
        lu, pivots, info = torch.linalg.lu_factor_ex(a.to("xpu"))
        assert lu.mT.is_contiguous() or lu.numel() == 0
        _, want_pivots, want_info = lapack(a)
        assert pivots.dtype == torch.int32 and torch.equal(pivots.cpu(), want_pivots)
        assert info.dtype == torch.int32 and torch.equal(info.cpu(), want_info)
        p, lower, upper = torch.lu_unpack(lu, pivots)
        close(exact(p).to(exact(lower).dtype) @ exact(lower) @ exact(upper), a, TOLERANCE[dtype])
        p2, lower2, upper2 = torch.linalg.lu(a.to("xpu"))
        assert torch.equal(p, p2) and torch.equal(lower, lower2) and torch.equal(upper, upper2)


def large_matrices(dtype: torch.dtype) -> None:
    """PyTorch 2.13 itself hangs here, or returns pivots that are not rows."""
    eye = torch.eye(150, dtype=dtype)
    a, b = numbers(3, 2, 150, 150, dtype=dtype) + 3 * eye, numbers(2, 150, 4, dtype=dtype, seed=1)
    on_xpu = a.to("xpu")
    lu, pivots, info = torch.linalg.lu_factor_ex(on_xpu)
    want_lu, want_pivots, want_info = lapack(a)
    assert torch.equal(pivots.cpu(), want_pivots) and torch.equal(info.cpu(), want_info)
    close(lu, want_lu, TOLERANCE[dtype])
    limit = 20 * TOLERANCE[dtype]
    close(exact(a) @ exact(torch.linalg.solve(on_xpu, b.to("xpu"))), exact(b).expand(3, 2, 150, 4), limit)
    close(
        exact(torch.linalg.solve(on_xpu, b.mT.to("xpu"), left=False)) @ exact(a),
        exact(b).mT.expand(3, 2, 4, 150),
        limit,
    )
    close(exact(torch.linalg.inv(on_xpu)) @ exact(a), exact(eye).expand(3, 2, 150, 150), limit)
    diagonal = want_lu.diagonal(0, -2, -1)
    close(torch.linalg.slogdet(on_xpu).logabsdet, diagonal.abs().log().sum(-1), limit)
    signs = torch.where((want_pivots != torch.arange(1, 151)).sum(-1) % 2 == 0, 1, -1)
    close(torch.linalg.slogdet(on_xpu).sign, diagonal.sgn().prod(-1) * signs, limit)
    small = on_xpu / a.abs().amax() / 4
    close(
        torch.linalg.det(small),
        torch.stack([torch.linalg.det(m) for m in small.cpu().flatten(0, 1)]).view(3, 2),
        1e-3,
    )
    p, lower, upper = torch.linalg.lu(on_xpu)
    close(exact(p).to(exact(lower).dtype) @ exact(lower) @ exact(upper), a, TOLERANCE[dtype])


def tall_matrices(dtype: torch.dtype) -> None:
    """PyTorch 2.13 itself hangs, in double precision and with complex dtypes."""
    a = numbers(4, 5000, 60, dtype=dtype)
    lu, pivots, info = torch.linalg.lu_factor_ex(a.to("xpu"))
    want_lu, want_pivots, want_info = lapack(a)
    assert torch.equal(pivots.cpu(), want_pivots) and torch.equal(info.cpu(), want_info)
    close(lu, want_lu, TOLERANCE[dtype])


@pytest.mark.extended
def test_batches_after_threads_were_set() -> None:
    """In a separate process: PyTorch's batches on the CPU, which other tests compare with, hang from then on."""
    program = """
from tests.ops.test_lu import *
torch.set_num_threads(2)
for dtype in DTYPES:
    large_matrices(dtype), tall_matrices(dtype)
"""
    run_python(program, cwd=ROOT, timeout=400)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_layout_comes_in(dtype: torch.dtype) -> None:
    a = numbers(4, 40, 80, dtype=dtype)
    for view in (
        lambda x: x[:, :, ::2],
        lambda x: x[:, :, :40].mT,
        lambda x: x[..., 3:43].mH,
        lambda x: x[1].T,
    ):
        given, reference = view(a.to("xpu")), view(a)
        lu, pivots = torch.linalg.lu_factor(given)
        want_lu, want_pivots = torch.linalg.lu_factor(reference)
        assert torch.equal(pivots.cpu(), want_pivots)
        close(lu, want_lu, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
@pytest.mark.parametrize("n", [3, 40, 70, 110])
def test_singular_matrices_say_where(n: int, dtype: torch.dtype) -> None:
    a = torch.zeros(4, n, n, dtype=dtype)
    a[0] = torch.eye(n)
    a[1] = torch.eye(n)
    a[1, n - 1, n - 1] = 0
    a[2, 0, 1] = 1
    a[3] = 1
    _, pivots, info = torch.linalg.lu_factor_ex(a.to("xpu"))
    _, want_pivots, want_info = torch.linalg.lu_factor_ex(a)
    assert torch.equal(info.cpu(), want_info)
    assert torch.equal(pivots.cpu(), want_pivots)
    assert info.tolist()[:3] == [0, n, 1]
    x = a.to("xpu")
    for call, name in (
        (torch.linalg.inv, "inv"),
        (lambda t: torch.linalg.solve(t, t[..., 0]), "solve"),
        (torch.linalg.lu_factor, "lu_factor"),
    ):
        with pytest.raises(RuntimeError, match=rf"{name}.*Batch element 1.*(singular|zero)"):
            call(x)
    assert torch.linalg.det(x).cpu().tolist()[:3] == [1, 0, 0]
    assert torch.linalg.slogdet(x).logabsdet.cpu()[1] == -torch.inf


def test_equal_candidates_and_nan() -> None:
    a = torch.tensor([[1.0, 2.0], [-1.0, 3.0]], dtype=torch.complex64)
    a[1, 0] = -1j
    lu, pivots, info = torch.linalg.lu_factor_ex(a.to("xpu"))
    assert pivots.tolist() == [1, 2] and info.item() == 0
    rows = torch.ones(100, 100)
    assert torch.linalg.lu_factor_ex(rows.to("xpu")).pivots.tolist() == list(range(1, 101))
    bad = torch.full((70, 70), torch.nan)
    lu, pivots, info = torch.linalg.lu_factor_ex(bad.to("xpu"))
    assert lu.isnan().any() and pivots.min() >= 1 and pivots.max() <= 70


@pytest.mark.skipif(not NATIVE, reason="LAPACK always looks for pivots")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [4, 64, 150])
def test_without_pivots(n: int, dtype: torch.dtype) -> None:
    a = numbers(2, n, n, dtype=dtype) + 3 * n * torch.eye(n)
    lu, pivots, info = torch.linalg.lu_factor_ex(a.to("xpu"), pivot=False)
    assert torch.equal(pivots.cpu(), torch.arange(1, n + 1, dtype=torch.int32).expand(2, n))
    p, lower, upper = torch.linalg.lu(a.to("xpu"), pivot=False)
    assert p.numel() == 0 and not info.any()
    close(lower @ upper, a, TOLERANCE[dtype])


@pytest.mark.parametrize(("n", "dtype"), CASES, ids=str)
def test_triangular_systems(n: int, dtype: torch.dtype) -> None:
    base = numbers(n, n, dtype=dtype) / max(n, 1) ** 0.5 / 2
    base.diagonal().copy_(base.diagonal().sgn() * 2)
    junk = torch.full((n, n), torch.nan, dtype=dtype)
    for upper in (False, True):
        for unit in (False, True):
            a = (
                (base.triu(int(unit)) + junk.tril(int(unit) - 1))
                if upper
                else (base.tril(-int(unit)) + junk.triu(1 - int(unit)))
            )
            if unit:
                a = torch.where(a.isnan(), torch.zeros((), dtype=dtype), a)
            clean = torch.where(a.isnan(), torch.zeros((), dtype=dtype), a)
            for view in (lambda x: x, lambda x: x.mT, lambda x: x.mH, lambda x: x.conj()):
                flipped = upper != (view(torch.empty(2, 3)).shape[0] == 3)
                for left in (True, False):
                    b = numbers(*((n, 5) if left else (9, n)), dtype=dtype, seed=1)
                    got = torch.linalg.solve_triangular(
                        view(a.to("xpu")), b.to("xpu"), upper=flipped, left=left, unitriangular=unit
                    )
                    want = torch.linalg.solve_triangular(
                        exact(view(clean)), exact(b), upper=flipped, left=left, unitriangular=unit
                    )
                    close(got, want, TOLERANCE[dtype])


def test_triangular_systems_share_a_matrix_and_write_where_told() -> None:
    a = numbers(2, 1, 40, 40, dtype=torch.float64).tril() + 10 * torch.eye(40, dtype=torch.float64)
    b = numbers(1, 3, 40, 6, dtype=torch.float64)
    want = torch.linalg.solve_triangular(a, b, upper=False)
    close(torch.linalg.solve_triangular(a.to("xpu"), b.to("xpu"), upper=False), want, 1e-12)
    for matrix, right in ((a[0, 0], b), (a, b[0, 0]), (a[:, 0], b[0, 0, :, :1])):
        close(
            torch.linalg.solve_triangular(matrix.to("xpu"), right.to("xpu"), upper=False),
            torch.linalg.solve_triangular(matrix, right, upper=False),
            1e-12,
        )
    for out in (
        torch.empty(0, dtype=torch.float64, device="xpu"),
        torch.empty(2, 3, 40, 6, dtype=torch.float64, device="xpu"),
        torch.empty(2, 3, 40, 12, dtype=torch.float64, device="xpu")[..., ::2],
        torch.empty(3, 2, 6, 40, dtype=torch.float64, device="xpu").transpose(0, 1).mT,
    ):
        assert torch.linalg.solve_triangular(a.to("xpu"), b.to("xpu"), upper=False, out=out) is out
        close(out, want, 1e-12)
    x = b[0].to("xpu")
    torch.linalg.solve_triangular(a[0].to("xpu"), x, upper=False, out=x)
    close(x, torch.linalg.solve_triangular(a[0], b[0], upper=False), 1e-12)
    same = a[0, 0].to("xpu")
    torch.linalg.solve_triangular(same, same, upper=False, out=same)
    close(same, torch.eye(40), 1e-12)
    for transpose in (False, True):
        got, copied = torch.triangular_solve(
            b.to("xpu"), a.to("xpu"), upper=False, transpose=transpose, unitriangular=False
        )
        want, _ = torch.triangular_solve(b, a, upper=False, transpose=transpose, unitriangular=False)
        close(got, want, 1e-12)
        assert torch.equal(copied.cpu(), a.expand(2, 3, 40, 40))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 3, 33, 65, 130])
def test_solutions(n: int, dtype: torch.dtype) -> None:
    a = numbers(2, 1, n, n, dtype=dtype) + 2 * n * torch.eye(n)
    lu, pivots = torch.linalg.lu_factor(a.to("xpu"))
    for left in (True, False):
        b = numbers(*((3, n, 4) if left else (3, 4, n)), dtype=dtype, seed=1)
        for adjoint in (False, True):
            matrix = exact(a).mH if adjoint else exact(a)
            got = torch.linalg.lu_solve(lu, pivots, b.to("xpu"), left=left, adjoint=adjoint)
            close(got, torch.linalg.solve(matrix, exact(b), left=left), TOLERANCE[dtype])
        for given in (a, a.mT, a.mT.contiguous().mT, a.conj()):
            got = torch.linalg.solve(given.to("xpu"), b.to("xpu"), left=left)
            close(got, torch.linalg.solve(exact(given), exact(b), left=left), TOLERANCE[dtype])
    vector = numbers(n, dtype=dtype, seed=2)
    close(
        torch.linalg.solve(a[0, 0].to("xpu"), vector.to("xpu")),
        torch.linalg.solve(exact(a[0, 0]), exact(vector)),
        TOLERANCE[dtype],
    )
    for given in (a, a.mT, a.conj(), a[0, 0]):
        close(torch.linalg.inv(given.to("xpu")), torch.linalg.inv(exact(given)), TOLERANCE[dtype])
        scaled = given / max(2 * n, 1)
        close(torch.linalg.det(scaled.to("xpu")), torch.linalg.det(exact(scaled)), 5 * TOLERANCE[dtype])
        sign, log = torch.linalg.slogdet(given.to("xpu"))
        want_sign, want_log = torch.linalg.slogdet(exact(given))
        assert log.dtype == a.real.dtype
        close(sign, want_sign, 5 * TOLERANCE[dtype])
        close(log, want_log, TOLERANCE[dtype])


@pytest.mark.skipif(not NATIVE, reason="LAPACK has messages of its own")
def test_pivots_that_are_not() -> None:
    lu = torch.eye(4, device="xpu")
    kind, unpack, solve = RuntimeError, "must be between 1 and", "lu_solve must"
    if IS_GPU:  # which reports them when the host waits
        kind, unpack, solve = IndexError, "lu_unpack: .* out of bounds", "lu_solve .* out of bounds"
    for value in (0, 5, -1):
        pivots = torch.tensor([1, value, 3, 4], dtype=torch.int32, device="xpu")
        with pytest.raises(kind, match=unpack):
            torch.lu_unpack(lu, pivots)
            torch.xpu.synchronize()
        with pytest.raises(kind, match=solve):
            torch.linalg.lu_solve(lu, pivots, lu)
            torch.xpu.synchronize()
    with pytest.raises(RuntimeError, match="expected scalar type Float"):
        torch.linalg.solve_triangular(lu, lu, upper=True, out=lu.double())
    with pytest.raises(RuntimeError, match="not implemented for 'Half'"):
        torch.linalg.solve_triangular(lu.half(), lu.half(), upper=True)


def test_long_permutations() -> None:
    n = 5000
    pivots = torch.arange(1, n + 1, dtype=torch.int32).flip(0).clamp_(min=1)
    pivots = torch.maximum(pivots, torch.arange(1, n + 1, dtype=torch.int32))
    lu = torch.eye(n, 1).expand(n, 1).contiguous()
    p = torch.lu_unpack(torch.empty(n, n, device="xpu"), pivots.to("xpu"), unpack_data=False)[0]
    del lu
    want = torch.lu_unpack(torch.empty(n, n), pivots, unpack_data=False)[0]
    assert torch.equal(p.cpu(), want)


def test_a_graph_does_it_again() -> None:
    x = numbers(2, 40, 40, dtype=torch.float64).to("xpu")
    b = numbers(2, 40, 3, dtype=torch.float64, seed=1).to("xpu")

    def work() -> tuple[torch.Tensor, ...]:
        factors, pivots, info = torch.linalg.lu_factor_ex(x)
        return (
            info,
            *torch.lu_unpack(factors, pivots),
            torch.linalg.lu_solve(factors, pivots, b),
            torch.linalg.solve_ex(x, b)[0],
            torch.linalg.inv_ex(x)[0],
            torch.linalg.det(x / 6),
            *torch.linalg.slogdet(x),
            torch.linalg.solve_triangular(x, b, upper=True),
        )

    work()
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        results = work()
    for seed in (2, 3):
        x.copy_(numbers(2, 40, 40, dtype=torch.float64, seed=seed))
        graph.replay()
        for got, want in zip(results, work(), strict=True):
            assert torch.equal(got, want) and got.stride() == want.stride()


SAMPLED = [
    "linalg.lu_factor", "linalg.lu_factor_ex", "linalg.lu", "linalg.lu_solve", "lu", "lu_solve", "lu_unpack",
    "linalg.solve", "linalg.solve_ex", "linalg.inv", "linalg.inv_ex", "linalg.det", "linalg.slogdet",
    "logdet", "linalg.solve_triangular", "triangular_solve", "linalg.tensorinv", "linalg.tensorsolve",
    "linalg.matrix_power", "linalg.cond",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", SAMPLED)
def test_samples_and_gradients(name: str, dtype: torch.dtype) -> None:
    agrees(name, dtype)
    if IS_GPU and name == "linalg.cond":  # singular values have no kernel
        assert set(_bridge.fallback_counts(True)) == {"aten::_linalg_svd"}
