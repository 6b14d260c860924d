"""What a call launches and copies on the device, according to the profiler."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def profiled(call: Callable[[], Result]) -> tuple[Result, list[str]]:
    """Return the result of `call` and the names of its launches and copies in order, after waiting for them.

    With OPENXPU_POISON each allocation is filled, so fills are left out. On devices with asynchronous streams
    synchronizing copies the kernels' error flags, so copies are left out.
    """
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.XPU]
    torch.xpu.synchronize()  # what came before isn't counted
    with torch.profiler.profile(activities=activities) as profiler:
        result = call()
        torch.xpu.synchronize()
    events = [e for e in profiler.events() if e.device_type != torch.autograd.DeviceType.CPU]
    names = [e.name for e in sorted(events, key=lambda e: e.time_range.start)]
    is_host = torch.xpu.get_device_properties().type == "cpu"
    unseen = {"fill"} if os.environ.get("OPENXPU_POISON") else set()
    return result, [name for name in names if name not in (unseen if is_host else {*unseen, "copy"})]
