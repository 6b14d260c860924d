"""torch.xpu.XPUGraph: a replay gives the same bits as eager calls."""

from __future__ import annotations

import copy
import gc
import importlib.util
import os
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytestmark = pytest.mark.skipif(
    not hasattr(torch.xpu, "XPUGraph"), reason="torch.xpu has graphs from 2.13 on"
)


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Assert that the test ends with no capture and with the stream it started with."""
    before = torch.xpu.current_stream()
    yield
    assert not torch.xpu.is_current_stream_capturing()
    assert torch.xpu.current_stream() == before


def capture(
    work: Callable[[], object], warm: int = 2, **options: object
) -> tuple[torch.xpu.XPUGraph, object]:
    """Run the work on a side stream, as users do before a capture, and capture it."""
    side = torch.xpu.Stream()
    side.wait_stream(torch.xpu.current_stream())
    with torch.xpu.stream(side):
        for _ in range(warm):
            work()
    torch.xpu.current_stream().wait_stream(side)
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph, **options):
        result = work()
    return graph, result


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, width))


class Vit(nn.Module):
    """A small vision transformer."""

    def __init__(self, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.places = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 4, dropout)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, width)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2) + self.places
        y = y + self.attention(self.norm(y))
        return self.head((y + self.mlp(y)).mean(1))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(33, 65), nn.GELU(), nn.Linear(65, 7), nn.Softmax(-1)), (5, 33)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(8, 6, 2, 2, groups=2),
            nn.Conv2d(6, 6, 3, stride=2, bias=False),
            nn.Flatten(),
        ),
        (3, 3, 14, 18),
    ),
    "attention": (lambda: Attention(48, 4), (2, 13, 48)),
    "half": (
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.Flatten(), nn.Linear(8 * 19, 9)).bfloat16(),
        (2, 4, 21),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_replays_are_equal_to_eager(name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to("xpu")  # batch norm in training: each call updates its statistics
    eager = copy.deepcopy(model)
    dtype = next(model.parameters()).dtype
    x = torch.randn(shape, device="xpu", dtype=dtype)
    with torch.no_grad():
        graph, y = capture(lambda: model(x))
        eager.load_state_dict(model.state_dict())
        for i in range(100):
            new = torch.randn(shape, device="xpu", dtype=dtype) * (1 + i / 10)
            x.copy_(new)
            graph.replay()
            assert torch.equal(y, eager(new)), i
    for ours, theirs in zip(model.buffers(), eager.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_capture_does_nothing() -> None:
    x = torch.zeros(1000, device="xpu")
    graph = torch.xpu.XPUGraph()
    assert not torch.xpu.is_current_stream_capturing()
    with torch.xpu.graph(graph):
        assert torch.xpu.is_current_stream_capturing()
        x.add_(1)
    assert x.sum() == 0
    for _ in range(3):
        graph.replay()
    assert x.sum() == 3000


@pytest.mark.parametrize("kind", ["dropout", "attention", "numbers"])
def test_random_numbers_are_those_of_eager(kind: str) -> None:
    x = torch.randn(2, 4, 24, 16, device="xpu", requires_grad=True)

    def work() -> tuple[Tensor, ...]:
        if kind == "numbers":
            return (
                torch.rand(77, device="xpu"),
                torch.randint(9, (50,), device="xpu"),
                torch.randperm(20, device="xpu"),
            )
        y = F.dropout(x, 0.3) if kind == "dropout" else F.scaled_dot_product_attention(x, x, x, dropout_p=0.4)
        return y.detach(), *torch.autograd.grad(y.sin().sum(), x), F.dropout(x, 0.5).detach()

    graph, results = capture(work)
    torch.manual_seed(5)
    eager = [work() for _ in range(4)]
    assert not torch.equal(eager[0][0], eager[1][0])
    for _ in range(2):
        torch.manual_seed(5)
        for expected in eager:
            graph.replay()
            for ours, theirs in zip(results, expected, strict=True):
                assert torch.equal(ours, theirs)
    torch.manual_seed(5)  # alternate eager calls and replays
    graph.replay()
    assert torch.equal(work()[0], eager[1][0])
    graph.replay()
    assert torch.equal(results[0], eager[2][0])


def test_a_generator_of_ones_own() -> None:
    generator = torch.Generator("xpu")
    generator.manual_seed(3)
    expected = [torch.rand(9, device="xpu", generator=generator) for _ in range(3)]
    graph = torch.xpu.XPUGraph()
    graph.register_generator_state(generator)
    with torch.xpu.graph(graph):
        y = torch.rand(9, device="xpu", generator=generator)
        with pytest.raises(RuntimeError, match="setting its seed"):
            generator.manual_seed(4)
    generator.manual_seed(3)
    del generator
    gc.collect()
    for numbers in expected:
        graph.replay()
        assert torch.equal(y, numbers)


def optimizers(model: nn.Module, name: str) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True, fused=name == "fused")


@pytest.mark.parametrize("name", ["sgd", "adamw", "fused"])
def test_a_training_step(name: str) -> None:
    torch.manual_seed(1)
    models = [Vit().to("xpu")]
    models.append(copy.deepcopy(models[0]))
    x, target = torch.empty(4, 3, 16, 16, device="xpu"), torch.empty(4, dtype=torch.long, device="xpu")
    batches = [(torch.randn(x.shape, device="xpu"), torch.randint(10, (4,), device="xpu")) for _ in range(7)]

    def stepper(model: nn.Module) -> Callable[[], Tensor]:
        optimizer = optimizers(model, name)

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        return step

    losses: list[list[float]] = [[], []]
    for i, model in enumerate(models):
        torch.manual_seed(2)
        x.copy_(batches[0][0])
        target.copy_(batches[0][1])
        step = stepper(model)
        if i == 0:
            graph, loss = capture(step, warm=3)
        else:
            for _ in range(3):
                step()
        for new, label in batches[1:]:
            x.copy_(new)
            target.copy_(label)
            if i == 0:
                graph.replay()
            else:
                loss = step()
            losses[i].append(loss.item())
    assert losses[0] == losses[1]
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_optimizer_that_counts_on_the_host_is_refused() -> None:
    """PyTorch detects the capture by asking the stream."""
    parameter = torch.ones(3, device="xpu", requires_grad=True)
    optimizer = torch.optim.Adam([parameter])
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        assert torch.accelerator.current_stream().is_capturing()
        parameter.grad = torch.ones_like(parameter)
        with pytest.raises(RuntimeError, match="capturable is False"):
            optimizer.step()
    assert not torch.accelerator.current_stream().is_capturing()


# PyTorch warms the callables up on another stream
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_make_graphed_callables() -> None:
    """Forward and backward are two graphs each, between eager parts; both use the same dropout mask."""
    torch.manual_seed(0)
    models = [
        nn.ModuleList([Attention(32, 4, 0.2), nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.3))]).to("xpu")
    ]
    models.append(copy.deepcopy(models[0]))
    sample = torch.randn(2, 6, 32, device="xpu", requires_grad=True)
    graphed = torch.xpu.make_graphed_callables(
        tuple(models[0]), ((sample,), (sample.detach().clone().requires_grad_(),))
    )
    parts: list[tuple[nn.Module, ...]] = [graphed, tuple(models[1])]
    gradients = []
    for model, (first, second) in zip(models, parts, strict=True):
        torch.manual_seed(4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(4):
            x = torch.full((2, 6, 32), 0.1 * i + 0.3, device="xpu", requires_grad=True)
            optimizer.zero_grad()
            second(first(x).tanh()).square().sum().backward()
            optimizer.step()
            gradients.append(x.grad.clone())  # a graph's own memory
    for ours, theirs in zip(gradients[:4], gradients[4:], strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_streams_that_fork_and_join() -> None:
    x = torch.randn(300, device="xpu")
    side = torch.xpu.Stream()
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        a = x * 2
        side.wait_stream(torch.xpu.current_stream())
        with torch.xpu.stream(side):
            assert torch.xpu.is_current_stream_capturing()
            b = a.sin()
        c = a.cos()
        torch.xpu.current_stream().wait_stream(side)
        y = b + c
    for _ in range(2):
        x.copy_(torch.randn(300, device="xpu"))
        graph.replay()
        assert torch.equal(y, (x * 2).sin() + (x * 2).cos())


def test_an_unjoined_stream_is_an_error() -> None:
    graph, side, main = torch.xpu.XPUGraph(), torch.xpu.Stream(), torch.xpu.Stream()
    x = torch.ones(4, device="xpu")
    with torch.xpu.stream(main):
        graph.capture_begin()
        side.wait_stream(main)
        with torch.xpu.stream(side):
            x + 1
        with pytest.raises(RuntimeError, match="unjoined"):
            graph.capture_end()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()


def test_graphs_share_a_pool() -> None:
    def reserved() -> int:
        gc.collect()
        torch.xpu.empty_cache()
        return torch.xpu.memory_reserved()

    x = torch.randn(1 << 20, device="xpu")  # 4 MiB
    (x.exp() + 1).log()
    before = reserved()
    first, y = capture(lambda: ((x.exp() + 1).log() * 2).sum(), warm=0)
    alone = reserved() - before
    assert alone > 0
    second, z = capture(lambda: ((x.exp() + 1).log() * 3).sum(), warm=0, pool=first.pool())
    assert first.pool() == second.pool()
    assert reserved() - before == alone
    for _ in range(2):
        x.mul_(0.5)
        first.replay()
        second.replay()
        expected = (x.exp() + 1).log()
        assert torch.equal(y, (expected * 2).sum())
        assert torch.equal(z, (expected * 3).sum())
    handle = torch.xpu.graph_pool_handle()
    third, _ = capture(lambda: x + 1, warm=0, pool=handle)
    assert third.pool() == handle != first.pool()
    pool = torch.xpu.MemPool()
    fourth, _ = capture(lambda: x + 1, warm=0, pool=pool.id)
    assert fourth.pool() == pool.id not in (handle, first.pool())


def test_a_reset_gives_the_memory_back() -> None:
    gc.collect()
    x = torch.zeros(1, device="xpu")
    torch.xpu.empty_cache()
    held = torch.xpu.memory_reserved()
    graph, y = capture(lambda: (x.expand(5_000_000) + 1) * 2, warm=0)
    torch.xpu.empty_cache()
    assert torch.xpu.memory_reserved() >= held + 40_000_000
    graph.replay()
    assert y.sum() == 10_000_000
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.pool()
    del y
    torch.xpu.empty_cache()
    assert torch.xpu.memory_reserved() == held
    with torch.xpu.graph(graph):  # the graph can be captured again
        y = x + 1
    graph.replay()
    assert y == 1


X = "operation not permitted when stream is capturing"
REFUSED: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "item": (lambda x: x.sum().item(), f"{X}: .*item"),
    "bool": (lambda x: bool(x.sum() > 0), f"{X}: .*item"),
    "cpu": (lambda x: x.cpu(), X),
    "tolist": (lambda x: x.tolist(), X),
    "from the host": (lambda x: torch.ones(8).to("xpu"), X),
    "a constant": (lambda x: torch.tensor([1.0, 2.0], device="xpu"), X),
    "converted on the way": (lambda x: x.copy_(torch.ones(x.shape, dtype=torch.int32)), X),
    "synchronize": (lambda x: torch.xpu.synchronize(), f"{X}: waiting for a device"),
    "stream": (lambda x: torch.xpu.current_stream().synchronize(), f"{X}: waiting for a stream"),
    "query": (lambda x: torch.xpu.current_stream().query(), X),
    "event": (lambda x: torch.xpu.current_stream().record_event().synchronize(), "recorded during a capture"),
    "nonzero": (lambda x: x.nonzero(), f"{X}: .*nonzero"),
    "unique": (lambda x: x.unique(), X),
    "a check of results": (lambda x: torch.linalg.inv(x[:4, :4]), X),
    "fallback": (lambda x: torch.linalg.lstsq(x, x), f"{X}: aten::linalg_lstsq"),
    "seed": (lambda x: (F.dropout(x), torch.manual_seed(1)), "setting its seed"),
    "replay": (lambda x: OTHER[0].replay(), f"{X}: replaying a graph"),
    "capture": (lambda x: torch.xpu.XPUGraph().capture_begin(), "already capturing"),
}
OTHER: list[torch.xpu.XPUGraph] = []


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_refused(name: str) -> None:
    work, words = REFUSED[name]
    x = torch.rand(16, 16, device="xpu")
    OTHER[:] = [capture(lambda: x + 1, warm=0)[0]]
    graph = torch.xpu.XPUGraph()
    with pytest.raises(RuntimeError, match=words), torch.xpu.graph(graph):
        work(x)
    assert not torch.xpu.is_current_stream_capturing()
    if name == "seed":
        torch.manual_seed(0)
    # eager calls work, and so does a new capture
    assert (x + 1).sum().item() > 256
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        y = x + 1
        with pytest.raises(RuntimeError, match=words):  # and a capture that goes on in spite of it
            work(x)
        z = y * 2
    graph.replay()
    assert torch.equal(z, (x + 1) * 2)


def test_the_default_stream_is_not_captured() -> None:
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.xpu.XPUGraph().capture_begin()


def test_pinned_memory_is_captured() -> None:
    source, result = torch.zeros(100).pin_memory(), torch.zeros(100).pin_memory()
    x = torch.empty(100, device="xpu")
    graph = torch.xpu.XPUGraph()
    with torch.xpu.graph(graph):
        x.copy_(source, non_blocking=True)
        result.copy_(x * 2, non_blocking=True)
    for i in range(3):
        source.fill_(i)
        graph.replay()
        torch.xpu.synchronize()
        assert torch.equal(result, torch.full((100,), 2.0 * i))


def test_an_index_out_of_range_is_an_error_of_the_replay() -> None:
    table = torch.randn(10, 4, device="xpu")
    index = torch.tensor([1, 2, 3], device="xpu")
    graph, y = capture(lambda: F.embedding(index, table))
    graph.replay()
    assert torch.equal(y, table[1:4])
    index[1] = 10
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        graph.replay()
        torch.xpu.synchronize()
    index[1] = 9
    graph.replay()
    torch.xpu.synchronize()
    assert torch.equal(y[1], table[9])


def test_sorting_and_selecting() -> None:
    """Operators that eager calls run with PyTorch's CPU kernels on a CPU device."""
    x = torch.randn(7, 200, device="xpu")
    graph, results = capture(lambda: (*x.sort(stable=True), *x.topk(5), x.median(), *x.kthvalue(3)))
    for _ in range(3):
        x.copy_(torch.randn(7, 200, device="xpu"))
        graph.replay()
        expected = (*x.sort(stable=True), *x.topk(5), x.median(), *x.kthvalue(3))
        for ours, theirs in zip(results, expected, strict=True):
            assert torch.equal(ours, theirs)


