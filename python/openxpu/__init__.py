"""PyTorch's ``xpu`` device over OpenCL: Intel GPUs, other OpenCL 3 GPUs, and the plain processor.

Installing the package is all: ``import torch`` finds it by its entry point. Where it isn't installed (a
source tree on ``PYTHONPATH``), ``import openxpu`` does the same. Otherwise this package doesn't import PyTorch,
which takes seconds: the compiler (``openxpu compile``) needs none of it.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["__version__", "cmake_prefix_path", "is_loaded", "no_device_hint", "package", "program_stats"]
__version__: str  # by __getattr__: what is built knows it

# Beside torch.utils.cmake_prefix_path on CMAKE_PREFIX_PATH: find_package(openxpu) for programs in C++.
cmake_prefix_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "share", "cmake")

_loaded = False


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from openxpu._build import VERSION

    return VERSION


def is_loaded() -> bool:
    """Tell whether this process's PyTorch has the xpu device from here."""
    import torch  # noqa: F401 (loads us, unless autoloading is off)

    return _loaded


def program_stats() -> dict[str, float]:
    """Count the kernels' programs that this process built and loaded from the cache, and their seconds."""
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
    """Write an exported program as one file that libxpu runs without PyTorch or Python (``xpu/package.h``).

    Parameters
    ----------
    exported
        What ``torch.export.export`` gave, on any device; sizes that it left open stay so, within its bounds.
    path
        The file to write, ``model.xpk`` say.
    options
        For Inductor, as ``torch.compile`` takes them.
    targets
        The kinds of devices that the file is for, ``("bmg", "lnl", "cpu")`` say: names as ``openxpu compile`` takes
        them. One program each, the weights once; a device gets the first that suits it. None is the device here.
    compiler
        ``ocloc``, Intel's offline compiler; None looks for it in PATH. Where there is one, kernels for Intel's GPUs
        are binaries, beside the text from which drivers build those that they don't take.

    Returns
    -------
    str
        The path.

    Raises
    ------
    RuntimeError
        It names the operators that the runner lacks, or says what the offline compiler refuses.
    ValueError
        A target has no such name.
    """
    from openxpu import _package

    return _package.package(exported, path, options, targets, compiler)


def library_path() -> str:
    """Say where libxpu is: the file that ``OPENXPU_LIBRARY`` names, else the package's own."""
    named = os.environ.get("OPENXPU_LIBRARY")
    if named:
        return named
    from openxpu._build import LIBRARY

    return os.path.join(os.path.dirname(__file__), LIBRARY)


@functools.cache
def compiler_version() -> str:
    """Return what changes with every change of the compiler of Triton kernels."""
    from hashlib import blake2b

    with open(library_path(), "rb") as library:
        return blake2b(library.read(), digest_size=8).hexdigest()


def no_device_hint() -> str:
    """Say what to install when there is no device."""
    import torch  # noqa: F401

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


def _is_installed() -> bool:
    """Tell whether ``import torch`` will find this package by itself; importlib.metadata takes 60 ms for it."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        if any(name.startswith("openxpu-") and name.endswith(".dist-info") for name in names):
            return True
    return False


# Imported on its own, not by the entry point in the middle of `import torch`.
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    _torch = sys.modules.get("torch")
    if _torch is None and not _is_installed():
        import torch as _torch
    if hasattr(_torch, "_import_device_backends"):
        _autoload()
