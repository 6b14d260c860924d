"""float8 on xpu, bitwise equal to PyTorch's CPU kernels; float4 pairs, which are only copied."""

from __future__ import annotations

import copy
import io
import math
import os
from collections.abc import Callable, Iterator

import pytest
import torch
from comparing import assert_equal
from openxpu import _bridge

SIGNED = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
DTYPES = [*SIGNED, torch.float8_e8m0fnu]
PAIRS = torch.float4_e2m1fn_x2
INTEGERS = [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
names = pytest.mark.parametrize


@pytest.fixture(autouse=True)
def no_fallback() -> Iterator[None]:
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def every_number(dtype: torch.dtype) -> torch.Tensor:
    """Return all 256 bit patterns, including NaN and infinities, in rows."""
    return torch.arange(256).to(torch.uint8).view(dtype).view(16, 16)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.cpu().contiguous().view(torch.uint8)


# before 2.13 the CPU converts values above 448 to NaN, for this format only
SATURATES = torch.__version__ >= torch.torch_version.TorchVersion("2.13")


def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what a current PyTorch computes on the CPU."""
    if dtype == torch.float8_e4m3fn and not SATURATES and not x.is_complex():
        x = x.double().clamp(-448, 448)
    return x.to(dtype)


def assert_same_bits(xpu: torch.Tensor, cpu: torch.Tensor) -> None:
    """Normalize NaN: some devices lose its sign; zeros keep theirs."""
    assert_equal(xpu, cpu, bits=True, equal_nan=True)


def assert_same(xpu: torch.Tensor, cpu: torch.Tensor) -> None:
    """Compare bits if the operator copies, values if it computes; then any NaN equals any other."""
    assert_equal(xpu, cpu, bits=cpu.dtype == PAIRS, equal_nan=cpu.dtype != PAIRS)


# --- conversions


@names("dtype", DTYPES, ids=str)
def test_every_code_to_every_dtype(dtype: torch.dtype) -> None:
    x = every_number(dtype)
    d = x.to("xpu")
    for to in [torch.bool, *FLOATS, *COMPLEX, *DTYPES]:
        assert_same(d.to(to), converted(x, to))
    for to in (torch.bool, torch.bfloat16, torch.float32):
        assert_same(d.t().to(to), x.t().to(to))
        assert_same(d[3:, 1::3].to(to), x[3:, 1::3].to(to))
    for to in INTEGERS:  # only values in the integer's range: C does not define the others
        info, wide = torch.iinfo(to), x.double()
        inside = x.view(torch.uint8)[(wide > info.min - 1.0) & (wide < info.max + 1.0)].view(dtype)
        assert inside.numel() > 20
        assert_same(inside.to("xpu").to(to), inside.to(to))


@names("dtype", DTYPES, ids=str)
def test_nan_to_integers_is_one_number(dtype: torch.dtype) -> None:
    x = torch.full((1003,), math.nan).to(dtype)
    for to in INTEGERS:  # C leaves the result for NaN to the processor: compare with converting a float NaN
        got = x.to("xpu").to(to).cpu()
        assert torch.equal(got, torch.full((1003,), math.nan, device="xpu").to(to).cpu())
        assert torch.equal(x.to("xpu").view(17, 59).t().to(to).cpu(), got.view(17, 59).t())


def boundaries(dtype: torch.dtype) -> torch.Tensor:
    """Return every value of `dtype`, the midpoints between adjacent ones, and the floats on both sides of each."""
    numbers = every_number(dtype).flatten().float()
    numbers = numbers[numbers.isfinite()].unique()
    extremes = torch.tensor([0.0, 1e-45, 1e-40, 1e38, torch.finfo(torch.float32).max, math.inf, math.nan])
    beyond = numbers[-1] * torch.tensor([1.0, 1.03, 1.0625, 1.125, 1.25, 1.5, 2.0])
    least = numbers[numbers > 0][0] * torch.tensor([0.25, 0.5, 0.75])
    places = torch.cat([numbers, (numbers[1:] + numbers[:-1]) / 2, beyond, least, extremes])
    places = torch.cat([places, -places])
    return torch.cat(
        [places, places.nextafter(torch.tensor(math.inf)), places.nextafter(torch.tensor(-math.inf))]
    )


@names("dtype", DTYPES, ids=str)
def test_floats_are_rounded_as_on_the_cpu(dtype: torch.dtype) -> None:
    singles = boundaries(dtype)
    halves = torch.arange(1 << 16).to(torch.uint16)
    for x in (singles, singles.double(), singles.double() * (1 + 1e-12), *map(halves.view, FLOATS[:2])):
        d = x.to("xpu")
        assert_same_bits(d.to(dtype), converted(x, dtype))
        assert_same_bits(
            d[1:].view(-1, 1).expand(-1, 3).to(dtype), converted(x[1:, None], dtype).expand(-1, 3)
        )
        assert_same_bits(d[::2].to(dtype), converted(x[::2], dtype))
    random = torch.randint(-(1 << 31), 1 << 31, (100_003,)).int().view(torch.float32)
    assert_same_bits(random.to("xpu").to(dtype), converted(random, dtype))


@names("dtype", DTYPES, ids=str)
def test_other_numbers_are_rounded_as_on_the_cpu(dtype: torch.dtype) -> None:
    for source in INTEGERS:
        info = torch.iinfo(source)
        numbers = [info.min, info.max, *range(max(info.min, -600), min(info.max, 600) + 1)]
        x = torch.tensor(numbers, dtype=source)
        assert_same_bits(x.to("xpu").to(dtype), converted(x, dtype))
    x = torch.tensor([True, False, True])
    assert torch.equal(bits(x.to("xpu").to(dtype)), bits(x.to(dtype)))
    for source in COMPLEX:
        real = boundaries(dtype)
        x = torch.complex(real, torch.tensor(3.0)).to(source)
        assert_same_bits(x.to("xpu").to(dtype), converted(real, dtype))


@names("dtype", [*DTYPES, PAIRS], ids=str)
def test_copies_of_any_layout_keep_the_bits(dtype: torch.dtype) -> None:
    flat = torch.randint(0, 256, (7 * 130 * 19 + 3,), dtype=torch.uint8)
    layouts: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: x[3:].view(7, 130, 19).transpose(0, 2),
        lambda x: x[3:].view(7, 130, 19).permute(2, 0, 1)[::2],
        lambda x: x[1:].as_strided((40, 33), (1, 5)),
        lambda x: x[5:6].expand(17, 9),
        lambda x: x[5:70].expand(11, 65),
        lambda x: x[:0],
    ]
    x, d = flat.view(dtype), flat.to("xpu").view(dtype)
    for layout in layouts:
        assert torch.equal(bits(layout(d).contiguous()), layout(flat).contiguous())
        target = torch.zeros_like(layout(flat)).to("xpu").view(dtype).flip(0)
        assert torch.equal(bits(target.copy_(layout(d))), layout(flat).contiguous())
        to = torch.empty(layout(flat).shape, dtype=dtype, device="xpu").copy_(
            layout(x)
        )  # from the host, strided
        assert torch.equal(bits(to), layout(flat).contiguous())
    assert torch.equal(bits(layouts[0](d).cpu()), layouts[0](flat).contiguous())
    with pytest.raises(RuntimeError, match="unsupported operation"):
        d[1:].copy_(d[:-1])


# --- what makes tensors


@names("dtype", DTYPES, ids=str)
def test_numbers_filled_in(dtype: torch.dtype) -> None:
    for number in (1, True, 0.3, 2.5, 17.0, -1.5, 1e-3, 2**-30, 448, 1e5, math.nan, math.inf, -math.inf):
        x = torch.full((3, 5), 2.0).to(dtype)
        d = x.to("xpu")
        if dtype == torch.float8_e4m3fn and not SATURATES and abs(number) > 448:
            continue
        try:
            expected = x.clone().fill_(number)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match="without overflow"):
                d.fill_(number)
            assert "without overflow" in str(error)
            continue
        assert torch.equal(bits(d.clone().fill_(number)), bits(expected))
        part = d.clone()
        part[:, ::2] = number
        x[:, ::2] = number
        assert torch.equal(bits(part), bits(x))
        full = torch.full((4,), number, dtype=dtype, device="xpu")
        assert torch.equal(bits(full), bits(torch.full((4,), number, dtype=dtype)))
    for make in (torch.zeros, torch.ones, torch.eye):
        assert_same(make(3, dtype=dtype, device="xpu"), make(3, dtype=dtype))
    every = every_number(dtype)
    for like in (torch.zeros_like, torch.ones_like):
        assert_same(like(every.to("xpu")), like(every))
    assert torch.equal(bits(every.to("xpu").zero_()), torch.zeros(16, 16, dtype=torch.uint8))
    assert_same(
        torch.tensor([1.0, 0.3, 200.0], dtype=dtype, device="xpu"),
        torch.tensor([1.0, 0.3, 200.0], dtype=dtype),
    )


# --- operators

MASK = torch.arange(256).view(16, 16) % 3 == 0
PLACES = torch.tensor([[3, 0, 15, 7, 3, 9, 1, 0, 14, 2, 6, 6, 5, 11, 4, 8]])

MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cat": lambda x: torch.cat([x, x[:2], x[5:]]),
    "cat columns": lambda x: torch.cat([x, x[:, :3].t().contiguous().t()], 1),
    "stack": lambda x: torch.stack([x, x.t()], 2),
    "index_select": lambda x: x.index_select(1, PLACES[0].to(x.device)),
    "flip": lambda x: x[:, 1:].flip(0, 1),
    "roll": lambda x: x.roll(3, 1),
    "rot90": torch.rot90,
    "repeat": lambda x: x.repeat(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "diagonal": lambda x: x.diagonal().clone(),
    "diag_embed": torch.diag_embed,
    "unfold": lambda x: x.unfold(1, 3, 2).clone(),
    "unbind": lambda x: x.unbind(1)[2].clone(),
    "channels last": lambda x: x.view(2, 8, 4, 4).contiguous(memory_format=torch.channels_last),
    "embedding": lambda x: torch.nn.functional.embedding(PLACES[0].to(x.device), x),
    "resize_": lambda x: x.clone().resize_(5, 5),
    "where": lambda x: torch.where(MASK.to(x.device), x, x.t()),
    "split_with_sizes_copy": lambda x: torch.split_with_sizes_copy(x, [4, 12], 1)[1],
    "block_diag": lambda x: torch.block_diag(x, x),
    "deepcopy": copy.deepcopy,
    "index": lambda x: x[PLACES[0].to(x.device)],
    "index pairs": lambda x: x[PLACES[0].to(x.device), PLACES[0].flip(0).to(x.device)],
    "index mask": lambda x: x[MASK[1].to(x.device)],
    "masked_select": lambda x: x.masked_select(MASK.to(x.device)),
    "gather": lambda x: x.gather(0, PLACES.to(x.device)),
    "scatter": lambda x: x.scatter(0, PLACES.to(x.device), x.flip(0)),
    "take": lambda x: x.take(PLACES[0].to(x.device)),
    "index_copy": lambda x: x.index_copy(0, PLACES[0, :3].to(x.device), x[5:8]),
    "index_put": lambda x: x.index_put((PLACES[0, :3].to(x.device),), x[5:8]),
    "masked_scatter": lambda x: x.masked_scatter(MASK.to(x.device), x.flip(0)),
    "masked tensor": lambda x: x.masked_fill(MASK.to(x.device), x[3, 4]),
    "tril": torch.tril,
    "put_": lambda x: x.clone().put_(PLACES[0, :3].to(x.device), x[0, 3:6]),
}


@names("dtype", [*DTYPES, PAIRS], ids=str)
@names("name", MOVES)
def test_moves(name: str, dtype: torch.dtype) -> None:
    """Byte-wise operators, whatever the bytes mean; the CPU lacks some of them for float8."""
    x = every_number(dtype)
    assert torch.equal(bits(MOVES[name](x.to("xpu"))), MOVES[name](x.view(torch.uint8)))


COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "eq": lambda x: x == x.t(),
    "ne": lambda x: x != x.flip(0),
    "eq number": lambda x: x == 0.3,  # rounded to float8 first
    "ne number": lambda x: x != 2,
    "isnan": torch.isnan,
    "where number": lambda x: torch.where(MASK.to(x.device), x, 0.3),
    "mul": lambda x: x * x.t(),
    "mul_": lambda x: x.clone().mul_(x.t()),
    "outer": lambda x: torch.outer(x[3], x[6]),
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(0),
    "sum": lambda x: x[4:6].sum(dtype=torch.float32),
    "mean": lambda x: x[4:6].mean(dtype=torch.float32),
    "nansum": lambda x: x.nansum(1, dtype=torch.float64),
    "foreach_copy_": lambda x: (y := [x.float()], torch._foreach_copy_(y, [x]), y[0])[-1],
    "foreach_copy_ back": lambda x: (y := [x.clone()], torch._foreach_copy_(y, [x.t().float()]), y[0])[-1],
    "copy_ broadcast": lambda x: x.clone().copy_(torch.linspace(0, 3, 16, device=x.device)),
}


@names("dtype", DTYPES, ids=str)
@names("name", COMPUTED)
def test_operators_with_a_cpu_kernel(name: str, dtype: torch.dtype) -> None:
    if name in ("mul", "mul_") and dtype == torch.float8_e4m3fn and not SATURATES:
        pytest.skip("this PyTorch's CPU makes NaN of products greater than 448")
    if name == "nansum" and not torch.xpu.get_device_properties().has_fp64:
        pytest.skip("sums in float64")
    x = every_number(dtype)
    assert_same(COMPUTED[name](x.to("xpu")), COMPUTED[name](x))


@names("dtype", SIGNED, ids=str)
def test_absolute_values(dtype: torch.dtype) -> None:
    x = every_number(dtype)
    assert_same(x.to("xpu").abs(), x.abs())


def test_infinities() -> None:
    x = every_number(torch.float8_e5m2)
    assert_same(x.to("xpu").isinf(), x.isinf())
    assert_same(x.to("xpu").isfinite(), x.isfinite())


@names("dtype", DTYPES, ids=str)
def test_masked_numbers(dtype: torch.dtype) -> None:
    x = every_number(dtype)
    expected = torch.where(MASK, torch.tensor(1.7).to(dtype), x)
    assert_same(x.to("xpu").masked_fill(MASK.to("xpu"), 1.7), expected)
    filled = x.to("xpu")
    filled[MASK.to("xpu")] = 1.7
    assert_same(filled, expected)
    assert_same(
        x.to("xpu").index_fill(0, PLACES[0, :3].to("xpu"), 1.7)[PLACES[0, :3]],
        torch.full((3, 16), 1.7).to(dtype),
    )


@names("dtype", SIGNED, ids=str)
def test_index_put_adds(dtype: torch.dtype) -> None:
    x = torch.linspace(-4, 4, 24).view(6, 4).to(dtype)
    rows, values = torch.tensor([4, 0, 3]), torch.linspace(-1, 1, 12).view(3, 4).to(dtype)
    got = x.to("xpu").index_put((rows.to("xpu"),), values.to("xpu"), accumulate=True)
    assert_same(got, x.index_put((rows,), values, accumulate=True))


def test_pairs_of_float4_are_compared_by_their_bits() -> None:
    x = every_number(PAIRS)
    d = x.to("xpu")
    for f in (lambda x: x == x.t(), lambda x: x != x.t(), torch.isnan):
        assert_same(f(d), f(x))
    assert torch.equal(bits(torch.zeros(3, dtype=PAIRS, device="xpu")), torch.zeros(3, dtype=torch.uint8))
    for fails in (lambda: d.float(), lambda: d + d, lambda: d.fill_(1), lambda: d == 1, lambda: d.sum()):
        with pytest.raises((NotImplementedError, RuntimeError), match="Float4_e2m1fn_x2"):
            fails()


def test_arithmetic_that_pytorch_lacks_raises() -> None:
    x = every_number(torch.float8_e4m3fn).to("xpu")
    for fails in (
        lambda: x + x,
        lambda: x.sum(),
        lambda: x < x,
        lambda: x.exp(),
        lambda: x.sort(),
        lambda: x.amax(),
        lambda: x.cumsum(0),
        lambda: x.unique(),
        lambda: x.median(),
        lambda: x.index_add(0, PLACES[0, :3].to("xpu"), x[:3]),
        lambda: torch.rand(3, dtype=x.dtype, device="xpu"),
    ):
        with pytest.raises(NotImplementedError, match="Float8_e4m3fn"):
            fails()


# --- numbers in Python, files


@names("dtype", DTYPES, ids=str)
def test_printing_and_numbers(dtype: torch.dtype) -> None:
    x = every_number(dtype)
    d = x.to("xpu")
    assert repr(d).replace(" ", "").replace("\n", "").replace(",device='xpu:0'", "") == repr(x).replace(
        " ", ""
    ).replace("\n", "")
    assert repr(d[1, 1].item()) == repr(x[1, 1].item()) and float(d[4, 4]) == float(x[4, 4])
    assert repr(d.tolist()) == repr(x.tolist())
    assert torch.equal(d[:5], d[:5].clone()) == torch.equal(x[:5], x[:5].clone())
    if dtype in SIGNED:
        assert f"{d[4, 4]:.4f}" == f"{x[4, 4]:.4f}"


@names("dtype", [*DTYPES, PAIRS], ids=str)
def test_saved_and_loaded(dtype: torch.dtype) -> None:
    x = every_number(dtype)
    file = io.BytesIO()
    torch.save({"x": x.to("xpu"), "part": x.to("xpu")[2:, 3:]}, file)
    for device in ("xpu", "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=device)
        assert loaded["x"].device.type == device and loaded["x"].dtype == dtype
        assert torch.equal(bits(loaded["x"]), bits(x)) and torch.equal(bits(loaded["part"]), bits(x[2:, 3:]))


def test_gradients_pass_through() -> None:
    x = torch.linspace(-3, 3, 40)
    grads = []
    for device in ("cpu", "xpu"):
        leaf = x.to(device, copy=True).requires_grad_()
        (leaf.to(torch.float8_e4m3fn).float() * 2.3).sum().backward()
        assert leaf.grad is not None
        grads.append(leaf.grad.cpu())
    assert torch.equal(*grads)


def test_large_tensors() -> None:
    x = torch.randn(1 << 20)[3 : 3 + 13 * 80_000]
    for dtype in DTYPES:
        d = x.to("xpu").to(dtype)
        assert torch.equal(bits(d), bits(x.to(dtype)))
        assert_same(
            d.view(-1, 13)[:, ::2].to(torch.bfloat16), x.to(dtype).view(-1, 13)[:, ::2].to(torch.bfloat16)
        )


@pytest.mark.skipif(
    "OPENXPU_POLICY" in os.environ or "OPENXPU_VARIANT" in os.environ, reason="this is the inner run"
)
def test_by_what_every_device_can_run() -> None:
    """test_gpu_plans.py tests the GPU policy."""
    from inner_run import passes

    passes(
        {__file__: "codes or floats or filled or large or layout or nansum or eq or where"},
        every=2,
        OPENXPU_VARIANT="ref",
    )


@names("dtype", [*DTYPES, PAIRS], ids=str)
def test_products_are_refused(dtype: torch.dtype) -> None:
    a = torch.ones(4, 4, dtype=torch.uint8, device="xpu").view(dtype)
    for product in (torch.mm, torch.nn.functional.linear):
        with pytest.raises(NotImplementedError, match="matrix product"):
            product(a, a)
