"""Runs the kernels of planted/ with one fault each, or with none, on the first OpenCL GPU, through ctypes.

``planted_host.py KERNEL:FAULT…`` forks a child for each variant, because a fault may end the use of the device, and
prints a line of JSON for each: whether the results are right, and what was printed to stderr.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_ulong, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).with_name("planted")
LIMIT = 120  # seconds of a variant
GPU = 4
READ_WRITE, COPY_HOST_POINTER = 1, 32
BUILD_LOG = 0x1183

Array = np.ndarray


@dataclass
class Output:
    """A buffer, with the values that it must have after the kernel."""

    expected: Array
    initial: Array | None = None


@dataclass
class Room:
    """A buffer that nobody writes before the kernel."""

    size: int


Argument = Array | Output | Room | int


@dataclass
class Launch:
    """A kernel's arguments and geometry."""

    arguments: list[Argument]
    items: tuple[int, ...]
    group: tuple[int, ...]


def integers(*shape: int, high: int = 1000, kind: type = np.int32) -> Array:
    """Return random numbers from 1 on, the same ones in each run."""
    return np.random.default_rng(7).integers(1, high, shape).astype(kind)


def floats(*shape: int, seed: int = 7) -> Array:
    """Return normally distributed floats, the same ones in each run."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def softmax(x: Array) -> Array:
    """Return the softmax of the last dimension."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reduce_sum() -> Launch:
    """Return four sums of 256 numbers."""
    x = integers(4, 256)
    return Launch([x, Output(x.sum(1, dtype=np.int32))], (1024,), (256,))


def tiled_product() -> Launch:
    """Return a product of 48 × 48 matrices: three tiles in each direction."""
    a, b = floats(48, 48), floats(48, 48, seed=8)
    return Launch([a, b, Output(a @ b), 48], (48, 48), (16, 16))


def scan_rows() -> Launch:
    """Return the running sums of three rows."""
    x = integers(3, 128)
    return Launch([x, Output(x.cumsum(1, dtype=np.int32))], (384,), (128,))


def softmax_rows() -> Launch:
    """Return the softmax of three rows of 500."""
    x = floats(3, 500)
    return Launch([x, Output(softmax(x)), 500], (384,), (128,))


def transpose_tiles() -> Launch:
    """Return a transposed matrix whose sizes are no multiples of the tile's."""
    x = integers(40, 56, high=60000, kind=np.uint16)
    return Launch([x, Output(x.T ^ 1), 40, 56], (64, 16), (16, 16))


def histogram() -> Launch:
    """Return how often each byte occurs."""
    x = integers(2000, high=256, kind=np.uint8)
    counts = np.bincount(x, minlength=256).astype(np.int32)
    return Launch([x, Output(counts, np.zeros(256, np.int32)), 2000], (256,), (128,))


def sort_block() -> Launch:
    """Return two blocks of keys in order."""
    x = integers(2, 256, high=1 << 30)
    return Launch([x, Output(np.sort(x, 1))], (512,), (256,))


def attend() -> Launch:
    """Return the attention of three queries to 100 keys."""
    q, k, v = floats(3, 32), floats(100, 32, seed=8), floats(100, 32, seed=9)
    return Launch([q, k, v, Output(softmax(q @ k.T) @ v), 100], (192,), (64,))


def copy_blocks() -> Launch:
    """Return a matrix plus one, of 2 × 4 blocks."""
    x = integers(16, 64, high=60000, kind=np.uint16)
    return Launch([x, Output(x + np.uint16(1)), 16, 64], (64, 2), (16, 1))


def last_group() -> Launch:
    """Return the sum of six groups' sums."""
    x = integers(384)
    zero = np.zeros(1, np.int32)
    return Launch([x, Room(24), zero, Output(x.sum(keepdims=True, dtype=np.int32))], (384,), (64,))


def hand_over() -> Launch:
    """Return the sums of two messages."""
    x = integers(2, 8)
    flags = np.zeros(2, np.int32)
    return Launch([x, Room(64), flags, Output(3 * x.sum(1, dtype=np.int32))], (256,), (128,))


def exchange_global() -> Launch:
    """Return what work-items 37 further on wrote."""
    x = integers(2, 128)
    return Launch([x, Room(1024), Output(np.roll(x, -37, 1) * 5 + 1)], (256,), (128,))


def exchange_lanes() -> Launch:
    """Return what the lanes with another number of the same subgroup wrote."""
    x = integers(2, 128)
    return Launch([x, Output(x[:, np.arange(128) ^ 5] * 7 + 1)], (256,), (128,))


def blur() -> Launch:
    """Return the averages of five neighbors in a row of 200."""
    x = floats(200)
    near = x[np.clip(np.arange(200)[:, None] + np.arange(-2, 3), 0, 199)]
    return Launch([x, Output(near.mean(1)), Room(1200), 200], (256,), (64,))


def copy_unwritten() -> Launch:
    """Return bytes plus one, beside a copy of bytes that are not there."""
    x = integers(200, high=200, kind=np.uint8)
    return Launch([x, Room(200), Room(200), Output(x + np.uint8(1))], (200,), (100,))


KERNELS: tuple[Callable[[], Launch], ...] = (
    reduce_sum,
    tiled_product,
    scan_rows,
    softmax_rows,
    transpose_tiles,
    histogram,
    sort_block,
    attend,
    copy_blocks,
    last_group,
    hand_over,
    exchange_global,
    exchange_lanes,
    blur,
    copy_unwritten,
)


