"""Tests run on the openxpu built in the source tree if there is one, else on the installed one."""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "python"
MOST = 8  # cases of a parametrized test in `make test`
if (SOURCE / "openxpu" / "_bridge.so").exists():
    sys.path.insert(0, str(SOURCE))

import openxpu  # noqa: E402, F401  (puts the xpu device into PyTorch)
import sampling  # noqa: E402
import torch  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker that `make test` knows."""
    config.addinivalue_line("markers", "extended: runs in `make test-all`, not in `make test`")


@pytest.hookimpl(trylast=True)  # of what keywords leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of parametrized tests (see sampling.py).

    With OPENXPU_TEST_PAIRS=1 each test runs with enough of its cases to see every pair of parameters' values, but with
    no more than MOST unless single values need them, and those marked as extended don't run; with OPENXPU_TEST_EVERY=N
    one in N cases.
    """
    every = int(os.environ.get("OPENXPU_TEST_EVERY", "1"))
    by_pairs = os.environ.get("OPENXPU_TEST_PAIRS", "0") == "1"
    if every == 1 and not by_pairs:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if by_pairs and item.get_closest_marker("extended"):
            continue
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen: set[pytest.Item] = set()
    for cases in tests.values():
        names = [case.nodeid for case in cases]
        if by_pairs and all(hasattr(case, "callspec") for case in cases):
            kept = sampling.pairwise([tuple(case.callspec._idlist) for case in cases], names, MOST)
            cases = [cases[i] for i in kept]
            names = [case.nodeid for case in cases]
        chosen.update(cases[i] for i in sampling.one_in(every, names))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def pytest_collection_finish() -> None:
    """Leave out work that takes longer than most tests and finds nothing.

    The garbage collector need not look at the modules and test items that live to the end, and OpInfo need not search
    the call stack for a unittest, which it does twice for each list of samples.
    """
    gc.collect()
    gc.freeze()
    for name in ("common_utils", "opinfo.core"):
        module = sys.modules.get(f"torch.testing._internal.{name}")
        if hasattr(module, "extract_test_fn"):
            vars(module)["extract_test_fn"] = lambda: None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """On a device without fp64, skip a test that computes in float64 once it gets the error that says so.

    A test that does not mention float64 fails: an operator for other dtypes must not need fp64.
    """
    try:
        return (yield)
    except Exception as error:
        lacks = "which has no fp64" in str(error) and not torch.xpu.get_device_properties().has_fp64
        if lacks and _mentions_float64(pyfuncitem):
            pytest.skip("the device has no fp64")
        raise


def _mentions_float64(test: pytest.Function) -> bool:
    """Do a test's name, parameters or source name a floating-point dtype of 64 bits?"""
    parameters = test.callspec.params if hasattr(test, "callspec") else {}
    text = f"{test.name} {parameters} {inspect.getsource(test.function)}"
    return re.search(r"float64|complex128|double|gradcheck", text) is not None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Free what a file's tests left behind, such as graphs, whose memory the next file's tests may not share."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
