"""Tensors shared between processes. One other process serves most tests, since starting one takes seconds."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Listener
from multiprocessing.reduction import ForkingPickler
from typing import Any

import openxpu  # noqa: F401
import pytest
import torch
import torch.multiprocessing as processes
from processes import environment as child_environment
from processes import run_python
from torch import nn

# As text: processes that these tests start import this file, and the device is to be used later there.
pytestmark = pytest.mark.skipif(
    'torch.xpu.get_device_capability()["type"] != "cpu"', reason="drivers don't share their memory"
)

STRATEGIES = ("file_descriptor", "file_system")


def serve(asked: Connection) -> None:
    """Run the functions that the other process sends and send back their results."""
    while True:
        try:
            function, arguments = asked.recv()
            if function is None:
                return
            answer = True, function(*arguments)
        except Exception:  # noqa: BLE001  it is the other's to raise
            answer = False, traceback.format_exc()
        asked.send(answer)
        function = arguments = answer = None


class Other:
    """A process that runs functions on request."""

    def __init__(self, method: str) -> None:
        context = processes.get_context(method)
        self.mine, its = context.Pipe()
        self.process = context.Process(target=serve, args=(its,), daemon=True)
        self.process.start()
        its.close()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run the function in the other process and return its result."""
        self.mine.send((function, arguments))
        assert self.mine.poll(120), "the other process doesn't answer"
        fine, answer = self.mine.recv()
        if not fine:
            raise RuntimeError(answer)
        return answer

    def end(self) -> None:
        """End the process and check its exit status."""
        self.mine.send((None, ()))
        self.process.join(60)
        assert self.process.exitcode == 0


@pytest.fixture(scope="module")
def lasting() -> Iterator[Other]:
    other = Other("spawn")
    yield other
    other.end()


@pytest.fixture(params=STRATEGIES)
def other(lasting: Other, request: pytest.FixtureRequest) -> Iterator[Other]:
    """Return the other process, with each of PyTorch's sharing strategies."""
    processes.set_sharing_strategy(request.param)
    lasting(processes.set_sharing_strategy, request.param)
    yield lasting
    processes.set_sharing_strategy(STRATEGIES[0])


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Iterator[str]:
    processes.set_sharing_strategy(request.param)
    yield request.param
    processes.set_sharing_strategy(STRATEGIES[0])


# What the other process does.
held: dict[str, Any] = {}


def keep(name: str, value: Any) -> None:
    held[name] = value


def kept(name: str) -> Any:
    return held[name]


def drop(name: str) -> None:
    del held[name]
    gc.collect()


def is_initialized() -> bool:
    return torch.xpu.is_initialized()


def describe(value: Any) -> list[Any]:
    """Return the properties that must be equal in the receiving process."""
    if not isinstance(value, torch.Tensor):
        return [type(value)]
    facts = [type(value), value.device, value.dtype, value.layout, value.dim(), value.requires_grad]
    if value.layout == torch.strided and not value.is_nested:
        return [*facts, value.shape, value.stride(), value.storage_offset(), value.is_shared()]
    return facts


def describe_there(value: Any) -> tuple[list[Any], Any]:
    return describe(value), value


