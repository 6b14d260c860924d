"""One case of every family of operators, class of dtypes and stage of the compiler: what `make check` runs.

The reference is PyTorch's CPU device in float64 (complex128), so that a fault of one device is not shared. The folders
beside this one test each family in depth.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from torch import Tensor

FLOAT, HALF, COMPLEX, INTEGER, BOOL = torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool
TIMES = {torch.float16: 0.75}


def some(*shape: int, dtype: torch.dtype = FLOAT, seed: int = 0, low: int = -9, high: int = 9) -> Tensor:
    """Return random values: of a normal distribution, or integers from ``low`` to ``high``."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def index(*shape: int, below: int, seed: int = 1) -> Tensor:
    return some(*shape, dtype=INTEGER, seed=seed, low=0, high=below)


def positive_definite(n: int) -> Tensor:
    x = some(n, n)
    return x @ x.T + n * torch.eye(n)


Case = tuple[Callable[..., object], tuple[object, ...]]
CASES: dict[str, Case] = {
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (some(2, 4, 65, 32), some(2, 4, 65, 32, seed=1), some(2, 4, 65, 32, seed=2)),
    ),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), (some(7, 5), some(7, 3))),
    "conv": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (some(2, 5, 11, 9), some(6, 5, 3, 3), some(6))),
    "conv_backward": (
        lambda x, w: torch.ops.aten.convolution_backward(
            F.conv2d(x, w), x, w, [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        (some(2, 5, 11, 9), some(6, 5, 3, 3)),
    ),
    "copy": (lambda x: x.transpose(0, 2).contiguous().flip(1), (some(17, 33, 5),)),
    "ctc": (
        lambda x, t: F.ctc_loss(x.log_softmax(2), t, (12, 12), (4, 3)),
        (some(12, 2, 6), index(2, 4, below=5) + 1),
    ),
    "distance": (lambda x, y: torch.cdist(x, y, 3.0), (some(13, 7), some(9, 7))),
    "embedding": (lambda w, i: F.embedding_bag(i, w, mode="sum"), (some(40, 24), index(6, 9, below=40))),
    "embedding_backward": (
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 40, -1, False),
        (some(54, 24), index(54, below=40)),
    ),
    "factory": (
        lambda x: torch.arange(0, 50, 3, device=x.device) + torch.eye(17, device=x.device),
        (some(1),),
    ),
    "fft": (lambda x: torch.fft.rfft2(x), (some(3, 12, 30),)),
    "foreach": (
        lambda x, y: torch._foreach_addcmul([x, y], [y, x], [x, x], 0.5),
        (some(50), some(50, seed=3)),
    ),
    "gemm": (lambda x, y, b: torch.addmm(b, x, y, beta=0.5), (some(70, 40), some(40, 33), some(33))),
    "gemv": (lambda x, y: x @ y, (some(128, 300), some(300))),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
        (some(2, 3, 9, 8), some(2, 5, 6, 2)),
    ),
    "histogram": (lambda x: torch.histc(x, 20, -2, 2), (some(3000),)),
    "index": (lambda x, i: x[i, :, i], (some(20, 6, 20), index(31, below=20))),
    "index_put": (
        lambda x, i, v: x.clone().index_put_((i,), v, accumulate=True),
        (some(20, 6), index(300, below=20), some(300, 6)),
    ),
    "linalg_cholesky": (torch.linalg.cholesky, (positive_definite(37),)),
    "linalg_solve": (torch.linalg.solve, (positive_definite(37), some(37, 3))),
    "loss": (F.cross_entropy, (some(30, 17), index(30, below=17))),
    "margin": (F.multi_margin_loss, (some(30, 17), index(30, below=17))),
    "nonzero": (lambda x: torch.nonzero(x > 0.5), (some(40, 31),)),
    "norm_batch": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (some(6, 10, 7, 5), some(10), some(10, seed=4)),
    ),
    "norm_group": (lambda x, w: F.group_norm(x, 5, w), (some(6, 10, 7, 5), some(10))),
    "norm_layer": (lambda x, w, b: F.layer_norm(x, (50,), w, b), (some(33, 50), some(50), some(50, seed=4))),
    "pointwise": (lambda x, y: torch.lerp(x.sin(), y.exp(), 0.3) / (1 + x * x), (some(33, 65), some(65))),
    "pool": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (some(2, 5, 13, 11),)),
    "reduce": (lambda x: (x.sum(0), x.amax(1), x.var(1), x.argmax()), (some(70, 90),)),
    "resample": (
        lambda x: F.interpolate(x, (13, 7), mode="bicubic", antialias=True, align_corners=False),
        (some(2, 3, 9, 12),),
    ),
    "scan": (lambda x: (x.cumsum(1), x.logcumsumexp(0), x.cummax(1)), (some(70, 90),)),
    "scatter": (
        lambda x, i, v: (x.scatter_add(0, i, v), x.scatter_reduce(0, i, v, "amax")),
        (some(9, 30), index(50, 30, below=9), some(50, 30)),
    ),
    "search": (
        lambda x, v: torch.searchsorted(x.sort().values, v),
        (some(5, 60), some(5, 20)),
    ),
    "segment": (
        lambda x, n: torch.segment_reduce(x, "mean", lengths=n),
        (some(30, 4), torch.tensor([4, 0, 10, 16])),
    ),
    "select": (lambda x: torch.topk(x, 7), (some(20, 3000),)),
    "softmax": (lambda x: (x.softmax(1), x.log_softmax(0)), (some(33, 129),)),
    "sort": (lambda x: torch.sort(x, stable=True), (some(9, 2000, dtype=INTEGER),)),
    "sparse": (lambda x, y: torch.sparse.mm(x.to_sparse_csr(), y), ((some(20, 30) > 1).float(), some(30, 8))),
    "triangular": (lambda x: x.tril(-1) + x.triu(2), (some(4, 17, 19),)),
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (index(500, below=60),)),
}
DTYPES: dict[str, Case] = {
    "bool": (lambda x, y: (x & ~y, x.any(0), y.sum()), (some(40, 9) > 0, some(40, 9, seed=5) > 0)),
    "int8": (
        lambda x, y: (x * y, x.sum(1), x // 3),
        (some(40, 9, dtype=torch.int8), some(9, dtype=torch.int8)),
    ),
    "uint8": (lambda x: (x + 250, x.amax(0)), (some(40, 9, dtype=torch.uint8, low=0),)),
    "int32": (lambda x: (x << 3, x.prod(1)), (some(40, 5, dtype=torch.int32),)),
    "int64": (lambda x: (x * (1 << 40), x.cumsum(0)), (some(40, 5, dtype=INTEGER),)),
    "float16": (lambda x, y: x @ y + x.sum(), (some(40, 40, dtype=torch.float16), some(40, 40).half())),
    "bfloat16": (lambda x, y: (x @ y).relu(), (some(40, 40, dtype=HALF), some(40, 40, dtype=HALF, seed=6))),
    "float64": (lambda x: (x.exp(), x.sum(0)), (some(40, 9, dtype=torch.float64),)),
    "complex64": (lambda x: (x.exp() * x.conj(), x.abs().sum(0)), (some(40, 9, dtype=COMPLEX),)),
    "float8": (
        lambda x: x.to(torch.float8_e4m3fn).float(),
        (some(40, 9),),
    ),
}


def wide(value: object) -> object:
    """Return a tensor in the widest type of its class; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    return value.to(torch.complex128 if value.is_complex() else torch.float64) if is_inexact(value) else value


def is_inexact(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def compare(function: Callable[..., object], inputs: tuple[object, ...], exact: bool = False) -> None:
    """Run on xpu and, in float64, on the CPU."""
    tensors = [x.to("xpu") if isinstance(x, Tensor) else x for x in inputs]
    results = torch.utils._pytree.tree_leaves(function(*tensors))
    wanted = torch.utils._pytree.tree_leaves(function(*(inputs if exact else map(wide, inputs))))
    assert len(results) == len(wanted)
    for ours, theirs in zip(results, wanted, strict=True):
        options = {"rtol": 0.0} if exact else {"times": TIMES, "relative_to": "largest"}
        assert_close(ours, theirs, dtype=ours.dtype, equal_nan=True, **options)


@pytest.mark.parametrize("family", CASES)
def test_family(family: str) -> None:
    compare(*CASES[family])


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype(dtype: str) -> None:
    compare(*DTYPES[dtype], exact=dtype == "float8")


@pytest.mark.parametrize("mode", ["dropout", "uniform", "normal"])
def test_random_numbers_repeat(mode: str) -> None:
    draw = {
        "dropout": lambda: F.dropout(torch.ones(1000, device="xpu"), 0.3),
        "uniform": lambda: torch.rand(1000, device="xpu"),
        "normal": lambda: torch.randn(1000, device="xpu"),
    }[mode]
    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.manual_seed(3)
    assert torch.equal(draw(), first)
    assert not torch.equal(first, second)
    mean = {"dropout": 1.0, "uniform": 0.5, "normal": 0.0}[mode]
    assert abs(float(first.mean()) - mean) < 0.15


def test_training_step() -> None:
    """Autograd, an optimizer and autocast in one."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    ours = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to("xpu")
    ours.load_state_dict(model.state_dict())
    x, y = some(20, 16), some(20, 4, seed=7)
    losses = []
    for device, net in (("cpu", model), ("xpu", ours)):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    with torch.autocast("xpu", torch.bfloat16):
        assert ours(x.to("xpu")).dtype == torch.bfloat16


COMPILED: dict[str, Case] = {
    "pointwise": (lambda x, y: (x * y).sigmoid() + y, (some(50, 30), some(50, 30, seed=8))),
    "reduction": (lambda x: (x.softmax(1) * x).sum(0), (some(50, 300),)),
    "product": (lambda x, y: (x @ y).relu() + 1, (some(48, 32), some(32, 64))),
    "scan": (lambda x: x.cumsum(1) * 2, (some(20, 300),)),
    "indirect": (lambda x, i: x[i] * 2, (some(50, 30), index(20, below=50))),
}


@pytest.mark.parametrize("stage", COMPILED)
def test_compiled(stage: str) -> None:
    function, inputs = COMPILED[stage]
    compare(torch.compile(function), inputs)


def test_errors_name_the_operator_and_shapes() -> None:
    with pytest.raises(RuntimeError, match="(?s)mat1 and mat2.*3x4.*5x6"):
        torch.ones(3, 4, device="xpu") @ torch.ones(5, 6, device="xpu")
    with pytest.raises(IndexError):
        torch.ones(3, device="xpu")[torch.tensor([5], device="xpu")].sum().item()
