"""Fourier transforms with the CPU policy and, with OPENXPU_POLICY=gpu, with that of GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from comparing import assert_close
from openxpu import _bridge
from torch._subclasses import FakeTensorMode

from .sampled import agrees

NATIVE = os.environ.get("OPENXPU_POLICY") == "gpu"
PARTS = [torch.float32, torch.float64]
# Relative error norm for lengths with large prime factors, where MKL is less accurate; a third of it for others.
TOLERANCE = {torch.float32: 8e-7, torch.float64: 3e-15 if NATIVE else 1e-13}
SMOOTH = [4096, 6000, 8192, 3**9, 13**4, 65536, 1 << 18]
RADICES = [4, 6, 14, 16, 15 * 16, 9 * 10 * 12, 11 * 13, 3**7, 5**5, 7 * 8]
OTHERS = [211, 1021, 2049 * 17, 4099, 65537]
FUNCTIONS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
OF_REAL = ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn")

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def numbers(*shape: int, part: torch.dtype = torch.float32, real: bool = False) -> torch.Tensor:
    dtype = part if real else part.to_complex()
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def wide(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).numpy()


def close(got: torch.Tensor, want: np.ndarray, limit: float, what: str = "") -> None:
    assert got.is_complex() == np.iscomplexobj(want)
    expected = torch.from_numpy(np.asarray(want))
    assert_close(got, expected, dtype=got.dtype, rtol=limit, relative_to="norm", floor=1e-300, what=what)


def checked(name: str, x: torch.Tensor, share: float = 1, **options: object) -> None:
    """Compare with the function on the CPU, and with NumPy's in float64."""
    got = getattr(torch.fft, name)(x.to("xpu"), **options)
    numpys = {"dim": "axis" if name in FUNCTIONS else "axes", "n": "n", "s": "s", "norm": "norm"}
    want = getattr(np.fft, name)(wide(x), **{numpys[key]: value for key, value in options.items()})
    part = x.dtype.to_real() if x.is_complex() else x.dtype
    assert got.dtype == (part.to_complex() if np.iscomplexobj(want) else part)
    close(got, want, TOLERANCE[part] * share, f"{name} {options}")


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_every_length(part: torch.dtype) -> None:
    for n in range(1, 201):
        for name in ("fft", "ifft", "hfft")[: 2 if n == 1 else 3]:
            checked(name, numbers(2, n, part=part))
        for name in ("rfft", "ihfft"):
            checked(name, numbers(2, n, part=part, real=True))
        checked("irfft", numbers(2, n // 2 + 1, part=part), n=n)


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("n", SMOOTH + OTHERS)
def test_long_rows(n: int, part: torch.dtype) -> None:
    rows, share = 3 if n < 10000 else 1, 1 / 3 if n in SMOOTH else 1
    checked("fft", numbers(rows, n, part=part), share)
    checked("ifft", numbers(rows, n, part=part), share, norm="ortho")
    checked("rfft", numbers(rows, n, part=part, real=True), share)
    checked("irfft", numbers(rows, n // 2 + 1, part=part), share, n=n)


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("n", RADICES)
def test_radices(n: int, part: torch.dtype) -> None:
    """Rows and columns, more and fewer than a work-group processes at a time."""
    checked("fft", numbers(131, n, part=part), 1 / 3)
    checked("ifft", numbers(n, 21, part=part), 1 / 3, dim=0)


@pytest.mark.parametrize("n", [1 << 20, 1000003])
def test_a_very_long_row(n: int) -> None:
    checked("fft", numbers(n))
    if n == 1 << 20:
        checked("irfft", numbers(n // 2 + 1))


@pytest.mark.extended
def test_more_rows_than_the_workspace_holds() -> None:
    for n, rows in ((8192, 530), (1511, 1050)):
        x = numbers(rows, n)
        spectrum = torch.fft.fft(x.to("xpu"))
        for row in (0, 1, 511, 512, 1023, 1024, rows - 1):
            if row < rows:
                close(spectrum[row], np.fft.fft(wide(x[row])), TOLERANCE[torch.float32])
        if n == 8192:
            close(torch.fft.ifft(spectrum), wide(x), TOLERANCE[torch.float32])


@pytest.mark.parametrize("n", [6, 2058, 4116, 67])
def test_any_dimension_of_any_layout(n: int) -> None:
    shapes = [(n, 2, 3, 2), (2, n, 3, 2), (3, 2, n, 1), (2, 1, 3, n)]
    for dim, sizes in enumerate(shapes):
        larger = numbers(*(2 * size for size in sizes))
        views: list[Callable[[torch.Tensor], torch.Tensor]] = [
            lambda t, s=sizes: t[: s[0], : s[1], 1 : 1 + s[2], : s[3]],
            lambda t: t[::2, ::2, 1::2, ::2].conj(),
            lambda t, s=sizes: t[: s[0], : s[1], : s[2], : s[3]].mT.contiguous().mT,
            lambda t, s=sizes, d=dim: t[: s[0], : s[1], : s[2], : s[3]].narrow(d - 1, 0, 1).expand(s),
            lambda t: t.flip(0)[::2, ::2, ::2, ::2],
        ]
        there = larger.to("xpu")
        for i, view in enumerate(views):
            x = wide(view(larger))
            got = torch.fft.fft(view(there), dim=dim)
            close(got, np.fft.fft(x, axis=dim), TOLERANCE[torch.float32], f"{(i, dim)}")
            got = torch.fft.irfft(view(there), dim=dim, n=n)
            close(got, np.fft.irfft(x, axis=dim, n=n), TOLERANCE[torch.float32], f"{(i, dim)}")
        real = larger.to("xpu").imag[::2, ::2, ::2, ::2].neg()
        close(torch.fft.rfft(real, dim=dim), np.fft.rfft(wide(real), axis=dim), 8e-7)
        bit = torch._neg_view(larger.to("xpu").real)
        assert bit.is_neg()
        close(torch.fft.rfft(bit, dim=dim), np.fft.rfft(wide(bit), axis=dim), 8e-7)


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
def test_several_dimensions(norm: str, part: torch.dtype) -> None:
    x, real = numbers(4, 6, 5, 7, part=part), numbers(4, 6, 5, 7, part=part, real=True)
    for dims in ((0, 1), (3, 1), (2, 0, 3), (0, 1, 2, 3), (3, 2, 1, 0), (1,)):
        checked("fftn", x, dim=dims, norm=norm)
        checked("ifftn", x, dim=dims, norm=norm)
        checked("rfftn", real, dim=dims, norm=norm)
        sizes = [x.shape[d] for d in dims]
        for last in (2 * x.shape[dims[-1]] - 2, 2 * x.shape[dims[-1]] - 1):
            checked("irfftn", x, dim=dims, s=(*sizes[:-1], last), norm=norm)
    checked("fft2", x, s=(8, 3), norm=norm)
    checked("rfft2", real, s=(9, 16), norm=norm)


def test_symmetric_inputs_are_symmetric() -> None:
    """Imaginary parts that must be zero are ignored, and inputs are not changed."""
    for n in (1, 2, 7, 12, 8192, 67):
        x = numbers(3, n // 2 + 1)
        there = x.to("xpu")
        for name in ("irfft", "irfftn"):
            got = getattr(torch.fft, name)(there, n if name == "irfft" else (3, n))
            rows = x if name == "irfft" else torch.fft.ifft(x.to(torch.complex128), dim=0)
            full = np.zeros((3, n), complex)
            full[:, : n // 2 + 1] = wide(rows)
            full[:, 0].imag = 0
            if n % 2 == 0:
                full[:, n // 2].imag = 0
            full[:, n // 2 + 1 :] = full[:, 1 : (n + 1) // 2][:, ::-1].conj()
            close(got, np.fft.ifft(full).real, TOLERANCE[torch.float32])
        assert torch.equal(there.cpu(), x)
        if NATIVE:
            want = torch.fft.irfft(there, n)
            for k in {0, n // 2} if n % 2 == 0 else {0}:
                there.imag[:, k] = torch.nan
            assert torch.equal(torch.fft.irfft(there, n), want)


@pytest.mark.parametrize("size", [8, 15])
@pytest.mark.parametrize("name", ["fft", "ifft2", "rfft", "rfft2", "hfft", "irfft", "irfft2"])
def test_halves_are_rounded_once(name: str, size: int) -> None:
    if torch.__version__ < (2, 12) and name in ("fft", "rfft", "rfft2"):
        pytest.skip("torch.fft itself refuses real halves on any device but cuda")
    function = getattr(torch.fft, name)
    given = torch.randn(5, size, generator=torch.Generator().manual_seed(3)).half()
    if name not in ("rfft", "rfft2"):
        given = torch.complex(given.float(), given.float().flip(0)).to(torch.complex32)
    want = function(given.to(torch.complex64 if given.is_complex() else torch.float32))
    got = function(given.to("xpu"))
    assert got.dtype == (torch.complex32 if want.is_complex() else torch.float16)
    out = torch.empty(0, dtype=got.dtype, device="xpu")
    function(given.to("xpu"), out=out)
    for result in (got, out):
        assert_close(result, want, dtype=result.dtype, rtol=6e-4, atol=1e-4)
    if name == "fft":
        assert torch.fft.fft(torch.ones(8, device="xpu").half()).real[0] == 8


def test_sums_of_halves_may_be_large_in_between() -> None:
    x = torch.full((300, 300), 1000.0, device="xpu", dtype=torch.float16)
    spectrum = torch.fft.rfft2(x, norm="forward")
    assert spectrum[0, 0] == 1000 and spectrum.cpu().abs().sum() == 1000
    assert torch.fft.irfft2(spectrum, s=x.shape, norm="forward").eq(x).all()


def test_outputs() -> None:
    x = numbers(3, 12)
    for name in FUNCTIONS:
        given = x.real.contiguous() if name in OF_REAL else x
        function = getattr(torch.fft, name)
        want = function(given.to("xpu"))
        empty = torch.empty(0, dtype=want.dtype, device="xpu")
        gaps = torch.zeros(want.shape[1], 2 * want.shape[0], dtype=want.dtype, device="xpu").T[::2]
        for out in (empty, gaps):
            assert function(given.to("xpu"), out=out) is out
            assert torch.equal(out, want)
    there = x.to("xpu")
    torch.fft.fft(there, out=there)
    close(there, np.fft.fft(wide(x)), TOLERANCE[torch.float32])


@pytest.mark.skipif(not NATIVE, reason="MKL's plan for an empty batch is an error")
def test_no_elements() -> None:
    assert torch.fft.fft(torch.empty(0, 5, device="xpu")).shape == (0, 5)
    assert torch.fft.irfftn(torch.empty(4, 0, 3, device="xpu").to(torch.complex64), dim=(0, 2)).shape == (
        4,
        0,
        4,
    )
    assert torch.fft.fftn(torch.ones(2, 3, device="xpu"), dim=()).equal(torch.ones(2, 3, device="xpu") + 0j)


REFUSED: dict[str, Callable[[str], object]] = {
    "no points": lambda device: torch.fft.fft(torch.empty(2, 0, device=device)),
    "no results": lambda device: torch.fft.irfft(torch.empty(2, 3, device=device) + 0j, n=0),
    "complex": lambda device: torch.fft.rfft(torch.ones(3, device=device) + 0j),
    "twice": lambda device: torch.fft.fftn(torch.ones(3, 3, device=device), dim=(1, 1)),
    "beyond": lambda device: torch.fft.fft(torch.ones(3, 3, device=device), dim=2),
    "bfloat16": lambda device: torch.fft.fft(torch.ones(4, dtype=torch.bfloat16, device=device)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_pytorchs(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        REFUSED[name]("cpu")
    with pytest.raises(type(theirs.value)) as ours:
        REFUSED[name]("xpu")
    assert str(ours.value) == str(theirs.value)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="PyTorch 2.11 foresees elements that overlap")
def test_strides_are_those_that_compile_foresees() -> None:
    aten = torch.ops.aten
    with torch.device("xpu"):
        base = torch.randn(2, 3, 4, 5, 6)
    for order in ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (1, 0, 3, 4, 2)):
        real = base.permute(order)
        given = torch.complex(real, real)
        assert given.stride() == tuple(real.stride())
        with FakeTensorMode() as mode:
            fakes = mode.from_tensor(given), mode.from_tensor(real)
        for dims in ([4], [0], [2, 1], [3, 0, 2], [4, 2, 0, 1], [3, 4, 0, 1, 2]):
            last = given.shape[dims[-1]]
            calls: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
                lambda x, r, d=dims: aten._fft_c2c(x, d, 0, True),
                lambda x, r, d=dims: aten._fft_r2c(r, d, 1, True),
                lambda x, r, d=dims, n=last: aten._fft_c2r(x, d, 2, 2 * n - 1),
            ]
            if NATIVE:
                calls.append(lambda x, r, d=dims: aten._fft_r2c(r, d, 1, False))
            for call in calls:
                got = call(given, real)
                with mode:
                    want = call(*fakes)
                assert got.shape == want.shape and got.stride() == want.stride(), (order, dims)


def test_short_time_transforms() -> None:
    x = numbers(2, 1000, real=True)
    for onesided in (True, False):
        pair = []
        for device in ("cpu", "xpu"):
            window = torch.hann_window(64, device=device)
            there = x.to(device).detach().requires_grad_()
            spectrum = torch.stft(there, 64, 16, window=window, onesided=onesided, return_complex=True)
            again = torch.istft(spectrum, 64, 16, window=window, onesided=onesided, length=1000)
            (again**3).sum().backward()
            pair.append((spectrum.detach(), again.detach(), there.grad))
        for want, got in zip(*pair, strict=True):
            assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2"]
    + ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"],
)
def test_samples_and_their_gradients(name: str) -> None:
    agrees(f"fft.{name}", torch.float64 if name in OF_REAL else torch.complex128)
    if name == "fft":
        agrees("fft.fft", torch.float64)


def test_graphs() -> None:
    x = torch.randn(3, 8192, device="xpu")
    odd = torch.randn(2, 67, device="xpu")

    def work() -> tuple[torch.Tensor, ...]:
        out = torch.empty(3, 8192, dtype=torch.complex64, device="xpu")
        torch.fft.fft(x, out=out)
        return out, torch.fft.irfft2(torch.fft.rfft2(x) * 2), torch.fft.fft(odd), torch.fft.ihfft(odd)

    work()
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        results = work()
    for _ in range(2):
        x.copy_(torch.randn_like(x))
        odd.copy_(torch.randn_like(odd))
        graph.replay()
        for got, want in zip(results, work(), strict=True):
            assert torch.equal(got, want)
