"""Decompositions, solvers and Fourier transforms."""

from __future__ import annotations

import pytest
import torch

SQUARE = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(1)) + 4 * torch.eye(6)
POSITIVE = SQUARE @ SQUARE.mT
RIGHT = torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(2))
CALLS = {
    "cholesky": lambda a, p, b: torch.linalg.cholesky(p),
    "lu": lambda a, p, b: torch.linalg.lu(a),
    "qr": lambda a, p, b: torch.linalg.qr(a),
    "svdvals": lambda a, p, b: torch.linalg.svdvals(a),
    "svd": lambda a, p, b: torch.linalg.svd(a),
    "eigh": lambda a, p, b: torch.linalg.eigh(p),
    "eig": lambda a, p, b: torch.linalg.eig(a),
    "solve": lambda a, p, b: torch.linalg.solve(a, b),
    "triangular": lambda a, p, b: torch.linalg.solve_triangular(a.triu(), b, upper=True),
    "cholesky_solve": lambda a, p, b: torch.cholesky_solve(b, torch.linalg.cholesky(p)),
    "inv": lambda a, p, b: torch.linalg.inv(a),
    "det": lambda a, p, b: torch.linalg.det(a),
    "slogdet": lambda a, p, b: torch.linalg.slogdet(a),
    "lstsq": lambda a, p, b: torch.linalg.lstsq(a, b).solution,
    "matrix_exp": lambda a, p, b: torch.linalg.matrix_exp(a / 8),
    "fft": lambda a, p, b: torch.fft.fft(a),
    "rfft2": lambda a, p, b: torch.fft.rfft2(a),
    "irfft": lambda a, p, b: torch.fft.irfft(torch.fft.rfft(a)),
    "stft": lambda a, p, b: torch.stft(
        a.flatten(), 16, return_complex=True, window=torch.hann_window(16, device=a.device)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_agrees_with_cpu(name: str) -> None:
    got = CALLS[name](SQUARE.to("xpu"), POSITIVE.to("xpu"), RIGHT.to("xpu"))
    want = CALLS[name](SQUARE, POSITIVE, RIGHT)
    for x, y in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (got, want)), strict=True):
        assert x.device.type == "xpu"
        assert torch.allclose(x.cpu(), y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [8, 15])
@pytest.mark.parametrize("name", ["fft", "ifft2", "rfft", "rfft2", "hfft", "irfft", "irfft2"])
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_transforms_of_halves_round_those_of_floats(name: str, size: int) -> None:
    if torch.__version__ < (2, 12) and name in ("fft", "rfft", "rfft2"):
        pytest.skip("torch.fft itself refuses real halves on any device but cuda")
    function = getattr(torch.fft, name)
    given = torch.randn(5, size, generator=torch.Generator().manual_seed(3)).half()
    if name not in ("rfft", "rfft2"):
        given = torch.complex(given.float(), given.float().flip(0)).to(torch.complex32)
    want = function(given.to(torch.complex64 if given.is_complex() else torch.float32))
    got = function(given.to("xpu"))
    assert got.dtype == (torch.complex32 if want.is_complex() else torch.float16)
    out = torch.empty(0, dtype=got.dtype, device="xpu")
    function(given.to("xpu"), out=out)
    for result in (got, out):
        assert torch.allclose(result.cpu().to(want.dtype), want, rtol=2e-3, atol=2e-3)
    if name == "fft":
        assert torch.fft.fft(torch.ones(8, device="xpu").half()).real[0] == 8


def test_gradients() -> None:
    leaves = [t.to("xpu").requires_grad_() for t in (SQUARE, RIGHT)]
    wants = [t.double().requires_grad_() for t in (SQUARE, RIGHT)]
    torch.linalg.solve(*leaves).square().sum().backward()
    torch.linalg.solve(*wants).square().sum().backward()
    for leaf, want in zip(leaves, wants, strict=True):
        assert torch.allclose(leaf.grad.cpu().double(), want.grad, rtol=1e-3, atol=1e-4)


def test_out() -> None:
    out = torch.empty(0, device="xpu")
    torch.linalg.inv(SQUARE.to("xpu"), out=out)
    assert torch.allclose(out.cpu(), torch.linalg.inv(SQUARE), atol=1e-5)


def test_singular_is_pytorchs_error() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(3, 3, device="xpu"))