def add_one(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.add_(1)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def mapped() -> int:
    """Return the number of PyTorch shared memory mappings of this process."""
    with open("/proc/self/maps") as maps:
        return sum("/torch_" in line for line in maps)


def named() -> list[str]:
    """Return the shared memory files that this process has created."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]


def settles(ask: Callable[[], Any], wanted: Any) -> bool:
    """Return whether the value is reached within 5 seconds: threads and managers close files with a delay."""
    for _ in range(100):
        gc.collect()
        if ask() == wanted:
            return True
        time.sleep(0.05)
    return False


def allocated() -> int:
    return torch.xpu.memory_allocated()


# --- share_memory_ ---


def test_a_tensor_moves_and_stays(strategy: str) -> None:
    x = torch.arange(1000.0, device="xpu")
    view, before = x[3:].view(-1), x.data_ptr()
    at_first = allocated()
    assert not x.is_shared() and not x.untyped_storage().is_shared()
    assert x.share_memory_() is x
    assert x.is_shared() and view.is_shared() and x.untyped_storage().is_shared()
    assert x.data_ptr() != before and allocated() < at_first
    assert view.data_ptr() == x.data_ptr() + 12
    moved = x.data_ptr()
    assert x.share_memory_().data_ptr() == moved
    x += 1
    assert view.tolist() == [float(i) for i in range(4, 1001)]
    assert (x @ torch.ones_like(x)).item() == 500500.0  # in whatever order a processor sums
    assert not x.clone().is_shared() and not (x + 1).is_shared()


def test_storages_and_modules(strategy: str) -> None:
    storage = torch.ones(3, device="xpu").untyped_storage()
    assert storage.share_memory_() is storage
    assert storage.is_shared()
    new = torch.UntypedStorage._new_shared(16, device="xpu")
    assert new.is_shared() and new.device == torch.device("xpu", 0) and new.nbytes() == 16
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("xpu")
    want = {name: value.clone() for name, value in model.state_dict().items()}
    parameters = list(model.parameters())
    assert model.share_memory() is model
    assert all(x.is_shared() for x in model.state_dict().values())
    assert all(x is y for x, y in zip(parameters, model.parameters(), strict=True))
    torch.testing.assert_close(model.state_dict(), want, rtol=0, atol=0)
    model(torch.rand(5, 3, device="xpu")).sum().backward()
    assert all(x.grad is not None for x in parameters)
    assert torch.empty(0, device="xpu").share_memory_().is_shared()  # as on the CPU


def test_lazy_clones_part() -> None:
    x = torch.arange(4.0, device="xpu")
    y = torch._lazy_clone(x)
    x.share_memory_()
    x[0] = 9
    assert x.tolist() == [9, 1, 2, 3] and y.tolist() == [0, 1, 2, 3]
    assert x.is_shared() and not y.is_shared()


def test_shared_memory_is_not_resized(other: Other) -> None:
    shared = torch.arange(6.0, device="xpu").share_memory_()
    other(keep, "x", shared)
    came = other(kept, "x")
    for x in (shared, came, torch.utils.dlpack.from_dlpack(shared)):
        for resize in (
            lambda x=x: x.resize_(100),
            lambda x=x: x.untyped_storage().resize_(4),
            lambda x=x: x.untyped_storage().resize_(0),
        ):
            with pytest.raises(RuntimeError, match="not resizable"):
                resize()
        assert x.shape == (6,)
        assert x.tolist() == [0, 1, 2, 3, 4, 5]
    shared.resize_(3)
    assert shared.tolist() == [0, 1, 2]
    other(drop, "x")


@pytest.mark.skipif(not hasattr(torch.xpu, "XPUGraph"), reason="torch.xpu has graphs from 2.13 on")
def test_what_a_graph_may_use_stays_where_it_is() -> None:
    before, shared = (torch.ones(4, device="xpu") for _ in range(2))
    shared.share_memory_()
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        result = before + shared
        with pytest.raises(RuntimeError, match="XPUGraph"):
            before.share_memory_()
    after = torch.ones(4, device="xpu")
    for tensor in (before, result):
        with pytest.raises(RuntimeError, match=r"XPUGraph .* share tensor.clone\(\)"):
            tensor.share_memory_()
        with pytest.raises(RuntimeError, match="XPUGraph"):
            ForkingPickler.dumps(tensor)
        assert not tensor.is_shared()
    ForkingPickler.dumps(shared)
    assert after.share_memory_().is_shared()
    shared.fill_(5)
    graph.replay()
    assert result.tolist() == [6] * 4
    assert result.clone().share_memory_().tolist() == [6] * 4
    del graph
    gc.collect()
    assert before.share_memory_().tolist() == [1] * 4


# --- sending ---

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
)  # fmt: skip


class Labeled(torch.Tensor):
    """A tensor subclass as users write them."""


def cases(device: str) -> dict[str, Any]:
    """Return the values to send, by name."""
    x = torch.arange(24.0, device=device).view(4, 6)
    ragged = [torch.ones(2, 3), torch.zeros(1, 3)]
    jagged = torch.nested.nested_tensor(ragged, layout=torch.jagged, device=device)
    return {str(dtype): torch.ones(5, device=device).to(dtype) for dtype in DTYPES} | {
        "turned": x.t(),
        "offset": x[1:, 2:],
        "expanded": torch.ones(3, 1, device=device).expand(3, 4),
        "scalar": torch.tensor(3.5, device=device),
        "empty": torch.empty(0, 3, device=device),
        "requires_grad": torch.ones(3, device=device, requires_grad=True),
        "parameter": nn.Parameter(torch.ones(3, device=device)),
        "integer parameter": nn.Parameter(torch.ones(3, device=device).int(), requires_grad=False),
        "buffer": nn.Buffer(torch.ones(3, device=device)),
        "subclass": torch.ones(3, device=device).as_subclass(Labeled),
        "coo": torch.eye(3).to_sparse().to(device),
        "csr": torch.eye(3).to_sparse_csr().to(device),
        "csc": torch.eye(3).to_sparse_csc().to(device),
        "bsr": torch.eye(4).to_sparse_bsr((2, 2)).to(device),
        "nested": torch.nested.nested_tensor(ragged, device=device),
        "jagged": jagged,
    }


def numbers(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the contents as dense CPU tensors in one common dtype."""
    parts = tensor.unbind() if tensor.is_nested else [tensor]
    dense = [x if x.layout == torch.strided else x.to_dense() for x in (x.detach().cpu() for x in parts)]
    return [x.resolve_conj().to(torch.complex128) for x in dense]


def test_all_kinds_arrive_as_the_cpus_do(other: Other) -> None:
    mine = cases("xpu")
    assert [type(x) for x in other(describe_there, mine)[1].values()] == [type(x) for x in mine.values()]
    for name, on_cpu in cases("cpu").items():
        facts, came = other(describe_there, mine[name])
        want, _ = other(describe_there, on_cpu)
        want[1] = torch.device("xpu", 0)
        assert facts == want, name
        for mine_now, cpu in zip(numbers(came), numbers(on_cpu), strict=True):
            assert torch.equal(mine_now, cpu), name


def test_what_is_no_leaf_is_refused() -> None:
    x = torch.ones(3, device="xpu", requires_grad=True)
    with pytest.raises(RuntimeError, match="non-leaf"):
        ForkingPickler.dumps(x * 2)


def test_changes_are_seen_on_both_sides(other: Other) -> None:
    x = torch.zeros(4, 3, device="xpu")
    other(keep, "x", x.t())
    assert x.is_shared()
    other(add_one, x[1])  # the same storage once more
    came = other(kept, "x")
    assert came.data_ptr() == x.data_ptr() and came.stride() == (1, 3)
    x[0] = 7
    assert other(torch.Tensor.tolist, came[:, :2].cpu()) == [[7, 1]] * 3
    other(add_one, came)
    assert x.tolist() == [[8] * 3, [2] * 3, [1] * 3, [1] * 3]
    other(drop, "x")


def test_one_storage_stays_one(other: Other) -> None:
    x = torch.zeros(6, device="xpu")
    other(keep, "both", (x[:4], x[2:], x.untyped_storage(), x))
    assert other(same_storage, "both")
    other(keep, "again", x.view(2, 3))
    assert other(same_storage, "both", "again")
    model = nn.Linear(3, 3, device="xpu")
    tied = nn.Sequential(model, nn.Linear(3, 3, device="xpu"))
    tied[1].weight = model.weight
    there = other(describe_there, tied)[1]
    assert there[0].weight is there[1].weight
    assert there[0].weight.data_ptr() == model.weight.data_ptr()
    for name in ("both", "again"):
        other(drop, name)


def same_storage(*names: str) -> bool:
    values = [x for name in names for x in (held[name] if isinstance(held[name], tuple) else (held[name],))]
    storages = {
        x._cdata if isinstance(x, torch.UntypedStorage) else x.untyped_storage()._cdata for x in values
    }
    return len(storages) == 1


def test_storages_are_sent(other: Other) -> None:
    x = torch.arange(4, dtype=torch.int16, device="xpu")
    other(keep, "storages", [x.untyped_storage(), x.storage()])
    untyped, typed = other(kept, "storages")
    assert untyped.data_ptr() == x.data_ptr() and untyped.device == x.device
    assert typed.dtype == torch.int16 and typed.tolist() == [0, 1, 2, 3]
    other(drop, "storages")


def test_strategies_meet(lasting: Other) -> None:
    x = torch.zeros(3, device="xpu")
    lasting(keep, "x", x)
    processes.set_sharing_strategy("file_system")
    try:
        lasting(keep, "y", x)  # moves the storage, as on the CPU: what was sent before is another memory
        lasting(add_one, x)
    finally:
        processes.set_sharing_strategy("file_descriptor")
    assert x.tolist() == [1] * 3
    assert lasting(torch.Tensor.tolist, lasting(kept, "y")) == [1] * 3
    assert lasting(kept, "x").tolist() == [0] * 3
    lasting(drop, "x")
    lasting(drop, "y")


# --- how long it lasts ---


def test_it_outlives_its_sender_and_leaves_nothing(other: Other) -> None:
    other(keep, "warm", torch.ones(3, device="xpu"))  # PyTorch's managers and threads keep files of their own
    other(drop, "warm")
    assert settles(lambda: named() + other(named), [])
    files, places, there = open_files(), mapped(), [other(open_files), other(mapped)]
    memory = allocated(), other(allocated)
    x = torch.arange(100_000.0, device="xpu")
    want = x.sum().item()
    other(keep, "x", x)
    del x
    assert other(total, "x") == want
    came = other(kept, "x")
    other(drop, "x")
    assert came.sum().item() == want
    del came
    assert settles(lambda: open_files() <= files and mapped() <= places, True)
    assert settles(lambda: named() + other(named), [])
    assert settles(lambda: other(open_files) <= there[0] and other(mapped) <= there[1], True)
    assert (allocated(), other(allocated)) == memory


def total(name: str) -> float:
    return held[name].sum().item()


def test_a_process_that_ends_leaves_its_tensors() -> None:
    other = Other("spawn")
    assert not other(is_initialized)
    x = other(make, 1000)
    assert other(is_initialized)
    other.end()
    assert x.is_shared() and x.sum().item() == 1000


def make(count: int, device: str = "xpu") -> torch.Tensor:
    return torch.ones(count, device=device)


# --- ways to start processes ---


def descend(rank: int, model: nn.Module, barrier: Any) -> None:
    """Hogwild training: all processes update the same parameters without locks."""
    generator = torch.Generator().manual_seed(rank)
    update = torch.optim.SGD(model.parameters(), lr=0.05)
    barrier.wait(60)
    for _ in range(60):
        x = torch.randn(16, 3, generator=generator).to("xpu")
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        update.zero_grad()
        loss.backward()
        update.step()


def test_processes_train_one_model() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1, device="xpu")
    model.share_memory()
    barrier = processes.get_context("spawn").Barrier(2)
    processes.spawn(descend, args=(model, barrier), nprocs=2)
    assert model.weight.tolist()[0] == pytest.approx([1] * 3, abs=0.05)
    assert model.weight.grad is None


