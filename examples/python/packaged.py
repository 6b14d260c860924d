"""The search of the main job from a C program: its model as a package, run without PyTorch or Python.

Exports the sentence encoder with open sizes, builds ``examples/c/package.c``, and lets that compute the
vectors of the sentences and questions. One table: what the package needs and how fast it is, beside PyTorch
on the CPU. The exit status is 1 where the answers or vectors differ.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":  # of the program, not of tests that import it
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import openxpu
import torch
import torch.nn.functional as F
from main_job import Encoder, console, sentences
from rich.table import Table
from torch import Tensor, nn
from torch.export import Dim

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = [
    "How do I compress a file?",
    "Which function sorts a list?",
    "How can I wait for several threads?",
]


class Vectors(nn.Module):
    """The encoder's model with what follows it: token numbers and their mask to unit vectors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Maps ids and mask, each (batch, length), to (batch, 384)."""
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)


def export(model: nn.Module, path: Path) -> float:
    """Write the package; returns the seconds it took."""
    start = time.perf_counter()
    sizes = {0: Dim("batch", max=64), 1: Dim("length", max=512)}
    example = (torch.ones(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64))
    exported = torch.export.export(model, example, dynamic_shapes={"ids": sizes, "mask": sizes})
    openxpu.package(exported, path)
    return time.perf_counter() - start


def build(program: Path) -> None:
    """Compile the C program against libxpu alone."""
    library = Path(openxpu.library_path())
    compiler = shutil.which(os.environ.get("CC", "cc")) or "cc"
    command: list[str | Path] = [compiler, "-std=c11", "-O2", ROOT / "examples/c/package.c", "-o", program]
    command += ["-I", ROOT / "include", "-I", ROOT / "src/ops", library, f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, check=True)


def resident(process: int) -> int:
    """Read the most bytes that a process has had in memory, 0 when it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


class Runner:
    """The C program, one process a call."""

    def __init__(self, program: Path, package: Path) -> None:
        self.program, self.package, self.folder = program, package, program.parent
        self.printed, self.resident = "", 0

    def __call__(self, ids: Tensor, mask: Tensor, times: int = 0) -> Tensor:
        """Compute the vectors; `printed` is what the program said, `resident` its largest memory in bytes."""
        for name, tensor in (("ids", ids), ("mask", mask)):
            np.save(self.folder / f"{name}.npy", tensor.numpy())
        command: list[str | Path] = [self.program, "--bench", str(times), self.package, "ids.npy", "mask.npy"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as process:
            self.resident = 0
            while process.poll() is None:  # what the system notes at the end has this process's memory in it
                self.resident = max(self.resident, resident(process.pid))
                time.sleep(0.005)
            assert process.stdout
            self.printed = process.stdout.read()
        if process.returncode:
            raise RuntimeError(f"the C program failed: {self.printed}")
        return torch.from_numpy(np.load(self.folder / "output0.npy"))

    def said(self, pattern: str) -> float:
        """A number of what was printed."""
        found = re.search(pattern, self.printed)
        assert found
        return float(found[1])


def best_of(work: Vectors, ids: Tensor, mask: Tensor, times: int) -> float:
    """Milliseconds of PyTorch on the CPU, the best of several runs."""
    best = float("inf")
    with torch.no_grad():
        for _ in range(times):
            start = time.perf_counter()
            work(ids, mask)
            best = min(best, time.perf_counter() - start)
    return best * 1e3


def main() -> int:
    """Export, run, compare; 0 when answers and vectors agree."""
    encoder = Encoder("cpu")
    vectors = Vectors(encoder.model).eval()
    texts = sentences(400)[:64]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds = export(vectors, folder / "minilm.xpk")
        build(folder / "package")
        runner = Runner(folder / "package", folder / "minilm.xpk")

        def embed(batch: list[str], times: int = 0) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            tokens = encoder.tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
            given = {"ids": tokens["input_ids"], "mask": tokens["attention_mask"]}
            with torch.no_grad():
                return runner(**given, times=times), vectors(**given), given

        pairs = [embed(texts[i : i + 32])[:2] for i in range(0, len(texts), 32)]
        ours, theirs = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        asked, wanted, _ = embed(QUESTIONS)
        found, expected = (asked @ ours.T).topk(3).indices, (wanted @ theirs.T).topk(3).indices
        table = Table(title=f"MiniLM as a package, from C, on {torch.xpu.get_device_name()}")
        table.add_column("")
        table.add_column("C, libxpu", justify="right")
        table.add_column("PyTorch's CPU", justify="right")
        for count, times in ((1, 20), (32, 5)):
            _, _, given = embed(texts[:count], times)
            eager = best_of(vectors, given["ids"], given["mask"], times)
            label = f"{count} sentence{'s' * (count > 1)} of {given['ids'].shape[1]} tokens"
            table.add_row(label, f"{runner.said(r'best ([0-9.]+) ms'):.1f} ms", f"{eager:.1f} ms")
        size, weights = (folder / "minilm.xpk").stat().st_size, runner.said(r"weights (\d+)")
        planned = runner.said(r"between steps (\d+)")
        table.add_row("ready to run", f"{runner.said(r'ready after ([0-9.]+) s'):.2f} s", "")
        table.add_row("the file; weights", f"{size / 1e6:.1f}; {weights / 1e6:.1f} MB", "")
        table.add_row("resident; between steps", f"{runner.resident / 1e6:.0f}; {planned / 1e6:.1f} MB", "")
        console.print(table)
    largest = (ours - theirs).abs().max().item()
    same = bool((found == expected).all())
    good = same and largest < 1e-5
    mark = "[green]✓[/]" if good else "[red]✗[/]"
    console.print(
        f"{mark} exported in {seconds:.0f} s; answers equal: {same}, largest difference {largest:.1e}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
