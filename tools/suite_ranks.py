"""Imported by the process from which run_suite's ranks are forked: all that they need but the device.

A process that has a driver can't be forked, so while files are imported their questions for devices are answered from
OPENXPU_DEVICE; the ranks ask the driver themselves.
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
    """Import PyTorch's machinery for tests, and the files."""
    count = os.environ.get("OPENXPU_DEVICE", "").count(",") + 1
    answers = {"device_count": lambda: count, "is_available": lambda: True, "current_device": lambda: 0}
    asked = {name: getattr(torch.xpu, name) for name in answers}
    vars(torch.xpu).update(answers)
    settings = run_suite.prepare()
    for file in settings["files"]:
        sys.path.insert(0, str(Path(file).parent))
        with contextlib.suppress(Exception, SystemExit):  # ranks will say
            importlib.import_module(Path(file).stem)
    os.register_at_fork(after_in_child=lambda: vars(torch.xpu).update(asked))


if not torch.xpu._is_in_bad_fork():
    imported()
