"""PyTorch's own samples of an operator, run on the CPU and on xpu, for the tests of indexing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing import assert_close
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


def moved(value: Any) -> Any:
    """Return ``value`` with its tensors on xpu, strides kept."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return torch.device("xpu") if x == torch.device("cpu") else x
        y = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="xpu")
        return y.copy_(x.detach()).requires_grad_(x.requires_grad)

    return tree_map(move, value)


def cases(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Every OpInfo of the given names, as (name with variant, OpInfo)."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if info.name in names:
            yield f"{info.name}.{info.variant_test_name}".rstrip("."), info


def same(
    function: Callable[..., Any], *args: Any, rtol: float = 0.0, atol: float = 0.0, **kwargs: Any
) -> None:
    """Assert that ``function`` gives the same on both devices, or the same error."""
    try:
        expected = function(*tree_map(copied, args), **tree_map(copied, kwargs))
    except Exception as error:  # noqa: BLE001
        try:
            function(*moved(args), **moved(kwargs))
        except type(error) as raised:
            # What a dtype lacks is told by each backend in its own words ("erf_vml_cpu" not implemented for ...).
            assert (
                isinstance(error, NotImplementedError)
                or str(raised).split("\n")[0] == str(error).split("\n")[0]
            )
            return
        raise AssertionError(f"no {type(error).__name__}: {error}") from error
    result = tree_map(
        lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, function(*moved(args), **moved(kwargs))
    )
    assert_close(result, expected, rtol=rtol, atol=atol, equal_nan=True)


def refused(function: Callable[..., Any], *args: Any) -> None:
    """Assert that both devices find an index out of range or of a wrong shape. The CPU's words and types differ from path to path."""
    for arguments in (tree_map(copied, args), moved(args)):
        with pytest.raises(
            (IndexError, RuntimeError), match="out of (range|bounds|DATA bounds)|to be a vector"
        ):
            function(*arguments)


def copied(value: Any) -> Any:
    """Return a copy, so that in-place operators leave the original alone."""
    return value.clone() if isinstance(value, torch.Tensor) else value
