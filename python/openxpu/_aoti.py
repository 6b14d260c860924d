"""How Inductor's C++ for xpu is compiled: models ahead of time (AOTInductor), and ``config.cpp_wrapper``.

PyTorch generates for xpu what it generates for its own XPU build, C++ over SYCL. openxpu brings headers of the same
names (``include`` beside this file), in which SYCL's queue is a stream of libxpu and a kernel is an image
(``xpu/image.h``), and the library that PyTorch's own XPU build would have for the operators.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path
from typing import Any, TypeAlias

Options: TypeAlias = "tuple[list[str], list[str], list[str], list[str], list[str], list[str], list[str]]"

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _device_options(aot_mode: bool) -> Options:
    """Definitions, include folders, flags for compiler and linker, folders of libraries, libraries, and the rest."""
    from openxpu._build import LIBRARY

    flags = [
        # as a flag, so that it stands before PyTorch's folder
        "I" + os.path.join(_FOLDER, "include"),
        # PyTorch calls methods of the stream when it has none (see sycl/sycl.hpp)
        "fno-delete-null-pointer-checks",
    ]
    # A package has no place in it: it is loaded where another openxpu is.
    linked = [] if aot_mode else [f"Wl,-rpath,{_FOLDER}"]
    return ["USE_XPU"], [], flags, linked, [_FOLDER], ["openxpu_aoti", f":{LIBRARY}"], []


def enter(builder: Any) -> None:
    """Give ``torch._inductor.cpp_builder`` the options for xpu; its own look for SYCL and Level Zero."""
    own = builder.get_cpp_torch_device_options

    def get_cpp_torch_device_options(
        device_type: str, aot_mode: bool = False, compile_only: bool = False
    ) -> Options:
        if device_type != "xpu":
            options: Options = own(device_type, aot_mode, compile_only)
            return options
        of_cpu: Options = own("cpu", aot_mode, compile_only)
        return tuple(a + b for a, b in zip(of_cpu, _device_options(aot_mode), strict=True))  # type: ignore[return-value]

    builder.get_cpp_torch_device_options = get_cpp_torch_device_options
    _find_openxpu(builder.CppBuilder)
    _assemble_weights(builder)


# In the CMakeLists.txt of a package of C++ alone (``aot_inductor.package_cpp_only``).
_CMAKE = f"""
# The folder of Python's package openxpu: python -c "import openxpu; print(openxpu.__path__[0])"
set(OPENXPU_DIR "{_FOLDER}" CACHE PATH "Headers and libraries for xpu")
target_link_directories({{target}} PRIVATE ${{{{OPENXPU_DIR}}}})
"""


def _find_openxpu(builder: type) -> None:
    """Have PyTorch's CMake file look for openxpu where its user says, and where this one is otherwise."""
    own = builder.save_compile_cmd_to_cmake  # type: ignore[attr-defined]

    def save_compile_cmd_to_cmake(self: Any, cmake_path: str, device_type: str) -> None:
        own(self, cmake_path, device_type)
        if device_type != "xpu":
            return
        with open(cmake_path, "r+") as file:
            before, target, after = file.read().partition(f"add_library({self._target_name} ")
            line, end, rest = after.partition("\n")
            found = _CMAKE.format(target=self._target_name)
            file.seek(0)
            file.truncate()
            file.write(before + target + line + end + found + rest.replace(_FOLDER, "${OPENXPU_DIR}"))

    builder.save_compile_cmd_to_cmake = save_compile_cmd_to_cmake  # type: ignore[attr-defined]


_WEIGHTS = re.compile(r"alignas\((\d+)\) extern unsigned char (\w+)\[(\d+)\] = \{\s*$")

_ASSEMBLY = """\
\t.section .data
\t.balign {align}
\t.globl {name}
\t.type {name}, %object
\t.size {name}, {size}
{name}:
\t.incbin "{file}"
\t.section .note.GNU-stack,"",%progbits
"""


def _write_weights(source: Path, data: Path) -> re.Match[str] | None:
    """Write bytes that `source` has as numbers to `data`; None where it isn't as PyTorch 2.13 writes it."""
    written = 0
    with source.open() as text, data.open("wb") as file:
        found = next((m for m in map(_WEIGHTS.match, text) if m), None)
        for line in text:  # of 16 numbers, a comma behind each
            *numbers, end = line.split(",")
            written += file.write(bytes(map(int, numbers)))
            if "}" in end:
                break
    return found if found and written == int(found[3]) else None


def _assemble_weights(builder: Any) -> None:
    """Have the assembler take weights that are written as C++, from a file of their bytes.

    So they are in packages of C++ alone; the compiler takes some nine seconds for a megabyte of numbers.
    """
    own = builder.CppBuilder.build
    assemble = getattr(builder, "run_asm_build_object", None)

    def build(self: Any) -> None:
        target = Path(self.get_target_file_path())
        source = target.with_suffix(".cpp")
        if "USE_XPU" not in self._build_option.get_definitions() or not source.name.endswith(".weights.cpp"):
            return own(self)
        data, assembly = source.with_suffix(".bin"), source.with_suffix(".s")
        try:
            found = _write_weights(source, data)
            if found is None:
                return own(self)
            align, name, size = found.groups()
            assembly.write_text(_ASSEMBLY.format(align=align, name=name, size=size, file=data.name))
            assemble(str(assembly), str(target), str(target.parent))
        finally:
            data.unlink(missing_ok=True)
            assembly.unlink(missing_ok=True)
        return None

    if assemble is not None:
        builder.CppBuilder.build = build


