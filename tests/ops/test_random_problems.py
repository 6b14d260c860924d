"""Products, convolutions, attention and RNNs of random shapes, dtypes and strides, against float64.

A normal run checks a few of each family; `OPENXPU_TEST_PROBLEMS=5000` checks that many, different ones each time, and
reduces failures to small problems.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import torch
import torch.nn.functional as F
from comparing import assert_close, assert_equal, tolerance
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from .test_attention import DTYPES as OF_ATTENTION
from .test_attention import reference as attention
from .test_fused import BINARY, UNARY, fused
from .test_rnn import KINDS, compare, states

GIVEN = os.environ.get("OPENXPU_TEST_PROBLEMS")
problems = settings(
    max_examples=int(GIVEN or 12),
    derandomize=GIVEN is None,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
Draw = Callable[[st.SearchStrategy[Any]], Any]

HAS_FP64 = torch.xpu.get_device_properties().has_fp64
FLOATING = [torch.float32, torch.bfloat16, torch.float16, *[torch.float64] * HAS_FP64]
COMPLEX = [torch.complex64, *[torch.complex128] * HAS_FP64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
SUMS = {  # unit roundoff of the accumulator
    torch.float64: 2.0**-53,
    torch.complex128: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.complex64: 2.0**-24,
    torch.bfloat16: 2.0**-24,
    torch.float16: 2.0**-24,
}
SIZES = st.one_of(
    st.integers(1, 9),
    st.integers(1, 80),
    st.sampled_from([0, 16, 32, 63, 64, 65, 96, 127, 128, 129, 200, 257]),
)
LONG = st.one_of(SIZES, st.sampled_from([500, 1024, 1500, 2049]))


class Operand:
    """Return a tensor on xpu with a random layout, and the same values on the CPU in a wide dtype."""

    def __init__(self, draw: Draw, shape: Sequence[int], dtype: torch.dtype, spread: bool = False) -> None:
        order = list(range(len(shape)))
        if draw(st.booleans()):
            order = draw(st.permutations(order))  # order of the dimensions in memory, outermost first
        step, gap, offset = (
            draw(st.sampled_from(few)) for few in ([1] * 7 + [2, 3], [0, 0, 0, 1, 8], [0, 0, 1, 8])
        )
        strides, distance = [0] * len(shape), step
        for place, dim in enumerate(reversed(order)):
            strides[dim] = distance
            distance = distance * max(shape[dim], 1) + (gap if place == 0 else 0)
        if spread and shape and draw(st.integers(0, 9)) == 0:
            strides[draw(st.sampled_from(range(len(shape))))] = 0
        seed = draw(st.integers(0, 2**31 - 1))
        generator = torch.Generator().manual_seed(seed)
        if dtype.is_floating_point or dtype.is_complex:
            memory = torch.randn(offset + distance, generator=generator, dtype=WIDE.get(dtype)).to(dtype)
        else:
            memory = torch.randint(0, 100, (offset + distance,), generator=generator).to(dtype)
        self.dtype = dtype
        self.given = torch.as_strided(memory, shape, strides, offset)
        self.wide = self.given.to(WIDE.get(dtype, torch.int64)).contiguous()
        self.here = torch.as_strided(memory.to("xpu"), shape, strides, offset)
        self.words = f"{dtype} {tuple(shape)} strides {tuple(strides)} from {offset}"

    def conjugated(self) -> Operand:
        self.wide, self.here, self.words = self.wide.conj(), self.here.conj(), f"conj {self.words}"
        return self

    def __repr__(self) -> str:
        return self.words


WIDE = {dtype: torch.float64 for dtype in FLOATING} | {dtype: torch.complex128 for dtype in COMPLEX}


def agree(got: Tensor, want: Tensor, parts: Tensor, terms: int, about: object, adds: int = 1) -> None:
    """Compare a sum of `terms` products with float64; `parts` is the sum of the terms' magnitudes.

    Values are rounded to their dtype once, and `adds` times before if a library adds to its own result.
    """
    if got.dtype in INTEGERS:
        assert_equal(got, want.to(got.dtype), what=str(about))
        return
    kind = torch.finfo(got.dtype)
    rounding, least = kind.eps / 2, kind.smallest_normal * kind.eps
    # rounding errors of many terms mostly cancel, except for equal terms, as with strides of 0
    steps = max(4 * terms**0.5, terms / 4) + 16
    between = want.abs() + parts / max(terms, 1) ** 0.5
    bound = SUMS[got.dtype] * steps * parts + (2 + adds) * rounding * between + 16 * least
    assert_close(got, want, dtype=got.dtype, atol=bound, what=str(about))


def sums(wide: Tensor) -> Tensor:
    return wide.abs() if wide.dtype != torch.int64 else wide


# --- products ---

PRODUCTS = ["mm", "bmm", "linear", "addmm", "baddbmm", "matmul", "mv", "addmv", "dot", "addbmm", "einsum"]


@problems
@given(st.data())
def test_products(data: Any) -> None:
    draw = data.draw
    name, dtype = draw(st.sampled_from(PRODUCTS)), draw(st.sampled_from(FLOATING * 2 + COMPLEX + INTEGERS))
    m, n, k, batch = draw(SIZES), draw(SIZES), draw(LONG), draw(st.integers(0, 5))

    def operand(*shape: int, spread: bool = True) -> Operand:
        t = Operand(draw, shape, dtype, spread)
        return t.conjugated() if dtype.is_complex and draw(st.booleans()) else t

    lead = (batch,) if name in ("bmm", "baddbmm", "addbmm", "einsum") else ()
    if name == "matmul":
        lead = draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3)]))
    a = (
        operand(*lead, m, k)
        if name not in ("mv", "addmv", "dot")
        else operand(*((m, k) if name != "dot" else (k,)))
    )
    if name == "linear":
        b = operand(n, k)
    elif name in ("mv", "addmv", "dot"):
        b = operand(k)
    else:
        b = operand(*(draw(st.sampled_from([(), (1,), (3,), (2, 3)])) if name == "matmul" else lead), k, n)
    scalars = {"alpha": draw(st.sampled_from([1, 2, -3])), "beta": draw(st.sampled_from([1, 0, 2]))}

    if name in ("addmm", "baddbmm", "addmv", "addbmm"):
        result = {"addmm": (m, n), "baddbmm": (batch, m, n), "addmv": (m,), "addbmm": (m, n)}[name]
        c = operand(*(result if draw(st.booleans()) else result[-1:]))
        got = getattr(torch, name)(c.here, a.here, b.here, **scalars)
        product, parts = a.wide @ b.wide, sums(a.wide) @ sums(b.wide)
        if name == "addbmm":
            product, parts, k = product.sum(0), parts.sum(0), k * batch
        want = scalars["alpha"] * product + (scalars["beta"] * c.wide if scalars["beta"] else 0)
        parts = abs(scalars["alpha"]) * parts + scalars["beta"] * sums(c.wide)
        agree(got, want, parts, k, (name, c, a, b, scalars), batch if name == "addbmm" else 1)
        return
    function: Callable[..., Tensor]
    if name == "einsum":
        function = lambda x, y: torch.einsum("bik,bkj->jbi", x, y)  # noqa: E731
    elif name == "linear":
        function = F.linear
    else:
        function = getattr(torch, name)
    agree(
        function(a.here, b.here),
        function(a.wide, b.wide),
        function(sums(a.wide), sums(b.wide)),
        k,
        (name, a, b),
    )


@problems
@given(st.data())
def test_linear_layers_and_what_follows(data: Any) -> None:
    """With every epilogue, through the operators of frozen models."""
    draw = data.draw
    dtype = draw(st.sampled_from(FLOATING))
    m, n, k = draw(SIZES), draw(SIZES), draw(LONG)
    x, w = Operand(draw, (m, k), dtype), Operand(draw, (n, k), dtype)
    bias = Operand(draw, (n,), dtype) if draw(st.booleans()) else None
    if bias is None:
        want, parts = x.wide @ w.wide.T, x.wide.abs() @ w.wide.abs().T
    else:
        want, parts = (
            F.linear(x.wide, w.wide, bias.wide),
            F.linear(x.wide.abs(), w.wide.abs(), bias.wide.abs()),
        )
    b = None if bias is None else bias.here
    if draw(st.booleans()):
        name = draw(st.sampled_from(["add", "sub", "mul"]))
        other = Operand(draw, (m, n), dtype)
        got = fused._linear_pointwise(x.here, other.here, w.here, b, name)
        want = BINARY[name](want, other.wide)
        parts = parts * other.wide.abs() if name == "mul" else parts + other.wide.abs()
        agree(got, want, parts, k, (name, x, w, bias, other))
        return
    unary = draw(st.sampled_from(list(UNARY)))
    scalars, function = UNARY[unary]
    got = fused._linear_pointwise(x.here, w.here, b, unary[0], scalars, unary[1])
    agree(got, function(want), 1.2 * parts + 1, k, (unary, x, w, bias))


# --- convolutions ---


@problems
@given(st.data())
def test_convolutions(data: Any) -> None:
    """Check the forward pass, and the requested gradients."""
    draw = data.draw
    dtype, dims = draw(st.sampled_from(FLOATING)), draw(st.sampled_from([1, 2, 2, 2, 3]))
    transposed = draw(st.integers(0, 3)) == 0
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
    channels = st.sampled_from([1, 2, 3, 4, 5, 8, 16, 20] if groups == 1 else [1, 2, 4, 5])
    cin, cout, images = groups * draw(channels), groups * draw(channels), draw(st.integers(1, 3))
    each = st.lists(st.integers(1, 3), min_size=dims, max_size=dims)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    padding = [draw(st.integers(0, 3)) for _ in range(dims)]
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    extent = [
        draw(st.integers(1 if transposed else max(1, size - 2 * pad), 14 if dims < 3 else 6 + size))
        for size, pad in zip(least, padding, strict=True)
    ]
    more = (
        [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
        if transposed
        else [0] * dims
    )
    if transposed:  # results have at least one element
        padding = [min(p, (size - 1) // 2) for p, size in zip(padding, least, strict=True)]
    x = Operand(draw, (images, cin, *extent), dtype)
    w = Operand(draw, ((cin, cout // groups) if transposed else (cout, cin // groups)) + tuple(kernel), dtype)
    bias = Operand(draw, (cout,), dtype) if draw(st.booleans()) else None
    how = (stride, padding, dilation, transposed, more, groups)
    about = (x, w, bias, how)

    def convolve(a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        return torch.ops.aten.convolution(a, b, c, *how)

    none = None if bias is None else bias.wide
    want = convolve(x.wide, w.wide, none)
    parts = convolve(x.wide.abs(), w.wide.abs(), None if none is None else none.abs())
    taps = cin // groups
    for size in kernel:
        taps *= size
    agree(convolve(x.here, w.here, None if bias is None else bias.here), want, parts, taps, about)

    dy = Operand(draw, want.shape, dtype)
    mask = draw(st.lists(st.booleans(), min_size=3, max_size=3))
    mask[2] = mask[2] and bias is not None
    sizes = [cout] if mask[2] else None

    def gradients(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor | None]:
        return torch.ops.aten.convolution_backward(a, b, c, sizes, *how, mask)

    got = gradients(dy.here, x.here, w.here)
    want_all = gradients(dy.wide, x.wide, w.wide)
    parts_all = gradients(dy.wide.abs(), x.wide.abs(), w.wide.abs())
    pixels = dy.wide.numel() // cout
    terms = (taps * cout // cin, pixels, pixels)
    for name, one, other, part, count in zip("xwb", got, want_all, parts_all, terms, strict=True):
        if other is not None:
            assert one is not None and part is not None
            agree(one, other, part, max(count, 1), (name, dy, mask, *about))


# --- attention ---


@problems
@given(st.data())
def test_attention(data: Any) -> None:
    """Check the forward pass and all gradients, including a mask's."""
    draw = data.draw
    dtype = draw(st.sampled_from(OF_ATTENTION))
    heads = draw(st.integers(1, 3))
    shared = draw(st.sampled_from([1, 1, 2, 4]))
    batch, queries = draw(st.integers(1, 3)), draw(st.one_of(st.integers(1, 9), st.integers(1, 140)))
    keys = queries if draw(st.booleans()) else draw(st.one_of(st.integers(1, 9), st.integers(1, 140)))
    depth = draw(st.sampled_from([1, 3, 8, 16, 24, 32, 40, 64, 65, 80, 96, 128, 200]))
    values = depth if draw(st.integers(0, 3)) else draw(st.sampled_from([1, 5, 8, 64, 72]))
    q = Operand(draw, (batch, heads * shared, queries, depth), dtype)
    k = Operand(draw, (batch, heads, keys, depth), dtype)
    v = Operand(draw, (batch, heads, keys, values), dtype)
    causal, scale = draw(st.booleans()), draw(st.sampled_from([None, None, 0.07]))
    mask, bias, wide_bias = None, None, None
    if not causal and draw(st.booleans()):
        full = (batch, heads * shared, queries, keys)
        spread = [draw(st.booleans()) for _ in full]
        shape = tuple(1 if one else size for one, size in zip(spread, full, strict=True))
        shape = shape[draw(st.integers(0, 2)) :]
        if draw(st.booleans()):
            mask = Operand(draw, shape, torch.float32).wide > -0.5
            mask[..., 0] = True  # at least one element of each row is not masked
        else:
            bias = Operand(draw, shape, dtype)
            wide_bias = bias.wide.clone().requires_grad_()
    about = (q, k, v, "causal" if causal else mask if mask is None else mask.shape, bias, scale)

    leaves = [t.here.detach().requires_grad_() for t in (q, k, v)]
    wants = [t.wide.clone().requires_grad_() for t in (q, k, v)]
    of_bias = None if bias is None else bias.here.detach().requires_grad_()
    given_mask = of_bias if mask is None else mask.to("xpu")
    got = F.scaled_dot_product_attention(
        *leaves, attn_mask=given_mask, is_causal=causal, scale=scale, enable_gqa=shared > 1
    )
    want = attention(*wants, wide_bias if mask is None else mask, causal, scale)
    largest = float(v.wide.abs().max())
    assert_close(got, want, dtype=dtype, atol=tolerance(dtype) * largest, what=str(about))
    dy = Operand(draw, want.shape, dtype)
    got.backward(dy.here)
    want.backward(dy.wide)
    if of_bias is not None:
        leaves.append(of_bias)
        wants.append(wide_bias)
    for one, other, name in zip(leaves, wants, ["q", "k", "v", "bias"], strict=False):
        # the rounding errors of terms add up as a random walk over the summed rows
        walk = (max(1, want.numel() // values * depth // other.numel())) ** 0.5
        floor = max(walk * largest / 2, 1)
        assert_close(
            one.grad,
            other.grad,
            dtype=dtype,
            times=2,
            relative_to="largest",
            floor=floor,
            what=f"{name}: {(dy, *about)}",
        )


# --- recurrent nets ---


@problems
@given(st.data())
def test_recurrent_nets(data: Any) -> None:
    draw = data.draw
    kind, dtype = (
        draw(st.sampled_from(list(KINDS))),
        draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16])),
    )
    features, width, rows, steps = (draw(st.integers(1, most)) for most in (24, 48, 9, 6))
    options = {
        "num_layers": draw(st.integers(1, 2)),
        "bidirectional": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
    }
    if kind == "lstm" and width > 1 and draw(st.integers(0, 3)) == 0:
        options["proj_size"] = draw(st.integers(1, width - 1))
    torch.manual_seed(draw(st.integers(0, 2**31 - 1)))
    model = KINDS[kind](features, width, **options)
    x = torch.randn(rows, steps, features) if options["batch_first"] else torch.randn(steps, rows, features)
    lengths = None
    if draw(st.booleans()):
        lengths = [draw(st.integers(1, steps)) for _ in range(rows)]
        lengths[draw(st.integers(0, rows - 1))] = steps
    compare(model, x, dtype, states(model, rows) if draw(st.booleans()) else None, lengths)