class Device:
    """A queue on the first OpenCL GPU."""

    def __init__(self) -> None:
        cl = self.cl = ctypes.CDLL("libOpenCL.so.1")
        for name in ("CreateContext", "CreateCommandQueueWithProperties", "CreateProgramWithSource"):
            getattr(cl, f"cl{name}").restype = c_void_p
        for name in ("CreateKernel", "CreateBuffer"):
            getattr(cl, f"cl{name}").restype = c_void_p
        self.status = c_int()
        platform = c_void_p()
        self.device = c_void_p()
        self.check(cl.clGetPlatformIDs(1, byref(platform), None))
        self.check(cl.clGetDeviceIDs(platform, c_ulong(GPU), 1, byref(self.device), None))
        self.context = self.make("CreateContext", None, 1, byref(self.device), None, None)
        self.queue = self.make("CreateCommandQueueWithProperties", self.context, self.device, None)

    def check(self, code: int) -> None:
        """Raise for an error."""
        if code:
            raise RuntimeError(f"OpenCL error {code}")

    def make(self, name: str, *arguments: object) -> c_void_p:
        """Call a function that returns a handle and, through its last argument, a status."""
        handle = getattr(self.cl, f"cl{name}")(*arguments, byref(self.status))
        self.check(self.status.value)
        return c_void_p(handle)

    def kernel(self, name: str, fault: int) -> c_void_p:
        """Compile a kernel."""
        text = c_char_p((SOURCES / f"{name}.cl").read_bytes())
        program = self.make("CreateProgramWithSource", self.context, 1, byref(text), None)
        options = f"-cl-std=CL3.0 -DFAULT={fault}".encode()
        if self.cl.clBuildProgram(program, 0, None, options, None, None):
            log = ctypes.create_string_buffer(10000)
            self.cl.clGetProgramBuildInfo(program, self.device, BUILD_LOG, c_size_t(10000), log, None)
            raise RuntimeError(log.value.decode())
        return self.make("CreateKernel", program, name.encode())

    def buffer(self, size: int, data: Array | None) -> c_void_p:
        """Return a buffer, with a copy of data if there is any."""
        flags = READ_WRITE | (0 if data is None else COPY_HOST_POINTER)
        pointer = None if data is None else c_void_p(data.ctypes.data)
        return self.make("CreateBuffer", self.context, c_ulong(flags), c_size_t(size), pointer)

    def run(self, name: str, fault: int, launch: Launch) -> bool:
        """Run a kernel; return whether its results are right."""
        kernel = self.kernel(name, fault)
        outputs = []
        for index, argument in enumerate(launch.arguments):
            if isinstance(argument, int):
                self.check(self.cl.clSetKernelArg(kernel, index, c_size_t(4), byref(c_int(argument))))
                continue
            data = argument.initial if isinstance(argument, Output) else argument
            size = argument.expected.nbytes if isinstance(argument, Output) else 0
            if isinstance(data, Room):
                data, size = None, data.size
            if data is not None:
                data = np.ascontiguousarray(data)
                size = data.nbytes
            buffer = self.buffer(size, data)
            self.check(self.cl.clSetKernelArg(kernel, index, c_size_t(8), byref(buffer)))
            if isinstance(argument, Output):
                outputs.append((buffer, argument.expected))
        dimensions = len(launch.items)
        items, group = (c_size_t * dimensions)(*launch.items), (c_size_t * dimensions)(*launch.group)
        self.check(
            self.cl.clEnqueueNDRangeKernel(self.queue, kernel, dimensions, None, items, group, 0, None, None)
        )
        self.check(self.cl.clFinish(self.queue))
        return all(self.is_right(buffer, expected) for buffer, expected in outputs)

    def is_right(self, buffer: c_void_p, expected: Array) -> bool:
        """Compare a buffer with what it must hold."""
        got = np.empty(expected.shape, expected.dtype)
        pointer = c_void_p(got.ctypes.data)
        size = c_size_t(got.nbytes)
        self.check(
            self.cl.clEnqueueReadBuffer(self.queue, buffer, 1, c_size_t(0), size, pointer, 0, None, None)
        )
        if got.dtype == np.float32:
            return bool(np.allclose(got, expected, rtol=1e-4, atol=1e-5))
        return bool(np.array_equal(got, expected))


def run_variant(name: str, fault: int) -> dict[str, object]:
    """Run a variant in a child; return its result and its report."""
    launch = {kernel.__name__: kernel for kernel in KERNELS}[name]()
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as result:
        child = os.fork()
        if not child:
            os.dup2(report.fileno(), 2)
            signal.alarm(LIMIT)
            try:
                outcome = "right" if Device().run(name, fault, launch) else "wrong"
            except RuntimeError as error:
                outcome = str(error)
            os.write(result.fileno(), outcome.encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (result, report):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    outcome = texts[0] or f"status {status:#x}"
    return {"kernel": name, "fault": fault, "outcome": outcome, "report": texts[1]}


if __name__ == "__main__":
    for variant in sys.argv[1:]:
        kernel, _, number = variant.partition(":")
        print(json.dumps(run_variant(kernel, int(number))), flush=True)
