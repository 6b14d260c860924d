"""The main job's models through torch.compile: on `xpu` beside eager; with `--cpp` also C++ on the CPU.

One table: milliseconds a call, seconds of the first call (which compiles), the largest difference from eager;
and a chart of the milliseconds. The exit status is 1 when a result disagrees. Compiled kernels are kept in
PyTorch's and openxpu's caches, so a second run compiles nothing.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable

if __name__ == "__main__":  # of the program, not of tests that import it
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

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


WAYS: dict[str, tuple[str, Prepare]] = {
    "compiled": ("xpu", torch.compile),
    "eager": ("xpu", lambda model: model),
    "C++ on the CPU": ("cpu", torch.compile),
}


def closing_table(ways: list[str]) -> Table:
    """The table, without rows."""
    caption = "first call: compiles, or loads what the caches have; ms: the median of the calls after it"
    table = Table(
        title=f"torch.compile on {torch.xpu.get_device_name()}", caption=caption, caption_justify="left"
    )
    widths = {"compiled": 9, "eager": 7, "C++ on the CPU": 8}
    firsts = {"compiled": ("first call, s", 8), "C++ on the CPU": ("C++, s", 6)}
    table.add_column("model", width=9)
    for way in ways:
        table.add_column(f"{way}, ms", justify="right", width=widths[way])
    for way in ways:
        if way in firsts:
            table.add_column(firsts[way][0], justify="right", width=firsts[way][1])
    table.add_column("difference", justify="right", width=10)
    return table


def add_row(
    table: Table, name: str, medians: list[float], first: list[float], difference: float, fine: bool
) -> None:
    """Adds a model: milliseconds of each way, seconds of the first calls, the difference from eager."""
    table.add_row(
        name,
        *(f"{ms:.{2 if ms < 1000 else 1}f}" for ms in medians),
        *(f"{seconds:.1f}" for seconds in first),
        f"{'[green]✓[/]' if fine else '[red]✗[/]'} {difference:.1e}",
    )


def measure(
    make: Callable[[str, Prepare], Work], ways: list[str], advance: Callable[[], None]
) -> dict[str, Run]:
    """Runs a model in all ways, in turns, for machines have faster and slower moments."""
    torch._dynamo.reset()
    runs = {}
    for way in ways:
        device, prepare = WAYS[way]
        runs[way] = Run(device, make(device, prepare))
        advance()
    start = time.perf_counter()
    while len(runs["eager"].seconds) < 4 or time.perf_counter() - start < 2:
        for run in runs.values():
            run.call()
    return runs


def main() -> int:
    """Runs all three, prints the table; 0 when everything agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cpp", action="store_true", help="also Inductor's C++, whose compiler takes a minute"
    )
    ways = list(WAYS) if parser.parse_args().cpp else ["compiled", "eager"]
    table = closing_table(ways)
    good, bars = True, {}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("torch.compile", total=len(ways) * len(MODELS))
        for name, make in MODELS.items():
            runs = measure(make, ways, lambda: progress.advance(task))
            eager = runs["eager"].result
            difference = (runs["compiled"].result - eager).abs().max().item()
            fine = difference <= 1e-3 * max(1.0, eager.abs().max().item())
            good &= fine
            medians = {way: statistics.median(run.seconds[1:]) * 1e3 for way, run in runs.items()}
            bars[name] = medians
            first = {way: run.first for way, run in runs.items() if way != "eager"}
            add_row(table, name, list(medians.values()), list(first.values()), difference, fine)
    console.print(table)
    picture = chart.write(BUILD / "compiled.svg", "torch.compile, a call", "ms", bars)
    console.print(f"chart: {picture}: the milliseconds of a call, as bars", highlight=False)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
