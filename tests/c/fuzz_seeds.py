"""Packages of a few layers as inputs of fuzz_package.c: python tests/c/fuzz_seeds.py FOLDER."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import openxpu
import torch
import torch.nn.functional as F
import transformers.integrations.moe  # noqa: F401 (its operator)
from torch import Tensor, nn
from torch.export import Dim

HEAD = "<4B3I"  # head of fuzz_package.c
WEIGHTS = 4096  # bytes of the weights that a seed keeps


class Block(nn.Module):
    """Attention with a mask, after an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.qkv, self.norm = nn.Embedding(20, 8), nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Map (batch, length) twice to (batch, width)."""
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(self.token(ids)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :].bool())
        return self.norm(y.transpose(1, 2).flatten(-2)).sum(1)


class Cache(nn.Module):
    """What the model changes: a buffer and an input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(4, 3))

    def forward(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Add a row at a place, and count."""
        self.kept.index_copy_(0, at, x)
        at.add_(1)
        return self.kept @ x.T, self.kept


class Rest(nn.Module):
    """Convolutions, a batch of products and a sort."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up = nn.Conv2d(2, 4, 3, stride=2), nn.ConvTranspose2d(4, 2, 2, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (batch, 2, 9, 9)."""
        y = self.up(F.relu(self.conv(x))).flatten(2)
        values, places = torch.topk(torch.baddbmm(y[:, :, :2], y, y.mT @ y[:, :, :2]), 2, dim=1)
        return values, places


class Experts(nn.Module):
    """A product of groups as transformers has it, and additions of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(3, 8, 16))

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Map (tokens, 8) to (3, 16)."""
        ends = torch.histc(chosen.float(), 3, 0, 2).int()
        y = torch.ops.transformers.grouped_mm_fallback(x, self.up, ends).bfloat16()
        return torch.zeros(3, 16, dtype=y.dtype, device=x.device).index_add(0, chosen, y)


class Scattered(nn.Module):
    """Products of groups along k, and additions in place."""

    def forward(self, x: Tensor, y: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Map bfloat16 (k, 8) twice."""
        counts = torch.zeros(9, dtype=torch.int64, device=x.device)
        at = ends.long() % 9
        return torch._grouped_mm(x.t(), y, ends), counts.scatter_add(0, at, at)


def main() -> None:
    """Write the seeds."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    ids, sizes = torch.randint(0, 20, (3, 5)), {0: Dim("batch", max=8), 1: Dim("length", max=9)}
    tokens = {0: Dim("tokens", max=9)}
    k = torch.randn(6, 8, dtype=torch.bfloat16)
    models = {
        "block": (Block(), (ids, torch.ones_like(ids)), ({**sizes}, {**sizes})),
        "cache": (Cache(), (torch.randn(1, 3), torch.tensor([2])), None),
        "rest": (Rest(), (torch.randn(3, 2, 9, 9),), ({0: Dim("images", max=6)},)),
        "experts": (Experts(), (torch.randn(5, 8), torch.arange(5) % 3), (tokens, tokens)),
        "scattered": (Scattered(), (k, k, torch.tensor([2, 6], dtype=torch.int32)), None),
    }
    for name, (model, args, dynamic) in models.items():
        exported = torch.export.export(model.eval(), args, dynamic_shapes=dynamic)
        path = Path(openxpu.package(exported, folder / f"{name}.xpk"))
        data = path.read_bytes()
        path.unlink()
        (folder / f"{name}_file").write_bytes(struct.pack(HEAD, 1, 0, 0, 0, 0, 0, 0) + data)
        # the table of format.h: offset, size and hash of each section
        sections = [struct.unpack_from("<QQ", data, 40 + 32 * s) for s in range(4)]
        program, images, weights = (data[at : at + size] for at, size in sections[1:])
        for given in range(4):
            head = struct.pack(HEAD, 0, given & 1, given, given >> 1, len(program), len(images), 7 * given)
            (folder / f"{name}{given}").write_bytes(head + program + images + weights[:WEIGHTS])


main()
