"""Intel's CPU compiler stays within its memory on kernels that have made it write out of bounds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from processes import run, run_python

PROGRAM = """
import openxpu, torch
for dtype in (torch.float32, torch.complex128):
    a = torch.randn(200, 200, dtype=dtype)
    ours, theirs = torch.linalg.lu_factor(a.xpu()), torch.linalg.lu_factor(a)
    assert torch.equal(ours.pivots.cpu(), theirs.pivots)
"""


@pytest.mark.skipif(
    torch.xpu.get_device_properties().type != "cpu", reason="that compiler builds for processors"
)
@pytest.mark.parametrize("memory", ["", pytest.param("buffer", marks=pytest.mark.extended)])
def test_factors(tmp_path: Path, memory: str) -> None:
    """GPU kernels of LU: loops with barriers. OPENXPU_MEMORY=buffer treats the CPU as a GPU."""
    guard = tmp_path / "guard.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    source = Path(__file__).parent / "guard.c"
    run([compiler, "-O2", "-shared", "-fPIC", source, "-o", guard])
    environment = {"LD_PRELOAD": str(guard), "OPENXPU_POLICY": "gpu", "OPENXPU_CACHE": "0"}
    environment["OPENXPU_MEMORY"] = memory
    run_python(PROGRAM, env=environment)
