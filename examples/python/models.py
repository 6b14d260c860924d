"""Small models in plain PyTorch that the main job, the tests and the benchmarks share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A pre-norm transformer block: attention, then a two-layer perceptron.

    Parameters
    ----------
    width : int
        Size of a token, a multiple of `heads`.
    heads : int
        Attention heads.
    causal : bool
        Whether a token sees only those before it.
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, start: int = 0) -> Tensor:
        """Maps tokens (batch, length, width) to the same shape.

        With a `cache` of keys and values, each (batch, heads, room, width / heads), the tokens stand at
        positions start … start + length - 1 and see all before them.
        """
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        if cache is not None:
            cache[0][:, :, start : start + length] = k
            cache[1][:, :, start : start + length] = v
            k, v = cache[0][:, :, : start + length], cache[1][:, :, : start + length]
        causal = self.causal and length > 1
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    """A vision transformer (Dosovitskiy et al., 2021) for square images of one or more channels."""

    def __init__(
        self, image: int, patch: int, channels: int, classes: int, width: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, False) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images (batch, channels, size, size) to logits (batch, classes)."""
        x = self.embed(images).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Residual(nn.Module):
    """Two 3×3 convolutions with batch norm and a way around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.around = (
            nn.Identity()
            if channels_in == channels and stride == 1
            else nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps (batch, channels_in, h, w) to (batch, channels, h / stride, w / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.around(x))


class ResNet(nn.Module):
    """A small residual network (He et al., 2016); `widths` gives the channels of its stages."""

    def __init__(self, channels: int, classes: int, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        stages = [
            Residual(widths[max(i - 1, 0)], width, 1 if i == 0 else 2) for i, width in enumerate(widths)
        ]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images (batch, channels, size, size) to logits (batch, classes)."""
        x = self.stages(F.relu(self.norm(self.stem(images))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Decoder(nn.Module):
    """A GPT-2-shaped decoder (Radford et al., 2019) with a key-value cache."""

    def __init__(self, vocabulary: int, room: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.room, self.width, self.heads = room, width, heads
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(room, width)
        self.blocks = nn.ModuleList(Block(width, heads, True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def new_cache(self, batch: int) -> list[tuple[Tensor, Tensor]]:
        """Empty keys and values for each block, each (batch, heads, room, width / heads)."""
        like = self.token.weight
        shape = (batch, self.heads, self.room, self.width // self.heads)
        return [(like.new_zeros(shape), like.new_zeros(shape)) for _ in self.blocks]

    def forward(self, tokens: Tensor, cache: list[tuple[Tensor, Tensor]], start: int) -> Tensor:
        """Maps tokens (batch, length) at positions from `start` to logits of the last (batch, vocabulary)."""
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block, kept in zip(self.blocks, cache, strict=True):
            x = block(x, kept, start)
        return self.head(self.norm(x[:, -1]))

    @torch.no_grad()
    def generate(self, prompt: Tensor, count: int) -> Tensor:
        """Greedy continuation: prompt (batch, length) to new tokens (batch, count)."""
        cache = self.new_cache(prompt.shape[0])
        tokens, start, made = prompt, 0, []
        for _ in range(count):
            best = self(tokens, cache, start).argmax(-1, keepdim=True)
            start += tokens.shape[1]
            made.append(best)
            tokens = best
        return torch.cat(made, 1)
