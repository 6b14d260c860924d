"""Dots in Triton kernels on NVIDIA's tensor cores, on the GPU itself or with emulated instructions."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import run
import torch
import triton
import triton.language as tl
from comparing import assert_close
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGET = "nvidia" if run.TARGETS[0] == "cpu" else run.TARGETS[0]
pytestmark = pytest.mark.skipif(
    TARGET != "nvidia" and "NVIDIA" not in torch.xpu.get_device_name(),
    reason="another GPU runs tests/tile/test_triton.py",
)

NVIDIA = (
    "nvidia is_cpu=0 has_subgroups=0 has_fp16=0 has_fp64=1 has_atomic64=1 has_float_atomics=0 lanes=32 max_lanes=1024 "
    "local_memory=49152 has_inline_ptx=1 has_ptx_bf16=1 matrix_lanes=32 has_matrix_tf32=1 has_packed_dot=0 "
    "has_block_2d=0"
)
POINTERS = {
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.float8_e5m2: "*fp8e5",
}


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


class Built:
    """A Triton function for NVIDIA GPUs, specialized for multiples of 16 and for 1 as Triton does."""

    def __init__(self, function, num_warps: int, arguments: dict, constants: dict) -> None:
        types, attributes = {}, {}
        constants = dict(constants)
        for index, (name, x) in enumerate(arguments.items()):
            if isinstance(x, torch.Tensor):
                types[name] = POINTERS[x.dtype]
            elif isinstance(x, int) and x == 1:
                constants[name] = 1
                continue
            else:
                types[name] = "fp32" if isinstance(x, float) else "i32"
            if isinstance(x, torch.Tensor) or (isinstance(x, int) and x % 16 == 0):
                attributes[(index,)] = [["tt.divisibility", 16]]
        names = list(arguments) + [n for n in constants if n not in arguments]
        signature = {n: types.get(n, "constexpr") for n in names}
        built = triton.compile(
            ASTSource(function, signature, constants, attributes),
            target=GPUTarget("xpu", NVIDIA, 32),
            options={"num_warps": num_warps},
        )
        self.kernel = run.Kernel(built.asm["ttir"], TARGET, num_warps)
        self.arguments = [x for n, x in arguments.items() if n in types]

    def __call__(self, *grid: int) -> None:
        self.kernel(grid, *(self._array(x) if isinstance(x, torch.Tensor) else x for x in self.arguments))

    @staticmethod
    def _array(x: torch.Tensor) -> np.ndarray:
        bits = {2: torch.int16, 1: torch.uint8}.get(x.element_size(), x.dtype)
        return (x if x.dtype == torch.int8 else x.view(bits)).numpy()


def products_in(source: str) -> int:
    """Return how many dots of the kernel use the matrix engine."""
    return len(re.findall(r"fragment_a a\d+\[", source))


@triton.jit
def product(
    a, b, c, bias, M, N, K, a_m, a_k, b_k, b_n,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, SUM: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), SUM)
    for start in range(0, K, BK):
        at = start + k
        left = tl.load(
            a + m[:, None] * a_m + at[None, :] * a_k, mask=(m < M)[:, None] & (at < K)[None, :], other=0.0
        )
        right = tl.load(
            b + at[:, None] * b_k + n[None, :] * b_n, mask=(at < K)[:, None] & (n < N)[None, :], other=0.0
        )
        sums = tl.dot(left, right, sums, input_precision=PRECISION, out_dtype=SUM)
    if ENDS:
        sums = tl.maximum(sums + tl.load(bias + n, mask=n < N, other=0.0)[None, :], 0.0)
    tl.store(c + m[:, None] * N + n[None, :], sums, mask=(m < M)[:, None] & (n < N)[None, :])


def compare(
    random, dtype, M, N, K, blocks, num_warps, turned=(False, False), ends=False, precision="tf32"
) -> str:
    """Multiply as Triton programs do and compare with float64."""

    def matrix(rows: int, columns: int, is_turned: bool) -> torch.Tensor:
        x = torch.from_numpy(
            random.standard_normal((columns, rows) if is_turned else (rows, columns))
        ).float()
        x = (x * 40).clamp(-128, 127) if dtype == torch.int8 else x
        return x.to(dtype).T if is_turned else x.to(dtype)

    a, b = matrix(M, K, turned[0]), matrix(K, N, turned[1])
    is_int = dtype == torch.int8
    c = torch.zeros(M, N, dtype=torch.int32 if is_int else torch.float32)
    bias = torch.from_numpy(random.standard_normal(N)).float()
    BM, BN, BK = blocks
    names = ("M", "N", "K", "a_m", "a_k", "b_k", "b_n")
    numbers = dict(zip(names, (M, N, K, *a.stride(), *b.stride()), strict=True))
    flat = [x.T if x.stride(0) == 1 else x for x in (a, b)]
    constants = {
        "BM": BM,
        "BN": BN,
        "BK": BK,
        "PRECISION": precision,
        "SUM": tl.int32 if is_int else tl.float32,
        "ENDS": ends,
    }
    built = Built(
        product,
        num_warps,
        {"a": flat[0].contiguous(), "b": flat[1].contiguous(), "c": c, "bias": bias, **numbers},
        constants,
    )
    built(math.ceil(M / BM), math.ceil(N / BN))
    wanted = a.double() @ b.double()
    largest = float((a.double().abs() @ b.double().abs()).max())
    if ends:
        wanted = (wanted + bias.double()).clamp(min=0)
    rounding = 0 if is_int else 2.0**-10 if dtype == torch.float32 else 2.0**-20
    assert_close(c, wanted, dtype=c.dtype, rtol=0, atol=largest * rounding, device=None)
    return built.kernel.program.source


DTYPES = [torch.float16, torch.bfloat16, torch.int8, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_layouts(random, dtype, turned):
    source = compare(random, dtype, 80, 48, 96, (32, 32, 32), 4, turned)
    assert products_in(source) == 1
    along = [not turned[0], turned[1]]  # 8-bit operands must be K-major and are transposed one by one
    copied = 0 if "float8" in str(dtype) else sum(along) if dtype == torch.int8 else 2
    assert (
        source.count("copy_part_async(LOCAL_TILE_ADDRESS") == 2 * copied
    )  # before the loop, and in the loop for later iterations


@pytest.mark.parametrize(
    ("M", "N", "K", "blocks", "num_warps", "ends"),
    [
        (33, 17, 45, (16, 16, 16), 1, True),
        (100, 100, 100, (64, 32, 32), 2, True),
        (200, 130, 70, (128, 64, 64), 8, False),
        (64, 300, 129, (32, 256, 16), 8, True),
        (130, 128, 128, (128, 128, 32), 4, True),
        (17, 200, 250, (16, 64, 128), 4, False),
        (256, 16, 40, (256, 16, 32), 8, False),
        (70, 70, 64, (64, 64, 32), 1, True),
        (40, 40, 16, (32, 32, 16), 2, True),  # one step, then two, of three stages
        (40, 40, 32, (32, 32, 16), 2, False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_blocks_with_remainders(random, dtype, M, N, K, blocks, num_warps, ends):
    if dtype == torch.float32 and (blocks[0] + blocks[1]) * blocks[2] * 4 > 40000:
        blocks = (blocks[0], blocks[1], blocks[2] // 2)
    assert products_in(compare(random, dtype, M, N, K, blocks, num_warps, ends=ends)) == 1


def test_fp32_is_exact_unless_tf32_is_asked_for(random):
    source = compare(random, torch.float32, 64, 64, 64, (32, 32, 32), 4, precision="ieee")
    assert "LOCAL_TILE_ADDRESS" not in source


@triton.jit
def attention(
    q, k, v, out, largest_out, scale, N,
    DEPTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, DEPTH)
    n = tl.arange(0, BN)
    queries = tl.load(q + m[:, None] * DEPTH + d[None, :], mask=(m < N)[:, None], other=0.0)
    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, DEPTH), tl.float32)
    for start in range(0, N, BN):
        at = start + n
        keys = tl.load(k + at[None, :] * DEPTH + d[:, None], mask=(at < N)[None, :], other=0.0)
        scores = tl.dot(queries, keys) * scale
        seen = (at < N)[None, :]
        if CAUSAL:
            seen = seen & (m[:, None] >= at[None, :])
        scores = tl.where(seen, scores, float("-inf"))
        next = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - next[:, None])
        shrink = tl.exp2(largest - next)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + at[:, None] * DEPTH + d[None, :], mask=(at < N)[:, None], other=0.0)
        sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
        largest = next
    tl.store(out + m[:, None] * DEPTH + d[None, :], sums / total[:, None], mask=(m < N)[:, None])
    tl.store(largest_out + m, largest, mask=m < N)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("N", "depth", "BM", "BN", "num_warps", "causal"),
    [
        (70, 32, 32, 32, 2, True),
        (100, 64, 64, 32, 4, False),
        (130, 64, 64, 64, 8, True),
        (40, 16, 16, 16, 1, False),
    ],
)
def test_attention(random, dtype, N, depth, BM, BN, num_warps, causal):
    q, k, v = (torch.from_numpy(random.standard_normal((N, depth))).to(dtype) for _ in range(3))
    out, largest = torch.zeros(N, depth), torch.zeros(N)
    scale = 1 / math.sqrt(depth)
    arguments = {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "largest_out": largest,
        "scale": scale * math.log2(math.e),
        "N": N,
    }
    built = Built(attention, num_warps, arguments, {"DEPTH": depth, "BM": BM, "BN": BN, "CAUSAL": causal})
    built(math.ceil(N / BM))
    assert products_in(built.kernel.program.source) == 2
    scores = q.double() @ k.double().T * scale
    if causal:
        scores = scores.masked_fill(torch.ones(N, N).triu(1).bool(), -math.inf)
    torch.testing.assert_close(
        largest.double(), scores.max(1).values * math.log2(math.e), rtol=1e-5, atol=1e-5
    )
    bits = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
    torch.testing.assert_close(out.double(), scores.softmax(1) @ v.double(), rtol=0, atol=4 * bits)


@triton.jit
def reduced(
    a, b, rows, largest, where, columns, ratios, running,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    c = tl.dot(tl.load(a + m[:, None] * BK + k[None, :]), tl.load(b + k[:, None] * BN + n[None, :]))
    total = tl.sum(c, 1)
    best, index = tl.max(c, 1, return_indices=True)
    tl.store(rows + m, total)
    tl.store(largest + m, best)
    tl.store(where + m, index)
    tl.store(columns + n, tl.sum(c * c, 0))
    tl.store(ratios + m[:, None] * BN + n[None, :], (c + best[:, None]) / total[:, None])
    tl.store(running + m[:, None] * BN + n[None, :], tl.cumsum(c, 1))


@pytest.mark.parametrize(
    ("BM", "BN", "BK", "num_warps"),
    [(64, 32, 32, 4), (16, 64, 16, 1), (128, 64, 32, 8), (32, 128, 16, 4), (16, 32, 16, 8)],
)
def test_reductions_of_sums(random, BM, BN, BK, num_warps):
    a, b = (torch.from_numpy(random.standard_normal(s)).bfloat16() for s in ((BM, BK), (BK, BN)))
    rows, largest, where, columns = (
        torch.zeros(BM),
        torch.zeros(BM),
        torch.zeros(BM, dtype=torch.int32),
        torch.zeros(BN),
    )
    ratios, running = torch.zeros(BM, BN), torch.zeros(BM, BN)
    arguments = {
        "a": a,
        "b": b,
        "rows": rows,
        "largest": largest,
        "where": where,
        "columns": columns,
        "ratios": ratios,
        "running": running,
    }
    built = Built(reduced, num_warps, arguments, {"BM": BM, "BN": BN, "BK": BK})
    built(1)
    assert products_in(built.kernel.program.source) == 1
    c = a.double() @ b.double()
    close = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(rows.double(), c.sum(1), **close)
    torch.testing.assert_close(largest.double(), c.max(1).values, **close)
    assert torch.equal(where.long(), c.argmax(1))
    torch.testing.assert_close(columns.double(), (c * c).sum(0), **close)
    wanted = (c + c.max(1, keepdim=True).values) / c.sum(1, keepdim=True)
    assert_close(
        ratios, wanted, dtype=ratios.dtype, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()), device=None
    )
    torch.testing.assert_close(running.double(), c.cumsum(1), **close)
