"""From Triton's Python to a kernel image: Triton's passes, then libxpu's compiler."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from triton import knobs
from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.runtime.errors import OutOfResources

from openxpu import _builder, _tile, compiler_version

BINARY = "zebin"  # the name under which Inductor looks for an xpu kernel's image


@dataclass(frozen=True)
class Options:
    """Compilation options: Triton's, and those of Inductor's configurations."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 2
    warp_size: int = 16
    maxnreg: int | None = None
    extern_libs: tuple[tuple[str, str], ...] = ()
    debug: bool = False
    enable_fp_fusion: bool = True
    enable_reflect_ftz: bool = True
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    backend_name: str = "xpu"
    arch: str = ""
    sanitize_overflow: bool = False
    instrumentation_mode: str = ""
    ir_override: str | None = None
    fpsan_homomorphic_casts: bool = False
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e4nv", "fp8e5")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    grf_mode: str = "default"
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 0

    def __post_init__(self) -> None:
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1):
            raise ValueError(f"num_warps must be a power of 2, not {self.num_warps}")
        if self.num_ctas != 1:
            raise ValueError(f"num_ctas must be 1 on xpu, not {self.num_ctas}")

    def hash(self) -> str:
        """Equal for equal options."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()


def _keeps_descriptors(module: Any, target: dict[str, int]) -> bool:
    """Return whether to keep descriptors: for dots whose operands the device loads as 2D blocks."""
    text = str(module) if target["has_block_2d"] else ""
    heads = (line for line in text.splitlines() if "tt.func public" in line)
    return "tt.dot " in text and not any("tensordesc" in head for head in heads)


class XPUBackend(BaseBackend):
    """Compiles for GPUTarget("xpu", arch, lanes); ``arch`` is or contains libxpu's target text."""

    binary_ext = BINARY

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Return whether this is an xpu target."""
        return target.backend == "xpu"

    def hash(self) -> str:
        """Return the key of compiler and target in Triton's cache."""
        return f"{compiler_version()}-{self._arch()}"

    def _arch(self) -> str:
        arch: Any = self.target.arch
        return str(arch["target"] if isinstance(arch, dict) else arch)

    def parse_options(self, options: dict[str, Any]) -> Options:
        """Parse options from keyword arguments; other backends' options are ignored."""
        known = {k: options[k] for k in Options.__dataclass_fields__ if options.get(k) is not None}
        known["arch"] = self._arch()
        return Options(**known)

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        """Return what the launcher needs."""
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    def get_codegen_implementation(self, options: Options) -> dict[str, Any]:
        """Return the functions that Triton's front end requires of a backend."""
        return {"min_dot_size": lambda lhs, rhs: (1, 1, 1)}

    def get_module_map(self) -> dict[str, ModuleType]:
        """Map ``libdevice`` to Triton's CUDA module: libxpu's compiler implements ``__nv_erff`` etc."""
        from triton.language.extra.intel import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, context: Any) -> None:
        """Nothing: only Triton's own dialects are used."""

    @staticmethod
    def make_ttir(module: Any, metadata: dict[str, Any], options: Options) -> Any:
        """Run Triton's target-independent passes."""
        pm = ir.pass_manager(module.context)
        pm.enable_debug()
        passes.common.add_inliner(pm)
        if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):  # until 3.8
            passes.ttir.add_rewrite_tensor_pointer(pm)
        if not _keeps_descriptors(module, _tile.target_fields(options.arch)):
            passes.ttir.add_rewrite_tensor_descriptor_to_pointer(pm)
        passes.common.add_canonicalizer(pm)
        passes.ttir.add_combine(pm)
        passes.ttir.add_reorder_broadcast(pm)
        passes.common.add_cse(pm)
        passes.ttir.add_triton_licm(pm)
        passes.common.add_symbol_dce(pm)
        passes.ttir.add_loop_unroll(pm)
        pm.run(module, "make_ttir")
        return module

    @staticmethod
    def make_image(module: Any, metadata: dict[str, Any], options: Options) -> bytes:
        """Compile Triton IR to an image."""
        asserts = options.debug or options.sanitize_overflow or knobs.runtime.debug
        target = _tile.target_fields(options.arch)
        try:
            program = _tile.compile_module(
                str(module).encode(),
                options.arch,
                num_warps=options.num_warps,
                comments=True,
                debug_asserts=asserts,
            )
        except _tile.TooLargeError as error:  # autotuners then go on to the next configuration
            raise OutOfResources("more", target["local_memory"], f"local memory ({error})") from error
        if target["is_cpu"] and _builder.is_worker():
            _builder.build_ahead(program.image)
        metadata["name"] = program.name
        metadata["shared"] = program.local_memory
        metadata["warp_size"] = target["lanes"]
        metadata["tmem_size"] = None
        return program.image

    def add_stages(self, stages: dict[str, Any], options: Options, language: Any = None) -> None:
        """Add the stages: Triton IR, image."""
        stages["ttir"] = lambda module, metadata: self.make_ttir(module, metadata, options)
        stages[BINARY] = lambda module, metadata: self.make_image(module, metadata, options)
