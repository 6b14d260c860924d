"""One decoding step compiled as for GPUs: what a layer launches, and its results compared with float64."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from inner_run import passes
from test_fusion import Linear, Norm, kernels
from torch import Tensor, nn

pytest.importorskip("triton")

# Matrix engines of GPUs, whose kernels run on a CPU device here; otherwise the device's own.
TIERS = ("ptx", "fma")
TIER = os.environ.get("OPENXPU_MATRIX")
HEADS, KV_HEADS, DEPTH, WIDTH, PLACES = 4, 2, 64, 256, 9


@pytest.fixture(autouse=True)
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have openxpu reduce the number of launches on any device, as on GPUs."""
    from openxpu import _launches

    monkeypatch.setattr(_launches, "counts_launches", lambda *_: True)
    torch._dynamo.reset()  # it compiles a function for so many models only
    with torch._inductor.utils.fresh_cache():
        yield


class NormByOneMore(nn.Module):
    """RMS norm as in Gemma's models: multiplies by the weight plus one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randn(width).bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            return F.rms_norm(x, x.shape[-1:], self.weight.to(x) + 1, 1e-5)
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (scaled * (1.0 + self.weight.float())).type_as(x)


class Int8(nn.Module):
    """A linear layer as torchao's Int8WeightOnlyConfig leaves it: fp32 scales, converted at each call."""

    def __init__(self, k: int, n: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randint(-128, 128, (n, k), dtype=torch.int8))
        self.scale = nn.Buffer(torch.rand(n, 1) / k**0.5 / 64 + 0.0001)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.size(-1))
        y = torch.mm(rows, self.weight.t().to(x.dtype)) * self.scale.to(x.dtype).view(-1)
        return y.view(*x.shape[:-1], -1)


class Layer(nn.Module):
    """A decoder layer as in Llama; `bias`: of queries, keys and values (Qwen2); `normed`: norms of heads (Qwen3)."""

    def __init__(self, kind: str, bias: bool, normed: bool, gemma: bool = False) -> None:
        super().__init__()
        self.reads_early = False  # queries, before the place in the cache is known
        self.gate_of = partial(F.gelu, approximate="tanh") if gemma else F.silu
        norm_of: Callable[[int], nn.Module] = NormByOneMore if gemma else partial(Norm, rounds_early=True)
        layer: Callable[..., nn.Module] = (
            (lambda k, n, _kind, _bias=False: Int8(k, n)) if kind == "int8" else Linear
        )
        self.reads_between = False  # values before they change, after the keys did
        self.head_norms = nn.ModuleList(norm_of(DEPTH) for _ in range(2 if normed else 0))
        self.norms = nn.ModuleList(norm_of(WIDTH) for _ in range(2))
        self.qkv = nn.ModuleList(layer(WIDTH, n * DEPTH, kind, bias) for n in (HEADS, KV_HEADS, KV_HEADS))
        self.out = layer(HEADS * DEPTH, WIDTH, kind)
        self.gate, self.up = (layer(WIDTH, 512, kind) for _ in range(2))
        self.down = layer(512, WIDTH, kind)

    def forward(
        self, x: Tensor, position: Tensor, angles: list[Tensor], keys: Tensor, values: Tensor
    ) -> Tensor:
        normed = self.norms[0](x)
        q, k, v = (f(normed).view(1, 1, -1, DEPTH) for f in self.qkv)
        if self.head_norms:
            q, k = (norm(t) for norm, t in zip(self.head_norms, (q, k), strict=True))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        q, k = (rotated(t, *angles) for t in (q, k))
        if self.reads_early:
            q, position = q * 2, position + torch.arange(1, device=position.device)
        keys.index_copy_(2, position, k)
        if self.reads_between:
            x = x + values.mean() * 99
        values.index_copy_(2, position, v)
        found = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        x = x + self.out(found.transpose(1, 2).reshape(1, 1, -1))
        normed = self.norms[1](x)
        return x + self.down(self.gate_of(self.gate(normed)) * self.up(normed))


