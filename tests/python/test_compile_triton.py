"""Users' own Triton kernels inside torch.compile, against what they do alone and against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

XPU = "xpu"
FACTOR = tl.constexpr(3.5)
BACKENDS = ["eager", "aot_eager", "inductor"]
pytestmark = pytest.mark.usefixtures("fresh_compiler")


@triton.jit
def scaled(x, y, n, scale, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) * scale, i < n)


@triton.autotune([triton.Config({"B": 64}, num_warps=1), triton.Config({"B": 128})], key=["n"])
@triton.jit
def scaled_tuned(x, y, n, scale, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) * scale, i < n)


@triton.autotune(
    [triton.Config({"X": 16, "Y": 32}), triton.Config({"X": 32, "Y": 16})], key=["rows", "columns"]
)
@triton.jit
def added_2d(a, b, out, rows, columns, X: tl.constexpr, Y: tl.constexpr):
    row = (tl.program_id(0) * X + tl.arange(0, X))[:, None]
    column = (tl.program_id(1) * Y + tl.arange(0, Y))[None]
    i, inside = row * columns + column, (row < rows) & (column < columns)
    tl.store(out + i, tl.load(a + i, inside) + tl.load(b + i, inside), inside)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grid", ["numbers", "lambda", "function"])
@pytest.mark.parametrize("tuned", [False, True])
def test_grids_and_autotuning(dynamic: bool, backend: str, grid: str, tuned: bool) -> None:
    def call(x: Tensor) -> Tensor:
        y, n = torch.empty_like(x), x.numel()

        def function(meta: dict[str, Any]) -> tuple[int]:
            return (triton.cdiv(n, meta["B"]),)

        where = {
            "numbers": (n,),
            "lambda": lambda meta: (triton.cdiv(n, meta["B"]),),
            "function": function,
        }[grid]
        if tuned:
            scaled_tuned[where](x, y, n, 2.0)
        else:
            scaled[where](x, y, n, 2.0, B=64)
        return y + 1

    compiled = torch.compile(call, backend=backend, dynamic=dynamic, fullgraph=True)
    for n in (5, 1000):
        x = torch.rand(n, device=XPU)
        torch.testing.assert_close(compiled(x), x * 2 + 1)


def test_autotuning_over_two_dimensions() -> None:
    def call(a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty_like(a)
        rows, columns = a.shape
        added_2d[lambda m: (triton.cdiv(rows, m["X"]), triton.cdiv(columns, m["Y"]))](
            a, b, out, rows, columns
        )
        return out

    a, b = torch.rand(100, 70, device=XPU), torch.rand(100, 70, device=XPU)
    for dynamic in (False, True):
        torch.testing.assert_close(torch.compile(call, dynamic=dynamic)(a, b), a + b)


@pytest.mark.parametrize("at_compile_time", [False, True])
def test_autotuning_restores_what_the_kernel_overwrites(at_compile_time: bool) -> None:
    @triton.autotune([triton.Config({"B": 16}), triton.Config({"B": 32})], key=[], restore_value=["x"])
    @triton.jit
    def increment(x, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)

    def call(x: Tensor) -> Tensor:
        increment[lambda m: (triton.cdiv(x.numel(), m["B"]),)](x, n=x.numel())
        return x

    x = torch.rand(100, device=XPU)
    before = x.clone()
    with torch._inductor.config.patch({"triton.autotune_at_compile_time": at_compile_time}):
        torch.compile(call, fullgraph=True)(x)
    torch.testing.assert_close(x, before + 1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("n", [1, 2, 16])
def test_arguments_equal_to_one_and_divisible_by_sixteen(n: int, dynamic: bool) -> None:
    def call(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        scaled[(1,)](x, y, x.numel(), x.numel() ** 0 / 1.0, B=16)
        return y

    x = torch.rand(n, device=XPU)
    torch.testing.assert_close(torch.compile(call, dynamic=dynamic)(x), x)


def test_constants_of_all_kinds() -> None:
    @triton.jit
    def kernel(x, other, out, dtype: tl.constexpr, mode: tl.constexpr, odd: tl.constexpr, n, B: tl.constexpr):
        i = tl.arange(0, B)
        value = tl.load(x + i, i < n).to(dtype)
        if other is not None:
            value += tl.load(other + i, i < n)
        if mode == "scaled":
            value = value * FACTOR
        if odd:
            value += 1
        tl.store(out + i, value, i < n)

    def call(x: Tensor, other: Tensor | None, dtype: Any, mode: str | None) -> Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, other, out, dtype, mode, x.numel() % 2 == 1, x.numel(), 64)
        return out

    x = torch.rand(33, device=XPU)
    for dynamic in (False, True):
        compiled = torch.compile(call, fullgraph=True, dynamic=dynamic)
        torch.testing.assert_close(compiled(x, None, tl.float32, "scaled"), x * 3.5 + 1)
        torch.testing.assert_close(compiled(x[:32], x[1:], tl.float32, None), x[:32] + x[1:])
        torch.testing.assert_close(
            compiled(x, None, tl.bfloat16, None), (x.bfloat16() + 1).float(), rtol=0, atol=0
        )


def test_a_seed_of_64_bits() -> None:
    @triton.jit
    def noise(out, seed, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(out + i, tl.randint(seed, i))

    def call(seed: int) -> Tensor:
        out = torch.empty(256, dtype=torch.int32, device=XPU)
        noise[(1,)](out, seed, 256)
        return out

    # before 2.12 PyTorch itself stumbles over a constant of more than 31 bits, on any device
    constant = torch.__version__ >= (2, 12)
    for seed in (1 << 33, (1 << 62) + 5, 3):
        for dynamic in (True, *([False] if constant else [])):
            torch._dynamo.reset()
            assert torch.equal(torch.compile(call, dynamic=dynamic)(seed), call(seed))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tuned", [False, True])
def test_warps_and_stages_as_parameters(backend: str, tuned: bool) -> None:
    @triton.jit
    def kernel(x, y, n, B: tl.constexpr, num_warps: tl.constexpr, num_stages: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + i, tl.load(x + i, i < n) * num_stages + num_warps, i < n)

    if tuned:
        configs = [triton.Config({"B": b}, num_stages=3, num_warps=4) for b in (64, 128)]
        kernel = triton.autotune(configs, key=["n"])(kernel)
    fixed = {} if tuned else {"B": 128, "num_stages": 3, "num_warps": 4}

    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        kernel[lambda m: (triton.cdiv(x.numel(), m["B"]),)](x, y, x.numel(), **fixed)
        return y

    x = torch.rand(300, device=XPU)
    torch.testing.assert_close(call(x), x * 3 + 4)
    torch.testing.assert_close(torch.compile(call, fullgraph=True, backend=backend)(x), x * 3 + 4)


def test_views_that_alias() -> None:
    def call(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, right = x.split(64, 1)
        out = torch.empty_like(right, memory_format=torch.contiguous_format)
        added_2d[(2, 4)](right.contiguous(), left.contiguous(), out, 32, 64)
        bits = torch.empty(128, dtype=torch.float16, device=x.device)
        as_bf16 = bits.view(torch.bfloat16)
        scaled[(1,)](x, as_bf16, 128, 1.0, B=128)
        scaled[(1,)](x[1, 64:], out[3], 64, 2.0, B=64)
        return out, bits, as_bf16

    x = torch.rand(32, 128, device=XPU)
    for got, expected in zip(torch.compile(call, fullgraph=True)(x), call(x), strict=True):
        assert torch.equal(got.view(torch.int16), expected.view(torch.int16))


def test_one_kernel_after_another_and_between_operators() -> None:
    def call(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = torch.empty_like(x), torch.empty_like(x)
        scaled[(1,)](torch.mm(x, y), a, x.numel(), 2.0, B=256)
        scaled[(1,)](a, b, x.numel(), 3.0, B=256)
        scaled[(1,)](b, b, x.numel(), 0.5, B=256)
        return torch.mm(b, x) + 10, b.cpu() + 1

    x, y = torch.rand(16, 16, device=XPU), torch.rand(16, 16, device=XPU)
    for got, expected in zip(torch.compile(call)(x, y), call(x, y), strict=True):
        torch.testing.assert_close(got, expected)


def test_sizes_known_only_when_it_runs() -> None:
    def call(x: Tensor) -> Tensor:
        x = x[x > 0.5]
        y = torch.empty_like(x)
        scaled_tuned[lambda m: (triton.cdiv(x.numel(), m["B"]),)](x, y, x.numel(), 2.0)
        return y

    x = torch.rand(1000, device=XPU)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        torch.testing.assert_close(torch.compile(call, fullgraph=True)(x), x[x > 0.5] * 2)


class Doubled(torch.autograd.Function):
    """Kernels in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        scaled[(1,)](x, y, x.numel(), 2.0, B=64)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        out = torch.empty_like(grad)
        scaled[(1,)](y * grad, out, grad.numel(), 3.0, B=64)
        return out


