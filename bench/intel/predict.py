"""Predicts the share of XMX peak performance from the offline compiler's listings; nothing runs.

In the main loop, each matrix instruction occupies the XMX of a vector engine for 8 or 16 clocks, and each
other instruction occupies the engine's issue port for one clock. Threads of other subgroups run in the
meantime, so a step takes the larger of the two times, or the time in which the caches deliver its operands if
that is longer. The whole product takes at least the time of its memory traffic. For each problem the model
picks the tile and the split of k with the least time. On XMX with SIMD16, all tiles have the loop of the
largest one.

On XMX with SIMD8 the operands come from local memory. A step takes at least the time to load and store what
the loop moves through it.

The cache bandwidths in `DEVICES` are guesses; clocks and memory bandwidths are Intel's figures. Nothing is
measured.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "intel"))
import matrix  # noqa: E402


@dataclass(frozen=True)
class Device:
    """The model of a GPU: Xe cores with vector engines of 4 threads with 256 registers."""

    cores: int
    clock: float  # GHz
    multiplication: int  # clocks per matrix instruction
    first_cache: int  # bytes per clock and core, a guess
    second_cache: int  # the same for the shared L2 cache, a guess
    memory: float  # GB/s
    engines: int = 8  # per core
    lanes: int = 16
    local: int = 128  # bytes per clock and core, a guess


DEVICES = {
    "bmg": Device(20, 2.67, 16, 128, 64, 456),
    "lnl": Device(8, 2.05, 16, 128, 64, 136),
    "ptl": Device(12, 2.4, 16, 128, 64, 154),
    "pvc": Device(64, 1.6, 8, 512, 64, 1638),
    "dg2": Device(32, 2.1, 16, 128, 64, 560, engines=16, lanes=8),  # A770
    "arl-h": Device(8, 2.35, 16, 128, 64, 134, engines=16, lanes=8),
}
THREADS = 4
TILES = ((256, 32), (128, 8), (64, 2))  # SIMD16: tile sides, and number of subgroups of 32 x 64 or 64 x 32
# SIMD8; convolutions do not have the first
SIZES = ("256x160", "128x128", "128x192", "64x192", "256x64", "64x64")
LOCAL = re.compile(r"\b(load|store)\.slm\.d(\d+)(?:x(\d+)(t?))?\S*\s+\((\d+)\|")
LOCAL_BYTES = 128 << 10  # per core with SIMD8
LAUNCH = 6000  # clocks of an additional launch
FIRST_STEP = 2000  # clocks until a work-group's first operands arrive
PRODUCT = 4096  # m, n and k
# image side and channels of ResNet-50's 3 x 3 convolutions, for 32 images
CONVOLUTIONS = ((56, 64), (28, 128), (14, 256), (7, 512))


@dataclass(frozen=True)
class Loop:
    """The main loop of a listing, and its tile."""

    units: int
    others: int
    element: int
    local: int  # bytes of local memory that a subgroup reads and writes
    m: int = 0
    n: int = 0
    teams: int = 0


def loop_of(kernel: matrix.Kernel, body: list[str]) -> Loop:
    """Return the loop for the kernel's dtype."""
    dtype = re.search(r"-DMATRIX_T=(\w+)", kernel.request)[1]  # type: ignore[index]
    units, local = matrix.units_of(body), {"load": 0, "store": 0}
    for line in body:
        if found := LOCAL.search(line):
            wide = int(found[2]) // 8 * int(found[3] or 1)
            local[found[1]] += wide if found[4] else wide * int(found[5])
    m, n, *teams = (
        int(number[1]) if (number := re.search(rf"-D{name}=(\d+)", kernel.request)) else 0
        for name in ("TILE_M", "TILE_N", "SUBGROUPS_M", "SUBGROUPS_N")
    )
    if matrix.OF_8_LANES == kernel.products and m:  # per step; some subgroups may store less than others
        local["store"] = max(local["store"], (m + n) * 64 // math.prod(teams))
    return Loop(units, len(body) - units, matrix.BYTES[dtype], sum(local.values()), m, n, math.prod(teams))


def iteration(device: Device, loop: Loop) -> float:
    """Return the clocks of an engine per iteration of a subgroup, without cache stalls."""
    return max(loop.units * device.multiplication, loop.others, loop.local * device.engines / device.local)


def together(device: Device, loop: Loop) -> int:
    """Return the number of concurrent work-groups per core."""
    groups = max(1, device.engines * THREADS // loop.teams)
    if device.lanes == 8:  # tiles in local memory, two stages of 64 bytes per row
        groups = max(1, min(groups, LOCAL_BYTES // ((loop.m + loop.n) * 128)))
    return groups


def clocks_of(device: Device, loop: Loop, m: int, n: int, k: int, products: int) -> float:
    """Return the clocks of several m x n x k products, without memory stalls."""
    multiplications = loop.m * loop.n / 8 / device.lanes * 2  # per work-group, for 64 bytes of k
    at_once = together(device, loop)
    team_bytes = (32 + 64) * 64
    step = at_once * max(
        multiplications * iteration(device, loop) / loop.units / device.engines,
        team_bytes * loop.teams / device.first_cache if device.lanes == 16 else 0,
        (loop.m + loop.n) * 64 / device.second_cache,
    )
    groups = math.ceil(m / loop.m) * math.ceil(n / loop.n) * products
    waves = math.ceil(groups / device.cores) / at_once
    return waves * math.ceil(k * loop.element / 64) * step + math.ceil(waves) * FIRST_STEP


def clocks_for(device: Device, loops: list[Loop], m: int, n: int, k: int, moved: float) -> float:
    """Return the clocks of a product with the best of the tiles in `loops` and the best split of k.

    `moved` is the number of elements read from and written to memory.
    """
    least = math.inf
    for tile in loops:
        groups, at_once = math.ceil(m / tile.m) * math.ceil(n / tile.n), device.cores * together(device, tile)
        filled = (times * at_once // groups for times in range(1, 5))
        for cut in {2**power for power in range(7)} | {cut for cut in filled if 1 <= cut <= 64}:
            sums = 0 if cut == 1 else (cut + 1) * m * n * 4 / device.memory * device.clock
            memory = moved * tile.element / device.memory * device.clock
            clocks = clocks_of(device, tile, m, n, math.ceil(k / cut), cut)
            least = min(least, max(clocks, memory) + sums)
    return least


def share(device: Device, loops: list[Loop], m: int, n: int, k: int, moved: int, images: int = 1) -> float:
    """Return the share of peak; with `images`, as two launches, the first with some of the images."""
    units = m * n * k * loops[0].element / 32 / 8 / device.lanes
    ideal = units * device.multiplication / device.engines / device.cores
    if images == 1:
        return ideal / clocks_for(device, loops, m, n, k, moved)
    firsts = [m // images * some for some in range(1, images)]
    return ideal / min(
        LAUNCH + sum(clocks_for(device, loops, rows, n, k, moved * rows / m) for rows in (first, m - first))
        for first in firsts
    )


def tiles_of(
    kernel: matrix.Kernel, loop: Loop, every: dict[str, matrix.Kernel], library: ctypes.CDLL, *on: str
) -> list[Loop]:
    """Return the loops of a kernel in all tiles, given one of them. `on`: the compiler and the GPU."""
    if kernel.products != matrix.OF_8_LANES:
        return [dataclasses.replace(loop, m=side, n=side, teams=teams) for side, teams in TILES]
    size, loops = kernel.label.split()[0], [loop]
    for other in SIZES[SIZES.index(size) + 1 :]:
        smaller = every.get(kernel.label.replace(size, other, 1))
        if not smaller:
            continue
        (source,) = matrix.sources(library, [smaller])
        listing, wrong = matrix.listing_of(Path(on[0]), source, on[1], smaller)
        if wrong:
            raise RuntimeError(wrong)
        loops.append(loop_of(smaller, matrix.main_body(listing)))
    return loops


def main() -> int:
    """Print a line for each kernel and device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ocloc", type=Path)
    parser.add_argument("--products", default=",".join(DEVICES))
    parser.add_argument("--only", default="", help="only kernels whose label contains this")
    arguments = parser.parse_args()
    os.environ["OPENXPU_CACHE"] = "0"
    library = ctypes.CDLL(str(next((ROOT / "python" / "openxpu").glob("libxpu.so.*"))))
    of_8_lanes = {k.label: k for k in matrix.products() if "MATRIX_XMX8" in k.request}
    kernels = [
        k
        for k in matrix.products()
        if k.units
        and k.label.startswith(
            "{}x{} ".format(*matrix.MAIN)
            if "MATRIX_XMX8" not in k.request
            else SIZES[1]
            if "convolution" in k.label
            else SIZES[0]
        )
        and "f16" not in k.label.replace("bf16", "")
    ]
    kernels += [k for k in matrix.attention() if k.counted]
    kernels = [k for k in kernels if arguments.only in k.label]
    for kernel, source in zip(kernels, matrix.sources(library, kernels), strict=True):
        for product in arguments.products.split(","):
            if (product in matrix.OF_8_LANES) != (kernel.products == matrix.OF_8_LANES):
                continue
            device = DEVICES[product]
            listing, wrong = matrix.listing_of(arguments.ocloc, source, product, kernel)
            if wrong:
                print(f"{product}: {kernel.label}: {wrong}")
                return 1
            attention = kernel.request.startswith("attention")
            loop = loop_of(kernel, matrix.main_body(listing, attention))
            spilled, clocks = matrix.spills_of(listing), iteration(device, loop)
            text = f"{product}: {kernel.label}: {clocks:.0f} clocks an iteration, units busy "
            text += f"{loop.units * device.multiplication / clocks:.0%}, {spilled} bytes spilled"
            if not attention:
                loops = tiles_of(kernel, loop, of_8_lanes, library, str(arguments.ocloc), product)
                if "convolution" not in kernel.label:
                    # A is read once, B for each band of 1,024 rows
                    moved = (2 + PRODUCT // 1024) * PRODUCT**2
                    part = share(device, loops, PRODUCT, PRODUCT, PRODUCT, moved)
                    text += f"; {PRODUCT}^3 {part:.0%} of the peak"
                for side, channels in CONVOLUTIONS if "convolution" in kernel.label else ():
                    # pixels of a row that are read together
                    whole = 1 if device.lanes == 8 else 16 if kernel.label.endswith("w") else 8
                    line = math.ceil(side / whole) * whole
                    pixels, taps = 32 * side * line, 9 * channels
                    sizes = (
                        (channels, taps, pixels) if kernel.label.endswith("w") else (pixels, channels, taps)
                    )
                    moved = 2 * 32 * side * side * channels + taps * channels
                    # side / line of the multiplied elements are useful
                    part = share(device, loops, *sizes, moved) * side / line
                    text += f"; {side} x {side} x {channels} {part:.0%}"
                    if device.lanes == 8 and not kernel.label.endswith("w"):
                        apart = share(device, loops, *sizes, moved, images=32)
                        text += f" (two launches {apart:.0%})" if apart > part else ""
            print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
