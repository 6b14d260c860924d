"""``openxpu report``: what a device computes and how fast, as JSON and as a page to read and send.

A report holds the device and its driver, versions, results of operators beside float64, and rates of
products, convolutions, attention and copies beside what the hardware can do at most. It holds nothing about
the machine's owner: no names of users or hosts, no paths, no serial numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import openxpu
from openxpu import _report_page, _self_test

VERSION = 1  # of the JSON format
# What identifies a single device or its place in the machine stays out of the report.
PRIVATE = {"uuid", "pci_address"}


def _public(text: str) -> str:
    """Return the first line of an error's text, without folders, which name users."""
    return re.sub(r"(?<![\w.])[~.]*(/[^\s/:\"']+)+/", "", text.partition("\n")[0])


def _reason(failure: Exception) -> str:
    return _public(f"{type(failure).__name__}: {failure}")


# --- values ---


@dataclass(frozen=True)
class Operator:
    """An operator, inputs that don't depend on the device, and the error that is allowed."""

    name: str
    call: Callable[..., torch.Tensor]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    dtype: torch.dtype = torch.float32
    allowed: float = 4.0  # epsilons of the dtype, relative to the largest value of the result


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def _positive(*shape: int) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64) + 0.01


def _indices(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(limit, shape)


def _operators() -> Iterator[Operator]:
    """Yield the operators of a report: each family of kernels is there."""
    for name in ("exp", "sin", "tanh", "erf", "sigmoid", "atan"):
        yield Operator(name, getattr(torch, name), lambda: (_normal(1000, 33),))
    for name in ("log", "rsqrt", "lgamma"):
        yield Operator(name, getattr(torch, name), lambda: (_positive(1000, 33),))
    for name in ("gelu", "silu", "softplus"):
        yield Operator(name, getattr(F, name), lambda: (_normal(1000, 33),))
    two = lambda: (_positive(200, 1, 33), _positive(50, 33))  # noqa: E731
    for name in ("add", "mul", "div", "pow", "atan2"):
        yield Operator(name, getattr(torch, name), two)
    rows = lambda: (_normal(300, 1000),)  # noqa: E731
    for name in ("sum", "mean", "var", "amax", "logsumexp", "softmax", "cumsum"):
        yield Operator(name, lambda x, name=name: getattr(torch, name)(x, 1), rows, allowed=64)
    yield Operator("argmax", lambda x: x.argmax(1), rows)
    yield Operator("sort", lambda x: x.sort(dim=1, stable=True).indices, rows)
    yield Operator("topk", lambda x: x.topk(17).values, rows)
    yield Operator("layer_norm", lambda x: F.layer_norm(x, (1000,)), rows, allowed=16)
    yield Operator("rms_norm", lambda x: F.rms_norm(x, (1000,)), rows, torch.bfloat16, 2)
    image = lambda: (_normal(4, 16, 31, 33),)  # noqa: E731
    yield Operator("group_norm", lambda x: F.group_norm(x, 4), image, allowed=16)
    yield Operator("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), image)
    yield Operator("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), image)
    yield Operator(
        "interpolate", lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), image, allowed=64
    )
    yield Operator("gather", lambda x, i: x.gather(1, i), lambda: (_normal(70, 90), _indices(90, 70, 40)))
    yield Operator(
        "embedding", lambda x, i: F.embedding(i, x), lambda: (_normal(500, 64), _indices(500, 999))
    )
    yield Operator(
        "scatter_add",
        lambda x, i: torch.zeros_like(x[:100]).index_add(0, i, x),
        lambda: (_normal(5000, 8), _indices(100, 5000)),
        allowed=64,
    )
    yield Operator("nonzero", lambda x: (x > 0.5).nonzero(), rows)
    yield Operator("fft", lambda x: torch.fft.rfft(x).abs(), rows, allowed=32)
    for dtype, allowed in ((torch.float32, 64), (torch.float16, 4), (torch.bfloat16, 4)):
        kind = str(dtype).removeprefix("torch.")
        matrices = lambda: (_normal(130, 700), _normal(700, 90))  # noqa: E731
        yield Operator(f"matmul {kind}", torch.matmul, matrices, dtype, allowed)
        yield Operator(
            f"conv2d {kind}",
            lambda x, w: F.conv2d(x, w, padding=1),
            lambda: (_normal(4, 16, 31, 33), _normal(24, 16, 3, 3)),
            dtype,
            allowed,
        )
        heads = lambda: tuple(_normal(2, 3, 130, 64) for _ in range(3))  # noqa: E731
        yield Operator(f"attention {kind}", F.scaled_dot_product_attention, heads, dtype, allowed)


def _error(operator: Operator, device: str) -> float:
    """Return the largest error in epsilons of the dtype, relative to the largest value.

    It is infinite for integers that differ.
    """
    inputs = [x.to(operator.dtype) if x.is_floating_point() else x for x in operator.inputs()]
    wanted = operator.call(*(x.double() if x.is_floating_point() else x for x in inputs))
    got = operator.call(*(x.to(device) for x in inputs)).cpu()
    if got.shape != wanted.shape:
        raise AssertionError(f"shape {tuple(got.shape)}, expected {tuple(wanted.shape)}")
    if not got.is_floating_point():
        return 0.0 if torch.equal(got, wanted) else math.inf
    difference = (got.double() - wanted).abs().max() / wanted.abs().max() / torch.finfo(operator.dtype).eps
    return math.inf if difference.isnan() else float(difference)


def values(index: int) -> Iterator[dict[str, Any]]:
    """Compare operators with PyTorch's CPU in float64."""
    for operator in _operators():
        torch.manual_seed(0)
        row: dict[str, Any] = {"name": operator.name, "allowed": operator.allowed}
        try:
            error = _error(operator, f"xpu:{index}")
            row |= {
                "error": round(error, 2) if math.isfinite(error) else "wrong",
                "ok": error <= operator.allowed,
            }
        except Exception as failure:  # whatever it is
            row |= {"error": _reason(failure), "ok": False}
        yield row


# --- rates ---

# Multiply-adds per clock and compute unit of Intel's GPUs, by IP version: vector units in fp32, and XMX in
# tf32, half precision and int8, where it has them. From Intel's Xe architecture guides.
UNITS = {
    (12, 0): (8, 8, 16, 32),
    (12, 55): (8, 8, 64, 128),
    (12, 60): (16, 128, 256, 512),
    (12, 70): (8, 8, 16, 32),
    (12, 74): (8, 8, 64, 128),
    (20, 0): (16, 64, 128, 256),
}
KINDS = {"float32": 0, "tf32": 1, "float16": 2, "bfloat16": 2, "int8": 3}


def _roof(properties: Any, kind: str) -> float | None:
    """Return the TFLOP/s (or TOP/s) of a dtype that the device's units can do; None if that is not known."""
    if properties.vendor_id != 0x8086 or properties.type != "gpu" or not properties.max_clock_rate:
        return None
    version = properties.architecture >> 8
    ip = version >> 22, version >> 14 & 255
    known = max((entry for entry in UNITS if entry <= ip), default=None)
    if known is None:
        return None
    return 2e-6 * UNITS[known][KINDS[kind]] * properties.max_compute_units * properties.max_clock_rate


@dataclass(frozen=True)
class Work:
    """Something to measure."""

    name: str
    kind: str  # the dtype
    unit: str
    # of the device and the size: what to run, and its amount of work, in seconds times the unit
    make: Callable[[str, int], tuple[Callable[[], object], float]]
    first: int  # the smallest size; sizes double
    last: int


def _product(dtype: torch.dtype) -> Callable[[str, int], tuple[Callable[[], object], float]]:
    def make(device: str, n: int) -> tuple[Callable[[], object], float]:
        if dtype == torch.int8:
            a, b = (torch.randint(-8, 8, (n, n), dtype=dtype, device=device) for _ in range(2))
            return lambda: torch._int_mm(a, b), 2e-12 * n**3
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        return lambda: a @ b, 2e-12 * n**3

    return make


def _convolution(device: str, batch: int) -> tuple[Callable[[], object], float]:
    x = torch.randn(batch, 128, 28, 28, device=device).half().to(memory_format=torch.channels_last)
    w = torch.randn(128, 128, 3, 3, device=device).half().to(memory_format=torch.channels_last)
    return lambda: F.conv2d(x, w, padding=1), 2e-12 * batch * 28 * 28 * 128 * 128 * 9


def _attention(device: str, length: int) -> tuple[Callable[[], object], float]:
    q, k, v = (torch.randn(1, 16, length, 128, device=device).half() for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v), 4e-12 * 16 * length**2 * 128


def _copy(device: str, size: int) -> tuple[Callable[[], object], float]:
    a, b = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    return lambda: b.copy_(a), 2e-9 * size


def _pinned(upload: bool) -> Callable[[str, int], tuple[Callable[[], object], float]]:
    def make(device: str, size: int) -> tuple[Callable[[], object], float]:
        here = torch.zeros(size, dtype=torch.uint8).pin_memory()
        there = torch.zeros(size, dtype=torch.uint8, device=device)
        source, target = (here, there) if upload else (there, here)
        return lambda: target.copy_(source, non_blocking=True), 1e-9 * size

    return make


def _row(device: str, n: int) -> tuple[Callable[[], object], float]:
    """Return a row times int4 weights, as in decoding: bytes of weights and scales."""
    x = torch.randn(1, n, device=device).half()
    weight = torch.randint(-(1 << 31), 1 << 31, (n, n // 8), dtype=torch.int32, device=device)
    scale = torch.rand(n // 128, n, device=device).half()
    zero = torch.zeros(n // 128, n, dtype=torch.int8, device=device)
    product = torch.ops.aten._weight_int4pack_mm_with_scales_and_zeros
    return lambda: product(x, weight, 128, scale, zero), 1e-9 * (n * n / 2 + 3 * n * n / 128)


def _launches(device: str, count: int) -> tuple[Callable[[], object], float]:
    x = torch.zeros(1, device=device)

    def run() -> None:
        for _ in range(count):
            x.add_(1)

    return run, 1e-3 * count


WORK = (
    Work("matrix product", "float32", "TFLOP/s", _product(torch.float32), 256, 8192),
    Work("matrix product", "float16", "TFLOP/s", _product(torch.float16), 256, 16384),
    Work("matrix product", "bfloat16", "TFLOP/s", _product(torch.bfloat16), 256, 16384),
    Work("matrix product", "int8", "TOP/s", _product(torch.int8), 256, 16384),
    Work("convolution 3 x 3", "float16", "TFLOP/s", _convolution, 1, 256),
    Work("attention", "float16", "TFLOP/s", _attention, 128, 16384),
    Work("copy on the device", "bytes", "GB/s", _copy, 1 << 20, 1 << 30),
    Work("int4 weights times a row", "int4", "GB/s", _row, 1024, 16384),
    Work("copy from pinned memory", "bytes", "GB/s", _pinned(True), 1 << 20, 1 << 28),
    Work("copy to pinned memory", "bytes", "GB/s", _pinned(False), 1 << 20, 1 << 28),
    Work("launches of a small kernel", "float32", "thousand/s", _launches, 16, 4096),
)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    torch.xpu.synchronize()
    return time.perf_counter() - start


def _measure(work: Work, device: str, seconds: float) -> dict[str, Any]:
    """Measure with the size that is fastest, of those that allow several runs in ``seconds``."""
    end, size = time.perf_counter() + seconds, work.first
    found: list[tuple[float, int]] = []  # rates and sizes
    while True:
        try:
            run, amount = work.make(device, size)
            _seconds(run)  # builds the kernel
            took = _seconds(run)
        except torch.OutOfMemoryError:
            if not found:
                raise
            break
        found.append((amount / took, size))
        size *= 2
        if size > work.last or took > seconds / 40 or time.perf_counter() > end:
            break
    best, size = max(found)
    run, amount = work.make(device, size)
    runs = 1
    while runs < 50 and time.perf_counter() < end:
        best = max(best, amount / _seconds(run))
        runs += 1
    return {"size": size, "rate": best, "runs": runs}


def rates(index: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure rates for about ``seconds`` in all."""
    properties = torch.xpu.get_device_properties(index)
    copied = None
    for work in WORK:
        row: dict[str, Any] = {"name": work.name, "dtype": work.kind, "unit": work.unit}
        try:
            row |= _measure(work, f"xpu:{index}", seconds / len(WORK))
        except Exception as failure:  # whatever it is
            row["error"] = _reason(failure)
            yield row
            continue
        if work.unit.startswith("T"):
            row["roof"] = _roof(properties, work.kind)
        if work.name == "copy on the device":
            copied = row["rate"]
        if work.kind == "int4":
            row["roof"] = copied  # as measured
        yield row
        torch.xpu.empty_cache()


# --- the report ---


def identity(index: int) -> dict[str, Any]:
    """Return the device's properties and versions."""
    properties = vars(torch.xpu.get_device_properties(index))
    return {
        "device": {name: value for name, value in sorted(properties.items()) if name not in PRIVATE},
        "openxpu": openxpu.__version__,
        "pytorch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {re.match('[0-9.]*', platform.release())[0]}",  # type: ignore[index]
        "machine": platform.machine(),
        "simulated": os.environ.get("OPENXPU_SIM_DEVICE", "no"),  # the product; its rates are the simulator's
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def make(index: int, seconds: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the report of a device. ``tell`` is called with the name of each step."""
    report: dict[str, Any] = {"report": VERSION, **identity(index)}
    tell("self-test")
    report["checks"] = [dataclasses.asdict(result) for result in _self_test.run(index)]
    for check in report["checks"]:
        check["error"] = _public(check["error"])
    for name, rows in (("values", values(index)), ("rates", rates(index, seconds))):
        report[name] = []
        for row in rows:
            tell(row["name"])
            report[name].append(row)
    return report


def failures(report: dict[str, Any]) -> int:
    """Return the number of checks, operators and measurements that failed."""
    return (
        sum(bool(check["error"]) for check in report["checks"])
        + sum(not row["ok"] for row in report["values"])
        + sum("error" in row for row in report["rates"])
    )


def main(options: argparse.Namespace) -> int:
    """Write the report of a device; the exit status is 1 if something in it failed."""
    if not torch.xpu.is_available():
        print(openxpu.no_device_hint(), file=sys.stderr)
        return 1
    if not 0 <= options.device < torch.xpu.device_count():
        print(f"No device xpu:{options.device}.", file=sys.stderr)
        return 1
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("") as status:
        report = make(options.device, options.seconds, status.update)
    try:
        for suffix, text in ((".json", json.dumps(report, indent=1)), (".html", _report_page.page(report))):
            path = options.output.with_name(options.output.name + suffix)
            path.write_text(text + "\n", encoding="utf-8")
            print(path)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    failed = failures(report)
    if failed:
        print(f"{failed} entries of the report failed.", file=sys.stderr)
    return int(failed > 0)
