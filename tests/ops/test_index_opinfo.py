"""Indexing operators on PyTorch's own samples: results and gradients as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map

from .indexing_samples import LATE, cases, moved

# PyTorch's samples call whatever PyTorch warns of; a warning of ours, of a fallback, is listed
pytestmark = pytest.mark.filterwarnings("ignore", "default:The operator")

NAMES = [
    "__getitem__",
    "argwhere",
    "cat",
    "concat",
    "stack",
    "hstack",
    "vstack",
    "dstack",
    "column_stack",
    "block_diag",
    "index_select",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "gather",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "take",
    "take_along_dim",
    "put",
    "masked_select",
    "masked_scatter",
    "nonzero",
    "nonzero_static",
    "nn.functional.embedding",
    "roll",
    "flip",
    "fliplr",
    "flipud",
    "rot90",
    "repeat_interleave",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "nn.functional.one_hot",
    "count_nonzero",
    "select_scatter",
    "slice_scatter",
    "diagonal_scatter",
    "tile",
    "repeat",
    "constant_pad_nd",
    "nn.functional.pad",
    "chunk",
    "split",
    "tensor_split",
    "unbind",
    "isin",
    "meshgrid",
    "diag_embed",
    "tril_indices",
    "triu_indices",
]
CASES = list(cases(NAMES))
# The others, in test_index.py and test_scatter.py, take the same paths.
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
# Sums in another order.
SUMS = (
    "index_add",
    "index_put",
    "scatter_add",
    "scatter_reduce",
    "index_reduce",
    "put",
    "embedding",
    "accumulate",
    "masked",
)


def results(info: Any, sample: Any, on: Any) -> tuple[Any, list[torch.Tensor]]:
    """Return the operator's result and the gradients of its sum with respect to the sample's tensors."""
    sample = sample.transform(
        lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
    )
    if on == "xpu":
        # Sizes and places given as a tensor stay on the CPU.
        args = sample.args if info.name == "tensor_split" else moved(sample.args)
        sample = type(sample)(moved(sample.input), args=args, kwargs=moved(sample.kwargs))
    inputs = [
        x
        for x in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    result = info.op(sample.input, *sample.args, **sample.kwargs)
    outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    gradients = []
    if inputs and outputs:
        total = sum((x * x.conj()).real.sum() if x.is_complex() else (x * x).sum() for x in outputs)
        gradients = [x for x in torch.autograd.grad(total, inputs, allow_unused=True) if x is not None]
    cpu = lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x  # noqa: E731
    return tree_map(cpu, result), [cpu(x) for x in gradients]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize(("name", "info"), CASES, ids=[name for name, _ in CASES])
def test_samples(name: str, info: Any, dtype: torch.dtype) -> None:
    if dtype not in info.dtypes:
        pytest.skip("not for this dtype")
    gradient = (
        dtype in info.supported_backward_dtypes("cpu") and info.supports_autograd and dtype.is_floating_point
    )
    tolerance: dict[str, float] = {"rtol": 0, "atol": 0}
    sums = any(word in name for word in SUMS)
    if sums:
        tolerance = {}

    def wide(x: Any) -> Any:
        is_real = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.detach().double().requires_grad_(x.requires_grad) if is_real else x

    def narrow(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    for sample in info.sample_inputs("cpu", dtype, requires_grad=gradient):
        try:
            expected, gradients = results(info, sample, "cpu")
        except (RuntimeError, IndexError) as error:
            with pytest.raises((type(error), IndexError) if LATE else type(error)):
                results(info, sample, "xpu")
                torch.xpu.synchronize()
            continue
        if dtype == torch.bfloat16 and (sums or "pad" in name):  # the CPU rounds after each addition
            double = sample.transform(wide)
            wide_result, wide_gradients = results(info, double, "cpu")
            expected, gradients = tree_map(narrow, (wide_result, wide_gradients))
        actual, actual_gradients = results(info, sample, "xpu")
        assert_close(actual, expected, equal_nan=True, **tolerance)
        for a, e in zip(actual_gradients, gradients, strict=True):
            assert_close(a, e, equal_nan=True)
