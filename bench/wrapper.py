"""The host's time for an operator of a compiled model: C++ wrapper and package against the Python wrapper.

Each layer is a product and a kernel of a few elements, which takes no time worth speaking of. All have the same
weight, so that what Dynamo looks at before each call doesn't grow with them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import torch
from harness import Case
from torch import Tensor, nn

LAYERS = 100


class Layers(nn.Module):
    """Small products, with a kernel after each."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (8, 8) to the same."""
        for _ in range(LAYERS):
            x = torch.sigmoid(x @ self.weight)
        return x


def called(run: Callable[[Tensor], object], x: Tensor) -> Callable[[], object]:
    """Call without gradients, after the calls that compile."""

    def work() -> object:
        with torch.no_grad():
            return run(x)

    for _ in range(3):
        work()
    return work


def cases() -> Iterator[Case]:
    """The bar is half of the Python wrapper's time."""
    torch.manual_seed(0)
    model, x = Layers().to("xpu"), torch.randn(8, 8, device="xpu")
    python = called(torch.compile(model), x)
    wrapper = called(torch.compile(model, options={"cpp_wrapper": True}), x)
    with torch.no_grad():
        exported = torch.export.export(model, (x,))
    with tempfile.TemporaryDirectory() as folder:
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(Path(folder) / "layers.pt2")
        )
        package = called(torch._inductor.aoti_load_package(path), x)
    name = f"{2 * LAYERS} operators"
    yield Case("cpp_wrapper against Python's", name, wrapper, python, 2.0)
    yield Case("package against Python's", name, package, python, 2.0)
    yield Case("package against eager", name, package, called(model, x), 1.0)


if __name__ == "__main__":
    harness.main(cases)
