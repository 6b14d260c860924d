"""Matrix products against float64 on the CPU, for every dtype, layout and degenerate size."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch
from comparing import assert_close
from openxpu import _tile

FLOATING = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
# One sum of k products in order has an error of about 0.3 k units of 2^-24 (root mean square): with k = 2,100, one
# element in 60,000 exceeds 0.15, none of a million 0.2 (complex: 0.23).
TIMES = {torch.float16: 0.5, torch.bfloat16: 0.5, torch.float32: 0.3, torch.float64: 0.1}
WIDE = {torch.complex64: torch.complex128, torch.complex128: torch.complex128}

# m, n, k: odd sizes, one row, one column, a dot product, long sums, no sum at all.
SIZES = [(5, 7, 3), (70, 65, 33), (1, 37, 129), (40, 1, 70), (1, 1, 2000), (33, 34, 2100), (4, 4, 0)]


def make(*shape: int, dtype: torch.dtype, layout: str = "rows") -> torch.Tensor:
    """Return a random CPU tensor whose last two dimensions are row-major, column-major or strided."""
    if dtype.is_floating_point or dtype.is_complex:
        t = torch.randn(shape, dtype=dtype)
    else:
        t = torch.randint(0, 5, shape).to(dtype)
    if layout == "columns":
        t = t.mT.contiguous().mT
    elif layout == "apart":
        t = torch.stack([t, t], -1)[..., 0]
    return t


def on_xpu(t: torch.Tensor) -> torch.Tensor:
    """The tensor on xpu with the same strides."""
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="xpu").copy_(t)


def agree(got: torch.Tensor, want: torch.Tensor, k: int) -> None:
    """Compare with a sum of `k` products computed in a wider dtype."""
    if not (got.is_floating_point() or got.is_complex()):
        want = want.to(got.dtype)  # modulo 2^bits
    assert_close(got, want, dtype=got.dtype, times=TIMES, floor=max(k, 1) ** 0.5)


def wide(t: torch.Tensor) -> torch.Tensor:
    """Return the tensor in the dtype of the reference."""
    if t.dtype.is_floating_point or t.dtype.is_complex:
        return t.to(WIDE.get(t.dtype, torch.float64))
    return t.long()


@pytest.mark.parametrize("dtype", FLOATING + COMPLEX + INTEGERS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_mm_layouts(dtype: torch.dtype, size: tuple[int, int, int]) -> None:
    m, n, k = size
    for left, right in [("rows", "rows"), ("columns", "rows"), ("rows", "columns"), ("apart", "apart")]:
        a, b = make(m, k, dtype=dtype, layout=left), make(k, n, dtype=dtype, layout=right)
        agree(on_xpu(a) @ on_xpu(b), wide(a) @ wide(b), k)


@pytest.mark.parametrize("left", ["rows", "columns"])
def test_long_sums_round_less_on_cpus(left: str) -> None:
    """There, sums are added up in blocks of k; by GPUs' kernels in order, since these lack the registers.

    oneDNN, which computes such products on processors of other makers than Intel, has the longest blocks.
    """
    k = 2100
    a, b = make(66, k, dtype=torch.float32, layout=left), make(k, 70, dtype=torch.float32)
    error = (on_xpu(a) @ on_xpu(b)).cpu() - wide(a) @ wide(b)
    in_order = 0.3 * k * 2**-24
    cpu = torch.xpu.get_device_properties().type == "cpu" and not any(
        os.environ.get(name) for name in ("OPENXPU_MATRIX", "OPENXPU_POLICY", "OPENXPU_VARIANT")
    )
    by_library = os.environ.get("OPENXPU_HOST_PROVIDER") != "0"
    assert error.square().mean().sqrt() < (0.8 if cpu and by_library else 0.5 if cpu else 1.3) * in_order


@pytest.mark.parametrize("dtype", [*FLOATING, torch.complex64, torch.int32], ids=str)
@pytest.mark.parametrize("beta", [0, 1, 3])
def test_addmm_scalars_and_broadcast(dtype: torch.dtype, beta: int) -> None:
    a, b = make(6, 20, dtype=dtype), make(20, 9, dtype=dtype)
    for shape in [(6, 9), (9,), (6, 1), (1, 9), (1,), ()]:
        c = make(*shape, dtype=dtype)
        got = torch.addmm(c.to("xpu"), a.to("xpu"), b.to("xpu"), beta=beta, alpha=2)
        agree(got, beta * wide(c) + 2 * (wide(a) @ wide(b)), 60)


@pytest.mark.parametrize("size", [1, 2])
def test_fractions_beside_integers_lose_what_is_behind_the_point(size: int) -> None:
    a = torch.full((size, size), 3, dtype=torch.int32)
    wanted = torch.addmm(a, a, a, beta=1.5, alpha=2.5)
    assert torch.equal(torch.addmm(a.xpu(), a.xpu(), a.xpu(), beta=1.5, alpha=2.5).cpu(), wanted)


def test_addmm_beta_zero_ignores_nan() -> None:
    c = torch.full((3, 4), float("nan"), device="xpu")
    got = torch.addmm(c, torch.ones(3, 2, device="xpu"), torch.ones(2, 4, device="xpu"), beta=0)
    assert torch.equal(got.cpu(), torch.full((3, 4), 2.0))


def test_addmm_in_place_and_out() -> None:
    a, b, c = torch.randn(8, 5), torch.randn(5, 6), torch.randn(8, 6)
    want = c.double() + 0.5 * (a.double() @ b.double())
    x = c.to("xpu")
    x.addmm_(a.to("xpu"), b.to("xpu"), alpha=0.5)
    agree(x, want, 5)
    columns = torch.empty(6, 8, device="xpu").t()
    torch.addmm(c.to("xpu"), a.to("xpu"), b.to("xpu"), alpha=0.5, out=columns)
    assert columns.stride() == (1, 8)
    agree(columns, want, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("stride", [(1, 1), (0, 1), (1, 9), (9, 1), (9, 2)], ids=str)
def test_windows_of_matrices(stride: tuple[int, int], rows: int, dtype: torch.dtype) -> None:
    """Operands with overlapping rows, columns or strides; a result surrounded by other values."""
    memory = make(90, dtype=dtype)
    a, b, c = memory.as_strided((rows, 5), stride), make(6, 8, dtype=dtype)[:5, 1:], make(7, dtype=dtype)
    x, y = memory.to("xpu").as_strided((rows, 5), stride), on_xpu(make(6, 8, dtype=dtype))
    y.copy_(torch.nn.functional.pad(b, (1, 0, 0, 1), value=float("nan")))
    y = y[:5, 1:]
    around = torch.full((rows + 2, 11), 3.0, dtype=dtype, device="xpu")
    for window in (around[1:-1, 2:9], around.as_strided((1, 7), (1, 1), 2)):
        if len(window) != rows:
            continue
        torch.mm(x, y, out=window)
        agree(window, wide(a) @ wide(b), 5)
        torch.addmm(c.to("xpu"), x, y, beta=2, alpha=-1, out=window)
        agree(window, 2 * wide(c) - wide(a) @ wide(b), 5)
        window.addmm_(x, y)
        agree(window, 2 * wide(c).expand(rows, 7), 10)
        window.fill_(3)
        assert torch.equal(around.cpu(), torch.full_like(around, 3).cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("left", ["rows", "columns", "apart"])
@pytest.mark.parametrize("right", ["rows", "columns"])
def test_large_products(left: str, right: str, dtype: torch.dtype) -> None:
    """Sizes at which a CPU device may use another library than for small ones."""
    m, n, k = 200, 300, 170
    a = make(m, k, dtype=dtype, layout=left)
    b = make(k, n, dtype=dtype, layout=right)
    a[7, 3], a[8, 4] = float("nan"), float("inf")
    b[4] = b[4].abs() + 1
    x, y = on_xpu(a), on_xpu(b)
    got = (x @ y).cpu()
    assert got[7].isnan().all()
    assert got[8].isposinf().all()
    a[7:9] = 0
    x, product = on_xpu(a), a.double() @ b.double()
    agree(x @ y, product, k)
    for shape in [(n,), (m, 1), (m, n)]:
        c = torch.randn(shape, dtype=dtype)
        for beta in (1, 3):
            agree(torch.addmm(c.to("xpu"), x, y, beta=beta), beta * c.double() + product, 10 * k)
    agree(torch.addmm(c.to("xpu"), x, y, alpha=2), c.double() + 2 * product, 5 * k)
    held = c.to("xpu")
    agree(held.addmm_(x, y), c.double() + product, 2 * k)
    padded = torch.full((m, n + 5), -7.0, device="xpu", dtype=dtype)
    agree(torch.mm(x, y, out=padded[:, :n]), product, k)
    assert (padded[:, n:] == -7).all()
    bias = torch.randn(n, dtype=dtype)
    got = torch._addmm_activation(bias.to("xpu"), x, y)
    agree(got, (bias.double() + product).relu(), 2 * k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("columns", [(300, 301), (90, 4099)], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_few_rows_of_a_large_matrix(rows: int, columns: tuple[int, int], dtype: torch.dtype) -> None:
    n, k = columns
    x, bias = make(2, rows, k + 5, dtype=dtype)[..., :k], make(n, dtype=dtype)
    weight = make(2, k, n, dtype=dtype, layout="columns")
    want = wide(x) @ wide(weight)
    first, matrix = on_xpu(x)[0], on_xpu(weight)[0]
    agree(on_xpu(x) @ on_xpu(weight), want, k)
    agree(first @ matrix, want[0], k)
    agree(matrix.mT @ first.mT, want[0].mT, k)  # few columns
    got = torch.addmm(bias.to("xpu"), first, matrix, beta=2, alpha=0.5)
    agree(got, want[0] / 2 + 2 * wide(bias), k)
    whole = on_xpu(make(2 * rows, n + 7, dtype=dtype))
    before = whole.clone()
    part = whole[::2, 3:-4]
    agree(torch.mm(first, matrix, out=part), want[0], k)
    part.copy_(before[::2, 3:-4])
    assert torch.equal(whole.cpu(), before.cpu())  # the gaps in the output are unchanged
    agree(part.addmm_(first, matrix), wide(before[::2, 3:-4].cpu()) + want[0], k)
    got = torch._addmm_activation(bias.to("xpu"), first, matrix)
    agree(got, (want[0] + wide(bias)).relu(), k)


@pytest.mark.parametrize("gelu", [False, True])
def test_addmm_activation(gelu: bool) -> None:
    a, b, c = torch.randn(70, 20), torch.randn(20, 66), torch.randn(66)
    got = torch._addmm_activation(c.to("xpu"), a.to("xpu"), b.to("xpu"), use_gelu=gelu)
    sums = c.double() + a.double() @ b.double()
    agree(got, torch.nn.functional.gelu(sums) if gelu else sums.relu(), 20)


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX, torch.int64], ids=str)
@pytest.mark.parametrize("size", [(5, 7, 3), (70, 65, 33), (1, 37, 129), (1, 1, 8)], ids=str)
def test_bmm_and_baddbmm(dtype: torch.dtype, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b, c = (make(*s, dtype=dtype) for s in [(3, m, k), (3, k, n), (3, 1, n)])
    agree(torch.bmm(a.to("xpu"), b.to("xpu")), wide(a) @ wide(b), k)
    got = torch.baddbmm(c.to("xpu"), a.to("xpu"), b.to("xpu"), beta=2, alpha=3)
    agree(got, 2 * wide(c) + 3 * (wide(a) @ wide(b)), 9 * k)


def test_bmm_strides_not_contiguous() -> None:
    a, b = torch.randn(4, 6, 3, 5), torch.randn(4, 6, 5, 2)
    x = a.to("xpu").permute(1, 0, 2, 3).reshape(24, 3, 5)
    y = b.to("xpu").permute(1, 0, 2, 3).reshape(24, 5, 2)
    agree(x @ y, (a.double() @ b.double()).permute(1, 0, 2, 3).reshape(24, 3, 2), 5)
    z = torch.randn(5, 3).to("xpu").expand(4, 5, 3)  # one matrix for the whole batch
    agree(z.bmm(z.mT), wide(z.cpu()) @ wide(z.cpu()).mT, 3)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_conjugates(dtype: torch.dtype) -> None:
    a, b = make(6, 5, dtype=dtype), make(6, 7, dtype=dtype)
    agree(a.to("xpu").mH @ b.to("xpu"), wide(a).mH @ wide(b), 5)
    agree(b.to("xpu").mH @ a.to("xpu").conj(), wide(b).mH @ wide(a).conj(), 5)
    u, v = make(9, dtype=dtype), make(9, dtype=dtype)
    agree(torch.vdot(u.to("xpu"), v.to("xpu")), torch.vdot(wide(u), wide(v)), 9)
    agree(torch.dot(u.to("xpu"), v.to("xpu")), torch.dot(wide(u), wide(v)), 9)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.int32], ids=str)
def test_vectors(dtype: torch.dtype) -> None:
    a, v, w = make(12, 30, dtype=dtype), make(30, dtype=dtype), make(12, dtype=dtype)
    agree(a.to("xpu") @ v.to("xpu"), wide(a) @ wide(v), 30)
    agree(w.to("xpu") @ a.to("xpu"), wide(w) @ wide(a), 12)
    got = torch.addmv(w.to("xpu"), a.to("xpu"), v.to("xpu"), beta=2, alpha=3)
    agree(got, 2 * wide(w) + 3 * (wide(a) @ wide(v)), 270)
    for product in (torch.dot, torch.vdot):
        agree(product(v.to("xpu"), v.to("xpu")), wide(v) @ wide(v), 30)
    every_other = make(60, dtype=dtype)[::2]
    agree(a.to("xpu") @ on_xpu(every_other), wide(a) @ wide(every_other), 30)


@pytest.mark.parametrize("size", [100_000, 9_437_184])
def test_long_inner_products_are_as_exact_as_the_cpus(size: int) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = torch.rand(size, generator=generator), torch.rand(size, generator=generator)
    want = (a.double() @ b.double()).item()
    x, y = a.to("xpu"), b.to("xpu")
    for got in (x @ y, x[None] @ y, torch.vdot(x, y), torch.addmm(y[None, :1], x[None], y[:, None], beta=0)):
        assert abs(got.item() / want - 1) < 1e-4
    x, y, want = x[:100_000:2], y[:100_000:2], (a[:100_000:2].double() @ b[:100_000:2].double()).item()
    got = torch.addmv(y[:1], x[None], y, beta=3, alpha=0.5).item()
    assert abs(got / (3 * b[0].item() + want / 2) - 1) < 1e-4


def test_linear_gradients() -> None:
    x, w, b = torch.randn(3, 11, 16), torch.randn(24, 16), torch.randn(24)
    leaves = [t.to("xpu").requires_grad_() for t in (x, w, b)]
    wants = [t.double().requires_grad_() for t in (x, w, b)]
    torch.nn.functional.linear(*leaves).square().sum().backward()
    torch.nn.functional.linear(*wants).square().sum().backward()
    for leaf, want in zip(leaves, wants, strict=True):
        assert_close(leaf.grad, want.grad, dtype=torch.float32, times=5)


def test_out_dtype() -> None:
    a, b = torch.randn(5, 64).bfloat16(), torch.randn(64, 6).bfloat16()
    got = torch.mm(a.to("xpu"), b.to("xpu"), out_dtype=torch.float32)
    assert got.dtype == torch.float32
    agree(got, wide(a) @ wide(b), 64)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(32, 48, 64), (1, 70, 130), (33, 1, 65), (17, 31, 67), (130, 100, 256), (5, 4, 0), (0, 3, 8)],
)
def test_int8_products(m: int, n: int, k: int) -> None:
    """All transpositions, strides between elements and unaligned rows; bitwise equal."""
    a = torch.randint(-128, 128, (m + 1, k + 3), dtype=torch.int8)
    b = torch.randint(-128, 128, (k, 2 * n), dtype=torch.int8)
    x, y = a.to("xpu"), b.to("xpu")
    want = a[1:, 3:].numpy().astype("int64") @ b[:, ::2].numpy().astype("int64")
    lefts = [x[1:, 3:], x[1:, 3:].contiguous(), x.t().contiguous().t()[1:, 3:]]
    rights = [y[:, ::2], y[:, ::2].contiguous(), y.t().contiguous()[::2].t()]
    for left in lefts:
        for right in rights:
            got = torch._int_mm(left, right)
            assert got.dtype == torch.int32
            assert (got.cpu().numpy() == want).all()
    apart = torch.full((m, 2 * n), 7, dtype=torch.int32, device="xpu")
    torch._int_mm(lefts[0], rights[2], out=apart[:, ::2])
    assert (apart[:, ::2].cpu().numpy() == want).all()
    assert (apart[:, 1::2] == 7).all()


def test_int8_products_refuse_what_pytorch_refuses() -> None:
    a = torch.ones(8, 16, dtype=torch.int8, device="xpu")
    b = torch.ones(16, 8, dtype=torch.int8, device="xpu")
    for left, right, message in (
        (a[0], b, "Expected self to be of dimension 2 but got 1"),
        (a, b[None], "Expected mat2 to be of dimension 2 but got 3"),
        (a, a, "needs to match"),
        (a.int(), b, "Expected self dtype to be of type int8"),
        (a, b.byte(), "Expected mat2 dtype to be of type int8"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch._int_mm(left, right)
        with pytest.raises(RuntimeError):
            torch._int_mm(left.cpu(), right.cpu())
    for shape, dtype, message in (
        ((8, 8), torch.float32, "Expected result dtype"),
        ((8, 9), torch.int32, r"Expected result.size\(1\)"),
        ((9, 8), torch.int32, r"Expected result.size\(0\)"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch._int_mm(a, b, out=torch.empty(shape, dtype=dtype, device="xpu"))


def unit_of_fp32(tf32: bool) -> bytes | None:
    """The engine that multiplies float32, with or without tf32."""
    library, unit = _tile.library(), ctypes.c_char_p()
    library.xpu_dtype_name.restype = ctypes.c_char_p
    number = next(i for i in range(64) if library.xpu_dtype_name(i) == b"f32")
    assert not library.xpu_gemm_engine(0, number, ctypes.c_bool(tf32), ctypes.byref(unit))
    return unit.value


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_fp32_keeps_its_bits_unless_tf32_is_allowed(precision: str) -> None:
    """With a matrix engine: test_gpu_plans.py runs this."""
    by_a_library = (
        torch.xpu.get_device_properties().type == "cpu" and os.environ.get("OPENXPU_HOST_PROVIDER") != "0"
    )
    units = unit_of_fp32(tf32=True) != unit_of_fp32(tf32=False) and not by_a_library
    assert units or os.environ.get("OPENXPU_MATRIX") != "ptx" or by_a_library
    x, y = torch.full((128, 64), 1 + 2**-12, device="xpu"), torch.eye(64, device="xpu")
    want = torch.ones_like(x) if units and precision != "highest" else x
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)

    def all_products(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x @ y, torch.bmm(x[None], y[None])[0], torch.addmm(x, x, y) - x, x.t().t() @ y.t()]

    try:
        products = all_products(x, y)
        # with "medium" PyTorch's library may use bfloat16, if the CPU has bfloat16 products
        by_cpu = all_products(x.cpu(), y.cpu()) if by_a_library and precision == "medium" else None
        fp64 = x.double() @ y.double() if torch.xpu.get_device_properties().has_fp64 else None
    finally:
        torch.set_float32_matmul_precision(before)
    for i, product in enumerate(products):
        assert_close(product, by_cpu[i] if by_cpu else want, atol=2**-22)
    assert fp64 is None or torch.equal(fp64.cpu(), x.double().cpu())


@pytest.mark.parametrize("size", [8, 16, 17, 200])
def test_precision_on_processors_is_that_of_their_own_device(size: int) -> None:
    """If the CPU multiplies bfloat16, PyTorch rounds to it when allowed: on Zen 4 at 200, not at smaller sizes."""
    if torch.xpu.get_device_properties().type != "cpu" or os.environ.get("OPENXPU_HOST_PROVIDER") == "0":
        pytest.skip("libxpu multiplies")
    x, y = torch.randn(size, size), torch.randn(size, size)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        got, want = (x.to("xpu") @ y.to("xpu")).cpu(), x @ y
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(got, want)


@pytest.mark.parametrize("k", [1, 3, 33, 65, 129])
@pytest.mark.parametrize("gap", [1, 3, 7])
def test_bytes_behind_a_line_are_not_summed(k: int, gap: int) -> None:
    """Rows of an odd number of bytes, read several bytes at a time, followed by other values."""
    a, b = torch.full((40, k + gap), 3, dtype=torch.int8), torch.full((48, k + gap), 5, dtype=torch.int8)
    a[:, k:], b[:, k:] = 7, 11
    got = a.to("xpu")[:, :k] @ b.to("xpu")[:, :k].t()
    assert torch.equal(got.cpu(), torch.full((40, 48), 15 * k).to(torch.int8))
    assert torch.equal(
        torch._int_mm(a.to("xpu")[:, :k], b.to("xpu")[:, :k].t()).cpu(),
        torch.full((40, 48), 15 * k, dtype=torch.int32),
    )


def test_errors_are_pytorchs() -> None:
    a = torch.ones(2, 3, device="xpu")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        a @ a
    with pytest.raises(RuntimeError, match="same dtype"):
        a @ a.double().mT
    with pytest.raises(RuntimeError, match="1D tensors expected"):
        torch.dot(a, a)
    with pytest.raises((RuntimeError, NotImplementedError), match="not implemented for"):
        a.bool() @ a.bool().mT


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0)], ids=str)
def test_empty(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    got = torch.ones(m, k, device="xpu") @ torch.ones(k, n, device="xpu")
    assert got.shape == (m, n) and not got.cpu().any()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.int64], ids=str
)
@pytest.mark.parametrize("rest", [(), (1,), (5,), (3, 4), (2, 1, 6)], ids=str)
def test_linear_combination(dtype: torch.dtype, rest: tuple[int, ...]) -> None:
    draw = (
        (lambda *s: torch.randint(-9, 9, s))
        if dtype == torch.int64
        else (lambda *s: torch.randn(*s, dtype=dtype))
    )
    for m, n in [(1, 1), (3, 2), (8, 5)]:
        x, c = draw(m, *rest), draw(n, m)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        want = torch.tensordot(c.to(wide), x.to(wide), 1)
        got = torch.ops.aten._compute_linear_combination(x.to("xpu"), c.to("xpu"))
        assert_close(got, want, dtype=dtype, times={torch.float32: 0.5})
        out = torch.ones(n, *rest, dtype=dtype, device="xpu")  # the operator adds to out
        torch.ops.aten._compute_linear_combination.out(x.to("xpu"), c.to("xpu"), out=out)
        assert_close(out, want + 1, dtype=dtype, times={torch.float32: 0.5})
    for x, c in [(draw(3, *rest), draw(2, 2)), (draw(3, *rest), draw(3)), (draw(0, *rest), draw(2, 0))]:
        with pytest.raises(RuntimeError, match=r"fit|Empty"):
            torch.ops.aten._compute_linear_combination(x.to("xpu"), c.to("xpu"))
