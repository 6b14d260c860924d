import ctypes
import gc
import threading

import pytest
import torch
from processes import run, run_python

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
    own = total - torch.xpu.memory_reserved()
    assert 0 < after <= own < total == same_total
    assert 0 < free <= total == torch.xpu.get_device_properties().total_memory
    del x


FALLS = """
import os, time
MIB = 1 << 20
fell = 0
for attempt in range(20):  # others on the machine take and give back meanwhile
    before = torch.xpu.mem_get_info()[0]
    child = os.spawnlp(os.P_NOWAIT, sys.executable, sys.executable, "-S", "-c",
                       "import sys, time; x = b'1' * (512 << 20); print(flush=True); time.sleep(600)")
    for wait in range(200):
        time.sleep(0.05)
        fell = max(fell, before - torch.xpu.mem_get_info()[0])
        if fell >= 256 * MIB: break
    os.kill(child, 9)
    os.waitpid(child, 0)
    if fell >= 256 * MIB: break
print(fell >= 256 * MIB)
"""


def test_free_memory_falls_when_another_process_takes_it():
    if torch.xpu.get_device_properties().type != "cpu":
        pytest.skip("GPUs' drivers tell it by their own files")
    assert (
        run_python("import sys\n" + FALLS, env={"OPENXPU_HOST_MEMORY": "100%"}).stdout.split()[-1] == "True"
    )


def test_memory_as_comfyui_asks_for_it():
    x = torch.ones(8 * MIB, device="xpu")
    total = torch.xpu.get_device_properties().total_memory
    stats = torch.xpu.memory_stats()
    active, reserved = stats["active_bytes.all.current"], stats["reserved_bytes.all.current"]
    free_by_total = total - reserved + reserved - active
    free_by_query = torch.xpu.mem_get_info()[0] + reserved - active
    assert x.nbytes <= active <= reserved
    assert 0 < free_by_query <= free_by_total <= total - x.nbytes
    with open("/proc/meminfo") as file:
        assert total <= int(file.readline().split()[1]) << 10


BATCHES = """
import transformers
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=128, max_position_embeddings=256)
torch.manual_seed(0)
model = LlamaForCausalLM(config).eval().to("xpu")
settings = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
prompts = [[1, 2, 3, 4, 5], [7, 8, 9]]
answers = model.generate_batch(prompts, generation_config=settings)
given = sorted(a.generated_tokens for a in answers.values())
alone = [model.generate(torch.tensor([p], device="xpu"), generation_config=settings)[0, len(p):].tolist()
         for p in prompts]
assert given == sorted(alone), (given, alone)
total = torch.xpu.get_device_properties().total_memory
print(torch.xpu.max_memory_reserved() <= total, torch.xpu.max_memory_reserved() > total // 2, total)
"""


@pytest.mark.extended
def test_continuous_batching_takes_what_there_is():
    pytest.importorskip("transformers")
    environment = {"OPENXPU_HOST_MEMORY": "1500MiB", "TRANSFORMERS_VERBOSITY": "error"}
    assert run_python(BATCHES, env=environment).stdout.split()[-3:] == ["True", "True", str(1500 * MIB)]


@pytest.mark.parametrize("way", ["environment", "call"])
def test_max_split_size_is_obeyed(way):
    script = """
if {call}: torch._C._accelerator_setAllocatorSettings("max_split_size_mb:64")
x = torch.empty(100 << 20, dtype=torch.uint8, device="xpu")
stats = torch.xpu.memory_stats()
print(stats["max_split_size"] >> 20, stats["oversize_allocations.current"], stats["oversize_segments.current"])
del x
y = torch.empty(10 << 20, dtype=torch.uint8, device="xpu")  # doesn't cut the block of 100 MiB
print(torch.xpu.memory_reserved() >> 20)
z = torch.empty(90 << 20, dtype=torch.uint8, device="xpu")
print(torch.xpu.memory_reserved() >> 20, torch.xpu.memory_allocated() >> 20)
"""
    variables = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"} if way == "environment" else {}
    answer = run_python(script.format(call=way == "call"), env=variables).stdout.split()
    assert answer == ["64", "1", "1", "110", "110", "110"]


