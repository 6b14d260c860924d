from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, supported_activities


def test_xpu_can_be_profiled():
    assert ProfilerActivity.XPU in supported_activities()


def test_kernels_and_device_times(tmp_path):
    x = torch.randn(1 << 18, device="xpu")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.XPU]) as recorded:
        for _ in range(5):
            y = x * x
        y.cpu()
        torch.xpu.synchronize()
    kernels = [event for event in recorded.events() if event.device_type == torch.autograd.DeviceType.XPU]
    assert {event.device_type for event in recorded.events()} == {
        torch.autograd.DeviceType.CPU,
        torch.autograd.DeviceType.XPU,
    }
    products = [event for event in kernels if "mul" in event.name]
    assert len(products) == 5
    assert all(event.time_range.elapsed_us() > 0 for event in products)
    averages = {event.key: event for event in recorded.key_averages()}
    assert averages["aten::mul"].device_time_total > 0
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    assert len([e for e in events if e.get("cat") == "kernel" and "mul" in e["name"]]) == 5
    assert any(e.get("cat") == "gpu_memcpy" for e in events)


def test_nothing_is_kept_without_a_profiler():
    x = torch.randn(100, device="xpu")
    x * x
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.XPU]) as recorded:
        pass
    assert not [event for event in recorded.events() if event.device_type != torch.autograd.DeviceType.CPU]


def square() -> torch.Tensor:
    """Return a matrix that can be inverted and factored."""
    a = torch.randn(20, 20, generator=torch.Generator().manual_seed(3))
    return (a @ a.mT + 20 * torch.eye(20)).to("xpu")


x = torch.arange(600, dtype=torch.float32, device="xpu").remainder(97).reshape(20, 30)
image = torch.randn(2, 3, 12, 12, device="xpu")
taps = torch.randn(4, 3, 3, 3, device="xpu")
bytes_ = torch.randint(-9, 9, (32, 32), dtype=torch.int8, device="xpu")
# Many of these are PyTorch's CPU kernels on a processor, and libxpu's on GPUs.
COMPUTE: dict[str, Callable[[], object]] = {
    "sort": lambda: x.sort(),
    "sort, stable": lambda: torch.sort(x, stable=True, descending=True),
    "argsort": lambda: x.argsort(),
    "msort": lambda: x.msort(),
    "topk": lambda: x.topk(3),
    "kthvalue": lambda: x.kthvalue(4),
    "median": lambda: x.median(),
    "median of rows": lambda: x.median(1),
    "nanmedian": lambda: x.nanmedian(),
    "mode": lambda: x.mode(),
    "unique": lambda: x.unique(),
    "unique of rows": lambda: x.unique(dim=0),
    "unique_consecutive": lambda: x.unique_consecutive(),
    "searchsorted": lambda: torch.searchsorted(x.sort().values, x),
    "bucketize": lambda: torch.bucketize(x, torch.arange(9.0, device="xpu")),
    "isin": lambda: torch.isin(x, x[:2]),
    "histc": lambda: x.histc(10),
    "histogram": lambda: torch.histc(x, 5, 0, 9),
    "bincount": lambda: x.long().flatten().bincount(),
    "quantile": lambda: x.quantile(0.3),
    "inverse": lambda: square().inverse(),
    "det": lambda: square().det(),
    "solve": lambda: torch.linalg.solve(square(), square()),
    "cholesky": lambda: torch.linalg.cholesky(square()),
    "qr": lambda: torch.linalg.qr(square()),
    "svd": lambda: torch.linalg.svd(square()),
    "eigh": lambda: torch.linalg.eigh(square()),
    "eig": lambda: torch.linalg.eig(square()),
    "lu": lambda: torch.linalg.lu(square()),
    "lstsq": lambda: torch.linalg.lstsq(square(), square()),
    "matrix_exp": lambda: torch.linalg.matrix_exp(square()),
    "fft": lambda: torch.fft.fft(x),
    "stft": lambda: torch.fft.rfft2(x),
    "mm": lambda: x @ x.mT,
    "mm of halves": lambda: x.half() @ x.mT.half(),
    "_int_mm": lambda: torch._int_mm(bytes_, bytes_),
    "conv2d": lambda: F.conv2d(image, taps),
    "conv2d of halves": lambda: F.conv2d(image.bfloat16(), taps.bfloat16()),
    "conv_transpose2d": lambda: F.conv_transpose2d(image, taps.transpose(0, 1).contiguous()),
    "conv1d": lambda: F.conv1d(image[0], taps[:, :, 0].repeat(1, 4, 1)),
    "interpolate": lambda: F.interpolate(image, scale_factor=2.5, mode="bilinear"),
    "attention": lambda: F.scaled_dot_product_attention(image, image, image),
    "item": lambda: x.sum().item(),
    "nonzero": lambda: x.nonzero(),
    "masked_select": lambda: x[x > 3],
    "copy to the CPU": lambda: x.cpu(),
    "copy from the CPU": lambda: torch.ones(20).to("xpu"),
}


@pytest.mark.parametrize("compute", COMPUTE.values(), ids=COMPUTE.keys())
def test_what_the_host_computes_is_work_of_the_device(compute: Callable[[], object]) -> None:
    """Work of the host's libraries is recorded as device work, and its time is counted once for the operator."""
    compute()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.XPU]) as recorded:
        compute()
        torch.xpu.synchronize()
    events = recorded.events()
    work = [event for event in events if event.device_type == torch.autograd.DeviceType.XPU]
    assert work
    assert all(event.time_range.elapsed_us() >= 0 and event.name for event in work)
    operators = [event for event in recorded.key_averages() if event.key.startswith("aten::")]
    assert sum(event.self_device_time_total for event in operators) > 0


def test_an_operator_by_cpu_kernels_is_one_record() -> None:
    """Calls inside a CPU kernel are not recorded separately; calls are counted, threads kept apart."""
    if torch.xpu.get_device_properties().type != "cpu":
        pytest.skip("a GPU sorts by kernels of libxpu")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.XPU]) as recorded:
        for _ in range(7):
            x.sort()
    work = [event for event in recorded.events() if event.device_type == torch.autograd.DeviceType.XPU]
    assert [event.name for event in work].count("aten::sort") == 7
    assert len(work) == 7
