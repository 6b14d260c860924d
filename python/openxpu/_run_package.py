"""``openxpu run-package``: run a package through libxpu alone, on arrays from .npy files."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openxpu import _tile

MAX_DIMS = 16
NAMES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 "
    "float16 bfloat16 float32 float64 complex64 complex128"
)


class Tensor(ctypes.Structure):
    """``xpu_package_tensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("is_host", ctypes.c_bool),
        ("dtype", ctypes.c_int),
        ("dims", ctypes.c_int),
        ("size", ctypes.c_int64 * MAX_DIMS),
        ("stride", ctypes.c_int64 * MAX_DIMS),
    ]


class Port(ctypes.Structure):
    """``xpu_package_port``."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("dims", ctypes.c_int),
        ("size", ctypes.c_int64 * MAX_DIMS),
        ("is_written", ctypes.c_bool),
    ]


class Memory(ctypes.Structure):
    """``xpu_package_memory``."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("file", "weights", "state", "planned", "peak_step")]


class PackageError(RuntimeError):
    """An error of libxpu about a package, its inputs or the device."""


def _check(status: int) -> None:
    if status:
        raise PackageError((_tile.library().xpu_last_error() or b"").decode(errors="replace"))


def _name(dtype: int) -> str:
    names = NAMES.split()
    return names[dtype] if dtype < len(names) else f"dtype {dtype}"


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    names = NAMES.split()
    if array.dtype.name not in names:
        raise PackageError(f"packages do not support arrays of {array.dtype.name}")
    strides = [s // array.itemsize for s in array.strides]
    if array.ndim > MAX_DIMS:
        raise PackageError(f"an array has {array.ndim} dimensions; packages support up to {MAX_DIMS}")
    shape = [(ctypes.c_int64 * MAX_DIMS)(*numbers) for numbers in (array.shape, strides)]
    return Tensor(array.ctypes.data, True, names.index(array.dtype.name), array.ndim, *shape)


class Package:
    """An opened package.

    Parameters
    ----------
    path
        A file from ``openxpu export``.
    device
        Index of the device.
    """

    def __init__(self, path: str | os.PathLike[str], device: int = 0) -> None:
        self.xpu = _tile.library()
        self.xpu.xpu_package_about.restype = ctypes.c_char_p
        self.xpu.xpu_no_device_hint.restype = ctypes.c_char_p
        count = ctypes.c_int()
        _check(self.xpu.xpu_device_count(ctypes.byref(count)))
        if not count.value:
            raise PackageError(self.xpu.xpu_no_device_hint().decode())
        self.stream, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        _check(self.xpu.xpu_stream_default(device, ctypes.byref(self.stream)))
        _check(self.xpu.xpu_package_open(os.fsencode(path), device, ctypes.byref(self.handle)))
        self.inputs, self.outputs = self._ports("inputs"), self._ports("outputs")

    def _ports(self, which: str) -> list[Port]:
        ports, count = ctypes.POINTER(Port)(), ctypes.c_int()
        _check(
            getattr(self.xpu, f"xpu_package_{which}")(self.handle, ctypes.byref(ports), ctypes.byref(count))
        )
        return [ports[i] for i in range(count.value)]

    def about(self) -> str:
        """Return the exporter's description."""
        return str(self.xpu.xpu_package_about(self.handle).decode(errors="replace"))

    def memory(self) -> dict[str, int]:
        """Return the sizes in bytes of the file and its sections, and of the last shape's memory."""
        memory = Memory()
        _check(self.xpu.xpu_package_memory_of(self.handle, ctypes.byref(memory)))
        return {name: getattr(memory, name) for name, _ in Memory._fields_}

    def prepare(self, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Any, Any, list[np.ndarray[Any, Any]]]:
        """Prepare a run: inputs (which keep their arrays alive), outputs, and output arrays."""
        ins = (Tensor * max(len(arrays), 1))(*map(_tensor, arrays))
        ins.arrays = list(arrays)  # type: ignore[attr-defined]
        outs = (Tensor * max(len(self.outputs), 1))()
        _check(self.xpu.xpu_package_shapes(self.handle, ins, len(arrays), outs, len(self.outputs)))
        results = []
        for i in range(len(self.outputs)):
            if _name(outs[i].dtype) == "bfloat16" or outs[i].dtype >= len(NAMES.split()):
                raise PackageError(f"output {i} has dtype {_name(outs[i].dtype)}, which NumPy does not have")
            results.append(np.empty(tuple(outs[i].size[: outs[i].dims]), _name(outs[i].dtype)))
            outs[i] = _tensor(results[-1])
        return ins, outs, results

    def run(self, prepared: tuple[Any, Any, list[np.ndarray[Any, Any]]], inputs: int) -> None:
        """Run what was prepared; the output arrays then hold the results."""
        _check(
            self.xpu.xpu_package_run(
                self.handle, self.stream, prepared[0], inputs, prepared[1], len(self.outputs)
            )
        )

    def close(self) -> None:
        """Release the package."""
        self.xpu.xpu_package_close(self.handle)


def _described(kind: str, port: Port) -> str:
    sizes = ", ".join("any" if size < 0 else str(size) for size in port.size[: port.dims])
    written = ", changed in place" if port.is_written else ""
    return f"{kind} {port.name.decode()}: {_name(port.dtype)} [{sizes}]{written}"


def main(options: argparse.Namespace) -> int:
    """Describe a package, run it on arrays and time it; write the outputs to files."""
    try:
        start = time.perf_counter()
        package = Package(options.file, options.device)
        print(package.about())
        for kind, ports in (("input", package.inputs), ("output", package.outputs)):
            for port in ports:
                print(_described(kind, port))
        print(f"ready after {time.perf_counter() - start:.3f} s")
        if not options.input:
            package.close()
            return 0
        arrays = [np.load(name) for name in options.input]
        prepared = package.prepare(arrays)
        package.run(prepared, len(arrays))
        if options.bench:
            times: list[float] = []
            while len(times) < 5 or (sum(times) < 1 and len(times) < 1000):
                begin = time.perf_counter()
                package.run(prepared, len(arrays))
                times.append(time.perf_counter() - begin)
            times.sort()
            print(
                f"{len(times)} runs: best {times[0] * 1e3:.3f} ms, median "
                f"{times[len(times) // 2] * 1e3:.3f} ms"
            )
        print(", ".join(f"{name} {size}" for name, size in package.memory().items()), "bytes")
        for i, result in enumerate(prepared[2]):
            path = Path(options.output or ".") / f"output{i}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, result)
            print(f"{path}: {result.dtype} {list(result.shape)}")
        package.close()
    except (OSError, ValueError, PackageError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
