"""Preloads what the ranks of run_suite need, except the device, in the process from which they are forked.

A process with a loaded driver cannot be forked. While the test files are imported, device queries are
therefore answered from OPENXPU_DEVICE; the ranks query the driver themselves.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

import run_suite  # type: ignore[import-not-found]  # beside this file
import torch


def imported() -> None:
    """Import PyTorch's test utilities and the test files."""
    count = os.environ.get("OPENXPU_DEVICE", "").count(",") + 1
    answers = {"device_count": lambda: count, "is_available": lambda: True, "current_device": lambda: 0}
    asked = {name: getattr(torch.xpu, name) for name in answers}
    vars(torch.xpu).update(answers)
    settings = run_suite.prepare()
    for file in settings["files"]:
        sys.path.insert(0, str(Path(file).parent))
        with contextlib.suppress(Exception, SystemExit):  # the ranks will report it
            importlib.import_module(Path(file).stem)
    os.register_at_fork(after_in_child=lambda: vars(torch.xpu).update(asked))


if not torch.xpu._is_in_bad_fork():
    imported()
