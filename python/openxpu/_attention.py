"""Patches where PyTorch requires CUDA for fused attention: jagged tensors and nn.MultiheadAttention."""

from typing import Any

import torch


def enter_jagged(attention: Any) -> None:
    """Make jagged nested tensors use libxpu's attention for packed sequences.

    It is registered as flash attention but accepts more than CUDA's: float32, any head size, values with
    another head size than keys, empty sequences. Nothing needs padding.
    """
    from torch.nn.attention import SDPBackend

    own_choice = attention._select_sdp_backend
    own_padding = attention._pad_last_dim
    dtypes = (torch.float32, torch.bfloat16, torch.float16)

    def select_sdp_backend(
        query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, enable_gqa: bool
    ) -> Any:
        is_enabled = attention.flash_sdp_enabled() or attention.mem_efficient_sdp_enabled()
        fits = (
            mask is None
            and query.dtype in dtypes
            and query.size(-1) == key.size(-1)
            and query.size(0) == key.size(0) == value.size(0)
            and query.size(1) == key.size(1) == value.size(1)
        )
        if query.device.type == "xpu" and is_enabled and fits:
            return SDPBackend.FLASH_ATTENTION
        return own_choice(query, key, value, mask, dropout, causal, enable_gqa)

    def pad_last_dim(tensor: Any, alignment_size: int, slice: bool) -> Any:
        return tensor if tensor.device.type == "xpu" else own_padding(tensor, alignment_size, slice)

    attention._select_sdp_backend = select_sdp_backend
    attention._pad_last_dim = pad_last_dim


# TorchScript compiles it with the module: it can't use names of an enclosing function.
def _has_fast_path(x: torch.Tensor | None) -> bool:
    if x is None:
        return True
    return x.device.type in ["cpu", "cuda", "xpu", torch.utils.backend_registration._privateuse1_backend_name]


def enter_layers(activation: Any) -> None:
    """Enable nn.MultiheadAttention's fast path on xpu, including nested tensors."""
    activation._check_arg_device = _has_fast_path
