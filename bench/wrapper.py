"""The host time per operator of a compiled model: C++ wrapper and package compared with the Python wrapper.

Each layer is a small product and a kernel on a few elements, which take negligible time. All layers share one
weight, so the guards that Dynamo checks before each call do not grow with their number. A model with a fifth
of the layers has the same cost per call; the difference between the two is the cost of the operators.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import harness
import torch
from harness import Case
from torch import Tensor, nn

LAYERS, FEWER = 100, 20
Work = Callable[[], object]


class Layers(nn.Module):
    """Small products, each followed by a kernel."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.randn(8, 8) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        """Map shape (8, 8) to the same shape."""
        for _ in range(self.layers):
            x = torch.sigmoid(x @ self.weight)
        return x


def called(run: Callable[[Tensor], object], x: Tensor) -> Work:
    """Call without gradients, after warm-up calls that compile."""

    def work() -> object:
        with torch.no_grad():
            return run(x)

    for _ in range(3):
        work()
    return work


def wrapped(layers: int, folder: str) -> dict[str, Work]:
    """Return the model's calls: eager, compiled with each wrapper, and packaged into ``folder``."""
    torch.manual_seed(0)
    model, x = Layers(layers).to("xpu"), torch.randn(8, 8, device="xpu")
    work = {
        "eager": called(model, x),
        "Python's": called(torch.compile(model), x),
        "cpp_wrapper": called(torch.compile(model, options={"cpp_wrapper": True}), x),
    }
    with torch.no_grad():
        exported = torch.export.export(model, (x,))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/{layers}.pt2")
    return work | {"package": called(torch._inductor.aoti_load_package(path), x)}


def cases() -> Iterator[Case]:
    """Yield cases; the bar is half of the Python wrapper's time per operator."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = wrapped(FEWER, folder), wrapped(LAYERS, folder)
    for ours, theirs, bar in (
        ("cpp_wrapper", "Python's", 2.0),
        ("package", "Python's", 2.0),
        ("package", "eager", 1.0),
    ):
        group = f"{ours} against {theirs}"
        alone = f"{2 * (LAYERS - FEWER)} operators alone"
        yield Case(group, alone, many[ours], many[theirs], bar, without=(few[ours], few[theirs]))
        yield Case(group, f"a call of {2 * LAYERS} operators", many[ours], many[theirs], bar)


if __name__ == "__main__":
    harness.main(cases)
