"""Decompositions and solvers."""

from __future__ import annotations

import pytest
import torch
from comparing import assert_close

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
}


@pytest.mark.parametrize("name", CALLS)
def test_agrees_with_cpu(name: str) -> None:
    got = CALLS[name](SQUARE.to("xpu"), POSITIVE.to("xpu"), RIGHT.to("xpu"))
    want = CALLS[name](SQUARE, POSITIVE, RIGHT)
    for x, y in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (got, want)), strict=True):
        assert x.device.type == "xpu"
        assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_singular_is_pytorchs_error() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(3, 3, device="xpu"))
