import threading
from importlib.util import find_spec

import pytest
import torch
from processes import run_python

COUNT = torch.xpu.device_count()


def test_there_is_a_device():
    assert torch.xpu.is_available()
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("xpu")
    assert torch.accelerator.device_count() == COUNT


def test_current_device():
    current = torch.xpu.current_device()
    torch.xpu.set_device(current)
    assert torch.xpu.current_device() == current
    assert torch.accelerator.current_device_index() == current


@pytest.mark.parametrize("index", [COUNT, 120])
def test_wrong_index(index):
    with pytest.raises(RuntimeError):
        torch.xpu.set_device(index)
    with pytest.raises(RuntimeError):
        torch.empty(1, device=f"xpu:{index}")
    assert torch.xpu.current_device() == 0


@pytest.mark.skipif(COUNT < 2, reason="one device only")
def test_context_managers_of_several_devices():
    with torch.xpu.device(1):
        assert torch.xpu.current_device() == 1
    assert torch.xpu.current_device() == 0
    with torch.xpu._DeviceGuard(1):
        assert torch.xpu.current_device() == 1
    assert torch.xpu.current_device() == 0


def test_context_managers():
    for manager in (
        torch.accelerator.device_index(None),
        torch.accelerator.device_index(0),
        torch.xpu.device(0),
    ):
        with manager:
            assert torch.xpu.current_device() == 0
    with torch.xpu.device_of(torch.empty(1, device="xpu")):
        assert torch.xpu.current_device() == 0


def test_mixed_devices():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, device="xpu") + torch.ones(3)


def test_properties():
    properties = torch.xpu.get_device_properties(0)
    assert properties == torch.xpu.get_device_properties()
    assert torch.xpu.get_device_name(0) == torch.xpu.get_device_name() == properties.name != ""
    capability = torch.xpu.get_device_capability(0)
    for name in (
        "driver_version has_fp16 has_fp64 has_atomic64 has_bfloat16_conversions architecture "
        "has_subgroup_matrix_multiply_accumulate has_subgroup_2d_block_io max_work_group_size total_memory "
        "has_subgroup_matrix_multiply_accumulate_tensor_float32 max_num_sub_groups sub_group_sizes"
    ).split():
        assert capability[name] == getattr(properties, name)
    assert capability["max_work_group_size"] > 0
    assert properties.total_memory > 1 << 20
    # Inductor reads these; with true values its autotuned products stay off on small CPUs
    assert properties.multi_processor_count == properties.gpu_subslice_count > 0
    assert properties.type in ("cpu", "gpu", "accelerator")
    assert len(str(properties.uuid)) == 36
    assert len(properties.uuid.bytes) == 16
    assert properties.name in repr(properties)


def test_bf16_and_tf32_questions_are_answered():
    assert torch.xpu.is_bf16_supported()
    assert (
        torch.xpu.is_tf32_supported()
        == torch.xpu.get_device_properties().has_subgroup_matrix_multiply_accumulate
    )


def test_architectures():
    assert torch.xpu.get_arch_list() == []
    assert torch.xpu.get_gencode_flags() == ""


def test_a_device_reaches_itself():
    assert torch.xpu.can_device_access_peer(0, 0)


# The public names of torch.xpu in PyTorch 2.13; openxpu adds those that an older one lacks.
NAMES = """
Event Stream StreamContext XPUPluggableAllocator XPUGraph can_device_access_peer change_current_allocator clock_rate
current_device current_stream default_generators device device_of device_count device_memory_used empty_cache
get_arch_list get_device_capability get_device_name get_device_properties get_gencode_flags
get_per_process_memory_fraction get_rng_state get_rng_state_all get_stream_from_external graph graph_pool_handle init
initial_seed is_available is_bf16_supported is_current_stream_capturing is_initialized is_tf32_supported
make_graphed_callables manual_seed manual_seed_all max_memory_allocated max_memory_reserved mem_get_info
memory_allocated memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict memory_usage MemPool
power_draw use_mem_pool reset_accumulated_memory_stats reset_peak_memory_stats seed seed_all set_device
set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream stream streams synchronize temperature
utilization
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    assert hasattr(torch.xpu, name)


SENSORS = "temperature power_draw clock_rate utilization memory_usage device_memory_used".split()


@pytest.mark.skipif(find_spec("pyzes") is not None, reason="PyTorch can read the sensors")
@pytest.mark.parametrize("name", SENSORS)
def test_sensors_say_what_they_need(name):
    with pytest.raises((ImportError, NotImplementedError), match="pyzes|needs PyTorch"):
        getattr(torch.xpu, name)()


def test_backward_of_a_host_device_runs_on_the_thread_that_calls_it() -> None:
    if torch.xpu.get_device_properties().type != "cpu":
        pytest.skip("GPUs have threads of their own")
    threads = []
    x = torch.ones(3, device="xpu", requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: threads.append(threading.get_ident()))
    y.sum().backward()
    assert threads == [threading.get_ident()]


def test_version():
    # Programs read it as an eight-digit number: a compiler release that has all features.
    assert len(torch.version.xpu) == 8
    assert int(torch.version.xpu) >= 20250000
    assert (
        "None" in run_python("print(torch.version.xpu)", env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout
    )  # no device, no version
