"""Runs tests of this folder again, in a process with another environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping

import torch


def written_out(variables: Mapping[str, str]) -> dict[str, str]:
    """Return `variables`, and on a processor what builds units that are written out without the driver's optimiser.

    It takes most of such a run's time, and isn't the one of a GPU.
    """
    if torch.xpu.get_device_properties().type == "cpu" and "OPENXPU_MATRIX" in variables:
        return {"OPENXPU_BUILD_OPTIONS": "-cl-opt-disable", **variables}
    return dict(variables)


def passes(tests: Iterable[str], keyword: str, **environment: str) -> None:
    """Assert that the tests which `keyword` (pytest's -k) leaves pass with these variables set."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", keyword, *tests],
        env={**os.environ, **written_out(environment)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
