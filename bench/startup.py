"""What openxpu adds to `import torch`, and the start-up time of `openxpu compile`.

Every figure comes from fresh processes: `import torch` with and without openxpu
(TORCH_DEVICE_BACKEND_AUTOLOAD=0), alternating so that other work on the machine affects both alike, and the
whole command `openxpu compile` on a small kernel. Medians are compared. CPU time is listed next to wall time,
which a busy machine stretches.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORT = """
import time
start = time.perf_counter(), time.process_time()
import torch
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""
KERNEL = ROOT / "tests/tile/ir/vadd.ttir"
COMPILE = f"import sys; from openxpu.cli import main; sys.exit(main(['compile', {str(KERNEL)!r}]))"

# (wall time, CPU time) in seconds
Times = tuple[float, float]

# Upper limits on an idle machine, in seconds.
BARS = {"openxpu's part of import torch": 0.05, "openxpu compile": 0.3}


def _import(autoload: str) -> Times:
    """Run `import torch` in a fresh process."""
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    wall, processor = map(float, done.stdout.split()[-2:])
    return wall, processor


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _compile() -> Times:
    """Run the whole command."""
    start = time.perf_counter(), _children()
    subprocess.run([sys.executable, "-c", COMPILE], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start[0], _children() - start[1]


def _median(times: list[Times]) -> Times:
    wall, processor = zip(*times, strict=True)
    return statistics.median(wall), statistics.median(processor)


def measure(rounds: int) -> dict[str, Times]:
    """Return medians; a first round, which fills the system's caches, does not count."""
    without, with_, command = [], [], []
    for number in range(rounds + 1):
        times = _import("0"), _import("1"), _compile()
        if number:
            without.append(times[0])
            with_.append(times[1])
            command.append(times[2])
    ours, theirs = _median(with_), _median(without)
    return {
        "import torch without openxpu": theirs,
        "import torch with openxpu": ours,
        "openxpu's part of import torch": (ours[0] - theirs[0], ours[1] - theirs[1]),
        "openxpu compile": _median(command),
    }


def main() -> int:
    """Return 0 if every bar is reached in wall time or, on a busy machine, in CPU time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    times = measure(arguments.rounds)
    for name, (wall, processor) in times.items():
        bar = f"   (bar {BARS[name] * 1e3:.0f})" if name in BARS else ""
        print(f"{name:32} {wall * 1e3:8.1f} ms, CPU {processor * 1e3:8.1f} ms{bar}")
    return 0 if all(min(times[name]) <= bar for name, bar in BARS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
