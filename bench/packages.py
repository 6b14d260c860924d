"""Exported and packaged models, compared with `torch.compile` on xpu and with eager PyTorch on the CPU.

An AOTInductor package runs under PyTorch. libxpu's package (`openxpu export`) is called from C on arrays, in
this process, so its matrix products and convolutions use PyTorch's libraries. `bench/alone.py` measures those
of C programs without these libraries.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator

import harness
import openxpu
import torch
from harness import Case
from networks import VisionTransformer
from openxpu._run_package import Package
from torch import Tensor, nn
from torch.nn import functional as F


class Encoder(nn.Module):
    """An encoder with MiniLM's sizes: six layers of width 384, on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 384), nn.Embedding(512, 384)
        layers = [nn.TransformerEncoderLayer(384, 12, 1536, 0.0, F.gelu, batch_first=True) for _ in range(6)]
        self.layers = nn.ModuleList(layers)

    def forward(self, ids: Tensor) -> Tensor:
        """Map (batch, length) to (batch, 384)."""
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return F.normalize(x.mean(1), dim=-1)


def without_gradients(run: Callable[..., object], *inputs: Tensor) -> Callable[[], object]:
    """Call without gradients, after warm-up calls that compile."""

    def work() -> object:
        with torch.no_grad():
            return run(*inputs)

    for _ in range(3):
        work()
    return work


def of_c(path: str, given: Tensor) -> Callable[[], object]:
    """Return calls of a package from C."""
    package = Package(path)
    prepared = package.prepare([given.numpy()])
    return lambda: package.run(prepared, 1)


def cases() -> Iterator[Case]:
    """Yield cases with the bar of equal speed; large batches are the same matrix products on both sides."""
    torch.manual_seed(0)
    models = {"encoder": Encoder(), "ViT": VisionTransformer(32, 4, 3, 10, 192, 6, 3)}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            model.eval()
            for batch in (1, 32):
                given = (
                    torch.randint(0, 30522, (batch, 32))
                    if name == "encoder"
                    else torch.randn(batch, 3, 32, 32)
                )
                size, file = f"{name}, batch {batch}", f"{folder}/{name}{batch}"
                on_cpu = without_gradients(copy.deepcopy(model), given)
                x = given.to("xpu")
                with torch.no_grad():
                    torch.backends.mha.set_fastpath_enabled(False)  # packages do not support its operator
                    written = openxpu.package(torch.export.export(model, (given,)), f"{file}.xpk")
                    there = copy.deepcopy(model).to("xpu")
                    exported = torch.export.export(there, (x,))
                    path = torch._inductor.aoti_compile_and_package(exported, package_path=f"{file}.pt2")
                    compiled = without_gradients(torch.compile(there, dynamic=False), x)
                    torch.backends.mha.set_fastpath_enabled(True)
                package = without_gradients(torch._inductor.aoti_load_package(path), x)
                yield Case("package against torch.compile", size, package, compiled, 1.0)
                yield Case("C runner against torch.compile", size, of_c(written, given), compiled, 1.0)
                yield Case("C runner against eager on the CPU", size, of_c(written, given), on_cpu, 1.0)


if __name__ == "__main__":
    harness.main(cases)
