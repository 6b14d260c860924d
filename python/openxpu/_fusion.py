"""Reduce Inductor's launches on GPUs, where a launch costs more than a small kernel."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from openxpu import _launches

# Above this number of elements, launch overhead is small.
FEW_ELEMENTS = 1 << 18
# Maximum number of kernels to combine: a decoding step has some in every layer.
FEW_KERNELS = 64


def _is_small(node: Any) -> bool:
    """Return whether a scheduler node is pointwise with a small number of elements, known at compile time."""
    from torch._inductor.virtualized import V

    if node.is_extern() or node.is_template() or node.is_foreach() or node.is_reduction():
        return False
    if not hasattr(node, "group"):  # no kernel
        return False
    _, (elements, _) = node.group
    return bool(V.graph.sizevars.statically_known_true(elements <= FEW_ELEMENTS))


def fuse_small_kernels(scheduling: ModuleType) -> None:
    """Make Inductor combine small independent kernels into one, on GPUs.

    With ``torch._inductor.config.combo_kernels`` set, Inductor combines all kernels; that is left unchanged.
    """
    from torch._inductor import config

    schedulers, foreach = scheduling.Scheduler, scheduling.ForeachKernelSchedulerNode
    if not hasattr(foreach, "set_group_algorithm_for_combo_kernels"):
        return

    # which splits groups before larger kernels are filtered out
    whole = {"combo_kernel_max_num_nodes": 1 << 30} if hasattr(config, "combo_kernel_max_num_nodes") else {}

    def small_groups(scheduler: Any) -> list[list[Any]]:
        with config.patch(whole):
            groups = foreach._default_group_nodes_for_combo_kernels(scheduler)
        few = [[node for node in group if _is_small(node)] for group in groups]
        return [group[i : i + FEW_KERNELS] for group in few for i in range(0, len(group), FEW_KERNELS)]

    own = schedulers.__init__

    @functools.wraps(own)
    def schedule(self: Any, nodes: list[Any]) -> None:
        devices = {node.get_device() for node in nodes}
        wanted = any(
            d is not None and d.type == "xpu" and _launches.counts_launches(d.index) for d in devices
        )
        if config.combo_kernels or not wanted:
            return own(self, nodes)
        before = foreach.group_algorithm_for_combo_kernels
        foreach.set_group_algorithm_for_combo_kernels(small_groups)
        try:
            with config.patch(combo_kernels=True, combo_kernels_autotune=0):
                own(self, nodes)
        finally:
            foreach.set_group_algorithm_for_combo_kernels(before)

    schedulers.__init__ = schedule


def fuse_linear_layers(registry: ModuleType) -> None:
    """Register the linear layer fusion pass (``_fuse_linear.py``) with Inductor for xpu."""
    own = registry.register_backend_for_device
    passes = getattr(registry, "custom_backend_passes", None)
    if passes is None:
        return

    @functools.wraps(own)
    def register(device: str, *given: Any, **named: Any) -> None:
        own(device, *given, **named)
        if device == "xpu" and passes.get(device) is None:
            from openxpu._fuse_linear import FuseLinearLayers

            passes[device] = FuseLinearLayers()

    setattr(registry, "register_backend_for_device", register)  # noqa: B010


def leave_few_rows(pad_mm: ModuleType) -> None:
    """Keep Inductor from padding products with few rows, on GPUs.

    It pads them to a multiple of eight if one timing is faster. That hides layers from ``_fuse_linear.py`` in
    some processes and not in others.
    """
    own = pad_mm.can_pad

    @functools.wraps(own)
    def can_pad(mat1: Any, *given: Any, **named: Any) -> bool:
        rows = mat1.shape[-2]
        if mat1.device.type == "xpu" and isinstance(rows, int) and rows <= _launches.FEW_ROWS:
            if _launches.counts_launches(mat1.device.index):
                return False
        return bool(own(mat1, *given, **named))

    setattr(pad_mm, "can_pad", can_pad)  # noqa: B010