def square(x: torch.Tensor) -> torch.Tensor:
    assert x.is_shared() or not x.numel()
    return x.square()


def answer(questions: Any, answers: Any) -> None:
    for x in iter(questions.get, None):
        answers.put((x, x + 1))
    questions.get()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pools_and_queues(method: str) -> None:
    context = processes.get_context(method)
    x = [torch.full((3,), float(i), device="xpu") for i in range(5)]
    with context.Pool(1) as pool:
        assert [y.tolist() for y in pool.map(square, x)] == [[i * i] * 3 for i in range(5)]
        assert pool.apply(square, (torch.empty(0, device="xpu"),)).shape == (0,)
    questions, answers = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(questions, answers))
    process.start()
    for each in x:
        questions.put(each)
    questions.put(None)
    for each in x:
        same, more = answers.get(timeout=60)
        assert same.data_ptr() == each.data_ptr()
        assert torch.equal(more, each + 1)
    questions.put(None)
    process.join(60)
    assert process.exitcode == 0


class Tensors(torch.utils.data.Dataset):
    """A dataset whose samples are on the device."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((2, 3), float(i), device="xpu"), i


def test_workers_of_a_data_loader_give_xpu_tensors(strategy: str) -> None:
    loader = torch.utils.data.DataLoader(
        Tensors(), batch_size=4, num_workers=1, multiprocessing_context="spawn"
    )
    seen = 0
    for x, i in loader:
        assert x.device == torch.device("xpu", 0) and x.is_shared()
        assert x[:, 1, 2].tolist() == i.tolist()
        seen += len(i)
    assert seen == 10


def test_a_forked_process_sends_to_one_that_never_used_the_device() -> None:
    out = run_python("""
