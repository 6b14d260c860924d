"""What openxpu has Inductor do for GPUs, where launches count: fewer kernels, with the numbers of eager calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import openxpu
import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from openxpu import _fusion, _launches
from openxpu._run_package import Package
from profiled import profiled
from torch import Tensor, nn
from torch._inductor.fx_passes import pad_mm
from torch._inductor.utils import run_and_get_code

pytest.importorskip("triton")


@pytest.fixture
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Launches count, whatever device is here."""
    monkeypatch.setattr(_launches, "counts_launches", lambda *_: True)
    with torch._inductor.utils.fresh_cache():
        yield


def kernels(function: Callable[..., object], *given: Tensor) -> list[str]:
    """Return the names of what a second call launches, in order."""
    function(*given)
    return profiled(lambda: function(*given))[1]


def parts(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    return x.sin() + 1, y.cos() * y, (z > 0) & (z < 3)


def operands(size: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(size), torch.randn(3 * size // 2, dtype=torch.float16), torch.randint(-5, 5, (17,))


@pytest.mark.parametrize("size", [1, 1000, 30001])
def test_small_kernels_are_one(size: int, as_on_gpus: None) -> None:
    given = [t.to("xpu") for t in operands(size)]
    compiled = torch.compile(parts, dynamic=False)
    assert len(kernels(compiled, *given)) == 1
    for a, b in zip(compiled(*given), parts(*operands(size)), strict=True):
        assert_close(a, b)


def test_small_kernels_among_others_are_one(as_on_gpus: None) -> None:
    """Small kernels of a step are merged, more than Inductor does, also with kernels that have no dependency."""

    def counted(x: Tensor, *counts: Tensor) -> tuple[Tensor, ...]:
        found = tuple(x.sort(stable=True).values for _ in counts[::4])
        for i, count in enumerate(counts):
            found += (count + i,)
            count.add_(1)
        return found

    x, counts = torch.randn(200), [torch.tensor([i]) for i in range(20)]
    given = [t.to("xpu") for t in (x, *counts)]
    compiled = torch.compile(counted, dynamic=False)
    names = kernels(compiled, *given)
    assert sum("triton" in name and "sort" not in name for name in names) == 1, names
    for a, b in zip(compiled(*given), counted(x, *(c + 2 for c in counts)), strict=True):
        assert_close(a, b)


def test_large_kernels_stay_apart(as_on_gpus: None) -> None:
    given = [t.to("xpu") for t in operands(2 * _fusion.FEW_ELEMENTS)]
    assert len(kernels(torch.compile(parts, dynamic=False), *given)) == 3


def test_what_waits_stays_apart(as_on_gpus: None) -> None:
    def chain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sort(x.sin()).values.cos(), y.exp()

    x, y = torch.randn(200), torch.randn(70)
    found = torch.compile(chain)(x.to("xpu"), y.to("xpu"))
    for a, b in zip(found, chain(x, y), strict=True):
        assert_close(a, b)


def test_not_where_launches_are_cheap() -> None:
    if torch.xpu.get_device_capability()["type"] != "cpu":
        pytest.skip("the device is a GPU")
    with torch._inductor.utils.fresh_cache():
        assert len(kernels(torch.compile(parts, dynamic=False), *(t.to("xpu") for t in operands(100)))) == 3


def test_in_a_package(as_on_gpus: None, tmp_path: Path) -> None:
    class Parts(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x.sin() + 1, y.cos() * y

    x, y = torch.randn(100), torch.randn(30, 5)
    path = openxpu.package(torch.export.export(Parts(), (x, y)), tmp_path / "parts.xpk")
    opened = Package(path)
    prepared = opened.prepare([x.numpy(), y.numpy()])
    opened.run(prepared, 2)
    for a, b in zip(prepared[2], Parts()(x, y), strict=True):
        torch.testing.assert_close(torch.from_numpy(a), b)


# --- layers that share a few rows ---


class Linear(nn.Module):
    """bf16 weights, or the same in 4 bits; both as float64 for the reference."""

    def __init__(self, k: int, n: int, kind: str, bias: bool = False) -> None:
        super().__init__()
        self.kind = kind
        self.bias = torch.randn(n).bfloat16() if bias else None
        if kind == "bf16":
            self.weight = (torch.randn(n, k) / k**0.5).bfloat16()
            self.numbers = self.weight.double()
            return
        q = torch.randint(0, 16, (n, k))
        self.weight = (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8).view(torch.int32)
        self.scale = (torch.rand(k // 128, n) / k**0.5 / 4 + 0.001).bfloat16()
        self.zero = torch.randint(4, 12, (k // 128, n), dtype=torch.int8)
        each = torch.arange(k) // 128
        self.numbers = (q - self.zero[each].t().double()) * self.scale[each].t().double()

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            y = x @ self.numbers.t()
            return y if self.bias is None else y + self.bias.double()
        if self.kind == "bf16":
            return F.linear(x, self.weight, self.bias)
        y = torch.ops.aten._weight_int4pack_mm_with_scales_and_zeros(
            x.reshape(-1, x.size(-1)), self.weight, 128, self.scale, self.zero
        ).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> Linear:
        for name in ("weight", "scale", "zero", "bias"):
            if isinstance(getattr(self, name, None), Tensor):
                setattr(self, name, function(getattr(self, name)))
        return self


class Norm(nn.Module):
    """As PyTorch has it, or as transformers' models do, which round before they multiply by the weight."""

    def __init__(self, width: int, rounds_early: bool) -> None:
        super().__init__()
        self.weight, self.rounds_early = nn.Buffer(torch.randn(width).bfloat16()), rounds_early

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            return F.rms_norm(x, x.shape[-1:], self.weight.to(x), 1e-5)
        if not self.rounds_early:
            return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Block(nn.Module):
    """A decoder layer without attention; `halves`: one linear layer computes both the gate and its factor."""

    def __init__(self, kind: str, halves: bool, bias: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(256, not halves) for _ in range(2))
        self.qkv = nn.ModuleList(Linear(256, n, kind, bias) for n in (256, 64, 64))
        self.out = Linear(256, 256, kind)
        self.up = nn.ModuleList(Linear(256, 1024, kind) for _ in range(1 if halves else 2))
        self.down = Linear(512 if halves else 1024, 256, kind)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norms[0](x)
        q, k, v = (layer(normed) for layer in self.qkv)
        x = x + self.out(q * (k * v).sum(-1, keepdim=True).tanh())
        normed = self.norms[1](x)
        gate, up = self.up[0](normed).chunk(2, -1) if len(self.up) == 1 else (f(normed) for f in self.up)
        return self.down(F.silu(gate) * up) + x


def joined_calls(function: Callable[..., object], *given: Tensor) -> tuple[object, list[str]]:
    """Return the result of a compiled function and the calls of fused_linear in its code."""
    result, code = run_and_get_code(torch.compile(function, dynamic=False), *given)
    return result, re.findall(r"torch\.ops\.openxpu\.fused_linear\.default\((.*)\)", code[-1])


@pytest.mark.parametrize(
    "kind, halves, bias",
    [("int4", False, False), ("int4", True, True), ("bf16", False, True), ("bf16", True, False)],
)
def test_layers_are_joined(kind: str, halves: bool, bias: bool, as_on_gpus: None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(kind, halves, bias), Block(kind, halves, bias))
    x = torch.randn(1, 1, 256).bfloat16()
    expected = model(x.double())
    model.to("xpu")
    found, calls = joined_calls(model, x.to("xpu"))
    # per block: QKV; out; gate and up; down
    assert len(calls) == 8
    assert sum("'silu'" in call for call in calls) == 2
    error = (found.cpu().double() - expected).norm() / expected.norm()  # type: ignore[attr-defined]
    assert error < 0.02
    assert error <= 1.3 * (model(x.to("xpu")).cpu().double() - expected).norm() / expected.norm()


@pytest.mark.parametrize("rows", [2, 16])
def test_some_rows(rows: int, as_on_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from openxpu import _match_linear

    monkeypatch.setattr(_match_linear, "most_rows", lambda *_: 16)
    torch.manual_seed(rows)
    model, x = Block("int4", False, False), torch.randn(2, rows // 2, 256).bfloat16()
    expected = model(x.double())
    found, calls = joined_calls(model.to("xpu"), x.to("xpu"))
    assert len(calls) == 4
    assert_close(found, expected, dtype=found.dtype, rtol=0.02, relative_to="norm")


@pytest.mark.parametrize("kind, rows", [("int4", 17), ("bf16", 2)])
def test_many_rows_stay_apart(kind: str, rows: int, as_on_gpus: None) -> None:
    model = Block(kind, False, False).to("xpu")
    assert not joined_calls(model, torch.randn(rows, 256).bfloat16().to("xpu"))[1]


class Attention(nn.Module):
    """Attention of one token a row; caches are (rows, heads, length, depth) with `dim` 2, or length before heads."""

    def __init__(self, kind: str, whole: bool, dim: int, rolls: bool, bias: bool = False) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.depth, self.dim, self.rolls = 4, 2, 64, dim, rolls
        sizes = [n * self.depth for n in (self.heads, self.kv_heads, self.kv_heads)]
        self.qkv = nn.ModuleList(Linear(256, n, kind, bias) for n in ([sum(sizes)] if whole else sizes))
        self.sizes = sizes

    def rotated(self, t: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.rolls:
            return t * cos + sin * t.roll(self.depth // 2, -1)
        first, second = t[..., : self.depth // 2], t[..., self.depth // 2 :]
        return torch.cat((-second, first), -1) * sin + t * cos

    def forward(
        self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        parts = [layer(x) for layer in self.qkv]
        q, k, v = parts[0].split(self.sizes, -1) if len(parts) == 1 else parts
        q, k, v = (t.view(x.size(0), 1, -1, self.depth) for t in (q, k, v))
        if self.dim == 2:
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        keys.index_copy_(self.dim, position, k)
        values.index_copy_(self.dim, position, v)
        if self.dim == 1:
            q, keys, values = (t.transpose(1, 2) for t in (q, keys, values))
        return F.scaled_dot_product_attention(q, keys, values, enable_gqa=True).reshape(x.size(0), -1)


def attention_inputs(attention: Attention, rows: int) -> list[Tensor]:
    shape = (rows, attention.kv_heads, 9, 64) if attention.dim == 2 else (rows, 9, attention.kv_heads, 64)
    numbers = [torch.randn(rows, 256), torch.randn(1, 64), torch.randn(1, 64), *torch.randn(2, *shape)]
    x, *rest = (t.bfloat16() for t in numbers)
    return [x, torch.tensor([4]), *rest]


def cached_calls(function: Callable[..., object], *given: Tensor) -> tuple[object, int]:
    result, code = run_and_get_code(torch.compile(function, dynamic=False), *given)
    return result, code[-1].count("torch.ops.openxpu.qkv_rope_linear.default(")


def as_doubles(given: list[Tensor]) -> list[Tensor]:
    return [t.double() if t.is_floating_point() else t.clone() for t in given]


@pytest.mark.parametrize(
    "kind, whole, dim, rolls, rows",
    [
        ("int4", True, 2, True, 1),
        ("int4", False, 2, False, 4),
        ("int4", False, 1, True, 1),
        ("bf16", False, 1, False, 1),
        ("bf16", True, 2, False, 1),
    ],
)
def test_caches(kind: str, whole: bool, dim: int, rolls: bool, rows: int, as_on_gpus: None) -> None:
    torch.manual_seed(0)
    attention = Attention(kind, whole, dim, rolls, bias=kind == "bf16")
    given = attention_inputs(attention, rows)
    wanted = as_doubles(given)
    expected = attention(*wanted)
    attention.to("xpu")
    on_device = [t.to("xpu") for t in given]
    found, calls = cached_calls(attention, *on_device)
    assert calls == 1
    for part, reference in zip((found, *on_device[4:]), (expected, *wanted[4:]), strict=True):
        assert_close(part, reference, dtype=part.dtype, rtol=0.01, relative_to="norm")


def other_reader(attention: Attention, *given: Tensor) -> tuple[Tensor, ...]:
    """The query before it is turned."""
    return attention(*given), attention.qkv[0](given[0]) * 2


def read_before(attention: Attention, *given: Tensor) -> tuple[Tensor, ...]:
    before = given[4] * 2
    return attention(*given), before


def angles_of_four_dimensions(attention: Attention, *given: Tensor) -> tuple[Tensor, ...]:
    x, position, cos, *rest = given
    cos, sin = (t.view(1, 1, 1, 64) for t in (cos, rest.pop(0)))
    return (attention(x, position, cos, sin, *rest),)


def returned_keys(attention: Attention, *given: Tensor) -> tuple[Tensor, ...]:
    y = attention(*given)
    return y, given[4] + 1


CACHE_USES = {f.__name__: f for f in (other_reader, read_before, angles_of_four_dimensions, returned_keys)}


@pytest.mark.parametrize("use", CACHE_USES)
def test_caches_that_others_read(use: str, as_on_gpus: None) -> None:
    torch.manual_seed(0)
    attention, function = Attention("bf16", False, 2, False), CACHE_USES[use]
    given = attention_inputs(attention, 1)
    wanted = as_doubles(given)
    expected = function(attention, *wanted)
    attention.to("xpu")
    on_device = [t.to("xpu") for t in given]
    found, _ = cached_calls(lambda *given: function(attention, *given), *on_device)
    grown = zip(on_device[4:], wanted[4:], strict=True)
    pairs = [*zip(found, expected, strict=True), *grown]  # type: ignore[call-overload]
    for part, reference in pairs:
        assert_close(part, reference, dtype=part.dtype, rtol=0.01, relative_to="norm")


GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"),
}


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("name", GATES)
def test_gates_of_other_activations(name: str, halves: bool, as_on_gpus: None) -> None:
    """Gemma's is gelu_tanh; what is read by others stays."""
    torch.manual_seed(0)
    gate, up, both = Linear(256, 128, "bf16"), Linear(256, 128, "bf16"), Linear(256, 256, "bf16")

    def function(x: Tensor) -> Tensor:
        a, b = both(x).chunk(2, -1) if halves else (gate(x), up(x))
        return GATES[name](a) * b

    def read_by_others(x: Tensor) -> Tensor:
        a = gate(x)
        return torch.cat((GATES[name](a) * up(x), a))

    x = torch.randn(1, 256).bfloat16()
    expected, other = function(x.double()), read_by_others(x.double())
    for layer in (gate, up, both):
        layer.to("xpu")
    found, calls = joined_calls(function, x.to("xpu"))
    assert len(calls) == 1
    assert f"'{name}'" in calls[0]
    assert_close(found, expected, dtype=found.dtype, rtol=0.01, relative_to="norm")
    found, calls = joined_calls(read_by_others, x.to("xpu"))
    assert not any(f"'{name}'" in call for call in calls)
    assert_close(found, other, dtype=found.dtype, rtol=0.01, relative_to="norm")


MULTIPLES: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": lambda t: t / torch.add(torch.exp(-t), 1, alpha=4),
    "gelu": lambda t: (t * 0.5) * torch.add(torch.erf(t * 0.7071067811865476), 1, alpha=2),
    "gelu_tanh": lambda t: (
        (t * 0.5) * (torch.tanh(torch.add(t, 0.044715 * (t * t * t), alpha=3) * 0.7978845608028654) + 1)
    ),
}


@pytest.mark.parametrize("name", MULTIPLES)
def test_sums_with_multiples_are_no_gates(name: str, as_on_gpus: None) -> None:
    torch.manual_seed(0)
    first, second = Linear(256, 256, "bf16"), Linear(256, 256, "bf16")

    def function(x: Tensor) -> Tensor:
        gate = first(x)
        wide = gate if x.dtype == torch.float64 else gate.float()
        return MULTIPLES[name](wide).to(x.dtype) * second(x)

    x = torch.randn(1, 256).bfloat16()
    expected = function(x.double())
    for layer in (first, second):
        layer.to("xpu")
    found, calls = joined_calls(function, x.to("xpu"))
    assert not any(f"'{name}'" in call for call in calls)
    assert_close(found, expected, dtype=found.dtype, rtol=0.01, relative_to="norm")


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(256, 512, bias=False) for _ in range(2))
        self.down = nn.Linear(512, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("tunes", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", ["Int8WeightOnlyConfig", "Float8WeightOnlyConfig"])
@pytest.mark.filterwarnings("ignore")
def test_weights_alone(
    kind: str, rows: int, tunes: bool, as_on_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchao's weight-only quantization, with which Inductor autotunes: it turns a product of one row into a sum."""
    monkeypatch.setattr(pad_mm, "_skip_do_bench_times", True)  # as if padded products were faster
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(rows)
    model, x = Gated().bfloat16().requires_grad_(False), torch.randn(rows, 256).bfloat16()
    quantization.quantize_(model, getattr(quantization, kind)())
    reference = Gated().double().requires_grad_(False)
    for name in ("gate", "up", "down"):
        getattr(reference, name).weight.copy_(getattr(model, name).weight.dequantize())
    expected = reference(x.double())
    model.to("xpu")
    with torch.no_grad(), torch._inductor.config.patch(coordinate_descent_tuning=tunes):
        found, calls = joined_calls(model, x.to("xpu"))
    assert len(calls) == 2  # the gate; down
    assert_close(found, expected, dtype=found.dtype, rtol=0.01, relative_to="norm")


@pytest.mark.parametrize("rows, bias", [(1, False), (40, True)])
@pytest.mark.filterwarnings("ignore")
def test_int8_activations(rows: int, bias: bool, as_on_gpus: None) -> None:
    """torchao's int8 activations: one launch quantizes rows, one multiplies and scales."""
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(rows)
    model = nn.Linear(256, 512, bias=bias).bfloat16().requires_grad_(False)
    x = torch.randn(rows, 256).bfloat16()
    expected = F.linear(x.double(), model.weight.double(), model.bias.double() if bias else None)
    quantization.quantize_(model.to("xpu"), quantization.Int8DynamicActivationInt8WeightConfig())
    with torch.no_grad():
        found, code = run_and_get_code(torch.compile(model, dynamic=False), x.to("xpu"))
    assert code[-1].count("torch.ops.openxpu.int8_linear.default(") == 1
    assert "_int_mm" not in code[-1]
    assert len(re.findall(r"triton_\w+\.run\(", code[-1])) == 1
    error = (found.cpu().double() - expected).norm() / expected.norm()
    assert error < 0.0178  # 35 dB


def test_what_others_read_stays(as_on_gpus: None) -> None:
    """A gate, a sum and a norm whose intermediate results are read elsewhere are not fused away."""
    torch.manual_seed(0)
    a, b, c = (Linear(256, 256, "bf16") for _ in range(3))
    norm = Norm(256, False)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        gate = a(x)
        y = F.silu(gate) * b(x)
        z = x + c(y)
        normed = norm(z)
        return gate, c(normed), normed, y + a(y) * 2

    x = torch.randn(1, 256).bfloat16()
    expected = function(x.double())
    for module in (a, b, c, norm):
        module.to("xpu")
    found, calls = joined_calls(function, x.to("xpu"))
    assert not any("'silu'" in call for call in calls)
    for part, wanted in zip(found, expected, strict=True):  # type: ignore[call-overload]
        assert_close(part, wanted, dtype=part.dtype, rtol=0.02, relative_to="norm")


def test_a_sum_that_broadcasts_stays(as_on_gpus: None) -> None:
    torch.manual_seed(0)
    layer = Linear(256, 256, "bf16")
    x, y = torch.randn(1, 256).bfloat16(), torch.randn(3, 256).bfloat16()
    expected = layer(x.double()) + y.double()
    layer.to("xpu")
    found, calls = joined_calls(lambda x, y: layer(x) + y, x.to("xpu"), y.to("xpu"))
    assert not calls
    assert_close(found, expected, dtype=found.dtype, rtol=0.02, relative_to="norm")


ODD: dict[str, Callable[..., Tensor]] = {
    "gate in float32": lambda x, w, v, b: F.silu(F.linear(x, w).float()) * F.linear(x, v),
    "halves in float32": lambda x, w, v, b: (
        F.silu(F.linear(x, w)[:, :128].float()) * F.linear(x, w).chunk(2, -1)[1]
    ),
    "split in float32": lambda x, w, v, b: (lambda pair: F.silu(pair[0].float()) * pair[1])(
        F.linear(x, w).chunk(2, -1)
    ),
    "residual in float32": lambda x, w, v, b: x.float() + F.linear(x, w),
    "gate that broadcasts": lambda x, w, v, b: (
        F.silu(F.linear(x, w).view(2, 1, 128)) * F.linear(x, v).view(1, 2, 128)
    ),
    "bias of one": lambda x, w, v, b: torch.addmm(b[:1], x, w.t()) + torch.addmm(b[:1], x, v.t()) * 2,
    "norm's weight of one": lambda x, w, v, b: (
        lambda z: F.linear(
            (z.float() * torch.rsqrt(z.float().pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16() * b[:1], v
        )
    )(x + F.linear(x, w)),
    "no columns": lambda x, w, v, b: torch.cat([F.linear(x, w), F.linear(x, v[:0])], 1),
}


@pytest.mark.parametrize("case", ODD)
def test_what_only_looks_alike(case: str, as_on_gpus: None) -> None:
    """Other dtypes, sizes that broadcast and none: the eager call's dtype, shape and numbers."""
    torch.manual_seed(0)
    x, w, v, b = (
        torch.randn(*size).bfloat16().to("xpu") for size in ((1, 256), (256, 256), (256, 256), (256,))
    )
    function = ODD[case]
    expected = function(x, w, v, b)
    found = torch.compile(function, dynamic=False)(x, w, v, b)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert (found.double() - expected.double()).norm().cpu() < 0.01 * expected.double().norm().cpu()


def test_scaled_integers_that_are_cut(as_on_gpus: None) -> None:
    torch.manual_seed(0)
    a, w = (torch.randint(-9, 9, size, dtype=torch.int8).to("xpu") for size in ((20, 64), (32, 64)))
    rows, columns = torch.rand(20, 1).to("xpu") / 99, torch.rand(32).to("xpu")

    def cut(a: Tensor, w: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        return (torch._int_mm(a, w.t()) * rows).to(torch.int32) * columns

    expected = cut(a, w, rows, columns)
    assert_close(torch.compile(cut, dynamic=False)(a, w, rows, columns), expected.cpu())


class WrittenOut(nn.Module):
    """Attention as eager models have it, with capped scores."""

    def forward(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        times = q.size(1) // keys.size(1)

        def repeated(t: Tensor) -> Tensor:
            items, heads, *rest = t.shape
            return t[:, :, None].expand(items, heads, times, *rest).reshape(items, heads * times, *rest)

        scores = torch.tanh(q @ repeated(keys).transpose(2, 3) / 8 / 5) * 5 + mask
        return scores.softmax(-1) @ repeated(values)


@pytest.mark.parametrize("items, rows, heads", [(1, 1, 2), (2, 1, 4), (2, 3, 2), (1, 1, 1), (1, 2, 8)])
def test_heads_that_are_repeated(items: int, rows: int, heads: int, as_on_gpus: None) -> None:
    """Each head of keys and values is read where it lies: a product, the weights, a product."""
    torch.manual_seed(0)
    q, keys, values = (
        torch.randn(items, n, m, 64).bfloat16() for n, m in ((8, rows), (heads, 9), (heads, 9))
    )
    given = [q, keys, values, torch.where(torch.rand(rows, 9) < 0.8, 0, -1e9).bfloat16()]
    expected = WrittenOut()(*(t.double() for t in given))
    compiled, on_device = torch.compile(WrittenOut(), dynamic=False), [t.to("xpu") for t in given]
    found = compiled(*on_device)
    assert_close(found, expected, dtype=found.dtype, rtol=0.01, relative_to="norm")
    names = kernels(compiled, *on_device)
    assert len([name for name in names if "gemm" in name or "triton" in name]) == 3, names
