"""Where the launches of kernels are what a program waits for."""

from __future__ import annotations

# Up to which products have kernels of their own, and layers are joined.
FEW_ROWS = 16


def counts_launches(index: int | None = None) -> bool:
    """Tell whether launches of a device (None: the current one) are what small kernels wait for.

    A host device's take a microsecond, on the thread that calls.
    """
    import torch

    return torch.xpu.is_available() and torch.xpu.get_device_capability(index)["type"] != "cpu"
