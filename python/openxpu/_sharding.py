"""Attention of sharded tensors (DTensor), which know fused attention by CUDA's names only."""

from __future__ import annotations

from typing import Any

import torch


def enter(api: Any) -> None:
    """Make DTensors use xpu's fused attention as flash attention; with a mask, as memory-efficient attention.

    Both have sharding strategies, and both are the same kernel on xpu. Context parallelism uses them in its
    ring.
    """
    aten = torch.ops.aten
    names = aten._scaled_dot_product_fused_attention_overrideable
    backward_names = aten._scaled_dot_product_fused_attention_overrideable_backward

    def forward(operator: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        query, key, value, bias, dropout, causal, debug = (
            *given,
            *(None, 0.0, False, False)[len(given) - 3 :],
        )
        if bias is None:
            return aten._scaled_dot_product_flash_attention(
                query, key, value, dropout, causal, debug, **named
            )
        out, logsumexp, seed, offset = aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, True, dropout, causal, **named
        )
        return out, logsumexp, None, None, query.size(2), key.size(2), seed, offset, None

    def backward(operator: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        grad, query, key, value, bias, wanted, out, logsumexp, *lengths, dropout, causal, seed, offset = given
        if bias is None:
            gradients = aten._scaled_dot_product_flash_attention_backward(
                *(grad, query, key, value, out, logsumexp, *lengths, dropout, causal, seed, offset), **named
            )
            return *gradients, None
        return aten._scaled_dot_product_efficient_attention_backward(
            *(grad, query, key, value, bias, out, logsumexp, seed, offset, dropout, wanted, causal), **named
        )

    api.DTensor._op_dispatcher._custom_op_handlers.update(
        {names.default: forward, backward_names.default: backward}
    )
