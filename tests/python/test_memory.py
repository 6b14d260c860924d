import gc
import threading

import pytest
import torch

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    torch.xpu.init()  # before, torch.xpu.memory_stats() is empty
    gc.collect()
    torch.xpu.empty_cache()
    torch.xpu.reset_peak_memory_stats()
    torch.xpu.reset_accumulated_memory_stats()
    yield
    torch.xpu.set_per_process_memory_fraction(1.0)


def stat(name):
    return torch.xpu.memory_stats()[name]


def test_bytes_are_counted_exactly():
    before = stat("active_bytes.all.current")
    a = torch.empty(256, device="xpu")
    assert stat("active_bytes.all.current") == before + 1024
    assert stat("requested_bytes.small_pool.allocated") == 1024
    assert stat("active_bytes.all.freed") == 0
    b = torch.empty(100, dtype=torch.uint8, device="xpu")
    assert torch.xpu.memory_allocated() == before + 1024 + 512
    assert stat("requested_bytes.all.allocated") == 1124
    del a
    assert stat("active_bytes.all.current") == before + 512
    assert stat("active_bytes.all.freed") == 1024
    assert torch.xpu.max_memory_allocated() == before + 1536
    assert stat("allocation.all.allocated") == 2
    del b
    torch.xpu.reset_peak_memory_stats()
    assert torch.xpu.max_memory_allocated() == torch.xpu.memory_allocated() == before


def test_pools_by_size():
    small = torch.empty(MIB, dtype=torch.uint8, device="xpu")
    assert stat("allocated_bytes.small_pool.allocated") == MIB
    large = torch.empty(MIB + 1, dtype=torch.uint8, device="xpu")
    assert stat("allocated_bytes.large_pool.allocated") == MIB + 512
    del small, large


def test_reserved_memory_is_kept_and_given_back():
    before = torch.xpu.memory_reserved()
    x = torch.empty(30 * MIB, dtype=torch.uint8, device="xpu")
    assert torch.xpu.memory_reserved() == before + 30 * MIB
    del x
    assert torch.xpu.memory_reserved() == before + 30 * MIB
    y = torch.empty(30 * MIB, dtype=torch.uint8, device="xpu")
    assert torch.xpu.memory_reserved() == before + 30 * MIB
    del y
    torch.xpu.empty_cache()
    assert torch.xpu.memory_reserved() == before
    assert torch.xpu.max_memory_reserved() == before + 30 * MIB


def test_accelerator_gives_the_same_numbers():
    x = torch.empty(1000, device="xpu")
    assert torch.accelerator.memory_allocated() == torch.xpu.memory_allocated()
    assert torch.accelerator.memory_reserved() == torch.xpu.memory_reserved()
    assert torch.accelerator.max_memory_allocated() == torch.xpu.max_memory_allocated()
    generic, own = torch.accelerator.memory_stats(), torch.xpu.memory_stats()
    for name in ("active_bytes.all.current", "requested_bytes.all.allocated", "segment.all.current"):
        assert generic[name] == own[name]
    del x
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == torch.xpu.memory_allocated()


def test_memory_info():
    free, total = torch.xpu.mem_get_info()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="xpu").fill_(1)
    after, same_total = torch.xpu.mem_get_info()
    assert 0 < after <= free <= total == same_total
    del x


def test_out_of_memory_and_on():
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 800000000\.00 GiB") as raised:
        torch.empty(1024**3 * 800000000, dtype=torch.int8, device="xpu")
    text = str(raised.value)
    assert "XPU out of memory." in text
    for word in ("free", "reserved", "allocated"):
        assert word in text
    with pytest.raises(RuntimeError, match="XPU out of memory."):
        torch.empty(1024**3 * 8000000000, dtype=torch.int8, device="xpu")
    assert stat("num_ooms") == 2
    assert (torch.ones(10, device="xpu") + 1).sum().item() == 20


def test_memory_fraction():
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match="invalid fraction:"):
            torch.xpu.set_per_process_memory_fraction(wrong)
    with pytest.raises(TypeError):
        torch.xpu.set_per_process_memory_fraction(1)
    total = torch.xpu.get_device_properties().total_memory
    fraction = (torch.xpu.memory_reserved() + 256 * MIB) / total
    torch.xpu.set_per_process_memory_fraction(fraction)
    assert torch.xpu.get_per_process_memory_fraction() == fraction
    torch.empty(200 * MIB, dtype=torch.int8, device="xpu")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(300 * MIB, dtype=torch.int8, device="xpu")
    torch.xpu.set_per_process_memory_fraction(1.0)
    torch.empty(300 * MIB, dtype=torch.int8, device="xpu")


def test_snapshot_adds_up():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="xpu")
    segments = torch.xpu.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == torch.xpu.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == torch.xpu.memory_allocated()
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        assert segment["segment_type"] in ("small", "large")
    (mine,) = (
        block
        for segment in segments
        for block in segment["blocks"]
        if block["address"] == x.untyped_storage().data_ptr()
    )
    assert mine["state"] == "active_allocated"
    assert mine["requested_size"] == 3 * MIB


def test_history():
    torch.xpu.memory._record_memory_history(max_entries=1000)
    try:
        x = torch.empty(5 * MIB, dtype=torch.uint8, device="xpu")
        address = x.data_ptr()
        del x
        snapshot = torch.xpu.memory._snapshot()
    finally:
        torch.xpu.memory._record_memory_history(enabled=None)
    trace = [entry for entry in snapshot["device_traces"][0] if entry.get("addr") == address]
    actions = [entry["action"] for entry in trace if "segment" not in entry["action"]]
    assert actions == ["alloc", "free_requested", "free_completed"]
    alloc = next(entry for entry in trace if entry["action"] == "alloc")
    assert alloc["size"] == 5 * MIB
    assert any(frame["name"] == "test_history" for frame in alloc["frames"])


def test_threads_share_the_allocator():
    def work():
        for i in range(200):
            x = torch.full((1000 + i,), float(i), device="xpu")
            assert x[-1].item() == i

    before = torch.xpu.memory_allocated()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.xpu.memory_allocated() == before


def test_pinned_memory():
    x = torch.arange(1000.0).pin_memory()
    assert x.is_pinned()
    assert x[10:].is_pinned()
    assert not torch.arange(3).is_pinned()
    assert torch.empty(10, pin_memory=True).is_pinned()
    y = x.to("xpu", non_blocking=True)
    z = torch.empty(1000, pin_memory=True)
    z.copy_(y, non_blocking=True)
    torch.xpu.synchronize()
    assert torch.equal(z, x)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned|cannot pin"):
        y.pin_memory()


def test_data_loader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(20.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=10, pin_memory=True):
        assert batch.is_pinned()
        assert batch.to("xpu", non_blocking=True).sum().item() == batch.sum().item()
