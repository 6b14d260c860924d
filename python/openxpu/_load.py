"""Register the xpu device with the imported PyTorch."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import warnings
from types import ModuleType

import torch
import torch.xpu

# Parts of torch.xpu, in dependency order.
_PARTS = ("streams", "graphs", "memory", "random")

# torch.version.xpu. Programs compare it, as a number, with SYCL compiler releases (YYYYMMPP) for features:
# event timing, free memory, device architecture. All of these exist here. By year and month, bitsandbytes and
# Hugging Face's kernels also select SYCL binaries, and pass them a stream as their queue: hence a year
# without any.
_XPU_VERSION = "20990000"

_CUDA_BUILD = (
    "This PyTorch is a CUDA build, and PyTorch supports one accelerator per process: here, CUDA. "
    "To use xpu, start the program with `openxpu run script.py`, "
    "or install a CPU build of PyTorch: pip install torch --index-url https://download.pytorch.org/whl/cpu"
)


def load() -> bool:
    """Load the device. Returns False if that fails; using xpu then raises the reason."""
    if torch._C._has_xpu:
        return False  # Intel's own build: nothing to add
    if torch.version.cuda is not None and os.environ.get("OPENXPU_ACCELERATOR") != "1":
        _refuse(_CUDA_BUILD)
        return False
    mismatch = _version_mismatch()
    if mismatch:
        warnings.warn(mismatch, stacklevel=2)
        _refuse(mismatch)
        return False
    if torch.version.cuda is not None:
        _hide_cuda()
    # where pip installs Intel's CPU runtime
    os.environ.setdefault("OPENXPU_DRIVER_PATH", os.path.join(sys.prefix, "lib"))
    try:
        bridge = importlib.import_module("openxpu._bridge")
    except ImportError as error:
        reason = f"openxpu could not be loaded: {error}"
        warnings.warn(reason, stacklevel=2)
        _refuse(reason)
        return False
    _enter(bridge)
    return True


def _hide_cuda() -> None:
    """Hide CUDA: torch.compile and Triton reject two accelerators.

    OPENXPU_KEEP_CUDA=1 keeps both, for comparisons in one process.
    """
    os.environ.setdefault("TRITON_DEFAULT_BACKEND", "xpu")
    if os.environ.get("OPENXPU_KEEP_CUDA") != "1":
        torch.cuda._is_compiled = lambda: False


def _version_mismatch() -> str | None:
    """Return a message if the bridge was compiled for another PyTorch, whose C++ interface differs."""
    try:
        from openxpu._build import TORCH_VERSION
    except ImportError:
        return None
    built, running = (version.split("+")[0].split(".")[:2] for version in (TORCH_VERSION, torch.__version__))
    if built == running:
        return None
    return (
        f"openxpu was built for PyTorch {TORCH_VERSION}, but this is PyTorch {torch.__version__}. "
        "Rebuild it: pip install --force-reinstall --no-build-isolation --no-deps openxpu"
    )


def _refuse(reason: str) -> None:
    """Make the first use of xpu raise ``reason``."""

    def lazy_init() -> None:
        raise RuntimeError(reason)

    torch.xpu._lazy_init = lazy_init


def _enter(bridge: ModuleType) -> None:
    """Add to torch._C what torch.xpu calls, and make torch.xpu notice."""
    from openxpu import _patches, _shapes, _types
    from openxpu._image import StaticLauncher

    for name in dir(bridge):
        if name.startswith("_xpu_"):
            setattr(torch._C, name, getattr(bridge, name))
    _types.enter(torch._C)
    torch._C._has_xpu = True
    torch.version.xpu = _XPU_VERSION
    torch._C._dynamo.guards._empty_strided_xpu = bridge._empty_strided_xpu
    StaticLauncher._launch_kernel = staticmethod(bridge.triton_launch)
    torch._C._StaticXpuLauncher = StaticLauncher
    torch._C._aoti.AOTIModelContainerRunnerXpu = bridge.AOTIModelContainerRunnerXpu
    atexit.register(bridge.drain_autograd)  # before Python is finalized: see bridge/engine.cpp
    # torch.xpu was imported when there was no device: run it again in place.
    for part in _PARTS:
        importlib.reload(importlib.import_module(f"torch.xpu.{part}"))
    importlib.reload(torch.xpu)
    _types.extend(torch.xpu)
    _patches.enter()
    _shapes.enter()
    _mark_caches()
    _trace_attention()


def _mark_caches() -> None:
    """Make PyTorch's caches of compiled graphs, which contain kernels, depend on the compiler's version."""
    from torch.compiler import config

    from openxpu import compiler_version

    config.cache_key_tag += f"openxpu-{compiler_version()}"


def _trace_attention() -> None:
    """Make scaled_dot_product_attention traceable without autograd, as torch.export does in inference mode.

    Tracing would otherwise reach PyTorch's own function, whose table has no entry for xpu in a CPU build.
    """
    attention = torch.ops.aten.scaled_dot_product_attention.default
    own = torch._C.DispatchKey.CompositeImplicitAutograd

    @attention.py_impl(own)
    def decompose(query: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        key = torch._C.DispatchKey.XPU if query.device.type == "xpu" else own
        return attention._op_dk(key, query, *rest, **options)