def test_kernels_in_both_directions() -> None:
    def gradient(f: Callable[[Tensor], Tensor]) -> Tensor:
        x = torch.arange(40.0, device=XPU, requires_grad=True)
        f(x).sum().backward()
        assert x.grad is not None
        return x.grad

    def call(x: Tensor) -> Tensor:
        return Doubled.apply(x).square()

    torch.testing.assert_close(gradient(torch.compile(call, fullgraph=True)), gradient(call))


@pytest.mark.parametrize("tuned", [False, True])
def test_operators_made_of_kernels(tuned: bool) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.library import triton_op, wrap_triton

    @triton_op(f"openxpu_test::doubled_{tuned}", mutates_args={})
    def doubled(x: Tensor) -> Tensor:
        y, n = torch.empty_like(x), x.numel()
        if tuned:
            wrap_triton(scaled_tuned)[lambda m: (triton.cdiv(n, m["B"]),)](x, y, n, 2.0)
        else:
            wrap_triton(scaled)[(triton.cdiv(n, 64),)](x, y, n, 2.0, 64)
        return y

    x = torch.rand(100, device=XPU)
    torch.testing.assert_close(doubled(x), x * 2)
    torch.testing.assert_close(torch.compile(doubled, fullgraph=True)(x), x * 2)
    torch.testing.assert_close(make_fx(doubled, tracing_mode="symbolic")(x)(x), x * 2)


