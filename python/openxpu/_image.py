"""Kernel images: the compiler's output, which the driver loads (``xpu/image.h``).

An image fits every device that its target describes and is made without a device, in compile workers. This
module doesn't import Triton, as Inductor loads images through it too. Importing it doesn't load the device:
Triton imports all backends, even in processes with another accelerator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(image: bytes, device: int) -> Any:
    """Build an image for a device, or load its kernel from the cache."""
    from openxpu import _bridge

    return _bridge.TritonKernel(device, image)


class StaticLauncher:
    """``torch._C._StaticXpuLauncher``: loads and launches Inductor's kernels without Triton's launcher."""

    @staticmethod
    def _load_kernel(path: str, name: str, shared: int, device: int) -> tuple[Any, int, int]:
        return load(Path(path).read_bytes(), device), 0, 0

    _launch_kernel: Callable[..., None]  # the bridge's, once it is loaded
