"""Triton's driver for xpu: the current device and stream, loading images, launching."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

import openxpu
from openxpu._image import load
from openxpu._tile import target_fields


class Utils:
    """The driver functions that Triton's runtime calls."""

    @staticmethod
    def load_binary(name: str, image: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """Build an image for a device: (module, function, registers, spills, maximum work-group size)."""
        kernel = load(image, device)
        return kernel, kernel, 0, 0, 1 << 30

    @staticmethod
    def unload_module(module: Any) -> None:
        """Nothing: kernels are shared by source and live as long as the process."""

    @property
    def device_count(self) -> int:
        """Return the number of devices."""
        import torch

        return torch.xpu.device_count()

    @staticmethod
    def wait() -> None:
        """Wait for the current stream."""
        import torch

        torch.xpu.current_stream().synchronize()

    @staticmethod
    def memset(pointer: int, value: int, count: int) -> None:
        """Fill device memory on the current stream."""
        from openxpu import _bridge

        _bridge.fill_bytes(pointer, value, count)

    @staticmethod
    def get_last_selected_build_flags() -> str:
        """No flags: libxpu selects them per kernel."""
        return ""

    @staticmethod
    def get_bandwidth(device: int) -> float | None:  # noqa: ARG004 (Intel's signature)
        """Memory bandwidth in GB/s; unknown, as on devices missing from Intel's table."""
        return None

    @staticmethod
    @functools.lru_cache
    def get_device_properties(device: int) -> dict[str, Any]:
        """The properties that Triton and its autotuner read, and those of Intel's Triton for programs."""
        import torch

        p = torch.xpu.get_device_properties(device)
        lanes = _target(device).warp_size
        return {
            "max_shared_mem": p.local_mem_size,
            "max_num_regs": 256,
            "multiprocessor_count": p.gpu_subslice_count,
            "warpSize": lanes,
            "sm_clock_rate": 1000 * torch.xpu.get_device_capability(device)["max_clock_rate"],  # kHz
            "mem_clock_rate": 1000 * p.memory_clock_rate,
            "mem_bus_width": p.memory_bus_width,
            "max_work_group_size": p.max_work_group_size,
            "sub_group_sizes": tuple(p.sub_group_sizes) or (lanes,),
        }


@functools.cache
def _flags() -> tuple[str, ...]:
    """Descriptor fields beside shape and strides in this Triton: rounding to tf32 came with 3.7."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    known = ("padding", "round_f32_to_tf32")
    return tuple(name for name in known if name in TensorDescriptor.__dataclass_fields__)


def _flatten(kind: Any, value: Any) -> list[Any]:
    """Expand an argument to kernel parameters: descriptors and tuples have several."""
    if isinstance(kind, tuple):
        return [leaf for k, v in zip(kind, value, strict=True) for leaf in _flatten(k, v)]
    if isinstance(kind, str) and kind.startswith("tensordesc"):
        layout = [*value.shape, *value.strides]
        return [value.base, *layout, *(getattr(value, name) in (True, "nan") for name in _flags()), *layout]
    return [value]


def _passed(kind: Any) -> list[bool]:
    """Return which flattened parameters the kernel has; constants are not passed."""
    if isinstance(kind, tuple):
        return [leaf for k in kind for leaf in _passed(k)]
    if isinstance(kind, str) and kind.startswith("tensordesc"):
        dims = kind[kind.index("[") + 1 : kind.index("]")].count(",") + 1
        return [True] * (1 + 2 * dims + len(_flags()) + 2 * dims)
    return [kind != "constexpr"]


def launcher(src: Any, metadata: Any) -> Callable[..., None]:
    """Return a launcher for this signature; call it with grid, stream, kernel, hooks and arguments."""
    from openxpu import _bridge

    kinds: Sequence[Any] = list(src.signature.values())
    passed = [leaf for kind in kinds for leaf in _passed(kind)]
    launch = _bridge.TritonLauncher(bytes(passed))
    if all(isinstance(kind, str) and not kind.startswith("tensordesc") for kind in kinds):
        return launch

    def flattened(*values: Any) -> None:
        ours, theirs = values[:9], values[9:]
        launch(
            *ours,
            *(leaf for kind, value in zip(kinds, theirs, strict=True) for leaf in _flatten(kind, value)),
        )

    return flattened


class XPUDriver(DriverBase):
    """The xpu devices for Triton. Creating it needs no device."""

    def __init__(self) -> None:
        super().__init__()
        import torch
        import triton.language.extra.intel  # noqa: F401 (kernels name it without importing it)

        from openxpu import _bridge

        self.utils = Utils()
        self.launcher_cls = launcher
        self.get_current_device = torch.xpu.current_device
        self.set_current_device = torch.xpu.set_device
        self.get_current_stream = _bridge._xpu_getCurrentRawStream

    @classmethod
    def is_active(cls) -> bool:
        """Return whether xpu is this process's accelerator."""
        import torch

        return openxpu.is_loaded() and torch.xpu.is_available()

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the C name of a parameter type."""
        if ty.startswith("*") or ty.startswith("tensordesc"):
            return "void*"
        names = {"i1": "int8_t", "fp16": "uint16_t", "bf16": "uint16_t", "fp32": "float", "fp64": "double"}
        return names.get(ty) or {"i": "int", "u": "uint"}[ty[0]] + ty[1:] + "_t"

    def get_current_target(self) -> GPUTarget:
        """Return the compilation target of the current device."""
        return _target(self.get_current_device())

    def get_active_torch_device(self) -> Any:
        """Return the current device as a torch.device."""
        import torch

        return torch.device("xpu", self.get_current_device())

    def get_device_interface(self) -> Any:
        """Return the module with Event and synchronize."""
        import torch

        return torch.xpu

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return the function with which autotuning times kernels."""
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return memory to overwrite between timed runs, so that they start with cold caches.

        On a CPU device it covers the inner caches only. The last level is shared with the whole program, and
        overwriting it takes longer than most kernels.
        """
        import torch

        is_host = torch.xpu.get_device_capability()["type"] == "cpu"
        return torch.empty((4 if is_host else 64) << 20, dtype=torch.int8, device="xpu")

    def clear_cache(self, cache: Any) -> None:
        """Overwrite it."""
        cache.zero_()


# Architecture names of Intel's Triton by SYCL's architecture number. Numbers in one line differ in
# their last digits, which don't affect kernel selection.
_ARCHITECTURES = {
    0x030DC00800: "dg2",
    0x030F000700: "pvc",
    0x0311800400: "arl_s",
    0x0311C00400: "mtl",
    0x0312800400: "arl_h",
    0x0500400400: "bmg",
    0x0500800000: "bmg",
    0x0501000400: "lnl",
    0x0780000400: "ptl_h",
    0x0780400100: "ptl_u",
    0x0781000400: "nvl_s",
    0x0781400400: "nvl_u",
    0x08C2800000: "nvl_p",
}


def _architecture_name(capability: dict[str, Any]) -> str:
    """Return the architecture's name; "unknown" for devices that Intel's Triton doesn't name."""
    family = capability["architecture"] >> 14 << 14  # without the revision
    for number, name in _ARCHITECTURES.items():
        if number >> 14 << 14 == family:
            return name
    return "unknown"


@functools.lru_cache
def _target(device: int) -> GPUTarget:
    """Return a device's target; as in Intel's Triton, ``arch`` holds all known properties."""
    import torch

    capability = dict(torch.xpu.get_device_capability(device))
    capability["arch"] = _architecture_name(capability)
    capability["has_2d_block_io"] = capability["has_subgroup_2d_block_io"]
    capability["has_bfloat16_conversion"] = capability["has_bfloat16_conversions"]
    capability["core_clock_rate"] = 1000 * capability["max_clock_rate"]  # kHz
    return GPUTarget("xpu", capability, target_fields(capability["target"])["lanes"])
