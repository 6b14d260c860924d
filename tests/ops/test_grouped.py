"""Grouped products with group sizes on the device (torch._grouped_mm), against one product per group in float64.

Here with the host's BLAS, and in other processes with libxpu's own kernels: for CPUs, and for GPUs with each emulated
matrix engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from comparing import assert_close
from inner_run import needs_emulation, on_cpus, passes
from openxpu import _bridge

from .indexing_samples import out_of_range

IS_INNER = os.environ.get("OPENXPU_HOST_PROVIDER") == "0"
TIMES = {torch.float32: 1, torch.bfloat16: 1, torch.float16: 0.75}
# Group ends: some groups are empty, also the first and last; the last end is before the end of the operand.
ENDS = {
    "some": [5, 5, 40, 41, 96],
    "empty first": [0, 0, 70],
    "rest": [17, 50],
    "one": [96],
    "none": [0, 0, 0],
    "many": [3 * i for i in range(1, 33)],
}
SIZE = 96  # of the grouped dimension


@pytest.fixture(autouse=True)
def no_fallback() -> Iterator[None]:
    """No operator may fall back to the CPU."""
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def random(shape: list[int], turned: bool, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a tensor; with `turned`, the last two dimensions are transposed in memory."""
    generator = torch.Generator().manual_seed(seed)
    shape = [*shape[:-2], shape[-1], shape[-2]] if turned else shape
    x = torch.randn(shape, generator=generator).to(dtype)
    return x.mT if turned else x


