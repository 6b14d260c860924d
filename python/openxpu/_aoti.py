"""Compile Inductor's C++ for xpu: AOTInductor models and ``config.cpp_wrapper``.

PyTorch generates the C++ of its own XPU build, over SYCL. openxpu provides headers with the same names
(``include`` beside this file): a SYCL queue is a libxpu stream, a kernel is an image (``xpu/image.h``). It
also provides the library of operators that PyTorch's XPU build has.
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
    """Return definitions, include folders, compiler and linker flags, library folders, libraries, rest."""
    from openxpu._build import LIBRARY

    flags = [
        # as a flag, so that it precedes PyTorch's folder
        "I" + os.path.join(_FOLDER, "include"),
        # PyTorch calls methods of a null stream (see sycl/sycl.hpp)
        "fno-delete-null-pointer-checks",
    ]
    # Not for packages: they are loaded with another openxpu.
    linked = [] if aot_mode else [f"Wl,-rpath,{_FOLDER}"]
    return ["USE_XPU"], [], flags, linked, [_FOLDER], ["openxpu_aoti", f":{LIBRARY}"], []


def enter(builder: Any) -> None:
    """Patch ``torch._inductor.cpp_builder``, which otherwise requires SYCL and Level Zero."""
    own = builder.get_cpp_torch_device_options

    def get_cpp_torch_device_options(
        device_type: str, aot_mode: bool = False, compile_only: bool = False
    ) -> Options:
        if device_type != "xpu":
            options: Options = own(device_type, aot_mode, compile_only)
            return options
        of_cpu: Options = own("cpu", aot_mode, compile_only)
        both = zip(of_cpu, _device_options(aot_mode), strict=True)
        return tuple(a + b for a, b in both)  # type: ignore[return-value]

    builder.get_cpp_torch_device_options = get_cpp_torch_device_options
    _find_openxpu(builder.CppBuilder)
    _assemble_weights(builder)


# For the CMakeLists.txt of a C++ only package (``aot_inductor.package_cpp_only``).
_CMAKE = f"""
# The folder of Python's package openxpu: python -c "import openxpu; print(openxpu.__path__[0])"
set(OPENXPU_DIR "{_FOLDER}" CACHE PATH "Headers and libraries for xpu")
target_link_directories({{target}} PRIVATE ${{{{OPENXPU_DIR}}}})
"""


def _find_openxpu(builder: type) -> None:
    """Make PyTorch's CMake file find openxpu: where the user says, else here."""
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
    """Write the bytes of the literals in `source` to `data`; None if PyTorch 2.13 didn't write it."""
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
    """Make the assembler include weights from a binary file instead of compiling them as C++.

    For packages of C++ only. The compiler takes about nine seconds per megabyte of literals.
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
    """Append a package's weights to its library, which maps them when it is loaded.

    For xpu PyTorch writes them as C++, one literal per byte: a compiler takes minutes and gigabytes for a
    model of some dozen megabytes. Weights in a file of their own (``package_constants_on_disk_format``) are
    left as they are.
    """
    own = getattr(codecache, "determine_aoti_mmap_flags", None)
    if own is None:
        return

    def determine_aoti_mmap_flags(consts_size: int) -> tuple[bool, bool]:
        from torch._inductor import config
        from torch._inductor.virtualized import V

        external, mapped = own(consts_size)
        # PyTorch 2.13 omits the flag for mapped weights in C++ only packages
        by_hand = config.aot_inductor.package_cpp_only
        return external, mapped or (V.graph.device_type == "xpu" and not external and not by_hand)

    codecache.determine_aoti_mmap_flags = determine_aoti_mmap_flags


def take_images_as_they_are(codecache: Any) -> None:
    """Pack kernel images where PyTorch asks for assembly, or for one file for several architectures.

    Packages of C++ only (``aot_inductor.package_cpp_only``) want a kernel's assembly beside its binary, and
    ``emit_multi_arch_kernel`` derives a second file from it. A source image serves all devices of its target.
    """
    own_set = codecache.CudaKernelParamCache.set.__func__
    own_compile = codecache.AotCodeCompiler.compile.__func__

    def one_file() -> Any:
        from torch._inductor import config

        return config.patch({"aot_inductor.emit_multi_arch_kernel": False})

    def forget(params: dict[str, Any], kind: str) -> None:
        # In C++ only packages, files have the kernels' names, and an existing file is kept. It may be for a
        # configuration from before autotuning selected another one, whose grid the wrapper uses.
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
    """Record only the target of the kernels in a package, not all device properties.

    PyTorch compares the records when it loads a package; it would warn about another driver or memory size.
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


def key_graphs_by_device(codecache: Any) -> None:
    """Make the keys of Inductor's cached graphs depend on the devices; PyTorch names those of CUDA only.

    A cached graph contains kernels for one target and grids for one number of compute units. All devices
    count, because a graph names its device by index.
    """
    own = codecache.CacheBase.get_system

    @functools.cache
    def devices() -> list[tuple[str, str]]:
        import torch

        return [
            (torch.xpu.get_device_name(i), torch.xpu.get_device_capability(i)["target"])
            for i in range(torch.xpu.device_count())
        ]

    def get_system() -> Any:
        import torch

        system = own()
        if not torch.xpu.is_initialized():  # no graph of this process uses a device yet
            return system
        return {
            **system,
            "xpu": devices(),
            "hash": codecache.sha256_hash(f"{system['hash']} {devices()}".encode()),
        }

    codecache.CacheBase.get_system = staticmethod(get_system)


def enter_codecache(codecache: Any) -> None:
    """Patch ``torch._inductor.codecache``."""
    key_graphs_by_device(codecache)
    map_weights(codecache)
    name_target(codecache)
    take_images_as_they_are(codecache)


def check_devices(utilities: Any) -> None:
    """Make models check the device of their inputs, as on CPU and CUDA (see bridge/aoti_runner.cpp)."""
    utilities.DEVICE_TO_INT.setdefault("xpu", 12)  # c10::DeviceType::XPU


def allow_few(wrapping: Any) -> None:
    """Allow dynamic dimensions of size 0 and 1 in a package's input checks, as exported programs do.

    PyTorch compiles for sizes of two and more to avoid specialization; that code is correct for smaller
    sizes.
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
