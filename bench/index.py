"""Concatenation, indexing, embeddings, and the optimizer step of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import harness
import torch
import torch.nn.functional as F
from harness import Case
from torch.utils._pytree import tree_map


def both(group: str, name: str, work: Callable[..., Any], *inputs: Any) -> Case:
    """Return a case with the same work on copies of `inputs` on each device."""
    device = tree_map(lambda x: x.to("xpu") if isinstance(x, torch.Tensor) else x, inputs)
    return Case(group, name, lambda: work(*device), lambda: work(*inputs), 1.0)


def parameters(device: str) -> list[torch.Tensor]:
    """Return parameters and gradients like those of a small vision transformer: 6 layers of width 192."""
    shapes = [
        (192, 192),
        (192,),
        (576, 192),
        (576,),
        (768, 192),
        (768,),
        (192, 768),
        (192,),
        (192,),
        (192,),
    ] * 6
    result = []
    for shape in shapes:
        p = torch.randn(shape).to(device).requires_grad_()
        p.grad = torch.randn(shape).to(device)
        result.append(p)
    return result


def cases() -> Iterator[Case]:
    """Yield cat, index, embedding, foreach and AdamW with the shapes of models."""
    yield both("cat", "2 of [32, 128, 384], dim 1", lambda *t: torch.cat(t, 1), *torch.randn(2, 32, 128, 384))
    yield both(
        "cat",
        "2 of [1, 12, 128, 64], dim 2 (KV cache)",
        lambda a, b: torch.cat((a, b), 2),
        torch.randn(1, 12, 128, 64),
        torch.randn(1, 12, 1, 64),
    )
    yield both("cat", "3 of [4096, 512], dim 1", lambda *t: torch.cat(t, 1), *torch.randn(3, 4096, 512))
    yield both("cat", "64 of [256, 128], dim 0", lambda *t: torch.cat(t, 0), *torch.randn(64, 256, 128))
    yield both("cat", "2 of [1024], dim 0", lambda *t: torch.cat(t, 0), *torch.randn(2, 1024))
    table, tokens = torch.randn(30522, 384), torch.randint(30522, (32, 128))
    flat = tokens.flatten()
    yield both("index", "embedding 32×128 of 30522×384", lambda w, i: F.embedding(i, w), table, tokens)
    yield both(
        "index",
        "embedding backward, the same",
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 30522, 0, False),
        torch.randn(32, 128, 384),
        tokens,
    )
    yield both("index", "index_select rows", lambda w, i: w.index_select(0, i), table, flat)
    yield both("index", "x[i], rows", lambda w, i: w[i], table, flat)
    yield both("index", "x[mask], 2²⁰", lambda x, m: x[m], torch.randn(1 << 20), torch.rand(1 << 20) > 0.5)
    grid = torch.randn(1024, 1024)
    chosen = torch.randint(1024, (1024, 1024))
    yield both("index", "gather 1024², dim 1", lambda x, i: x.gather(1, i), grid, chosen)
    yield both("index", "gather 1024², dim 0", lambda x, i: x.gather(0, i), grid, chosen)
    yield both(
        "index",
        "gather of logits 4096×1, 1000 classes",
        lambda x, i: x.gather(1, i),
        torch.randn(4096, 1000),
        torch.randint(1000, (4096, 1)),
    )
    yield both(
        "index", "scatter_add 1024², dim 0", lambda x, i, v: x.scatter_add(0, i, v), grid, chosen, grid
    )
    yield both(
        "index", "scatter_add 1024², dim 1", lambda x, i, v: x.scatter_add(1, i, v), grid, chosen, grid
    )
    yield both(
        "index",
        "index_add rows",
        lambda x, i, v: x.index_add_(0, i, v),
        torch.zeros(1000, 384),
        flat % 1000,
        torch.randn(4096, 384),
    )
    yield both(
        "index",
        "x[i, j] += v",
        lambda x, i, j, v: x.index_put_((i, j), v, True),
        grid.clone(),
        flat % 1024,
        flat % 1000,
        torch.randn(4096),
    )

    lists = {device: parameters(device) for device in ("cpu", "xpu")}
    grads = {device: [p.grad for p in ps] for device, ps in lists.items()}
    for name, work in {
        "_foreach_add_": lambda g: torch._foreach_add_(g, 1.0),
        "_foreach_mul": lambda g: torch._foreach_mul(g, 0.5),
        "_foreach_norm": lambda g: torch._foreach_norm(g),
    }.items():
        yield Case("optimizer", name, lambda w=work: w(grads["xpu"]), lambda w=work: w(grads["cpu"]), 1.0)
    for name, fused in {"AdamW as it comes": None, "AdamW fused": True}.items():
        optimizers = {d: torch.optim.AdamW(parameters(d), 1e-4, fused=fused) for d in lists}
        yield Case(
            "optimizer", name, lambda o=optimizers: o["xpu"].step(), lambda o=optimizers: o["cpu"].step(), 1.0
        )


if __name__ == "__main__":
    harness.main(cases)
