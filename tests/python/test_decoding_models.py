"""One decoding step of transformers' models with a static cache, compiled as for GPUs: launches and logits."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from comparing import assert_close
from inner_run import passes
from profiled import profiled
from torch import Tensor

pytest.importorskip("triton")
transformers = pytest.importorskip("transformers")

TIERS = ("fma",)  # as in test_decoding.py
TIER = os.environ.get("OPENXPU_MATRIX")
LAYERS = 3
PROMPT = [3, 1, 4, 1, 5]
# beside the layers': the first token's row and its norm; angles, positions, masks; the last norm, and logits
OTHERS = 4


@pytest.fixture(autouse=True)
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have openxpu reduce the number of launches on any device, as on GPUs."""
    from openxpu import _launches

    monkeypatch.setattr(_launches, "counts_launches", lambda *_: True)
    torch._dynamo.reset()
    with torch._inductor.utils.fresh_cache():
        yield


def model_of(family: str, **more: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=64,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=64,
        pad_token_id=0,
        **more,
    )
    name = family.removesuffix("Text")
    model = getattr(transformers, f"{name}ForCausalLM")(config).bfloat16().eval().requires_grad_(False)
    for parameter_name, parameter in model.named_parameters():
        if "norm" in parameter_name:
            parameter.add_(torch.randn_like(parameter) / 4)
    return model


def compare(model: Any, per_layer: int, others: int = OTHERS) -> None:
    """Compare the logits of three tokens with float64 without a cache; count the last step's GPU launches."""
    tokens = torch.tensor([[*PROMPT, 9, 2, 6]])
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(tokens, use_cache=False).logits
        model.to("xpu")
        cache = transformers.StaticCache(config=model.config, max_cache_len=16)

        def step(token: Tensor, position: Tensor) -> Tensor:
            found: Tensor = model(
                token, past_key_values=cache, position_ids=position, use_cache=True, logits_to_keep=1
            ).logits
            return found

        compiled = torch.compile(step, dynamic=False)
        step(torch.tensor([PROMPT], device="xpu"), torch.arange(len(PROMPT), device="xpu")[None])
        for place in range(len(PROMPT), tokens.size(1)):
            given = [t.to("xpu") for t in (tokens[:, place : place + 1], torch.tensor([[place]]))]
            found, names = profiled(lambda given=given: compiled(*given))  # type: ignore[misc]
            reference = expected[:, place]
            assert_close(found[:, -1], reference, dtype=torch.bfloat16, rtol=0.03, relative_to="norm")
    if TIER in TIERS:
        assert len(names) == per_layer * LAYERS + others, names


@pytest.mark.extended
@pytest.mark.parametrize("family, tunes", [("Llama", False), ("Qwen3", True)])
def test_launches(family: str, tunes: bool) -> None:
    """With autotuning, as torchao sets it, Inductor turns products into sums."""
    with torch._inductor.config.patch(coordinate_descent_tuning=tunes):
        compare(model_of(family), 5)


@pytest.mark.extended
@pytest.mark.skipif(TIER in TIERS, reason="this is the inner run")
@pytest.mark.parametrize("tier", TIERS)
def test_launches_as_gpus_have_them(tier: str) -> None:
    passes({__file__: ""}, OPENXPU_MATRIX=tier, OPENXPU_HOST_PROVIDER="0")