def rotated(t: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = t[..., : DEPTH // 2], t[..., DEPTH // 2 :]
    return t * cos + torch.cat((-second, first), -1) * sin


Part = Callable[[Tensor, int], Tensor]
PARTS: dict[str, tuple[list[int], Part]] = {
    "layers first": ([2, 2], lambda t, i: t[i // 2, i % 2]),
    "layers of a part": ([3, 4], lambda t, i: t[1][i]),
    "some rows": ([4], lambda t, i: t[i, :1]),
}


class Step(nn.Module):
    def __init__(
        self,
        kind: str,
        bias: bool = False,
        normed: bool = False,
        part: Part | None = None,
        gemma: bool = False,
    ) -> None:
        super().__init__()
        self.part = part
        self.layers = nn.ModuleList(Layer(kind, bias, normed, gemma) for _ in range(2))

    def forward(self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, *caches: Tensor) -> Tensor:
        if self.part:  # slices of one tensor
            caches = tuple(self.part(caches[0], i) for i in range(2 * len(self.layers)))
        for layer, keys, values in zip(self.layers, caches[::2], caches[1::2], strict=True):
            x = layer(x, position, [cos, sin], keys, values)
        return x


def compare(step: Step, caches: list[Tensor], more: int = 0) -> None:
    """Compare results and caches with float64; check the number of launches where the GPU kernels run."""
    x, cos, sin = torch.randn(1, 1, WIDTH), torch.randn(1, DEPTH), torch.randn(1, DEPTH)
    given = [x.bfloat16(), torch.tensor([4]), cos.bfloat16(), sin.bfloat16(), *caches]
    wanted = [t.double() if t.is_floating_point() else t for t in given]
    expected = step(*wanted)
    step.to("xpu")
    on_device = [t.to("xpu") for t in given]
    found = torch.compile(step, dynamic=False)
    for part, reference in zip((found(*on_device), *on_device[4:]), (expected, *wanted[4:]), strict=True):
        assert_close(part, reference, dtype=torch.bfloat16, rtol=0.02, relative_to="norm")
    names = kernels(found, *on_device)
    if TIER in TIERS:
        # the first layer's norm has no preceding sum to fuse with
        least = 1 + 5 * len(step.layers)
        assert least <= len(names) <= least + more, names


def own_caches(layers: int) -> list[Tensor]:
    return [torch.randn(1, KV_HEADS, PLACES, DEPTH).bfloat16() for _ in range(2 * layers)]


@pytest.mark.parametrize("bias, normed", [(False, False), (True, False), (False, True)])
def test_layers(bias: bool, normed: bool) -> None:
    torch.manual_seed(0)
    compare(Step("int4", bias, normed), own_caches(2))


@pytest.mark.parametrize("kind, normed", [("int4", False), ("int4", True), ("int8", True)])
def test_layers_of_gemma(kind: str, normed: bool) -> None:
    """Norms multiply by the weight plus one, gates are GELU; Gemma 3 also norms the heads."""
    torch.manual_seed(0)
    compare(Step(kind, normed=normed, gemma=True), own_caches(2))


def test_scales_that_are_converted() -> None:
    torch.manual_seed(0)
    compare(Step("int8"), own_caches(2))


def test_queries_that_are_read_early() -> None:
    """As in eager attention: a reader of the queries runs after the launch that updates the caches."""
    torch.manual_seed(0)
    step = Step("int4")
    for layer in step.layers:
        layer.reads_early = True
    compare(step, own_caches(2), more=4)


@pytest.mark.parametrize("kind", PARTS)
def test_caches_that_are_parts(kind: str) -> None:
    torch.manual_seed(0)
    sizes, part = PARTS[kind]
    rows = 2 if kind == "some rows" else 1
    whole = torch.randn(*sizes, rows, KV_HEADS, PLACES, DEPTH).bfloat16()
    compare(Step("int4", part=part), [whole])


def read_before(t: Tensor, step: Callable[[], Tensor]) -> tuple[Tensor, ...]:
    before = t[0, 0, 0, 0, 4] * 2
    return step(), before


def read_between(t: Tensor, step: Callable[[], Tensor]) -> tuple[Tensor, ...]:
    """Reads all parts of the cache, after one was modified before the first layer."""
    t[0, 0].mul_(2)
    return step(), t.sum(0)


def changed_otherwise(t: Tensor, step: Callable[[], Tensor]) -> tuple[Tensor, ...]:
    y = step()
    t[1, 1, :, :, 4].add_(1)
    return y, t[1, 1] * 2


def read_after(t: Tensor, step: Callable[[], Tensor]) -> tuple[Tensor, ...]:
    return step(), t[:, 1] + t[:, 0]


def read_within(t: Tensor, step: Callable[[], Tensor]) -> tuple[Tensor, ...]:
    """A layer reads the cache between its updates."""
    return (step(),)


USES = {f.__name__: f for f in (read_before, read_between, changed_otherwise, read_after, read_within)}


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(use, marks=() if use in ("changed_otherwise", "read_between") else pytest.mark.extended)
        for use in USES
    ],
)
def test_parts_that_others_use(use: str) -> None:
    torch.manual_seed(0)
    sizes, part = PARTS["layers first"]
    step = Step("int4", part=part)
    step.layers[0].reads_between = use == "read_within"
    x, cos, sin, whole = (
        torch.randn(size).bfloat16()
        for size in ((1, 1, WIDTH), (1, DEPTH), (1, DEPTH), (*sizes, 1, KV_HEADS, PLACES, DEPTH))
    )

    def function(x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, whole: Tensor) -> tuple[Tensor, ...]:
        return USES[use](whole, lambda: step(x, position, cos, sin, whole))

    wanted = [x.double(), torch.tensor([4]), cos.double(), sin.double(), whole.double()]
    expected = (*function(*wanted), wanted[-1])
    step.to("xpu")
    on_device = [t.to("xpu") for t in (x, torch.tensor([4]), cos, sin, whole)]
    found = (*torch.compile(function, dynamic=False)(*on_device), on_device[-1])
    for one, reference in zip(found, expected, strict=True):
        assert_close(one, reference, dtype=one.dtype, rtol=0.02, relative_to="norm")


@pytest.mark.extended
@pytest.mark.skipif(TIER in TIERS, reason="this is the inner run")
@pytest.mark.parametrize(
    "tier", [TIERS[0], *(pytest.param(t, marks=pytest.mark.extended) for t in TIERS[1:])]
)
def test_launches_as_gpus_have_them(tier: str) -> None:
    passes({__file__: ""}, every=2, OPENXPU_MATRIX=tier, OPENXPU_HOST_PROVIDER="0")
