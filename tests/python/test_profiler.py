import json

import torch
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