from torch.multiprocessing import get_context
context = get_context("fork")
queue, more = context.Queue(), context.Queue()

def work():
    x = torch.arange(4.0, device="xpu")
    queue.put(x)
    queue.put(x[1:].untyped_storage())
    more.get()
    print(x.tolist(), flush=True)

process = context.Process(target=work)
process.start()
x = queue.get()
assert torch.xpu.is_initialized()
assert queue.get().data_ptr() == x.data_ptr()
x += 1
more.put(None)
process.join()
assert process.exitcode == 0
""")
    assert out.stdout.split() == ["[1.0,", "2.0,", "3.0,", "4.0]"]


def test_a_process_forked_after_first_use_says_why_not() -> None:
    out = run_python("""
from torch.multiprocessing import get_context
context = get_context("fork")
pipe, its = context.Pipe()
x, shared = torch.ones(2, device="xpu"), torch.ones(2, device="xpu").share_memory_()

def work():
    for use in (its.recv, x.share_memory_, lambda: its.send(x), lambda: its.send(shared)):
        try:
            use()
        except RuntimeError as error:
            assert "Cannot re-initialize XPU in forked subprocess" in str(error), error
        else:
            raise AssertionError(use)
    print("refused", flush=True)

process = context.Process(target=work)
process.start()
pipe.send(x)
process.join()
assert process.exitcode == 0
print(shared.tolist(), x.tolist())
""")
    assert out.stdout.split() == ["refused", "[1.0,", "1.0]", "[1.0,", "1.0]"]


# Takes what another process sends, with nothing imported beforehand.
RECEIVER = """
import multiprocessing, pickle, sys
from multiprocessing.connection import Client
key = multiprocessing.current_process().authkey = bytes.fromhex({key!r})
with Client({address!r}, authkey=key) as connection:
    said = []
    for _ in range({count}):
        try:
            value = pickle.loads(connection.recv_bytes())
            said.append(" ".join([str(value.device), *map(str, value.tolist())]))
        except Exception as error:
            said.append(repr(error))
    connection.send(said)
