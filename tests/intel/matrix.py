"""Compiles the kernels for Intel's matrix engine (XMX) with the offline compiler and checks the listings.

Nothing runs. For the matrix products of each XMX tile in src/core/matrix.def, the script checks spills, the
types of the matrix instructions, and their share of all instructions in the main loop. The share must reach a
bar for the largest tile. For FMA tiles, which do not use XMX, it checks the spills in fp32, also for GPUs
without XMX, and in int8 with 4-way dot products. It checks the convolutions of each tile in half precision,
fp32 and int8, those of uint8 activations, and the spills of products of a few rows with quantized weights.

For products on XMX with SIMD8, whose operands pass through local memory, and for attention, the bar is on the
fraction of time in which XMX multiplies in the main loop. The model assumes no memory stalls, 8 clocks per
matrix instruction and 1 clock per other instruction, which other threads issue in the meantime. Idle matrix
instructions, which the compiler puts before others on dg2 to work around a hardware bug, take as long as others.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compile import DPAS, instruction

ROOT = Path(__file__).resolve().parents[2]
PRODUCTS = ("bmg", "lnl", "ptl", "pvc", "cri")
WITHOUT_UNITS = ("bmg", "pvc", "dg2", "mtl")
OF_8_LANES = ("dg2", "arl-h")
BY_FOURS = ("mtl", "arl-s")
# 128 registers: tiles of up to 32 accumulators and 32 prefetched elements per work-item; 4-way dot products
OLDER = ("tgllp", "adl-p")
REGISTERS = "-cl-intel-256-GRF-per-thread"
BYTES = {"i8": 1, "bf16": 2, "f16": 2, "f32": 4}
LINE = re.compile(r"^X\((XMX8?|FMA), (\d+), (\d+), (\d+), (\d+), (\d+), (\d+),", re.MULTILINE)
IDLE = re.compile(r" null:\w+ +(r\d+):\w+ +\1\.0:")
MAIN = (256, 256)  # the tile of large products
# least share of instructions in the main loop, by bytes per element, for a right operand along n and along k
SHARE = {
    "bmg": {1: (0.75, 0.68), 2: (0.75, 0.68), 4: (0.6, 0.56)},
    "lnl": {1: (0.75, 0.68), 2: (0.75, 0.68), 4: (0.6, 0.56)},
    "ptl": {1: (0.75, 0.68), 2: (0.75, 0.68), 4: (0.6, 0.56)},
    "pvc": {1: (0.74, 0.6), 2: (0.75, 0.6), 4: (0.5, 0.45)},
    "cri": {1: (0.75, 0.68), 2: (0.75, 0.68), 4: (0.6, 0.56)},
}
# least share of the time; backward kernels together reach half of it for heads of 128 elements, too
BUSY = {
    "attention_matrix_forward": 0.6,
    "attention_matrix_grad_query": 0.4,
    "attention_matrix_grad_key_value": 0.4,
}


# a uint8 convolution with bias, a uint8 residual, relu and uint8 output
BYTES_OUT = (
    "-DREQUANTIZED=1 -DA_UNSIGNED -DOUT_T=u8 -DOUT_BYTES=255 -DOTHER_T=u8 -DOTHER_BYTES=255 "
    "-DEPILOGUE=1 -DCOMBINE=1"
)
BUSY_8_LANES = 0.95
BUSY_ATTENTION_8 = {64: 0.48, 128: 0.58}  # forward, by head size; half of the steps are exponentials
BUSY_QUADS_8 = 0.65
BUSY_GRADIENTS_8 = {64: 0.58, 128: 0.75}
BUSY_ACROSS = 0.85  # both operands are transposed on the way
# share of instructions with a quantized right operand: integers, float8
SHARE_OCTETS = {product: (0.28, 0.25) if product == "pvc" else (0.33, 0.29) for product in PRODUCTS}
BUSY_FOR_W = 0.95  # the left operand is transposed with moves


@dataclass
class Kernel:
    """A kernel to compile, and its requirements."""

    request: str
    label: str
    bars: dict[str, float]  # per product
    busy: bool  # the bars are shares of time, not of instructions
    units: bool = True
    products: tuple[str, ...] = ()  # replaces the products of the command line
    counted: bool = True  # the main loop contains no other loop


def products() -> Iterator[Kernel]:
    """Yield the products of each tile, dtype and layout."""
    for unit, *numbers in LINE.findall((ROOT / "src" / "core" / "matrix.def").read_text()):
        m, n, step, subgroups_m, subgroups_n, stages = map(int, numbers)
        sums, ahead = (
            m * n // subgroups_m // subgroups_n // 32,
            (m + n) * step // subgroups_m // subgroups_n // 32,
        )
        full = unit != "FMA" or sums >= 64 or ahead >= 32
        registers = REGISTERS if full else ""
        dtypes = {"XMX": tuple(BYTES), "XMX8": ("i8", "bf16", "f16"), "FMA": ("f32", "i8")}[unit]
        for dtype in dtypes:
            k = step // BYTES[dtype] if unit != "FMA" else step
            by_fours = unit == "FMA" and dtype == "i8"
            of_halves = unit == "XMX" and BYTES[dtype] == 2
            layouts = [(1, 1)] if by_fours or unit == "XMX8" else [(1, 0), (1, 1)] + of_halves * [(0, 0)]
            for a_fast, k_major in layouts:
                result = "-DT=i32 -DOPERAND_T=i8 -DFLOAT_T=0" if dtype == "i8" else f"-DT={dtype} -DFLOAT_T=1"
                options = (
                    f"{result} -DCOMPLEX_T=0 -DDOUBLE_T=0 -DMATRIX_{unit} "
                    f"{'-DMATRIX_DOT ' if by_fours else ''}-DMATRIX_T={dtype} -DTILE_M={m} "
                    f"-DTILE_N={n} -DTILE_K={k} -DSUBGROUPS_M={subgroups_m} -DSUBGROUPS_N={subgroups_n} "
                    f"-DSTAGES={stages} -DBAND={1024 // m} -DA_ALIGNMENT=16 -DB_ALIGNMENT=16 -DOUT_PAIRS=0 "
                    f"-DOUT_VECTOR_BYTES={16 if unit == 'FMA' else 0} -DC_FORM=0 -DC_VECTOR_BYTES=0 -DEPILOGUE=0 "
                    f"-DCONJUGATE_A=0 -DCONJUGATE_B=0 -DA_K_MAJOR={a_fast} -DB_K_MAJOR={k_major} "
                    f"-DIS_SPLIT=0 {registers}"
                )
                tile = options.partition(" -DOUT_PAIRS")[0]
                along = f"the right operand along {'k' if k_major else 'n'}" if a_fast else "both across k"
                label = f"{m}x{n} {dtype}, {along}"
                bars = {product: SHARE[product][BYTES[dtype]][k_major] for product in SHARE} if a_fast else {}
                if unit == "XMX8":
                    bars = dict.fromkeys(OF_8_LANES, BUSY_8_LANES)
                largest = (
                    (m, n) == MAIN
                    if unit == "XMX"
                    else subgroups_m * subgroups_n >= 16 and m * n // subgroups_m // subgroups_n >= 32 * 32
                )
                request = f"gemm.cl|gemm_matrix|{options}|{label}|"
                yield Kernel(
                    request,
                    label,
                    bars if largest and unit != "FMA" else {},
                    unit == "XMX8",
                    units=unit != "FMA",
                    products={
                        "XMX": (),
                        "XMX8": OF_8_LANES,
                        "FMA": (BY_FOURS if by_fours else WITHOUT_UNITS) + (() if full else OLDER),
                    }[unit],
                )
                if unit == "XMX8" and m * n // subgroups_m // subgroups_n <= 32 * 32:
                    yield from squares(
                        tile, dtype, f"{m}x{n}", subgroups_m * subgroups_n, bars if largest else {}, registers
                    )
                if dtype == "i8" and (by_fours or (unit == "XMX" and not k_major)):
                    label = f"{m}x{n} i8, convolution of bytes"
                    request = convolution(
                        f"{tile.replace('-DT=i32', '-DT=f32').replace('-DFLOAT_T=0', '-DFLOAT_T=1')} {BYTES_OUT} "
                        f"-DHAS_PAD_VALUE={int(by_fours)} -DOUT_PAIRS=0 {registers}",
                        0,
                        int(by_fours),
                        0,
                        int(by_fours),
                    )
                    bars = dict.fromkeys(SHARE, 0.6) if largest and not by_fours else {}
                    of = BY_FOURS + (() if full else OLDER) if by_fours else ()
                    yield Kernel(f"{request}|{label}|", label, bars, True, units=not by_fours, products=of)
                if not of_halves:
                    continue
                # Pixels are read in blocks of 8 or 16; the right operand is contiguous along n.
                name = "x" if k_major else "y" if a_fast else "w"
                label = f"{m}x{n} {dtype}, convolution for {name}"
                request = convolution(f"{tile} -DOUT_PAIRS=0 {registers}", "yxw".index(name), 0, 1, 0)
                bars = dict.fromkeys(SHARE, BUSY_FOR_W if name == "w" else 0.6) if largest else {}
                yield Kernel(f"{request}|{label}|", label, bars, name == "w")
            for sought, name in enumerate("yxw" if unit == "FMA" and dtype == "f32" else ""):
                label = f"{m}x{n} {dtype}, convolution for {name}"
                wide = registers or (name == "x") * f" {REGISTERS}"
                for pixels in (0, 1):
                    phases, pieces = (0, 0) if pixels else (int(name == "x"), int(name != "w"))
                    request = convolution(
                        f"{tile} -DOUT_PAIRS=0 {wide}", sought, 1, phases, pieces, pixels=pixels
                    )
                    of = label + ", channels first" * pixels
                    yield Kernel(f"{request}|{of}|", of, {}, False, units=False, products=WITHOUT_UNITS)


def squares(
    tile: str, dtype: str, size: str, teams: int, bars: dict[str, float], registers: str
) -> Iterator[Kernel]:
    """Yield the convolutions of a tile on XMX with SIMD8, as src/ops/conv/conv_matrix.c builds them.

    y and x are written in vectors. With few channels, a step of y covers several taps.
    """
    of_bytes = dtype == "i8"
    if of_bytes:
        tile = (
            tile.replace("-DT=i32", "-DT=f32").replace("-DFLOAT_T=0", "-DFLOAT_T=1")
            + f" {BYTES_OUT} -DHAS_PAD_VALUE=1"
        )
    kinds = (
        ("y", 0, 1, 0),
        ("y, small taps", 0, 0, 0),
        ("x", 1, 1, 0),
        ("x, phases", 1, 1, 1),
        ("w", 2, 0, 0),
        ("y, channels first", 0, 1, 0),
        ("x, channels first", 1, 1, 0),
    )
    for name, sought, one_tap, phases in kinds:
        if of_bytes and sought > 0:
            continue
        rows, columns = map(int, size.split("x"))
        if (sought == 2 or phases) and rows > 8 * teams or phases and columns > 8 * teams:
            continue  # src/ops/gemm/matrix.c, suits
        pixels = "first" in name
        pieces = sought < 2 and not pixels
        request = convolution(
            f"{tile} -DOUT_PAIRS=0 {registers}", sought, 1, phases, int(pieces), one_tap, int(pixels)
        )
        label = f"{size} {dtype}, convolution for {name}"
        least = {product: min(bar, BUSY_ACROSS) if sought == 2 else bar for product, bar in bars.items()}
        yield Kernel(f"{request}|{label}|", label, least, True, products=OF_8_LANES)


def layers() -> Iterator[Kernel]:
    """Yield int8 linear layers (xpu_gemm_requantized) with uint8 activations, in the largest tiles."""
    for of in ("MATRIX_XMX", "MATRIX_XMX8"):
        tile = "TILE_M=256 -DTILE_N=256 -DTILE_K=64 -DSUBGROUPS_M=8 -DSUBGROUPS_N=4"
        if of == "MATRIX_XMX8":
            tile = "TILE_M=128 -DTILE_N=128 -DTILE_K=64 -DSUBGROUPS_M=4 -DSUBGROUPS_N=4"
        for k_major in (0, 1) if of == "MATRIX_XMX" else (1,):
            options = (
                "-DT=f32 -DOPERAND_T=i8 -DFLOAT_T=1 -DCOMPLEX_T=0 -DDOUBLE_T=0 -DA_SCALE=f32 -DB_SCALE=f32 "
                f"-DZERO_COMPENSATION -DA_UNSIGNED -D{of} -DMATRIX_T=i8 -D{tile} -DSTAGES=2 -DBAND=4 "
                "-DA_ALIGNMENT=16 -DB_ALIGNMENT=16 -DOUT_PAIRS=0 -DOUT_T=u8 -DOUT_BYTES=255 -DOUT_VECTOR_BYTES=0 "
                "-DC_FORM=1 -DC_VECTOR_BYTES=0 -DEPILOGUE=1 -DCONJUGATE_A=0 -DCONJUGATE_B=0 -DA_K_MAJOR=1 "
                f"-DB_K_MAJOR={k_major} -DIS_SPLIT=0 {REGISTERS}"
            )
            label = f"u8 times i8, {tile[7:10]} rows, the right operand along {'k' if k_major else 'n'}"
            bars = {product: SHARE[product][1][k_major] for product in SHARE}
            by_xmx8 = of == "MATRIX_XMX8"
            yield Kernel(
                f"gemm.cl|gemm_matrix|{options}|{label}|",
                label,
                dict.fromkeys(OF_8_LANES, BUSY_8_LANES) if by_xmx8 else bars,
                by_xmx8,
                products=OF_8_LANES if by_xmx8 else (),
            )


def convolution(
    tile: str, sought: int, padded: int, phases: int, pieces: int, one_tap: int = 0, pixels: int = 0
) -> str:
    """Return the request of a convolution kernel without its label, with padding and taps as given.

    With `pixels`, the tensor that is written, or read in place of y, has contiguous pixels.
    """
    options = tile + (
        f" -DDIRECTION={sought} -DPADDED={padded} -DIS_1X1={one_tap} -DVOLUME=0 -DPHASES={phases} -DIS_SPLIT=0 "
        f"-DOUT_VECTORS={pieces} -DOUT_QUADS=0 -DPIXELS_CONTIGUOUS={pixels} -DPARTS=0"
    )
    return f"conv_matrix.cl|conv_matrix|{options}"


def few_channels() -> Iterator[Kernel]:
    """Yield the image gradients for three channels, as src/ops/conv/conv_few_channels.c builds them.

    The kernels have 3 x 3, 7 x 7 and 11 x 11 taps.
    """
    for taps, stride, shape, ahead, span in (
        (3, 1, "-DLANES=8 -DROWS=8 -DHIGH=2 -DWIDE=4", 2, (4, 6)),
        (7, 2, "-DLANES=4 -DROWS=16 -DHIGH=2 -DWIDE=8", 5, (4, 7)),
        (11, 4, "-DLANES=4 -DROWS=8 -DHIGH=4 -DWIDE=4", 10, (4, 4)),
    ):
        options = (
            f"-DT=f32 -DEPILOGUE=0 -DCOMBINE=0 -DCHANNELS=3 {shape} -DSTEP=8 -DTAPS_H={taps} -DTAPS_W={taps} "
            f"-DSTRIDE_H={stride} -DSTRIDE_W={stride} -DDILATION_H=1 -DDILATION_W=1 -DAHEAD_H={ahead} "
            f"-DAHEAD_W={ahead} -DSPAN_H={span[0]} -DSPAN_W={span[1]} -DY_QUADS=1 -DOUT=1 {REGISTERS}"
        )
        for lanes, products in ((16, ("bmg", "pvc")), (8, ("dg2", "mtl", *OLDER))):
            label = f"{taps}x{taps} f32, gradient of an image, {lanes} lanes"
            request = f"conv_few_channels.cl|conv_few_channels|{options} -DSUBGROUP_SIZE={lanes}|{label}|"
            yield Kernel(request, label, {}, False, units=False, products=products)


def transforms() -> Iterator[Kernel]:
    """Yield the transforms of Winograd convolutions, 3 x 3, as src/ops/conv/conv_winograd.c builds them."""
    for way, of in enumerate(("x", "taps", "the gradient of y", "pixels", "taps' gradient")):
        for fast in (0, 1):
            label = f"conv_winograd, {of}, {'channels' if fast else 'windows'} beside each other"
            request = (
                f"conv_winograd.cl|conv_winograd|-DT=f32 -DWAY={way} -DCHANNELS_CONTIGUOUS={fast}|{label}|"
            )
            yield Kernel(
                request, label, {}, False, units=False, products=("bmg", "pvc", "dg2", "mtl", *OLDER)
            )


def attention() -> Iterator[Kernel]:
    """Yield forward and backward attention as src/ops/attention.c builds them."""
    for depth in (64, 128):
        for name, part, grads in (
            ("attention_matrix_forward", "FORWARD", 0),
            ("attention_matrix_grad_query", "BACKWARD", 1),
            ("attention_matrix_grad_key_value", "BACKWARD", 1),
            ("attention_matrix_grad_key_value", "BACKWARD", 2),
        ):
            step = 64 if part == "FORWARD" and depth == 64 else 32
            options = (
                f"-DT=bf16 -DMATRIX_T=bf16 -DMATRIX_XMX -DDROPOUT=0 -DBANDED=0 -DIS_SPLIT=0 -D{part} -DGRADS={grads} "
                f"-DSUBGROUPS=8 -DDEPTH={depth} -DVALUE_DEPTH={depth} -DSTEP={step} {REGISTERS}"
            )
            of = ("", ", the values'", ", the keys'")[grads if "value" in name else 0]
            label = f"{name}, heads of {depth}{of}"
            bars = dict.fromkeys(SHARE, BUSY[name])
            yield Kernel(f"attention_xmx.cl|{name}|{options}|{label}|", label, bars, True)
            biased = f"{options} -DBIAS_T=bf16 -DBIAS_IS_MASK=0"
            yield Kernel(
                f"attention_xmx.cl|{name}|{biased}|{label}, with a bias|", f"{label}, with a bias", {}, True
            )
            banded = options.replace("-DBANDED=0", "-DBANDED=1")
            yield Kernel(
                f"attention_xmx.cl|{name}|{banded}|{label}, of a window|", f"{label}, of a window", bars, True
            )
            dropped = options.replace("-DDROPOUT=0", "-DDROPOUT=1")
            label += ", with dropout"
            yield Kernel(f"attention_xmx.cl|{name}|{dropped}|{label}|", label, {}, True, counted=False)
            dropped = banded.replace("-DDROPOUT=0", "-DDROPOUT=1")
            label += ", of a window"
            yield Kernel(f"attention_xmx.cl|{name}|{dropped}|{label}|", label, {}, True, counted=False)
        for blocks in (2, 1):
            options = (
                "-DT=bf16 -DMATRIX_T=bf16 -DMATRIX_XMX8 -DDROPOUT=0 -DBANDED=0 -DIS_SPLIT=0 -DFORWARD -DSUBGROUPS=16 "
                f"-DDEPTH={depth} -DVALUE_DEPTH={depth} -DSTEP={16 if (depth > 64) != (blocks > 1) else 32} "
                f"-DSUMS_M={blocks} -DSUBGROUPS_PER_ROWS={4 if depth > 64 and blocks > 1 else 1} -DGRADS=0 {REGISTERS}"
            )
            in_quads = depth > 64 and blocks > 1
            rows = "32 rows a quad" if in_quads else f"{blocks * 8} rows a team"
            label = f"attention_matrix_forward, heads of {depth}, {rows}, 8 lanes"
            least = BUSY_QUADS_8 if in_quads else BUSY_ATTENTION_8[depth]
            bars = dict.fromkeys(OF_8_LANES, least)
            yield from attention_8("attention_matrix_forward", options, label, bars)
        for grads, of in enumerate(("queries", "values", "keys")):
            name = "attention_matrix_grad_key_value" if grads else "attention_matrix_grad_query"
            together = 2 if depth <= 64 or grads == 1 else 4
            options = (
                f"-DT=bf16 -DMATRIX_T=bf16 -DMATRIX_XMX8 -DDROPOUT=0 -DBANDED=0 -DIS_SPLIT=0 -DBACKWARD "
                f"-DGRADS={grads} -DSUBGROUPS=16 -DDEPTH={depth} -DVALUE_DEPTH={depth} "
                f"-DSTEP={32 if grads == 1 else 8 * together} -DSUMS_M=2 -DSUBGROUPS_PER_ROWS={together} {REGISTERS}"
            )
            label = f"{name}, heads of {depth}, the {of}', 8 lanes"
            yield from attention_8(name, options, label, dict.fromkeys(OF_8_LANES, BUSY_GRADIENTS_8[depth]))


def attention_8(name: str, options: str, label: str, bars: dict[str, float]) -> Iterator[Kernel]:
    """Yield attention for XMX with SIMD8: plain, with bias, dropout or a window, which must not cost more."""
    dropped = options.replace("-DDROPOUT=0", "-DDROPOUT=1")
    banded, dropped_too = (of.replace("-DBANDED=0", "-DBANDED=1") for of in (options, dropped))
    for what, changed in (
        ("", options),
        (", with a bias", f"{options} -DBIAS_T=bf16 -DBIAS_IS_MASK=0"),
        (", with dropout", dropped),
        (", of a window", banded),
        (", with dropout, of a window", dropped_too),
    ):
        request = f"attention_xmx8.cl|{name}|{changed}|{label}{what}|"
        counted = "dropout" not in what
        if "bias" in what and "FORWARD" in options and "SUMS_M=2" in options:
            continue  # tiles of 16 rows only serve scores without bias
        if "dropout" in what and " quad" in label:
            continue
        yield Kernel(
            request,
            label + what,
            {} if what not in ("", ", of a window") else bars,
            True,
            products=OF_8_LANES,
            counted=counted,
        )


# Build options of a quantized operand: bits, form (kernels/gemm/quantized_load.h), and scale and zero point
# that vary along k.
ELEMENTS = {
    "i4": (4, 0, "-DSCALE=bf16 -DZERO=i8 -DZERO_FORM=1 -DSCALE_IS_SHORT=1"),
    "i8": (8, 0, "-DZERO_FORM=0 -DSCALE_IS_SHORT=1"),
    "f8e4m3fn": (8, 3, "-DZERO_FORM=0 -DSCALE_IS_SHORT=1"),
}


def octets() -> Iterator[Kernel]:
    """Yield the largest tiles with quantized weights, which are twice as high and half as wide.

    int4 has groups along k; int8 and float8 have one scale per row.
    """
    for dtype in ("bf16", "f16"):
        for element, (bits, form, rest) in ELEMENTS.items():
            options = (
                f"-DT={dtype} -DCOMPLEX_T=0 -DFLOAT_T=1 -DDOUBLE_T=0 -DQUANTIZED_B=1 -DE={element} -DE_BITS={bits} "
                f"-DE_FORM={form} {rest} -DHAS_ZERO_OFFSET=0 -DROWS_SHARE_SCALES=0 -DMATRIX_XMX -DMATRIX_T={dtype} "
                "-DTILE_M=512 -DTILE_N=128 -DTILE_K=32 -DSUBGROUPS_M=16 -DSUBGROUPS_N=2 -DSTAGES=1 -DBAND=2 "
                "-DA_ALIGNMENT=16 -DB_ALIGNMENT=16 -DOUT_PAIRS=0 -DOUT_VECTOR_BYTES=0 -DC_FORM=0 "
                f"-DC_VECTOR_BYTES=0 -DEPILOGUE=0 {'' if bits == 4 else '-DB_SCALE=f32 '}"
                f"-DCONJUGATE_A=0 -DCONJUGATE_B=0 -DA_K_MAJOR=1 -DB_K_MAJOR=1 -DIS_SPLIT=0 {REGISTERS}"
            )
            label = f"512x128 {dtype} times {element}"
            request = f"gemm.cl|gemm_matrix|{options}|{label}|"
            bars = {product: shares[element.startswith("f")] for product, shares in SHARE_OCTETS.items()}
            yield Kernel(request, label, bars, False)


def few_rows() -> Iterator[Kernel]:
    """Yield products of a few rows with quantized weights."""
    for dtype, bits, form, zero in (
        ("i4", 4, 0, "-DZERO=i8 -DZERO_FORM=1"),
        ("i8", 8, 0, "-DZERO_FORM=0"),
        ("f8e4m3fn", 8, 3, "-DZERO_FORM=0"),
    ):
        for rows, columns in ((1, 4), (4, 2)):
            options = (
                "-DT=bf16 -DCOMPLEX_T=0 -DFLOAT_T=1 -DDOUBLE_T=0 -DFEW -DEPILOGUE=0 -DCOMBINE=0 "
                f"-DROWS={rows} -DCOLUMNS={columns} -DLANES=32 -DSUBGROUPS=4 -DOCTETS={16 // bits} -DA_WHOLE=1 "
                f"-DE={dtype} -DE_BITS={bits} -DE_FORM={form} -DSCALE=bf16 {zero} -DSCALE_IS_SHORT=1 "
                "-DHAS_ZERO_OFFSET=0 -DCONJUGATE_A=0 -DCONJUGATE_B=0 -DIS_SPLIT=0"
            )
            for joined, what in (
                ("", ""),
                (" -DPARTS=3 -DGATED=0 -DNORMED=0 -DQKV_CACHE=0 -DUNIT_OFFSET_WEIGHT=0", ", three"),
                (
                    " -DPARTS=2 -DGATED=1 -DNORMED=1 -DQKV_CACHE=0 -DUNIT_OFFSET_WEIGHT=0",
                    ", gated and normed",
                ),
                (
                    " -DPARTS=3 -DGATED=0 -DNORMED=1 -DQKV_CACHE=1 -DUNIT_OFFSET_WEIGHT=0",
                    ", three, normed, into the cache",
                ),
                (
                    " -DPARTS=3 -DGATED=0 -DNORMED=1 -DQKV_CACHE=2 -DUNIT_OFFSET_WEIGHT=0",
                    ", three, normed, their heads, too",
                ),
            ):
                label = f"{rows} rows times {dtype}{what}"
                request = f"gemm.cl|gemm_small_m|{options}{joined}|{label}|"
                yield Kernel(request, label, {}, False, units=False, products=WITHOUT_UNITS)


# An option that every driver rejects: the CPU device writes the source, then the build fails.
REFUSED = "-refused"


def everything() -> list[Kernel]:
    """Yield all kernels to compile."""
    return [
        *products(),
        *layers(),
        *octets(),
        *attention(),
        *few_rows(),
        *few_channels(),
        *transforms(),
    ]


def sources(all_of: list[Kernel], folder: Path) -> list[Path]:
    """Write the source of each request to ``folder``. This process must not use openxpu's library."""
    os.environ |= {"OPENXPU_CACHE": "0", "OPENXPU_BUILD_OPTIONS": REFUSED}
    library = ctypes.CDLL(str(next((ROOT / "python" / "openxpu").glob("libxpu.so.*"))))
    files = []
    for number, kernel in enumerate(all_of):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            os.environ["OPENXPU_DUMP_KERNELS"] = name
            library.xpu_request_build(0, kernel.request.encode())
            path = next(Path(name).glob("*.cl"), None)
            if not path:
                sys.exit(
                    f"{kernel.label}: no source; is OPENXPU_DRIVER_PATH the folder of the CPU's driver, .venv/lib?"
                )
            first, _, rest = path.read_text().partition("\n")
            files.append(folder / f"{number:04}.cl")
            files[-1].write_text(f"{first.replace(f' {REFUSED}', '')}\n{rest}")
    del os.environ["OPENXPU_DUMP_KERNELS"]
    return files


