"""A short part of the hunt in loops that choose by the lane, and what it is worth: without a mend it finds the fault.

The whole is ``python tests/intel_cpu/loops.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import loops

if not loops.run._xpu or loops.run.TARGETS[0] != "cpu":
    pytest.skip("Intel's CPU compiler has these faults", allow_module_level=True)


def test_loops_are_right():
    compared, found = loops.findings(0, 24)
    assert compared == 24
    assert not found
