"""What a kernel can ask about its launch, and what other devices' kernels can that xpu's can't."""

from __future__ import annotations

from typing import Any, NoReturn

from triton.language import core

from openxpu._tile import target_fields


@core.builtin
def num_warps(_semantic: Any = None) -> Any:
    """Subgroups of a program."""
    return core.constexpr(_semantic.builder.options.num_warps)


@core.builtin
def num_threads(_semantic: Any = None) -> Any:
    """Work-items of a program."""
    options = _semantic.builder.options
    return core.constexpr(options.num_warps * target_fields(options.arch)["lanes"])


def _lacking(what: str) -> NoReturn:
    raise NotImplementedError(f"{what}: OpenCL C has no such function")


@core.builtin
def globaltimer(_semantic: Any = None) -> NoReturn:  # noqa: ARG001 (Triton's signature)
    """Refuse: a kernel can't read a clock."""
    _lacking("globaltimer")


@core.builtin
def smid(_semantic: Any = None) -> NoReturn:  # noqa: ARG001
    """Refuse: a kernel can't ask where it runs."""
    _lacking("smid")


@core.builtin
def convert_custom_float8(
    arg: Any,
    dst_ty: Any,
    fp_downcast_rounding: Any = None,  # noqa: ARG001
    _semantic: Any = None,  # noqa: ARG001
) -> NoReturn:
    """Refuse: xpu's 8-bit floats are fp8e4nv and fp8e5, which Triton converts itself."""
    raise NotImplementedError(f"conversion of {arg.type} to {dst_ty}: xpu has fp8e4nv and fp8e5")
