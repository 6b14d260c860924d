"""torch.compile on xpu through Inductor and Triton, against eager on xpu."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openxpu
import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from processes import run_python
from torch import Tensor, nn

pytest.importorskip("triton")
XPU = "xpu"
pytestmark = pytest.mark.usefixtures("fresh_compiler")


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the same random numbers in each run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype).to(XPU)


def kernels_of(function: Callable[..., Tensor], *arguments: object) -> tuple[Tensor, list[str]]:
    """Return the result of the compiled function and Inductor's code."""
    from torch._inductor.utils import run_and_get_code

    return run_and_get_code(torch.compile(function, fullgraph=True), *arguments)


def test_dynamo_finds_triton() -> None:
    # in a new process, since modules are patched on import
    run_python("""
import sys
import torch
assert "torch._dynamo.device_interface" not in sys.modules
from torch._dynamo.device_interface import get_interface_for_device
get_interface_for_device("xpu").raise_if_triton_unavailable()
import triton.backends
del triton.backends.backends["xpu"]
try:
    get_interface_for_device("xpu").raise_if_triton_unavailable()
except RuntimeError as error:
    assert "openxpu's backend" in str(error), error
else:
    raise AssertionError("found without a backend")
""")


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "pointwise": lambda x, y: F.gelu(x * y + x.sin()).clamp(-1, 1),
    "broadcast": lambda x, y: x + y[:1] * x[:, :1],
    "sum of rows": lambda x, y: (x * y).sum(-1),
    "sum of columns": lambda x, y: (x - y).sum(0),
    "sum of all": lambda x, y: (x * y).sum(),
    "softmax": lambda x, y: (x + y).softmax(-1),
    "layer norm": lambda x, y: F.layer_norm(x + y, x.shape[-1:]),
    "variance": lambda x, y: x.var(0) + y.std(0),
    "argmax": lambda x, y: (x - y).argmax(-1),
    "cumsum": lambda x, y: (x * y).cumsum(-1),
    "transposed": lambda x, y: (x + y).t().contiguous(),
    "cat": lambda x, y: torch.cat([x, y.relu()], 1),
    "where": lambda x, y: torch.where(x > y, x, y * 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_become_triton_kernels(name: str) -> None:
    x, y = normal(33, 257), normal(33, 257).roll(1)
    result, programs = kernels_of(FUNCTIONS[name], x, y)
    assert "@triton.jit" in programs[0]
    assert result.device.type == "xpu"
    torch.testing.assert_close(result, FUNCTIONS[name](x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64], ids=str)
def test_scans_across_programs(dtype: torch.dtype) -> None:
    """Each program waits for the sums of its predecessors; a 64-bit sum is stored beside its ready flag."""
    x = torch.arange(3_000_000, device=XPU).remainder(7).to(dtype)
    for _ in range(5):
        assert torch.equal(
            torch.compile(lambda x: x.cumsum(0))(x).cpu(), x.cpu().to(torch.int64).cumsum(0).to(dtype)
        )


def test_sorting_columns_in_one_program() -> None:
    """The CPU driver once dropped the chunk offset from the addresses of strided lanes."""
    x = normal(128, 10).t()
    for descending in (False, True):
        compiled = torch.compile(lambda x, d=descending: torch.sort(x, stable=True, descending=d))
        for got, expected in zip(compiled(x), torch.sort(x, stable=True, descending=descending), strict=True):
            assert torch.equal(got, expected)


def test_one_element_is_read_and_written_once() -> None:
    x, index = normal(1), (torch.tensor([0]),)
    assert torch.equal(torch.compile(lambda x, i: x[i] + 1)(x, index), x + 1)


OUT_OF_RANGE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, i: x[:, 0][i] + 1,
    "embedding": lambda x, i: F.layer_norm(F.embedding(i, x), (64,)),
    "gather": lambda x, i: x.gather(0, i[:, None]).sum(),
    "index_put": lambda x, i: x[:, 0].index_put((i,), x[:5, 1]),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_index_out_of_range_is_an_error(name: str) -> None:
    x, index = normal(10, 64), torch.tensor([3, 1, 9, 0, 2], device=XPU)
    function, compiled = OUT_OF_RANGE[name], torch.compile(OUT_OF_RANGE[name], fullgraph=True)
    torch.testing.assert_close(compiled(x, index), function(x, index))
    for wrong in (10, -11, 1 << 40):  # the last index would be an invalid address
        index[2] = wrong
        with pytest.raises((RuntimeError, IndexError), match="out of (bounds|range)") as error:
            compiled(x, index)
            torch.xpu.synchronize()
        if name != "index_put":  # which Inductor may leave to the operator
            assert "assertion failed: index out of bounds" in str(error.value)
    index[2] = 9
    torch.testing.assert_close(compiled(x, index), function(x, index))


def test_shapes_may_change_without_another_compilation() -> None:
    compilations = 0

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        nonlocal compilations
        compilations += 1
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(graph, inputs)

    compiled = torch.compile(lambda x: (x * 2).softmax(-1), backend=count, dynamic=True)
    for n in (7, 64, 1000):
        x = normal(n, n)
        torch.testing.assert_close(compiled(x), (x * 2).softmax(-1))
    assert compilations == 1


class Attention(nn.Module):
    """A transformer's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        """Attend and add."""
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )


def convolutions() -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5)
    )


@pytest.mark.parametrize(
    ("make", "shape"),
    [(Attention, (2, 12, 64)), (convolutions, (4, 3, 8, 8))],
    ids=["attention", "convolutions"],
)
def test_training_gives_eager_gradients(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = make().to(XPU), normal(*shape)

    def gradients(f: Callable[[Tensor], Tensor]) -> list[Tensor]:
        model.zero_grad()
        f(x).square().mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients(model)
    actual = gradients(torch.compile(model, fullgraph=True))
    assert len(actual) == len(expected) == len(list(model.parameters()))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_gradients_of_a_head_that_is_split() -> None:
    """In memory the gradients of the two halves of each row are interleaved."""
    logits, first, last = normal(2, 45, 2), torch.tensor([7, 44]).to(XPU), torch.tensor([9, 0]).to(XPU)

    def loss(logits: Tensor, first: Tensor, last: Tensor) -> Tensor:
        start, end = (half.squeeze(-1).contiguous() for half in logits.split(1, -1))
        return (F.cross_entropy(start, first) + F.cross_entropy(end, last)) / 2

    wanted = logits.double().cpu().requires_grad_()
    loss(wanted, first.cpu(), last.cpu()).backward()
    logits.requires_grad_()
    torch.compile(loss, fullgraph=True)(logits, first, last).backward()
    assert_close(logits.grad.double(), wanted.grad, rtol=1e-5, atol=1e-6)


def test_autocast() -> None:
    model, x = Attention().to(XPU), normal(2, 12, 64)
    with torch.no_grad(), torch.autocast("xpu", torch.bfloat16):
        torch.testing.assert_close(torch.compile(model)(x), model(x), rtol=2e-2, atol=2e-2)


def test_a_compiled_optimizer_steps_as_eager() -> None:
    def trained(compiled: bool) -> Tensor:
        weight = nn.Parameter(normal(100))
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        step = torch.compile(optimizer.step) if compiled else optimizer.step
        for i in range(3):
            weight.grad = normal(100) * (i + 1)
            step()
        return weight.detach()

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-5, atol=1e-5)


def test_random_numbers_and_dropout() -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.25))
    result = compiled(torch.ones(10000, device=XPU))
    kept = (result != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.02
    assert_close(result[result != 0].unique(), torch.tensor([1 / 0.75]))


def test_flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def bias(score, batch, head, query, key):
        return score + (query - key) * 0.1

    def causal(batch, head, query, key):
        return query >= key

    torch.manual_seed(0)
    q, k, v, seed = (torch.randn(2, 2, 128, 64, device="xpu", requires_grad=True) for _ in range(4))
    mask = create_block_mask(causal, None, None, 128, 128, device="xpu")
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2")
    blocks = dict.fromkeys(names, 16)  # NVIDIA's OpenCL has 48 KiB of local memory
    results = []
    for function in (torch.compile(flex_attention, fullgraph=True), flex_attention):
        out = function(q, k, v, score_mod=bias, block_mask=mask, kernel_options=blocks)
        results.append([out, *torch.autograd.grad(out, (q, k, v), seed.detach())])
    for compiled, eager in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)


MODES = {
    "reduce-overhead": ({"mode": "reduce-overhead"}, {}),
    "max-autotune": ({"mode": "max-autotune-no-cudagraphs"}, {}),
    "freezing": ({}, {"freezing": True}),
    "triton templates": ({}, {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODES)
def test_modes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.config
    import torch._inductor.utils

    monkeypatch.setattr(
        torch._inductor.utils, "is_big_gpu", lambda *_: True
    )  # else Inductor makes no templates
    arguments, config = MODES[name]
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to(XPU).eval()
    x = normal(32, 64)
    with torch.no_grad(), torch._inductor.config.patch(config):
        torch.testing.assert_close(torch.compile(model, **arguments)(x), model(x), rtol=1e-4, atol=1e-5)


TEMPLATES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "bmm": (lambda x, y: torch.bmm(x, y) * 2, [(3, 40, 32), (3, 32, 48)]),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1).relu(), [(2, 16, 12, 12), (32, 16, 3, 3)]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.utils

    monkeypatch.setattr(torch._inductor.utils, "is_big_gpu", lambda *_: True)
    function, shapes = TEMPLATES[name]
    arguments = [normal(*shape) for shape in shapes]
    chosen = {
        "max_autotune": True,
        "max_autotune_gemm_backends": "TRITON",
        "max_autotune_conv_backends": "TRITON",
        "test_configs.max_mm_configs": 3,
    }
    with torch._inductor.config.patch(chosen):
        result, programs = kernels_of(function, *arguments)
    assert "triton_tem" in programs[0]
    torch.testing.assert_close(result, function(*arguments), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_attention_is_exported(mode: Callable[[], Any]) -> None:
    with mode():
        model, x = Attention().to(XPU), normal(2, 12, 64)
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


def test_an_exported_program_compiles() -> None:
    model, x = Attention().to(XPU).eval(), normal(2, 12, 64)
    with torch.no_grad():
        exported = torch.export.export(model, (x,)).module()
        torch.testing.assert_close(torch.compile(exported)(x), model(x), rtol=1e-4, atol=1e-5)


WORKERS = """
from torch._inductor.async_compile import AsyncCompile
x = torch.ones(1000, device="xpu")
before = openxpu.program_stats()["built"]
with torch._inductor.config.patch(compile_threads=2, fx_graph_cache=False):
    AsyncCompile.wait_pool_ready()
    y = torch.compile(lambda x: x.exp() * 2 + 1)(x)
torch.testing.assert_close(y.cpu(), torch.ones(1000).exp() * 2 + 1)
print("built here:", openxpu.program_stats()["built"] - before)
"""


@pytest.mark.skipif(torch.xpu.get_device_capability()["type"] != "cpu", reason="GPUs build where they launch")
def test_compile_workers_build_for_the_processor(tmp_path: Path) -> None:
    folders = ("OPENXPU_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    done = run_python(WORKERS, env={name: str(tmp_path / name) for name in folders})
    assert "built here: 0" in done.stdout


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_where_the_last_offset_is_an_end(mode: str) -> None:
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 6])
    table = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))

    def bags(i: torch.Tensor, o: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ops.aten._embedding_bag(
            w, i, o, False, ["sum", "mean", "max"].index(mode), False, None, True
        )

    on_xpu = [t.to("xpu") for t in (indices, offsets, table)]
    expected, actual = bags(*on_xpu), torch.compile(bags)(*on_xpu)
    for one, other in zip(expected, actual, strict=True):
        assert_close(one, other.cpu())
    assert_close(actual[0], bags(indices, offsets, table)[0])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("scales", ["tensor", "rows", "blocks", "mxfp8", "mxfp4", "nvfp4"])
def test_scaled_products(scales: str, dynamic: bool, fresh_compiler: None) -> None:
    """Bitwise equal to the eager results, which tests/ops compares with float64."""
    from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

    torch.manual_seed(0)
    n = k = 512  # n = k: the transposed block scales have the same shape
    one, four = torch.float8_e4m3fn, torch.float4_e2m1fn_x2
    options: dict[str, Any] = {}
    a, b = (torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8).view(four) for rows in (64, n))
    if scales not in ("mxfp4", "nvfp4"):
        a, b = torch.randn(64, k).to(one), torch.randn(n, k).to(one)
    if scales == "tensor":
        recipe, given = ScalingType.TensorWise, [torch.rand(1), torch.rand(1)]
    elif scales == "rows":
        recipe, given = ScalingType.RowWise, [torch.rand(64, 1), torch.rand(1, n)]
    elif scales == "blocks":
        recipe, given = ScalingType.BlockWise1x128, [torch.rand(4, 64).t(), torch.rand(4, 4).t()]
        options["scale_recipe_b"] = ScalingType.BlockWise128x128
    elif scales == "nvfp4":
        recipe = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
        given = [[torch.rand(rows * k // 16).to(one), torch.rand(1)] for rows in (128, n)]
        options |= dict.fromkeys(
            ("swizzle_a", "swizzle_b"), [SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE]
        )
    else:
        recipe = ScalingType.BlockWise1x32
        bits = [torch.randint(120, 130, (rows * k // 32,), dtype=torch.uint8) for rows in (128, n)]
        given = [x.view(torch.float8_e8m0fnu) for x in bits]
        options |= dict.fromkeys(("swizzle_a", "swizzle_b"), SwizzleType.SWIZZLE_32_4_4)
    options = {"scale_recipe_b": recipe, **options}

    def product(a: Tensor, b: Tensor, scale_a: Any, scale_b: Any) -> Tensor:
        return scaled_mm(a, b.t(), scale_a, recipe, scale_b, **options)

    arguments = torch.utils._pytree.tree_map(lambda x: x.to("xpu"), (a, b, *given))
    expected = product(*arguments)
    assert torch.equal(torch.compile(product, dynamic=dynamic)(*arguments), expected)


def test_the_cache_of_graphs_knows_the_compiler(tmp_path: Path) -> None:
    """Another version of the compiler misses the cache."""
    from torch._dynamo.utils import counters
    from torch.compiler import config

    def hits() -> int:
        torch._dynamo.reset()
        counters.clear()
        torch.compile(lambda x: x.sin() * 3)(torch.ones(8, device="xpu"))
        return sum(n for name, n in counters["inductor"].items() if name == "fxgraph_cache_hit") + sum(
            n for name, n in counters["aot_autograd"].items() if name == "autograd_cache_hit"
        )

    assert openxpu.compiler_version() in config.cache_key_tag
    with torch._inductor.config.patch(fx_graph_cache=True):
        hits()
        assert hits()
        with config.patch(cache_key_tag=f"{config.cache_key_tag} {tmp_path}"):
            assert not hits()


CACHED = """
from torch._dynamo.utils import counters
x = torch.arange(8.0, device="xpu")
assert torch.equal(torch.compile(lambda x: x * 3 + 1)(x), x * 3 + 1)
print(sum(n for names in counters.values() for name, n in names.items() if name.endswith("_cache_hit")))
"""


def test_the_cache_of_graphs_knows_the_device(tmp_path: Path) -> None:
    """A graph that was compiled for one target is not loaded for another."""
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}

    def hits(**variables: str) -> bool:
        return run_python(CACHED, env=kept | variables).stdout.strip() != "0"

    found = [hits(), hits(), hits(OPENXPU_VARIANT="ref"), hits(OPENXPU_VARIANT="ref"), hits()]
    assert found == [False, True, False, True, True]


def test_autotuning_flushes_inner_caches_of_processors_only() -> None:
    """Flushing the last-level cache before each call takes longer than most kernels."""
    from torch._inductor.runtime.benchmarking import InductorBenchmarker

    sizes = InductorBenchmarker().get_device_cache_size("xpu")
    is_host = torch.xpu.get_device_capability()["type"] == "cpu"
    assert 0 < sizes <= (4 << 20 if is_host else 1 << 40)
