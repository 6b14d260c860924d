"""Dynamo's interface of xpu, which PyTorch writes for a Triton with Intel's own backend."""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULE = "torch._dynamo.device_interface"


def _mend(interface: ModuleType) -> None:
    """Let the interface look for openxpu's backend in Triton, where it looks for one named "intel".

    From 2.15 on, PyTorch takes xpu for a device without Triton when this function raises.
    """

    def raise_if_triton_unavailable(device: object = None) -> None:
        import triton.backends

        if not {"xpu", "intel"} & triton.backends.backends.keys():
            from torch._dynamo import exc

            unavailable = getattr(exc, "TritonUnavailableError", RuntimeError)  # there from 2.15 on
            raise unavailable("Triton doesn't find openxpu's backend: is openxpu installed where Triton is?")

    interface.XpuInterface.raise_if_triton_unavailable = staticmethod(raise_if_triton_unavailable)


class _Finder(MetaPathFinder):
    """Mends the module when it is imported: importing it beforehand would bring all of Dynamo."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find what the other finders find, and have it mended once it has run."""
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        @functools.wraps(run)
        def run_and_mend(module: ModuleType) -> None:
            run(module)
            _mend(module)

        spec.loader.exec_module = run_and_mend  # type: ignore[method-assign]
        return spec


# PyTorch's warnings of what xpu never has here, of which no user has a use: by logger, how they begin.
_IDLE_WARNINGS = {
    # said when any matrix product is compiled, also by those who don't ask for max-autotune
    "torch._inductor.utils": (
        "Not enough SMs to use max_autotune_gemm mode",
        "get_device_tflops: no Triton fallback available for non-CUDA devices",
    ),
    # said when Inductor compiles C++ for the CPU; openxpu has no SYCL and needs none
    "torch.utils.cpp_extension": ("Trying to find SYCL_HOME from intel-sycl-rt package",),
}


def _is_of_use(record: logging.LogRecord) -> bool:
    """Whether to say what a logger of those above wants to say."""
    text = str(record.msg)
    if not text.startswith(_IDLE_WARNINGS[record.name]):
        return True
    config = sys.modules.get("torch._inductor.config")
    asked_for = config is not None and (config.max_autotune or config.max_autotune_gemm)
    return "max_autotune" in text and asked_for


def enter() -> None:
    """Mend the interface now if it is imported, else when it is."""
    for name in _IDLE_WARNINGS:
        logging.getLogger(name).addFilter(_is_of_use)
    if _MODULE in sys.modules:
        _mend(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())
