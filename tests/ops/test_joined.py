"""Fused linear layers of few rows (openxpu::fused_linear) against float64, in one launch if the device has a kernel."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_snr
from inner_run import on_cpus, passes
from profiled import profiled
from torch import Tensor

from .test_quantized import SINGLES, enough

# The tiers of GPUs, as their kernels run on a processor; here it is what the device has.
TIERS = ("ptx", "fma")
TIER = os.environ.get("OPENXPU_MATRIX")


class Weights:
    """Return matrices of `sizes` rows of k, as stored, and their values."""

    def __init__(self, kind: str, sizes: list[int], k: int, group: int, dtype: torch.dtype) -> None:
        self.group = group
        self.weight: list[Tensor] = []
        self.scale: list[Tensor] = []
        self.zero: list[Tensor] = []
        self.numbers: list[Tensor] = []
        for n in sizes:
            if kind == "int4":
                q, groups = torch.randint(0, 16, (n, k)), k // group
                packed = (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8)
                self.weight.append(packed.view(torch.int32).to("xpu"))
                self.scale.append((torch.rand(groups, n) / 8 + 0.01).to(dtype))
                self.zero.append(torch.randint(0, 16, (groups, n), dtype=torch.int8))
                each = torch.arange(k) // group
                zero, scale = self.zero[-1][each].t().double(), self.scale[-1][each].t().double()
                self.numbers.append((q - zero) * scale)
            elif kind == "int8":
                self.weight.append(torch.randint(-128, 128, (n, k), dtype=torch.int8).to("xpu"))
                self.scale.append((torch.rand(n) / 64 + 0.01).to(dtype))
                self.numbers.append(self.weight[-1].cpu().double() * self.scale[-1].double()[:, None])
            elif kind == "float8":
                numbers = torch.randn(n, k).to(torch.float8_e4m3fn)
                self.weight.append(numbers.to("xpu"))
                self.scale.append(torch.rand(n) / 8 + 0.01)
                self.numbers.append(numbers.double() * self.scale[-1].double()[:, None])
            else:
                self.weight.append(torch.randn(n, k).to(dtype).to("xpu"))
                self.numbers.append(self.weight[-1].cpu().double())

    def operands(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        return self.weight, [s.to("xpu") for s in self.scale], [z.to("xpu") for z in self.zero]


def is_one_launch(kind: str, m: int, dtype: torch.dtype) -> bool:
    if TIER == "ptx":
        return kind != "numbers" and dtype != torch.float32
    return TIER == "fma" and m < (2 if kind == "numbers" else 5)


def compare(
    kind: str,
    m: int,
    sizes: list[int],
    k: int,
    dtype: torch.dtype,
    *,
    gated: bool = False,
    normed: bool = False,
    biased: bool = False,
    added: bool = False,
    activation: str = "none",
    plus_one: bool = False,
) -> None:
    torch.manual_seed(m + k)
    weights = Weights(kind, sizes, k, 128, dtype)
    x = (torch.randn(m, k) * 3).to(dtype)
    norm = torch.randn(k).to(dtype) if normed else None
    bias = [torch.randn(n).to(dtype) * 9 for n in sizes] if biased else []
    n = sum(sizes) // (2 if gated else 1)
    residual = torch.randn(m, n).to(dtype) * 9 if added else None

    a = x.double()
    if norm is not None:
        a = F.rms_norm(a, (k,), norm.double() + plus_one, 1e-5)
    parts = [a @ w.t() for w in weights.numbers]
    if biased:
        parts = [p + b.double() for p, b in zip(parts, bias, strict=True)]
    act = {
        "none": lambda t: t,
        "silu": F.silu,
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"),
    }[activation]
    if gated:
        expected = act(parts[0]) * parts[1]
    else:
        expected = torch.cat(parts, 1)
        expected = act(expected + residual.double() if residual is not None else expected)

    weight, scale, zero = weights.operands()
    given = (
        [b.to("xpu") for b in bias],
        128,
        gated,
        activation,
        None if norm is None else norm.to("xpu"),
        1e-5,
        None if residual is None else residual.to("xpu"),
        plus_one,
    )
    on_device = x.to("xpu")

    def call() -> Tensor:
        return torch.ops.openxpu.fused_linear(on_device, weight, scale, zero, *given)

    call()
    found, names = profiled(call)
    assert found.shape == expected.shape
    assert found.dtype == dtype
    is_one = is_one_launch(kind, m, dtype) and not (normed and TIER == "ptx" and dtype == torch.float16)
    # the norm or the product is rounded to the dtype in between
    rounded_more = not is_one or (normed and TIER == "ptx")
    assert_snr(found, expected, enough(dtype) - (8 if rounded_more else 0))
    if is_one:
        assert len(names) == 1, names


KINDS = ("int4", "int8", "float8", "numbers")


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 13])
def test_beside_each_other(m: int, kind: str, dtype: torch.dtype) -> None:
    compare(kind, m, [48, 16, 16], 256, dtype)
    if dtype == torch.bfloat16:
        compare(kind, m, [7, 33], 384, dtype, biased=True)


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 3])
def test_gated(m: int, kind: str, dtype: torch.dtype) -> None:
    compare(kind, m, [56, 56], 256, dtype, gated=True, activation="silu")
    if dtype == torch.float16:
        compare(kind, m, [9, 9], 1024, dtype, gated=True, activation="relu")


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 8])
def test_normed_and_added(m: int, kind: str, dtype: torch.dtype) -> None:
    compare(kind, m, [40, 24, 8], 512, dtype, normed=True)
    if dtype != torch.bfloat16:
        return
    compare(kind, m, [50], 128, dtype, added=True)
    compare(kind, m, [24], 2048, dtype, normed=True, added=True, biased=True, activation="relu")
    compare(kind, m, [24, 24], 512, dtype, normed=True, gated=True, activation="silu")


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 8])
def test_normed_by_one_more(m: int, kind: str, dtype: torch.dtype) -> None:
    """Norms and gates as in Gemma."""
    compare(kind, m, [40, 24, 8], 512, dtype, normed=True, plus_one=True)
    for activation in ("gelu", "gelu_tanh"):
        compare(kind, m, [24, 24], 512, dtype, normed=True, plus_one=True, gated=True, activation=activation)


def test_large_numbers_are_normed() -> None:
    """The input times the norm's weight would overflow float16."""
    w, norm = torch.randn(32, 128).half(), torch.full((128,), 9.0).half()
    x = torch.full((1, 128), 3e4).half()
    expected = F.rms_norm(x.double(), (128,), norm.double(), 1e-6) @ w.double().t()
    given = ([w.to("xpu")], [], [], [], 0, False, "none", norm.to("xpu"), 1e-6, None)
    assert_snr(torch.ops.openxpu.fused_linear(x.to("xpu"), *given), expected, 50)


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("m, n, k", [(1, 48, 64), (20, 33, 128), (70, 64, 80)])
def test_int8_linear(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    """int8_linear: the int8 product is rounded once."""
    torch.manual_seed(m)
    a, w = (torch.randint(-128, 128, (rows, k), dtype=torch.int8) for rows in (m, n))
    rows, columns = torch.rand(m, 1) + 0.1, (torch.rand(n) / 64).to(dtype)
    bias = torch.randn(n).to(dtype) * 9
    product = a.double() @ w.double().t() * rows.double() * columns.double()
    given = [t.to("xpu") for t in (a, w, rows, columns)]
    call = torch.ops.openxpu.int8_linear
    assert_snr(call(*given, None, dtype), product, enough(dtype))
    assert_snr(call(*given, bias.to("xpu"), dtype), product + bias.double(), enough(dtype))
    with pytest.raises(RuntimeError, match="don't match a weight"):
        call(given[0], given[1][:, 1:], *given[2:], None, dtype)
    with pytest.raises(RuntimeError, match="expected a bias of"):
        call(*given, torch.zeros(n + 1, device="xpu", dtype=dtype), dtype)
    with pytest.raises(RuntimeError, match="scales of"):
        call(*given[:3], given[3][1:], None, dtype)


class Cached:
    """Return queries, keys and values of one token per row, after RoPE."""

    def __init__(
        self, kind: str, m: int, k: int, depth: int, dtype: torch.dtype, dim: int, turned: bool
    ) -> None:
        torch.manual_seed(m + k + depth)
        self.heads, self.kv_heads, self.depth, self.dim = 5, 2, depth, dim
        self.sizes = [h * depth for h in (self.heads, self.kv_heads, self.kv_heads)]
        self.weights = Weights(kind, self.sizes, k, 128, dtype)
        self.x = torch.randn(m, k).to(dtype)
        self.norm = torch.randn(k).to(dtype)
        self.bias = [torch.randn(n).to(dtype) for n in self.sizes]
        self.head_norms = [torch.randn(depth).to(dtype) for _ in range(2)]
        self.angles = (
            [torch.randn(m if dim == 1 else 1, depth).to(dtype) for _ in range(2)] if turned else None
        )
        shape = [m, self.kv_heads, 7, depth] if dim == 2 else [m, 7, self.kv_heads, depth]
        self.plus_one = False
        self.caches = [torch.randn(shape).to(dtype) for _ in range(2)]

    def expected(
        self, position: int, sign: float, normed: bool, biased: bool, heads: bool = False
    ) -> list[Tensor]:
        m = self.x.size(0)
        a = (
            F.rms_norm(self.x.double(), self.x.shape[1:], self.norm.double() + self.plus_one, 1e-5)
            if normed
            else self.x.double()
        )
        parts = [a @ w.t() for w in self.weights.numbers]
        if biased:
            parts = [p + b.double() for p, b in zip(parts, self.bias, strict=True)]
        q, k, v = (p.view(m, -1, self.depth) for p in parts)
        if heads:
            q, k = (
                F.rms_norm(t, (self.depth,), n.double() + self.plus_one, 1e-6)
                for t, n in zip((q, k), self.head_norms, strict=True)
            )
        if self.angles:
            cos, sin = (t.double()[:, None] for t in self.angles)
            half = self.depth // 2
            q, k = (t * cos + torch.cat([sign * t[..., half:], t[..., :half]], -1) * sin for t in (q, k))
        caches = [c.double() for c in self.caches]
        for cache, new in zip(caches, (k, v), strict=True):
            cache.select(self.dim, position)[:] = new
        return [q.reshape(m, -1), *caches]

    def call(
        self, position: int, sign: float, normed: bool, biased: bool, heads: bool = False
    ) -> tuple[list[Tensor], list[str]]:
        x, caches = self.x.to("xpu"), [c.to("xpu") for c in self.caches]
        angles = [t.to("xpu") for t in self.angles] if self.angles else [None, None]
        bias = [b.to("xpu") for b in self.bias] if biased else []
        norm, at = self.norm.to("xpu") if normed else None, torch.tensor([position], device="xpu")
        operands = self.weights.operands()
        of_heads = [n.to("xpu") for n in self.head_norms] if heads else [None, None]

        def call() -> Tensor:
            given = (*operands, bias, 128, norm, 1e-5, self.depth, *angles, sign, *of_heads, 1e-6)
            return torch.ops.openxpu.qkv_rope_linear(x, *given, at, self.dim, *caches, self.plus_one)

        call()
        q, names = profiled(call)
        return [q, *caches], names


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m, depth, dim, turned", [(1, 16, 2, True), (3, 10, 1, True), (1, 24, 1, False)])
def test_cached(m: int, depth: int, dim: int, turned: bool, kind: str, dtype: torch.dtype) -> None:
    cached = Cached(kind, m, 256, depth, dtype, dim, turned)
    # norms of fp16 are computed in another way with matrix engines
    normed, biased = dim == 2 and dtype != torch.float16, dim == 1
    for position, sign in ((3, -1.0), (-1, 1.0)):
        found, names = cached.call(position, sign, normed, biased)
        is_one = is_one_launch(kind, m, dtype)
        for part, wanted in zip(found, cached.expected(position, sign, normed, biased), strict=True):
            assert_snr(part, wanted, enough(dtype) - (0 if is_one and not normed else 9))
        if is_one:
            assert len(names) == 1, names


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "m, depth, dim, turned", [(1, 64, 2, True), (3, 128, 1, True), (9, 64, 2, True), (1, 256, 1, False)]
)
def test_cached_heads_are_normed(
    m: int, depth: int, dim: int, turned: bool, kind: str, dtype: torch.dtype
) -> None:
    """Normalized heads, completed by each head's last work-group in the same launch; repeated, as they use counters."""
    cached = Cached(kind, m, 256, depth, dtype, dim, turned)
    normed, biased = m < 9 and dtype != torch.float16, m != 1
    for position, sign in ((3, -1.0), (-1, 1.0)):
        found, names = cached.call(position, sign, normed, biased, heads=True)
        is_one = is_one_launch(kind, m, dtype)
        for part, wanted in zip(found, cached.expected(position, sign, normed, biased, True), strict=True):
            assert_snr(part, wanted, enough(dtype) - (0 if is_one and not normed else 9))
        if is_one:
            assert len(names) == 1, names


