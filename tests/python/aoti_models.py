"""Small models of real kinds, and their packages: ``python aoti_models.py FOLDER NAME…`` compiles some."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A transformer's block: attention with a mask or without, norms before or after."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def split(self, x: Tensor) -> list[Tensor]:
        parts = self.qkv(x).chunk(3, -1)
        return [p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts]

    def mix(self, x: Tensor, attended: Tensor) -> Tensor:
        x = self.norms[0](x + self.out(attended.transpose(1, 2).flatten(2)))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.mix(x, F.scaled_dot_product_attention(*self.split(x), attn_mask=mask))


class Encoder(nn.Module):
    """Sentence embeddings, as MiniLM makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(32, 32)
        self.norm = nn.LayerNorm(32)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, ids: Tensor, given: Tensor) -> Tensor:
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x, given[:, None, None, :] > 0)
        weights = given.unsqueeze(-1).float()
        return F.normalize((x * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=-1)


class Images(nn.Module):
    """A convolutional stem with batch norm, then a vision transformer, and a pooled residual net beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 32, 4, 4), nn.BatchNorm2d(32)
        self.deep = nn.Conv2d(32, 32, 3, padding=1, groups=2)
        self.first = nn.Parameter(torch.randn(1, 1, 32))
        self.places = nn.Parameter(torch.randn(1, 17, 32))
        self.block, self.head = Block(), nn.Linear(64, 7)
        nn.init.uniform_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        pooled = F.adaptive_avg_pool2d(x + F.silu(self.deep(x)), 1).flatten(1)
        tokens = torch.cat([self.first.expand(x.shape[0], -1, -1), x.flatten(2).transpose(1, 2)], 1)
        return self.head(torch.cat([self.block(tokens + self.places)[:, 0], pooled], 1))


class Decoder(nn.Module):
    """A step of GPT-2's kind: one token a sequence, whose keys and values go to a cache that is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.block, self.head = Block(), nn.Linear(32, 50, bias=False)

    def forward(self, ids: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids) + self.places(place)
        q, k, v = self.block.split(x)
        keys.index_copy_(2, place, k)
        values.index_copy_(2, place, v)
        mask = torch.arange(16, device=ids.device)[None] <= place
        x = self.block.mix(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))
        logits = self.head(x)[:, -1]
        return logits, logits.topk(3).indices


class Llama(nn.Module):
    """A block of Llama's kind: RMS norm, turned positions, grouped heads, a gated unit; the tables are constants."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(32) for _ in range(2))
        self.q, self.kv = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.out = nn.Linear(32, 32, bias=False)
        self.gates, self.down = nn.Linear(32, 128, bias=False), nn.Linear(64, 32, bias=False)
        angles = torch.outer(torch.arange(64.0), 1e4 ** -(torch.arange(0, 8, 2) / 8)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turn(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        n = x.shape[-2]
        return x * self.cos[:n] + torch.cat([-b, a], -1) * self.sin[:n]

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        q = self.q(y).unflatten(-1, (4, 8)).transpose(1, 2)
        k, v = (p.unflatten(-1, (2, 8)).transpose(1, 2) for p in self.kv(y).chunk(2, -1))
        y = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gates(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def _words(size: int) -> tuple[Tensor, ...]:
    given = torch.ones(3, size, dtype=torch.long)
    given[1, size // 2 :] = 0
    return torch.randint(0, 50, (3, size)), given


def _step(_: int) -> tuple[Tensor, ...]:
    return torch.randint(0, 50, (2, 1)), torch.tensor([5]), torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 8)


@dataclass
class Case:
    """A model, its inputs for a size, and how it is compiled."""

    model: type[nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    size: int
    dtype: torch.dtype = torch.float32
    dynamic: Any = None
    options: dict[str, object] = field(default_factory=dict)

    def build(self) -> nn.Module:
        """Return the model, the same in every process, on the CPU."""
        torch.manual_seed(7)
        return self.model().eval().to(self.dtype)

    def arguments(self, size: int | None = None, device: str = "xpu") -> tuple[Tensor, ...]:
        """Return inputs, the same in every process."""
        torch.manual_seed(size or self.size)
        given = self.inputs(size or self.size)
        return tuple(x.to(self.dtype if x.is_floating_point() else x.dtype).to(device) for x in given)


_LENGTH = torch.export.Dim("length", min=2, max=32)
CASES = {
    "encoder": Case(Encoder, _words, 12, dynamic=({1: _LENGTH}, {1: _LENGTH})),
    "images": Case(
        Images,
        lambda n: (torch.randn(n, 3, 16, 16),),
        2,
        options={"aot_inductor.use_runtime_constant_folding": True},
    ),
    "decoder": Case(Decoder, _step, 1, options={"aot_inductor.embed_kernel_binary": True}),
    "llama": Case(Llama, lambda n: (torch.randn(2, n, 32),), 12, torch.bfloat16, ({1: _LENGTH},)),
}


def package(name: str, folder: Path) -> None:
    """Compile a case."""
    case = CASES[name]
    with torch.no_grad():
        exported = torch.export.export(case.build().to("xpu"), case.arguments(), dynamic_shapes=case.dynamic)
    torch._inductor.aoti_compile_and_package(
        exported, package_path=str(folder / f"{name}.pt2"), inductor_configs=case.options
    )


if __name__ == "__main__":
    torch._inductor.config.cpp.vec_isa_ok = True  # else a program is compiled to find it out
    torch._inductor.config.aot_inductor.compile_wrapper_opt_level = "O0"  # a third of the time
    for chosen in sys.argv[2:]:
        package(chosen, Path(sys.argv[1]))
