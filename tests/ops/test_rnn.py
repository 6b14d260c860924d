"""RNNs and their cells, against float64 on the CPU."""

from __future__ import annotations

import copy
import functools
import os

import pytest
import torch
from comparing import assert_close
from functorch.compile import make_boxed_func
from inner_run import on_cpus, passes
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd

# steps and layers after one another, each of which rounds its result
TIMES = {torch.float64: 1, torch.float32: 0.5, torch.float16: 2.5, torch.bfloat16: 2.5}
KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
}
INNER = os.environ.get("OPENXPU_POLICY") == "gpu"
ON_GPUS = pytest.mark.skipif(not INNER, reason="test_gpu_plans.py runs it")


close = functools.partial(assert_close, times=TIMES, relative_to="largest", floor=1)


def flat(result: object) -> list[Tensor]:
    """Return the tensors in a net's result."""
    if isinstance(result, nn.utils.rnn.PackedSequence):
        return [result.data]
    if isinstance(result, Tensor):
        return [result]
    return [t for part in result for t in flat(part)]  # type: ignore[attr-defined]


def states(model: nn.RNNBase, rows: int) -> list[Tensor]:
    """Return initial states in the form that the net takes."""
    count = model.num_layers * (2 if model.bidirectional else 1)
    width = model.proj_size or model.hidden_size
    given = [torch.randn(count, rows, width)]
    return given + [torch.randn(count, rows, model.hidden_size)] if isinstance(model, nn.LSTM) else given