def main_loop(listing: str, alternatives: bool = False) -> tuple[int, int, int]:
    """Return the numbers of matrix instructions, of idle ones, and of all instructions in main_body."""
    body = main_body(listing, alternatives)
    return units_of(body), sum(IDLE.search(line) is not None for line in body), len(body) or 1


def units_of(body: list[str]) -> int:
    """Count the matrix instructions except idle ones."""
    return sum("dpas." in line and not IDLE.search(line) for line in body)


def main_body(listing: str, alternatives: bool = False) -> list[str]:
    """Return the instructions of the main loop: the most matrix instructions, then the fewest others.

    Loops that contain loops are skipped. A skipped branch without matrix instructions handles edges, or the start
    of a group of quantized elements, and does not count. With `alternatives`, the longer of two exclusive branches
    counts.
    """
    lines = [line for line in listing.splitlines() if line.strip() and not line.strip().startswith("//")]
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"^(\w+):", line))}
    jumps = []
    for i, line in enumerate(lines):
        if re.search(r"\b(?:jmpi|while|goto(?:\.b)?)\b", line):
            targets = [word for word in re.findall(r"\w+", line.split("//")[0]) if word in labels]
            jumps += [(i, labels[targets[-1]])] if targets else []
    loops = [
        (start, end)
        for end, start in jumps
        if start <= end and any("dpas." in line for line in lines[start : end + 1])
    ]
    found = []
    for start, end in loops:
        if any((a, b) != (start, end) and start <= a and b <= end for a, b in loops):
            continue
        branches = [
            (a, b)
            for a, b in jumps
            if start <= a < b <= end and not any("dpas." in line for line in lines[a:b])
        ]
        left_out = {
            i
            for a, b in branches
            for i in range(a + 1, b)
            if not (alternatives and is_longer(branches, a, b))
        }
        body = [
            lines[i] for i in range(start, end + 1) if i not in left_out and not re.match(r"^\w+:", lines[i])
        ]
        if units_of(body):
            found.append(body)
    return max(found, key=lambda body: (units_of(body), units_of(body) / len(body)), default=[])


