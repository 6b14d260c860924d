"""Inputs and expected results of the collectives' tests."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from comparing import assert_equal
from torch import Tensor

# Gloo reduces these; bool is no number.
NUMBERS = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]
# These are reduced as others: complex numbers as pairs, float8 in fp32.
PAIRS = ["complex64", "complex128", "complex32"]
NARROW = ["float8_e4m3fn", "float8_e5m2"]
# These are only moved, as on CUDA, bool apart, whose sum is whether one is true.
MOVED = ["bool", "int16", "uint16", "uint32", "uint64", "float8_e8m0fnu"]
REDUCTIONS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]


def given(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Return small integers, whose sums and products are exact in all dtypes."""
    numbers = torch.randint(1, 5, shape, generator=torch.Generator().manual_seed(seed))
    if dtype == torch.bool:
        return numbers > 2
    if dtype == torch.float8_e8m0fnu:  # powers of two
        return (2.0**numbers).to(dtype)
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.flip(0).double()).to(dtype)
    return numbers.to(dtype)


def reduced(all_ranks: list[Tensor], operation: str) -> Tensor:
    """Return the expected result of a reduction over all ranks."""
    dtype = all_ranks[0].dtype
    wide = torch.stack([x.to(torch.float64 if dtype.is_floating_point else torch.int64) for x in all_ranks])
    if operation in ("SUM", "AVG"):
        result = wide.sum(0)
        if operation == "AVG":
            ranks = len(all_ranks)
            result = result / ranks if dtype.is_floating_point else result // ranks
    elif operation == "PRODUCT":
        result = wide.prod(0)
    elif operation in ("MIN", "MAX"):
        result = wide.amin(0) if operation == "MIN" else wide.amax(0)
    else:
        combine = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[operation]
        result = functools.reduce(combine, wide)
    return result.to(dtype)


def same(got: Tensor, want: Tensor) -> None:
    """Fail unless both tensors have the same shape and bits."""
    assert_equal(got, want, bits=True)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Return one input for each rank."""
    return [given(shape, dtype, seed * 100 + r) for r in range(dist.get_world_size())]


def wait(work: dist.Work | None, is_async: bool) -> None:
    assert (work is not None) == is_async
    if work is not None:
        work.wait()
        assert work.is_completed()
