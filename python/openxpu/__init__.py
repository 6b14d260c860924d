"""PyTorch's ``xpu`` device over OpenCL: Intel GPUs, other OpenCL 3 GPUs, and the plain processor.

Installing the package is all: ``import torch`` finds it by its entry point. Where it isn't installed (a
source tree on ``PYTHONPATH``), ``import openxpu`` does the same.
"""

from __future__ import annotations

import os
import sys

__all__ = ["__version__", "is_loaded", "no_device_hint", "program_stats"]
__version__ = "0.1.0"

_loaded = False


def is_loaded() -> bool:
    """Tell whether this process's PyTorch has the xpu device from here."""
    return _loaded


def program_stats() -> dict[str, float]:
    """Count the kernels' programs that this process built and loaded from the cache, and their seconds."""
    from openxpu import _bridge

    return _bridge.program_stats()


def no_device_hint() -> str:
    """Say what to install when there is no device."""
    from openxpu import _bridge

    return _bridge.no_device_hint()


def _autoload() -> None:
    """Give PyTorch its xpu device; called at the end of ``import torch``.

    Makes no OpenCL call. Never raises: what keeps the device away becomes a warning, or the text of the
    error that ``device="xpu"`` raises.
    """
    global _loaded
    if _loaded:
        return
    from openxpu import _load

    _loaded = _load.load()


# Imported on its own, not by the entry point in the middle of `import torch`.
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    _torch = sys.modules.get("torch")
    if _torch is None:
        import torch as _torch
    if hasattr(_torch, "_import_device_backends"):
        _autoload()
