"""Call libxpu's Triton IR compiler (``xpu/tile.h``), without PyTorch or a device."""

from __future__ import annotations

import ctypes
import functools
import json
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from openxpu import library_path

STAGES = ("parse", "verify", "analyze", "layout", "emit")


class Param(NamedTuple):
    """A field of the kernel's struct; ``kind`` is 0 for pointers, 1 integers, 2 floats."""

    kind: int
    size: int
    offset: int
    is_bf16: int = 0
    is_written: int = 0


@dataclass
class Compiled:
    """A compiled module: the image and its fields (those of ``xpu_image``), or the dump."""

    image: bytes
    dump: str
    seconds: dict[str, float]
    source: str = ""
    build_options: str = ""
    name: str = ""
    params: list[Param] = field(default_factory=list)
    params_size: int = 0
    grid_offset: int = 0
    fault_offset: int = 0
    local_size: int = 0
    local_memory: int = 0
    asserts: list[str] = field(default_factory=list)
    work: int = 0


class CompileError(ValueError):
    """The module is malformed or not supported; the message has the line, a caret and the reason."""


class TooLargeError(CompileError):
    """The module's blocks need more local memory than the target has."""


@functools.cache
def library() -> ctypes.CDLL:
    """Open libxpu."""
    opened = ctypes.CDLL(library_path())
    opened.xpu_last_error.restype = ctypes.c_char_p
    opened.xpu_status_name.restype = ctypes.c_char_p
    opened.xpu_tile_program_image.restype = ctypes.c_char_p
    opened.xpu_tile_program_dump.restype = ctypes.c_char_p
    opened.xpu_tile_target_text_size.restype = ctypes.c_size_t
    opened.xpu_tile_program_seconds.restype = ctypes.c_double
    return opened


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


class _ImageHead(ctypes.Structure):
    """The first fields of ``xpu_image``."""

    _fields_ = [("kind", ctypes.c_int), ("code", ctypes.c_void_p), ("code_size", ctypes.c_size_t)]


def binary_image(image: bytes, code: bytes) -> bytes:
    """Return a source image with an offline compiler's binary as its code."""
    xpu, read, size = library(), ctypes.POINTER(_ImageHead)(), ctypes.c_size_t()
    kept = ctypes.create_string_buffer(code, len(code))
    if xpu.xpu_image_read(image, ctypes.c_size_t(len(image)), ctypes.byref(read)):
        raise CompileError(_text(xpu.xpu_last_error()))
    try:
        of = read.contents
        of.kind, of.code, of.code_size = 1, ctypes.addressof(kept), len(code)
        room = ctypes.create_string_buffer(len(image) + len(code) + 4096)
        if xpu.xpu_image_write(read, room, ctypes.c_size_t(len(room)), ctypes.byref(size)):
            raise CompileError(_text(xpu.xpu_last_error()))
    finally:
        xpu.xpu_image_free(read)
    return room.raw[: size.value]


def device_target(device: int) -> str:
    """Return the target text of a local device."""
    text = ctypes.create_string_buffer(library().xpu_tile_target_text_size())
    if library().xpu_tile_describe_device(device, text, ctypes.c_size_t(len(text))):
        raise CompileError(_text(library().xpu_last_error()))
    return _text(text.value)


def target_fields(target: str) -> dict[str, int]:
    """Return the fields of a target text by their names in ``xpu_tile_target``."""
    return {name: int(value) for name, value in (word.split("=") for word in target.split()[1:])}


def compile_module(
    text: bytes,
    target: str | int = "cpu",
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
        A target name ("cpu", "bmg", …), the index of a local device, or a target text.
    file
        Name of the text in messages.
    num_warps
        Subgroups per program on a GPU.
    comments
        Annotate the source with the Triton operations and the user's lines.
    debug_asserts
        Check the module's assertions.
    dump_after
        Stop after this stage (one of ``STAGES``) and return the module as ``dump``.

    Raises
    ------
    CompileError
        With location and reason. TooLargeError if smaller blocks may help.
    """
    xpu = library()
    options = {
        "num_warps": num_warps,
        "comments": comments,
        "debug_asserts": debug_asserts,
        "dump_after": 1 + STAGES.index(dump_after) if dump_after else 0,
    }
    program = ctypes.c_void_p()
    status = xpu.xpu_tile_compile_text(
        text,
        ctypes.c_size_t(len(text)),
        (device_target(target) if isinstance(target, int) else target).encode(),
        file.encode() if file else None,
        " ".join(f"{name}={int(value)}" for name, value in options.items()).encode(),
        ctypes.byref(program),
    )
    if status:
        too_large = xpu.xpu_status_name(status) == b"XPU_ERROR_OUT_OF_MEMORY"
        error = TooLargeError if too_large else CompileError
        raise error(_text(xpu.xpu_last_error()))
    try:
        image = xpu.xpu_tile_program_image(program) or b""
        if not image and not dump_after:
            raise CompileError(_text(xpu.xpu_last_error()))
        seconds = {stage: xpu.xpu_tile_program_seconds(program, i) for i, stage in enumerate(STAGES, start=1)}
        compiled = Compiled(image, _text(xpu.xpu_tile_program_dump(program)), seconds)
    finally:
        xpu.xpu_tile_program_free(program)
    if image:
        header, _, source = image.partition(b"\n")
        compiled.source = _text(source)
        described = json.loads(_text(header))
        for name in (field.name for field in fields(Compiled) if field.name in described):
            setattr(compiled, name, described[name])
        compiled.params = [Param(*param) for param in compiled.params]
    return compiled