@pytest.mark.parametrize("kind, dtype", [("int4", torch.bfloat16), ("numbers", torch.float32)])
def test_cached_norms_by_one_more(kind: str, dtype: torch.dtype) -> None:
    cached = Cached(kind, 1, 256, 64, dtype, 2, True)
    cached.plus_one = True
    found, names = cached.call(3, -1.0, True, False, heads=True)
    for part, wanted in zip(found, cached.expected(3, -1.0, True, False, True), strict=True):
        assert_snr(part, wanted, enough(dtype) - 9)
    if is_one_launch(kind, 1, dtype):
        assert len(names) == 1, names


@pytest.mark.parametrize("depth", [20, 512])
def test_cached_heads_of_odd_sizes_are_normed(depth: int) -> None:
    """Heads that no whole number of work-groups has, or too many."""
    cached = Cached("int8", 2, 256, depth, torch.bfloat16, 2, True)
    found, _ = cached.call(2, 1.0, False, False, heads=True)
    for part, wanted in zip(found, cached.expected(2, 1.0, False, False, True), strict=True):
        assert_snr(part, wanted, enough(torch.bfloat16) - 9)


def test_cached_where_nothing_is() -> None:
    cached = Cached("numbers", 1, 64, 8, torch.float32, 2, True)
    before = [c.clone() for c in cached.caches]
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        cached.call(7, 1.0, False, False)
        torch.xpu.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(cached.caches, before, strict=True))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"weight": 2}, "2 weights; expected 3"),
        ({"depth": 7}, "head size 7"),
        ({"dim": 3}, "dimension 1 or 2, got 3"),
        ({"cos": None}, "cos and sin"),
        ({"position": torch.tensor([1, 2])}, "one int64 position"),
        ({"keys": torch.zeros(1, 3, 7, 8)}, "the cache doesn't match"),
        ({"sin": torch.zeros(1, 9)}, "cos or sin doesn't match"),
        ({"query_norm": None}, "query_norm and key_norm"),
        ({"key_norm": torch.zeros(16)}, "a norm's weight doesn't match"),
    ],
)
@pytest.mark.parametrize("device", ["xpu", "meta"])
def test_caches_that_do_not_fit(device: str, change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "x": torch.zeros(1, 16),
        "weight": [torch.zeros(n, 16) for n in (32, 16, 16)],
        "scale": [],
        "zero": [],
        "bias": [],
        "group": 0,
        "norm": None,
        "eps": 0.0,
        "depth": 8,
        "cos": torch.zeros(1, 8),
        "sin": torch.zeros(1, 8),
        "first_sign": 1.0,
        "query_norm": torch.zeros(8),
        "key_norm": torch.zeros(8),
        "head_eps": 0.0,
        "position": torch.tensor([1]),
        "dim": 2,
        "keys": torch.zeros(1, 2, 7, 8),
        "values": torch.zeros(1, 2, 7, 8),
        **change,
    }
    if isinstance(given["weight"], int):
        given["weight"] = [torch.zeros(32, 16)] * given["weight"]
    moved = torch.utils._pytree.tree_map(lambda v: v.to(device) if isinstance(v, Tensor) else v, given)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.openxpu.qkv_rope_linear(*moved.values())


