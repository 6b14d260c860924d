"""The callbacks of torch.xpu._gpu_trace."""

import pytest
import torch
from processes import run_python
from torch.xpu import _gpu_trace

KINDS = (
    "event_creation",
    "event_deletion",
    "event_record",
    "event_wait",
    "memory_allocation",
    "memory_deallocation",
    "device_synchronization",
    "stream_synchronization",
    "event_synchronization",
)


@pytest.fixture
def calls(monkeypatch):
    """What was called, in order, as (kind, arguments)."""
    torch._C._activate_gpu_trace()  # cannot be undone in this process
    seen = []
    for kind in KINDS:
        registry = getattr(_gpu_trace, "".join(part.title() for part in kind.split("_")) + "Callbacks")
        monkeypatch.setattr(registry, "callback_list", [])
        getattr(_gpu_trace, f"register_callback_for_{kind}")(
            lambda *arguments, kind=kind: seen.append((kind, *arguments))
        )
    return seen


def test_events_and_streams(calls):
    stream = torch.xpu.Stream()
    event = torch.xpu.Event()
    event.record(stream)
    handle = event.sycl_event
    event.wait()
    event.synchronize()
    event.record(stream)
    stream.synchronize()
    del event
    current = torch.xpu.current_stream()
    assert calls == [
        ("event_creation", handle),
        ("event_record", handle, stream.sycl_queue),
        ("event_wait", handle, current.sycl_queue),
        ("event_synchronization", handle),
        ("event_record", handle, stream.sycl_queue),
        ("stream_synchronization", stream.sycl_queue),
        ("event_deletion", handle),
    ]


@pytest.mark.parametrize("synchronize", [torch.xpu.synchronize, torch.accelerator.synchronize])
def test_devices(calls, synchronize):
    synchronize()
    assert calls == [("device_synchronization",)]


def test_memory(calls):
    x = torch.empty(100, device="xpu")
    address = x.data_ptr()
    del x
    assert calls == [("memory_allocation", address), ("memory_deallocation", address)]
    calls.clear()
    y = torch.randn(30, 30, device="xpu")
    z = y @ y  # which CPU devices leave to PyTorch's CPU kernels
    assert ("memory_allocation", z.data_ptr()) in calls
    del y, z
    assert len(calls) % 2 == 0
    assert {c[1] for c in calls if c[0] == "memory_allocation"} == {
        c[1] for c in calls if c[0] == "memory_deallocation"
    }


def test_streams_are_told_when_they_are_made():
    out = run_python("""
from torch.xpu import _gpu_trace
seen = []
torch._C._activate_gpu_trace()
_gpu_trace.register_callback_for_stream_creation(seen.append)
streams = [torch.xpu.Stream() for _ in range(40)]  # 32 are made
print(len(seen), set(seen) == {stream.sycl_queue for stream in streams})
""")
    assert out.stdout.split() == ["32", "True"]


def test_errors_pass_while_memory_is_given_back(calls):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, device="xpu") + torch.ones(3)
    assert [call[0] for call in calls] == ["memory_allocation", "memory_deallocation"]
