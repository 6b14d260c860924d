"""PyTorch's own samples of an operator, run on the CPU and on xpu, for the indexing tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from comparing import assert_close
from torch.utils._pytree import tree_map

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


# GPUs work on while the program goes on: an index out of range is found at the next wait, and sums at places
# that come up more than once are taken in any order.
LATE = torch.xpu.get_device_properties().type != "cpu"


HALVES = (torch.float16, torch.bfloat16)


def exact(x: torch.Tensor) -> torch.Tensor:
    """Return powers of two if the order of sums may differ, since their sums and products are exact in any order."""
    if x.dtype not in HALVES and not (LATE and x.is_floating_point()):
        return x.real.round().to(x.dtype) if LATE and x.is_complex() else x
    return torch.where(x > 0, 1, -1) * 2 ** (x.float().abs() % 3).floor().to(x.dtype)


@contextmanager
def out_of_range(kind: type[Exception], match: str) -> Iterator[None]:
    """Expect the error for an index out of range, with the CPU's type and text if it is raised immediately."""
    with pytest.raises(
        (kind, IndexError) if LATE else kind, match="out of (range|bounds)" if LATE else match
    ):
        yield
        torch.xpu.synchronize()


def moved(value: Any) -> Any:
    """Return ``value`` with its tensors on xpu, strides kept."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return torch.device("xpu") if x == torch.device("cpu") else x
        y = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="xpu")
        return y.copy_(x.detach()).requires_grad_(x.requires_grad)

    return tree_map(move, value)


def cases(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Return every OpInfo of the given names, as (name with variant, OpInfo)."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if info.name in names:
            yield f"{info.name}.{info.variant_test_name}".rstrip("."), info


def same(
    function: Callable[..., Any], *args: Any, rtol: float = 0.0, atol: float = 0.0, **kwargs: Any
) -> None:
    """Assert that ``function`` returns the same on both devices, or raises the same error."""
    try:
        expected = function(*tree_map(copied, args), **tree_map(copied, kwargs))
    except Exception as error:  # noqa: BLE001
        try:
            function(*moved(args), **moved(kwargs))
            torch.xpu.synchronize()
        except (type(error), IndexError) as raised:
            if LATE and "An earlier call caused this" in str(raised):
                assert "out of" in str(error)
                return
            assert isinstance(raised, type(error))
            # What a dtype lacks is told by each backend in its own words ("erf_vml_cpu" not implemented for ...).
            assert (
                isinstance(error, NotImplementedError)
                or str(raised).split("\n")[0] == str(error).split("\n")[0]
            )
            return
        raise AssertionError(f"no {type(error).__name__}: {error}") from error
    result = function(*moved(args), **moved(kwargs))
    assert_close(result, expected, rtol=rtol, atol=atol, equal_nan=True)


def refused(function: Callable[..., Any], *args: Any) -> None:
    """Assert that both devices reject an index out of range or of a wrong shape. The CPU's errors vary."""
    for arguments in (tree_map(copied, args), moved(args)):
        with pytest.raises(
            (IndexError, RuntimeError), match="out of (range|bounds|DATA bounds)|to be a vector"
        ):
            function(*arguments)
            torch.xpu.synchronize()


def copied(value: Any) -> Any:
    """Return a copy, so that in-place operators don't change the original."""
    return value.clone() if isinstance(value, torch.Tensor) else value
