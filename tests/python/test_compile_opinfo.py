"""PyTorch's own samples of every operator, compiled: the same as eager on xpu.

`make test` takes one operator in 24, OPENXPU_TEST_ALL=1 all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_map

# PyTorch's samples call whatever PyTorch warns of; a warning of ours, of a fallback, is listed
pytestmark = pytest.mark.filterwarnings("ignore", "default:The operator")

DTYPES = [torch.float32, torch.bfloat16]
# Compiled code keeps bf16 intermediates in fp32, eager rounds each.
TOLERANCE = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
    torch.bfloat16: {"rtol": 4e-2, "atol": 4e-2},
}


# CUDA only; uninitialized memory; half-precision complex numbers, which compiled code supports on no device
LEFT_OUT = ("jiterator", "empty", "chalf")


def cases() -> Iterator[tuple[Any, torch.dtype]]:
    """Each operator and dtype, all or some of them."""
    from torch.testing._internal.common_methods_invocations import op_db

    every = 1 if os.environ.get("OPENXPU_TEST_ALL") == "1" else 24
    for info in op_db[::every]:
        for dtype in DTYPES:
            if dtype in info.dtypes and not any(word in info.name for word in LEFT_OUT):
                yield info, dtype


CASES = list(cases())


def on_xpu(value: Any) -> Any:
    """The value with its tensors and devices moved to xpu."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("xpu")
    return torch.device("xpu") if value in (torch.device("cpu"), "cpu") else value


@pytest.mark.parametrize(
    ("info", "dtype"),
    CASES,
    ids=[f"{i.name}.{i.variant_test_name}".rstrip(".") + f"-{str(d)[6:]}" for i, d in CASES],
)
def test_compiled_equals_eager(info: Any, dtype: torch.dtype) -> None:
    sample = next(iter(info.sample_inputs("cpu", dtype)), None)
    if sample is None:
        pytest.skip("no sample")
    arguments = (sample.input, *sample.args)

    def run(function: Any, seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        values, named = tree_map(on_xpu, arguments), tree_map(on_xpu, sample.kwargs)
        return [x for x in tree_flatten(function(*values, **named))[0] if isinstance(x, torch.Tensor)]

    def work(*values: Any, **named: Any) -> Any:
        return info.op(*values, **named)

    try:
        expected, again = run(work, 1), run(work, 2)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        pytest.skip(f"not in eager: {error}")
    torch._dynamo.reset()
    actual = run(torch.compile(work), 1)
    assert [(x.shape, x.dtype) for x in actual] == [(x.shape, x.dtype) for x in expected]
    for mine, theirs, other in zip(actual, expected, again, strict=True):
        if mine.layout != torch.strided:
            mine, theirs, other = (x.to_dense() for x in (mine, theirs, other))
        if torch.equal(theirs.nan_to_num(), other.nan_to_num()):  # otherwise it is random or uninitialized
            assert_close(mine, theirs, equal_nan=True, **TOLERANCE[dtype])
