"""Random numbers on xpu: distributions, reproducibility, argument checks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from comparing import assert_close

N = 200_003
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def normal_cdf(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.erfc(-x / math.sqrt(2))


DRAWS: dict[str, tuple[Callable, Callable]] = {
    "uniform": (lambda t: t.uniform_(-1, 3), lambda x: ((x + 1) / 4).clamp(0, 1)),
    "normal": (lambda t: t.normal_(1, 2), lambda x: normal_cdf((x - 1) / 2)),
    "log_normal": (lambda t: t.log_normal_(0, 0.5), lambda x: normal_cdf(x.log() / 0.5)),
    "exponential": (lambda t: t.exponential_(2), lambda x: 1 - torch.exp(-2 * x)),
    "cauchy": (lambda t: t.cauchy_(1, 2), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi),
}


def drawn(draw: Callable, dtype: torch.dtype, shape: tuple[int, ...] = (N,), seed: int = 1) -> torch.Tensor:
    torch.xpu.manual_seed(seed)
    return draw(torch.empty(shape, dtype=dtype, device="xpu"))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name: str, dtype: torch.dtype) -> None:
    draw, cdf = DRAWS[name]
    x = drawn(draw, dtype).cpu().double().sort().values
    steps = torch.arange(N + 1, dtype=torch.float64) / N
    expected = cdf(x)
    distance = torch.maximum((expected - steps[:-1]).abs(), (expected - steps[1:]).abs()).max().item()
    # Kolmogorov-Smirnov test at 1e-5, plus the spacing of the dtype's values
    assert distance < 2.47 / math.sqrt(N) + {torch.bfloat16: 5e-3, torch.float16: 1e-3}.get(dtype, 0)


@pytest.mark.parametrize("name", DRAWS)
def test_neighbors_are_independent(name: str) -> None:
    x = DRAWS[name][1](drawn(DRAWS[name][0], torch.float64).cpu())  # uniform on [0, 1]
    for lag in (1, 2, 3, 4, 16, 256, 512, 1024):
        pair = torch.stack([x[:-lag], x[lag:]])
        assert abs(torch.corrcoef(pair)[0, 1].item()) < 5 / math.sqrt(N), lag


@pytest.mark.parametrize("name", DRAWS)
def test_reproducible(name: str) -> None:
    draw = DRAWS[name][0]
    x = drawn(draw, torch.float32)
    assert torch.equal(x, drawn(draw, torch.float32))
    assert torch.equal(x[: N - 777], drawn(draw, torch.float32, (N - 777,)))
    assert torch.equal(x, drawn(lambda t: draw(t[:, 1]), torch.float32, (N, 3)))
    assert not torch.equal(x, drawn(draw, torch.float32, seed=2))
    state = torch.xpu.get_rng_state()
    first = draw(torch.empty(100, device="xpu"))
    assert not torch.equal(first, draw(torch.empty(100, device="xpu")))
    torch.xpu.set_rng_state(state)
    assert torch.equal(first, draw(torch.empty(100, device="xpu")))
    generator = torch.Generator("xpu").manual_seed(1)
    assert torch.equal(
        x[:50],
        {
            "uniform": lambda t: t.uniform_(-1, 3, generator=generator),
            "normal": lambda t: t.normal_(1, 2, generator=generator),
            "log_normal": lambda t: t.log_normal_(0, 0.5, generator=generator),
            "exponential": lambda t: t.exponential_(2, generator=generator),
            "cauchy": lambda t: t.cauchy_(1, 2, generator=generator),
        }[name](torch.empty(50, device="xpu")),
    )


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_uniform_stays_below_its_end(dtype: torch.dtype) -> None:
    x = drawn(lambda t: t.uniform_(), dtype, (1 << 22,))
    assert x.min().item() >= 0 and x.max().item() < 1


def test_exponential_is_never_zero() -> None:
    assert drawn(lambda t: t.exponential_(), torch.float32, (1 << 22,)).min().item() > 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, *FLOATING], ids=str)
def test_bernoulli(dtype: torch.dtype) -> None:
    x = drawn(lambda t: t.bernoulli_(0.3), dtype).cpu().double()
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert abs(x.mean().item() - 0.3) < 5 * math.sqrt(0.21 / N)
    chances = torch.linspace(0, 1, N, device="xpu")
    x = drawn(lambda t: t.bernoulli_(chances), dtype).cpu().double()
    assert x[0] == 0 and abs((x - chances.cpu().double()).mean().item()) < 5 * math.sqrt(1 / 6 / N)
    assert drawn(lambda t: t.bernoulli_(0.0), dtype).cpu().double().sum() == 0
    assert drawn(lambda t: t.bernoulli_(1.0), dtype).cpu().double().sum() == N


def test_geometric() -> None:
    x = drawn(lambda t: t.geometric_(0.3), torch.float32).cpu().double()
    assert x.min() == 1 and torch.equal(x, x.round())
    assert abs(x.mean().item() - 1 / 0.3) < 5 * math.sqrt(0.7 / 0.09 / N)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *FLOATING], ids=str
)
def test_integers(dtype: torch.dtype) -> None:
    x = drawn(lambda t: t.random_(), dtype).cpu().double()
    top = (
        1
        if dtype == torch.bool
        else (2 / torch.finfo(dtype).eps if dtype.is_floating_point else torch.iinfo(dtype).max)
    )
    assert x.min() >= 0 and x.max() <= top
    assert abs(x.mean().item() / top - 0.5) < 5 / math.sqrt(12 * N) + 1e-3 * (dtype == torch.bool) + 5e-3 * (
        dtype in (torch.uint8, torch.int8)
    )
    if dtype != torch.bool:
        x = drawn(lambda t: t.random_(3, 14), dtype).cpu().double()
        counts = torch.bincount(x.long() - 3)
        expected = N / 11
        assert (
            len(counts) == 11 and ((counts - expected) ** 2 / expected).sum().item() < 45
        )  # chi-square at 1e-5
    if dtype == torch.int64:
        x = drawn(lambda t: t.random_(-(2**63), None), dtype).cpu().double()
        assert abs(x.mean().item()) / 2**63 < 5 / math.sqrt(3 * N)


WHOLE = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]


def bounds_of(dtype: torch.dtype) -> tuple[int, int]:
    """Return the consecutive integers that `dtype` represents exactly, within random_'s arguments."""
    if dtype.is_floating_point:
        most = min(int(2 / torch.finfo(dtype).eps), 2**53)
        return -most, most
    info = torch.iinfo(dtype)
    return info.min, min(info.max, 2**63 - 1)


