"""Tests run on the openxpu built in the source tree if there is one, else on the installed one."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "python"
if (SOURCE / "openxpu" / "_bridge.so").exists():
    sys.path.insert(0, str(SOURCE))

import openxpu  # noqa: E402, F401  (puts the xpu device into PyTorch)


def pytest_collection_finish() -> None:
    """OpInfo looks for a unittest among all calls under way, with their sources, twice for each list of samples.

    That takes longer than most tests, and finds none here.
    """
    for name in ("common_utils", "opinfo.core"):
        module = sys.modules.get(f"torch.testing._internal.{name}")
        if hasattr(module, "extract_test_fn"):
            vars(module)["extract_test_fn"] = lambda: None
