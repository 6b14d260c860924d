"""torch.compile(mode="reduce-overhead") on xpu: PyTorch's trees of graphs, with its own slow checks of memory on."""

from __future__ import annotations

import copy
import gc
import importlib.util
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from openxpu import _graph_trees
from processes import run_python
from torch import Tensor, nn

pytestmark = pytest.mark.skipif(
    not hasattr(torch.xpu, "XPUGraph") or importlib.util.find_spec("triton") is None,
    reason="needs triton, and torch.xpu's graphs",
)


def private_segments() -> list[dict[str, Any]]:
    """Return the memory segments that graphs hold."""
    gc.collect()
    torch.xpu.empty_cache()
    return [one for one in torch.xpu.memory_snapshot() if tuple(one["segment_pool_id"]) != (0, 0)]


@pytest.fixture(autouse=True)
def checked(fresh_compiler: None) -> Iterator[None]:
    """Check compiled code at each step; fail if a graph is skipped silently or memory is kept."""
    from torch._inductor import config

    before = private_segments()
    settings = {
        "triton.slow_path_cudagraph_asserts": True,
        "triton.cudagraph_or_error": True,
        "triton.autotune_pointwise": False,
    }
    with config.patch(settings):
        yield
    torch._dynamo.reset()
    assert private_segments() == before


def manager() -> Any:
    from torch._inductor import cudagraph_trees

    return cudagraph_trees.get_container(torch.xpu.current_device()).tree_manager


def recorded() -> int:
    """Return the number of graphs in the tree."""
    return sum(1 + root.num_descendants() for root in manager().get_roots())


def test_inference() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(33, 65), nn.GELU(), nn.LayerNorm(65), nn.Linear(65, 7)).to("xpu")
    compiled = torch.compile(net, mode="reduce-overhead")
    addresses = set()
    with torch.no_grad():
        for rows in (5, 5, 5, 5):
            x = torch.randn(rows, 33, device="xpu")
            y = compiled(x)
            torch.testing.assert_close(y, net(x), rtol=1e-5, atol=1e-6)
            addresses.add(y.data_ptr())
        assert recorded() == 1
        assert len(addresses) == 2  # of the first call, which ran without a graph, and of the graph
        with pytest.raises(RuntimeError, match="size"):
            compiled(torch.randn(5, 34, device="xpu"))
        x = torch.randn(5, 33, device="xpu")
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-6)


@pytest.mark.extended
def test_training() -> None:
    """Losses equal those without graphs; forward and backward are one graph each."""
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)
    ).to("xpu")
    net = copy.deepcopy(plain)
    graphed = torch.compile(net, mode="reduce-overhead")
    optimizers = [torch.optim.SGD(each.parameters(), 0.1, 0.9) for each in (plain, net)]
    for _ in range(5):
        x, target = torch.randn(4, 3, 8, 8, device="xpu"), torch.randint(10, (4,), device="xpu")
        losses = []
        for model, optimizer in zip((plain, graphed), optimizers, strict=True):
            optimizer.zero_grad()  # the gradients' memory is overwritten by the next backward
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) < 1e-4, losses
    assert recorded() == 2