def test_no_rows() -> None:
    w = torch.randn(8, 16, device="xpu")
    given = ([w, w], [], [], [], 0, False, "none", None, 0.0, None)
    assert torch.ops.openxpu.fused_linear(torch.empty(0, 16, device="xpu"), *given).shape == (0, 16)


@pytest.mark.parametrize("device", ["xpu", "meta"])
@pytest.mark.parametrize(
    "change, message",
    [
        ({"weight": []}, "at least one weight"),
        ({"weight": [torch.zeros(8, 15)]}, "don't match a weight"),
        ({"weight": [torch.zeros(8, 16).half()]}, "one dtype"),
        ({"bias": [torch.zeros(7)]}, "the bias doesn't match"),
        ({"gated": True}, "a gated layer needs 2"),
        ({"activation": "sine"}, "unknown activation sine"),
        ({"norm": torch.zeros(8)}, "the norm's weight"),
        ({"residual": torch.zeros(2, 9)}, "the residual must"),
        ({"residual": torch.zeros(8)}, "the residual must"),
        ({"weight": [torch.zeros(8, 2, dtype=torch.int32)]}, "scales, zero points or biases"),
    ],
)
def test_what_does_not_fit(device: str, change: dict[str, object], message: str) -> None:
    """Also rejected when traced."""
    given: dict[str, object] = {
        "x": torch.zeros(2, 16),
        "weight": [torch.zeros(8, 16)],
        "scale": [],
        "zero": [],
        "bias": [],
        "group": 0,
        "gated": False,
        "activation": "none",
        "norm": None,
        "eps": 0.0,
        "residual": None,
        **change,
    }
    moved = torch.utils._pytree.tree_map(lambda v: v.to(device) if isinstance(v, Tensor) else v, given)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.openxpu.fused_linear(*moved.values())


@on_cpus
@pytest.mark.skipif(TIER in TIERS, reason="this is the inner run")
@pytest.mark.parametrize("tier", TIERS)
def test_as_gpus_do(tier: str) -> None:
    """Tensor cores don't support fp32 here, and fp16 is read like bf16 without them: tested only in the long run."""
    some = "beside or gated or normed or int8_linear or cached"
    left_out = f"dtype{SINGLES.index(torch.float32 if tier == 'ptx' else torch.float16)}"
    passes(
        {__file__: some if os.environ.get("OPENXPU_TEST_ALL") == "1" else f"({some}) and not {left_out}"},
        every=2,
        OPENXPU_MATRIX=tier,
        OPENXPU_HOST_PROVIDER="0",
    )