def test_linear_algebra_and_transforms() -> None:
    """On a CPU device PyTorch's CPU kernels are part of the graph."""
    if torch.xpu.get_device_properties().type != "cpu" or os.environ.get("OPENXPU_MEMORY") == "buffer":
        pytest.skip("elsewhere they are a fallback, which is refused")
    x, b = torch.randn(3, 6, 6, device="xpu"), torch.randn(3, 6, 2, device="xpu")
    spectrum = torch.randn(4, 30, device="xpu")

    def work() -> tuple[Tensor, ...]:
        factors, pivots = torch.linalg.lu_factor_ex(x)[:2]
        return (
            *torch.linalg.inv_ex(x),
            *torch.linalg.cholesky_ex(x @ x.mT + torch.ones_like(x).tril_()),
            torch.linalg.lu_solve(factors, pivots, b),
            torch.linalg.solve_triangular(x, b, upper=True),
            *torch.linalg.qr(x.mT),
            torch.linalg.svdvals(x),
            torch.fft.fft(spectrum),
            torch.fft.ifft(spectrum[:1].expand(3, 30)),
            torch.fft.irfft(torch.fft.rfft(spectrum) * 2),
        )

    graph, results = capture(work)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        spectrum.copy_(torch.randn_like(spectrum))
        graph.replay()
        for ours, theirs in zip(results, work(), strict=True):
            assert torch.equal(ours, theirs)
            assert ours.stride() == theirs.stride()


