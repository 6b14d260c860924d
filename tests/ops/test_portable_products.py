"""The portable kernels of products, convolutions and attention, which host devices don't use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("family", ["gemm", "conv", "attention"])
def test_without_host_provider(family: str) -> None:
    environment = {**os.environ, "OPENXPU_HOST_PROVIDER": "0"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", HERE / f"test_{family}.py"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