def compare(
    model: nn.RNNBase,
    x: Tensor,
    dtype: torch.dtype,
    hx: list[Tensor] | None,
    lengths: list[int] | None = None,
) -> None:
    """Return results and all gradients, of every output at once."""
    model = model.to(dtype)
    twin, model = copy.deepcopy(model).to("xpu"), copy.deepcopy(model).double()
    results = []
    for net, device in ((twin, "xpu"), (model, "cpu")):
        kind = next(net.parameters()).dtype
        leaves = [t.to(dtype).to(device, kind).requires_grad_() for t in (x, *(hx or []))]
        given: object = leaves[0]
        if lengths is not None:
            given = nn.utils.rnn.pack_padded_sequence(
                leaves[0], torch.tensor(lengths), batch_first=net.batch_first, enforce_sorted=False
            )
        state = None if hx is None else leaves[1] if len(hx) == 1 else tuple(leaves[1:])
        out = flat(net(given, state))
        generator = torch.Generator().manual_seed(7)
        loss = torch.zeros((), dtype=kind, device=device)
        for t in out:
            weights = torch.rand(t.shape, generator=generator).to(dtype)
            loss = loss + (t * weights.to(device, kind)).sum()
        loss.backward()
        results.append((out, [t.grad for t in (*leaves, *net.parameters())]))
    for got, want in zip(results[0][0], results[1][0], strict=True):
        close(got, want, dtype=dtype)
    if dtype.itemsize == 2 and getattr(model, "nonlinearity", "") == "relu":
        return  # near 0, rounding decides whether relu passes a gradient
    for got, want in zip(results[0][1], results[1][1], strict=True):
        close(got, want, dtype=dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TIMES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_layers(kind: str, dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    model = KINDS[kind](6, 7, num_layers=2, bidirectional=True, bias=bias)
    compare(model, torch.randn(5, 3, 6), dtype, states(model, 3) if bias else None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if INNER else [torch.float32], ids=str)
@pytest.mark.parametrize(
    ("width", "rows", "features"), [(16, 1, 8), (40, 17, 16), (64, 33, 3), (72, 8, 24), (33, 5, 1)]
)
def test_sizes(kind: str, dtype: torch.dtype, width: int, rows: int, features: int) -> None:
    torch.manual_seed(1)
    model = KINDS[kind](features, width, batch_first=True)
    compare(model, torch.randn(rows, 3, features), dtype, states(model, rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("given", [True, False])
def test_packed_sequences(kind: str, dtype: torch.dtype, given: bool) -> None:
    torch.manual_seed(2)
    model = KINDS[kind](8, 16, num_layers=2, bidirectional=True, batch_first=given)
    x = torch.randn(5, 7, 8) if given else torch.randn(7, 5, 8)
    compare(model, x, dtype, states(model, 5) if given else None, [3, 7, 1, 7, 4])


@pytest.mark.parametrize("bidirectional", [True, False])
def test_projections(bidirectional: bool) -> None:
    torch.manual_seed(3)
    model = nn.LSTM(6, 10, num_layers=2, proj_size=4, bidirectional=bidirectional)
    compare(model, torch.randn(5, 3, 6), torch.float64, states(model, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_strides(kind: str) -> None:
    """Inputs, weights and states with unusual strides."""
    torch.manual_seed(4)
    model = KINDS[kind](6, 8).double()
    twin = copy.deepcopy(model).to("xpu")
    for p, q in zip(twin.parameters(), model.parameters(), strict=True):
        if p.dim() == 2:
            p.data = q.detach().t().contiguous().to("xpu").t()
    x = torch.randn(3, 6, 5).double()
    given = [t.double() for t in states(model, 3)]
    there = [t.to("xpu").transpose(1, 2).contiguous().transpose(1, 2) for t in given]
    assert not there[0].is_contiguous()
    want = flat(model(x.permute(2, 0, 1), given[0] if len(given) == 1 else tuple(given)))
    got = flat(twin(x.to("xpu").permute(2, 0, 1), there[0] if len(there) == 1 else tuple(there)))
    for a, b in zip(got, want, strict=True):
        close(a, b, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_only_last_states_have_gradients(kind: str) -> None:
    torch.manual_seed(5)
    model = KINDS[kind](4, 5).double()
    twin = copy.deepcopy(model).to("xpu")
    x = torch.randn(3, 2, 4).double()
    for which in range(len(flat(model(x)))):
        for net, device in ((model, "cpu"), (twin, "xpu")):
            net.zero_grad()
            flat(net(x.to(device)))[which].square().sum().backward()
        for p, q in zip(twin.parameters(), model.parameters(), strict=True):
            close(p.grad, q.grad, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parts_have_no_gradients(kind: str) -> None:
    torch.manual_seed(6)
    model = KINDS[kind](4, 5).double()
    twin = copy.deepcopy(model).to("xpu")
    x = torch.randn(3, 2, 4).double()
    for net, device in ((model, "cpu"), (twin, "xpu")):
        net.weight_ih_l0.requires_grad_(False)
        net.bias_hh_l0.requires_grad_(False)
        net(x.to(device))[0].square().sum().backward()
    assert twin.weight_ih_l0.grad is None
    assert twin.bias_hh_l0.grad is None
    close(twin.weight_hh_l0.grad, model.weight_hh_l0.grad, dtype=torch.float64)
    close(twin.bias_ih_l0.grad, model.bias_ih_l0.grad, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [False, True])
def test_gradients_twice(kind: str, packed: bool) -> None:
    torch.manual_seed(7)
    model = KINDS[kind](3, 4, bidirectional=True).double()
    twin = copy.deepcopy(model).to("xpu")
    x, given = torch.randn(4, 3, 3).double(), [t.double() for t in states(model, 3)]
    results = []
    for net, device in ((twin, "xpu"), (model, "cpu")):
        leaves = [t.to(device).requires_grad_() for t in (x, *given)]
        data: object = leaves[0]
        if packed:
            data = nn.utils.rnn.pack_padded_sequence(leaves[0], torch.tensor([4, 2, 1]))
        out = flat(net(data, leaves[1] if len(given) == 1 else tuple(leaves[1:])))
        of = [*leaves, *net.parameters()]
        first = torch.autograd.grad(sum(t.pow(3).sum() for t in out), of, create_graph=True)
        second = torch.autograd.grad(sum(t.pow(2).sum() for t in first), of)
        results.append([*first, *second])
    for got, want in zip(*results, strict=True):
        close(got, want, dtype=torch.float64)


def test_gradients_repeat_with_a_retained_graph() -> None:
    torch.manual_seed(8)
    model = nn.GRU(4, 5, num_layers=2).to("xpu")
    loss = model(torch.randn(3, 2, 4).to("xpu"))[0].square().sum()
    parameters = list(model.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(loss, parameters), strict=True):
        assert torch.equal(a, b)


def test_dropout_between_layers() -> None:
    model = nn.LSTM(8, 16, num_layers=2, dropout=0.5).to("xpu")
    x = torch.randn(5, 3, 8).to("xpu")
    torch.manual_seed(9)
    first = model(x)[0]
    assert not torch.equal(first, model(x)[0])
    torch.manual_seed(9)
    assert torch.equal(first, model(x)[0])
    first.sum().backward()
    twin = copy.deepcopy(model).cpu().eval()
    assert_close(model.eval()(x)[0], twin(x.cpu())[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients(kind: str) -> None:
    model = KINDS[kind](8, 16, num_layers=2, bidirectional=True)
    twin = copy.deepcopy(model).to("xpu").eval()
    x = torch.randn(5, 3, 8)
    want = flat(model(x))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for got, reference in zip(flat(twin(x.to("xpu"))), want, strict=True):
                assert not got.requires_grad
                close(got, reference, dtype=torch.float32)


def test_a_sequence_without_batch_and_autocast() -> None:
    model = nn.LSTM(8, 16)
    twin = copy.deepcopy(model).to("xpu")
    x = torch.randn(5, 8)
    close(twin(x.to("xpu"))[0], model(x)[0], dtype=torch.float32)
    with torch.autocast("xpu", torch.bfloat16):
        out, (hy, cy) = twin(x.to("xpu"))
    assert out.dtype == hy.dtype == cy.dtype == torch.bfloat16
    assert_close(out, model(x)[0], dtype=torch.bfloat16, atol=2e-2)
    out.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in twin.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing(kind: str) -> None:
    """Empty inputs give the same result as on the CPU."""
    model = KINDS[kind](4, 5)
    twin = copy.deepcopy(model).to("xpu")
    for shape in ((3, 0, 4), (0, 2, 4)):
        x = torch.zeros(shape)
        try:
            want = flat(model(x))
        except RuntimeError:
            with pytest.raises(RuntimeError):
                twin(x.to("xpu"))
            continue
        for a, b in zip(flat(twin(x.to("xpu"))), want, strict=True):
            assert a.shape == b.shape


def test_errors() -> None:
    model = nn.LSTM(4, 5).to("xpu")
    x = torch.randn(3, 2, 4, device="xpu")
    for bad in (lambda: model(x.double()), lambda: model(x[..., :3]), lambda: model(x.cpu())):
        with pytest.raises((RuntimeError, ValueError)):
            bad()


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_and_forward_gradients(kind: str) -> None:
    torch.manual_seed(10)
    model = KINDS[kind](3, 4).double()
    twin = copy.deepcopy(model).to("xpu")
    x = torch.randn(3, 2, 3).double()

    def loss(net: nn.Module, given: Tensor) -> Tensor:
        return net(given)[0].square().sum()

    close(
        torch.func.grad(lambda t: loss(twin, t))(x.to("xpu")),
        torch.func.grad(lambda t: loss(model, t))(x),
    )
    if kind in ("lstm", "gru"):
        return  # PyTorch's fused cells have no forward-mode gradient
    tangent = torch.randn_like(x)
    got = torch.func.jvp(lambda t: loss(twin, t), (x.to("xpu"),), (tangent.to("xpu"),))
    want = torch.func.jvp(lambda t: loss(model, t), (x,), (tangent,))
    close(got[1], want[1], dtype=torch.float64)


@ON_GPUS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(kind: str, dynamic: bool) -> None:
    """A traced net contains operators of whole layers, forward and backward."""
    torch._dynamo.reset()
    model = KINDS[kind](4, 8, num_layers=2).to("xpu")
    names: list[str] = []

    def note(graph: torch.fx.GraphModule, _: object) -> object:
        names.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph)

    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=note), dynamic=dynamic, fullgraph=True)
    for rows in (2, 3):
        x = torch.randn(5, rows, 4).to("xpu")
        with torch._dynamo.config.patch(allow_rnn=True):
            got = compiled(x)[0]
        want = model(x)[0]
        assert_close(got, want.cpu(), rtol=1e-5, atol=1e-6)
        got = torch.autograd.grad(got.square().sum(), list(model.parameters()))
        want = torch.autograd.grad(want.square().sum(), list(model.parameters()))
        for a, b in zip(got, want, strict=True):
            assert_close(a, b.cpu(), rtol=1e-5, atol=1e-5)
    assert "openxpu.rnn_layer.default" in names
    assert "openxpu.rnn_layer_backward.default" in names


@ON_GPUS
def test_a_layer_is_one_operator() -> None:
    model = nn.LSTM(8, 16, num_layers=2).to("xpu")
    x = torch.randn(6, 3, 8).to("xpu")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(x)[0].sum().backward()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["openxpu::rnn_layer"] == counts["openxpu::rnn_layer_backward"] == 2
    assert "aten::_thnn_fused_lstm_cell" not in counts


@on_cpus
@pytest.mark.skipif(INNER, reason="this is the inner run")
def test_matrix_units() -> None:
    """Whole sequences on emulated tensor cores; test_gpu_plans.py tests those without an engine."""
    some = "test_sizes and bfloat16 or packed and float16"
    passes({__file__: some}, OPENXPU_POLICY="gpu", OPENXPU_MATRIX="ptx")


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells(kind: type[nn.RNNCellBase]) -> None:
    cell = kind(4, 5)
    twin = copy.deepcopy(cell).to("xpu")
    x = torch.randn(3, 4)
    for got, want in zip(flat(twin(x.to("xpu"))), flat(cell(x)), strict=True):
        assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_only_cell_state_has_gradient() -> None:
    cell = nn.LSTMCell(4, 5)
    twin = copy.deepcopy(cell).to("xpu")
    x = torch.randn(3, 4)
    twin(x.to("xpu"))[1].square().sum().backward()
    cell(x)[1].square().sum().backward()
    for p, q in zip(twin.parameters(), cell.parameters(), strict=True):
        assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-5)