def test_a_graph_continues_several_others() -> None:
    """Live outputs are inputs of a graph recorded later, at the same addresses: the pool is restored to them."""

    @torch.compile(mode="reduce-overhead")
    def first(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin() * 2, x.cos()

    @torch.compile(mode="reduce-overhead")
    def second(x: Tensor) -> Tensor:
        return (x + 1).softmax(-1)

    @torch.compile(mode="reduce-overhead")
    def third(x: Tensor, y: Tensor) -> Tensor:
        return x.exp() - y @ y.t()

    for turn in range(10):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(40, 300, device="xpu")
        a, b = first(x)
        if turn % 3 == 1:
            del b
            torch.testing.assert_close(second(a), (x.sin() * 2 + 1).softmax(-1))
            torch.testing.assert_close(a, x.sin() * 2)
        elif turn % 3 == 2:
            y = torch.randn(40, 7, device="xpu")
            c = third(a[:, :40], y)
            torch.testing.assert_close(c, (x.sin() * 2)[:, :40].exp() - y @ y.t())
            torch.testing.assert_close(second(b), (x.cos() + 1).softmax(-1))
            torch.testing.assert_close(c, (x.sin() * 2)[:, :40].exp() - y @ y.t())
            torch.testing.assert_close(a, x.sin() * 2)
    assert manager().debug_checkpointing_counter > 0


def test_what_was_overwritten_is_an_error() -> None:
    double = torch.compile(lambda x: x * 2, mode="reduce-overhead")
    x = torch.ones(3, device="xpu")
    y = double(x)
    z = double(x)
    with pytest.raises(RuntimeError, match="overwritten by a subsequent run"):
        y.sum()
    assert z.tolist() == [2, 2, 2]


def test_random_numbers_go_on() -> None:
    drop = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), mode="reduce-overhead")
    x = torch.ones(50, device="xpu")
    drop(x), drop(x)
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        runs.append([drop(x).tolist() for _ in range(4)])
    assert runs[0] == runs[1]
    assert len({tuple(one) for one in runs[0]}) == 4


