"""Recurrent networks compared with cuDNN on one NVIDIA GPU: 2 layers of 512 units over 128 steps.

`openxpu run bench/gpu/rnn.py [--only TEXT …] [--json FILE]`, with a CUDA build of PyTorch. Inference and
training are timed. Autograd supports one accelerator per process, so each device has a process of its own;
results and gradients are compared. A ratio is CUDA's time divided by xpu's: above 1 xpu is faster.

In float32, cuDNN uses TF32 by default; the ratio to its true float32 is listed next to that. PyTorch 2.11
warns that it copies the weights for cuDNN at each call; that is part of cuDNN's times.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from side_by_side import child_environment, seconds  # type: ignore[import-not-found]
from torch import Tensor, nn

BAR = 0.5
LAYERS, HIDDEN, STEPS = 2, 512, 128


def cases() -> Iterator[tuple[str, Callable[..., nn.RNNBase], torch.dtype, int, bool]]:
    """Return name, network, dtype, batch, and whether it is bidirectional."""
    kinds: tuple[type[nn.RNNBase], ...] = (nn.LSTM, nn.GRU, nn.RNN)
    for kind, dtype, batch in itertools.product(
        kinds, (torch.float32, torch.bfloat16, torch.float16), (64, 16)
    ):
        if kind is nn.RNN and (batch == 16 or dtype == torch.float16):
            continue
        yield f"rnn {kind.__name__} {str(dtype)[6:]} batch {batch}", kind, dtype, batch, False
    for dtype in (torch.float32, torch.bfloat16):
        yield f"rnn LSTM {str(dtype)[6:]} batch 64, both ways", nn.LSTM, dtype, 64, True


def measure(device: str, only: list[str] | None) -> dict[str, dict[str, object]]:
    """Return the seconds and results of each case on one device."""
    results: dict[str, dict[str, object]] = {}
    for name, kind, dtype, batch, both in cases():
        if only and not any(text in name for text in only):
            continue
        torch.manual_seed(0)
        net = kind(HIDDEN, HIDDEN, LAYERS, bidirectional=both).to(dtype)
        x = torch.randn(STEPS, batch, HIDDEN).to(dtype).to(device)
        net = net.to(device)

        def forward(net: nn.RNNBase = net, x: Tensor = x) -> Tensor:
            with torch.no_grad():
                return net(x)[0]

        def step(net: nn.RNNBase = net, x: Tensor = x) -> None:
            net.zero_grad()
            net(x)[0].sum().backward()

        for tf32 in (True, False) if device == "cuda" and dtype == torch.float32 else (True,):
            torch.backends.cudnn.allow_tf32 = tf32
            works: dict[str, Callable[[], object]] = {"forward": forward, "step": step}
            times = {}
            for label, work in works.items():
                work()
                times[label] = min(seconds(work, device, 4) for _ in range(5))
            results[name if tf32 else f"{name} exact"] = {
                **times,
                "tensors": [
                    forward().float().cpu(),
                    *(p.grad.float().cpu() for p in net.parameters() if p.grad is not None),
                ],
            }
    return results


def differ(ours: list[Tensor], theirs: list[Tensor], exact: bool) -> float:
    """Return the largest difference relative to its tensor's largest value; 0 if within rounding."""
    worst = max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(ours, theirs, strict=True)
    )
    return worst if not worst <= (1e-3 if exact else 5e-2) else 0.0


def main() -> int:
    """Print the comparison and write JSON; return 0 if every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", help="only cases whose names contain one of these texts")
    parser.add_argument(
        "--on", choices=("xpu", "cuda"), help="measure only this device, and write the times to --json"
    )
    arguments = parser.parse_args()
    if arguments.on:
        torch.save(measure(arguments.on, arguments.only), arguments.json)
        return 0
    found = {}
    for device in ("xpu", "cuda"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.pt"
            command = [sys.executable, __file__, "--on", device, "--json", str(path)]
            if arguments.only:
                command += ["--only", *arguments.only]
            subprocess.run(command, env=child_environment(device), check=True)
            found[device] = torch.load(path)
    below = wrong = 0
    rows: list[dict[str, object]] = []
    for name, ours in found["xpu"].items():
        exact = found["cuda"].get(f"{name} exact")
        theirs = found["cuda"][name]
        difference = differ(ours["tensors"], (exact or theirs)["tensors"], exact is not None)
        wrong += difference > 0
        for what in ("forward", "step"):
            ratio = theirs[what] / ours[what]
            below += ratio < BAR
            beside = f" (float32 {exact[what] / ours[what]:.2f})" if exact else ""
            print(
                f"{name + ', ' + what:44} xpu {ours[what] * 1e6:8.0f} µs  cuda {theirs[what] * 1e6:8.0f} µs  "
                f"ratio {ratio:.2f}{beside}{f'  DIFFERS by {difference:.1e}' if difference else ''}",
                flush=True,
            )
            rows.append({"name": f"{name}, {what}", "xpu": ours[what], "cuda": theirs[what], "ratio": ratio})
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} cases, {below} below {BAR}, {wrong} differ")
    return 1 if below or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
