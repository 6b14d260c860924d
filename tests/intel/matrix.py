"""Compiles each tile of products by Intel's matrix units with the offline compiler, and looks at its listing.

For each line of src/ops/matrix.def with XMX: spills, the types of the instructions, and their share in the main
loop, which is held against a bar where a team has its largest tile. Of those with FMA, which use no units, the
spills in fp32, for GPUs without units too. Nothing runs.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from compile import DPAS, INSTRUCTIONS

ROOT = Path(__file__).resolve().parents[2]
PRODUCTS = ("bmg", "lnl", "ptl", "pvc", "cri")
WITHOUT_UNITS = ("bmg", "pvc", "dg2", "mtl")
LINE = re.compile(r"^X\((XMX|FMA), (\d+), (\d+), (\d+), (\d+), (\d+), (\d+),", re.MULTILINE)
LARGEST = 32 * 64  # sums of a team
# of instructions in the main loop, for a right operand along n and along k
SHARE = {
    "bmg": (0.75, 0.55),
    "lnl": (0.75, 0.55),
    "ptl": (0.75, 0.5),
    "pvc": (0.7, 0.35),
    "cri": (0.75, 0.55),
}


@dataclasses.dataclass
class Product:
    """A kernel to compile: a tile, a dtype and a layout."""

    unit: str
    request: str
    label: str
    k_fast: bool  # does the right operand lie along k?
    sums: int  # of a team


def products() -> list[Product]:
    """All that are looked at."""
    found = []
    for unit, *numbers in LINE.findall((ROOT / "src" / "ops" / "matrix.def").read_text()):
        m, n, k, teams_m, teams_n, stages = map(int, numbers)
        full = unit == "XMX" or m * n // teams_m // teams_n // 32 >= 64
        registers = "-cl-intel-256-GRF-per-thread" if full else ""
        for dtype in ("bf16", "f16") if unit == "XMX" else ("f32",):
            for k_fast in (False, True):
                options = (
                    f"-DT={dtype} -DCOMPLEX_T=0 -DFLOAT_T=1 -DDOUBLE_T=0 -DMATRIX_{unit} -DMATRIX_T={dtype} -DTILE_M={m} "
                    f"-DTILE_N={n} -DTILE_K={k} -DTEAMS_M={teams_m} -DTEAMS_N={teams_n} -DSTAGES={stages} "
                    f"-DBAND={1024 // m} -DA_PIECE=16 -DB_PIECE=16 -DOUT_PAIRS=0 "
                    f"-DOUT_PIECE={16 if unit == 'FMA' else 0} -DC_FORM=0 -DC_PIECE=0 -DEPILOGUE=0 "
                    f"-DCONJUGATE_A=0 -DCONJUGATE_B=0 -DA_K_FAST=1 -DB_K_FAST={int(k_fast)} -DSLICED=0 {registers}"
                )
                label = f"{m}x{n} {dtype}, the right operand along {'k' if k_fast else 'n'}"
                request = f"gemm.cl|gemm_matrix|{options}|{label}|"
                found.append(Product(unit, request, label, k_fast, m * n // teams_m // teams_n))
    return found


def sources(library: ctypes.CDLL, all_of: list[Product]) -> list[Path]:
    """The source of each request; the host's device, which can't build it, writes it down first."""
    files = []
    for number, product in enumerate(all_of):
        folder = Path(tempfile.mkdtemp())
        os.environ["OPENXPU_DUMP_KERNELS"] = str(folder)
        library.xpu_request_build(0, product.request.encode())
        (path,) = folder.glob("*.cl")
        files.append(path.rename(folder / f"{number}.cl"))
    return files


def share(listing: str) -> float:
    """The part of the instructions of the loop around the first matrix instruction that multiply."""
    lines = listing.splitlines()
    units = [i for i, line in enumerate(lines) if re.match(r"^ .*\bdpas\.", line)]
    if not units:
        return 0
    labels = [i for i, line in enumerate(lines[: units[0]]) if re.match(r"^\w+:", line)]
    ends = [i for i, line in enumerate(lines) if i > units[-1] and re.search(r"\b(jmpi|while|goto)\b", line)]
    loop = [
        line
        for line in lines[labels[-1] if labels else 0 : ends[0] if ends else len(lines)]
        if line.strip() and not line.strip().startswith("//") and not re.match(r"^\w+:", line)
    ]
    return sum("dpas." in line for line in loop) / len(loop)


def look(ocloc: Path, source: Path, product: str) -> tuple[float, int, str]:
    """Compiles for a product: the share, bytes of spills, and what is wrong."""
    text = source.read_text()
    options = text.splitlines()[0].partition(" | ")[2]
    defines = "-DXPU_CAPABILITIES -DXPU_HAS_FP16=1 -DXPU_HAS_SUBGROUPS=1 -DXPU_IS_INTEL_GPU=1"
    lanes = f"-DLANES={16 if product in PRODUCTS else 8}" if "-DMATRIX_FMA" in options else ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = subprocess.run(
            [ocloc, "compile", "-file", source, "-device", product, "-out_dir", folder, "-q", "-options"]
            + [f"{options} {lanes} {defines} -cl-intel-greater-than-4GB-buffer-required"],
            capture_output=True,
            text=True,
            errors="replace",
            env=os.environ | {"IGC_ShaderDumpEnable": "1", "IGC_DumpToCustomDir": name},
        )
        if run.returncode:
            return 0, 0, (run.stdout + run.stderr).strip()
        spills = [
            int(size)
            for binary in folder.glob("*.bin")
            for size in re.findall(rb"spill_size:\s*(\d+)", binary.read_bytes())
        ]
        listing = max((path.read_text() for path in folder.glob("*.asm")), key=share, default="")
        dtype = re.search(r"-DMATRIX_T=(\w+)", options)[1]  # type: ignore[index]
        types = {" ".join(pair) for pair in DPAS.findall(listing)}
        if "-DMATRIX_FMA" in options:
            return 0, max(spills, default=0), "" if spills else "no listing of spills"
        wrong = "" if types == {INSTRUCTIONS[f"{dtype}_{dtype}"]} else f"of the types {types or 'none'}"
        return share(listing), max(spills, default=0), wrong


def main() -> int:
    """Prints a line for each tile and product; 1 where one spills, lacks its instructions or misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ocloc", type=Path)
    parser.add_argument("--products", default=",".join(PRODUCTS))
    arguments = parser.parse_args()
    os.environ["OPENXPU_CACHE"] = "0"
    library = ctypes.CDLL(str(next((ROOT / "python" / "openxpu").glob("libxpu.so.*"))))
    all_of = products()
    failed = 0
    for this, source in zip(all_of, sources(library, all_of), strict=True):
        for product in arguments.products.split(",") if this.unit == "XMX" else WITHOUT_UNITS:
            part, spill, wrong = look(arguments.ocloc, source, product)
            bar = SHARE[product][this.k_fast] if this.unit == "XMX" and this.sums == LARGEST else 0
            bad = wrong or spill or part < bar
            failed += bool(bad)
            print(
                f"{'FAILED ' if bad else ''}{product}: {this.label}"
                f"{f': {part:.0%} of the main loop multiply' if this.unit == 'XMX' else ''}"
                f"{f', bar {bar:.0%}' if bar else ''}{f', {spill} bytes spilled' if spill else ''} {wrong}".rstrip(),
                flush=True,
            )
    return 1 if failed or not all_of else 0


if __name__ == "__main__":
    sys.exit(main())
