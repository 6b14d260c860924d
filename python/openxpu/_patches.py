"""Patches of PyTorch's Python code for xpu, applied when PyTorch imports a module."""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from openxpu import _attention, _process_group, _shared_memory


def _look_for_backend(interface: ModuleType) -> None:
    """Make Dynamo's interface find openxpu's Triton backend; it looks for one named "intel".

    From 2.15 on, PyTorch treats xpu as a device without Triton if this function raises.
    """

    def raise_if_triton_unavailable(device: object = None) -> None:
        import triton.backends

        if not {"xpu", "intel"} & triton.backends.backends.keys():
            from torch._dynamo import exc

            unavailable = getattr(exc, "TritonUnavailableError", RuntimeError)  # from 2.15 on
            raise unavailable(
                "Triton can't find openxpu's backend: install openxpu in the same environment as Triton."
            )

    interface.XpuInterface.raise_if_triton_unavailable = staticmethod(raise_if_triton_unavailable)


def _leave_scales(products: ModuleType) -> None:
    """Make Inductor call _scaled_mm_v2 directly for xpu, except with per-tensor or per-row scales.

    Inductor's lowering rejects swizzled scales. It passes the first of several scales, and block scales, to
    the first version of the operator, which misinterprets them.
    """
    import torch
    from torch._inductor import ir, lowering

    operation = torch.ops.aten._scaled_mm_v2.default
    own = lowering.lowerings.get(operation)
    if own is None:  # earlier versions of Inductor don't lower it
        return
    simple = ([0], [1])  # ScalingType.TensorWise and RowWise
    fallback = lowering.fallback_handler(operation, add_to_fallback_set=False)

    def lower(
        a: Any,
        b: Any,
        scale_a: Any,
        recipe_a: Any,
        swizzle_a: Any,
        scale_b: Any,
        recipe_b: Any,
        swizzle_b: Any,
        *rest: Any,
        **named: Any,
    ) -> Any:
        given = (scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, *rest)
        is_simple = list(recipe_a) in simple and list(recipe_b) in simple
        if a.get_device().type != "xpu" or (is_simple and not any((*swizzle_a, *swizzle_b))):
            return own(a, b, *given, **named)
        a = ir.ExternKernel.require_stride_order(a, (1, 0))
        b = ir.ExternKernel.require_stride_order(b, (0, 1))
        return fallback(a, b, *given, **named)

    lowering.register_lowering(operation, type_promotion_kind=None)(lower)


def _flush_less(benchmarking: ModuleType) -> None:
    """Make Inductor's autotuner flush only the inner caches of a CPU device, not the shared last level.

    Writing that much memory between calls takes longer than most kernels, about a second per configuration.
    """
    kind = benchmarking.InductorBenchmarker
    own = getattr(kind, "get_device_cache_size", None)
    if own is None:
        return

    def get_device_cache_size(self: Any, device_type: Any = None) -> int:
        import torch

        size: int = own(self, device_type)
        is_host = torch.xpu.is_available() and torch.xpu.get_device_capability()["type"] == "cpu"
        return min(size, 4 << 20) if is_host else size

    kind.get_device_cache_size = get_device_cache_size


