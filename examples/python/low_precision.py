"""The search of the main job with quantized weights, by torchao: on `xpu` beside torchao on the CPU.

One table: how large the weights are, how long the sentences take the first time (when kernels are built or
loaded) and after that, how close their vectors are to those in fp32, and how many of the answers are the
same. The exit status is 1 where they are too far away.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

if __name__ == "__main__":  # of the program, not of tests that import it
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
import torch.nn.functional as F
from main_job import Encoder, console, sentences
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn
from torchao.quantization import (
    Float8DynamicActivationFloat8WeightConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    PerRow,
    quantize_,
)

QUESTIONS = [
    "How do I compress a file?",
    "Which function sorts a list?",
    "How can I wait for several threads?",
    "What reads a configuration file?",
    "How do I send an email?",
]


@dataclass(frozen=True)
class Kind:
    """Numbers that the weights of linear layers are kept in.

    Attributes
    ----------
    config
        What torchao is told, or None.
    on_cpu
        Whether torchao has the same on the CPU.
    cosine
        The least cosine to the vectors in fp32.
    """

    config: Any
    on_cpu: bool
    cosine: float


def kinds() -> dict[str, Kind]:
    """Return the kinds of weights, by the names that the table has for them."""
    return {
        "fp32": Kind(None, True, 0.9999),
        "int8": Kind(Int8WeightOnlyConfig(), True, 0.999),
        "int8, activations too": Kind(Int8DynamicActivationInt8WeightConfig(), True, 0.99),
        "fp8, activations too": Kind(
            Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()), True, 0.99
        ),
        "int4, groups of 64": Kind(
            Int4WeightOnlyConfig(group_size=64, int4_packing_format="plain_int32"), False, 0.9
        ),
    }


def size_of(model: nn.Module) -> int:
    """Count the bytes of a model's linear layers."""

    def bytes_of(t: Tensor) -> int:
        if hasattr(t, "__tensor_flatten__"):
            return sum(bytes_of(getattr(t, name)) for name in t.__tensor_flatten__()[0])
        return t.numel() * t.element_size()

    return sum(bytes_of(m.weight) for m in model.modules() if isinstance(m, nn.Linear))


def embed(encoder: Encoder, model: nn.Module, texts: list[str]) -> tuple[Tensor, float]:
    """Compute the vectors of some texts with another model; with the seconds that this took."""
    other = copy.copy(encoder)
    other.model = model
    start = time.perf_counter()
    vectors = other.embed(texts)
    return vectors.float(), time.perf_counter() - start


def quantized(encoder: Encoder, kind: Kind) -> nn.Module:
    """Make a copy of the encoder's model with such weights; torchao wants bf16 for most of them."""
    if kind.config is None:
        return encoder.model
    model = copy.deepcopy(encoder.model).bfloat16()
    quantize_(model, kind.config)
    return model


def closing_table() -> Table:
    """Return the table, without rows."""
    table = Table(
        title=f"MiniLM with quantized weights on {torch.xpu.get_device_name()}",
        caption="first: seconds of the first time on xpu, when kernels are built, or loaded from the cache; "
        "xpu, CPU: seconds of the same sentences after that",
        caption_justify="left",
    )
    for column in ("weights", "MiB", "first, s", "xpu, s", "CPU, s", "cosine", "answers"):
        table.add_column(column, justify="left" if column == "weights" else "right")
    return table


def main() -> int:
    """Run all kinds, print the table; 0 when all are close enough."""
    texts = sentences(40)
    table = closing_table()
    good = True
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("quantized search", total=2 * len(kinds()))
        encoders = {device: Encoder(device) for device in ("xpu", "cpu")}
        exact, _ = embed(encoders["cpu"], encoders["cpu"].model, texts)
        questions, _ = embed(encoders["cpu"], encoders["cpu"].model, QUESTIONS)
        best = (questions @ exact.T).topk(3).indices
        for name, kind in kinds().items():
            times = {"xpu": ("–", "–"), "cpu": ("–", "–")}
            for device in times:
                if device == "xpu" or kind.on_cpu:
                    model = quantized(encoders[device], kind)
                    _, first = embed(encoders[device], model, texts)
                    vectors, seconds = embed(encoders[device], model, texts)
                    times[device] = (f"{first:.2f}", f"{seconds:.2f}")
                if device == "xpu":
                    size = size_of(model) / (1 << 20)
                    cosine = F.cosine_similarity(vectors, exact).min().item()
                    asked, _ = embed(encoders[device], model, QUESTIONS)
                    found = (asked @ vectors.T).topk(3).indices
                    same = sum(
                        len(set(a) & set(b)) for a, b in zip(found.tolist(), best.tolist(), strict=True)
                    )
                progress.advance(task)
            fine = cosine >= kind.cosine
            good &= fine
            mark = "[green]✓[/]" if fine else "[red]✗[/]"
            answers = f"{same} of {3 * len(QUESTIONS)}"
            table.add_row(
                name, f"{size:.1f}", *times["xpu"], times["cpu"][1], f"{mark} {cosine:.5f}", answers
            )
    console.print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
