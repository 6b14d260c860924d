"""Intel's own assembler, libiga64, through ctypes.

The interface is iga.h of intel/intel-graphics-compiler (visa/iga/IGALibrary/api/iga.h).
"""

import ctypes
from pathlib import Path

AUTO_DEPENDENCIES = 0x2  # IGA_ENCODER_OPT_AUTO_DEPENDENCIES
XE_HPG, XE_HPC, XE2, XE3 = 0x01000002, 0x01000004, 0x02000000, 0x03000000  # iga_gen_t


class _ContextOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("generation", ctypes.c_int)]


class _AssembleOptions(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint32)
        for name in ("size", "warnings", "encoder", "syntax", "zero0", "zero1", "tokens", "mode")
    ]


class _Diagnostic(ctypes.Structure):
    _fields_ = [
        ("line", ctypes.c_uint32),
        ("column", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
        ("extent", ctypes.c_uint32),
        ("message", ctypes.c_char_p),
    ]


class AssemblyError(Exception):
    """IGA rejected a line; the message quotes it."""


class Assembler:
    """Assembles for one version of the instruction set."""

    def __init__(self, library: Path, generation: int) -> None:
        self._iga = ctypes.CDLL(str(library))
        self._context = ctypes.c_void_p()
        options = _ContextOptions(ctypes.sizeof(_ContextOptions), generation)
        status = self._iga.iga_context_create(ctypes.byref(options), ctypes.byref(self._context))
        if status != 0:
            raise AssemblyError(f"IGA can't create a context for generation {generation:#x}: {status}")

    def assemble(self, text: str) -> bytes:
        """Machine code of `text`, with scoreboard annotations by IGA."""
        options = _AssembleOptions(ctypes.sizeof(_AssembleOptions), 0, AUTO_DEPENDENCIES, 0, 0, 0, 16, 0)
        code, size = ctypes.c_void_p(), ctypes.c_uint32()
        status = self._iga.iga_context_assemble(
            self._context,
            ctypes.byref(options),
            text.encode(),
            ctypes.byref(code),
            ctypes.byref(size),
        )
        if status != 0:
            raise AssemblyError(self._errors(text) or f"IGA status {status}")
        return ctypes.string_at(code, size.value)

    def _errors(self, text: str) -> str:
        found, count = ctypes.POINTER(_Diagnostic)(), ctypes.c_uint32()
        self._iga.iga_context_get_errors(self._context, ctypes.byref(found), ctypes.byref(count))
        lines = text.split("\n")
        return "\n".join(
            f"{found[i].message.decode()}: {lines[found[i].line - 1].strip()}"
            for i in range(count.value)
            if 0 < found[i].line <= len(lines)
        )
