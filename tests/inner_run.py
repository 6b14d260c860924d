"""Runs tests again, in a process with another environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from processes import run_python

needs_emulation = pytest.mark.skipif(
    not torch.xpu.get_device_properties().sub_group_sizes,
    reason="a matrix engine is emulated by subgroups of a fixed size, which the device lacks",
)

IS_GPU = torch.xpu.get_device_capability()["type"] == "gpu"
on_cpus = pytest.mark.skipif(IS_GPU, reason="emulates the matrix engine of another device")


def written_out(variables: Mapping[str, str], optimized: bool = True) -> dict[str, str]:
    """Return `variables`; on a CPU device add the option that turns off the driver's optimizer.

    The option is added if `variables` has OPENXPU_MATRIX or if not `optimized`: the CPU driver's optimizer takes
    most of the time of such a run, and GPUs don't use it.
    """
    if torch.xpu.get_device_properties().type == "cpu" and ("OPENXPU_MATRIX" in variables or not optimized):
        return {"OPENXPU_BUILD_OPTIONS": "-cl-opt-disable", **variables}
    return dict(variables)


def passes(
    chosen: Mapping[str | Path, str], every: int = 1, optimized: bool = True, **environment: str
) -> None:
    """Run the tests in `chosen` (file or test id: pytest -k keyword) with these variables set, and assert success.

    The keyword "" selects all tests. Each test runs with one in `every` of its parameters, and kernels are built
    without the driver's optimizer unless `optimized`. With OPENXPU_TEST_ALL=1 all cases run, optimized; with
    OPENXPU_TEST_PAIRS=1, which `make test` sets, a tenth of them. All run in one process, since each takes seconds
    to start.
    """
    if os.environ.get("OPENXPU_TEST_ALL") == "1":
        every, optimized = 1, True
    elif os.environ.get("OPENXPU_TEST_PAIRS") == "1":
        every *= 10
    environment["OPENXPU_TEST_EVERY"] = str(every)
    keywords = {Path(str(test).partition("::")[0]).name: keyword for test, keyword in chosen.items()}
    terms = [f"{name} and ({keyword})" if keyword else name for name, keyword in keywords.items()]
    options = ["--maxfail=20", "--tb=short", "-p", "no:cacheprovider", "-k", " or ".join(terms)]
    run = run_python("-m", "pytest", *options, *chosen, env=written_out(environment, optimized), timeout=3600)
    # pytest names each file that has tests to run
    idle = [name for name in keywords if f"/{name} " not in run.stdout]
    assert not idle, f"keywords leave no test of {', '.join(idle)}"
