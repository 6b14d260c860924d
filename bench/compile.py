"""Compiled models on xpu, compared with eager on xpu and with Inductor's C++ backend on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import harness
import networks
import torch
import torch.nn.functional as F
from harness import Case
from torch import Tensor

Work = Callable[[], object]


def kernels(device: str) -> Iterator[tuple[str, Work]]:
    """Yield Inductor's usual fusions, one kernel each."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(1024, 1024, generator=generator).to(device) for _ in range(2))
    weight = torch.randn(1024, generator=generator).to(device)
    functions: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "gelu(x * y + w)": lambda x, y, w: F.gelu(x * y + w),
        "sum of rows": lambda x, y, w: (x * y).sum(-1),
        "sum of columns": lambda x, y, w: (x * y).sum(0),
        "softmax": lambda x, y, w: (x + y).softmax(-1),
        "layer norm": lambda x, y, w: F.layer_norm(x + y, (1024,), w, w),
        "transposed": lambda x, y, w: x.t() + y,
    }
    for name, function in functions.items():
        yield name, functools.partial(torch.compile(function, fullgraph=True), x, y, weight)


def models(device: str) -> Iterator[tuple[str, Work]]:
    """Yield the models of networks.py, compiled."""
    for batch in (1, 32):
        yield f"MiniLM inference, batch {batch}", torch.compile(networks.encoder(device, batch))
    torch.manual_seed(0)
    vit = networks.VisionTransformer(32, 4, 3, 10, 192, 6, 3)
    yield "ViT training step", networks.training_step(vit, device, (32, 3, 32, 32), torch.compile)
    resnet = networks.ResNet(3, 10, (32, 64, 128))
    yield "ResNet training step", networks.training_step(resnet, device, (32, 3, 32, 32), torch.compile)
    decoder = networks.Decoder(8192, 128, 384, 6, 6)
    yield "GPT-2 decode step", torch.compile(networks.decode_step(decoder, device))


def cases() -> Iterator[Case]:
    """Yield xpu against the CPU's C++ backend, then against eager on xpu."""
    for (name, ours), (_, theirs) in zip(kernels("xpu"), kernels("cpu"), strict=True):
        yield Case("kernels against C++", name, ours, theirs, 0.7)
    eager = {case.name: case.ours for case in networks.cases()}
    for (name, ours), (_, theirs) in zip(models("xpu"), models("cpu"), strict=True):
        yield Case("compiled against C++", name, ours, theirs, 0.7)
        yield Case("compiled against eager", name, ours, eager[name], 1.0)


if __name__ == "__main__":
    harness.main(cases)
