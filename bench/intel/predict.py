"""Predicted times of large kernels on Intel GPUs, from a sample of their work-groups on a simulated one.

    python bench/intel/predict.py [--products bmg,dg2] [--only product] [--json FILE]

Nothing is measured: `openxpu simulate --profile` counts what the work-groups execute and derives a time
(sim/predict.c has the model and the rates of each product). Published rates stand beside some predictions;
they are those of the vendor's library on the same product.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
OPENXPU = ROOT / ".venv" / "bin" / "openxpu"
PREDICTED = re.compile(r"profile: kernel (\S+) .*?predicted ([\d.]+) us, limited by ([^;]+);", re.DOTALL)
PRODUCTS = "bmg,bmg-g31,lnl,ptl,pvc,dg2,arl-h"


@dataclass(frozen=True)
class Case:
    """A kernel: what to run, and its amount of work."""

    name: str
    run: Callable[[], object]
    amount: float  # floating-point operations, or bytes
    unit: str
    published: dict[str, float]  # in 10¹² operations/s or 10⁹ bytes/s, by product


def cases() -> list[Case]:
    """Return the cases."""

    def product(dtype: str, n: int) -> Callable[[], object]:
        def run() -> object:
            a, b = (torch.empty(n, n, device="xpu", dtype=getattr(torch, dtype)) for _ in range(2))
            return torch._int_mm(a, b) if dtype == "int8" else a @ b

        return run

    def copy() -> object:
        return torch.empty(1 << 28, device="xpu").copy_(torch.empty(1 << 28, device="xpu"))

    def attention(width: int) -> Callable[[], object]:
        def run() -> object:
            q, k, v = (torch.empty(4, 32, 4096, width, device="xpu", dtype=torch.float16) for _ in range(3))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

        return run

    def convolution(wanted: int) -> Callable[[], object]:
        def run() -> object:
            x = torch.empty(32, 128, 28, 28, device="xpu", dtype=torch.bfloat16)
            w = torch.empty(128, 128, 3, 3, device="xpu", dtype=torch.bfloat16)
            x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
            if not wanted:
                return torch.nn.functional.conv2d(x, w, padding=1)
            mask = [wanted == 1, wanted == 2, False]
            return torch.ops.aten.convolution_backward(
                x, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask
            )

        return run

    n, head = 8192, 4 * 4 * 32 * 4096**2
    conv = 2 * 32 * 28 * 28 * 128 * 128 * 9
    published = {"bmg": 93.0, "bmg-g31": 154.0, "dg2": 95.5}
    return [
        Case("product float16 8192³", product("float16", n), 2 * n**3, "TFLOP/s", published),
        Case("product bfloat16 4096³", product("bfloat16", 4096), 2 * 4096**3, "TFLOP/s", {}),
        Case("product int8 8192³", product("int8", n), 2 * n**3, "TOP/s", {}),
        Case("copy 1 GiB", copy, 2 << 30, "GB/s", {"bmg": 410.0, "bmg-g31": 532.0}),
        Case("attention float16, heads of 64", attention(64), head * 64, "TFLOP/s", {}),
        Case("attention float16, heads of 128", attention(128), head * 128, "TFLOP/s", {"dg2": 21.7}),
        Case("convolution 3 × 3, 28² × 128: y", convolution(0), conv, "TFLOP/s", {}),
        Case("convolution 3 × 3, 28² × 128: gradient of x", convolution(1), conv, "TFLOP/s", {}),
        Case("convolution 3 × 3, 28² × 128: gradient of w", convolution(2), conv, "TFLOP/s", {}),
    ]


def predict(case: int, product: str, driver: list[str], sample: int) -> tuple[float, str]:
    """Return a case's predicted seconds, and what limits its longest kernel."""
    words = [str(OPENXPU), "simulate", *driver, "--device", product, "--profile", "--sample", str(sample)]
    done = subprocess.run(
        [*words, sys.executable, __file__, "--run", str(case)], capture_output=True, text=True, check=False
    )
    kernels = [(float(us), limit) for _, us, limit in PREDICTED.findall(done.stderr)]
    if done.returncode or not kernels:
        raise RuntimeError(f"{product}, case {case}: {done.stderr[-2000:]}")
    return sum(us for us, _ in kernels) / 1e6, max(kernels)[1]


def main() -> int:
    """Print a line for each case and product."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--products", default=PRODUCTS)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--sample", type=int, default=8, help="work-groups of a launch that run (default: 8)")
    parser.add_argument("--driver", help="folder of Intel's unpacked driver")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        cases()[arguments.run].run()
        torch.xpu.synchronize()
        return 0
    driver = ["--driver", arguments.driver] if arguments.driver else []
    os.environ.setdefault("PYTHONPATH", str(ROOT / "python"))
    rows = []
    for number, case in enumerate(cases()):
        if arguments.only not in case.name:
            continue
        for product in arguments.products.split(","):
            seconds, limit = predict(number, product, driver, arguments.sample)
            rate = case.amount / seconds / (1e9 if case.unit == "GB/s" else 1e12)
            published = case.published.get(product)
            beside = f", published {published:g}, ratio {rate / published:.2f}" if published else ""
            what = f"{seconds * 1e3:8.2f} ms {rate:7.1f} {case.unit}, limited by {limit}{beside}"
            print(f"{case.name:45} {product:8} {what}", flush=True)
            rows.append({"case": case.name, "product": product, "seconds": seconds, "limit": limit})
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