def map_weights(codecache: Any) -> None:
    """Have a package's weights appended to its library, which maps them when it is loaded.

    For xpu PyTorch writes them as C++, a number a byte: a compiler takes minutes and gigabytes for a model of some
    dozen megabytes. A file of its own (``package_constants_on_disk_format``) stays one.
    """
    own = getattr(codecache, "determine_aoti_mmap_flags", None)
    if own is None:
        return

    def determine_aoti_mmap_flags(consts_size: int) -> tuple[bool, bool]:
        from torch._inductor import config
        from torch._inductor.virtualized import V

        external, mapped = own(consts_size)
        # PyTorch 2.13 leaves the mark of mapped weights out of packages of C++ alone
        by_hand = config.aot_inductor.package_cpp_only
        return external, mapped or (V.graph.device_type == "xpu" and not external and not by_hand)

    codecache.determine_aoti_mmap_flags = determine_aoti_mmap_flags


def take_images_as_they_are(codecache: Any) -> None:
    """Have kernels' images packed where PyTorch asks for assembly, or for one file for several architectures.

    Packages of C++ alone (``aot_inductor.package_cpp_only``) want a kernel's assembly beside its binary. With
    ``emit_multi_arch_kernel`` a second file is made of that; an image of source serves all devices of its target.
    """
    own_set = codecache.CudaKernelParamCache.set.__func__
    own_compile = codecache.AotCodeCompiler.compile.__func__

    def one_file() -> Any:
        from torch._inductor import config

        return config.patch({"aot_inductor.emit_multi_arch_kernel": False})

    def forget(params: dict[str, Any], kind: str) -> None:
        # In packages of C++ alone files have kernels' names, and one that is there is left: of a configuration that
        # was kept before another one was found to be faster, whose grid the wrapper has.
        from torch._inductor import config

        if config.aot_inductor.package_cpp_only:
            folder = codecache.split_aot_inductor_output_path(config.aot_inductor.output_path)[0]
            for extension in (kind, "spv"):
                Path(codecache.get_path(params["mangled_name"], extension, folder)[2]).unlink(missing_ok=True)

    def keep(
        cls: type,
        key: str,
        params: dict[str, Any],
        binary: bytes,
        kind: str,
        source: bytes | None = None,
        source_kind: str | None = None,
    ) -> None:
        if not binary.startswith(b'{"xpu_image"'):
            return own_set(cls, key, params, binary, kind, source, source_kind)
        forget(params, kind)
        with one_file():
            own_set(cls, key, params, binary, kind, binary, "spv")

    def compile(cls: type, *args: Any, device_type: str, **options: Any) -> Any:
        with one_file() if device_type == "xpu" else contextlib.nullcontext():
            return own_compile(cls, *args, device_type=device_type, **options)

    codecache.CudaKernelParamCache.set = classmethod(keep)
    codecache.AotCodeCompiler.compile = classmethod(compile)


def name_target(codecache: Any) -> None:
    """Have packages note what their kernels were compiled for, not all that is known of the device.

    Loading compares the notes, and warned of another driver or amount of memory with all properties in full.
    """
    own = getattr(codecache, "get_device_information", None)
    if own is None:
        return

    def get_device_information(device_type: str) -> dict[str, str]:
        import torch

        information: dict[str, str] = own(device_type)
        if torch.device(device_type).type == "xpu":
            information["AOTI_COMPUTE_CAPABILITY"] = torch.xpu.get_device_capability()["target"]
        return information

    codecache.get_device_information = get_device_information


def enter_codecache(codecache: Any) -> None:
    """Mend ``torch._inductor.codecache``."""
    map_weights(codecache)
    name_target(codecache)
    take_images_as_they_are(codecache)


def check_devices(utilities: Any) -> None:
    """Let models look at the device of their inputs as they do on CPU and CUDA (see bridge/aoti_runner.cpp)."""
    utilities.DEVICE_TO_INT.setdefault("xpu", 12)  # c10::DeviceType::XPU


def allow_few(wrapping: Any) -> None:
    """Let open dimensions be 0 or 1 where a package looks at its inputs, as exported programs do.

    PyTorch compiles for two and more, so that nothing is specialised; code that is right for those is for fewer.
    """
    kind = wrapping.CppWrapperCpu
    own = kind.generate_input_output_runtime_checks

    @functools.wraps(own)
    def generate_input_output_runtime_checks(self: Any) -> None:
        shapes = wrapping.V.graph.sizevars.shape_env
        known = shapes.var_to_range
        shapes.var_to_range = {
            symbol: type(limits)(0, limits.upper) if limits.lower == 2 else limits
            for symbol, limits in known.items()
        }
        try:
            own(self)
        finally:
            shapes.var_to_range = known

    setattr(kind, own.__name__, generate_input_output_runtime_checks)