"""


def received(values: list[Any], **variables: str) -> list[str]:
    """Return what a new process reports about the values sent to it."""
    key = bytes(processes.current_process().authkey)
    with Listener(authkey=key) as listener:
        script = RECEIVER.format(key=key.hex(), address=listener.address, count=len(values))
        process = subprocess.Popen([sys.executable, "-c", script], env=child_environment(variables))
        with listener.accept() as connection:
            for value in values:
                connection.send_bytes(ForkingPickler.dumps(value))
            said = connection.recv()
        assert process.wait(60) == 0
    return said


class Elsewhere:
    """A storage that is sent with device index 7."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage = storage

    def __reduce__(self) -> Any:
        rebuild, (_, *rest) = ForkingPickler(io.BytesIO()).dispatch_table[torch.UntypedStorage](self.storage)
        return rebuild, (7, *rest)


def test_a_fresh_process_needs_no_preparation() -> None:
    x = torch.arange(3, dtype=torch.uint8, device="xpu")
    received([x.clone()])  # starts the thread that hands out files, whose socket stays open
    files = open_files()
    values = [x.untyped_storage(), x, Elsewhere(x.untyped_storage()), x]
    first, second, third, fourth = received(values)
    assert first == second == fourth == "xpu:0 0 1 2"
    assert "another process sent a tensor of xpu:7" in third and "has 1 device" in third
    assert "No OpenCL device matches" in received([x], OPENXPU_DEVICE="no such device")[0]
    assert "memory of xpu:0 can't be shared" in received([x], OPENXPU_MEMORY="buffer")[0]
    del x, values
    assert settles(lambda: open_files() <= files, True)


def test_every_device_keeps_its_tensors() -> None:
    run_python(
        """
from multiprocessing.reduction import ForkingPickler
import torch.multiprocessing
x = torch.arange(3.0, device="xpu:1").share_memory_()
y = ForkingPickler.loads(ForkingPickler.dumps(x))
assert y.device == x.device == torch.device("xpu:1")
assert y.data_ptr() == x.data_ptr()
assert torch.UntypedStorage._new_shared(4, device="xpu:1").device == x.device
""",
        env={"OPENXPU_DEVICE": "cpu,cpu"},
    )
