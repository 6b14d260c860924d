"""Copies between layouts and dtypes, and fills, on xpu, bit for bit against the CPU."""

from __future__ import annotations

import functools
import itertools
import math
import warnings

import pytest
import torch
from comparing import assert_equal

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *UNSIGNED, *FLOATING, *COMPLEX]
EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    127.0,
    128.0,
    255.0,
    300.0,
    -129.0,
    65504.0,
    65519.0,
    65520.0,
    70000.0,
    6e-8,
    2.9e-8,
    3e-8,
    1e-45,
    3.3895e38,
    float("inf"),
    -float("inf"),
    float("nan"),
]

# (shape, order of dimensions): contiguous, transposes, channels last, long and short rows, one element, none
LAYOUTS = [
    ((1000,), (0,)),
    ((17, 33), (1, 0)),
    ((100, 130), (1, 0)),
    ((3, 40, 50), (2, 1, 0)),
    ((3, 40, 50), (0, 2, 1)),
    ((5, 7, 3), (2, 0, 1)),
    ((2, 3, 40, 20), (0, 2, 3, 1)),
    ((2, 20, 6, 8), (0, 2, 1, 3)),
    ((2, 3, 4, 5, 6, 2, 3), (6, 4, 2, 0, 1, 3, 5)),
    ((64, 1, 64), (2, 1, 0)),
    ((16, 17), (1, 0)),
    ((2, 1100, 40), (0, 2, 1)),
    ((300, 600), (1, 0)),
    ((50, 2), (1, 0)),
    ((3, 50), (1, 0)),
    ((2, 4, 33), (0, 2, 1)),
    ((5, 33, 4), (0, 2, 1)),
    ((3, 2, 50, 3), (1, 0, 3, 2)),
    ((50, 7), (1, 0)),
    ((6, 50), (1, 0)),
    ((50, 9), (1, 0)),
    ((7, 50, 12, 6), (0, 2, 1, 3)),
    ((), ()),
    ((0, 4), (1, 0)),
]


def sample(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    values = torch.randn(shape, generator=generator, dtype=wide) * 50
    return (
        values.to(dtype)
        if dtype.is_complex or dtype.is_floating_point
        else values.abs().to(torch.int64).to(dtype)
    )


same = functools.partial(assert_equal, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(dtype: torch.dtype) -> None:
    for shape, order in LAYOUTS:
        x = sample(dtype, shape)
        on_xpu = x.to("xpu")
        same(on_xpu.permute(order).contiguous(), x.permute(order).contiguous())
        out = torch.empty(shape, dtype=dtype, device="xpu")
        out.permute(order).copy_(on_xpu.permute(order))
        same(out, x)
    x = sample(dtype, (40, 41))
    on_xpu = x.to("xpu")
    for view in (
        lambda t: t[::2, 1:],
        lambda t: t[:, 3],
        lambda t: t[5:, ::3].t(),
        lambda t: t[:1].expand(7, 41),
        *(lambda t, step=step: t[:, 2::step] for step in (2, 3, 4, 5)),
        *(lambda t, step=step: t.flatten()[::step] for step in (2, 3, 4, 41)),
        *(lambda t, length=length: t[:, :length] for length in (2, 3, 8, 40)),
    ):
        same(view(on_xpu).contiguous(), view(x).contiguous())
        out, expected = torch.zeros_like(on_xpu), torch.zeros_like(x)
        if view(x).stride(0):
            view(out).copy_(view(on_xpu))
            view(expected).copy_(view(x))
            same(out, expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.complex128], ids=str)
def test_long_rows_are_shared_out(dtype: torch.dtype) -> None:
    """Several threads copy rows of a few hundred bytes, and may start within a row; few and many rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for shape in ((2, 3, 7, 50001), (40, 30, 9, 301), (5, 2, 11, 131), (1, 2, 3, 128)):
            x = sample(dtype, shape)
            on_xpu = x.to("xpu")
            for view in (
                lambda t: t[..., 1:-2],
                lambda t: t[:, ::2, 1:, 5:],
                lambda t: t.transpose(0, 1),
                lambda t: t.permute(2, 0, 1, 3)[..., : shape[-1] // 2],
            ):
                same(view(on_xpu).contiguous(), view(x).contiguous())
                out, expected = torch.zeros_like(on_xpu), torch.zeros_like(x)
                view(out).copy_(view(on_xpu))
                view(expected).copy_(view(x))
                same(out, expected)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_casts(source: torch.dtype) -> None:
    x = sample(source, (5, 33, 20))
    on_xpu = x.to("xpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex to real
        for target in DTYPES:
            same(on_xpu.to(target), x.to(target))
            same(on_xpu.transpose(1, 2).to(target), x.transpose(1, 2).to(target))


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FLOATING, FLOATING)), ids=str)
def test_rounding_of_edges(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.tensor(EDGES, dtype=torch.float64).to(source)
    same(x.to("xpu").to(target), x.to(target))


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.bfloat16])
def test_the_upper_half_of_uint64(source: torch.dtype) -> None:
    x = torch.tensor([2.0**63, 2.0**63 + 2.0**40, 1.5 * 2.0**63, 1.75 * 2.0**63, 2.0**62, -1.0]).to(source)
    assert torch.equal(x.to("xpu").to(torch.uint64).cpu(), x.to(torch.uint64))


def test_half_bits_survive() -> None:
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        x = bits.view(dtype)
        finite = ~x.isnan()
        on_xpu = x.to("xpu")
        assert torch.equal(on_xpu.clone().cpu().view(torch.int16), bits)
        back = on_xpu.to(torch.float32).to(dtype).cpu()
        assert torch.equal(back.view(torch.int16)[finite], bits[finite])
        assert back[~finite].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fill(dtype: torch.dtype) -> None:
    values = [0, 1, 7, True]
    if dtype.is_floating_point or dtype.is_complex:
        largest = torch.finfo(dtype).max  # PyTorch rejects larger values
        values += [v for v in EDGES if not abs(v) > largest or math.isinf(v)] + [-3.25]
    elif dtype not in (torch.bool, *UNSIGNED):
        values += [-1, 3.7]
    if dtype.is_complex:
        values.append(1.5 - 2j)
    for value in values:
        expected = torch.zeros(37, 3, dtype=dtype)
        for place in (
            lambda t: t,
            lambda t: t[:, 1],
            lambda t: t[::2],
            lambda t: t[0],
            lambda t: t.view(-1)[5:-7],
            lambda t: t.view(-1)[3:4],
            lambda t: t.view(-1)[9:24],
        ):
            out, wanted = torch.zeros_like(expected).to("xpu"), expected.clone()
            place(out).fill_(value)
            place(wanted).fill_(value)
            same(out, wanted)
    same(torch.ones(1000, dtype=dtype, device="xpu").zero_(), torch.zeros(1000, dtype=dtype))


def test_conjugate_and_negative_views() -> None:
    x = sample(torch.complex64, (20, 30))
    on_xpu = x.to("xpu")
    same(on_xpu.conj().t().contiguous().resolve_conj(), x.conj().t().contiguous().resolve_conj())
    same(on_xpu.conj().imag.clone(), x.conj().imag.clone())
    out, expected = torch.zeros_like(on_xpu), torch.zeros_like(x)
    out.conj().copy_(on_xpu)
    expected.conj().copy_(x)
    same(out, expected)
