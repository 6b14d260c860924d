"""The Triton IR compiler of libxpu (``xpu/tile.h``), called without PyTorch or a device."""

from __future__ import annotations

import ctypes
import functools
import itertools
from dataclasses import dataclass
from typing import Any

from openxpu import library_path

STAGES = ("parse", "verify", "analyse", "layout", "emit")


class Target(ctypes.Structure):
    """What is compiled for: ``xpu_tile_target``."""

    _fields_ = [
        ("name", ctypes.c_char * 32),
        ("is_cpu", ctypes.c_bool),
        ("has_subgroups", ctypes.c_bool),
        ("has_fp16", ctypes.c_bool),
        ("has_fp64", ctypes.c_bool),
        ("has_atomic64", ctypes.c_bool),
        ("has_float_atomics", ctypes.c_bool),
        ("lanes", ctypes.c_int),
        ("max_lanes", ctypes.c_int),
        ("local_memory", ctypes.c_uint64),
        ("has_inline_ptx", ctypes.c_bool),
        ("has_ptx_bf16", ctypes.c_bool),
        ("matrix_lanes", ctypes.c_int),
        ("has_matrix_tf32", ctypes.c_bool),
        ("has_packed_dot", ctypes.c_bool),
        ("has_block_2d", ctypes.c_bool),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("target", ctypes.POINTER(Target)),
        ("file", ctypes.c_char_p),
        ("num_warps", ctypes.c_int),
        ("comments", ctypes.c_bool),
        ("debug_asserts", ctypes.c_bool),
        ("dump_after", ctypes.c_int),
    ]


class Param(ctypes.Structure):
    """One field of the kernel's struct: ``kind`` is 0 for a pointer, 1 an integer, 2 a float."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("size", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
        ("is_bf16", ctypes.c_bool),
        ("is_written", ctypes.c_bool),
    ]


class _Program(ctypes.Structure):
    _fields_ = [
        ("source", ctypes.c_char_p),
        ("source_size", ctypes.c_size_t),
        ("build_options", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("params", ctypes.POINTER(Param)),
        ("param_count", ctypes.c_int),
        ("params_size", ctypes.c_uint32),
        ("grid_offset", ctypes.c_uint32),
        ("fault_offset", ctypes.c_uint32),
        ("local_size", ctypes.c_uint32),
        ("local_memory", ctypes.c_uint32),
        ("asserts", ctypes.POINTER(ctypes.c_char_p)),
        ("work", ctypes.c_uint64),
        ("dump", ctypes.c_char_p),
        ("seconds", ctypes.c_double * (1 + len(STAGES))),
    ]


@dataclass
class Compiled:
    """A compiled module; the fields are those of ``xpu_tile_program``."""

    source: str
    dump: str
    build_options: str
    name: str
    params: list[Param]
    params_size: int
    grid_offset: int
    fault_offset: int
    local_size: int
    local_memory: int
    asserts: list[str]
    work: int
    seconds: dict[str, float]


class CompileError(ValueError):
    """The module is wrong or can't be compiled; the text has its line, a caret and the reason."""


class TooLargeError(CompileError):
    """The module's blocks need more local memory than the target has."""


@functools.cache
def library() -> ctypes.CDLL:
    """Open libxpu."""
    opened = ctypes.CDLL(library_path())
    opened.xpu_last_error.restype = ctypes.c_char_p
    opened.xpu_status_name.restype = ctypes.c_char_p
    return opened


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def compile_module(
    text: bytes,
    target: str | int | dict[str, Any] = "cpu",
    file: str | None = None,
    num_warps: int = 4,
    comments: bool = False,
    debug_asserts: bool = False,
    dump_after: str | None = None,
) -> Compiled:
    """Compile a module of Triton IR.

    Parameters
    ----------
    text
        The module.
    target
        A device's name ("cpu", "bmg", …), the number of one of this machine's devices, or the fields of
        ``xpu_tile_target``.
    file
        What messages call the text.
    num_warps
        Subgroups of a program on a GPU.
    comments
        Put the Triton operation and the user's line beside each part.
    debug_asserts
        Check the module's assertions.
    dump_after
        Stop after this stage (one of ``STAGES``) and give the module as ``dump``.

    Raises
    ------
    CompileError
        With the place and the reason; TooLargeError where smaller blocks may do.
    """
    xpu = library()
    described = Target()
    status = 0
    if isinstance(target, dict):
        described = Target(**{**target, "name": target["name"].encode()})
    elif isinstance(target, int):
        status = xpu.xpu_tile_target_of_device(target, ctypes.byref(described))
    else:
        status = xpu.xpu_tile_target_find(target.encode(), ctypes.byref(described))
    if status:
        raise CompileError(_text(xpu.xpu_last_error()))
    options = _Options(
        target=ctypes.pointer(described),
        file=file.encode() if file else None,
        num_warps=num_warps,
        comments=comments,
        debug_asserts=debug_asserts,
        dump_after=1 + STAGES.index(dump_after) if dump_after else 0,
    )
    program = ctypes.POINTER(_Program)()
    status = xpu.xpu_tile_compile(
        text, ctypes.c_size_t(len(text)), ctypes.byref(options), ctypes.byref(program)
    )
    if status:
        too_large = xpu.xpu_status_name(status) == b"XPU_ERROR_OUT_OF_MEMORY"
        error = TooLargeError if too_large else CompileError
        raise error(_text(xpu.xpu_last_error()))
    try:
        p = program.contents
        return Compiled(
            source=_text(p.source),
            dump=_text(p.dump),
            build_options=_text(p.build_options),
            name=_text(p.name),
            params=[Param.from_buffer_copy(p.params[i]) for i in range(p.param_count)],
            params_size=p.params_size,
            grid_offset=p.grid_offset,
            fault_offset=p.fault_offset,
            local_size=p.local_size,
            local_memory=p.local_memory,
            asserts=[_text(text) for text in itertools.takewhile(bool, p.asserts or ())],
            work=p.work,
            seconds=dict(zip(STAGES, p.seconds[1:], strict=True)),
        )
    finally:
        xpu.xpu_tile_program_free(program)
