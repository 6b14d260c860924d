"""Tests run on the installed openxpu, or on the one built in the source tree."""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import openxpu  # noqa: F401
except ImportError:
    sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
    import openxpu  # noqa: F401  (puts the xpu device into PyTorch)