def is_longer(branches: list[tuple[int, int]], a: int, b: int) -> bool:
    """Of two exclusive branches, is the one between a and b, which a jump at a skips, the longer one?"""
    others = [
        (d - c, b - a)
        for c, d in branches
        if (a < c < b < d and b - c <= 2) or (c < a < d < b and d - a <= 2)
    ]
    return any(mine > other for other, mine in others)


def listing_of(ocloc: Path, source: Path, product: str, kernel: Kernel) -> tuple[str, str]:
    """Compile for a product; return the kernel's listing and an error message."""
    options = source.read_text().splitlines()[0].partition(" | ")[2]
    if product in OLDER:
        options = options.replace(REGISTERS, "")
    defines = "-DXPU_CAPABILITIES -DXPU_HAS_FP16=1 -DXPU_HAS_SUBGROUPS=1 -DXPU_IS_INTEL_GPU=1"
    if product in PRODUCTS and product != "pvc":
        defines += " -DXPU_HAS_BLOCK_OFFSETS=1"
    least = 16 if product in PRODUCTS else 8
    lanes = (
        f"-DLANES={least}"
        if "-DMATRIX_FMA" in options
        else f"-DSUBGROUP_SIZE={least}"
        if "-DROWS=4" in options
        else ""
    )
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
            return "", (run.stdout + run.stderr).strip()
        # If the compiler retried, the listing of the retry has a number in its name and is the valid one.
        listings = [
            path.read_text() for path in sorted(folder.glob("*.asm"), key=lambda path: len(path.name))
        ]
    name = kernel.request.split("|")[1]
    listings = [text for text in listings if f"//.kernel {name}\n" in text]
    return (listings[-1], "") if listings else ("", "no listing")