def _scale_in_float32(scaling: ModuleType) -> None:
    """Make gradient scalers compute the inverse scale in float32 on devices without fp64, such as Arc A.

    PyTorch computes it in float64 because float32 division may be inexact; on xpu it is correctly rounded.
    """
    import torch

    class Scale(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

        def double(self) -> torch.Tensor:
            return self.as_subclass(torch.Tensor)

    for name in ("GradScaler", "ShardedGradScaler"):
        kind = vars(scaling).get(name)
        if kind is None or kind.__module__ != scaling.__name__:
            continue
        own = kind.unscale_

        @functools.wraps(own)
        def unscale_(self: Any, optimizer: Any, own: Callable[..., None] = own) -> None:
            scale = self._scale
            if (
                scale is None
                or scale.device.type != "xpu"
                or torch.xpu.get_device_properties(scale.device).has_fp64
            ):
                return own(self, optimizer)
            self._scale = scale.as_subclass(Scale)
            try:
                return own(self, optimizer)
            finally:
                self._scale = scale

        kind.unscale_ = unscale_


def _without_sycl(module: ModuleType, run: Callable[[ModuleType], None]) -> None:
    """Run bitsandbytes' loader without its SYCL library, so that it uses its Triton kernels.

    With oneAPI installed, versions before 0.50 load that library whatever torch.version.xpu is, and pass it a
    libxpu stream as a ``sycl::queue``.
    """
    own = ctypes.cdll.LoadLibrary

    def load(name: str) -> ctypes.CDLL:
        if "bitsandbytes_xpu" in os.path.basename(name):
            raise OSError(f"{name} needs a SYCL queue, which openxpu does not have")
        return own(name)

    ctypes.cdll.LoadLibrary = load  # type: ignore[method-assign]
    try:
        run(module)
    finally:
        del ctypes.cdll.LoadLibrary


def _by(name: str, function: str) -> Callable[..., None]:
    """Return a function whose module is imported on the first call: most programs compile nothing."""

    def call(*given: Any) -> None:
        getattr(importlib.import_module(f"openxpu.{name}"), function)(*given)

    return call


# Modules, and the patch to apply after each has run.
_PATCHES = {
    "torch._dynamo.backends.cudagraphs": _by("_graph_trees", "name_device"),
    "torch._dynamo.device_interface": _look_for_backend,
    "torch._inductor.codecache": _by("_aoti", "enter_codecache"),
    "torch._inductor.codegen.common": _by("_fusion", "fuse_linear_layers"),
    "torch._inductor.codegen.cpp_utils": _by("_aoti", "check_devices"),
    "torch._inductor.codegen.cpp_wrapper_cpu": _by("_aoti", "allow_few"),
    "torch._inductor.compile_fx": _by("_graph_trees", "run_without_trees"),
    "torch._inductor.cpp_builder": _by("_aoti", "enter"),
    "torch._inductor.cudagraph_utils": _by("_graph_trees", "allow_xpu"),
    "torch._inductor.fx_passes.pad_mm": _by("_fusion", "leave_few_rows"),
    "torch._inductor.kernel.mm": _leave_scales,
    "torch._inductor.output_code": _by("_graph_trees", "tell_reasons"),
    "torch._inductor.runtime.benchmarking": _flush_less,
    "torch._inductor.scheduler": _by("_fusion", "fuse_small_kernels"),
    "torch.amp.grad_scaler": _scale_in_float32,
    "torch.distributed.distributed_c10d": _process_group.enter,
    "torch.distributed.fsdp.sharded_grad_scaler": _scale_in_float32,
    "torch.distributed.tensor._api": _by("_sharding", "enter"),
    "torch.multiprocessing.reductions": _shared_memory.enter,
    "torch.nested._internal.sdpa": _attention.enter_jagged,
    "torch.nn.modules.activation": _attention.enter_layers,
}

# Modules that are executed differently: called with the module and its loader.
_RUNS: dict[str, Callable[..., None]] = {
    "bitsandbytes.cextension": _without_sycl,
    "torch._inductor.cudagraph_trees": _by("_graph_trees", "run_for_xpu"),
}


class _Finder(MetaPathFinder):
    """Patches modules when they are imported: importing them ahead of time would load all of Dynamo."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find what the other finders find, and patch it once it has run."""
        if name not in self.names:
            return None
        self.names.remove(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        @functools.wraps(run)
        def run_and_patch(module: ModuleType) -> None:
            if name in _RUNS:
                _RUNS[name](module, run)
            else:
                run(module)
                _PATCHES[name](module)

        spec.loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec


# Warnings of PyTorch about features that xpu doesn't have here, which users can't act on: prefixes by logger.
_IDLE_WARNINGS = {
    # for any compiled matrix product, even without max-autotune
    "torch._inductor.utils": (
        "Not enough SMs to use max_autotune_gemm mode",
        "get_device_tflops: no Triton fallback available for non-CUDA devices",
    ),
    # when Inductor compiles C++ for the CPU; openxpu needs no SYCL
    "torch.utils.cpp_extension": ("Trying to find SYCL_HOME from intel-sycl-rt package",),
}


def _is_of_use(record: logging.LogRecord) -> bool:
    """Return whether a message of those loggers is useful."""
    text = str(record.msg)
    if not text.startswith(_IDLE_WARNINGS[record.name]):
        return True
    config = sys.modules.get("torch._inductor.config")
    asked_for = config is not None and (config.max_autotune or config.max_autotune_gemm)
    return "max_autotune" in text and asked_for


def enter() -> None:
    """Patch what is already imported now, and the rest on import."""
    for name in _IDLE_WARNINGS:
        logging.getLogger(name).addFilter(_is_of_use)
    later = set(_RUNS)
    for name, mend in _PATCHES.items():
        if name in sys.modules:
            mend(sys.modules[name])
        else:
            later.add(name)
    sys.meta_path.insert(0, _Finder(later))
