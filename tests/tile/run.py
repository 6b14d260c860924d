"""Run a Triton IR module on NumPy arrays, using only libxpu."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import torch
from openxpu import _tile


class _Range(ctypes.Structure):
    _fields_ = [
        ("dims", ctypes.c_int),
        ("groups", ctypes.c_size_t * 3),
        ("local", ctypes.c_size_t * 3),
        ("work", ctypes.c_uint64),
    ]


_xpu = _tile.library()

HAS_FP64 = bool(torch.xpu.get_device_properties().has_fp64)

# Compilation targets. The CPU device runs kernels for all targets; a GPU runs only its own. Intel's CPU
# compiler may crash on a GPU kernel with very many barriers (seed 463 of test_differential.py): at about 48
# basic blocks that need the same values, its pass ReduceCrossBarrierValues keeps a reference to a map entry
# while the map grows. Kernels compiled for CPUs have no such barriers.
TARGETS = ["cpu", "bmg", "generic"] if torch.xpu.get_device_properties().type == "cpu" else [0]

# Targets by the instructions of dots: XMX with SIMD16, XMX with SIMD8, tensor cores; 4-way 8-bit dot product;
# none.
MATRIX_TARGETS = ["bmg", "dg2", "nvidia", "tgllp", "cpu"] if TARGETS[0] == "cpu" else [0]


# A CPU runs NVIDIA kernels with emulated instructions. A warp is a subgroup of 32; a launch may be split.
WARPS = """#define MATRIX_EMULATED
#define __kernel __attribute__((intel_reqd_sub_group_size(32))) __kernel
#define get_group_id(d) (get_group_id(d) + get_global_offset(d) / get_local_size(d))
"""


def check(status: int) -> None:
    """Raise an error with libxpu's message unless ``status`` is success."""
    if status:
        raise RuntimeError(_xpu.xpu_last_error().decode())


class Kernel:
    """A compiled module. Call it with a grid and one array or scalar per parameter, in order."""

    def __init__(
        self,
        text: str,
        target: str | int = TARGETS[0],
        num_warps: int = 4,
        debug_asserts: bool = False,
        more_options: str = "",
    ) -> None:
        self.target = target
        self.program = _tile.compile_module(
            text.encode(), target=target, num_warps=num_warps, debug_asserts=debug_asserts
        )
        self.texts = (ctypes.c_char_p * len(self.program.asserts))(
            *(t.encode() for t in self.program.asserts)
        )
        self.kernel = ctypes.c_void_p()
        options = self.program.build_options
        if TARGETS[0] == "cpu":
            options = options.replace("-cl-intel-256-GRF-per-thread", "")
        units = self._units()
        if units:  # optimizing the emulation takes seconds to minutes; running it unoptimized is fast
            options += " -cl-opt-disable"
        check(
            _xpu.xpu_kernel_create(
                0,
                (units + self.program.source).encode(),
                f"{options} {more_options}".strip().encode(),
                self.program.name.encode(),
                None,
                ctypes.byref(self.kernel),
            )
        )

    @property
    def rounds_to_tf32(self) -> bool:
        """Whether the matrix engine rounds float32 operands of the kernel to 11 bits."""
        text = self.program.source[self.program.source.rindex("__kernel void") :]
        return "_tf32_matrix_" in text or "multiply_tf32" in text

    def _units(self) -> str:
        """Return the emulation of XMX, and of NVIDIA's warps, for devices that lack them."""
        if self.target == "nvidia" and TARGETS[0] == "cpu":
            return WARPS
        if (
            not any(name in self.program.source for name in ("_matrix_mad_", "dot_4x8packed"))
            or TARGETS[0] != "cpu"
        ):
            return ""
        return (Path(__file__).parents[2] / "src" / "kernels" / "matrix" / "xmx_emulation.cl").read_text()

    def __call__(self, grid: tuple[int, ...], *arguments: np.ndarray | int | float) -> None:
        stream = ctypes.c_void_p()
        check(_xpu.xpu_stream_default(0, ctypes.byref(stream)))
        sizes = (*grid, 1, 1)[:3]
        packed = bytearray(self.program.params_size)
        copies: list[tuple[np.ndarray, ctypes.c_void_p]] = []
        for argument, param in zip(arguments, self.program.params, strict=True):
            if isinstance(argument, np.ndarray):
                memory = ctypes.c_void_p()
                check(_xpu.xpu_malloc(stream, ctypes.c_size_t(argument.nbytes), ctypes.byref(memory)))
                self._copy(stream, memory, argument.ctypes.data, argument)
                copies.append((argument, memory))
                data = memory.value.to_bytes(8, "little")
            elif isinstance(argument, int):
                data = argument.to_bytes(8, "little", signed=True)[: param.size]
            else:
                data = np.dtype(f"f{param.size}").type(argument).tobytes()
            packed[param.offset : param.offset + param.size] = data
        at = self.program.grid_offset
        packed[at : at + 12] = np.array(sizes, np.int32).tobytes()
        self.launch(stream, sizes, packed)
        for array, memory in copies:
            self._copy(stream, array.ctypes.data, memory, array)
            check(_xpu.xpu_free(memory))

    def launch(self, stream: ctypes.c_void_p, grid: tuple[int, int, int], params: bytearray) -> None:
        """Launch with a prepared struct and wait."""
        local = (ctypes.c_size_t * 3)(self.program.local_size, 1, 1)
        launch = _Range(3, (ctypes.c_size_t * 3)(*grid), local, 0)
        place = ctypes.c_void_p()
        if self.texts:
            check(_xpu.xpu_fault_watch(stream, ctypes.byref(place)))
            at = self.program.fault_offset
            addresses = np.array([place.value, ctypes.addressof(self.texts)], np.uint64)
            params[at : at + 16] = addresses.tobytes()
        buffer = (ctypes.c_char * len(params)).from_buffer(params)
        check(
            _xpu.xpu_launch(stream, self.kernel, ctypes.byref(launch), buffer, ctypes.c_size_t(len(params)))
        )
        if self.texts:
            check(_xpu.xpu_fault_raise(stream, place))
        check(_xpu.xpu_stream_synchronize(stream))

    @staticmethod
    def _copy(stream: ctypes.c_void_p, to: object, source: object, array: np.ndarray) -> None:
        size = ctypes.c_size_t(array.nbytes)
        check(
            _xpu.xpu_memcpy(
                stream,
                ctypes.c_void_p(to) if isinstance(to, int) else to,
                ctypes.c_void_p(source) if isinstance(source, int) else source,
                size,
                True,
            )
        )
