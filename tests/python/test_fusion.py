"""What openxpu has Inductor do for GPUs, where launches count: fewer kernels, with the numbers of eager calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import openxpu
import pytest
import torch
from openxpu import _fusion
from openxpu._run_package import Package
from torch import Tensor

pytest.importorskip("triton")


@pytest.fixture
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Launches count, whatever device is here."""
    monkeypatch.setattr(_fusion, "counts_launches", lambda *_: True)
    with torch._inductor.utils.fresh_cache():
        yield


def kernels(function: Callable[..., object], *given: Tensor) -> list[str]:
    """Return the names of what a second call launches, in order."""
    function(*given)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.XPU]
    with torch.profiler.profile(activities=activities) as profiler:
        function(*given)
        torch.xpu.synchronize()
    events = [e for e in profiler.events() if e.device_type != torch.autograd.DeviceType.CPU]
    return [e.name for e in sorted(events, key=lambda e: e.time_range.start)]


def parts(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    return x.sin() + 1, y.cos() * y, (z > 0) & (z < 3)


def operands(size: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(size), torch.randn(3 * size // 2, dtype=torch.float16), torch.randint(-5, 5, (17,))


@pytest.mark.parametrize("size", [1, 1000, 30001])
def test_small_kernels_are_one(size: int, as_on_gpus: None) -> None:
    given = [t.to("xpu") for t in operands(size)]
    compiled = torch.compile(parts, dynamic=False)
    assert len(kernels(compiled, *given)) == 1
    for a, b in zip(compiled(*given), parts(*operands(size)), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_large_kernels_stay_apart(as_on_gpus: None) -> None:
    given = [t.to("xpu") for t in operands(2 * _fusion.FEW_ELEMENTS)]
    assert len(kernels(torch.compile(parts, dynamic=False), *given)) == 3


def test_what_waits_stays_apart(as_on_gpus: None) -> None:
    def chain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sort(x.sin()).values.cos(), y.exp()

    x, y = torch.randn(200), torch.randn(70)
    found = torch.compile(chain)(x.to("xpu"), y.to("xpu"))
    for a, b in zip(found, chain(x, y), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_not_where_launches_are_cheap() -> None:
    if torch.xpu.get_device_capability()["type"] != "cpu":
        pytest.skip("the device is a GPU")
    with torch._inductor.utils.fresh_cache():
        assert len(kernels(torch.compile(parts, dynamic=False), *(t.to("xpu") for t in operands(100)))) == 3


def test_in_a_package(as_on_gpus: None, tmp_path: Path) -> None:
    class Parts(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x.sin() + 1, y.cos() * y

    x, y = torch.randn(100), torch.randn(30, 5)
    path = openxpu.package(torch.export.export(Parts(), (x, y)), tmp_path / "parts.xpk")
    opened = Package(path)
    prepared = opened.prepare([x.numpy(), y.numpy()])
    opened.run(prepared, 2)
    for a, b in zip(prepared[2], Parts()(x, y), strict=True):
        torch.testing.assert_close(torch.from_numpy(a), b)
