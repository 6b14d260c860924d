"""Kernels built ahead, in compile workers, for the host's processor.

Inductor compiles in worker processes. Those are forked, and a forked process can't use a driver; so each
has a process of this module, which builds what it is sent into the cache on disk, where the process that
launches finds it. Building is most of the time of a cold compile on a processor, and the driver builds one
kernel at a time in a process.
"""

from __future__ import annotations

import ctypes
import functools
import json
import multiprocessing
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openxpu._tile import Compiled


def is_worker() -> bool:
    """Say whether this is a process that another one forked or spawned for its work."""
    return multiprocessing.parent_process() is not None


@functools.cache
def _builder(_: int) -> subprocess.Popen[str]:
    """Start this process's builder; it ends with its input."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # it needs no PyTorch
    return subprocess.Popen(
        [sys.executable, "-m", "openxpu._builder"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def build_ahead(program: Compiled) -> None:
    """Build a kernel for the host's processor into the cache.

    Never raises: where this fails, the process that launches meets the error, and raises it.
    """
    request = {"source": program.source, "options": program.build_options, "name": program.name}
    try:
        builder = _builder(os.getpid())
        assert builder.stdin is not None and builder.stdout is not None
        builder.stdin.write(json.dumps(request) + "\n")
        builder.stdin.flush()
        builder.stdout.readline()
    except OSError:
        pass


def _host_device(xpu: ctypes.CDLL) -> int | None:
    from openxpu._tile import Target

    count = ctypes.c_int()
    target = Target()
    if xpu.xpu_device_count(ctypes.byref(count)):
        return None
    for device in range(count.value):
        if not xpu.xpu_tile_target_of_device(device, ctypes.byref(target)) and target.is_cpu:
            return device
    return None


def main() -> None:
    """Answer each request with a line, once its kernel is in the cache or can't be built."""
    from openxpu._tile import library

    xpu = library()
    device = _host_device(xpu)
    for line in sys.stdin:
        request = json.loads(line)
        texts = (request[key].encode() for key in ("source", "options", "name"))
        if device is not None:
            xpu.xpu_kernel_create(device, *texts, None, ctypes.byref(ctypes.c_void_p()))
        print("done", flush=True)


if __name__ == "__main__":
    main()
