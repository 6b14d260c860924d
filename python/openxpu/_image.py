"""Kernel images: what the compiler gives and the driver loads (``xpu/image.h``).

An image is the same for every device that its target describes, and needs no device to be made: compile workers
have none. This module needs no Triton: Inductor loads images through it, too. Nor does importing it load the
device: Triton imports all backends, in processes too whose accelerator is another.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(image: bytes, device: int) -> Any:
    """Build an image for a device, or take it from the cache of built kernels."""
    from openxpu import _bridge

    return _bridge.TritonKernel(device, image)


class StaticLauncher:
    """``torch._C._StaticXpuLauncher``: how Inductor loads and launches kernels without Triton's own launcher."""

    @staticmethod
    def _load_kernel(path: str, name: str, shared: int, device: int) -> tuple[Any, int, int]:
        return load(Path(path).read_bytes(), device), 0, 0

    _launch_kernel: Callable[..., None]  # the bridge's, once that is loaded