def test_inputs_that_are_changed() -> None:
    """Module buffers, such as a KV cache, live in the graph's memory; other inputs are modified in place."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4, device="xpu"))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(x)
            return self.seen * 2

    net = Counting()
    step = torch.compile(net, mode="reduce-overhead")
    with torch.no_grad():
        for turn in range(5):
            assert step(torch.ones(4, device="xpu")).tolist() == [2 * turn + 2] * 4
    assert recorded() == 1
    assert net.seen.tolist() == [5] * 4


def test_what_the_host_does_lies_between_graphs() -> None:
    @torch.compile(mode="reduce-overhead")
    def work(x: Tensor) -> Tensor:
        return ((x * 3).cpu() + 1).to("xpu").sin()

    for _ in range(4):
        x = torch.randn(6, device="xpu")
        torch.testing.assert_close(work(x), (x * 3 + 1).sin())
    assert recorded() == 2


def test_numbers_from_the_cpu() -> None:
    """CPU scalars between other inputs, as the caches of transformers count tokens."""

    @torch.compile(mode="reduce-overhead", dynamic=False)
    def work(a: Tensor, x: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return (x * a + b) @ w.t()

    w = torch.randn(3, 6, device="xpu")
    for turn in range(4):
        x, a, b = torch.randn(6, device="xpu"), torch.tensor(turn + 1.0), torch.tensor(turn - 5.0)
        torch.testing.assert_close(work(a, x, b, w), (x * a.item() + b.item()) @ w.t())


def test_why_there_is_no_graph(caplog: pytest.LogCaptureFixture) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor import config

    work = torch.compile(lambda x: (x.cpu() + 1).to("xpu"), mode="reduce-overhead")
    before = counters["inductor"]["cudagraph_skips"]
    with (
        config.patch({"graph_partition": False, "triton.cudagraph_or_error": False}),
        caplog.at_level(logging.WARNING),
    ):
        assert work(torch.ones(2, device="xpu")).tolist() == [2, 2]
    assert counters["inductor"]["cudagraph_skips"] == before + 1
    assert caplog.text.count("skipping cudagraphs due to cpu device") == 1


@pytest.mark.parametrize(
    ("setting", "partition", "reason"),
    [
        ("triton.cudagraph_support_input_mutation", False, "mutated inputs (1 instances)"),
        ("triton.cudagraph_support_input_mutation", True, "mutated inputs (1 instances)"),
        ("force_disable_cudagraph_TESTING_ONLY", False, "force_disable_cudagraph_TESTING_ONLY"),
    ],
)
def test_a_reason_is_told_once(
    caplog: pytest.LogCaptureFixture, setting: str, partition: bool, reason: str
) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor import config

    work = torch.compile(lambda x: x.add_(2), mode="reduce-overhead")
    before = counters["inductor"]["cudagraph_skips"]
    settings = {setting: setting.startswith("force"), "graph_partition": partition}
    with (
        config.patch({**settings, "triton.cudagraph_or_error": False}),
        caplog.at_level(logging.WARNING, "torch._inductor"),
    ):
        for _ in range(2):
            assert work(torch.ones(2, device="xpu")).tolist() == [3, 3]
    assert counters["inductor"]["cudagraph_skips"] == before + 1
    said = [one.getMessage() for one in caplog.records if one.name.startswith("torch._inductor.cudagraph")]
    assert len(said) == 1
    assert reason in said[0]


def test_the_backend_cudagraphs() -> None:
    work = torch.compile(lambda x, y: x.sin() @ y, backend="cudagraphs")
    for _ in range(4):
        x, y = torch.randn(5, 6, device="xpu"), torch.randn(6, 3, device="xpu")
        assert torch.equal(work(x, y), x.sin() @ y)
    assert recorded() == 1


@pytest.mark.parametrize("partition", [False, True])
def test_without_trees(partition: bool) -> None:
    """With one graph instead of a tree, inputs are copied in, weights are not, and outputs stay at their address."""
    from torch._inductor import config

    net = nn.Linear(6, 3, device="xpu")
    with config.patch({"triton.cudagraph_trees": False, "graph_partition": partition}):
        with torch.no_grad():
            work = torch.compile(lambda x: net(x.sin()), mode="reduce-overhead")
            first = work(torch.randn(5, 6, device="xpu"))
            for _ in range(3):
                x = torch.randn(5, 6, device="xpu")
                out = work(x)
                assert out.data_ptr() == first.data_ptr()
                torch.testing.assert_close(out, net(x.sin()))
        training = torch.compile(lambda x: (x * x).sin().sum(), mode="reduce-overhead")
        for _ in range(0 if partition else 3):  # PyTorch would keep the parts' graphs with their code
            x = torch.randn(7, device="xpu", requires_grad=True)
            training(x).backward()
            assert x.grad is not None
            torch.testing.assert_close(x.grad, 2 * x.detach() * (x.detach() ** 2).cos())
    assert manager() is None


def test_what_openxpu_lacks_is_said(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """If PyTorch calls a function that openxpu lacks, its own module stays in use and a warning is logged."""
    path = tmp_path / "trees.py"
    path.write_text("import torch\ndef ask():\n    return torch._C._cuda_brandNew(torch.cuda.Stream())\n")
    spec = importlib.util.spec_from_file_location("trees", path)
    assert spec
    assert spec.loader
    trees = importlib.util.module_from_spec(spec)
    with caplog.at_level(logging.WARNING, logger="torch._inductor.cudagraph_trees"):
        _graph_trees.run_for_xpu(trees, spec.loader.exec_module)
    assert "_cuda_brandNew" in caplog.text
    assert callable(trees.ask)
    assert not hasattr(trees, _graph_trees._DEVICE)


@pytest.mark.extended
@pytest.mark.skipif("OPENXPU_MEMORY" in os.environ, reason="the run itself")
def test_with_memory_and_queues_apart() -> None:
    """Run this file with separate device memory, as on GPUs."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not host and not why"]
    run_python("-m", "pytest", *options, __file__, env={"OPENXPU_MEMORY": "buffer"}, timeout=600)


def test_nothing_is_kept_in_a_pool() -> None:
    """Data that operators cache for a weight is not allocated from a pool, which the next step may reuse."""
    weight = torch.randint(-9, 9, (4, 8), dtype=torch.int8, device="xpu")
    pool = torch.xpu.MemPool()
    with torch.xpu.use_mem_pool(pool):
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
    held = [b for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated"]
    assert not held
    assert torch.equal(packed, weight.t())
    del pool
