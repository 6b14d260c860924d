"""Whether launch overhead matters on a device."""

from __future__ import annotations

# Maximum number of rows for small-M kernels and fused layers.
FEW_ROWS = 16


def counts_launches(index: int | None = None) -> bool:
    """Return whether small kernels of a device (None: the current one) are dominated by launch overhead.

    On a CPU device a launch takes a microsecond on the calling thread.
    """
    import torch

    return torch.xpu.is_available() and torch.xpu.get_device_capability(index)["type"] != "cpu"
