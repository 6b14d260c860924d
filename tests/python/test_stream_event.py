import time

import pytest
import torch
from comparing import assert_close


@pytest.fixture(autouse=True)
def default_stream():
    before = torch.xpu.current_stream()
    yield
    torch.xpu.set_stream(before)


def test_current_stream():
    s0 = torch.xpu.Stream()
    torch.xpu.set_stream(s0)
    assert torch.xpu.current_stream() == s0
    s1 = torch.xpu.Stream()
    assert s0 != s1
    torch.xpu.set_stream(s1)
    with torch.xpu.stream(s0):
        assert torch.xpu.current_stream() == s0
    assert torch.xpu.current_stream() == s1
    with torch.xpu.stream(None):
        assert torch.xpu.current_stream() == s1


def test_stream_is_a_context_manager():
    before = torch.xpu.current_stream()
    with torch.xpu.Stream() as stream:
        assert torch.xpu.current_stream() == stream
    assert torch.xpu.current_stream() == before


def test_priorities():
    low, high = torch.xpu.Stream.priority_range()
    assert (low, high) == (1, -1)
    for priority in (low, 0, high):
        stream = torch.xpu.Stream(device=0, priority=priority)
        assert stream.priority == priority
        assert stream.device == torch.device("xpu:0")
    assert torch.xpu.Stream(priority=-100).priority == high
    assert torch.xpu.Stream(priority=100).priority == low


def test_accelerator_streams():
    for _ in range(2):
        stream = torch.xpu.Stream()
        torch.accelerator.set_stream(stream)
        assert torch.accelerator.current_stream().stream_id == stream.stream_id
    with pytest.raises(RuntimeError, match="The device index is out of range"):
        torch.accelerator.current_stream(torch.accelerator.device_count())


def test_external_queue_gives_a_stream():
    queue = torch.xpu.Stream().sycl_queue
    stream = torch.xpu.get_stream_from_external(queue)
    assert stream.sycl_queue == queue
    assert torch.xpu.get_stream_from_external(queue) == stream
    with torch.xpu.stream(stream):
        assert (torch.ones(5, device="xpu") + 1).sum().item() == 10


def test_repr():
    assert "torch.xpu.Stream(" in str(torch.xpu.current_stream())
    event = torch.xpu.Event()
    assert "torch.xpu.Event(uninitialized)" in str(event)
    event.record()
    assert "torch.xpu.Event(sycl_event=" in str(event)


def test_events():
    stream = torch.xpu.current_stream()
    event = torch.xpu.Event()
    assert event.query()
    assert event.event_id == event.sycl_event == 0
    stream.record_event(event)
    event.synchronize()
    assert event.query()
    assert event.event_id == event.sycl_event != 0


def test_elapsed_time():
    start, end = (torch.xpu.Event(enable_timing=True) for _ in range(2))
    start.record()
    time.sleep(0.05)
    end.record()
    torch.xpu.synchronize()
    assert 50 <= start.elapsed_time(end) < 5000


def test_elapsed_time_of_events_without_timing():
    start, end = (torch.xpu.Event() for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    with pytest.raises((RuntimeError, ValueError)):
        start.elapsed_time(end)
    with pytest.raises((RuntimeError, ValueError)):
        torch.xpu.Event(enable_timing=True).elapsed_time(torch.xpu.Event(enable_timing=True))


def test_generic_stream_and_event():
    stream = torch.Stream("xpu")
    assert stream.device_index == torch.xpu.current_device()
    named = torch.xpu.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert isinstance(named, torch.Stream)
    assert named.stream_id == stream.stream_id != torch.xpu.current_stream().stream_id
    first, second = (torch.Event("xpu", enable_timing=True) for _ in range(2))
    a, b = torch.randn(1000), torch.randn(1000)
    with torch.xpu.stream(named):
        x, y = a.to("xpu", non_blocking=True), b.to("xpu", non_blocking=True)
    first.record(stream)
    first.synchronize()
    z = x + y
    second.record()
    second.synchronize()
    assert first.query() and second.query()
    assert first.event_id != second.event_id
    assert_close(z, a + b, rtol=0, atol=0)
    assert first.elapsed_time(second) > 0
    assert issubclass(torch.xpu.Event, torch.Event)


def test_streams_wait_for_each_other():
    side = torch.xpu.Stream()
    x = torch.zeros(1 << 20, device="xpu")
    side.wait_stream(torch.xpu.current_stream())
    with torch.xpu.stream(side):
        x += 1
    x.record_stream(side)
    torch.xpu.current_stream().wait_stream(side)
    assert (x * 2).sum().item() == 2 << 20
    side.synchronize()
    assert side.query()


def test_streams_are_per_thread():
    import threading

    seen = []
    torch.xpu.set_stream(torch.xpu.Stream())
    thread = threading.Thread(target=lambda: seen.append(torch.xpu.current_stream()))
    thread.start()
    thread.join()
    assert seen[0].stream_id == 0
