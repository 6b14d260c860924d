"""Random numbers from a key (torch.func._random), against Philox in Python and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from comparing import assert_close

aten = torch.ops.aten
pytestmark = pytest.mark.skipif(not hasattr(aten, "_philox_uniform_"), reason="from PyTorch 2.13 on")
KEYS = [(0, 0), (42, 7), (2**64 - 1, 2**64 - 2), (1 << 63, (1 << 32) - 1), (0x0123456789ABCDEF, 1 << 40)]


def words(seed: int, counter: int) -> list[int]:
    """Return the four words of Philox4x32-10 (Salmon et al.) for a key and a counter of 64 bits."""
    low = 0xFFFFFFFF
    counter %= 1 << 64
    c, k = [counter & low, counter >> 32, 0, 0], [seed & low, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & low, (p >> 32) ^ c[3] ^ k[1], p & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


def test_the_reference_is_philox() -> None:
    # The known answers of Random123 for counters and keys of zeros.
    assert words(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def derived(seed: int, counter: int) -> list[int]:
    r = words(seed, counter)
    return [r[0] | r[1] << 32, r[2] | r[3] << 32]


def key_of(*pairs: tuple[int, int]) -> torch.Tensor:
    return torch.from_numpy(np.array(pairs, dtype=np.uint64)).to("xpu")


@pytest.mark.parametrize("key", KEYS)
def test_split_and_fold_in(key: tuple[int, int]) -> None:
    seed, offset = key
    split = aten._philox_key_split(key_of(key)[0], 5)
    assert split.shape == (5, 2) and split.dtype == torch.uint64
    assert split.tolist() == [derived(seed, offset + i) for i in range(5)]
    for data in (0, 3, 2**40):
        assert aten._philox_key_fold_in(key_of(key)[0], data).tolist() == derived(seed, offset + data)


def test_split_of_many_keys() -> None:
    keys = key_of(*KEYS, KEYS[1]).view(2, 3, 2)
    split = aten._philox_key_split(keys, 4)
    assert split.shape == (4, 2, 3, 2)
    want = [[derived(s, o + i) for s, o in [*KEYS, KEYS[1]]] for i in range(4)]
    assert split.view(4, 6, 2).tolist() == want
    turned = keys.transpose(0, 1)
    assert torch.equal(
        aten._philox_key_fold_in(turned, 9).cpu(), aten._philox_key_fold_in(turned.contiguous(), 9).cpu()
    )


DIGITS = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}


def uniform(key: tuple[int, int], count: int, dtype: torch.dtype) -> list[float]:
    """Return the numbers in [0, 1) before rounding."""
    per = 2 if dtype == torch.float64 else 4
    drawn = []
    for n in range(count):
        r = words(key[0], key[1] + n // per)
        value = r[n % per] if per == 4 else r[2 * (n % 2)] << 32 | r[2 * (n % 2) + 1]
        drawn.append((value & (1 << DIGITS[dtype]) - 1) / (1 << DIGITS[dtype]))
    return drawn


def normal(key: tuple[int, int], count: int, dtype: torch.dtype) -> list[float]:
    """Apply the Box-Muller transform."""
    drawn = []
    for n in range(count):
        if dtype == torch.float64:
            r = words(key[0], key[1] + n // 2)
            u = r[0] / 2**32 + (r[1] + 0.5) / 2**64
            v = r[2] / 2**32 + (r[3] + 0.5) / 2**64
        else:
            r = words(key[0], key[1] + n // 4)
            u, v = ((r[n % 4 // 2 * 2 + i] + 0.5) / 2**32 for i in (0, 1))
        radius = math.sqrt(-2 * math.log(u))
        drawn.append(radius * (math.sin(2 * math.pi * v) if n % 2 else math.cos(2 * math.pi * v)))
    return drawn


TIMES = {torch.float32: 0.15, torch.float64: 1, torch.float16: 0.5, torch.bfloat16: 0.8}


@pytest.mark.parametrize("dtype", DIGITS, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 1000])
def test_numbers_of_one_key(dtype: torch.dtype, count: int) -> None:
    for key in KEYS[:3]:
        x = torch.empty(count, dtype=dtype, device="xpu")
        assert aten._philox_uniform_(x, key_of(key)[0], -1.0, 3.0) is x
        want = torch.tensor(uniform(key, count, dtype), dtype=torch.float64) * 4 - 1
        assert_close(x, want, dtype=dtype, times=TIMES)
        aten._philox_normal_(x, key_of(key)[0], 2.0, 0.5)
        want = torch.tensor(normal(key, count, dtype), dtype=torch.float64) * 0.5 + 2
        assert_close(x, want, dtype=dtype, times=TIMES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 2, 1), (1, 2, 1), (3, 2, 5), (1, 1, 1), (1, 1, 5)])
def test_numbers_of_many_keys(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    count = math.prod(shape)
    pairs = [(n * 977 + 1, n * 5) for n in range(count)]
    keys = key_of(*pairs).view(*shape, 2)
    x = torch.empty(5, 2, 3, dtype=dtype, device="xpu").permute(2, 1, 0)  # with any strides
    aten._philox_uniform_(x, keys, 0.0, 1.0)
    wide = torch.arange(count).view(shape)
    run = len(shape)
    while run > 0 and shape[run - 1] == 1:
        run -= 1
    tail = math.prod(x.shape[run:])
    which = wide.view(shape[:run]).expand(x.shape[:run]).reshape(-1).tolist()
    want = [value for n in which for value in uniform(pairs[n], tail, dtype)]
    expected = torch.tensor(want, dtype=torch.float64).view(x.shape)
    assert_close(x, expected, dtype=dtype, rtol=1e-6, atol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    x, key = torch.empty(4, device="xpu"), key_of((1, 2))[0]
    for call, text in [
        (lambda: aten._philox_uniform_(x, key.view(torch.int64)), "dtype uint64"),
        (lambda: aten._philox_uniform_(x.int(), key), "floating point"),
        (lambda: aten._philox_normal_(x, key[:1]), "shape"),
        (lambda: aten._philox_normal_(x, key.view(1, 1, 2)), "ndim"),
        (lambda: aten._philox_normal_(x, key_of((1, 2), (3, 4))), "broadcast"),
        (lambda: aten._philox_key_split(key, 0), "positive"),
        (lambda: aten._philox_key_split(key[:1], 2), "shape"),
        (lambda: aten._philox_key_fold_in(key.view(torch.int64), 2), "uint64"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()
