"""Shape and dtype inference where PyTorch's own functions are wrong on xpu."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses import fake_impls


def _int4pack(mode: Any, func: Any, self: Tensor, *_: Any, **__: Any) -> Tensor:
    """PyTorch's function returns CUDA's tile layout on every device."""
    if self.device.type != "xpu":
        return NotImplemented
    return self.new_empty((self.size(0), self.size(1) // 4), dtype=torch.int32)


def _scaled_mm_v2(mode: Any, func: Any, self: Tensor, mat2: Tensor, *given: Any, **named: Any) -> Tensor:
    """PyTorch's function counts packed float4 pairs once in one check, and rejects all scales."""
    if self.device.type != "xpu" or self.dtype != torch.float4_e2m1fn_x2:
        return NotImplemented
    dtype = named.get("out_dtype", given[7] if len(given) > 7 else None)
    return self.new_empty((self.size(0), mat2.size(1)), dtype=dtype or self.dtype)


def enter() -> None:
    """Give these functions precedence."""
    ours = {"_convert_weight_to_int4pack": _int4pack, "_scaled_mm_v2": _scaled_mm_v2}
    for name, shape in ours.items():
        operation = getattr(torch.ops.aten, name, None)  # some exist in later versions only
        if operation is not None and operation.default not in fake_impls.op_implementations_dict:
            fake_impls.register_op_impl(operation.default)(shape)
