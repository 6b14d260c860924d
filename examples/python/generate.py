"""A text model from a folder, quantized: `generate.py --model FOLDER --weights int4 "Once upon"`.

The folder is one that `transformers` saves (`config.json`, `*.safetensors`, `tokenizer.json`). Weights stay
on the host until their layer is quantized, by torchao, so that the device never holds more than one layer in
full. A step of the answer is compiled and reads keys and values from a cache of fixed size; words are shown
as they come.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import quiet
import torch
from torch import Tensor, nn

quiet.enter()
GROUP = 64  # weights along a row that share a scale, in int4


def config_of(weights: str) -> Any:
    """Return what torchao is told, None for weights as they are."""
    from torchao import quantization as q

    configs: dict[str, Callable[[], Any]] = {
        "bf16": lambda: None,
        "int8": q.Int8WeightOnlyConfig,
        "int8-dynamic": q.Int8DynamicActivationInt8WeightConfig,
        "int4": lambda: q.Int4WeightOnlyConfig(group_size=GROUP, int4_packing_format="plain_int32"),
        "fp8": lambda: q.Float8DynamicActivationFloat8WeightConfig(granularity=q.PerRow()),
    }
    return configs[weights]()


WEIGHTS = ("bf16", "int8", "int8-dynamic", "int4", "fp8")


def load(folder: Path, weights: str, device: str) -> tuple[Any, Any]:
    """Read a model and its tokenizer; the model's layers go to the device one by one, quantized there.

    Layers whose rows the kind of weights can't divide, and the last one, which shares its weights with the
    embedding in many models, stay bf16.
    """
    from torchao.quantization import quantize_
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    last = model.get_output_embeddings()
    for module in list(model.modules()):
        if not isinstance(module, nn.Linear) or module is last:
            continue
        module.to(device)
        if weights != "bf16" and module.in_features % (GROUP if weights == "int4" else 16) == 0:
            quantize_(module, config_of(weights))
    return model.to(device), tokenizer


@dataclass
class Times:
    """Seconds until the first token, and for each one after it."""

    first: float
    others: list[float]


@torch.no_grad()
def answer(model: Any, prompt: Tensor, count: int, compiled: bool, times: Times) -> Iterator[int]:
    """Continue a prompt, (1, length) token numbers on the device, by up to `count` likeliest tokens."""
    from transformers import StaticCache

    length = prompt.size(1)
    cache = StaticCache(config=model.config, max_cache_len=length + count)
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, list) else {ends}

    def step(token: Tensor, position: Tensor) -> Tensor:
        logits = model(token, past_key_values=cache, position_ids=position, use_cache=True).logits
        return logits[:, -1:].argmax(-1)

    forward = torch.compile(step) if compiled else step
    start = time.perf_counter()
    position = torch.arange(length, device=prompt.device)[None]
    token = step(prompt, position)
    for i in range(count):
        number = int(token.item())
        now = time.perf_counter()
        if i == 0:
            times.first = now - start
        else:
            times.others.append(now - start)
        start = now
        if number in ends:
            return
        yield number
        if i + 1 < count:
            position = torch.tensor([[length + i]], device=prompt.device)
            token = forward(token, position)


def main(arguments: list[str] | None = None) -> int:
    """Load, answer, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--weights", choices=WEIGHTS, default="int4")
    parser.add_argument("--tokens", type=int, default=64, help="maximum number of new tokens (%(default)s)")
    parser.add_argument("--device", default="xpu")
    parser.add_argument("--eager", action="store_true", help="run without torch.compile")
    given = parser.parse_args(arguments)
    if not (given.model / "config.json").is_file():
        parser.error(f"{given.model} has no config.json: --model wants a folder that transformers saved")
    start = time.perf_counter()
    model, tokenizer = load(given.model, given.weights, given.device)
    loaded = time.perf_counter() - start
    prompt = tokenizer(given.prompt, return_tensors="pt").input_ids.to(given.device)
    times, numbers, shown = Times(0, []), [], ""
    for number in answer(model, prompt, given.tokens, not given.eager, times):
        numbers.append(number)
        text = tokenizer.decode(numbers)  # words may take several tokens
        if not text.endswith("\ufffd"):
            print(text[len(shown) :], end="", flush=True)
            shown = text
    print()
    others = sorted(times.others)
    print(f"loaded in {loaded:.1f} s, first token after {times.first * 1e3:.0f} ms", end="")
    if others:
        print(f", then {1 / others[len(others) // 2]:.1f} tokens per second", end="")
    if given.device.startswith("xpu"):
        print(f", {torch.xpu.max_memory_allocated() / (1 << 20):.0f} MiB of device memory at most", end="")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