def spills_of(listing: str) -> int:
    """Return the bytes spilled."""
    return max((int(size) for size in re.findall(r"//.spill size (\d+)", listing)), default=0)


def look(ocloc: Path, source: Path, product: str, kernel: Kernel) -> tuple[float, int, str]:
    """Compile for a product; return the share of instructions or time, spilled bytes, and an error."""
    listing, wrong = listing_of(ocloc, source, product, kernel)
    if wrong:
        return 0, 0, wrong
    if not kernel.units:
        lacks = "-DMATRIX_DOT" in kernel.request and " dp4a " not in listing
        return 0, spills_of(listing), "no dp4a" if lacks else ""
    dtype = re.search(r"-DMATRIX_T=(\w+)", kernel.request)[1]  # type: ignore[index]
    types = {" ".join(pair) for pair in DPAS.findall(listing)}
    name = "tf32" if dtype == "f32" else dtype
    left = "u8" if "-DA_UNSIGNED" in kernel.request else name
    wrong = "" if types == {instruction(left, name)} else f"of the types {types or 'none'}"
    units, idle, every = main_loop(listing, kernel.request.startswith("attention"))
    part = 8 * units / (max(8 * (units + idle), every - units - idle) or 1) if kernel.busy else units / every
    return part, spills_of(listing), wrong


