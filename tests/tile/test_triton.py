"""User-level Triton kernels on xpu, compared with PyTorch on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparing import assert_close

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from openxpu._tile import compile_module  # noqa: E402
from openxpu.triton import compiler  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

XPU = "xpu"
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def generator(seed: int = 0) -> torch.Generator:
    """Return a generator with a fixed seed."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Return normally distributed values on the CPU."""
    return torch.randn(shape, generator=generator(seed)).to(dtype)


def integers(*shape: int, low: int = -100, high: int = 100, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Return uniform integers on the CPU."""
    return torch.randint(low, high, shape, generator=generator()).to(dtype)


def close(actual: torch.Tensor, expected: torch.Tensor, **tolerance: float) -> None:
    """Assert that a result on xpu equals the CPU's, to the dtype's accuracy."""
    assert actual.device.type == "xpu"
    assert_close(actual, expected.to(actual.dtype), **tolerance)


def product_tolerance(a: torch.Tensor, b: torch.Tensor) -> dict[str, float]:
    """Return the tolerance of float32 ``tl.dot``, which uses tf32 (11 bits) on matrix engines by default."""
    if torch.xpu.get_device_capability()["type"] == "cpu":
        return {"rtol": 1e-5, "atol": 1e-4}
    return {"rtol": 0, "atol": 2**-9 * float((a.abs() @ b.abs()).max())}


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64, torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("n", [1, 1000, 4096, 70001])
def test_add(dtype: torch.dtype, n: int) -> None:
    x, y = (
        normal(n, seed=s).to(dtype) if dtype.is_floating_point else integers(n, dtype=dtype) for s in (0, 1)
    )
    out = torch.full((n + 8,), 7, dtype=dtype, device=XPU)
    add_kernel[(triton.cdiv(n, 1024),)](x.to(XPU), y.to(XPU), out, n, BLOCK=1024)
    close(out[:n], x + y)
    assert (out[n:] == 7).all()


def test_grid_may_be_a_function_and_empty() -> None:
    x = normal(100)
    out = torch.zeros(100, device=XPU)
    add_kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x.to(XPU), x.to(XPU), out, 100, BLOCK=32)
    close(out, 2 * x)
    add_kernel[(0,)](out, out, out, 100, BLOCK=32)
    close(out, 2 * x)


@triton.jit
def softmax_kernel(out, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + at, v / tl.sum(v, axis=0), mask=at < columns)


@pytest.mark.parametrize("columns", [1, 17, 256, 1000, 4096])
def test_softmax(columns: int) -> None:
    x = normal(9, columns)
    out = torch.empty(9, columns, device=XPU)
    softmax_kernel[(9,)](out, x.to(XPU), columns, columns, BLOCK=triton.next_power_of_2(columns))
    close(out, x.softmax(1))


@triton.jit
def layer_norm_kernel(x, out, weight, bias, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.where(at < n, tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32) - mean, 0.0)
        squares += v * v
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n).to(tl.float32)
        v = (v - mean) * rstd * tl.load(weight + at, mask=at < n) + tl.load(bias + at, mask=at < n)
        tl.store(out + row * n + at, v, mask=at < n)


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm(dtype: torch.dtype) -> None:
    x, weight, bias = (
        normal(5, 777, dtype=dtype),
        normal(777, dtype=dtype, seed=1),
        normal(777, dtype=dtype, seed=2),
    )
    out = torch.empty(5, 777, dtype=dtype, device=XPU)
    layer_norm_kernel[(5,)](x.to(XPU), out, weight.to(XPU), bias.to(XPU), 777, 1e-5, BLOCK=256)
    expected = torch.nn.functional.layer_norm(x.float(), (777,), weight.float(), bias.float())
    close(out, expected.to(dtype))


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(
            a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0
        )
        y = tl.load(
            b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        acc = tl.dot(x, y, acc)
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        acc.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 70, 50), (33, 129, 257)])
def test_matmul(dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
    c = torch.empty(m, n, dtype=dtype, device=XPU)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    matmul_kernel[grid](a.to(XPU), b.to(XPU), c, m, n, k, BM=32, BN=32, BK=32)
    expected = (a.double() @ b.double()).to(dtype)
    close(
        c,
        expected,
        **(product_tolerance(a, b) if dtype is torch.float32 else {"rtol": 1e-2, "atol": 1e-2}),
    )


@triton.jit
def wrapped_kernel(x, out, first, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + (first * 16 + at) % n) + tl.load(x + (first * 16 + at) // n))


@pytest.mark.parametrize("n", [16, 48, 50, -48])
@pytest.mark.parametrize("first", [0, 5, -2])
def test_indices_around_the_end(first: int, n: int) -> None:
    x, out = normal(200).to(XPU), torch.empty(64, device=XPU)
    wrapped_kernel[(1,)](x[100:], out, first, n, BLOCK=64)
    at = first * 16 + torch.arange(64)
    quotient = torch.div(at, n, rounding_mode="trunc")
    close(out, x.cpu()[100 + at - quotient * n] + x.cpu()[100 + quotient])


@triton.jit
def rows_kernel(x, largest, where, total, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + c[None, :])
    value, index = tl.max(v, axis=1, return_indices=True)
    tl.store(largest + r, value)
    tl.store(where + r, index)
    tl.store(total + c, tl.sum(v, axis=0))


def test_reductions_along_both_dimensions() -> None:
    x = normal(16, 64)
    largest, where = torch.empty(16, device=XPU), torch.empty(16, dtype=torch.int32, device=XPU)
    total = torch.empty(64, device=XPU)
    rows_kernel[(1,)](x.to(XPU), largest, where, total, M=16, N=64)
    close(largest, x.max(1).values)
    close(where, x.argmax(1))
    close(total, x.sum(0))


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    delta, n = mean_b - mean_a, n_a + n_b
    share = tl.where(n == 0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def variance_kernel(x, out, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + r[:, None] * N + c[None, :])
    _, m2, n = tl.reduce((v, tl.zeros_like(v), tl.full(v.shape, 1.0, tl.float32)), 1, welford)
    tl.store(out + r, m2 / n)


@triton.jit
def columns_kernel(
    x,
    sums,
    wheres,
    out,
    columns: tl.constexpr,
    rows: tl.constexpr,
    X: tl.constexpr,
    R: tl.constexpr,
    MASKED: tl.constexpr,
    APART: tl.constexpr,
):
    column = tl.program_id(0) * X + tl.arange(0, X)[:, None]
    inside = column < columns
    total = tl.zeros([X, R], tl.float32)
    for first in range(0, rows, R):
        row = first + tl.arange(0, R)[None, :]
        if MASKED:
            value = tl.load(x + row * columns + column, inside & (row < rows), 0.0)
            tl.store(out + row * columns + column, value * 2, inside & (row < rows))
        else:
            value = tl.load(x + row * columns + column)
            tl.store(out + row * columns + column, value * 2)
        total += value
    if MASKED:
        tl.store(sums + column, tl.sum(total, 1)[:, None], inside)
    else:
        tl.store(sums + column, tl.sum(total, 1)[:, None])
    if APART:  # programs with distinguishable columns are not merged
        tl.store(wheres + column, tl.program_id(0) + tl.zeros([X, 1], tl.int32), inside)


@pytest.mark.parametrize("block", [2, 4, 8])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("apart", [False, True])
def test_programs_of_a_few_columns(block: int, masked: bool, apart: bool) -> None:
    columns, rows = 120, 37 if masked else 64
    x = normal(rows, columns)
    for programs in (columns // block, columns // block - 1, 3, 1):
        done = programs * block
        sums, out = torch.full((columns,), -1.0, device=XPU), torch.full((rows, columns), -1.0, device=XPU)
        wheres = torch.full((columns,), -1, dtype=torch.int32, device=XPU)
        kernel = columns_kernel[(programs,)](
            x.to(XPU), sums, wheres, out, columns, rows, X=block, R=32, MASKED=masked, APART=apart
        )
        close(sums[:done], x[:, :done].sum(0))
        close(out[:, :done], x[:, :done] * 2, rtol=0, atol=0)
        if apart:
            assert torch.equal(wheres[:done].cpu(), torch.arange(done, dtype=torch.int32) // block)
        for untouched in (sums[done:], out[:, done:], wheres[done if apart else 0 :]):
            assert (untouched == -1).all()
        source = compile_module(kernel.asm["ttir"].encode()).source
        assert ("XPU_GROUP(0) %" in source) == (not apart)


@triton.jit
def few_columns_kernel(x, scale, total, best, place, rows, columns, X: tl.constexpr, R: tl.constexpr):
    column = tl.program_id(0) * X + tl.arange(0, X)[:, None]
    weight = tl.load(scale + column, column < columns)
    sums = tl.zeros([X, R], tl.float32)
    high = tl.full([X, 1], float("-inf"), tl.float32)
    at = tl.zeros([X, 1], tl.int32)
    for first in range(0, rows, R):
        row = first + tl.arange(0, R)[None, :]
        inside = (row < rows) & (column < columns)
        value = tl.load(x + row * columns + column, inside, 0.0) * weight
        sums += value
        top, where = tl.max(tl.where(inside, value, float("-inf")), 1, return_indices=True)
        at = tl.where(top[:, None] > high, first + where[:, None], at)
        high = tl.maximum(high, top[:, None])
    tl.store(total + column, tl.sum(sums, 1)[:, None], column < columns)
    tl.store(best + column, high, column < columns)
    tl.store(place + column, at, column < columns)


@pytest.mark.parametrize("block", [4, 8])
@pytest.mark.parametrize("columns", [4, 6, 24])
def test_reductions_down_a_few_columns(block: int, columns: int) -> None:
    x, scale = normal(100, columns), normal(columns, seed=1)
    total, best = (torch.full((columns + 16,), -7.0, device=XPU) for _ in range(2))
    place = torch.full((columns + 16,), -7, dtype=torch.int32, device=XPU)
    grid = (triton.cdiv(columns, block),)
    few_columns_kernel[grid](x.to(XPU), scale.to(XPU), total, best, place, 100, columns, X=block, R=64)
    high, where = (x * scale).max(0)
    close(total[:columns], (x.double() * scale.double()).sum(0), rtol=1e-5, atol=1e-5)
    close(best[:columns], high)
    close(place[:columns], where.int())
    assert all((out[columns:] == -7).all() for out in (total, best, place))


def test_a_reduction_of_three_values_with_a_function_of_the_users() -> None:
    x = normal(8, 128) + 3
    out = torch.empty(8, device=XPU)
    variance_kernel[(1,)](x.to(XPU), out, M=8, N=128)
    close(out, x.var(1, correction=0))


@triton.jit
def scan_kernel(x, sums, products, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + tl.program_id(0) * N + at)
    tl.store(sums + tl.program_id(0) * N + at, tl.cumsum(v, 0))
    tl.store(products + tl.program_id(0) * N + at, tl.cumprod(v, 0, reverse=True))


def test_scans() -> None:
    x = normal(3, 64) * 0.2 + 1
    sums, products = torch.empty(3, 64, device=XPU), torch.empty(3, 64, device=XPU)
    scan_kernel[(3,)](x.to(XPU), sums, products, N=64)
    close(sums, x.cumsum(1))
    close(products, x.flip(1).cumprod(1).flip(1))


@triton.jit
def sort_kernel(x, out, N: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.sort(tl.load(x + at), descending=DESCENDING))


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool) -> None:
    x = normal(128)
    out = torch.empty(128, device=XPU)
    sort_kernel[(1,)](x.to(XPU), out, N=128, DESCENDING=descending)
    close(out, x.sort(descending=descending).values)


@triton.jit
def atomics_kernel(counts, most, values, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(values + at, mask=at < n, other=0)
    tl.atomic_add(counts + v, 1, mask=at < n)
    tl.atomic_max(most + 0 * at, v, mask=at < n)


def test_atomics() -> None:
    values = integers(10000, low=0, high=10)
    counts, most = (
        torch.zeros(10, dtype=torch.int32, device=XPU),
        torch.zeros(1, dtype=torch.int32, device=XPU),
    )
    atomics_kernel[(triton.cdiv(10000, 256),)](counts, most, values.to(XPU), 10000, BLOCK=256)
    close(counts, values.bincount(minlength=10))
    assert most.item() == 9


@triton.jit
def half(x):
    return x // 2


@triton.jit
def collatz_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    n = tl.load(x + i)
    steps = 0
    while n > 1:
        if n % 2 == 0:
            n = half(n)
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(out + i, steps)


def test_control_flow_and_calls() -> None:
    def steps(n: int) -> int:
        count = 0
        while n > 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    x = torch.arange(1, 40, dtype=torch.int64)
    out = torch.empty(39, dtype=torch.int32, device=XPU)
    collatz_kernel[(39,)](x.to(XPU), out, BLOCK=1)
    assert out.tolist() == [steps(n) for n in x.tolist()]


@triton.jit
def math_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, libdevice.erf(v))
    tl.store(out + N + at, libdevice.tanh(v))
    tl.store(out + 2 * N + at, tl.exp2(v))
    tl.store(out + 3 * N + at, tl.sqrt(tl.abs(v)))
    tl.store(out + 4 * N + at, libdevice.pow(tl.abs(v), 1.5))
    tl.store(out + 5 * N + at, tl.sigmoid(v))


def test_mathematical_functions() -> None:
    x = normal(256)
    out = torch.empty(6, 256, device=XPU)
    math_kernel[(1,)](x.to(XPU), out, N=256)
    expected = (x.erf(), x.tanh(), x.exp2(), x.abs().sqrt(), x.abs().pow(1.5), x.sigmoid())
    close(out, torch.stack(expected), rtol=1e-6, atol=1e-6)


@triton.jit
def random_kernel(out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.randint(seed, at))
    tl.store(out + N + at, tl.rand(seed, at).to(tl.int32, bitcast=True))


def philox(seed: int, offset: int) -> int:
    """Return the first numbers of Philox 4x32-10, from its definition (Salmon et al., SC 2011)."""
    c, k, mask = [offset, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & mask, (a >> 32) ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[0]


def test_random_bits_are_tritons() -> None:
    out = torch.empty(2, 64, dtype=torch.int32, device=XPU)
    random_kernel[(1,)](out, 12345, N=64)
    assert [n & 0xFFFFFFFF for n in out[0].tolist()] == [philox(12345, i) for i in range(64)]
    uniform = out[1].cpu().view(torch.float32)
    assert (uniform >= 0).all() and (uniform < 1).all() and uniform.unique().numel() > 60


@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (64, 256, 1024)], key=["n"])
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def test_autotune() -> None:
    x = normal(5000)
    out = torch.empty(5000, device=XPU)
    tuned_kernel[lambda meta: (triton.cdiv(5000, meta["BLOCK"]),)](x.to(XPU), out, 5000)
    close(out, 2 * x)
    assert tuned_kernel.best_config.kwargs["BLOCK"] in (64, 256, 1024)


@triton.jit
def scalars_kernel(out, i, u, f, flag, nothing, N: tl.constexpr):
    if nothing is None:
        tl.store(out, i)
        tl.store(out + 1, u)
        tl.store(out + 2, f)
        tl.store(out + 3, tl.where(flag, 1.0, 2.0))


def test_scalars_of_all_kinds() -> None:
    out = torch.empty(4, dtype=torch.float64, device=XPU)
    scalars_kernel[(1,)](out, -(1 << 40), (1 << 63) + (1 << 40), 0.25, True, None, N=1)
    assert out.tolist() == [-(1 << 40), float((1 << 63) + (1 << 40)), 0.25, 1.0]


def test_wrong_arguments_are_refused() -> None:
    x = torch.ones(8, device=XPU)
    with pytest.raises(ValueError, match=r"argument \(at 1\) is a cpu tensor"):
        add_kernel[(1,)](x, torch.ones(8), x, 8, BLOCK=8)
    with pytest.raises(ValueError, match="grid dimension 0 is -1"):
        add_kernel[(-1,)](x, x, x, 8, BLOCK=8)


@triton.jit
def products_kernel(x, out, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + row[:, None] * N + column[None, :])
    b = tl.load(x + (M - 1 - row)[:, None] * N + column[None, :])
    s = tl.dot(a, tl.trans(b), input_precision="ieee")
    t = tl.dot(b, tl.trans(a), input_precision="ieee")
    total = tl.dot(t, s, tl.dot(s, t, input_precision="ieee"), input_precision="ieee")
    tl.store(out + row[:, None] * M + row[None, :], total)


@pytest.mark.skipif(torch.xpu.get_device_properties().type != "cpu", reason="of a processor's local memory")
def test_blocks_of_a_processor_may_need_more_than_a_gpu_has() -> None:
    a = normal(256, 128, dtype=torch.float64)
    b = a.flip(0)
    out = torch.empty(256, 256, device=XPU)
    products_kernel[(1,)](a.float().to(XPU), out, 256, 128)
    s, t = a @ b.T, b @ a.T
    close(out, s @ t + t @ s, rtol=1e-4, atol=1e-2)


def test_a_block_that_is_too_large_is_out_of_resources() -> None:
    x = torch.zeros(1, device=XPU)
    with pytest.raises(triton.runtime.errors.OutOfResources, match="local memory"):
        softmax_kernel[(1,)](x, x, 1 << 20, 1, BLOCK=1 << 20)


@triton.jit
def assembly_kernel(x, N: tl.constexpr):
    at = tl.arange(0, N)
    v: Any = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + at)], tl.int32, True, 1)
    tl.store(x + at, v)


def test_assembly_is_refused() -> None:
    with pytest.raises(Exception, match="inline"):
        assembly_kernel[(1,)](torch.ones(16, dtype=torch.int32, device=XPU), N=16)


@triton.jit
def descriptor_product_kernel(a, b, c, M, N, K, BLOCK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK, BLOCK])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BLOCK, BLOCK])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK, BLOCK])
    m, n = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        total = tl.dot(left.load([m, k]), right.load([n, k]).T, total)
    out.store([m, n], total)


def test_descriptors_in_a_product() -> None:
    a, b = normal(70, 96), normal(50, 96, seed=1)
    c = torch.zeros(70, 50, device=XPU)
    descriptor_product_kernel[(3, 2)](a.to(XPU), b.to(XPU), c, 70, 50, 96, BLOCK=32)
    close(c, a.double() @ b.double().T, **product_tolerance(a, b.T))


@pytest.mark.parametrize("reads_blocks", [0, 1])
def test_descriptors_stay_for_devices_that_read_blocks(reads_blocks: int) -> None:
    device = torch.xpu.get_device_capability()
    arch = f"{device['target']} is_cpu=0 matrix_lanes=16 has_block_2d={reads_blocks}"
    types = dict.fromkeys("abc", "*fp16") | {"c": "*fp32"} | dict.fromkeys("MNK", "i32")
    source = ASTSource(descriptor_product_kernel, types | {"BLOCK": "constexpr"}, {"BLOCK": 32})
    built = triton.compile(source, target=GPUTarget("xpu", arch, 16))
    assert ("descriptor_load" in built.asm["ttir"]) == bool(reads_blocks)
    assert (b"2d_block_read" in built.asm[compiler.BINARY]) == bool(reads_blocks)


@triton.jit
def swap_kernel(places, expected, new, old, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    seen = tl.atomic_cas(places + i, tl.load(expected + i), tl.load(new + i))
    tl.store(old + i, seen)


SWAPPED = (torch.int16, torch.int32, torch.int64, *FLOATS, torch.float64)


@pytest.mark.parametrize("dtype", SWAPPED, ids=str)
def test_comparing_and_swapping(dtype: torch.dtype) -> None:
    columns = ([1, 2, -3, 40] * 4, [1, 5, -3, 40] * 4, [7, 8, -9, 10] * 4, [0] * 16)
    places, expected, new, old = (torch.tensor(c, dtype=dtype, device=XPU) for c in columns)
    swap_kernel[(1,)](places, expected, new, old, BLOCK=16)
    assert places.tolist() == [7, 2, -9, 10] * 4
    assert old.tolist() == columns[0]


@triton.jit
def shared_by_column_kernel(
    x, bits, out, bound,
    KIND: tl.constexpr, REDUCE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    shared = tl.broadcast_to(tl.load(x + tl.arange(0, ROWS))[:, None], (ROWS, COLUMNS))
    column = tl.arange(0, COLUMNS)[None, :]
    if KIND == "computed":
        chosen = column % 2 == 0
    elif KIND == "loaded":
        chosen = tl.load(bits + column) != 0
    else:
        chosen = column < bound
    y = tl.where(chosen, shared, shared * 2)
    if REDUCE == "sum":
        result = tl.sum(y, axis=0)
    elif REDUCE == "max":
        result = tl.max(y, axis=0)
    else:
        result = tl.reduce(y, 0, _multiplied)
    tl.store(out + tl.arange(0, COLUMNS), result)


@triton.jit
def _multiplied(a, b):
    return a * b


@pytest.mark.parametrize("shape", [(4, 2), (8, 8), (8, 32), (16, 16), (64, 16), (128, 64)], ids=str)
@pytest.mark.parametrize("kind", ["computed", "loaded", "bound"])
@pytest.mark.parametrize("reduce", ["sum", "product", "max"])
def test_choices_by_column_between_shared_values(shape: tuple[int, int], kind: str, reduce: str) -> None:
    dtypes = (torch.float32, torch.int32, torch.float64)
    dtype = dtypes[(shape[0] + len(kind) + len(reduce)) % 3]
    x = integers(shape[0], low=-1 if reduce == "product" else 1, high=2 if reduce == "product" else 9)
    x = torch.where(x == 0, 1, x).to(dtype)
    bits = integers(shape[1], low=0, high=2)
    column = torch.arange(shape[1])
    bound = shape[1] // 2 + 1
    chosen = {"computed": column % 2 == 0, "loaded": bits != 0, "bound": column < bound}[kind]
    y = torch.where(chosen[None, :], x[:, None], x[:, None] * 2)
    expected = {"sum": y.sum, "product": y.prod, "max": y.amax}[reduce](0)
    out = torch.empty(shape[1], dtype=dtype, device=XPU)
    shared_by_column_kernel[(1,)](
        x.to(XPU), bits.to(XPU), out, bound, KIND=kind, REDUCE=reduce, ROWS=shape[0], COLUMNS=shape[1]
    )
    close(out, expected)
