"""Runs tests of this folder again, in a process with another environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable


def passes(tests: Iterable[str], keyword: str, **environment: str) -> None:
    """Assert that the tests which `keyword` (pytest's -k) leaves pass with these variables set."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", keyword, *tests],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
