import pytest
import torch


def test_seed_and_state():
    torch.manual_seed(2024)
    first = torch.xpu.get_rng_state()
    torch.manual_seed(1234)
    second = torch.xpu.get_rng_state()
    assert not torch.equal(first, second)
    torch.xpu.manual_seed(2024)
    assert torch.equal(torch.xpu.get_rng_state(), first)
    torch.xpu.set_rng_state(second)
    assert torch.equal(torch.xpu.get_rng_state(), second)
    torch.manual_seed(1234)
    torch.xpu.set_rng_state(first)
    assert torch.xpu.initial_seed() == 2024


def test_state_is_seed_and_offset():
    generator = torch.Generator("xpu").manual_seed(0x0102030405060708)
    generator.set_offset(8)
    state = generator.get_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    assert state.view(torch.int64).tolist() == [0x0102030405060708, 8]
    assert generator.get_offset() == 8
    with pytest.raises(RuntimeError):
        generator.set_offset(3)
    with pytest.raises(RuntimeError, match="wrong size"):
        generator.set_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        generator.set_state(torch.zeros(4))


def test_same_seed_same_numbers():
    generator = torch.Generator("xpu").manual_seed(5)
    first = torch.randn(1000, device="xpu", generator=generator)
    second = torch.randn(1000, device="xpu", generator=generator)
    assert not torch.equal(first, second)
    generator.manual_seed(5)
    assert torch.equal(torch.randn(1000, device="xpu", generator=generator), first)
    state = generator.get_state()
    third = torch.rand(10, device="xpu", generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(10, device="xpu", generator=generator), third)


def test_default_generator():
    torch.xpu.manual_seed(7)
    a = torch.randn(100, device="xpu")
    torch.xpu.manual_seed_all(7)
    assert torch.equal(torch.randn(100, device="xpu"), a)
    assert len(torch.xpu.default_generators) == torch.xpu.device_count()
    torch.xpu.seed()
    assert torch.xpu.initial_seed() != 7


def test_clone_and_shared_state():
    generator = torch.Generator("xpu").manual_seed(1)
    shared = generator.graphsafe_get_state()
    torch.rand(10, device="xpu", generator=generator)
    assert shared.get_offset() == generator.get_offset() > 0
    other = torch.Generator("xpu")
    other.graphsafe_set_state(shared)
    torch.rand(10, device="xpu", generator=other)
    assert other.get_offset() == generator.get_offset()
    twin = generator.clone_state()
    torch.rand(10, device="xpu", generator=generator)
    assert twin.get_offset() != generator.get_offset()


def test_wrong_generator():
    with pytest.raises(RuntimeError, match="Expected a 'xpu' device type for generator but found 'cpu'"):
        torch.rand(3, device="xpu", generator=torch.Generator())
    with pytest.raises(RuntimeError):
        torch.rand(3, generator=torch.Generator("xpu"))


def test_fork_rng_and_checkpoint():
    torch.xpu.manual_seed(3)
    with torch.random.fork_rng(devices=[0], device_type="xpu"):
        torch.rand(5, device="xpu")
    a = torch.rand(5, device="xpu")
    torch.xpu.manual_seed(3)
    assert torch.equal(torch.rand(5, device="xpu"), a)
    x = torch.ones(1000, device="xpu", requires_grad=True)
    layer = torch.nn.Dropout(0.5)
    y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
