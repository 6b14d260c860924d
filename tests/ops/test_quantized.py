"""Products of quantized operands against float64: 4- and 8-bit weights, float8, float4 and their scales."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparing import assert_close, assert_snr

SINGLES = (torch.float32, torch.bfloat16, torch.float16)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
TENSOR, ROW, BLOCK16, BLOCK32, BLOCK128, SQUARE128 = range(6)


def enough(dtype: torch.dtype) -> float:
    return 110 if dtype == torch.float32 else 50


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize(
    "m, n, k, group",
    [
        (1, 64, 256, 32),
        (3, 24, 128, 64),
        (16, 40, 384, 128),
        (70, 33, 96, 32),
        (5, 8, 40, 8),
        (1, 131, 1152, 128),
        (2, 67, 2304, 256),
        (7, 300, 640, 640),
        (1, 20, 176, 16),
    ],
)
def test_int4(dtype: torch.dtype, m: int, n: int, k: int, group: int) -> None:
    torch.manual_seed(m)
    q = torch.randint(0, 16, (n, k))
    packed = (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8)
    weight = torch.ops.aten._convert_weight_to_int4pack(packed.to("xpu"), 8)
    assert weight.shape == (n, k // 8)
    assert weight.dtype == torch.int32
    assert torch.equal(weight.cpu().view(torch.uint8), packed)
    groups = k // group
    scale, zero = (
        (torch.rand(groups, n) / 8 + 0.01).to(dtype),
        torch.randint(0, 16, (groups, n), dtype=torch.int8),
    )
    x = torch.randn(m, k).to(dtype)
    each = torch.arange(k) // group
    expected = x.double() @ ((q - zero[each].t().double()) * scale[each].t().double()).t()
    actual = torch.ops.aten._weight_int4pack_mm_with_scales_and_zeros(
        x.to("xpu"), weight, group, scale.to("xpu"), zero.to("xpu")
    )
    assert actual.dtype == dtype
    assert_snr(actual, expected, enough(dtype))

    both = torch.stack([scale, torch.randn(groups, n).to(dtype)], -1)
    expected = x.double() @ ((q - 8) * both[each, :, 0].t().double() + both[each, :, 1].t().double()).t()
    actual = torch.ops.aten._weight_int4pack_mm(x.to("xpu"), weight, group, both.to("xpu"))
    assert_snr(actual, expected, enough(dtype))


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("m, n, k", [(1, 48, 256), (4, 7, 33), (20, 64, 128), (0, 8, 16), (2, 8, 0)])
def test_int8_weight(dtype: torch.dtype, m: int, n: int, k: int) -> None:
    weight, scale = torch.randint(-128, 128, (n, k), dtype=torch.int8), (torch.rand(n) / 64).to(dtype)
    x = torch.randn(m, k).to(dtype)
    actual = torch.ops.aten._weight_int8pack_mm(x.to("xpu"), weight.to("xpu"), scale.to("xpu"))
    expected = x.double() @ (weight.double() * scale.double()[:, None]).t()
    assert actual.shape == expected.shape
    if actual.numel():
        assert_snr(actual, expected, enough(dtype))


def assert_nearest(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """The result is the nearest bfloat16, except for rounding the fp32 sum."""
    half = 2.0 ** (expected.frexp().exponent - 9)  # half a unit in the last place
    assert_close(actual, expected, dtype=torch.bfloat16, atol=half, rtol=1e-6, device=None)


@pytest.mark.parametrize("m, n", [(1, 16), (33, 16), (64, 100), (300, 32), (20, 144)])
@pytest.mark.parametrize("k", [256, 257, 1030, 2050])
def test_scales_of_lines_round_nothing_but_the_result(m: int, n: int, k: int) -> None:
    """Products of elements with these would all be rounded in the same direction in bfloat16."""
    weight, scale = torch.full((n, k), 101, dtype=torch.int8), torch.full((n,), 1.0078125).bfloat16()
    weight[:, k // 2 :] = -100
    weight[::2] = torch.randint(90, 120, (k,))
    x = torch.rand(m, k).bfloat16()
    x[::2] = 1
    wide = (weight.double() * scale.double()[:, None]).t()
    place = [t.to("xpu") for t in (x, weight, scale)]
    actual = torch.ops.aten._weight_int8pack_mm(*place).cpu()
    expected = x.double() @ wide
    assert_nearest(actual[::2], expected[::2])
    assert_nearest(actual[:, ::2], expected[:, ::2])
    if k % 16 or n % 16:
        return
    a, b = (x + 0.5).to(torch.float8_e4m3fn), weight.clamp(-1, 112).float().to(torch.float8_e4m3fn)
    for of_a, of_b in [
        (torch.tensor(1.00390625 * 0.999), torch.tensor(1.0059)),
        (torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5),
    ]:
        exact = (a.double() * of_a.double()) @ (b.double().t() * of_b.double())
        place = [t.to("xpu") for t in (a, b, of_a, of_b)]
        actual = torch._scaled_mm(
            place[0], place[1].t(), *place[2:], out_dtype=torch.bfloat16, use_fast_accum=False
        )
        assert_nearest(actual[:, ::2], exact[:, ::2])


ROUNDED = [(5, 6, 130, 130), (33, 40, 96, 96), (0, 8, 64, 64), (2, 3, 2, 2)]


@pytest.mark.parametrize(
    "m, n, k, block, dtype",
    [(*sizes, dtype) for sizes in ROUNDED for dtype in (torch.float32, torch.bfloat16)]
    + [(1, 8, 64, 32, torch.float32), (7, 16, 192, 64, torch.float32)],
)
def test_rounded_rows_by_int4(m: int, n: int, k: int, block: int, dtype: torch.dtype) -> None:
    torch.manual_seed(m)
    ops = torch.ops.aten
    bytes_ = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
    scale = (torch.rand(n, k // block) + 0.1).to(torch.float32 if block == k else torch.bfloat16)
    x = (torch.randn(m, k) + torch.linspace(-3, 3, m)[:, None]).to(dtype)
    x[1:2] = 0
    x[2:3].abs_()
    packed = ops._dyn_quant_pack_4bit_weight(bytes_.to("xpu"), scale.to("xpu"), None, block, k, n)
    actual = ops._dyn_quant_matmul_4bit(x.to("xpu"), packed, block, k, n)
    assert (actual.dtype, actual.shape) == (dtype, (m, n))
    elements = torch.stack([bytes_ & 15, bytes_ >> 4], -1).reshape(n, k).double() - 8
    weight = elements * scale.double().repeat_interleave(block, 1)
    rows = []
    for row in x.float():
        least, greatest = row.min().clamp(max=0), row.max().clamp(min=0)
        steps = 255 / (greatest - least) if greatest > least else torch.tensor(1.0)
        from_least, from_greatest = least * steps, greatest * steps
        zero = -128 - from_least if from_least + from_greatest > 1 else 127 - from_greatest
        zero = zero.clamp(-128, 127).round()
        elements = torch.trunc(row * steps + torch.copysign(torch.tensor(0.5), row)) + zero
        rows.append((elements.clamp(-128, 127) - zero).double() / steps.double())
    if m:
        expected = torch.stack(rows) @ weight.t()
        # a rounding error in the scale may change an element by one step
        assert_snr(actual, expected, min(enough(dtype), 70))
        assert_snr(actual, x.double() @ weight.t(), 30)
        if dtype == torch.float32:  # the CPU rounds more in bf16
            plain = ops._dyn_quant_matmul_4bit(x, packed.cpu(), block, k, n)
            assert_snr(actual, plain.double(), 70)


def test_bad_rounded_rows_by_int4() -> None:
    pack, multiply = (getattr(torch.ops.aten, f"_dyn_quant_{n}") for n in ("pack_4bit_weight", "matmul_4bit"))
    w = torch.zeros(8, 32, dtype=torch.uint8, device="xpu")
    scale, x = torch.ones(8, 2, device="xpu"), torch.ones(3, 64, device="xpu")
    packed = pack(w, scale, None, 32, 64, 8)
    for arguments, message in [
        ((w.int(), scale, None, 32, 64, 8), "uint8"),
        ((w[:4], scale, None, 32, 64, 8), "8 x 32 bytes"),
        ((w, scale[:, :1], None, 32, 64, 8), "8 x 2 floating"),
        ((w, scale, scale[:, 0], 32, 64, 8), "bias"),
        ((w, scale, None, 48, 64, 8), "block_size"),
        ((w, scale, None, 0, 64, 8), "block_size"),
        ((w, scale.cpu(), None, 32, 64, 8), "same device"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            pack(*arguments)
    for arguments, message in [
        ((x[:, :32], packed, 32, 64, 8), "expected input of"),
        ((x[0], packed, 32, 64, 8), "expected input of"),
        ((x.half(), packed, 32, 64, 8), "f32 or bf16"),
        ((x.bfloat16(), packed, 32, 64, 8), "f32 or bf16"),
        ((x, packed[:-1], 32, 64, 8), "packed weights of 272"),
        ((x, packed.half(), 32, 64, 8), "packed weights of 272"),
        ((x, packed.cpu(), 32, 64, 8), "same device"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            multiply(*arguments)


def some_float8(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(rows, columns) * 4).to(dtype)


def expanded(scale: torch.Tensor, rows: int, columns: int, row: int, column: int) -> torch.Tensor:
    wide = scale.double().repeat_interleave(row, 0).repeat_interleave(column, 1)
    return wide[:rows, :columns]


def swizzled(scale: torch.Tensor) -> torch.Tensor:
    """Swizzle to blocks of 128 x 4, each stored as 32 rows of four rows' four columns."""
    rows, columns = -(-scale.size(0) // 128), -(-scale.size(1) // 4)
    padded = torch.zeros(rows * 128, columns * 4, dtype=torch.uint8)
    padded[: scale.size(0), : scale.size(1)] = scale.view(torch.uint8)
    out = torch.empty(rows, columns, 32, 4, 4, dtype=torch.uint8)
    for r in range(rows * 128):
        for c in range(columns * 4):
            out[r // 128, c // 4, r % 32, r % 128 // 32, c % 4] = padded[r, c]
    return out.flatten().view(scale.dtype)


@pytest.mark.parametrize("out", [torch.bfloat16, torch.float32, torch.float16])
@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("m, n, k", [(1, 32, 256), (48, 32, 64)])
def test_scaled_mm(dtype: torch.dtype, out: torch.dtype, m: int, n: int, k: int) -> None:
    torch.manual_seed(1)
    a, b = some_float8(m, k, dtype), some_float8(n, k, dtype)
    bias = torch.randn(n).to(out)
    for scale_a, scale_b in [
        (torch.tensor(0.25), torch.tensor(0.3)),
        (torch.rand(m, 1), torch.rand(1, n)),
        (torch.rand(m, -(-k // 128)), torch.rand(-(-k // 128), n)),
        (torch.rand(m, -(-k // 128)), torch.rand(-(-k // 128), -(-n // 128))),
    ]:
        actual = torch._scaled_mm(
            a.to("xpu"),
            b.to("xpu").t(),
            scale_a.to("xpu"),
            scale_b.to("xpu"),
            bias=bias.to("xpu"),
            out_dtype=out,
        )
        wide_a, wide_b = scale_a, scale_b
        if scale_a.dim() and scale_a.size(1) > 1 or (scale_a.dim() and k > 128):
            wide_a = expanded(scale_a, m, k, 1, 128) if scale_a.size(1) == -(-k // 128) else scale_a
            if scale_b.size(0) == -(-k // 128):
                wide_b = expanded(scale_b, k, n, 128, 1 if scale_b.size(1) == n else 128)
        expected = (a.double() * wide_a) @ (b.double().t() * wide_b) + bias.double()
        assert actual.dtype == out
        assert_snr(actual, expected, enough(out))


@pytest.mark.parametrize("recipe", [TENSOR, ROW, BLOCK32, BLOCK128, SQUARE128])
def test_scaled_mm_v2(recipe: int) -> None:
    torch.manual_seed(recipe)
    m, n, k = 144, 256, 512
    a, b = some_float8(m, k, torch.float8_e4m3fn), some_float8(n, k, torch.float8_e4m3fn)
    swizzle = [1] if recipe == BLOCK32 else [0]
    recipes = (recipe, recipe)
    if recipe == TENSOR:
        scales, wide = [torch.rand(1) for _ in "ab"], None
        wide = [s.double() for s in scales]
    elif recipe == ROW:
        scales = [torch.rand(m, 1), torch.rand(n, 1)]
        wide = [s.double() for s in scales]
    elif recipe == BLOCK32:
        plain = [torch.randint(120, 130, (rows, k // 32), dtype=torch.uint8) for rows in (m, n)]
        plain = [s.view(torch.float8_e8m0fnu) for s in plain]
        scales = [swizzled(s) for s in plain]
        wide = [expanded(s, rows, k, 1, 32) for s, rows in zip(plain, (m, n), strict=True)]
    else:
        recipes = (BLOCK128, recipe)
        first = torch.rand(k // 128, m).t()
        second = torch.rand(k // 128, n).t() if recipe == BLOCK128 else torch.rand(n // 128, 4).t()
        scales = [first, second]
        wide = [
            expanded(first, m, k, 1, 128),
            expanded(second, n, k, 1, 128) if recipe == BLOCK128 else expanded(second.t(), n, k, 128, 128),
        ]
    actual = torch.ops.aten._scaled_mm_v2(
        a.to("xpu"),
        b.to("xpu").t(),
        [scales[0].to("xpu")],
        [recipes[0]],
        swizzle,
        [scales[1].to("xpu")],
        [recipes[1]],
        swizzle,
        None,
        torch.bfloat16,
    )
    expected = (a.double() * wide[0]) @ (b.double() * wide[1]).t()
    assert_snr(actual, expected, 50)


VALUES4 = torch.tensor(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64
)


@pytest.mark.parametrize("k", [144, 176])
def test_what_lies_behind_lines_is_not_multiplied(k: int) -> None:
    """The host's BLAS may multiply padding by zeros, and uninitialized memory may contain NaN."""
    m, n = 136, 80
    a, b = some_float8(m, k, torch.float8_e4m3fn), some_float8(n, k, torch.float8_e4m3fn)
    plain = [torch.full((rows, -(-k // 32)), 127, dtype=torch.uint8) for rows in (m, n)]
    scales = [swizzled(s.view(torch.float8_e8m0fnu)).to("xpu") for s in plain]
    moved = [a.to("xpu"), b.to("xpu").t()]
    for size in range(12, 20):
        several = [torch.full((1 << size,), float("nan"), device="xpu") for _ in range(4)]
        del several
    actual = torch._scaled_mm(*moved, *scales, out_dtype=torch.bfloat16)
    assert_snr(actual, a.double() @ b.double().t(), 50)


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_float4(levels: int) -> None:
    """mxfp4, and nvfp4 with one level of scales and with two."""
    torch.manual_seed(levels)
    m, n, k = 32, 48, 192
    q = [torch.randint(0, 16, (rows, k)) for rows in (m, n)]
    packed = [(x[:, ::2] | x[:, 1::2] << 4).to(torch.uint8).view(torch.float4_e2m1fn_x2) for x in q]
    block = 16 if levels else 32
    if levels:
        plain = [(torch.rand(rows, k // block) * 4 + 0.1).to(torch.float8_e4m3fn) for rows in (m, n)]
    else:
        plain = [torch.randint(120, 130, (rows, k // block), dtype=torch.uint8) for rows in (m, n)]
        plain = [s.view(torch.float8_e8m0fnu) for s in plain]
    whole = [torch.tensor(0.37), torch.tensor(1.9)]
    scales = [[swizzled(s).to("xpu")] for s in plain]
    recipe = [BLOCK16 if levels else BLOCK32]
    if levels == 2:
        scales = [[*s, w.to("xpu")] for s, w in zip(scales, whole, strict=True)]
        recipe.append(TENSOR)
    actual = torch.ops.aten._scaled_mm_v2(
        packed[0].to("xpu"),
        packed[1].to("xpu").t(),
        scales[0],
        recipe,
        [1, 0][: len(recipe)],
        scales[1],
        recipe,
        [1, 0][: len(recipe)],
        None,
        torch.bfloat16,
    )
    numbers = [VALUES4[x] * expanded(s, x.size(0), k, 1, block) for x, s in zip(q, plain, strict=True)]
    if levels == 2:
        numbers = [x * w for x, w in zip(numbers, whole, strict=True)]
    assert_snr(actual, numbers[0] @ numbers[1].t(), 50)
    if levels < 2:
        first = torch._scaled_mm(
            packed[0].to("xpu"), packed[1].to("xpu").t(), scales[0][0], scales[1][0], out_dtype=torch.bfloat16
        )
        assert torch.equal(first.cpu(), actual.cpu())


def test_float8_result_and_out() -> None:
    a, b = (
        (torch.randn(32, 64) / 4).to(torch.float8_e4m3fn),
        (torch.randn(48, 64) / 4).to(torch.float8_e4m3fn),
    )
    one, scale = torch.ones(()), torch.tensor(0.5)
    expected = ((a.double() @ b.double().t()).float() * scale).to(torch.float8_e4m3fn)
    arguments = [x.to("xpu") for x in (a, b, one, one)]
    arguments[1] = arguments[1].t()
    actual = torch._scaled_mm(*arguments, scale_result=scale.to("xpu"))
    assert actual.dtype == torch.float8_e4m3fn
    # fp32 sums differ in their last bit, so results may round to the neighboring value
    assert_close(actual.view(torch.int8), expected.view(torch.int8), atol=1)
    out = torch.empty(0, dtype=torch.bfloat16, device="xpu")
    torch._scaled_mm(*arguments, out_dtype=torch.bfloat16, out=out)
    assert_snr(out, a.double() @ b.double().t(), 50)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"a": torch.zeros(16, 32)}, "fp8 or fp4"),
        ({"a": torch.zeros(16, 24).to(torch.float8_e4m3fn)}, "cannot be multiplied"),
        (
            {
                "a": torch.zeros(16, 24).to(torch.float8_e4m3fn),
                "b": torch.zeros(32, 24).to(torch.float8_e4m3fn).t(),
            },
            "mat1 to be divisible by 16 but got mat1 shape: .16x24.",
        ),
        (
            {"b": torch.zeros(24, 32).to(torch.float8_e4m3fn).t()},
            "mat2 shape .32x24. must be divisible by 16",
        ),
        ({"b": torch.zeros(32, 32).to(torch.float8_e4m3fn)}, "col_major"),
        ({"scale_a": torch.ones(16, 2)}, "scale tensors must be 2D"),
        ({"scale_a": torch.ones(16, 2), "scale_b": torch.ones(1, 32)}, "Invalid scaling configuration"),
        ({"scale_a": torch.ones((), dtype=torch.float64)}, "must be float"),
        ({"bias": torch.zeros(3)}, "Bias must be size 32"),
    ],
)
def test_scaled_mm_refuses(change: dict[str, torch.Tensor], reason: str) -> None:
    given: dict[str, Any] = {
        "a": torch.zeros(16, 32).to(torch.float8_e4m3fn),
        "b": torch.zeros(32, 32).to(torch.float8_e4m3fn).t(),
        "scale_a": torch.ones(()),
        "scale_b": torch.ones(()),
        "bias": None,
    } | change
    a, b, scale_a, scale_b, bias = (
        None if x is None else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="xpu").copy_(x)
        for x in given.values()
    )
    with pytest.raises((RuntimeError, ValueError), match=reason):
        torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"x": torch.zeros(4, 64, dtype=torch.float64)}, "f32/f16/bf16"),
        ({"w": torch.zeros(16, 7, dtype=torch.int32)}, "8 columns"),
        ({"group": 0}, "positive"),
        ({"scale": torch.zeros(3, 16)}, "expected qScale"),
        ({"zero": torch.zeros(2, 16)}, "expected qZeros to be int8"),
        ({"zero": torch.zeros(2, 5, dtype=torch.int8)}, "expected qZeros of"),
    ],
)
def test_int4_refuses(change: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {
        "x": torch.zeros(4, 64),
        "w": torch.zeros(16, 8, dtype=torch.int32),
        "group": 32,
        "scale": torch.zeros(2, 16),
        "zero": torch.zeros(2, 16, dtype=torch.int8),
    } | change
    moved = (v.to("xpu") if isinstance(v, torch.Tensor) else v for v in given.values())
    with pytest.raises(RuntimeError, match=reason):
        torch.ops.aten._weight_int4pack_mm_with_scales_and_zeros(*moved)


@pytest.mark.parametrize("mx", [False, True])
@pytest.mark.parametrize("dims_a, dims_b", [(2, 3), (3, 3), (3, 2), (2, 2)])
def test_scaled_grouped_mm(dims_a: int, dims_b: int, mx: bool) -> None:
    """Groups of different lengths, one of them empty, against one product per group."""
    torch.manual_seed(0)
    ends, m, n, k, groups = [32, 32, 128], 128, 64, 128, 3
    if dims_a == dims_b == 3:
        ends = []
    a = some_float8(m if dims_a == 2 else groups * m, k, torch.float8_e4m3fn)
    b = some_float8(n * (groups if dims_b == 3 else 2), k, torch.float8_e4m3fn)  # rows are columns of B
    n = n if dims_b == 3 else 128
    first, second = a.view(-1, m, k) if dims_a == 3 else a, b.view(-1, n, k) if dims_b == 3 else b
    along_k = dims_a == dims_b == 2
    products, scales_a, scales_b, begin = [], [], [], 0
    for g in range(groups):
        end = ends[g] if ends else 0
        rows = slice(begin, end)
        x = first[g] if dims_a == 3 else first[:, rows] if along_k else first[rows]
        y = second[g] if dims_b == 3 else second[:, rows] if along_k else second[rows]
        begin = end
        wide = []
        for part, scales in ((x, scales_a), (y, scales_b)):
            if mx:
                plain = torch.randint(120, 130, (part.size(0), -(-part.size(1) // 32)), dtype=torch.uint8)
                plain = plain.view(torch.float8_e8m0fnu)
                scales.append(swizzled(plain))
                wide.append(part.double() * expanded(plain, *part.shape, 1, 32))
            else:
                scales.append(torch.rand(part.size(0)))
                wide.append(part.double() * scales[-1].double()[:, None])
        products.append(wide[0] @ wide[1].t())
    joined = []
    for scales, dims in ((scales_a, dims_a), (scales_b, dims_b)):
        if dims == 3:
            joined.append(
                torch.stack([s.view(torch.uint8) for s in scales]).view(scales[0].dtype)
                if mx
                else torch.stack(scales)
            )
        else:
            whole = (
                torch.cat([s.view(torch.uint8) for s in scales]).view(scales[0].dtype)
                if mx
                else torch.cat(scales)
            )
            joined.append(whole.view(-1, 4) if mx else whole)
    offs = torch.tensor(ends, dtype=torch.int32, device="xpu") if ends else None
    actual = torch._scaled_grouped_mm(
        first.to("xpu"),
        second.to("xpu").transpose(-1, -2),
        *(s.to("xpu") for s in joined),
        offs,
        out_dtype=torch.bfloat16,
    )
    expected = torch.stack(products) if dims_a == dims_b else torch.cat(products, 0 if dims_a == 2 else 1)
    assert actual.shape == expected.shape
    assert_snr(actual, expected, 50)
