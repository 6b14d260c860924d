"""Typical Triton kernels, compiled from the IR in ``data/ttir.tar.xz``, compared with NumPy and PyTorch.

Each kernel runs as emitted for the CPU (one subgroup per program), for Intel GPUs (several subgroups) and for
GPUs without subgroups. The CPU device runs all three.
"""

from __future__ import annotations

import importlib.util
import re
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from openxpu import _tile

FOLDER = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("tile_run", FOLDER / "run.py")
run = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(run)

F32, F16, I32 = np.float32, np.float16, np.int32


@cache
def corpus() -> dict[str, str]:
    """Return the modules of the corpus whose names start with "hand_", keyed by the rest of the name."""
    with tarfile.open(FOLDER / "data" / "ttir.tar.xz") as archive:
        return {
            Path(member.name).stem.removeprefix("hand_"): archive.extractfile(member).read().decode()
            for member in archive
            if "hand_" in member.name
        }


@pytest.fixture(params=run.TARGETS)
def kernel(request) -> Callable[[str], run.Kernel]:
    """Compile a module of the corpus by name."""
    return lambda name: run.Kernel(corpus()[name], request.param)


@pytest.fixture
def random() -> Iterator[np.random.Generator]:
    yield np.random.default_rng(0)


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(F32)


def to_bf16(a: np.ndarray) -> np.ndarray:
    return (a.view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(a: np.ndarray) -> np.ndarray:
    return (a.astype(np.uint32) << 16).view(F32)


def close(actual: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)


same = np.testing.assert_array_equal


def test_add_with_a_masked_tail(random, kernel):
    x, y, out = normal(random, 3000), normal(random, 3000), np.zeros(3100, F32)
    kernel("vadd")((3,), x, y, out, 3000)
    same(out[:3000], x + y)
    same(out[3000:], 0)


def layernorm(random):
    x, w, b = (normal(random, *s).astype(F16) for s in ((8, 1008), (1008,), (1008,)))
    wide = x.astype(F32)
    mean, rstd = wide.mean(1), 1 / np.sqrt(wide.var(1) + 1e-5)
    return x, w, b, mean, rstd, (wide - mean[:, None]) * rstd[:, None]


def test_layernorm(random, kernel):
    x, w, b, mean, rstd, normed = layernorm(random)
    y, m, r = np.zeros_like(x), np.zeros(8, F32), np.zeros(8, F32)
    kernel("layernorm_fwd")((8,), x, y, w, b, m, r, 1008, 1008, 1e-5)
    close(m, mean, 1e-5)
    close(r, rstd, 1e-5)
    close(y, normed * w + b, 5e-3)


def test_layernorm_backward_with_locks(random, kernel):
    x, w, _, mean, rstd, normed = layernorm(random)
    dy = normal(random, 8, 1008).astype(F16)
    dx, dw, db = np.zeros_like(x), np.zeros((64, 1008), F16), np.zeros((64, 1008), F16)
    locks = np.zeros(128, I32)
    kernel("layernorm_bwd_lock")((8,), dx, dy, dw, db, x, w, mean, rstd, locks, 1008, 1008)
    wdy = w.astype(F32) * dy
    c1, c2 = (normed * wdy).mean(1, keepdims=True), wdy.mean(1, keepdims=True)
    close(dx, (wdy - (normed * c1 + c2)) * rstd[:, None], 5e-3)
    close(dw.astype(F32).sum(0), (dy * normed).sum(0), 2e-2)
    close(db.astype(F32).sum(0), dy.astype(F32).sum(0), 2e-2)
    same(locks[:64], 0)


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3", "bf16x6"])
def test_dot_f32(random, precision, kernel):
    a, b, c = normal(random, 32, 32), normal(random, 32, 32), np.zeros((32, 32), F32)
    run_it = kernel(f"dot_f32_{precision}")
    run_it((1,), a, b, c)
    rounds = run_it.rounds_to_tf32
    assert not rounds or precision == "tf32"
    close(c, a.astype(np.float64) @ b, 2.0**-9 * float((abs(a) @ abs(b)).max()) if rounds else 1e-5)


def test_dot_bf16(random, kernel):
    a, b = to_bf16(normal(random, 32, 32)), to_bf16(normal(random, 32, 32))
    c = np.zeros((32, 32), F32)
    kernel("dot_bf16")((1,), a, b, c)
    close(c, from_bf16(a) @ from_bf16(b), 1e-5)


def test_dot_int8_is_exact(random, kernel):
    a, b = (random.integers(-128, 128, (32, 32)).astype(np.int8) for _ in range(2))
    c = np.zeros((32, 32), I32)
    kernel("dot_int8")((1,), a, b, c)
    same(c, a.astype(I32) @ b.astype(I32))


def test_dot_fp8(random, kernel):
    a = torch.randn(32, 32).to(torch.float8_e4m3fn)
    b = torch.randn(32, 32).to(torch.float8_e5m2)
    c = np.zeros((32, 32), F32)
    kernel("dot_fp8")((1,), a.view(torch.uint8).numpy(), b.view(torch.uint8).numpy(), c)
    close(c, (a.float() @ b.float()).numpy(), 1e-5)


@pytest.mark.parametrize("name", ["block_ptr_matmul", "tensor_desc_matmul"])
def test_matmul_by_blocks(random, name, kernel):
    a, b = ((normal(random, 512, 512) / 8).astype(F16) for _ in range(2))
    c = np.zeros((512, 512), F16)
    try:
        matmul = kernel(name)
    except run._tile.CompileError as error:  # three blocks of 16 KiB: more than such a device guarantees
        assert "local memory that" in str(error) and name == "tensor_desc_matmul"
        return
    matmul((8, 8), a, b, c, *[512] * (len(matmul.program.params) - 3))
    wide_a, wide_b = a.astype(F32), b.astype(F32)
    # the second one transposes b and adds its result again
    close(c, wide_a @ wide_b if name == "block_ptr_matmul" else 2 * (wide_a @ wide_b.T), 5e-3)


def test_sorts(random, kernel):
    x, out = normal(random, 128), np.zeros(128, F32)
    kernel("sort")((1,), x, out)
    same(out, np.sort(x))
    y, down = random.integers(-(2**60), 2**60, 64), np.zeros(64, np.int64)
    kernel("sort_desc_i64")((1,), y, down)
    same(down, np.sort(y)[::-1])
    top = np.zeros(8, F32)
    kernel("topk")((1,), x[:64].copy(), top)
    same(top, np.sort(x[:64])[::-1][:8])


def test_scans(random, kernel):
    x, out = normal(random, 32, 32), np.zeros((32, 32), F32)
    kernel("cumsum_cumprod")((1,), x, out)
    close(out, np.cumsum(x, 1) + np.cumprod(x[::-1], 0)[::-1], 1e-5)
    a, b, last = normal(random, 128), normal(random, 128), np.zeros(128, F32)
    kernel("assoc_scan_pair")((1,), a, b, last)
    wanted, s = [], 0.0
    for p, q in zip(a.astype(float), b.astype(float), strict=True):
        s = s * p + q
        wanted.append(s)
    close(last, np.array(wanted), 1e-4)


def test_reduction_of_three_operands(random, kernel):
    x, out = normal(random, 32, 32), np.zeros(32, F32)
    kernel("reduce_welford3")((1,), x, out)
    close(out, x.var(1), 1e-5)


def test_gather_and_histogram(random, kernel):
    x, out = normal(random, 32, 32), np.zeros((32, 32), F32)
    index = random.integers(0, 32, (32, 32)).astype(I32)
    kernel("gather")((1,), x, index, out)
    same(out, np.take_along_axis(x, index, 1))
    numbers, counts = random.integers(0, 64, 512).astype(I32), np.zeros(64, I32)
    kernel("histogram")((1,), numbers, counts)
    same(counts, np.bincount(numbers, minlength=64))


def test_control_flow(random, capfd, kernel):
    x, out = normal(random, 128 * 200), np.zeros(128, F32)
    program = kernel("control_flow")
    program((1,), x, out, 17)
    total = np.zeros(128, F32)
    for i in range(17):
        total += x[i * 128 : i * 128 + 128] * (1 if i % 2 == 0 else -1)
    for j in range(3):
        total = total * 2 + j
    close(out, total + sum(range(0, 17, 2)), 1e-4)
    out[:] = 7
    program((1,), x, out, 101)  # returns early
    same(out, 7)


def test_map_elementwise_with_branches(random, kernel):
    x, out = normal(random, 256), np.zeros(128, F32)
    kernel("map_elementwise")((1,), x, out)
    a, b = x[:128], x[128:]
    close(out, np.where(a > b, (a - b) + (a + b), (b - a) + a * b), 1e-6)


def test_conversions(random, kernel):
    x = np.abs(normal(random, 128)) * 50
    x[:4] = [0, 1e-3, 60000, 65519]
    out, half, brain = np.zeros(128, F32), np.zeros(128, F16), np.zeros(128, np.uint16)
    small, byte, wide, unsigned = (np.zeros(128, t) for t in (np.uint8, np.int8, np.int64, np.uint32))
    kernel("casts")((1,), x, out, half, brain, small, byte, wide, unsigned)
    t = torch.from_numpy(x)
    same(wide, x.astype(np.int64))
    same(unsigned, x.astype(np.uint32))
    same(byte, (x > 0).astype(np.int8))
    same(brain, t.bfloat16().view(torch.int16).numpy().view(np.uint16))
    same(small, t.to(torch.float8_e5m2).view(torch.uint8).numpy())
    rounded = x.astype(F16)
    down = np.where(rounded.astype(F32) > x, np.nextafter(rounded, F16(0)), rounded)
    same(half, down)  # the kernel's last store rounds toward zero


UNSIGNED = """
module {{
  tt.func public @to_unsigned(%x: !tt.ptr<f32>, %out: !tt.ptr<{to}>) {{
    %i = tt.make_range {{end = 16 : i32, start = 0 : i32}} : tensor<16xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %px = tt.addptr %xs, %i : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
    %v = tt.load %px : tensor<16x!tt.ptr<f32>>
    %u = arith.fptoui %v : tensor<16xf32> to tensor<16x{to}>
    %outs = tt.splat %out : !tt.ptr<{to}> -> tensor<16x!tt.ptr<{to}>>
    %pout = tt.addptr %outs, %i : tensor<16x!tt.ptr<{to}>>, tensor<16xi32>
    tt.store %pout, %u : tensor<16x!tt.ptr<{to}>>
    tt.return
  }}
}}
"""


@pytest.mark.parametrize("target", run.TARGETS)
@pytest.mark.parametrize("to", [np.uint32, np.uint64])
def test_what_an_unsigned_number_cant_be_is_the_nearest_as_on_cuda(to, target):
    most = np.iinfo(to).max
    x = [0, 0.5, 3.99, 2.0**31, 2.0**32 - 256, 2.0**63, -0.5, -1, -2.7, -(2.0**40), 2.0**64, 1e30]
    x += [np.inf, -np.inf, np.nan, 7]
    wanted = [0 if v != v else min(max(int(max(min(v, 2.0**70), -1)), 0), most) for v in x]
    out = np.zeros(16, to)
    run.Kernel(UNSIGNED.format(to=f"i{8 * out.itemsize}"), target)((1,), np.array(x, F32), out)
    same(out, np.array(wanted, to))


def test_fp8_saturates_as_pytorch_does(random, kernel):
    special = np.array([448, 449, 464, 480, 1e9, -1e9, np.nan, 0, -0.0, 2**-9, 2**-10, 2**-11], F32)
    x = np.concatenate([normal(random, 58) * 100, normal(random, 58) * 1e-2, special])
    out = np.zeros(128, np.uint8)
    kernel("cast_fp8e4nv")((1,), x, out)
    inside = torch.from_numpy(x).clamp(-448, 448)  # older PyTorch converts larger values to NaN
    same(out, inside.to(torch.float8_e4m3fn).view(torch.uint8).numpy())


def test_atomics(random, kernel):
    p, x = normal(random, 128), normal(random, 128)
    q, xi = (random.integers(0, 99, 128).astype(I32) for _ in range(2))
    first, start = p.copy(), q.copy()
    kernel("atomics")((1,), p, q, x, xi)
    inside = np.arange(128) < 125
    wanted = np.where(inside, np.maximum(first + x, x), first)
    same(p, np.minimum(wanted, x))
    # add, and, or, xor, exchange leave xi; then max and min with it; then a swap of xi for what `add` gave
    same(q[:125], start[:125])


def test_atomic_add_of_halves(random, kernel):
    p, x = normal(random, 128).astype(F16), normal(random, 128).astype(F16)
    wanted = p + x
    kernel("atomic_add_f16")((1,), p, x)
    same(p, wanted)
    p, x = to_bf16(normal(random, 128)), to_bf16(normal(random, 128))
    wanted = torch.from_numpy(from_bf16(p) + from_bf16(x)).bfloat16().float().numpy()
    kernel("atomic_add_bf16")((1,), p, x)
    same(from_bf16(p), wanted)


def philox(counter: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return Triton's four random words for each counter: Philox 4x32-10."""
    words = [counter.astype(np.uint64)] + [np.zeros_like(counter, np.uint64)] * 3
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]
        shift = np.uint64(32)
        words = [(b >> shift) ^ words[1] ^ key[0], b & low, (a >> shift) ^ words[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return words


def test_random_bits_are_tritons(kernel):
    out = np.zeros(1024, F32)
    kernel("rand_randn_randint4x")((2,), out, 1000, 123)
    a, b, c, d = (w.astype(np.uint32) for w in philox(np.arange(1000), 123))
    bits = (a ^ b ^ c ^ d).astype(np.uint32)
    assert any(np.array_equal(out[:1000], kind) for kind in (bits.astype(F32), bits.view(I32).astype(F32)))
    same(out[1000:], 0)


def test_integer_arithmetic(random, kernel):
    for name, dtype in (("math_i64", np.int64), ("math_u32", np.uint32)):
        x = random.integers(1, 1000, 256).astype(dtype)
        out = np.zeros(128, dtype)
        kernel(name)((1,), x, out)
        a, b = x[:128].astype(object), x[128:].astype(object)
        bits, width = 64 if dtype == np.int64 else 32, [a // b + a % b, a << 2, a >> 1, a & b, a | b, a ^ b]
        total = sum(width) + a * b // 2**bits + np.maximum(a, b) + np.minimum(a, b) + abs(a)
        total = total + (-a) + (-a - 1) + np.where(a < b, a, b) + -(-a // b)
        same(out, np.array([int(v) % 2**bits for v in total], np.uint64).astype(dtype))


def test_scalars(random, kernel):
    x, out = normal(random, 10), np.zeros(1, F32)
    program = kernel("scalar_only")
    program((1,), x, out, *[1, 2.5][-(len(program.program.params) - 2) :])
    same(out, x[1] * F32(2.5))


DIVISION = """
module {
  tt.func public @division(%n: i32, %q: !tt.ptr<i32>, %r: !tt.ptr<i32>) {
    %c256 = arith.constant 256 : i32
    %pid = tt.get_program_id x : i32
    %first = arith.muli %pid, %c256 : i32
    %range = tt.make_range {end = 256 : i32, start = 0 : i32} : tensor<256xi32>
    %firsts = tt.splat %first : i32 -> tensor<256xi32>
    %x = arith.addi %firsts, %range : tensor<256xi32>
    %ns = tt.splat %n : i32 -> tensor<256xi32>
    %div = arith.divsi %x, %ns : tensor<256xi32>
    %rem = arith.remsi %x, %ns : tensor<256xi32>
    %qs = tt.splat %q : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>>
    %qx = tt.addptr %qs, %x : tensor<256x!tt.ptr<i32>>, tensor<256xi32>
    tt.store %qx, %div : tensor<256x!tt.ptr<i32>>
    %rs = tt.splat %r : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>>
    %rx = tt.addptr %rs, %x : tensor<256x!tt.ptr<i32>>, tensor<256xi32>
    tt.store %rx, %rem : tensor<256x!tt.ptr<i32>>
    tt.return
  }
}
"""


@pytest.mark.parametrize("target", run.TARGETS)
def test_indices_divided_by_a_size_known_at_launch(target):
    program = run.Kernel(DIVISION, target)
    x = np.arange(2048)
    for n in (1, 2, 3, 7, 10, 15, 16, 17, 100, 1000, 2047, 2**30, -1, -3, -17):
        q, r = np.zeros(2048, I32), np.zeros(2048, I32)
        program((8,), n, q, r)
        same(q, np.sign(n) * (x // abs(n)))
        same(r, x % abs(n))
    program((8,), 0, q, r)  # no trap


# y[0] += 1, then y[i] = t[x[i]] of the program's row, then its sums, for which lanes synchronize
CHECKED = """
module {{
  tt.func public @checked(%x: !tt.ptr<i32>, %t: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32) {{
    %one = arith.constant 1.0 : f32
    %c512 = arith.constant 512 : i32
    %limit = arith.constant dense<100> : tensor<512xi32>
    %pid = tt.get_program_id y : i32
    %first = arith.muli %pid, %c512 : i32
    %row = tt.addptr %y, %first : !tt.ptr<f32>, i32
    tt.store %row, %one : !tt.ptr<f32>
    %few = arith.cmpi slt, %pid, %n : i32
    tt.assert %few, "few programs" : i1 loc("few.py":3:4)
    %range = tt.make_range {{end = 512 : i32, start = 0 : i32}} : tensor<512xi32>
    %firsts = tt.splat %first : i32 -> tensor<512xi32>
    %i = arith.addi %firsts, %range : tensor<512xi32>
    %xs = tt.splat %x : !tt.ptr<i32> -> tensor<512x!tt.ptr<i32>>
    %px = tt.addptr %xs, %i : tensor<512x!tt.ptr<i32>>, tensor<512xi32>
    %k = tt.load %px : tensor<512x!tt.ptr<i32>>
    %inside = arith.cmpi ult, %k, %limit : tensor<512xi32>
    tt.assert %inside, "100% of x < \\22100\\22" : tensor<512xi1> loc(#where)
    %ts = tt.splat %t : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
    %pt = tt.addptr %ts, %k : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
    %v = tt.load %pt : tensor<512x!tt.ptr<f32>>
    %ys = tt.splat %row : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
    %py = tt.addptr %ys, %range : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
    tt.store %py, %v : tensor<512x!tt.ptr<f32>>{sums}
    tt.return
  }}
}}
#line = loc("picked.py":7:9)
#where = loc("k"(#line))
"""
SUMS = """
    %sum = "tt.scan"(%v) <{{axis = 0 : i32, reverse = false}}> ({{
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.scan.return %c : f32
    }}) : (tensor<512xf32>) -> tensor<512xf32>
    tt.store %py, %sum : tensor<512x!tt.ptr<f32>>"""


@pytest.mark.parametrize("target", run.TARGETS)
@pytest.mark.parametrize("sums", ["", SUMS.format()])
def test_a_failed_assertion_ends_its_program_and_is_raised(random, target, sums):
    program = run.Kernel(CHECKED.format(sums=sums), target, debug_asserts=True)
    x, table = random.integers(0, 100, (3, 512)).astype(I32), random.integers(0, 9, 100).astype(F32)
    wanted = np.cumsum(table[x], 1, dtype=F32) if sums else table[x]

    def results(n: int = 3) -> np.ndarray:
        y = np.zeros((3, 512), F32)
        program((1, 3), x, table, y, n)
        return y

    same(results(), wanted)
    x[1, 300:310] = 1 << 29  # reading t there would crash the process
    message = r"assertion failed: 100% of x < \"100\", at picked.py:7:9, in program \(0, 1, 0\)"
    with pytest.raises(RuntimeError, match=message):
        results()
    with pytest.raises(RuntimeError, match=r"few programs, at few.py:3:4, in program \(0, [12], 0\)"):
        results(1)
    x[1, 300:310] = 7
    wanted = np.cumsum(table[x], 1, dtype=F32) if sums else table[x]
    same(results(), wanted)
    unchecked = run.Kernel(CHECKED.format(sums=sums), target)
    assert not unchecked.program.fault_offset and "ASSERT" not in unchecked.program.source


def pointers(name: str, m: int, n: int, t: str) -> list[str]:
    """Return the IR of %<name>p, pointers to the m×n matrix of type ``t`` at %<name>."""
    p = f"{m}x{n}x!tt.ptr<{t}>"
    return [
        f"%{name}r = tt.make_range {{end = {m} : i32, start = 0 : i32}} : tensor<{m}xi32>",
        f"%{name}e = tt.expand_dims %{name}r {{axis = 1 : i32}} : tensor<{m}xi32> -> tensor<{m}x1xi32>",
        f"%{name}n = arith.constant dense<{n}> : tensor<{m}x1xi32>",
        f"%{name}m = arith.muli %{name}e, %{name}n : tensor<{m}x1xi32>",
        f"%{name}c = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>",
        f"%{name}f = tt.expand_dims %{name}c {{axis = 0 : i32}} : tensor<{n}xi32> -> tensor<1x{n}xi32>",
        f"%{name}g = tt.broadcast %{name}m : tensor<{m}x1xi32> -> tensor<{m}x{n}xi32>",
        f"%{name}h = tt.broadcast %{name}f : tensor<1x{n}xi32> -> tensor<{m}x{n}xi32>",
        f"%{name}i = arith.addi %{name}g, %{name}h : tensor<{m}x{n}xi32>",
        f"%{name}s = tt.splat %{name} : !tt.ptr<{t}> -> tensor<{p}>",
        f"%{name}p = tt.addptr %{name}s, %{name}i : tensor<{p}>, tensor<{m}x{n}xi32>",
    ]


FLAG = """
module {
  tt.func public @flag(%data: !tt.ptr<i64>, %flag: !tt.ptr<i32>, %v: i64) {
    %true = arith.constant true
    %one = arith.constant 1 : i32
    tt.store %data, %v : !tt.ptr<i64>
    %was = tt.atomic_rmw exch, ORDER, gpu, %flag, %one, %true : (!tt.ptr<i32>, i32, i1) -> i32
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("target", "fence"), [("nvidia", "membar.gl"), ("bmg", "memory_scope_device"), ("cpu", "mem_fence")]
)
def test_fences_reach_other_programs(target, fence):
    """A fence must order memory between programs; OpenCL 1.2 fences are local to a work-group."""
    for order, fences in (("relaxed", False), ("release", True), ("acquire", True), ("acq_rel", True)):
        source = run._tile.compile_module(FLAG.replace("ORDER", order).encode(), target=target).source
        assert (fence in source) == fences


def dot_scaled(lhs: str, rhs: str) -> str:
    """Return a kernel for 32×64 times 64×32 with scales per 32 elements; e2m1 operands are packed."""
    sizes = {"a": (32, 32 if lhs == "e2m1" else 64), "b": (32 if rhs == "e2m1" else 64, 32)}
    sizes.update(sa=(32, 2), sb=(32, 2), c=(32, 32))
    elements = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "e2m1": "i8"}
    types = {"a": elements[lhs], "b": elements[rhs], "sa": "i8", "sb": "i8", "c": "f32"}
    lines, shaped = [], {}
    for name, (m, n) in sizes.items():
        shaped[name] = f"tensor<{m}x{n}x{types[name]}>"
        lines += pointers(name, m, n, types[name])
        if name != "c":
            lines.append(f"%{name}v = tt.load %{name}p : tensor<{m}x{n}x!tt.ptr<{types[name]}>>")
    lines += [
        "%zero = arith.constant dense<0.0> : tensor<32x32xf32>",
        f"%d = tt.dot_scaled %av scale %sav, %bv scale %sbv, %zero lhs = {lhs} rhs = {rhs} {{fastMath = false}} : "
        f"{shaped['a']}, {shaped['sa']} * {shaped['b']}, {shaped['sb']} -> tensor<32x32xf32>",
        "tt.store %cp, %d : tensor<32x32x!tt.ptr<f32>>",
        "tt.return",
    ]
    parameters = ", ".join(f"%{name}: !tt.ptr<{types[name]}>" for name in sizes)
    return f"module {{\n  tt.func public @k({parameters}) {{\n" + "\n".join(lines) + "\n  }\n}\n"


@pytest.mark.parametrize("target", ["dg2", *run.TARGETS] if run.TARGETS[0] == "cpu" else run.TARGETS)
@pytest.mark.parametrize(("lhs", "rhs"), [("e4m3", "e5m2"), ("e2m1", "e4m3"), ("e5m2", "e2m1")])
def test_dot_scaled(random, lhs, rhs, target):
    fp4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    kinds = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}

    def operand(kind: str, shape: tuple[int, int], axis: int) -> tuple[np.ndarray, np.ndarray]:
        if kind != "e2m1":
            narrow = torch.from_numpy(normal(random, *shape)).to(kinds[kind])
            return narrow.view(torch.uint8).numpy(), narrow.double().numpy()
        codes = random.integers(0, 16, shape).astype(np.uint8)
        low, high = (np.take(codes, range(i, shape[axis], 2), axis) for i in (0, 1))
        return np.ascontiguousarray(low | high << 4), fp4[codes]

    (a, wide_a), (b, wide_b) = operand(lhs, (32, 64), 1), operand(rhs, (64, 32), 0)
    scale_a, scale_b = (random.integers(120, 134, (32, 2)).astype(np.uint8) for _ in range(2))
    c = np.zeros((32, 32), F32)
    run.Kernel(dot_scaled(lhs, rhs), target)((1,), a, b, scale_a, scale_b, c)
    grow_a, grow_b = (np.repeat(2.0 ** (s.astype(float) - 127), 32, axis=1) for s in (scale_a, scale_b))
    np.testing.assert_allclose(c, (wide_a * grow_a) @ (wide_b * grow_b.T), rtol=1e-5, atol=1e-3)


def products(m: int, n: int, k: int, element: str, form: str) -> str:
    """Return a kernel that multiplies an m×k by a k×n matrix, in one of several ways.

    ``once``: c = a b. ``ones``: c = 1 b, where all elements of 1 are one. ``loop``: c = 3 a b, in a loop.
    ``scaled``: c = 7 a b, with accumulators that the loop also doubles. ``both``: one array is both operands
    of a dot, and transposed: c = a b + bᵀ aᵀ for square matrices (m = n = k). ``sum``: one operand is computed
    from the other: c = (a + b) b + a (a + b). ``tall``: three-dimensional blocks. ``half``: c, in half
    precision, accumulates onto its old contents.
    """
    out = "i32" if element == "i8" else "f16" if form == "half" else "f32"
    one = "1" if out == "i32" else "1.0"
    add, multiply = ("addi", "muli") if out == "i32" else ("addf", "mulf")
    rest = ", inputPrecision = tf32" if element == "f32" else ""
    ta, tb, tc = f"tensor<{m}x{k}x{element}>", f"tensor<{k}x{n}x{element}>", f"tensor<{m}x{n}x{out}>"
    sizes = {"a": (m, k, element), "b": (k, n, element), "c": (m, n, out)}
    lines = [line for name, size in sizes.items() for line in pointers(name, *size)]
    for name in ("a", "b", "c") if form == "half" else ("a", "b"):
        p = "x".join(map(str, sizes[name][:2]))
        lines.append(f"%{name}v = tt.load %{name}p : tensor<{p}x!tt.ptr<{sizes[name][2]}>>")
    lines += [
        f"%zero = arith.constant dense<{one.replace('1', '0', 1)}> : {tc}",
        f"%two = arith.constant dense<{one.replace('1', '2', 1)}> : {tc}",
        "%i0 = arith.constant 0 : i32",
        "%i1 = arith.constant 1 : i32",
        "%i3 = arith.constant 3 : i32",
    ]
    if form == "ones":
        lines += [
            f"%ones = arith.constant dense<{'1' if element == 'i8' else '1.0'}> : {ta}",
            f"%d = tt.dot %ones, %bv, %zero{rest} : {ta} * {tb} -> {tc}",
        ]
    elif form in ("once", "half"):
        start = "%cv" if form == "half" else "%zero"
        lines.append(f"%d = tt.dot %av, %bv, {start}{rest} : {ta} * {tb} -> {tc}")
    elif form in ("loop", "scaled"):
        lines += [
            f"%d = scf.for %i = %i0 to %i3 step %i1 iter_args(%s = %zero) -> ({tc}) : i32 {{",
            *([f"%t = arith.{multiply} %s, %two : {tc}"] if form == "scaled" else []),
            f"%u = tt.dot %av, %bv, %{'t' if form == 'scaled' else 's'}{rest} : {ta} * {tb} -> {tc}",
            f"scf.yield %u : {tc}",
            "}",
        ]
    elif form == "both":
        lines += [
            f"%at = tt.trans %av {{order = array<i32: 1, 0>}} : {ta} -> {ta}",
            f"%bt = tt.trans %bv {{order = array<i32: 1, 0>}} : {tb} -> {tb}",
            f"%x = tt.dot %av, %bv, %zero{rest} : {ta} * {tb} -> {tc}",
            f"%y = tt.dot %bv, %av, %zero{rest} : {ta} * {tb} -> {tc}",
            f"%z = tt.dot %bt, %at, %x{rest} : {ta} * {tb} -> {tc}",
            f"%d = arith.{add} %y, %z : {tc}",
        ]
    elif form == "sum":
        lines += [
            f"%e = arith.{'addi' if element == 'i8' else 'addf'} %av, %bv : {ta}",
            f"%x = tt.dot %e, %bv, %zero{rest} : {ta} * {tb} -> {tc}",
            f"%d = tt.dot %av, %e, %x{rest} : {ta} * {tb} -> {tc}",
        ]
    else:
        wide_a, wide_b, wide_c = (f"tensor<2x{t[7:]}" for t in (ta, tb, tc))
        for name, (i, j, t), wide in (("a", sizes["a"], wide_a), ("b", sizes["b"], wide_b)):
            lines += [
                f"%{name}j = tt.expand_dims %{name}v {{axis = 0 : i32}} : tensor<{i}x{j}x{t}> -> tensor<1x{i}x{j}x{t}>",
                f"%{name}w = tt.broadcast %{name}j : tensor<1x{i}x{j}x{t}> -> {wide}",
            ]
        lines += [
            f"%zeros = arith.constant dense<{one.replace('1', '0', 1)}> : {wide_c}",
            f"%w = tt.dot %aw, %bw, %zeros{rest} : {wide_a} * {wide_b} -> {wide_c}",
            '%d = "tt.reduce"(%w) <{axis = 0 : i32}> ({',
            f"^bb0(%p: {out}, %q: {out}):",
            f"%r = arith.{add} %p, %q : {out}",
            f"tt.reduce.return %r : {out}",
            f"}}) : ({wide_c}) -> {tc}",
        ]
    lines += [f"tt.store %cp, %d : tensor<{m}x{n}x!tt.ptr<{out}>>", "tt.return"]
    known = " {tt.divisibility = 16 : i32}" if form == "sum" else ""  # lanes read and write several elements
    parameters = ", ".join(f"%{name}: !tt.ptr<{size[2]}>{known}" for name, size in sizes.items())
    return f"module {{\n  tt.func public @k({parameters}) {{\n" + "\n".join(lines) + "\n  }\n}\n"


PRODUCTS = [
    (64, 64, 32, 4, "loop"),
    (64, 64, 64, 8, "loop"),
    (16, 16, 32, 4, "loop"),  # fewer blocks than subgroups
    (16, 32, 64, 1, "scaled"),
    (128, 64, 32, 4, "scaled"),  # twice the registers
    (64, 64, 32, 1, "loop"),  # more than those
    (32, 32, 32, 2, "both"),
    (32, 32, 32, 4, "sum"),
    (32, 32, 32, 1, "sum"),
    (16, 32, 32, 4, "tall"),
    (32, 64, 32, 4, "half"),
    (16, 32, 32, 1, "ones"),
]
ELEMENTS = ["f16", "bf16", "i8", "f32", "f8E4M3FN", "f8E5M2"]


@pytest.mark.parametrize("target", run.MATRIX_TARGETS)
@pytest.mark.parametrize(
    ("m", "n", "k", "num_warps", "form", "element"),
    [(*p, e) for p in PRODUCTS for e in ("bf16", "i8") if (p[4], e) != ("half", "i8")]
    + [(32, 32, 32, 4, "once", e) for e in ELEMENTS],
)
def test_matrix_units(random, m, n, k, num_warps, form, element, target):
    a, b = torch.from_numpy(normal(random, m, k)), torch.from_numpy(normal(random, k, n))
    if element == "i8":
        a, b = ((x * 40).clamp(-128, 127).to(torch.int8) for x in (a, b))
    kinds = {
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "f8E4M3FN": torch.float8_e4m3fn,
        "f8E5M2": torch.float8_e5m2,
    }
    a, b = (x.to(kinds.get(element, x.dtype)) for x in (a, b))
    c = torch.from_numpy(normal(random, m, n)).to(torch.float16 if form == "half" else torch.float32)
    if element == "i8":
        c = torch.zeros(m, n, dtype=torch.int32)
    kernel = run.Kernel(products(m, n, k, element, form), target, num_warps)
    unit = target in ("bmg", "nvidia") or (target == "dg2" and element != "f32")
    source = kernel.program.source
    if target == "nvidia":
        unit = form != "tall"
        assert ("(LOCAL_TILE_ADDRESS(" in source) == unit
    else:
        assert ("_matrix_mad_k" in source) == unit
    assert ("dot_4x8packed" in kernel.program.source) == (target == "tgllp" and element == "i8")
    if form == "once" and element == "i8" and target in ("bmg", "tgllp"):  # each lies as its reader wants it
        assert kernel.program.source.count("__local char h") == 2
    arrays = [
        x.view(torch.uint8).numpy()
        if element[:2] == "f8"
        else x.view(torch.int16).numpy()
        if element == "bf16"
        else x.numpy()
        for x in (a, b)
    ]
    wide_a, wide_b, start = a.double(), b.double(), c.double()
    wanted = wide_a @ wide_b
    if form == "ones":
        wanted = wide_b.sum(0).expand(m, n)
    elif form == "both":
        wanted = wanted + wide_b @ wide_a + wide_b.T @ wide_a.T
    elif form == "sum":
        both = (a + b).double()
        wanted = both @ wide_b + wide_a @ both
    elif form == "half":
        wanted = wanted + start
    else:
        wanted = wanted * {"loop": 3, "scaled": 7, "tall": 2}.get(form, 1)
    kernel((1,), *arrays, c.numpy())
    largest = float((wide_a.abs() @ wide_b.abs()).max()) * (7 if form == "scaled" else 3)
    rounding = 2.0**-10 if kernel.rounds_to_tf32 else 2.0**-20
    tolerance = (
        0
        if element == "i8"
        else largest * rounding + (2.0**-10 * float(wanted.abs().max()) if form == "half" else 0)
    )
    torch.testing.assert_close(c.double(), wanted, rtol=0, atol=tolerance)


def descriptors(m: int, n: int, k: int, element: str, turned: bool) -> str:
    """Return a kernel that multiplies blocks of two matrices through their descriptors.

    Sizes and pitches are known at run time. %x and %y are the block's first row and column. If ``turned``,
    b's rows are the product's columns.
    """
    out, zero = ("i32", "0") if element == "i8" else ("f32", "0.0")
    ta, tb, tc = f"tensor<{m}x{k}x{element}>", f"tensor<{k}x{n}x{element}>", f"tensor<{m}x{n}x{out}>"
    block_b = f"{n}x{k}" if turned else f"{k}x{n}"
    size_b, at_b = ("%N, %K", "%y, %i") if turned else ("%K, %N", "%i, %y")
    lines = [
        "%one = arith.constant 1 : i64",
        "%i0 = arith.constant 0 : i32",
        f"%step = arith.constant {k} : i32",
        f"%zero = arith.constant dense<{zero}> : {tc}",
        "%pa = arith.extsi %lda : i32 to i64",
        f"%bo = tt.addptr %b, %off : !tt.ptr<{element}>, i32",
        "%pb = arith.extsi %ldb : i32 to i64",
        f"%da = tt.make_tensor_descriptor %a, [%M, %K], [%pa, %one] : !tt.ptr<{element}>, "
        f"!tt.tensordesc<{m}x{k}x{element}>",
        f"%db = tt.make_tensor_descriptor %bo, [{size_b}], [%pb, %one] : !tt.ptr<{element}>, "
        f"!tt.tensordesc<{block_b}x{element}>",
        f"%d = scf.for %i = %i0 to %K step %step iter_args(%s = %zero) -> ({tc}) : i32 {{",
        f"%av = tt.descriptor_load %da[%x, %i] : !tt.tensordesc<{m}x{k}x{element}> -> {ta}",
        f"%bl = tt.descriptor_load %db[{at_b}] : !tt.tensordesc<{block_b}x{element}> -> tensor<{block_b}x{element}>",
    ]
    if turned:
        lines.append(f"%bv = tt.trans %bl {{order = array<i32: 1, 0>}} : tensor<{block_b}x{element}> -> {tb}")
    lines += [
        f"%u = tt.dot %av, %{'bv' if turned else 'bl'}, %s : {ta} * {tb} -> {tc}",
        f"scf.yield %u : {tc}",
        "}",
        *pointers("c", m, n, out),
        f"tt.store %cp, %d : tensor<{m}x{n}x!tt.ptr<{out}>>",
        "tt.return",
    ]
    numbers = ", ".join(f"%{name}: i32" for name in ("M", "N", "K", "lda", "ldb", "x", "y", "off"))
    parameters = f"%a: !tt.ptr<{element}>, %b: !tt.ptr<{element}>, %c: !tt.ptr<{out}>, {numbers}"
    return f"module {{\n  tt.func public @k({parameters}) {{\n" + "\n".join(lines) + "\n  }\n}\n"


@pytest.mark.parametrize("target", ["cpu", "bmg", "nvidia"])
def test_one_barrier_stands_for_two(target: str) -> None:
    source = _tile.compile_module(corpus()["layernorm_bwd_lock"].encode(), target=target).source
    barrier = r"barrier\(CLK_.*\);\n"
    assert re.search(barrier, source)
    assert not re.search(rf"{barrier} *(sub_group_)?{barrier}", source)


@pytest.mark.parametrize("target", run.MATRIX_TARGETS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", ["f16", "bf16", "i8"])
def test_matrix_units_read_blocks(random, element, turned, target):
    m, n, k = 64, 32, 64
    kernel = run.Kernel(descriptors(m, n, k, element, turned), target)
    assert ("_2d_block_read" in kernel.program.source) == (target == "bmg")
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}[element]
    # first cases that block reads support, also starting inside 64 bytes; then violations of each rule: row
    # size, pitch, row size again, first column
    for rows, columns, depth, pitch_a, pitch_b, x, y, off in [
        (100, 80, 160, 192, 192, 16, 32, 0),
        (100, 80, 128, 192, 192, 16, 32, 16),
        (70, 81, 150, 160, 160, 16, 64, 0),
        (64, 32, 64, 100, 200, 0, 0, 0),
        (16, 16, 32, 32, 32, 0, 0, 0),
        (64, 48, 128, 192, 192, 8, -4, 16),
    ]:
        a = torch.from_numpy(normal(random, rows, pitch_a)) * 40
        b = torch.from_numpy(normal(random, columns if turned else depth, pitch_b)) * 40
        a, b = (t.clamp(-128, 127).to(kind) for t in (a, b))
        c = torch.zeros(m, n, dtype=torch.int32 if element == "i8" else torch.float32)
        moved = torch.cat([torch.full((off,), 77).to(kind), b.flatten()])
        arrays = [t.view(torch.int16).numpy() if element == "bf16" else t.numpy() for t in (a, moved)]
        kernel((1,), *arrays, c.numpy(), rows, columns, depth, pitch_a, pitch_b, x, y, off)
        wide_a, wide_b = a.double()[:, :depth], (b.double().T[:depth] if turned else b.double())[:, :columns]
        whole = torch.zeros(200, 200, dtype=torch.float64)
        whole[:rows, 8 : 8 + columns] = wide_a @ wide_b
        wanted = whole[x : x + m, 8 + y : 8 + y + n]
        torch.testing.assert_close(
            c.double(), wanted, rtol=0, atol=0 if element == "i8" else 1e-6 * float(wanted.abs().max()) * 40
        )
