"""Host time of small operations and the cost of memory, on xpu (OpenCL) and CUDA on one NVIDIA GPU.

The requirements are those of side_by_side.py; `openxpu run bench/gpu/host_costs.py` starts it. Times are
microseconds per call, the best of several rounds. A ratio is xpu's time divided by CUDA's: below 1 xpu is
faster.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("PYTORCH_ENABLE_XPU_FALLBACK", "0")
os.environ["OPENXPU_KEEP_CUDA"] = "1"

import torch
from side_by_side import Work, seconds, wait  # type: ignore[import-not-found]

MIB = 1 << 20


def cases() -> Iterator[tuple[str, Callable[[str], Work], int]]:
    """Return the name, the maker of the work for a device, and the calls per round."""

    def event(device: str) -> Work:
        module = torch.xpu if device == "xpu" else torch.cuda
        mark = module.Event()
        return lambda: mark.record()

    def upload(size: int, pinned: bool) -> Callable[[str], Work]:
        def make(device: str) -> Work:
            host = torch.ones(size)
            if pinned:
                host = host.pin_memory(device)
            there = torch.empty(size, device=device)
            return lambda: there.copy_(host, non_blocking=pinned)

        return make

    def download(size: int) -> Callable[[str], Work]:
        def make(device: str) -> Work:
            there = torch.ones(size, device="cpu").to(device)
            return lambda: there.cpu()

        return make

    def after_kernel(device: str) -> Work:
        x = torch.ones(4).to(device)
        return lambda: x.add_(1).sum().item()

    def fill(dtype: torch.dtype, size: int) -> Callable[[str], Work]:
        def make(device: str) -> Work:
            x = torch.empty(size, dtype=dtype, device=device)
            return lambda: x.fill_(1)

        return make

    def copy(size: int) -> Callable[[str], Work]:
        def make(device: str) -> Work:
            a, b = (torch.ones(size).to(device) for _ in range(2))
            return lambda: a.copy_(b)

        return make

    yield ".item()", lambda d: torch.ones((), device="cpu").to(d).item, 2000
    yield "x.add_(1).sum().item()", after_kernel, 1000
    yield ".cpu(), 4 numbers", download(4), 2000
    yield ".cpu(), 64 KiB", download(16384), 1000
    yield "copy_, 4 numbers", copy(4), 5000
    yield "copy_, 256 MiB", copy(1 << 26), 20
    yield "event.record()", event, 5000
    yield "upload, pageable, 4 numbers", upload(4, False), 3000
    yield "upload, pageable, 16 KiB", upload(4096, False), 2000
    yield "upload, pageable, 64 MiB", upload(1 << 24, False), 5
    yield "upload, pinned, 4 numbers", upload(4, True), 5000
    yield "upload, pinned, 16 KiB", upload(4096, True), 3000
    yield "zeros, 64 MiB", lambda d: lambda: torch.zeros(1 << 24, device=d), 200
    yield "fill_, 64 MiB of bytes", fill(torch.uint8, 1 << 26), 200
    yield "fill_, 64 MiB of floats", fill(torch.float32, 1 << 24), 200
    yield "fill_, 3 bytes", fill(torch.uint8, 3), 5000


def resident() -> int:
    """Return the bytes of host memory that the process uses."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def memory(device: str) -> None:
    """Measure the time of new device memory, its cost in host memory, and how much fits on the card."""
    module = torch.xpu if device == "xpu" else torch.cuda
    module.empty_cache()
    total = module.get_device_properties().total_memory
    before = resident()
    start = time.perf_counter()
    small = [torch.empty(MIB, dtype=torch.uint8, device=device) for _ in range(64)]
    small_time = (time.perf_counter() - start) / 64
    start = time.perf_counter()
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(1 << 30, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError as error:
        text = str(error)
    large_time = (time.perf_counter() - start) / max(len(blocks), 1)
    for i, block in enumerate(blocks):
        block[-1] = i
    wrong = sum(int(block[-1]) != i % 256 for i, block in enumerate(blocks))
    print(
        f"{device}: 1 MiB {small_time * 1e6:.0f} µs, 1 GiB {large_time * 1e3:.2f} ms, {len(blocks)} GiB of "
        f"{total >> 30} got, {wrong} wrong, {(resident() - before) >> 20} MiB of host memory; "
        f"{text.splitlines()[0]}"
    )
    del small, blocks
    module.empty_cache()
    torch.ones(4, device="cpu").to(device).sum().item()


def main() -> int:
    """Print the comparison; return 0 if every ratio is at most 1.3."""
    print(f"{torch.xpu.get_device_name()} through OpenCL, {torch.cuda.get_device_name()} through CUDA")
    late = 0
    for name, make, calls in cases():
        ours, theirs = make("xpu"), make("cuda")
        for work, device in ((ours, "xpu"), (theirs, "cuda")):
            work()
            wait(device)
        xpu, cuda = [], []
        for _ in range(5):
            xpu.append(1e6 * seconds(ours, "xpu", calls))
            cuda.append(1e6 * seconds(theirs, "cuda", calls))
        ratio = min(xpu) / min(cuda)
        late += ratio > 1.3
        print(f"{name:32} xpu {min(xpu):10.2f}  cuda {min(cuda):10.2f}  ratio {ratio:.2f}", flush=True)
    for device in ("cuda", "xpu"):
        memory(device)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
