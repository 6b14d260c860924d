"""From Triton's Python to a kernel image: Triton's passes, then libxpu's compiler."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from triton import knobs
from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.runtime.errors import OutOfResources

from openxpu import _builder, _tile, compiler_version
from openxpu.triton import image

BINARY = "zebin"  # the name under which Inductor looks for an xpu kernel's image
LANES = 16  # of a subgroup; NVIDIA's warps have 32


@dataclass(frozen=True)
class Options:
    """What a kernel is compiled with: Triton's options, and those that Inductor's configurations hand over."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 2
    warp_size: int = LANES
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


def lanes(properties: dict[str, Any]) -> int:
    """Return how many lanes a subgroup of the device with these properties has."""
    return 2 * LANES if properties["has_inline_ptx"] else LANES


def matrix_lanes(properties: dict[str, Any]) -> int:
    """Return how many lanes a subgroup that multiplies matrices has; 0 where the device has no such units."""
    if properties["type"] == "cpu" or not properties["has_subgroup_matrix_multiply_accumulate"]:
        return 0
    least = min(properties["sub_group_sizes"], default=0)
    return least if least in (8, 16) else 0


def describe(properties: dict[str, Any]) -> str:
    """The target, as text, of the device with these properties (those of torch.xpu.get_device_capability)."""
    cpu = properties["type"] == "cpu"
    target = {
        "name": "cpu" if cpu else "gpu",
        "is_cpu": cpu,
        "has_subgroups": properties["has_subgroups"],
        "has_fp16": properties["has_fp16"],
        "has_fp64": properties["has_fp64"],
        "has_atomic64": properties["has_atomic64"],
        "has_float_atomics": properties["has_float_atomics"],
        "has_inline_ptx": properties["has_inline_ptx"],
        "has_ptx_bf16": properties["has_inline_ptx"] and int(properties["architecture"]) >= 80,
        "matrix_lanes": matrix_lanes(properties),
        "has_matrix_tf32": properties["has_subgroup_matrix_multiply_accumulate_tensor_float32"],
        "has_packed_dot": properties["has_integer_dot_product"],
        "has_block_2d": properties["has_subgroup_2d_block_io"],
        "lanes": lanes(properties),
        "max_lanes": properties["max_work_group_size"],
        "local_memory": properties["local_mem_size"],
    }
    return json.dumps({name: value if name == "name" else int(value) for name, value in target.items()})


def _keeps_descriptors(module: Any, target: dict[str, Any]) -> bool:
    """Say whether descriptors stay: for dots whose operands the device reads by blocks, if the kernel makes them."""
    text = str(module) if target.get("has_block_2d") else ""
    heads = (line for line in text.splitlines() if "tt.func public" in line)
    return "tt.dot " in text and not any("tensordesc" in head for head in heads)


class XPUBackend(BaseBackend):
    """Compiles for GPUTarget("xpu", arch, lanes); ``arch`` is describe()'s text or the properties themselves."""

    binary_ext = BINARY

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Say whether the target is one of ours."""
        return target.backend == "xpu"

    def hash(self) -> str:
        """Identifies the compiler and what it compiles for, in Triton's cache."""
        return f"{compiler_version()}-{self._arch()}"

    def _arch(self) -> str:
        arch: Any = self.target.arch
        return describe(arch) if isinstance(arch, dict) else str(arch)

    def parse_options(self, options: dict[str, Any]) -> Options:
        """Options from keyword arguments; unknown ones are other backends'."""
        known = {k: options[k] for k in Options.__dataclass_fields__ if options.get(k) is not None}
        known["arch"] = self._arch()
        return Options(**known)

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        """What the launcher is handed."""
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    def get_codegen_implementation(self, options: Options) -> dict[str, Any]:
        """What Triton's front end asks of a backend."""
        return {"min_dot_size": lambda lhs, rhs: (1, 1, 1)}

    def get_module_map(self) -> dict[str, ModuleType]:
        """``libdevice``: Triton's CUDA module names the functions (``__nv_erff``), libxpu's compiler has them."""
        from triton.language.extra.cuda import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, context: Any) -> None:
        """No dialect beyond Triton's own."""

    @staticmethod
    def make_ttir(module: Any, metadata: dict[str, Any], options: Options) -> Any:
        """Triton's passes that need no target."""
        pm = ir.pass_manager(module.context)
        pm.enable_debug()
        passes.common.add_inliner(pm)
        if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):  # until 3.8
            passes.ttir.add_rewrite_tensor_pointer(pm)
        if not _keeps_descriptors(module, json.loads(options.arch)):
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
        """Triton IR to the image."""
        asserts = options.debug or options.sanitize_overflow or knobs.runtime.debug
        target = json.loads(options.arch)
        try:
            program = _tile.compile_module(
                str(module).encode(),
                target,
                num_warps=options.num_warps,
                comments=True,
                debug_asserts=asserts,
            )
        except _tile.TooLargeError as error:  # autotuners then go on to the next configuration
            raise OutOfResources("more", target["local_memory"], f"local memory ({error})") from error
        if target["is_cpu"] and _builder.is_worker():
            _builder.build_ahead(program)
        metadata["name"] = program.name
        metadata["shared"] = program.local_memory
        metadata["warp_size"] = target["lanes"]
        metadata["tmem_size"] = None
        return image.write(program)

    def add_stages(self, stages: dict[str, Any], options: Options, language: Any = None) -> None:
        """The stages: Triton IR, image."""
        stages["ttir"] = lambda module, metadata: self.make_ttir(module, metadata, options)
        stages[BINARY] = lambda module, metadata: self.make_image(module, metadata, options)
