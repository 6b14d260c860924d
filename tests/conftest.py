"""Tests run on the openxpu built in the source tree if there is one, else on the installed one."""

from __future__ import annotations

import math
import os
import sys
import zlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "python"
if (SOURCE / "openxpu" / "_bridge.so").exists():
    sys.path.insert(0, str(SOURCE))

import openxpu  # noqa: E402, F401  (puts the xpu device into PyTorch)


@pytest.hookimpl(trylast=True)  # of what keywords leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With OPENXPU_TEST_EVERY=N each test runs with one in N of its parameters, at least one, picked by their names."""
    every = int(os.environ.get("OPENXPU_TEST_EVERY", "1"))
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen: set[pytest.Item] = set()
    for cases in tests.values():
        cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        chosen.update(cases[: math.ceil(len(cases) / every)])
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def pytest_collection_finish() -> None:
    """OpInfo looks for a unittest among all calls under way, with their sources, twice for each list of samples.

    That takes longer than most tests, and finds none here.
    """
    for name in ("common_utils", "opinfo.core"):
        module = sys.modules.get(f"torch.testing._internal.{name}")
        if hasattr(module, "extract_test_fn"):
            vars(module)["extract_test_fn"] = lambda: None