def test_garbage_collection_threshold_is_obeyed():
    script = """
total = torch.xpu.get_device_properties().total_memory
kept = torch.ones(4, device="xpu")
for i in range(12):
    x = torch.empty((40 + 2 * i) << 20, dtype=torch.uint8, device="xpu")  # a segment each
    del x
print(torch.xpu.memory_reserved() <= total // 2 + (70 << 20), torch.xpu.memory_stats()["num_alloc_retries"])
"""
    variables = {"OPENXPU_HOST_MEMORY": "512MiB"}
    told = {"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.5"}
    assert run_python(script, env=variables | told).stdout.split() == ["True", "0"]
    assert run_python(script, env=variables).stdout.split() != ["True", "0"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("expandable_segments:True", "expandable_segments has no effect on xpu"),
        ("pinned_use_background_threads:True", "pinned_use_background_threads has no effect on xpu"),
        ("expandable_segments:False", ""),
        ("max_split_size_mb:64,garbage_collection_threshold:0.9", ""),
    ],
)
def test_settings_without_effect_warn_once(settings, said):
    script = "for i in range(3): torch.ones(4, device='xpu') + 1\ntorch.ones(9 << 20, device='xpu')"
    done = run_python(script, env={"PYTORCH_ALLOC_CONF": settings})
    assert done.stderr.count("has no effect on xpu") == (1 if said else 0)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("settings", "size", "rounded"),
    [
        ("roundup_power2_divisions:4", (5 << 20) + 1, 6 << 20),
        ("roundup_power2_divisions:[4:8,>:1]", (5 << 20) + 1, 11 << 19),  # 4 says from 4 to below 8 MiB
        ("roundup_power2_divisions:[4:8,>:1]", (9 << 20) + 1, (9 << 20) + 512),
        ("roundup_power2_divisions:[8:4,>:1]", (5 << 20) + 1, 6 << 20),
    ],
)
def test_sizes_are_rounded_as_set(settings, size, rounded):
    script = f"x = torch.empty({size}, dtype=torch.uint8, device='xpu'); print(torch.xpu.memory_allocated())"
    assert int(run_python(script, env={"PYTORCH_ALLOC_CONF": settings}).stdout) == rounded


def test_bad_settings_raise():
    script = """
try: torch.ones(1, device="xpu")
except (ValueError, RuntimeError) as error: print(type(error).__name__, error)
"""
    assert (
        "garbage_collect"
        in run_python(script, env={"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:1.5"}).stdout
    )


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


def pool_bytes(pool):
    return sum(segment["total_size"] for segment in pool.snapshot())


def test_pools_keep_their_memory_apart():
    pool, other = torch.xpu.MemPool(), torch.xpu.MemPool()
    assert pool.id[0] == other.id[0] == 0 and pool.id[1] != other.id[1]
    assert pool.use_count() == 1 and pool.allocator is None
    free = torch.empty(3 * MIB, dtype=torch.uint8, device="xpu")
    address = free.data_ptr()
    del free
    with torch.xpu.use_mem_pool(pool):
        assert pool.use_count() == 2
        outer = torch.empty(3 * MIB, dtype=torch.uint8, device="xpu")
        with torch.xpu.use_mem_pool(other):
            inner = torch.empty(100, device="xpu")
        again = torch.empty(1000, device="xpu")
    assert pool.use_count() == 1
    assert outer.data_ptr() != address
    assert [s["total_size"] for s in pool.snapshot()] == [20 * MIB, 2 * MIB] or pool_bytes(pool) == 22 * MIB
    assert pool_bytes(other) == 2 * MIB
    (segment,) = other.snapshot()
    assert segment["segment_pool_id"] == other.id
    assert segment["blocks"][0]["address"] == inner.data_ptr()
    outside = torch.empty(3 * MIB, dtype=torch.uint8, device="xpu")
    assert outside.data_ptr() == address
    assert (outer.zero_() + again[0].to(torch.uint8) * 0).sum().item() == 0


