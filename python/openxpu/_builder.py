"""Build kernels ahead of time into the disk cache, in processes that run this module.

Building dominates a cold start, and a driver builds one kernel at a time per process. Users: `openxpu warm`,
and Inductor's compile workers for CPU devices. Workers are forked and can't use a driver, so each has a
builder process for the kernels that it compiled.
"""

from __future__ import annotations

import ctypes
import functools
import json
import multiprocessing
import os
import subprocess
import sys


def is_worker() -> bool:
    """Return whether this process was forked or spawned by another one as a worker."""
    return multiprocessing.parent_process() is not None


@functools.cache
def _builder(_: int) -> subprocess.Popen[str]:
    """Start this process's builder."""
    return start()


def start() -> subprocess.Popen[str]:
    """Start a builder process; it ends at the end of its input."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # it needs no PyTorch
    return subprocess.Popen(
        [sys.executable, "-m", "openxpu._builder"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def build_ahead(image: bytes) -> None:
    """Build an image's kernel for the CPU device into the cache.

    A builder that has ended, as after a crash of the driver's compiler, is replaced once. Never raises: the
    process that launches the kernel gets the error.
    """
    request = json.dumps({"image": image.decode("latin-1")}) + "\n"
    for _ in range(2):
        try:
            builder = _builder(os.getpid())
            assert builder.stdin is not None and builder.stdout is not None
            builder.stdin.write(request)
            builder.stdin.flush()
            if builder.stdout.readline():
                return
        except OSError:
            pass
        _builder.cache_clear()


def _host_device(xpu: ctypes.CDLL) -> int | None:
    from openxpu._tile import device_target, target_fields

    count = ctypes.c_int()
    if xpu.xpu_device_count(ctypes.byref(count)):
        return None
    for device in range(count.value):
        if target_fields(device_target(device))["is_cpu"]:
            return device
    return None


def _build_image(xpu: ctypes.CDLL, text: bytes, device: int) -> int:
    image = ctypes.c_void_p()
    status: int = xpu.xpu_image_read(text, ctypes.c_size_t(len(text)), ctypes.byref(image))
    if not status:
        status = xpu.xpu_image_kernel(image, device, ctypes.byref(ctypes.c_void_p()))
        xpu.xpu_image_free(image)
    return status


class _Stats(ctypes.Structure):
    _fields_ = [
        ("built", ctypes.c_uint64),
        ("loaded", ctypes.c_uint64),
        ("build_seconds", ctypes.c_double),
        ("load_seconds", ctypes.c_double),
    ]


def main() -> None:
    """Answer each request with a line, once its kernel is cached or can't be built.

    A request is a device and a build request (``xpu/request.h``), or the image of a kernel for the CPU
    device. The answer has the number of programs built, and the error if there is one.
    """
    from openxpu._tile import library

    xpu = library()
    host = _host_device(xpu)
    stats = _Stats()
    built = 0
    for line in sys.stdin:
        request = json.loads(line)
        status = 0
        if "request" in request:
            status = xpu.xpu_request_build(request["device"], request["request"].encode())
        elif host is not None:
            status = _build_image(xpu, request["image"].encode("latin-1"), host)
        error = xpu.xpu_last_error().decode(errors="replace") if status else None
        xpu.xpu_program_get_stats(ctypes.byref(stats))
        print(json.dumps({"built": stats.built - built, "error": error}), flush=True)
        built = stats.built


if __name__ == "__main__":
    main()
