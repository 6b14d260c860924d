"""Faults planted in kernels: `openxpu simulate --check` finds them, and reports none where there is none.

planted/KERNEL.cl lists its faults in its first lines: a number, the kind, what was done. Those of kind "none" break
OpenCL's rules but do no harm on the hardware, and can't be seen in machine code. `tests/sim/run.sh planted-PRODUCT`
runs these.
"""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from processes import run

HERE = Path(__file__).parent
DRIVER = os.environ.get("OPENXPU_SIM_TEST_DRIVER")
LINE = re.compile(r"^//     FAULT (\d+): ([^:]+): (.+)$", re.MULTILINE)
REPORTS = {  # what a kind of fault may be reported as
    "race": "race: ",
    "uninitialized": "was not written",
    "local memory": "of local memory, which has",
    "global memory": "behind an allocation|page fault",
    "2D block": "2D block message",
    "divergent barrier": "divergent barrier",
}
EVERY = {"bmg": 1, "lnl": 5}  # of so many faults one is planted
SEEDS = (1, 2, 3)

pytestmark = pytest.mark.skipif(not DRIVER, reason="tests/sim/run.sh fetches Intel's driver")

KERNELS = sorted(path.stem for path in (HERE / "planted").glob("*.cl"))
FAULTS = [
    (kernel, int(number), kind)
    for kernel in KERNELS
    for number, kind, _ in LINE.findall((HERE / "planted" / f"{kernel}.cl").read_text())
]
Variant = tuple[str, int]


@cache
def simulated(product: str, seed: int) -> dict[Variant, dict[str, str]]:
    """Return what each variant computed and reported: all of them, or with a seed the unmodified kernels."""
    variants = [(kernel, 0) for kernel in KERNELS]
    if not seed:
        variants += [(kernel, fault) for kernel, fault, _ in FAULTS[:: EVERY[product]]]
    command = [sys.executable, "-m", "openxpu.cli", "simulate", "--driver", str(DRIVER), "--device", product]
    command += ["--check", "races,memory,uninitialized", "--seed", str(seed)]
    command += [str(HERE / "planted_host.py"), *(f"{kernel}:{fault}" for kernel, fault in variants)]
    result = run(command, env={"PYTHONPATH": str(HERE.parents[1] / "python")}, timeout=800)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return {(line["kernel"], line["fault"]): line for line in lines}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", (0, *SEEDS), ids=lambda seed: f"seed{seed}")
@pytest.mark.parametrize("product", EVERY)
def test_unmodified(product: str, seed: int, kernel: str) -> None:
    """A kernel without a fault computes what it should, and nothing is reported."""
    variant = simulated(product, seed)[kernel, 0]
    assert variant["report"] == ""
    assert variant["outcome"] == "right"


CASES = [
    pytest.param(product, *fault, id=f"{product}-{fault[0]}-{fault[1]}")
    for product, every in EVERY.items()
    for fault in FAULTS[::every]
]


@pytest.mark.parametrize(("product", "kernel", "fault", "kind"), CASES)
def test_fault(product: str, kernel: str, fault: int, kind: str) -> None:
    """A planted fault is reported as such, with the kernel's name."""
    report = simulated(product, 0)[kernel, fault]["report"]
    if kind == "none":
        assert report == ""
        return
    assert re.search(REPORTS[kind], report)
    assert f"kernel {kernel} at " in report


def test_number_of_faults() -> None:
    """There are enough faults of each kind for a statement."""
    assert len(FAULTS) >= 50
    assert {kind for _, _, kind in FAULTS} - {"none"} == set(REPORTS)