def told(kernel: Kernel, part: float) -> str:
    """Describe the use of XMX in a listing."""
    if not kernel.units or not kernel.counted:
        return "compiled"
    return f"units busy {part:.0%}" if kernel.busy else f"{part:.0%} of the main loop multiply"


def main() -> int:
    """Print a line per tile and product; return 1 if one spills, lacks its instructions or misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ocloc", type=Path)
    parser.add_argument("--products", default=",".join(PRODUCTS))
    parser.add_argument("--only", default="", help="only requests or labels that contain this")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FOLDER",
        help="write the sources to this folder instead of compiling them",
    )
    arguments = parser.parse_args()
    all_of = [kernel for kernel in everything() if arguments.only in kernel.request]
    if arguments.write:
        sources(all_of, arguments.write)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        files = sources(all_of, Path(folder))
        return look_at_all(
            arguments.ocloc, list(zip(all_of, files, strict=True)), arguments.products.split(",")
        )


def look_at_all(ocloc: Path, all_of: list[tuple[Kernel, Path]], products: list[str]) -> int:
    """Print a line per kernel and product; return 1 if one fails or if there is none."""
    jobs = [(kernel, source, product) for kernel, source in all_of for product in kernel.products or products]
    failed = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        looks = pool.map(lambda job: look(ocloc, job[1], job[2], job[0]), jobs)
        for (kernel, _, product), (part, spill, wrong) in zip(jobs, looks, strict=True):
            bar = kernel.bars.get(product, 0)
            bad = wrong or spill or part < bar
            failed += bool(bad)
            print(
                f"{'FAILED ' if bad else ''}{product}: {kernel.label}: "
                f"{told(kernel, part)}"
                f"{f', bar {bar:.0%}' if bar else ''}{f', {spill} bytes spilled' if spill else ''} {wrong}".rstrip(),
                flush=True,
            )
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed or not all_of else 0


if __name__ == "__main__":
    sys.exit(main())
