"""Shut down a process that has used collectives.

A normal exit waits for collectives in progress: other ranks depend on them, and threads that run while Python
finalizes would abort the process. A process that ends with an exception abandons them, as the others may
never join.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from multiprocessing import util
from typing import Any

_failed: list[bool] = []
_watched: list[int] = []  # process ids: a forked process has another
_then: list[Callable[[], None]] = []


def has_failed() -> bool:
    """Return whether this process ends with an exception."""
    error = sys.exc_info()[1]  # of a multiprocessing process whose main function raised it
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return bool(_failed) or error is not None


def _note_exceptions() -> None:
    usual = sys.excepthook

    def note(*exception: Any) -> None:
        _failed.append(True)
        usual(*exception)

    sys.excepthook = note


def _finish(process: int) -> None:
    from openxpu import _distributed

    if os.getpid() != process:
        return
    try:
        while not has_failed() and _distributed.is_busy():  # each has its group's timeout
            time.sleep(1e-3)
    finally:
        _distributed.leave_all()
        _distributed.finish_dumps()
        while _then:
            _then.pop()()


def watch(then: Callable[[], None] | None = None) -> None:
    """Shut this process down in order, and call `then` at the end. Idempotent."""
    process = os.getpid()
    if then:
        _then.append(then)
    if process in _watched:
        return
    _watched.append(process)
    _note_exceptions()
    atexit.register(_finish, process)
    util.Finalize(None, _finish, (process,), exitpriority=100)  # multiprocessing's processes don't run atexit
