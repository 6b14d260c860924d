"""Process groups for xpu tensors: the backend "xccl", over Gloo.

torch.distributed has the names (``ProcessGroupXCCL``, ``is_xccl_available``, "xccl" as xpu's default) and, in builds
other than Intel's, nothing behind them.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from datetime import timedelta
from types import ModuleType
from typing import Any


@functools.cache
def _library() -> ModuleType:
    """Load what carries collectives of xpu tensors, and registers c10d's operators for them."""
    from openxpu import _distributed

    return _distributed


class _Options:
    """What torch.distributed sets before it makes a backend; `is_high_priority_stream` is taken and not used."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        from torch.distributed.constants import default_pg_timeout

        self.is_high_priority_stream = is_high_priority_stream
        self._timeout: timedelta = default_pg_timeout
        self.global_ranks_in_group: list[int] = []
        self.group_name: Any = ""


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _library().ProcessGroupXCCL)


class ProcessGroupXCCL(metaclass=_Meta):
    """The backend's name in torch.distributed; calling it makes one, over a Gloo backend of the same ranks."""

    Options = _Options

    def __new__(cls, store: Any, rank: int, size: int, options: _Options | None = None) -> Any:
        """Connect to the other ranks."""
        from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo

        options = options or _Options()
        carrier = ProcessGroupGloo(store, rank, size, timeout=options._timeout)
        carrier.options.global_ranks_in_group = list(options.global_ranks_in_group)
        carrier.options.group_name = options.group_name
        backend = _library().ProcessGroupXCCL(carrier, PrefixStore("xccl", store))
        backend._set_sequence_number_for_group()
        return backend


def enter(c10d: Any) -> None:
    """Put the backend where torch.distributed looks for it, ``distributed_c10d`` having been imported."""
    if not c10d.is_gloo_available() or importlib.util.find_spec("openxpu._distributed") is None:
        return
    for name in ("torch._C._distributed_c10d", "torch.distributed"):
        sys.modules[name].__dict__["ProcessGroupXCCL"] = ProcessGroupXCCL
    c10d.ProcessGroupXCCL = ProcessGroupXCCL
    c10d._XCCL_AVAILABLE = True

    own = c10d.BackendConfig.__init__

    @functools.wraps(own)
    def parse(self: Any, backend: Any) -> None:
        own(self, backend)
        backends = self.device_backend_map
        if "xpu" not in backends:
            return
        _library()  # other backends' (fake's) operators are for the same tensors
        if backends["xpu"] == c10d.Backend.GLOO:  # by itself it takes tensors of the CPU only
            backends["xpu"] = c10d.Backend.XCCL

    c10d.BackendConfig.__init__ = parse

    helper = c10d._new_process_group_helper

    @functools.wraps(helper)
    def make(size: int, rank: int, ranks: Any, backend: Any, *rest: Any, **named: Any) -> Any:
        """Where none is named PyTorch would ask the group for Gloo's, which one of xpu alone doesn't have."""
        if backend == c10d.Backend.UNDEFINED:
            devices = c10d.BackendConfig(backend).get_device_backend_map()
            if set(devices) == {"xpu"}:
                backend = c10d.Backend(devices["xpu"])
        return helper(size, rank, ranks, backend, *rest, **named)

    c10d._new_process_group_helper = make
