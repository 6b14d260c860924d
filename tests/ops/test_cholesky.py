"""Cholesky factors, solves and inverses with the GPU algorithms (OPENXPU_POLICY=gpu)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from comparing import assert_close, tolerance
from openxpu import _bridge

from .sampled import agrees

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
TOLERANCE = {dtype: tolerance(dtype, {torch.float64: 0.1}) for dtype in DTYPES}
SIZES = [0, 1, 2, 31, 32, 33, 65, 200]
SAMPLED = ["linalg.cholesky", "linalg.cholesky_ex", "cholesky", "cholesky_solve", "cholesky_inverse"]


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def positive(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Hermitian matrices with eigenvalues of about 1 to 5."""
    n = shape[-1]
    a = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(n))
    return a @ a.mH / max(n, 1) + torch.eye(n)


def exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64)


def close(got: torch.Tensor, want: torch.Tensor, limit: float) -> None:
    assert_close(got, exact(want), dtype=got.dtype, rtol=limit, floor=1, device=None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_factors(n: int, dtype: torch.dtype) -> None:
    for shape in ((n, n), (3, n, n), (2, 0, n, n)):
        a = positive(*shape, dtype=dtype)
        for upper in (False, True):
            half = a.triu() if upper else a.tril()  # the other half is not read
            for given in (half, half.mT.contiguous().mT, half.conj_physical().conj()):
                factor, info = torch.linalg.cholesky_ex(given.to("xpu"), upper=upper)
                assert info.dtype == torch.int32 and info.shape == a.shape[:-2] and not info.any()
                assert factor.mT.is_contiguous() or factor.numel() == 0
                close(factor, torch.linalg.cholesky(exact(a), upper=upper), TOLERANCE[dtype])
                assert torch.equal(factor, factor.triu() if upper else factor.tril())
            old = torch.cholesky(a.to("xpu"), upper=upper)
            close(old, factor, TOLERANCE[dtype])
            out = torch.empty(0, dtype=dtype, device="xpu")
            assert torch.cholesky(a.to("xpu"), upper=upper, out=out) is out and torch.equal(out, old)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_what_they_solve_and_invert(n: int, dtype: torch.dtype) -> None:
    a = positive(2, 1, n, n, dtype=dtype)
    b = torch.randn(3, n, 5, dtype=dtype, generator=torch.Generator().manual_seed(1))
    for upper in (False, True):
        factor = torch.linalg.cholesky(a, upper=upper)
        junk = factor + (torch.ones(n, n).tril(-1) if upper else torch.ones(n, n).triu(1))
        for given in (junk.to("xpu"), junk.to("xpu").mT.contiguous().mT, junk.to("xpu").mH.contiguous().mH):
            solved = torch.cholesky_solve(b.to("xpu"), given, upper=upper)
            close(solved, torch.linalg.solve(exact(a), exact(b)), 20 * TOLERANCE[dtype])
            inverse = torch.cholesky_inverse(given, upper=upper)
            close(inverse, torch.linalg.inv(exact(a)), 20 * TOLERANCE[dtype])
        out = torch.empty(0, dtype=dtype, device="xpu")
        torch.cholesky_inverse(given, upper=upper, out=out)
        assert torch.equal(out, inverse)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
def test_what_is_not_positive_says_where(dtype: torch.dtype) -> None:
    a = torch.eye(100, dtype=dtype).repeat(5, 1, 1)
    a[1, 70, 70] = -1
    a[2, 3, 3] = 0
    a[3, 40, 40] = torch.nan
    a[4, 99, 99] = -2
    for upper in (False, True):
        assert torch.linalg.cholesky_ex(a.to("xpu"), upper=upper).info.tolist() == [0, 71, 4, 41, 100]
        for call in (torch.linalg.cholesky, torch.cholesky):
            with pytest.raises(torch.linalg.LinAlgError, match=r"Batch element 1.*minor of order 71 "):
                call(a.to("xpu"), upper=upper)
    with pytest.raises(torch.linalg.LinAlgError, match="element 2 is zero"):
        torch.cholesky_inverse(torch.tensor([[1.0, 0], [3, 0]], device="xpu"))
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        torch.cholesky(torch.eye(2, device="xpu").half())


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", SAMPLED)
def test_samples_and_gradients(name: str, dtype: torch.dtype) -> None:
    agrees(name, dtype)
