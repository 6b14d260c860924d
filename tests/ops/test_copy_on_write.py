"""Reading a lazy clone leaves its memory shared: operators copy nothing that they don't write.

OPENXPU_TEST_ALL=1 takes every operator of OpInfo.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from .indexing_samples import moved
from .recorded import DTYPES, OPERATORS

# PyTorch's samples call whatever PyTorch warns of; a warning of ours, of a fallback, is listed
pytestmark = pytest.mark.filterwarnings("ignore", "default:The operator")

ALL = os.environ.get("OPENXPU_TEST_ALL") == "1"
# One operator of each family and of each implementation path.
NAMES = set(
    """
    add where sum var argmax mm addmm baddbmm dot mv softmax sort topk kthvalue cumsum logcumsumexp cummax gather
    scatter scatter_add index_add index_copy index_select index_put take nonzero masked_select flip tril cat
    nn.functional.layer_norm nn.functional.batch_norm nn.functional.conv2d nn.functional.max_pool2d
    nn.functional.embedding nn.functional.scaled_dot_product_attention nn.functional.nll_loss
    nn.functional.grid_sample nn.functional.interpolate nn.functional.linear median linalg.svd linalg.solve
    fft.fft histc unique searchsorted clone
    """.split()
)


def shared(x: Any) -> Any:
    """Return a lazy clone, which shares the tensor's memory."""
    return torch._lazy_clone(x) if isinstance(x, torch.Tensor) else x


def leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested value."""
    return [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize(
    "info", [i for i in OPERATORS if ALL or i.name in NAMES], ids=lambda info: info.full_name
)
def test_inputs_stay_shared(info: Any) -> None:
    dtype = next((d for d in DTYPES if d in info.dtypes), None)
    if dtype is None or not info.supports_cow_input_no_materialize_forward:
        pytest.skip("takes no such inputs")
    gradient = dtype in info.supported_backward_dtypes("cpu") and info.supports_autograd
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=gradient)):
        if number == (4 if ALL else 2):
            break
        originals = moved((sample.input, *sample.args))
        args, kwargs = tree_map(shared, originals), tree_map(shared, moved(sample.kwargs))
        kept = [x.detach().clone() for x in leaves((args, kwargs))]
        result = info.op(*args, **kwargs)
        allowed = info.allow_cow_input_materialize_forward or []
        for i, x in enumerate(args):
            if isinstance(x, torch.Tensor) and i not in allowed:
                assert torch._C._is_cow_tensor(x), f"argument {i} was copied"
        for name, x in kwargs.items():
            if isinstance(x, torch.Tensor) and name not in allowed:
                assert torch._C._is_cow_tensor(x), f"{name} was copied"
        outputs = [x for x in leaves(result) if x.requires_grad]
        if outputs and info.supports_cow_input_no_materialize_backward and not info.skip_cow_input_backward:
            allowed = info.allow_cow_input_materialize_backward or []
            total = sum((x.abs() if x.is_complex() else x).sum() for x in outputs)
            inputs = [x for x in leaves((args, kwargs)) if x.requires_grad]
            torch.autograd.grad(total, inputs, allow_unused=True)
            for i, x in enumerate(args):
                if isinstance(x, torch.Tensor) and i not in allowed:
                    assert torch._C._is_cow_tensor(x), f"argument {i} was copied in backward"
        for x, before in zip(leaves((args, kwargs)), kept, strict=True):
            if torch._C._is_cow_tensor(x):
                assert torch.equal(x.detach().nan_to_num(), before.nan_to_num()), "an input was written"


def test_writing_to_a_lazy_clone_leaves_the_other() -> None:
    writers = [
        lambda x: x.add_(1),
        lambda x: x.fill_(3),
        lambda x: x.copy_(torch.ones(3, 4)),
        lambda x: x.index_put_((torch.tensor([0], device="xpu"),), torch.tensor(5.0, device="xpu")),
        lambda x: x.scatter_add_(0, torch.zeros(1, 4, dtype=torch.int64, device="xpu"), x[:1].clone() + 1),
        lambda x: torch.mm(x[:, :3].clone(), x.clone(), out=x),
        lambda x: torch.sort(
            x.clone(), 0, descending=True, out=(x, torch.empty(0, dtype=torch.int64, device="xpu"))
        ),
        lambda x: x.geometric_(0.5),
        lambda x: torch.linalg.inv(x[:, :3].clone() + torch.eye(3, device="xpu"), out=x[:, :3]),
        lambda x: torch.softmax(x.clone(), 0, out=x),
        lambda x: torch.logcumsumexp(x.clone(), 0, out=x),
        lambda x: torch.flip(x, (0,)).add_(1),
    ]
    for number, write in enumerate(writers):
        numbers = torch.arange(12.0).view(3, 4)
        x = numbers.to("xpu")
        y = torch._lazy_clone(x)
        write(y)
        assert torch.equal(x.cpu(), numbers), f"writer {number} wrote through"
