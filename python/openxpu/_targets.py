"""Cross-compilation: answer Inductor's device queries for a named target.

Only what PyTorch computes on its own runs meanwhile, on the current device. Of a kernel's configurations the
first is used, which Inductor's heuristics prefer; they can't be timed here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from openxpu import _tile

# Xe cores of a common model, by which Inductor splits reductions. Other targets use the current device's.
UNITS = {"bmg": 20, "lnl": 8, "ptl": 12, "pvc": 64, "dg2": 32, "mtl": 8, "arl-h": 8, "tgllp": 6, "adl-p": 6}


def describe(name: str) -> str:
    """Return a target's text (``xpu_tile_target_write``) by name.

    Raises
    ------
    ValueError
        Unknown name; the message lists the valid ones.
    """
    library = _tile.library()
    target, text = (ctypes.create_string_buffer(4096) for _ in range(2))
    if library.xpu_tile_target_read(name.encode(), target) or library.xpu_tile_target_write(
        target, text, ctypes.c_size_t(len(text))
    ):
        raise ValueError((library.xpu_last_error() or b"").decode(errors="replace"))
    return text.value.decode()


def _forget() -> None:
    """Clear what Inductor and the driver cache about the device."""
    from torch._inductor.runtime.hints import DeviceProperties

    from openxpu.triton import driver

    for kept in (DeviceProperties.create, driver._target, driver.Utils.get_device_properties):
        kept.cache_clear()


@contextlib.contextmanager
def instead(name: str) -> Iterator[None]:
    """Make Inductor compile for the target instead of the current device."""
    import torch
    import triton
    from torch._inductor import config
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    from openxpu.triton import driver

    text = describe(name)
    fields = _tile.target_fields(text)
    capability, properties = torch.xpu.get_device_capability(), torch.xpu.get_device_properties()
    units = UNITS.get(name, properties.gpu_subslice_count)
    differences: dict[str, Any] = {
        "target": text,
        "type": "cpu" if fields["is_cpu"] else "gpu",
        "local_mem_size": fields["local_memory"],
        "max_work_group_size": fields["max_lanes"],
        "gpu_subslice_count": units,
        "multi_processor_count": units,
    }

    class Properties:
        """The current device's properties, overridden by the target's."""

        def __getattr__(self, name: str) -> Any:
            return differences[name] if name in differences else getattr(properties, name)

    with contextlib.ExitStack() as stack:
        put = stack.enter_context
        stack.callback(_forget)
        put(config.patch(compile_threads=1))
        put(mock.patch.object(torch.xpu, "get_device_capability", lambda *_: {**capability, **differences}))
        put(mock.patch.object(torch.xpu, "get_device_properties", lambda *_: Properties()))
        # load, time and launch nothing
        put(
            mock.patch.object(
                driver.Utils, "load_binary", staticmethod(lambda *_: (None, None, 0, 0, 1 << 30))
            )
        )
        put(mock.patch.object(triton.runtime.driver.active, "launcher_cls", lambda *_: lambda *_: None))
        put(
            mock.patch.object(
                CachingAutotuner,
                "benchmark_all_configs",
                lambda tuner, *_, **__: {launcher: float(i) for i, launcher in enumerate(tuner.launchers)},
            )
        )
        _forget()
        yield


def compile_offline(image: bytes, name: str, compiler: str | os.PathLike[str] | None = None) -> bytes | None:
    """Compile a source image with Intel's offline compiler.

    Parameters
    ----------
    image
        A source image (``xpu/image.h``).
    name
        The target, by the compiler's name.
    compiler
        ``ocloc``; None searches PATH.

    Returns
    -------
    bytes or None
        The image as a binary; None without a compiler, or if it lacks the target.

    Raises
    ------
    RuntimeError
        The compiler rejects the source.
    """
    found = compiler or shutil.which("ocloc")
    if not found or name not in UNITS:
        return None
    line, _, code = image.partition(b"\n")
    options = shlex.split(json.loads(line)["build_options"])
    # like the options that drivers use for kernels with addresses
    options.append("-cl-intel-greater-than-4GB-buffer-required")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cl"
        source.write_bytes(code)
        command = [found, "compile", "-file", source, "-device", name, "-options", " ".join(options)]
        command += ["-output", "kernel", "-output_no_suffix", "-out_dir", folder, "-q"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        binaries = [path for path in Path(folder).iterdir() if path.name in ("kernel", "kernel.bin")]
        if done.returncode or not binaries:
            raise RuntimeError(
                f"{found} could not compile a kernel for {name}: {done.stdout}{done.stderr}"[:2000]
            )
        return _tile.binary_image(image, binaries[0].read_bytes())
