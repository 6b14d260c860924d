"""PyTorch's own samples of an operator, on the device and on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from comparing import assert_close
from torch.testing._internal.common_methods_invocations import op_db


def agrees(name: str, dtype: torch.dtype) -> None:
    """Assert that results and gradients of all OpInfo samples equal the CPU's."""
    (op,) = (op for op in op_db if op.name == name and not op.variant_test_name)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
        results = []
        for device in ("cpu", "xpu"):
            leaves: list[torch.Tensor] = []

            def moved(value: Any, device: str = device, leaves: list[torch.Tensor] = leaves) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                leaf = value.detach().to(device).requires_grad_(value.requires_grad)
                leaves.append(leaf)
                return leaf

            there = sample.transform(moved)
            result = op(there.input, *there.args, **there.kwargs)
            if sample.output_process_fn_grad is not None:
                result = sample.output_process_fn_grad(result)
            outputs = [result] if isinstance(result, torch.Tensor) else list(result)
            differentiable = [r.abs().square().sum() for r in outputs if r.requires_grad]
            if differentiable:
                torch.stack(differentiable).sum().backward()
            results.append([*outputs, *(leaf.grad for leaf in leaves)])
        wanted, got = results
        assert_close(got, wanted, rtol=1e-7, atol=1e-9, equal_nan=True, what=name)
