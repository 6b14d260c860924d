"""Tests run on the openxpu built in the source tree if there is one, else on the installed one."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "python"
if (SOURCE / "openxpu" / "_bridge.so").exists():
    sys.path.insert(0, str(SOURCE))

import openxpu  # noqa: E402, F401  (puts the xpu device into PyTorch)
