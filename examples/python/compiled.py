"""The main job's models through torch.compile: on `xpu` beside eager, and beside Inductor's C++ on the CPU.

One table: milliseconds a call, seconds of the first call (which compiles), the largest difference from eager;
and a chart of the milliseconds. The exit status is 1 when a result disagrees. Compiled kernels are kept in
PyTorch's and openxpu's caches, so a second run compiles nothing.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable

import chart
import torch
import torch.nn.functional as F
from main_job import BUILD, Encoder, console, sentences
from models import Decoder, VisionTransformer
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

Work = Callable[[], Tensor]
Prepare = Callable[[Callable[..., object]], Callable[..., object]]


class Run:
    """One way to do the work: what its first call gave and took, and the seconds of the later ones."""

    def __init__(self, device: str, work: Work) -> None:
        self.device = device
        self.work = work
        start = time.perf_counter()
        self.result = work().detach().float().cpu()
        self.first = time.perf_counter() - start
        self.seconds: list[float] = []

    def call(self) -> None:
        """Does the work once more and waits for the device."""
        start = time.perf_counter()
        self.work()
        if self.device == "xpu":
            torch.xpu.synchronize()
        self.seconds.append(time.perf_counter() - start)


def encoder(device: str, prepare: Prepare) -> Work:
    """Sentence vectors of 8 real sentences."""
    made = Encoder(device)
    model = prepare(made.model)
    batch = made.tokenizer(
        sentences(8), padding="max_length", max_length=64, truncation=True, return_tensors="pt"
    )
    batch = {name: t.to(device) for name, t in batch.items()}

    @torch.no_grad()
    def run() -> Tensor:
        return model(**batch).last_hidden_state  # type: ignore[attr-defined]

    return run


def training(device: str, prepare: Prepare) -> Work:
    """Loss of a training step of a vision transformer."""
    torch.manual_seed(0)
    model = VisionTransformer(32, 4, 3, 10, 192, 6, 3)
    images, labels = torch.randn(32, 3, 32, 32).to(device), torch.randint(0, 10, (32,)).to(device)
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    forward = prepare(model)

    def run() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(images), labels)  # type: ignore[arg-type]
        loss.backward()
        optimizer.step()
        return loss

    return run


def decoding(device: str, prepare: Prepare) -> Work:
    """Logits of one more token behind 64."""
    torch.manual_seed(0)
    model = Decoder(8192, 128, 384, 6, 6).eval().to(device)
    cache, token = model.new_cache(1), torch.zeros(1, 1, dtype=torch.int64, device=device)
    forward = prepare(model)

    @torch.no_grad()
    def run() -> Tensor:
        return forward(token, cache, 64)  # type: ignore[return-value]

    return run


MODELS = {"MiniLM": encoder, "ViT training": training, "GPT-2 decoding": decoding}


def closing_table() -> Table:
    """The table, without rows."""
    caption = "first call: compiles, or loads what the caches have; ms: the median of the calls after it"
    table = Table(
        title=f"torch.compile on {torch.xpu.get_device_name()}", caption=caption, caption_justify="left"
    )
    widths = {
        "model": 9,
        "compiled, ms": 9,
        "eager, ms": 7,
        "C++ on the CPU, ms": 8,
        "first call, s": 8,
        "C++, s": 6,
        "difference": 10,
    }
    for column, width in widths.items():
        table.add_column(column, justify="left" if column == "model" else "right", width=width)
    return table


def add_row(
    table: Table,
    name: str,
    milliseconds: list[float],
    compiling: tuple[float, float],
    difference: float,
    good: bool,
) -> None:
    """Adds a model: times compiled, eager and in C++, seconds to compile both, the difference from eager."""
    table.add_row(
        name,
        *(f"{time:.{2 if time < 1000 else 1}f}" for time in milliseconds),
        *(f"{time:.1f}" for time in compiling),
        f"{'[green]✓[/]' if good else '[red]✗[/]'} {difference:.1e}",
    )


def main() -> int:
    """Runs all three, prints the table; 0 when everything agrees."""
    table = closing_table()
    good, bars = True, {}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("torch.compile", total=3 * len(MODELS))
        for name, make in MODELS.items():
            torch._dynamo.reset()
            runs = []
            for device, prepare in (("xpu", torch.compile), ("xpu", lambda f: f), ("cpu", torch.compile)):
                runs.append(Run(device, make(device, prepare)))
                progress.advance(task)
            start = time.perf_counter()
            while len(runs[0].seconds) < 4 or time.perf_counter() - start < 2:
                for run in runs:  # in turns, for machines have faster and slower moments
                    run.call()
            ours, eager, theirs = runs
            difference = (ours.result - eager.result).abs().max().item()
            fine = difference <= 1e-3 * max(1.0, eager.result.abs().max().item())
            good &= fine
            medians = [statistics.median(run.seconds[1:]) * 1e3 for run in runs]
            bars[name] = dict(zip(("xpu compiled", "xpu eager", "C++ on the CPU"), medians, strict=True))
            add_row(table, name, medians, (ours.first, theirs.first), difference, fine)
    console.print(table)
    picture = chart.write(BUILD / "compiled.svg", "torch.compile, a call", "ms", bars)
    what = "the milliseconds of a call, compiled, eager and in C++, as bars"
    console.print(f"chart: {picture}: {what}", highlight=False)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