def operands(
    what: str, groups: int, turned: tuple[bool, bool], dtype: torch.dtype, m: int, n: int, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    a = [SIZE, k] if what == "rows" else [groups, m, k] if what == "columns" else [m, SIZE]
    b = [groups, k, n] if what == "rows" else [k, SIZE] if what == "columns" else [SIZE, n]
    return random(a, turned[0], dtype, 1), random(b, turned[1], dtype, 2)


def one_each(what: str, a: torch.Tensor, b: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """Return the groups' slices in float64: rows, columns, or a batch."""
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    a, b = a.double(), b.double()
    if what == "rows":
        return torch.cat([a[part] @ b[g] for g, part in enumerate(parts)])
    if what == "columns":
        return torch.cat([a[g] @ b[:, part] for g, part in enumerate(parts)], 1)
    return torch.stack([a[:, part] @ b[part] for part in parts])


@pytest.mark.parametrize("dtype", TIMES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("what", ["rows", "columns", "k"])
def test_groups(what: str, ends: str, turned: tuple[bool, bool], dtype: torch.dtype) -> None:
    """Row lengths that are multiples of 16 bytes and others, K-major and not."""
    last = ENDS[ends][-1]
    for m, n, k in ((48, 40, 64), (33, 21, 50), (64, 136, 72)):
        a, b = operands(what, len(ENDS[ends]), turned, dtype, m, n, k)
        expected = one_each(what, a, b, ENDS[ends])
        offs = torch.tensor(ENDS[ends], dtype=torch.int32, device="xpu")
        found = torch._grouped_mm(a.to("xpu"), b.to("xpu"), offs)
        held = found[:last] if what == "rows" else found[:, :last] if what == "columns" else found
        scale = expected.abs().amax().item() if expected.numel() else 1
        assert_close(held, expected, dtype=dtype, times=TIMES, floor=max(scale, 1) / 4)


@pytest.mark.parametrize("way", ["rows", "columns", "k"])
@pytest.mark.parametrize("dtype", TIMES)
@pytest.mark.parametrize("ends", [[50, 20, 96], [-5, 40, 96], [10, 200], [97], [20, 30, -1]], ids=str)
def test_ends_out_of_order(ends: list[int], dtype: torch.dtype, way: str) -> None:
    """Groups that end before they begin, or beyond the operands, are errors."""
    a, b = operands(way, len(ends), (False, False), dtype, 48, 40, 64)
    offs = torch.tensor(ends, dtype=torch.int32, device="xpu")
    with out_of_range(RuntimeError, "ascend"):
        torch._grouped_mm(a.to("xpu"), b.to("xpu"), offs)


def test_large() -> None:
    """Several tiles per group, in both dimensions."""
    ends, (m, n, k) = [0, 300, 310, 700, 701, 1000], (1000, 520, 264)
    if IS_INNER and os.environ.get("OPENXPU_MATRIX") != "none":  # the emulation of matrix engines is slow
        ends, (m, n, k) = [0, 150, 155, 350, 351, 500], (500, 264, 136)
    for dtype in TIMES:
        a, b = random([m, k], False, dtype, 1), random([len(ends), k, n], True, dtype, 2)
        expected = one_each("rows", a, b, ends)
        offs = torch.tensor(ends, dtype=torch.int32, device="xpu")
        found = torch._grouped_mm(a.to("xpu"), b.to("xpu"), offs)
        assert_close(found, expected, dtype=dtype, times=TIMES, floor=16)


def test_long_k() -> None:
    """Shapes for which a single product would use split-K."""
    ends = [20, 32]
    a, b = random([32, 4096], False, torch.bfloat16, 1), random([2, 4096, 64], True, torch.bfloat16, 2)
    offs = torch.tensor(ends, dtype=torch.int32, device="xpu")
    found = torch._grouped_mm(a.to("xpu"), b.to("xpu"), offs)
    assert_close(found, one_each("rows", a, b, ends), dtype=torch.bfloat16, floor=50)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients(dtype: torch.dtype) -> None:
    """Grouped rows, with gradients: grouped columns and K in the other two products."""
    ends = ENDS["some"]
    a, b = operands("rows", len(ends), (False, True), dtype, 48, 40, 64)
    weight = random([SIZE, 40], False, dtype, 3)
    wanted = [x.double().requires_grad_() for x in (a, b)]
    (one_each("rows", *wanted, ends) * weight.double()).sum().backward()
    given = [x.to("xpu").requires_grad_() for x in (a, b)]
    offs = torch.tensor(ends, dtype=torch.int32, device="xpu")
    (torch._grouped_mm(*given, offs) * weight.to("xpu")).sum().backward()
    for mine, theirs in zip(given, wanted, strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert_close(mine.grad, theirs.grad, dtype=dtype, times=TIMES, floor=8)


def test_batch() -> None:
    a, b = random([3, 8, 16], False, torch.bfloat16, 1), random([3, 16, 8], False, torch.bfloat16, 2)
    found = torch._grouped_mm(a.to("xpu"), b.to("xpu"))
    assert_close(found, a.double() @ b.double(), dtype=torch.bfloat16)


def test_captured() -> None:
    """A replay uses the sizes that are on the device then."""
    a, b = operands("rows", 3, (False, False), torch.float32, 48, 40, 64)
    x, y = a.to("xpu"), b.to("xpu")
    offs = torch.tensor([10, 20, 96], dtype=torch.int32, device="xpu")
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        out = torch._grouped_mm(x, y, offs)
    for ends in ([10, 20, 96], [0, 90, 96], [96, 96, 96]):
        offs.copy_(torch.tensor(ends, dtype=torch.int32))
        graph.replay()
        assert_close(out, one_each("rows", a, b, ends), dtype=torch.float32, floor=5)


@pytest.mark.parametrize("what", ["rows", "columns", "k"])
def test_scaled(what: str) -> None:
    """float8 with a scale per row of A and column of B."""
    ends, (m, n, k) = [16, 16, 48, 96], (48, 64, 80)
    a, b = operands(what, len(ends), (False, True), torch.float32, m, n, k)
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    generator = torch.Generator().manual_seed(3)
    lines = (SIZE if what == "rows" else m, SIZE if what == "columns" else n)
    batch = (what == "columns", what == "rows")
    shapes = [
        [len(ends), line] if deep or what == "k" else [line] for line, deep in zip(lines, batch, strict=True)
    ]
    scale_a, scale_b = (torch.rand(shape, generator=generator) + 0.5 for shape in shapes)
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    wide_a, wide_b = a.double(), b.double()
    if what == "k":
        expected = torch.stack(
            [
                (wide_a[:, part] * scale_a[g][:, None].double()) @ (wide_b[part] * scale_b[g].double())
                for g, part in enumerate(parts)
            ]
        )
    else:
        expected = one_each(
            what, wide_a * scale_a[..., None].double(), wide_b * scale_b[..., None, :].double(), ends
        )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        found = torch._scaled_grouped_mm(
            a.to("xpu"),
            b.to("xpu"),
            *(x.reshape(-1).to("xpu") if what == "k" else x.to("xpu") for x in (scale_a, scale_b)),
            torch.tensor(ends, dtype=torch.int32, device="xpu"),
            out_dtype=torch.bfloat16,
        )
    # with grouped rows B is read in place
    if IS_INNER and os.environ.get("OPENXPU_MATRIX") in ("ptx", "xmx"):
        as_read = [event.name for event in profile.events() if " x " in event.name]
        assert len(as_read) == (what == "rows"), as_read
    largest = float(expected.abs().max())
    assert_close(found, expected, dtype=torch.bfloat16, rtol=1e-2, atol=largest / 200)


def tiles(scale: torch.Tensor) -> torch.Tensor:
    """Swizzle scales [rows, blocks] to NVIDIA's layout of tiles of 128 rows and 4 blocks."""
    lines, blocks = scale.shape
    down, across = -(-lines // 128), -(-blocks // 4)
    padded = torch.zeros(down * 128, across * 4, dtype=torch.uint8)
    padded[:lines, :blocks] = scale.view(torch.uint8)
    four = padded.view(down, 4, 32, across, 4)
    return four.permute(0, 3, 2, 1, 4).reshape(-1).view(scale.dtype)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def some_bytes(lines: int, k: int, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return elements [rows, k] without NaN, as stored and in float64."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.float4_e2m1fn_x2:
        nibbles = torch.randint(16, (lines, k), generator=generator)
        pairs = nibbles[:, ::2] | nibbles[:, 1::2] << 4
        return pairs.to(torch.uint8).view(dtype), E2M1[nibbles]
    stored = torch.randn(lines, k, generator=generator).mul(4).to(dtype)
    return stored, stored.double()


def in_blocks(
    wide: torch.Tensor, block: int, cut: str, ends: list[int], seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return swizzled scales for `block` elements along K, and `wide`, [rows, k] or a batch of these, times the scales.

    With `cut` along "lines" or "k", each group has its own tiles, one group after another.
    """
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.float8_e8m0fnu if block == 32 else torch.float8_e4m3fn
    if wide.dim() == 3:
        given = [in_blocks(part, block, "", [], seed + i) for i, part in enumerate(wide)]
        stacked = torch.stack([scale.view(torch.uint8).view(-1) for scale, _ in given])
        return stacked.view(dtype), torch.stack([part for _, part in given])
    found, parts, scaled = [], [], wide.clone()
    for begin, end in zip([0, *ends], ends or [len(wide)], strict=False):
        parts.append((slice(None), slice(begin, end)) if cut == "k" else (slice(begin, end),))
    for part in parts:
        lines, k = wide[part].shape
        # scales from 1/8 to 8; e4m3 scales from 1/4 to 2
        low, high = (124, 131) if block == 32 else (40, 64)
        plain = torch.randint(low, high, (lines, -(-k // block)), generator=generator, dtype=torch.uint8)
        plain = plain.view(dtype)
        scaled[part] *= plain.double().repeat_interleave(block, 1)[:, :k]
        found.append(tiles(plain).view(torch.uint8))
    return torch.cat(found).view(-1, 4).view(dtype), scaled


BLOCKS = {  # grouped dimension: groups of several tiles, an empty group, ends inside blocks or at their boundaries
    "rows": ([5, 5, 145, 290], 300, 136, 160),
    "columns": ([5, 5, 145, 290], 300, 136, 160),
    "k": ([32, 32, 192, 320], 320, 72, 320),
    "ragged k": ([6, 6, 150, 290], 300, 72, 300),
}


def blocked_operands(
    what: str, dtype: torch.dtype, ends: list[int] | None = None, block: int = 32
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return A, B, their scales and the ends of groups, and the product in float64."""
    usual, cut, n, k = BLOCKS[what]
    ends, kind = ends or usual, what.split()[-1]
    sides = []
    for i, lines in enumerate((cut if kind == "rows" else 136, cut if kind == "columns" else n)):
        deep = kind == ("columns", "rows")[i]
        stored, wide = some_bytes(lines * (len(ends) if deep else 1), k, dtype, i)
        if deep:
            stored, wide = (x.view(len(ends), lines, -1) for x in (stored, wide))
        of = "" if deep else "k" if kind == "k" else "lines"
        sides.append((stored, *in_blocks(wide, block, of, ends, 10 + i)))
    (a, scale_a, wide_a), (b, scale_b, wide_b) = sides
    offs = torch.tensor(ends, dtype=torch.int32)
    return [a, b, scale_a, scale_b, offs], one_each(kind, wide_a, wide_b.mT, ends)


def product_of_blocks(a: torch.Tensor, b: torch.Tensor, *scales_and_ends: torch.Tensor) -> torch.Tensor:
    """K-major, through the operator that also accepts float4."""
    scale_a, scale_b, offs = scales_and_ends
    recipe = torch.nn.functional.ScalingType.BlockWise1x32
    swizzle = torch.nn.functional.SwizzleType.SWIZZLE_32_4_4
    return torch.nn.functional.scaled_grouped_mm(
        a, b.transpose(-1, -2), scale_a, recipe, scale_b, recipe, swizzle, swizzle, offs=offs
    )


def same_of_blocks(what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    if "k" not in what:
        found = found[: expected.size(0), : expected.size(1)]
    largest = float(expected.abs().max())
    assert_close(found, expected, dtype=found.dtype, rtol=1e-2, atol=largest / 500, what=what)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float4_e2m1fn_x2], ids=str)
@pytest.mark.parametrize("what", BLOCKS)
def test_blocks(what: str, dtype: torch.dtype) -> None:
    """A scale per 32 elements along K, with separate tiles per group: one product."""
    given, expected = blocked_operands(what, dtype)
    moved = [x.to("xpu") for x in given]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        found = product_of_blocks(*moved)
    same_of_blocks(what, found, expected)
    if IS_INNER:
        names = ("gemm", "copy", "dequantize")
        kernels = [e.name.split()[0] for e in profile.events() if e.name.startswith(names)]
        as_read = what == "rows" and os.environ.get("OPENXPU_MATRIX") in ("ptx", "xmx")
        assert kernels[:-1] == ["dequantize"] * (1 if as_read else 2), kernels
        assert kernels[-1].startswith("gemm")


@pytest.mark.parametrize("what", ["rows", "k"])
def test_blocks_captured(what: str) -> None:
    """A replay uses the sizes, and the offsets of each group's scales, that are on the device then."""
    given, expected = blocked_operands(what, torch.float8_e4m3fn)
    room = [torch.zeros(4096, 4, dtype=torch.uint8, device="xpu").view(x.dtype) for x in given[2:4]]
    moved = [x.to("xpu") for x in given]
    flat = [i for i in (0, 1) if moved[i].dim() == 2]
    for i in flat:
        moved[2 + i] = room[i]
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        out = product_of_blocks(*moved)
    for ends in ([64, 288, 288, 290], [0, 3, 20, 200], BLOCKS[what][0]):
        given, expected = blocked_operands(what, torch.float8_e4m3fn, ends)
        for i in flat:
            room[i][: given[2 + i].size(0)].view(torch.uint8).copy_(given[2 + i].view(torch.uint8))
        moved[4].copy_(given[4])
        graph.replay()
        same_of_blocks(what, out, expected)


@pytest.mark.parametrize("what", ["rows", "k"])
def test_blocks_of_nvfp4(what: str) -> None:
    """An e4m3 scale per 16 elements, and an fp32 scale per group of either operand."""
    given, expected = blocked_operands(what, torch.float4_e2m1fn_x2, block=16)
    a, b, scale_a, scale_b, offs = (x.to("xpu") for x in given)
    groups = len(given[4])
    whole = [torch.rand(groups, generator=torch.Generator().manual_seed(i)) + 0.5 for i in range(2)]
    parts = zip([0, *given[4].tolist()], given[4].tolist(), strict=False)
    for g, (begin, end) in enumerate(parts):
        expected[(g,) if what == "k" else slice(begin, end)] *= whole[0][g].double() * whole[1][g].double()
    types, swizzle = torch.nn.functional.ScalingType, torch.nn.functional.SwizzleType
    recipe = [types.BlockWise1x16, types.TensorWise]
    found = torch.nn.functional.scaled_grouped_mm(
        a,
        b.transpose(-1, -2),
        [scale_a, whole[0].to("xpu")],
        recipe,
        [scale_b, whole[1].to("xpu")],
        recipe,
        swizzle.SWIZZLE_32_4_4,
        swizzle.SWIZZLE_32_4_4,
        offs=offs,
    )
    same_of_blocks(what, found, expected)


def test_blocks_without_scales() -> None:
    """Elements without a scale give NaN, and nothing is read past the scales."""
    a, b, scale_a, *rest = (x.to("xpu") for x in blocked_operands("rows", torch.float8_e4m3fn)[0])
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        found = product_of_blocks(a, b, scale_a[: 128 * 2], *rest)
    graph.replay()
    assert found[:5].isfinite().all() and found[5:290].isnan().all()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offs": torch.tensor([1, 2])}, "int32"),
        ({"offs": torch.tensor([[1, 2, 3]], dtype=torch.int32)}, "1D"),
        ({"offs": torch.tensor([1, 2], dtype=torch.int32)}, "batch sizes have to match"),
        ({"offs": None}, "provide offsets"),
        ({"b": torch.zeros(3, 15, 8, dtype=torch.bfloat16)}, "contraction dimension"),
        ({"b": torch.zeros(3, 16, 8)}, "one dtype"),
        ({"a": torch.zeros(8, 16, dtype=torch.int32)}, "Expected mat_a to be"),
        ({"a": torch.zeros(8, dtype=torch.bfloat16)}, "2 or 3d"),
        ({"bias": torch.zeros(8, dtype=torch.bfloat16)}, "Bias not supported"),
        ({"out_dtype": torch.float32}, "output dtype must match"),
    ],
    ids=str,
)
def test_what_is_refused(change: dict[str, torch.Tensor | torch.dtype | None], reason: str) -> None:
    given: dict[str, torch.Tensor | torch.dtype | None] = {
        "a": torch.zeros(8, 16, dtype=torch.bfloat16),
        "b": torch.zeros(3, 16, 8, dtype=torch.bfloat16),
        "offs": torch.tensor([1, 2, 8], dtype=torch.int32),
        "bias": None,
        "out_dtype": None,
    } | change
    a, b, offs, bias = (
        x.to("xpu") if isinstance(x := given[name], torch.Tensor) else x
        for name in ("a", "b", "offs", "bias")
    )
    with pytest.raises(RuntimeError, match=reason):
        torch._grouped_mm(a, b, offs=offs, bias=bias, out_dtype=given["out_dtype"])


@pytest.mark.skipif(not IS_INNER, reason="asks which kernels of libxpu's run")
@pytest.mark.parametrize("what", ["rows", "columns", "k"])
def test_kernels(what: str) -> None:
    """One launch, on a matrix engine if it can read both operands unpacked."""
    turned = (what == "k", what != "k")  # along k, but where k is cut
    shapes = {
        "rows": ([300, 256], [2, 256, 192]),
        "columns": ([2, 192, 256], [256, 300]),
        "k": ([192, 300], [300, 256]),
    }[what]
    a, b = (random(shape, turned[i], torch.bfloat16, i).to("xpu") for i, shape in enumerate(shapes))
    offs = torch.tensor([100, 300], dtype=torch.int32, device="xpu")
    torch._grouped_mm(a, b, offs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch._grouped_mm(a, b, offs)
    kernels = [e.name.split()[0] for e in profile.events() if e.name.startswith(("gemm", "copy"))]
    unit = os.environ.get("OPENXPU_MATRIX")
    lacks = unit == "xmx8" and what == "k"  # whose lines lie along k, and begin at multiples of 16 bytes
    assert kernels == ["gemm_host" if unit == "none" else "gemm" if lacks else "gemm_matrix"]


# Of the slower ones, which are written out, part; OPENXPU_TEST_ALL=1 runs all.
PART = (
    "groups and bfloat16 and (some or rest and rows) or scaled or kernels or large or long "
    "or (blocks and (e4m3 or captured or nvfp4))"
)


@on_cpus
@pytest.mark.skipif(IS_INNER, reason="this is the inner run")
@pytest.mark.parametrize(
    "unit",
    [
        "none",
        pytest.param("ptx", marks=needs_emulation),
        pytest.param("xmx", marks=needs_emulation),
        pytest.param("fma", marks=pytest.mark.extended),
        pytest.param("xmx8", marks=[needs_emulation, pytest.mark.extended]),
    ],
)
def test_by_libxpu(unit: str) -> None:
    keyword = "" if os.environ.get("OPENXPU_TEST_ALL") or unit == "none" else PART
    passes(
        {Path(__file__): keyword},
        every=1 if unit == "none" else 2,
        OPENXPU_MATRIX=unit,
        OPENXPU_HOST_PROVIDER="0",
        OPENXPU_TUNING="quantized_tiles=1024,quantized_xmx16=2048",  # as GPUs have it
    )


@pytest.mark.skipif(IS_INNER, reason="once is enough")
@pytest.mark.parametrize("what", ["rows", "columns", "k", "batch"])
def test_compiled_rows_that_are_no_whole_16_bytes(what: str) -> None:
    """Inductor relies on result rows that start at multiples of 16 bytes, as on the CPU."""
    ends = torch.tensor([0, 24, 40], dtype=torch.int32)
    a = torch.randn((3, 20, 16) if what in ("columns", "batch") else (40, 16)).bfloat16()
    b = torch.randn((3, 20, 16) if what in ("rows", "batch") else (40, 16)).bfloat16().mT
    if what == "k":
        a, b, ends = a.t(), torch.randn(20, 40).bfloat16().t(), ends
    offs = None if what == "batch" else ends

    def product(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None) -> torch.Tensor:
        return torch._grouped_mm(a, b, offs) * 2

    expected = product(a, b, offs)
    given = [t if t is None else t.to("xpu") for t in (a, b, offs)]
    assert torch._grouped_mm(*given).stride() == torch._grouped_mm(a, b, offs).stride()
    found = torch.compile(product, dynamic=False)(*given).cpu()
    torch.testing.assert_close(found, expected)