def test_a_pool_goes_with_its_last_user():
    before = torch.xpu.memory_reserved()
    pool = torch.xpu.MemPool()
    with torch.xpu.use_mem_pool(pool):
        x = torch.empty(MIB, device="xpu")
    del x
    torch.xpu.empty_cache()
    assert torch.xpu.memory_reserved() == before + 20 * MIB  # kept as long as the pool
    del pool
    assert torch.xpu.memory_reserved() == before
    pool = torch.xpu.MemPool()
    with torch.xpu.use_mem_pool(pool):
        x = torch.ones(MIB, device="xpu")
    del pool  # its memory is in use
    assert x.sum().item() == MIB
    del x
    torch.xpu.empty_cache()
    assert torch.xpu.memory_reserved() == before


def test_a_pool_is_the_threads_that_uses_it():
    pool = torch.xpu.MemPool()
    others = []
    with torch.xpu.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: others.append(torch.empty(1000, device="xpu")))
        thread.start()
        thread.join()
        assert pool_bytes(pool) == 0
        with pytest.raises(RuntimeError, match="begun twice"), torch.xpu.use_mem_pool(pool):
            pass
    ids = []
    threads = [threading.Thread(target=lambda: ids.append(torch.xpu.MemPool().id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 4


def test_a_pool_for_hard_times():
    torch.xpu.set_per_process_memory_fraction(
        (torch.xpu.memory_reserved() + 70 * MIB) / torch.xpu.get_device_properties().total_memory
    )
    for use_on_oom in (False, True):
        pool = torch.xpu.MemPool(use_on_oom=use_on_oom)
        with torch.xpu.use_mem_pool(pool):
            x = torch.empty(64 * MIB, dtype=torch.uint8, device="xpu")
        address = x.data_ptr()
        del x
        if use_on_oom:
            assert torch.empty(50 * MIB, dtype=torch.uint8, device="xpu").data_ptr() == address
        else:
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(50 * MIB, dtype=torch.uint8, device="xpu")
        del pool


@pytest.mark.parametrize("no_split", [False, True])
def test_a_pool_of_whole_blocks(no_split: bool) -> None:
    pool = torch._C._XPUMemPool(None, True, False, no_split)
    with torch.xpu.use_mem_pool(pool):
        x = torch.empty(64 * MIB, dtype=torch.uint8, device="xpu")
        address = x.data_ptr()
        del x
        first, second = (torch.empty(16 * MIB, dtype=torch.uint8, device="xpu") for _ in range(2))
    assert first.data_ptr() == address
    assert (address < second.data_ptr() < address + 64 * MIB) is not no_split


ALLOCATOR = """
#include <stddef.h>
#include <stdlib.h>

int taken, given, wrong;
size_t bytes;

void *take(size_t size, int device, void *queue) {
    if (device != 0 || !queue) wrong++;
    if (size > (size_t)1 << 28) return NULL;
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    taken++;
    bytes += size;
    return memory;
}

void give(void *memory, size_t size, int device, void *queue) {
    if (device != 0 || !queue) wrong++;
    given++;
    bytes -= size;
    free(memory);
}
"""

HOST = torch.xpu.get_device_properties().type == "cpu"


@pytest.fixture(scope="module")
def allocator_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("allocator")
    (folder / "a.c").write_text(ALLOCATOR)
    library = str(folder / "allocator.so")
    run(["cc", "-shared", "-fPIC", "-o", library, folder / "a.c"])
    return library


@pytest.mark.skipif(not HOST, reason="kernels of a CPU device alone reach what malloc gives")
def test_a_pool_with_an_allocator_of_ones_own(allocator_library):
    library = ctypes.CDLL(allocator_library)
    counts = {name: ctypes.c_int.in_dll(library, name) for name in ("taken", "given", "wrong")}
    allocator = torch.xpu.memory.XPUPluggableAllocator(allocator_library, "take", "give")
    pool = torch.xpu.MemPool(allocator.allocator())
    assert pool.allocator is allocator.allocator()
    with torch.xpu.use_mem_pool(pool):
        x = torch.arange(1000.0, device="xpu")
        y = x * 2 + 1
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 29, dtype=torch.uint8, device="xpu")
    assert counts["taken"].value == 1  # small blocks share a segment
    assert torch.equal(y.cpu(), torch.arange(1000.0) * 2 + 1)
    z = torch.empty(1000, device="xpu")
    assert counts["taken"].value == 1
    del x, y, z, pool
    assert counts["given"].value == 1 and counts["wrong"].value == 0
    with pytest.raises(RuntimeError, match="already initialized allocator"):
        torch.xpu.memory.change_current_allocator(allocator)


@pytest.mark.skipif(not HOST, reason="kernels of a CPU device alone reach what malloc gives")
def test_another_allocator_for_everything(allocator_library):
    out = run_python(f"""
import ctypes
from torch.xpu import memory
own = memory._get_current_allocator()
allocator = memory.XPUPluggableAllocator({allocator_library!r}, "take", "give")
memory.change_current_allocator(allocator)
assert memory._get_current_allocator().allocator() is allocator.allocator()
library = ctypes.CDLL({allocator_library!r})
value = lambda name, kind=ctypes.c_int: kind.in_dll(library, name).value
x = torch.randn(100, 100, device="xpu", requires_grad=True)
assert value("taken") == 1 and value("bytes", ctypes.c_size_t) == 40000
y = (x @ x).relu().sum()
y.backward()
torch.testing.assert_close(x.grad.cpu(), torch.autograd.grad((x.cpu() @ x.cpu()).relu().sum(), x)[0].cpu())
try:
    torch.xpu.memory_allocated()
except NotImplementedError as error:
    print(error)
try:
    with torch.xpu.stream(torch.xpu.Stream()):
        torch.xpu.XPUGraph().capture_begin()
except NotImplementedError as error:
    print(error)
try:
    torch.empty(1 << 30, device="xpu")
except torch.OutOfMemoryError as error:
    print("OOM")
del x, y
import gc; gc.collect()
assert value("taken") == value("given") > 5, (value("taken"), value("given"))
assert value("bytes", ctypes.c_size_t) == 0 and value("wrong") == 0
""")
    lacks = "a pluggable allocator does not support "
    assert out.stdout.splitlines() == [lacks + "statistics", lacks + "pools for graphs", "OOM"]


def test_actions_left_out_of_the_history():
    torch.xpu.memory._record_memory_history(max_entries=1000, skip_actions=["free_requested", "segment_map"])
    try:
        x = torch.empty(5 * MIB, dtype=torch.uint8, device="xpu")
        del x
        trace = torch.xpu.memory._snapshot()["device_traces"][0]
    finally:
        torch.xpu.memory._record_memory_history(enabled=None)
    assert [entry["action"] for entry in trace if entry["action"].startswith(("alloc", "free"))] == [
        "alloc",
        "free_completed",
    ]
    with pytest.raises(RuntimeError, match="Unknown TraceEntry action: nonsense"):
        torch.xpu.memory._record_memory_history(skip_actions=["nonsense"])


def test_the_profiler_sees_memory():
    with torch.profiler.profile(profile_memory=True) as profile:
        x = torch.empty(MIB, device="xpu")
        del x
    changes = [event.device_memory_usage for event in profile.events() if event.name == "aten::empty"]
    assert changes == [4 * MIB]


@pytest.mark.parametrize("byte", ["ff", "7f", "00"])
@pytest.mark.parametrize("memory", [{}, {"OPENXPU_MEMORY": "buffer"}], ids=["own", "buffer"])
def test_memory_is_poisoned_on_demand(byte, memory):
    done = run_python(
        """
for size in (1, 3, 1000, 3_000_001):
    x = torch.empty(size, dtype=torch.uint8, device="xpu")
    print(*x.cpu().unique().tolist())
    x.fill_(9)  # and is given out again
    del x
print(*torch.empty(1000, dtype=torch.uint8, pin_memory=True).unique().tolist())
""",
        env={"OPENXPU_POISON": byte, **memory},
    )
    assert done.stdout.split() == [str(int(byte, 16))] * 5
