"""Whole steps of a GPT and of ResNet-50, training and inference, on xpu (OpenCL) and CUDA on one NVIDIA GPU.

`openxpu run bench/gpu/steps.py [--only TEXT …] [--json FILE]`, with a CUDA build of PyTorch and openxpu
linked into it. Autograd supports one accelerator per process, so each model runs in one process per device. A
ratio is CUDA's time divided by xpu's: above 1 xpu is faster. float32 convolutions do not use tf32 on either
side. The losses after the timed steps must agree.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from side_by_side import child_environment  # type: ignore[import-not-found]
from torch import Tensor, nn

BAR = 0.5
STEPS = 10


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map shape (batch, length, width) to the same shape."""
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.into(x).chunk(3, dim=-1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Gpt(nn.Module):
    """A transformer on tokens, with a loss."""

    def __init__(self, width: int = 1024, layers: int = 12, heads: int = 16, words: int = 32768) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(1024, width))
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.between = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.out = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss of predicting each token's successor."""
        x = self.words(tokens) + self.places[: tokens.shape[1]]
        for i, (attention, between) in enumerate(zip(self.attention, self.between, strict=True)):
            x = x + attention(self.norms[2 * i](x))
            x = x + between(self.norms[2 * i + 1](x))
        guesses = self.out(self.norms[-1](x))
        return F.cross_entropy(guesses[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.aside = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride > 1 or channels != out
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map shape (batch, channels, height, width)."""
        return F.relu(self.body(x) + self.aside(x))


class ResNet(nn.Module):
    """ResNet-50 with a loss."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                layers.append(Bottleneck(channels, width, stride if i == 0 else 1))
                channels = 4 * width
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))

    def forward(self, images: Tensor) -> Tensor:
        """Return the loss with class 1 for all images."""
        guesses = self.body(images).float()
        return F.cross_entropy(guesses, torch.ones(len(images), dtype=torch.int64, device=images.device))


def make(name: str, device: str) -> tuple[nn.Module, Tensor]:
    """Make the model and its input."""
    torch.manual_seed(0)
    if name.startswith("GPT"):
        model: nn.Module = Gpt()
        given = torch.randint(32768, (8, 1024))
    else:
        model = ResNet()
        given = torch.randn(64, 3, 224, 224)
    if "bfloat16" in name:
        model = model.bfloat16()
        given = given.bfloat16() if given.is_floating_point() else given
    if "channels_last" in name:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        given = given.to(memory_format=torch.channels_last)
    return model.to(device), given.to(device)


CASES = (
    "GPT training bfloat16",
    "GPT inference bfloat16",
    "ResNet-50 training bfloat16 channels_last",
    "ResNet-50 inference bfloat16 channels_last",
    "ResNet-50 training float32",
    "ResNet-50 inference float32",
)


def run(name: str, device: str) -> dict[str, float]:
    """Return the seconds per step, the best of three rounds, and the last loss."""
    torch.backends.cudnn.allow_tf32 = False
    model, given = make(name, device)
    wait: Callable[[], None] = (torch.xpu if device == "xpu" else torch.cuda).synchronize
    loss = torch.zeros(())
    if "training" in name:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = model(given)
            loss.backward()
            optimizer.step()
            return loss.detach()
    else:
        model.eval()

        @torch.no_grad()
        def step() -> Tensor:
            return model(given)

    for _ in range(3):
        step()
    best = float("inf")
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(STEPS):
            loss = step()
        wait()
        best = min(best, (time.perf_counter() - start) / STEPS)
    return {"seconds": best, "loss": float(loss)}


def main() -> int:
    """Print the comparison; return 0 if every bar is reached and the losses agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="only cases whose names contain one of these texts")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--device", choices=("xpu", "cuda"), help="measure only this device, and print its times"
    )
    arguments = parser.parse_args()
    cases = [c for c in CASES if not arguments.only or any(text in c for text in arguments.only)]
    if arguments.device:
        for case in cases:
            print(json.dumps({"case": case, **run(case, arguments.device)}), flush=True)
        return 0
    found: dict[str, dict[str, dict[str, float]]] = {}
    for device in ("xpu", "cuda"):
        command = [sys.executable, __file__, "--device", device, *(["--only", *cases])]
        process = subprocess.run(
            command, env=child_environment(device), capture_output=True, text=True, check=False
        )
        if process.returncode:
            print(process.stderr[-2000:])
        for line in process.stdout.splitlines():
            numbers = json.loads(line)
            found.setdefault(numbers.pop("case"), {})[device] = numbers
    failed = 0
    for case in cases:
        both = found.get(case, {})
        if len(both) < 2:
            print(f"{case:45} only on {', '.join(both) or 'none'}")
            failed += 1
            continue
        ratio = both["cuda"]["seconds"] / both["xpu"]["seconds"]
        apart = abs(both["cuda"]["loss"] - both["xpu"]["loss"]) > 0.02 * max(both["cuda"]["loss"], 1)
        failed += apart or ratio < BAR
        print(
            f"{case:45} xpu {both['xpu']['seconds'] * 1e3:8.2f} ms  cuda "
            f"{both['cuda']['seconds'] * 1e3:8.2f} ms  "
            f"ratio {ratio:.2f}  bar {BAR}{'  LOSSES DIFFER' if apart else ''}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
