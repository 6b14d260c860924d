"""PyTorch's ``xpu`` device over OpenCL: Intel GPUs, other OpenCL 3 GPUs, and CPUs.

An installed package needs no import: ``import torch`` loads it through its entry point. From a source tree on
``PYTHONPATH``, ``import openxpu`` does the same. When installed, importing this package doesn't import
PyTorch, which takes seconds and which the compiler (``openxpu compile``) doesn't need.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["__version__", "cmake_prefix_path", "is_loaded", "no_device_hint", "package", "program_stats"]
__version__: str  # by __getattr__, from the build

# For CMAKE_PREFIX_PATH, with torch.utils.cmake_prefix_path: find_package(openxpu) in C++ programs.
cmake_prefix_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "share", "cmake")

_loaded = False


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from openxpu._build import VERSION

    return VERSION


def is_loaded() -> bool:
    """Return whether openxpu provides this process's xpu device."""
    import torch  # noqa: F401 (loads us, unless autoloading is off)

    return _loaded


def program_stats() -> dict[str, float]:
    """Return how many OpenCL programs this process built and loaded from the cache, and the time."""
    import torch  # noqa: F401 (the bridge is linked to its libraries)

    from openxpu import _bridge

    return _bridge.program_stats()


def package(
    exported: Any,
    path: str | os.PathLike[str],
    options: dict[str, Any] | None = None,
    *,
    targets: Sequence[str] | None = None,
    compiler: str | os.PathLike[str] | None = None,
) -> str:
    """Export a program to a file that libxpu runs without PyTorch or Python (``xpu/package.h``).

    Parameters
    ----------
    exported
        An exported program (``torch.export.export``), on any device. Dynamic sizes stay dynamic within their
        bounds.
    path
        The file to write, for example ``model.xpk``.
    options
        Inductor options, as for ``torch.compile``.
    targets
        Kinds of devices to compile for, for example ``("bmg", "lnl", "cpu")``; names as in ``openxpu
        compile``. The file has one program per target and the weights once. A device uses the first program
        that fits. None: the current device.
    compiler
        ``ocloc``, Intel's offline compiler; None searches PATH. If found, kernels for Intel GPUs are stored
        as binaries, with their source as a fallback for drivers that reject them.

    Returns
    -------
    str
        The path.

    Raises
    ------
    RuntimeError
        The runner lacks operators, which the message names; or the offline compiler fails.
    ValueError
        Unknown target.
    """
    from openxpu import _package

    return _package.package(exported, path, options, targets, compiler)


def library_path() -> str:
    """Return the path of libxpu: ``OPENXPU_LIBRARY``, else the package's own."""
    named = os.environ.get("OPENXPU_LIBRARY")
    if named:
        return named
    from openxpu._build import LIBRARY

    return os.path.join(os.path.dirname(__file__), LIBRARY)


@functools.cache
def compiler_version() -> str:
    """Return a hash that changes with every change of the Triton IR compiler."""
    from hashlib import blake2b

    with open(library_path(), "rb") as library:
        return blake2b(library.read(), digest_size=8).hexdigest()


def no_device_hint() -> str:
    """Return what to install if there is no device."""
    import torch  # noqa: F401

    from openxpu import _bridge

    return _bridge.no_device_hint()


def _autoload() -> None:
    """Register the xpu device with PyTorch; called at the end of ``import torch``.

    Makes no OpenCL call. Never raises: a failure becomes a warning, or the error that ``device="xpu"``
    raises.
    """
    global _loaded
    if _loaded:
        return
    from openxpu import _load

    _loaded = _load.load()


def _is_installed() -> bool:
    """Return whether ``import torch`` will load this package; importlib.metadata would take 60 ms."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        if any(name.startswith("openxpu-") and name.endswith(".dist-info") for name in names):
            return True
    return False


# Imported directly, not by the entry point during `import torch`.
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    _torch = sys.modules.get("torch")
    if _torch is None and not _is_installed():
        import torch as _torch
    if hasattr(_torch, "_import_device_backends"):
        _autoload()