def test_torch_knows_what_a_kernel_writes() -> None:
    from torch._higher_order_ops.triton_kernel_wrap import get_mutated_tensors, kernel_side_table

    @triton.jit
    def kernel(a, b, c, d, e, n, B: tl.constexpr):
        i = tl.arange(0, B)
        total = tl.sum(tl.load(a + i, i < n), 0)
        tl.device_assert(total >= 0)
        tl.atomic_add(b, total)
        out = c
        for k in range(n):
            tl.store(out, total)
            out += k
        tl.store(e + i, tl.cumsum(tl.load(d + i), 0))

    tensors = {name: torch.rand(4, device=XPU) for name in "abcde"}
    index = kernel_side_table.add_kernel(kernel)
    constants = kernel_side_table.add_constant_args({"n": 4, "B": 4})
    assert set(get_mutated_tensors(index, constants, tensors, {})) == {"b", "c", "e"}


def test_block_descriptors() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def by_the_host(a, b, out, B: tl.constexpr):
        at = [tl.program_id(0) * B, 0]
        out.store(at, a.load(at) + b.load(at))

    @triton.jit
    def by_the_kernel(a, b, out, m, n, B: tl.constexpr):
        x = tl.make_tensor_descriptor(a, [m, n], [n, 1], [B, 32])
        y = tl.make_tensor_descriptor(b, [m, n], [n, 1], [B, 32])
        z = tl.make_tensor_descriptor(out, [m, n], [n, 1], [B, 32])
        at = [tl.program_id(0) * B, 0]
        z.store(at, x.load(at) + y.load(at))

    def host(a: Tensor, b: Tensor) -> Tensor:
        out = torch.zeros_like(a)
        by_the_host[(triton.cdiv(a.shape[0], 16),)](
            *(TensorDescriptor.from_tensor(t, [16, 32]) for t in (a, b, out)), B=16
        )
        return out

    def device(a: Tensor, b: Tensor) -> Tensor:
        out = torch.zeros_like(a)
        by_the_kernel[(triton.cdiv(a.shape[0], 16),)](a, b, out, *a.shape, B=16)
        return out

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=XPU))
    a, b = torch.rand(25, 28, device=XPU), torch.rand(25, 28, device=XPU)
    torch.testing.assert_close(host(a, b), a + b)  # PyTorch compiles these for CUDA alone
    torch.testing.assert_close(device(a, b), a + b)
    for dynamic in (False, True):
        torch.testing.assert_close(torch.compile(device, fullgraph=True, dynamic=dynamic)(a, b), a + b)


def test_special_functions_of_libdevice() -> None:
    @triton.jit
    def kernel(x, y, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(y + i, libdevice.fast_dividef(libdevice.erf(tl.load(x + i)), 3.14))

    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        kernel[(1,)](x, y, 64)
        return y

    x = torch.randn(64, device=XPU)
    torch.testing.assert_close(torch.compile(call)(x), x.erf() / 3.14)


def test_inference_mode_and_emulated_casts() -> None:
    def call(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        scaled[(1,)](x, y, x.numel(), 2.0, B=64)
        return y

    with torch.inference_mode(), torch._inductor.config.patch(emulate_precision_casts=True):
        x = torch.rand(50, device=XPU)
        torch.testing.assert_close(torch.compile(call)(x), x * 2)


def test_a_kernel_that_does_not_compile_says_so() -> None:
    @triton.jit
    def kernel(x):
        i = tl.program_id(0)
        if i < 5:
            j = i
        else:
            j = i.to(tl.int64)
        tl.store(x, j)

    def call(x: Tensor) -> Tensor:
        kernel[(1,)](x)
        return x

    with pytest.raises(torch._inductor.exc.InductorError, match="CompilationError"):
        torch.compile(call)(torch.rand(5, device=XPU))


def test_assembly_is_refused_at_compilation() -> None:
    @triton.jit
    def kernel(x, B: tl.constexpr):
        i = tl.arange(0, B)
        v = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + i)], tl.int32, True, 1)
        tl.store(x + i, v)

    def call(x: Tensor) -> Tensor:
        kernel[(1,)](x, 16)
        return x

    with pytest.raises(Exception, match="assembly"):
        torch.compile(call)(torch.zeros(16, dtype=torch.int32, device=XPU))
