"""Generate the C functions with which AOTInductor models call PyTorch's operators on xpu.

Inductor's C++ calls operators without generated code (matrix products, attention, sorting, …) through C
functions, one per operator and device: ``aoti_torch_xpu_addmm_out``. torchgen has the list of these operators
and generates the functions of PyTorch's own devices. This script generates xpu's for the whole list, and a
header with their declarations, which takes precedence over the wheel's, where most are missing.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import torchgen
from torchgen import gen, gen_aoti_c_shim
from torchgen.aoti.fallback_ops import inductor_fallback_ops
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, Variant

ATEN = Path(torchgen.__file__).parent / "packaged" / "ATen"

# Operators of which openxpu has functions that are asked first (native/gemm.h).
ASKED_FIRST = {"mm.out", "bmm.out", "addmm.out"}

PARTS = 2  # files, which compile side by side

DECLARATIONS = """\
// Written by generate.py: PyTorch's operators as C functions, for xpu.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#ifdef __cplusplus
extern "C" {{
#endif

{}

#ifdef __cplusplus
}}
#endif
"""

DEFINITIONS = """\
// Written by generate.py: PyTorch's operators as C functions, for xpu.
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_xpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include "native/gemm.h"
{}

using namespace torch::aot_inductor;

// Compiled code is beyond gradients and autocast, as are the kernels that other devices' functions call.
struct Below {{
    c10::impl::ExcludeDispatchKeyGuard guard{{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                            c10::autocast_dispatch_keyset}};
}};

{}
"""

TRY = "AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({"


def call_of(function: NativeFunction) -> str:
    """Return the C++ function that calls an operator."""
    if Variant.function in function.variants:
        name: str = gen_aoti_c_shim.gen_static_dispatch_backend_call(function)
        return name
    return f"at::_ops::{function.func.name.unambiguous_name()}::call"  # a method


def asking_first(definition: str) -> str:
    """Return the C function's text; it calls the dispatcher only if openxpu's own function declines."""
    call = re.search(r"at::(\w+)(\(.*?\n\s*\);)", definition, re.DOTALL)
    if not call:
        raise SystemExit(f"torchgen writes this in another way:\n{definition}")
    name, arguments = call.groups()
    own = f"if (!openxpu::{name}{arguments.removesuffix(';')})\n        "
    return definition[: call.start()] + own + definition[call.start() :]


def generate(folder: Path) -> None:
    """Write the header and the sources into ``folder``."""
    native = ATEN / "native"
    parsed = gen.parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml"))
    declared: list[str] = []
    defined: list[tuple[str, str]] = []
    for function in sorted(parsed.native_functions, key=lambda f: str(f.func.name)):
        versions = inductor_fallback_ops.get(gen_aoti_c_shim.get_fallback_op_name(function))
        if versions is None:
            continue
        try:
            with native_function_manager(function):
                declaration, definition = gen_aoti_c_shim.gen_declaration_and_definition(
                    function.func, "xpu", call_of(function), versions
                )
        except NotImplementedError:  # types that C can't have; PyTorch leaves these out, too
            continue
        declared.append(declaration)
        definition = definition.replace(TRY, f"{TRY}\n\tBelow below;")
        if str(function.func.name) in ASKED_FIRST:
            definition = asking_first(definition)
        defined.append((f"#include <ATen/ops/{function.root_name}.h>", definition))
    if not declared:
        raise SystemExit("torchgen names no operators for compiled models")
    texts = {
        "include/torch/csrc/inductor/aoti_torch/generated/c_shim_xpu.h": DECLARATIONS.format(
            "\n".join(declared)
        )
    }
    for part in range(PARTS):
        chosen = defined[part::PARTS]
        includes = sorted({include for include, _ in chosen})
        texts[f"shims_{part}.cpp"] = DEFINITIONS.format(
            "\n".join(includes), "\n".join(text for _, text in chosen)
        )
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    generate(parser.parse_args().out)
