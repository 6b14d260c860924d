import functools
import itertools

import pytest
import torch
from comparing import assert_equal

DTYPES = [
    torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


def sample(dtype, *size):
    if dtype == torch.bool:
        return torch.randint(0, 2, size).bool()
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(size, dtype=torch.complex128).mul(50).to(dtype)
    return torch.randint(0, 100, size).to(dtype)


same = functools.partial(assert_equal, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("source,target", list(itertools.product(DTYPES, DTYPES)))
def test_casts(source, target):
    x = sample(source, 7, 5)
    same(x.to("xpu").to(target), x.to(target))
    same(x.to("xpu", target), x.to(target))
    assert_equal(x.to("xpu").to("cpu", target), x.to(target), device="cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(dtype):
    x = sample(dtype, 6, 5, 4)
    for view in (
        lambda t: t,
        lambda t: t.permute(2, 0, 1),
        lambda t: t[1::2, :, ::3],
        lambda t: t[:, 1:2].expand(6, 3, 4),
        lambda t: t.transpose(0, 1)[1:],
        lambda t: t[2, 3, 1],
        lambda t: t[:0],
    ):
        host, device = view(x), view(x.to("xpu"))
        same(device, host)
        same(view(x).to("xpu"), host)
        same(device.contiguous(), host.contiguous())
        same(device.clone(), host)
        to_host = torch.empty_like(host, memory_format=torch.contiguous_format)
        to_host.copy_(device)
        torch.testing.assert_close(to_host, host, rtol=0, atol=0)


@pytest.mark.parametrize("source,target", list(itertools.product(("cpu", "xpu"), ("cpu", "xpu"))))
def test_into_strided_targets(source, target):
    x = sample(torch.float32, 4, 6)
    for make in (lambda t: t[::2, ::3], lambda t: t.t()[::2, 1:3].t()):
        y = torch.zeros(4, 6, device=target)
        expected = torch.zeros(4, 6)
        make(expected).copy_(make(x))
        make(y).copy_(make(x.to(source)))
        assert_equal(y, expected, device=target)


def test_broadcast():
    y = torch.empty(3, 4, device="xpu")
    y.copy_(torch.arange(4.0))
    same(y, torch.arange(4.0).expand(3, 4))
    y.copy_(torch.tensor(2.0, device="xpu"))
    same(y, torch.full((3, 4), 2.0))
    with pytest.raises(RuntimeError):
        y.copy_(torch.zeros(5))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conjugate_and_negative_views(dtype):
    x = sample(dtype, 5, 3)
    d = x.to("xpu")
    same(d.conj().resolve_conj(), x.conj().resolve_conj())
    torch.testing.assert_close(d.conj().cpu().resolve_conj(), x.conj().resolve_conj())
    y = torch.zeros(5, 3, dtype=dtype, device="xpu")
    y.copy_(d.conj())
    same(y, x.conj().resolve_conj())
    y.conj().copy_(d)
    same(y, x.conj().resolve_conj())
    same(d.conj().imag.clone(), x.conj().imag.clone())
    z = torch.zeros(5, 3, dtype=dtype)
    z.copy_(d.conj())
    torch.testing.assert_close(z, x.conj().resolve_conj())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_from_zeros_without_memory(dtype):
    """What forward differentiation has for tangents of constants."""
    zeros = torch._efficientzerotensor((4,), device="xpu")
    for device in ("xpu", "cpu"):
        got = torch.ones(3, 4, dtype=dtype, device=device).copy_(zeros)
        assert got.device.type == device and got.count_nonzero() == 0
    ones = torch.ones(4, device="xpu")
    for x, y in ((zeros, ones), (ones, zeros), (zeros, zeros)):
        assert torch.dot(x, y)._is_zerotensor() and torch.vdot(x, y).shape == ()


def test_copies_onto_themselves_in_part_are_refused():
    x = torch.arange(12.0, device="xpu")
    for to, source in (
        (x[1:], x[:-1]),
        (x[2:].view(5, 2), x[:-2].view(5, 2)),
        (x[:4].view(2, 2), x[2:6].view(2, 2).T),
    ):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            to.copy_(source)
    x.copy_(x)  # a complete overlap is allowed
    assert x.tolist() == list(range(12))


def test_other_dtypes():
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.randn(4, 6).to(dtype)
        d = x.to("xpu")
        assert torch.equal(d.t().contiguous().cpu().view(torch.uint8), x.t().contiguous().view(torch.uint8))
        same(d.to(torch.float32), x.to(torch.float32))


def test_memory_formats():
    x = torch.randn(2, 3, 4, 5)
    y = x.to("xpu", memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)
    same(y, x)
    same(y.contiguous(), x)
    assert x.to(memory_format=torch.channels_last).to("xpu").is_contiguous(memory_format=torch.channels_last)


def test_item_and_tolist():
    assert torch.tensor(5, device="xpu").item() == 5
    assert torch.tensor(1.5 - 2j, device="xpu").item() == 1.5 - 2j
    assert torch.tensor([True, False], device="xpu").tolist() == [True, False]
    assert torch.arange(5, device="xpu")[3].item() == 3
    with pytest.raises(RuntimeError):
        torch.ones(2, device="xpu").item()


def test_large_copy():
    x = torch.arange(5_000_000)
    same(x.to("xpu"), x)
    same(x.to("xpu").view(5000, 1000).t().contiguous(), x.view(5000, 1000).t().contiguous())
