"""Host time per kernel, called eagerly and replayed from a graph (`python bench/graph.py`).

For each work the table lists the number of nodes in its graph, and the host time per node, eager and
replayed. The two alternate, and the best of several rounds counts. On a CPU device the host time includes the
kernels; on other devices it is the time to submit them. The last column is the speedup of a whole call by
replay, including the device's work.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import networks
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn

Work = Callable[[], object]


def pointwise(elements: int) -> Work:
    """Make a chain of a hundred operations that cycles through ten kernels."""
    x = torch.rand(elements, device="xpu") + 0.5
    operations = (torch.sin, torch.cos, torch.exp, torch.abs, torch.sqrt, torch.tanh, torch.neg)

    def work() -> object:
        y = x
        for i in range(100):
            y = y + x if i % 3 == 0 else operations[i % 7](y)
        return y

    return work


def mlp() -> Work:
    """Make the forward pass of four layers on one row."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
    model, x = nn.Sequential(*layers).to("xpu"), torch.randn(1, 64, device="xpu")
    return lambda: model(x)


def training() -> Work:
    """Make an AdamW step on a small convolutional network."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10), nn.Dropout(0.1)
    ).to("xpu")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x, target = torch.randn(4, 3, 8, 8, device="xpu"), torch.randint(10, (4,), device="xpu")

    def step() -> object:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def cases() -> Iterator[tuple[str, Work]]:
    """Yield each work with its name."""
    for elements in (16, 1024):
        yield f"100 pointwise operations on {elements}", pointwise(elements)
    with torch.no_grad():
        yield "4 layers forward", mlp()
        yield (
            "decoding step of GPT-2",
            networks.decode_step(networks.Decoder(50257, 1024, 768, 12, 12), "xpu"),
        )
    yield "training step of a small net", training()


def capture(work: Work) -> tuple[torch.xpu.XPUGraph, int]:
    """Capture the work; return the graph and its number of nodes."""
    side = torch.xpu.Stream()
    with torch.xpu.stream(side):
        for _ in range(3):
            work()
    torch.xpu.synchronize()
    graph = torch.xpu.XPUGraph()
    graph.enable_debug_mode()
    with torch.xpu.graph(graph):
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        graph.debug_dump(str(path))
        return graph, path.read_text().count("[label=")


def seconds(work: Work) -> tuple[float, float]:
    """Return the time of one call: on the host, and until the device has finished."""
    start = time.perf_counter()
    work()
    returned = time.perf_counter()
    torch.xpu.synchronize()
    return returned - start, time.perf_counter() - start


def best(rounds: int, *works: Work) -> list[tuple[float, float]]:
    """Return the least host and total time of each work; the works alternate."""
    taken = [[seconds(work) for work in works] for _ in range(rounds)]
    return [tuple(map(min, zip(*times, strict=True))) for times in zip(*taken, strict=True)]


def main() -> int:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    table = Table(
        title=f"host time per kernel: {torch.xpu.get_device_name()}, {torch.get_num_threads()} threads"
    )
    for column in ("work", "pieces", "eager µs", "replay µs", "replay / eager", "times as fast"):
        table.add_column(column, justify="left" if column == "work" else "right")
    results = []
    for name, work in cases():
        graph, pieces = capture(work)
        times = best(arguments.rounds, work, graph.replay)
        eager, replay = (host / pieces * 1e6 for host, _ in times)
        faster = times[0][1] / times[1][1]
        results.append({"work": name, "pieces": pieces, "eager": eager, "replay": replay, "faster": faster})
        table.add_row(name, str(pieces), *(f"{x:.2f}" for x in (eager, replay, replay / eager, faster)))
    Console(width=110).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