def test_accelerator_graph() -> None:
    if not hasattr(torch.accelerator, "Graph"):
        pytest.skip("torch.accelerator.Graph is of 2.13")
    x = torch.zeros(8, device="xpu")
    first = torch.accelerator.Graph()
    with torch.Stream("xpu"), first:
        y = x + 1
    second = torch.accelerator.Graph(pool=first.pool(), keep_graph=True)
    with torch.Stream("xpu"), second:
        z = x * 3
    second.instantiate()
    assert second.pool() == first.pool()
    x.fill_(4)
    first.replay()
    second.replay()
    assert y.tolist() == [5.0] * 8
    assert z.tolist() == [12.0] * 8
    first.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        first.replay()


def test_few_pieces_are_joined_again() -> None:
    a, b = torch.ones(3, 2, device="xpu"), torch.ones(3, 5, device="xpu")
    graph, joined = capture(lambda: torch.cat((a, b, a.neg()), 1))
    for i in range(3):
        a.fill_(i)
        b.fill_(10 + i)
        graph.replay()
        assert torch.equal(joined, torch.cat((a, b, a.neg()), 1))
        assert joined[2].tolist() == [i] * 2 + [10 + i] * 5 + [-i] * 2


def test_debug_dump(tmp_path) -> None:
    graph = torch.xpu.XPUGraph(keep_graph=True)
    graph.enable_debug_mode()
    x = torch.ones(5, device="xpu")
    with torch.xpu.graph(graph):
        x.add_(1).zero_()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    assert "n0 -> n1" in text
    assert graph.raw_xpu_graph() == graph.raw_xpu_graph_exec() != 0


