"""Patterns that Intel's CPU compiler miscompiles, and what the emitter generates instead.

Each file in ``faults`` holds one kernel in both forms. The form that openxpu uses must compute the same with
and without optimizer. ``CL_CONFIG_LLVM_OPTIONS= python tests/intel_cpu/test_faults.py`` prints which of the
other forms the installed compiler still miscompiles. Without that empty variable, it prints which of them are
still wrong although libxpu disables loop unswitching in the driver.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tile"))
import run

FAULTS = sorted((Path(__file__).parent / "faults").glob("*.cl"))
GROUPS = 2
pytestmark = pytest.mark.skipif(run.TARGETS[0] != "cpu", reason="Intel's CPU compiler has them")


class Fault(run.Kernel):
    """One form of a kernel in a file, with its build options; it takes four pointers."""

    def __init__(self, path: Path, avoided: bool, options: str) -> None:
        params = [run._tile.Param(kind=0, size=8, offset=8 * i) for i in range(4)]
        self.program = SimpleNamespace(params=params, params_size=48, grid_offset=32, local_size=16)
        self.texts, self.kernel = (), ctypes.c_void_p()
        source = ("#define AVOIDED\n" if avoided else "") + path.read_text()
        run.check(
            run._xpu.xpu_kernel_create(
                0, source.encode(), options.encode(), b"fault", path.stem.encode(), ctypes.byref(self.kernel)
            )
        )


def computed(path: Path, avoided: bool, options: str = "") -> np.ndarray:
    """Return everything that the kernel leaves in memory."""
    arrays = [np.random.default_rng(i).integers(-99, 99, 4096).astype(np.int32) for i in range(4)]
    Fault(path, avoided, options)((GROUPS,), *arrays)
    return np.concatenate(arrays)


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_what_is_printed_instead_is_right(path):
    wanted = computed(path, False, "-cl-opt-disable")
    np.testing.assert_array_equal(computed(path, True, "-cl-opt-disable"), wanted)
    np.testing.assert_array_equal(computed(path, True), wanted)


@pytest.mark.skipif(os.environ.get("CL_CONFIG_LLVM_OPTIONS") == "", reason="the driver does as it likes")
@pytest.mark.parametrize(
    "path", [p for p in FAULTS if p.stem[:5] in ("choic", "paths")], ids=lambda path: path.stem
)
def test_loops_are_not_unswitched(path):
    np.testing.assert_array_equal(computed(path, False), computed(path, False, "-cl-opt-disable"))


def main() -> None:
    """Report on the installed compiler."""
    for path in FAULTS:
        wrong = (computed(path, False) != computed(path, False, "-cl-opt-disable")).sum()
        print(f"{path.stem}: {f'{wrong} numbers are wrong' if wrong else 'right with this compiler'}")


if __name__ == "__main__":
    main()