def ranges(dtype: torch.dtype) -> list[tuple[int, int]]:
    """Yield ranges at and around every power of two; from 0, and from below and above it."""
    low, high = bounds_of(dtype)
    found = []
    for power in range(1, (high - low).bit_length()):
        for size in {2**power - 1, 2**power, 2**power + 1, 3 * 2 ** (power - 1), 2**power + 2**power // 4}:
            if 1 < size <= min(high - low, 2**63 - 1):
                start = 0 if size <= high else low
                found.append((start, start + size))
                if power % 4 == 0 and low < 0 and -(size // 3) >= low and size - size // 3 <= high:
                    found.append((-(size // 3), size - size // 3))
    if low < 0:
        found.append((low, high))
    return found


def offsets(x: torch.Tensor, start: int) -> np.ndarray:
    """Return x minus `start` as integers, exactly."""
    exact = x.cpu().double().to(torch.int64) if x.is_floating_point() else x.cpu()
    return exact.numpy().astype(np.uint64 if x.dtype == torch.uint64 else np.int64).view(
        np.uint64
    ) - np.uint64(start % 2**64)


def chi_square(values: np.ndarray, size: int) -> float:
    """Return the deviations of up to 7 intervals and of the lowest bits, in standard deviations."""
    bins = min(7, size)
    edges = [-(-b * size // bins) for b in range(bins + 1)]
    counts = np.diff(np.searchsorted(np.sort(values), np.array(edges[:-1], np.uint64)), append=len(values))
    expected = np.array([(b - a) / size * len(values) for a, b in zip(edges, edges[1:], strict=False)])
    worst = ((counts - expected) ** 2 / expected).sum() / (bins - 1) ** 0.5 - (bins - 1) ** 0.5
    if size >= 2**12:
        low = np.bincount((values % np.uint64(8)).astype(np.int64), minlength=8)
        worst = max(worst, ((low - len(values) / 8) ** 2 / (len(values) / 8)).sum() / 7**0.5 - 7**0.5)
    return worst / 2**0.5


@pytest.mark.parametrize("dtype", WHOLE + FLOATING, ids=str)
def test_integers_of_any_range_are_uniform(dtype: torch.dtype) -> None:
    torch.xpu.manual_seed(9)
    for start, end in ranges(dtype):
        x = torch.empty(30_000, dtype=dtype, device="xpu").random_(start, end)
        values = offsets(x, start)
        assert values.max() < end - start, (start, end)
        # exceeded by less than 1e-6 of uniform samples
        assert chi_square(values, end - start) < 14, (start, end)


@pytest.mark.parametrize("size", [2**31 + 1, 3 * 2**30, 2**32 - 1, 5 * 2**60 // 3, 3 * 2**61, 2**63 - 1])
def test_randint_of_a_large_range_is_uniform(size: int) -> None:
    torch.xpu.manual_seed(10)
    like = torch.empty(200_000, dtype=torch.int64, device="xpu")
    for x, start in (
        (torch.randint(size, like.shape, device="xpu"), 0),
        (torch.randint(-(size // 2), size - size // 2, like.shape, device="xpu"), -(size // 2)),
        (torch.randint_like(like, size), 0),
        (like.view(500, 400).t().random_(0, size).reshape(-1), 0),
    ):
        assert chi_square(offsets(x, start), size) < 14


def philox(seed: int, sequence: int, offset: int) -> list[int]:
    """Compute Philox 4x32-10, from its paper (Salmon et al. 2011)."""
    low = 2**32 - 1
    c, k = [offset & low, offset >> 32, sequence & low, sequence >> 32], [seed & low, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & low, a >> 32 ^ c[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


@pytest.mark.parametrize(
    ("start", "size"),
    [
        (0, 1),
        (5, 7),
        (-3, 2**28),
        (0, 3 * 2**30),
        (-(2**31), 2**32 - 1),
        (1, 2**32),
        (0, 3 * 2**61),
        (-(2**63), 2**64 - 1),
    ],
)
def test_integers_are_fractions_of_their_range(start: int, size: int) -> None:
    """Each number is the range times a fraction of all its random bits, rounded down."""
    torch.xpu.manual_seed(1234567890123)
    got = torch.empty(1500, dtype=torch.int64, device="xpu").random_(start, start + size).tolist()
    for n in range(0, 1500, 7):
        block, within = divmod(n, 1024)
        k, lane = divmod(within, 256)
        words = [philox(1234567890123, block * 256 + lane, offset)[k] for offset in range(3)]
        bits = words[0] << 64 | words[1] << 32 | words[2]
        wide = size >= 2**32
        assert got[n] == start + (size * (bits if wide else bits >> 32) >> (96 if wide else 64))


def test_small_chances() -> None:
    """Probabilities far below 2^-24 are sampled correctly."""
    torch.xpu.manual_seed(11)
    x = torch.empty(1 << 24, device="xpu")
    for chance, least, most in ((1e-6, 1, 40), (1e-9, 0, 1)):
        assert least <= x.bernoulli_(chance).sum().item() <= most
        assert least <= torch.bernoulli(x.fill_(chance)).sum().item() <= most


def test_bounds_are_checked() -> None:
    x = torch.empty(4, device="xpu")
    for draw in (
        lambda: x.uniform_(2, 1),
        lambda: x.normal_(0, -1),
        lambda: x.exponential_(-1),
        lambda: x.bernoulli_(2.0),
        lambda: x.geometric_(0.0),
        lambda: x.random_(5, 5),
        lambda: x.cauchy_(0, -1),
        lambda: torch.empty(4, dtype=torch.int64, device="xpu").uniform_(),
    ):
        with pytest.raises(RuntimeError):
            draw()


def test_randperm() -> None:
    torch.xpu.manual_seed(5)
    x = torch.randperm(10_000, device="xpu")
    assert torch.equal(x.cpu().sort().values, torch.arange(10_000))
    torch.xpu.manual_seed(5)
    assert torch.equal(x, torch.randperm(10_000, device="xpu"))
    assert not torch.equal(x, torch.randperm(10_000, device="xpu"))
    firsts = torch.stack([torch.randperm(5, device="xpu") for _ in range(1000)]).cpu()[:, 0]
    assert ((torch.bincount(firsts, minlength=5) - 200.0) ** 2 / 200).sum().item() < 30
    assert torch.randperm(0, device="xpu").numel() == 0


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_dropout(dtype: torch.dtype) -> None:
    torch.xpu.manual_seed(3)
    x = torch.randn(300, 700, device="xpu").to(dtype).requires_grad_()
    y = torch.nn.functional.dropout(x, 0.25)
    kept = y.detach().cpu() != 0
    assert abs(kept.double().mean().item() - 0.75) < 5 * math.sqrt(0.1875 / x.numel())
    assert_close(y, torch.where(kept, x.detach().cpu() / 0.75, 0.0), equal_nan=True)
    y.backward(torch.ones_like(y))
    assert_close(x.grad, (kept / 0.75).to(dtype))
    assert torch.equal(torch.nn.functional.dropout(x, 0.25, training=False), x)
    assert (torch.nn.functional.dropout(x, 1.0) == 0).all()
    assert torch.nn.functional.dropout(torch.full_like(x, math.nan), 0.5).isnan().all()
    out, mask = torch.native_dropout(x.detach().t(), 0.5, True)
    assert torch.equal(out != 0, mask & (x.detach().t() != 0))


def test_multinomial() -> None:
    torch.xpu.manual_seed(4)
    weights = torch.tensor([[1.0, 0.0, 3.0, 4.0], [5.0, 5.0, 0.0, 0.0]], device="xpu")
    x = torch.multinomial(weights, 50_000, replacement=True).cpu()
    for row, expected in zip(x, weights.cpu() / weights.cpu().sum(-1, keepdim=True), strict=True):
        assert ((torch.bincount(row, minlength=4) / 50_000 - expected).abs() < 0.012).all()
        assert (torch.bincount(row, minlength=4)[expected == 0] == 0).all()
    x = torch.multinomial(weights[:1].expand(1000, 4), 3).cpu()
    assert (x.sort(-1).values == torch.tensor([0, 2, 3])).all()
    with pytest.raises(RuntimeError, match="without replacement"):
        torch.multinomial(weights, 5)


@pytest.mark.parametrize("scale", [1e-50, 1e200])
def test_multinomial_of_doubles_beyond_floats(scale: float) -> None:
    torch.xpu.manual_seed(4)
    weights = torch.tensor([3 * scale, scale, 0], dtype=torch.float64, device="xpu")
    counts = torch.bincount(torch.multinomial(weights, 2000, True).cpu(), minlength=3)
    assert counts[2] == 0 and 1350 < counts[0] < 1650


def test_normal_with_tensors() -> None:
    torch.xpu.manual_seed(6)
    mean = torch.linspace(-5, 5, N, device="xpu")
    x = torch.normal(mean, torch.full((N,), 2.0, device="xpu")).cpu() - mean.cpu()
    assert abs(x.mean().item()) < 0.05 and abs(x.std().item() - 2) < 0.02
    z = torch.randn(N, dtype=torch.complex64, device="xpu").cpu()
    assert abs(z.abs().pow(2).mean().item() - 1) < 0.02


# --- distributions whose parameters are tensors ---


def far(ecdf: torch.Tensor, cdf: torch.Tensor, count: int) -> bool:
    """Kolmogorov-Smirnov test at 1e-5; for discrete distributions it is conservative."""
    return (ecdf - cdf).abs().max().item() > 2.47 / math.sqrt(count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("alpha", [0.2, 0.9, 1.0, 4.5, 900.0])
def test_gamma(alpha: float, dtype: torch.dtype) -> None:
    torch.xpu.manual_seed(3)
    x = torch._standard_gamma(torch.full((N,), alpha, dtype=dtype, device="xpu"))
    assert x.dtype == dtype and x.min().item() > 0
    x = x.cpu().double().sort().values
    cdf = torch.special.gammainc(torch.tensor(alpha, dtype=dtype).double().expand(N), x)
    assert not far(torch.arange(1, N + 1, dtype=torch.float64) / N, cdf, N)


def test_gamma_in_half_precision() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = torch._standard_gamma(torch.full((N,), 2.0, dtype=dtype, device="xpu"))
        assert x.dtype == dtype and abs(x.double().mean().item() - 2) < 5 * math.sqrt(2 / N) + 2e-3
        tiny = torch._standard_gamma(torch.full((1000,), 0.01, dtype=dtype, device="xpu"))
        assert tiny.min().item() >= torch.finfo(dtype).tiny


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mean", [0.03, 1.0, 9.5, 10.5, 45.0, 3000.0, 1e6])
def test_poisson(mean: float, dtype: torch.dtype) -> None:
    torch.xpu.manual_seed(4)
    x = torch.poisson(torch.full((N,), mean, dtype=dtype, device="xpu"))
    assert x.dtype == dtype and torch.equal(x, x.floor()) and x.min().item() >= 0
    values, counts = x.cpu().double().unique(return_counts=True)
    ecdf = counts.cumsum(0).double() / N
    exact = torch.tensor(mean, dtype=dtype).double()
    assert not far(ecdf, torch.special.gammaincc(values + 1, exact.expand_as(values)), N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("count", "chance"), [(1, 0.3), (7, 0.9), (40, 0.1), (100, 0.5), (1000, 0.97), (20000, 0.2)]
)
def test_binomial(count: int, chance: float, dtype: torch.dtype) -> None:
    torch.xpu.manual_seed(5)
    counts = torch.full((N,), count, dtype=dtype, device="xpu")
    x = torch.binomial(counts, torch.full_like(counts, chance))
    assert x.dtype == dtype and x.min().item() >= 0 and x.max().item() <= count
    k = torch.arange(count + 1, dtype=torch.float64)
    p = torch.tensor(chance, dtype=dtype).double()
    n = torch.tensor(float(count), dtype=torch.float64)
    pmf = (
        (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma() + k * p.log() + (n - k) * (1 - p).log()
    ).exp()
    ecdf = torch.bincount(x.cpu().long(), minlength=count + 1).cumsum(0).double() / N
    assert not far(ecdf, pmf.cumsum(0), N)


def test_dirichlet() -> None:
    torch.xpu.manual_seed(6)
    alpha = torch.tensor([0.5, 2.0, 7.5], device="xpu")
    x = torch._sample_dirichlet(alpha.expand(N, 3)).cpu().double()
    assert (x.sum(1) - 1).abs().max() < 1e-5
    mean = alpha.cpu().double() / 10
    deviation = (mean * (1 - mean) / 11).sqrt()
    assert ((x.mean(0) - mean).abs() < 5 * deviation / math.sqrt(N)).all()
    assert ((x.std(0) / deviation - 1).abs() < 0.02).all()
    drawn_by_class = torch.distributions.Dirichlet(alpha).sample((5,))
    assert drawn_by_class.is_xpu and drawn_by_class.shape == (5, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_chances_that_are_none_are_refused(dtype: torch.dtype) -> None:
    edges = torch.tensor([0.0, 1.0, -0.0, 1.0], dtype=dtype, device="xpu")
    assert torch.bernoulli(edges).tolist() == [0, 1, 0, 1]
    for wrong in (1.0625, -0.0625, math.inf, math.nan):
        chances = torch.tensor([0.5, 0.5, wrong], dtype=dtype, device="xpu")
        for draw in (
            lambda p=chances: torch.bernoulli(p),
            lambda p=chances: torch.zeros_like(p).bernoulli_(p),
        ):
            with pytest.raises(RuntimeError, match="Expected p_in >= 0 && p_in <= 1"):
                draw()
                torch.xpu.synchronize()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cauchy_numbers_are_finite(dtype: torch.dtype) -> None:
    """Including the extreme values, of which 30 million numbers have one or two: 1/(pi 2^-25)."""
    torch.manual_seed(0)
    largest, least = -math.inf, math.inf
    for _ in range(8):
        x = torch.empty(1 << 22, dtype=dtype, device="xpu").cauchy_()
        largest, least = max(largest, x.max().item()), min(least, x.min().item())
    assert 1e6 < largest < 1.07e7 and -1.07e7 < least < -1e6


def test_parameters_at_the_edge() -> None:
    nan, inf = math.nan, math.inf
    zero, one = torch.zeros(3, device="xpu"), torch.ones(3, device="xpu")
    assert torch.equal(torch.poisson(zero), zero)
    for wrong_rate in (-0.5, -inf, nan):
        with pytest.raises(RuntimeError, match="invalid Poisson rate"):
            torch.poisson(torch.tensor([1.0, wrong_rate], device="xpu"))
            torch.xpu.synchronize()
    ten = torch.full((4,), 10.0, device="xpu")
    chances = torch.tensor([0.0, 1.0, nan, 0.5], device="xpu")
    got = torch.binomial(ten, chances).cpu()
    assert got[:2].tolist() == [0, 10] and got[2].isnan() and 0 <= got[3] <= 10
    assert torch.equal(torch.binomial(zero, one), zero)
    assert torch._standard_gamma(torch.tensor([nan, inf], device="xpu")).cpu().tolist()[1] == inf
    assert torch.poisson(torch.empty(0, 3, device="xpu")).shape == (0, 3)
    for wrong in (torch.int64, torch.bool):
        with pytest.raises(ValueError, match="floating-point dtypes"):
            torch.binomial(one.to(wrong), one)


def test_tensors_of_parameters() -> None:
    """Per-element parameters in any layout, with the given generator."""
    mean = torch.arange(1.0, 1201.0, device="xpu").reshape(40, 30)
    torch.xpu.manual_seed(7)
    x = torch.poisson(mean)
    assert ((x - mean).abs() < 7 * mean.sqrt() + 3).all()
    torch.xpu.manual_seed(7)
    wide = torch.zeros(40, 60, device="xpu")
    wide[:, ::2] = mean
    assert torch.equal(torch.poisson(wide[:, ::2]), x)
    assert not torch.equal(torch.poisson(mean), x)
    generator = torch.Generator("xpu").manual_seed(7)
    assert torch.equal(torch.poisson(mean, generator=generator), x)
    torch.xpu.manual_seed(8)
    state = torch.xpu.get_rng_state()
    torch.poisson(mean)
    assert not torch.equal(torch.xpu.get_rng_state(), state)
    samples = torch.binomial(torch.full((30,), 100.0, device="xpu"), torch.rand(40, 1, device="xpu"))
    assert samples.shape == (40, 30)