def test_the_profiler_sees_replays() -> None:
    x = torch.ones(5, device="xpu")
    graph, _ = capture(lambda: x.mul_(2).sin_(), warm=1)
    activities = [torch.profiler.ProfilerActivity.XPU, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        graph.replay()
        graph.replay()
    names = [event.name for event in profile.events() if event.name.startswith("sin")]
    assert len(names) == 2, names


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_compiled_kernels(fresh_compiler: None) -> None:
    x = torch.randn(40, 30, device="xpu")
    work = torch.compile(lambda: (x.sin() * 2).softmax(-1) + F.dropout(x, 0.5))
    graph, y = capture(work)
    torch.manual_seed(3)
    expected = [work() for _ in range(3)]
    torch.manual_seed(3)
    for numbers in expected:
        graph.replay()
        assert torch.equal(y, numbers)


def test_samples_and_assertions() -> None:
    """The checks of samples don't wait for the device; a failed check is an error of the replay."""
    p = torch.tensor([0.0, 1.0, 2.0, 1.0], device="xpu")
    graph, drawn = capture(lambda: torch.multinomial(p, 1, replacement=True))
    counts = torch.zeros(4)
    for _ in range(400):
        graph.replay()
        counts[drawn.item()] += 1
    assert counts[0] == 0
    assert ((counts / 400 - p.cpu() / 4).abs() < 0.12).all(), counts
    p[0] = -1
    with pytest.raises(RuntimeError, match="probability tensor contains"):
        graph.replay()
        torch.xpu.synchronize()
    graph, _ = capture(lambda: torch._assert_async((p > 0).any(), "nothing is there"))
    p.zero_()
    with pytest.raises(RuntimeError, match="nothing is there"):
        graph.replay()
        torch.xpu.synchronize()
