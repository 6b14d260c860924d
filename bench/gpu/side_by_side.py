"""xpu (OpenCL) and CUDA side by side on one NVIDIA GPU: operations in one process, training in two.

Requires a CUDA build of PyTorch, and openxpu built against it; `openxpu run bench/gpu/side_by_side.py` starts
it with xpu as the accelerator. A ratio is CUDA's time divided by xpu's: above 1 xpu is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("PYTORCH_ENABLE_XPU_FALLBACK", "0")
if "--train" not in sys.argv:  # autograd supports one accelerator per process
    os.environ["OPENXPU_KEEP_CUDA"] = "1"

import torch
import torch.nn.functional as F
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "examples" / "python"))

from models import VisionTransformer  # noqa: E402

Work = Callable[[], object]


def wait(device: str) -> None:
    """Wait for all work submitted to `device`."""
    (torch.xpu if device == "xpu" else torch.cuda).synchronize()


def seconds(work: Work, device: str, calls: int) -> float:
    """Return the mean time of a call, including the device's work."""
    wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait(device)
    return (time.perf_counter() - start) / calls


def compare(
    name: str, ours: Work, theirs: Work, bar: float, calls: int = 10, rounds: int = 7
) -> dict[str, object]:
    """Run both sides alternately; return the best round of each."""
    for work, device in ((ours, "xpu"), (theirs, "cuda")):
        work()
        wait(device)
    xpu, cuda = [], []
    for _ in range(rounds):
        xpu.append(seconds(ours, "xpu", calls))
        cuda.append(seconds(theirs, "cuda", calls))
    ratio = min(cuda) / min(xpu)
    print(
        f"{name:40} xpu {min(xpu) * 1e6:10.1f} µs  cuda {min(cuda) * 1e6:10.1f} µs  ratio {ratio:.2f}  bar "
        f"{bar}",
        flush=True,
    )
    return {"name": name, "xpu": min(xpu), "cuda": min(cuda), "ratio": ratio, "bar": bar}


def pairs() -> Iterator[tuple[str, Work, Work, float, int]]:
    """Return name, work on xpu, work on CUDA, bar, and calls per round."""

    def both(make: Callable[[str], Work]) -> tuple[Work, Work]:
        return make("xpu"), make("cuda")

    def small(device: str) -> Work:
        a, b = torch.randn(4, device="cpu").to(device), torch.randn(4, device="cpu").to(device)
        return lambda: a * b

    yield ("a*b, 4 elements", *both(small), 1 / 1.2, 2000)
    for dtype in (torch.float32, torch.bfloat16):
        label = str(dtype)[6:]

        def large(f: Callable[[Tensor, Tensor], object], dtype: torch.dtype = dtype) -> Callable[[str], Work]:
            def make(device: str) -> Work:
                a, b = (torch.ones(1 << 28, dtype=dtype).to(device) for _ in range(2))
                return lambda: f(a, b)

            return make

        yield (f"add 2²⁸ {label}", *both(large(lambda a, b: a + b)), 0.95, 10)
        yield (f"exp 2²⁸ {label}", *both(large(lambda a, b: a.exp())), 0.95, 10)
        yield (f"copy 2²⁸ {label}", *both(large(lambda a, b: a.copy_(b))), 0.95, 10)
        yield (f"sum 2²⁸ {label}", *both(large(lambda a, b: a.sum())), 0.8, 10)
        for width in (256, 1024, 4096, 16384):

            def rows(
                f: Callable[[Tensor], object], width: int = width, dtype: torch.dtype = dtype
            ) -> Callable[[str], Work]:
                def make(device: str) -> Work:
                    x = torch.randn((1 << 26) // width, width).to(dtype).to(device)
                    return lambda: f(x)

                return make

            yield (f"sum rows of {width} {label}", *both(rows(lambda x: x.sum(-1))), 0.8, 20)
            yield (f"softmax rows of {width} {label}", *both(rows(lambda x: x.softmax(-1))), 0.8, 20)
            shape = (width,)
            yield (
                f"layer_norm rows of {width} {label}",
                *both(rows(lambda x, s=shape: F.layer_norm(x, s))),
                0.8,
                20,
            )

    def to_device(device: str) -> Work:
        host = torch.ones(1 << 26).pin_memory(device)
        there = torch.empty(1 << 26, device=device)
        return lambda: there.copy_(host, non_blocking=True)

    def to_host(device: str) -> Work:
        host = torch.ones(1 << 26).pin_memory(device)
        there = torch.ones(1 << 26, device="cpu").to(device)
        return lambda: host.copy_(there, non_blocking=True)

    yield ("pinned host to device, 256 MiB", *both(to_device), 0.8, 5)
    yield ("device to pinned host, 256 MiB", *both(to_host), 0.8, 5)


def train(device: str, steps: int = 60) -> dict[str, float]:
    """Train a ViT on fixed random images; return the first and last loss and the seconds per step."""
    torch.manual_seed(0)
    model = VisionTransformer(32, 4, 3, 10, 192, 6, 3).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn((64, 3, 32, 32), generator=generator).to(device)
    labels = torch.randint(0, 10, (64,), generator=generator).to(device)
    losses = []
    for step in range(steps):
        if step == 10:
            start = time.perf_counter()
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"first": losses[0], "last": losses[-1], "step": (time.perf_counter() - start) / (steps - 10)}


def child_environment(device: str) -> dict[str, str]:
    """Return the environment of a process that sees one device (autograd supports only one)."""
    environment = dict(os.environ)
    environment.pop("OPENXPU_KEEP_CUDA", None)
    if device != "xpu":
        environment.pop("LD_PRELOAD", None)
        environment.pop("OPENXPU_ACCELERATOR", None)
    return environment


def main() -> int:
    """Print the comparison and write JSON; return 0 if every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", choices=("xpu", "cuda", "cpu"), help="train on this device only")
    arguments = parser.parse_args()
    if arguments.train:
        print(json.dumps(train(arguments.train)))
        return 0
    print(f"{torch.xpu.get_device_name()} through OpenCL, {torch.cuda.get_device_name()} through CUDA")
    results: list[dict[str, object]] = []
    for name, ours, theirs, bar, calls in pairs():
        results.append(compare(name, ours, theirs, bar, calls))
    trained: dict[str, dict[str, float]] = {}
    for device in ("cpu", "xpu", "cuda"):
        run = subprocess.run(
            [sys.executable, __file__, "--train", device],
            env=child_environment(device),
            capture_output=True,
            text=True,
        )
        if run.returncode:
            print(run.stderr[-3000:])
            return 1
        trained[device] = json.loads(run.stdout.splitlines()[-1])
        print(f"ViT training on {device}: {trained[device]}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"operations": results, "training": trained}, indent=1))
    close = abs(trained["xpu"]["last"] - trained["cpu"]["last"]) <= 0.05 * max(trained["cpu"]["last"], 0.02)
    return 0 if close and all(float(r["ratio"]) >= float(r["bar"]) for r in results) else 1  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
