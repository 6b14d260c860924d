"""Compiles every kernel of a folder for Intel GPUs with the offline compiler and lists spills.

The folder contains the files written by OPENXPU_DUMP_KERNELS: one per program, whose first line is `// label
| options`. Products without fp64 or subgroups of 8 skip kernels that need them. The exit status is 1 if a kernel fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Product:
    """What a product has beyond fp16, subgroups of 16 and 64-bit atomics."""

    fp64: bool
    subgroups_of_8: bool


PRODUCTS = {
    "bmg": Product(fp64=True, subgroups_of_8=False),
    "lnl": Product(fp64=True, subgroups_of_8=False),
    "pvc": Product(fp64=True, subgroups_of_8=False),
    "dg2": Product(fp64=False, subgroups_of_8=True),
    "mtl": Product(fp64=True, subgroups_of_8=True),
    "tgllp": Product(fp64=False, subgroups_of_8=True),
}
FP64 = re.compile(r"\b(f64|c128|double)\b")
OF_8 = re.compile(r"-DMATRIX_XMX8\b")  # a kernel that requires subgroups of 8


@dataclass
class Outcome:
    """The result of compiling one kernel for one product."""

    label: str
    product: str
    error: str = ""
    spill: int = 0


# The names of XMX operand types in the listings.
UNIT_TYPES = {"f16": "hf", "bf16": "bf", "i8": "b", "u8": "ub", "tf32": "tf32"}
FUNCTION = re.compile(r"\bintel_sub_group_([a-z0-9]+)_([a-z0-9]+)_matrix_mad_k\d+\b")
DPAS = re.compile(r"^ .*\bdpas\.\S+ \(.*?\)\s+\S+\s+\S+?:\w+\s+\S+?:(\w+)\s+\S+?:(\w+)", re.MULTILINE)


def instruction(left: str, right: str) -> str:
    """Return the operand types (b and a) of the instruction that a matrix function must compile to.

    If a product lacks a type, the compiler may silently use another one.
    """
    return f"{UNIT_TYPES[right]} {UNIT_TYPES[left]}"


def preprocessed(source: str, flags: str) -> str:
    """Return OpenCL C after the C preprocessor, with the ``-D`` of ``flags`` and without line markers."""
    defines = re.findall(r"-D\S+", flags)
    command = ["cc", "-E", "-P", "-x", "c", "-undef", "-nostdinc", *defines, "-D__OPENCL_VERSION__=300", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def wrong_instructions(source: str, folder: Path) -> str:
    """Compare the matrix instructions in the listings with the functions in the preprocessed source."""
    wanted = {instruction(*operands) for operands in FUNCTION.findall(source)}
    found = {
        " ".join(types) for listing in folder.glob("*.asm") for types in DPAS.findall(listing.read_text())
    }
    return "" if found == wanted else f"matrix instructions of {found or 'no'} types, not {wanted}"


def compile_one(ocloc: Path, source: Path, product: str) -> Outcome | None:
    """Compile one program; None if the product lacks a required feature."""
    text = source.read_text()
    label, _, options = text.splitlines()[0][3:].partition(" | ")
    has = PRODUCTS[product]
    if not has.fp64 and FP64.search(f"{label} {options}"):
        return None
    if not has.subgroups_of_8 and OF_8.search(options):
        return None
    defines = [
        "XPU_CAPABILITIES",
        "XPU_HAS_FP16=1",
        "XPU_HAS_SUBGROUPS=1",
        "XPU_HAS_ATOMIC64=1",
        "XPU_IS_INTEL_GPU=1",
    ]
    if has.fp64:
        defines.append("XPU_HAS_FP64=1")
    flags = " ".join([options, *(f"-D{d}" for d in defines), "-cl-intel-greater-than-4GB-buffer-required"])
    with tempfile.TemporaryDirectory() as folder:
        listings = {"IGC_ShaderDumpEnable": "1", "IGC_DumpToCustomDir": folder}
        # a library file has functions for all types; its options select one
        units = preprocessed(text, flags) if FUNCTION.search(text) else ""
        multiplies = FUNCTION.search(units)
        run = subprocess.run(
            [
                ocloc,
                "compile",
                "-file",
                source,
                "-device",
                product,
                "-options",
                flags,
                "-out_dir",
                folder,
                "-q",
            ],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=600,
            env=os.environ | (listings if multiplies else {}),
        )
        wrong = wrong_instructions(units, Path(folder)) if multiplies else ""
        spills = [
            int(size)
            for binary in Path(folder).glob("*.bin")
            for size in re.findall(rb"spill_size:\s*(\d+)", binary.read_bytes())
        ]
    error = "" if run.returncode == 0 and "error:" not in run.stdout else (run.stdout + run.stderr).strip()
    return Outcome(label, product, error or wrong, max(spills, default=0))


def compile_all(ocloc: Path, jobs: list[tuple[Path, str]]) -> int:
    """Compile each source for its product; print failures and spills; return the exit status."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = [pool.submit(compile_one, ocloc, source, product) for source, product in jobs]
        outcomes = [o for job in running if (o := job.result())]
    failed = [o for o in outcomes if o.error]
    for o in failed:
        print(f"FAILED {o.product}: {o.label}\n{o.error}\n")
    for o in sorted((o for o in outcomes if o.spill), key=lambda o: -o.spill):
        print(f"spills {o.spill} bytes on {o.product}: {o.label}")
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not outcomes else 0


def main() -> int:
    """Compile all programs for every product."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ocloc", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--products", default=",".join(PRODUCTS))
    parser.add_argument("--sample", type=int, default=0, help="number of programs, evenly spread; 0: all")
    arguments = parser.parse_args()
    sources = sorted(arguments.folder.glob("*.cl"))
    if 0 < arguments.sample < len(sources):  # names start with a hash, so their order is random
        sources = sources[:: len(sources) // arguments.sample][: arguments.sample]
    products = arguments.products.split(",")
    return compile_all(arguments.ocloc, [(s, p) for s in sources for p in products])


if __name__ == "__main__":
    sys.exit(main())
