"""Compare two builds of a kernel, one with the optimizer disabled, in processes that may crash."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

import numpy as np

REFERENCE = "-cl-opt-disable"
# Relative to the largest value in the array. Rounding differs by a bit or two per operation, which after
# cancellation is large relative to a small result.
TOLERANCE = {"f64": 1e-12, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def differing(built: np.ndarray, wanted: np.ndarray, error: float | np.ndarray) -> np.ndarray:
    """Return, per element, whether two builds differ: integers at all, floats by more than ``error``."""
    if not np.issubdtype(wanted.dtype, np.floating):
        return built != wanted
    with np.errstate(all="ignore"):
        same = (built == wanted) | (np.isnan(built) & np.isnan(wanted))
        return ~(same | (np.abs(built - wanted) <= error))


def largest(numbers: np.ndarray) -> float:
    """Return the largest finite magnitude."""
    return float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0))


def supervise(
    command: Sequence[str], first: int, count: int, environment: Mapping[str, str], quiet: bool = False
) -> tuple[int, int, list[str]]:
    """Run ``command FIRST COUNT``; if it crashes, restart it after the work item that crashed.

    Before each work item, the command prints ``begin NUMBER NAME``; after it, the result on one line. Before
    it runs an unoptimized build, it prints ``reference``. Returns how many items were compared and how many
    were skipped, and the findings. Findings are printed as they arrive unless ``quiet``.
    """
    compared, skipped, found = 0, 0, []
    while count > 0:
        done = subprocess.run(
            [*command, str(first), str(count)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        begun = re.findall(
            r"^begin (\d+) (.*)\n(reference\n)?(?:(same|skipped|unoptimized.*|DIFFERS.*|FAILS.*)\n)?",
            done.stdout,
            re.MULTILINE,
        )
        for _, name, has_run, result in begun:
            # Intel's compiler crashes on some programs with the optimizer disabled, so there is no reference
            lost = result == "skipped" or bool(has_run and not result)
            compared += not lost
            skipped += lost
            if not lost and result != "same" and not result.startswith("unoptimized"):
                found.append(f"{name}: {result or f'CRASHES the process ({done.returncode})'}")
                if not quiet:
                    print(found[-1], flush=True)
        if not begun and done.returncode:
            return compared, skipped, [*found, f"{command} from {first}: {done.stderr[-1500:]}"]
        if done.returncode == 0:
            break
        after = int(begun[-1][0]) + 1
        count -= after - first
        first = after
    return compared, skipped, found
