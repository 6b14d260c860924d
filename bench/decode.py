"""Times a decoding step of a Llama-shaped model, bf16 and int4 (`python bench/decode.py`).

The weights are random. One sequence is decoded token by token, with a fixed-size KV cache and the position in
a tensor. Every step is the same work, so it can be captured as a graph. For each kind of weights the table
lists microseconds per token called op by op, replayed from a graph, replayed from a graph of the compiled
step, and with the graphs of `mode="reduce-overhead"`, and the bytes of weights and cache. The default model
has a billion weights; `--layers 2 --width 256 --hidden 512 --words 1000` is small enough for a CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

GROUP = 128
aten = torch.ops.aten


class Int4Linear(nn.Module):
    """A linear layer without bias: int4 weights (out, in), one bf16 scale per 128 elements of a row."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        n, k = weight.shape
        groups = weight.float().view(n, k // GROUP, GROUP)
        scale = groups.abs().amax(-1, keepdim=True) / 7
        elements = ((groups / scale).round().clamp(-8, 7) + 8).to(torch.uint8).view(n, k)
        self.weight = aten._convert_weight_to_int4pack(elements[:, ::2] | elements[:, 1::2] << 4, 8)
        self.scale = scale.squeeze(-1).t().contiguous().bfloat16()
        self.zero = torch.full_like(self.scale, 8, dtype=torch.int8)

    def forward(self, x: Tensor) -> Tensor:
        """Map shape (rows, in) to (rows, out)."""
        return aten._weight_int4pack_mm_with_scales_and_zeros(x, self.weight, GROUP, self.scale, self.zero)


class Block(nn.Module):
    """Attention with a cache of shape (heads, length, depth), and a gated MLP."""

    keys: Tensor
    values: Tensor

    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.depth = heads, kv_heads, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.depth, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, kv_heads, length, self.depth))
        self.register_buffer("values", torch.zeros(1, kv_heads, length, self.depth))

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """Process one token, shape (1, width)."""
        q, k, v = (
            self.qkv(self.norms[0](x))
            .view(1, -1, 1, self.depth)
            .split([self.heads, self.kv_heads, self.kv_heads], 1)
        )
        q, k = (t * turn[0] + t.roll(self.depth // 2, -1) * turn[1] for t in (q, k))
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        found = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=True)
        x = x + self.out(found.view(1, -1))
        gate, up = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """Maps token IDs to the most likely next token."""

    cos: Tensor
    sin: Tensor
    places: Tensor

    def __init__(self, words: int, width: int, hidden: int, layers: int, length: int) -> None:
        super().__init__()
        heads = max(width // 64, 1)
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(
            Block(width, hidden, heads, max(heads // 4, 1), length) for _ in range(layers)
        )
        self.norm, self.out = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, 64, 2) / 64)
        self.register_buffer("cos", angle.cos().repeat(1, 2))
        self.register_buffer("sin", torch.cat([-angle.sin(), angle.sin()], 1))
        self.register_buffer("places", torch.arange(length))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        """Map a token and a position, both of shape (1,), to the next ones."""
        x = self.words(token)
        mask = (self.places <= position).view(1, 1, 1, -1)
        turn = self.cos[position], self.sin[position]
        for block in self.blocks:
            x = block(x, position, mask, turn)
        return self.out(self.norm(x)).argmax(-1)


def make(weights: str, sizes: list[int], device: str) -> Llama:
    """Make the same random model each time, quantizing its layers one by one."""
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Llama(*sizes)
    model = model.to_empty(device="cpu")
    reference = Llama(*[8, 64, 64, 1, sizes[-1]])
    for name in ("cos", "sin", "places"):
        setattr(model, name, getattr(reference, name))
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        elif isinstance(module, nn.RMSNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, Block):
            module.keys.zero_(), module.values.zero_()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                child.to(device).bfloat16()
                if weights == "int4":
                    setattr(parent, name, Int4Linear(child.weight.detach()))
    return model.to(device).to(torch.bfloat16).eval()


def per_call(work: Callable[[], object], seconds: float = 0.3) -> float:
    """Return microseconds per call, the best of three rounds, including the device's work."""
    work()
    torch.xpu.synchronize()
    best = float("inf")
    for _ in range(3):
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(10):
                work()
            torch.xpu.synchronize()
            calls += 10
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    return best


def captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return the replay of a graph of the step, captured after a first call that builds kernels."""
    step()
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        following = step()

    def replay() -> Tensor:
        graph.replay()
        return following

    return replay


@torch.no_grad()
def measure(weights: str, sizes: list[int]) -> tuple[list[float], bool]:
    """Return MiB, microseconds for each way, and whether the graphs produce the same sixteen tokens."""
    torch.xpu.empty_cache()
    before = torch.xpu.memory_allocated()
    model = make(weights, sizes, "xpu")
    size = (torch.xpu.memory_allocated() - before) / (1 << 20)
    token, position = torch.tensor([7], device="xpu"), torch.tensor([0], device="xpu")
    compiled = torch.compile(model, dynamic=False)

    def eager() -> Tensor:
        return model(token, position)

    def fused() -> Tensor:  # rounds less often than eager, so its tokens may differ
        return compiled(token, position)

    by_inductor = torch.compile(model, dynamic=False, mode="reduce-overhead")
    replays = [captured(eager), captured(fused), lambda: by_inductor(token, position).clone()]

    def said(step: Callable[[], Tensor]) -> list[int]:
        token.fill_(7)
        tokens = []
        for place in range(16):
            position.fill_(place)
            token.copy_(step())
            tokens.append(int(token))
        return tokens

    agree = [said(step) for step in (eager, fused, fused)] == [said(step) for step in replays]
    return [size, *map(per_call, (eager, *replays))], agree


def main() -> int:
    """Print the table; return 1 if a graph produces other tokens."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (
        ("words", 32000),
        ("width", 2048),
        ("hidden", 5632),
        ("layers", 22),
        ("length", 1024),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    sizes = [given.words, given.width, given.hidden, given.layers, given.length]
    found = {weights: measure(weights, sizes) for weights in ("bf16", "int4")}
    ways = ("op by op", "replayed", "compiled and replayed", "reduce-overhead")
    table = Table("weights", "MiB", *(f"{way}, µs" for way in ways), "agree")
    for weights, (figures, agree) in found.items():
        table.add_row(weights, *(f"{figure:.0f}" for figure in figures), str(agree))
    Console().print(table)
    size, *times = (a / b for a, b in zip(found["bf16"][0], found["int4"][0], strict=True))
    print(f"int4 beside bf16: {1 / size:.2f} of the memory; times as fast:", end=" ")
    print(", ".join(f"{time:.2f} {way}" for way, time in zip(ways, times, strict=True)))
    return 0 if all(agree for _, agree in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
