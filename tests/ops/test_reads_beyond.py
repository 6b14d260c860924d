"""Kernels don't access memory outside their operands, which would end the process on a GPU at a page boundary."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from inner_run import written_out
from processes import run_python

COUNT = os.environ.get("OPENXPU_TEST_PROBLEMS", "60" if "OPENXPU_TEST_PAIRS" in os.environ else "120")


@pytest.mark.skipif(
    torch.xpu.get_device_properties().type != "cpu", reason="pages are guarded in a processor's memory"
)
@pytest.mark.parametrize(
    "unit", ["ptx", "xmx", *(pytest.param(unit, marks=pytest.mark.extended) for unit in ("fma", "xmx8"))]
)
def test_of_products_and_convolutions(unit: str) -> None:
    program = Path(__file__).with_name("reads_beyond.py")
    env = written_out({"OPENXPU_MATRIX": unit, "OPENXPU_HOST_PROVIDER": "0"})
    run_python(program, COUNT, env=env, timeout=3600)
