"""Calls of the op library for the miscompilation search: samples, views of them, rows of all widths."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.testing import make_tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 4  # per operator and dtype, out of its first MOST
MOST = 100
LARGEST = 50_000  # elements per sample
WIDTHS = range(1, 68)
# Around the sizes of tiles, of a work-group's registers and of its shares of the work.
EDGES = (100, 127, 128, 129, 250, 256, 257, 513, 1000, 1024, 1025, 2050, 4100)
ROWS = 3
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ALL = (*FLOATS, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
       torch.complex64, torch.complex128)  # fmt: skip
# These return uninitialized memory, or alias their arguments.
UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
             "resize_", "resize_as_"}  # fmt: skip


class Call(NamedTuple):
    """A function and its arguments, on the CPU; gradients are computed for arguments that require them."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Unit(NamedTuple):
    """An operator, or a name in ``SHAPED``, with a dtype."""

    name: str
    dtype: torch.dtype
    info: Any


def random(dtype: torch.dtype, *shape: int, **limits: Any) -> torch.Tensor:
    """Make a tensor of small values, so that sums stay accurate and products do not overflow."""
    if not limits and dtype != torch.bool:
        limits = {"low": 0 if dtype == torch.uint8 else -4, "high": 5}
    return make_tensor(shape, dtype=dtype, device="cpu", **limits)


def moved(value: Any, place: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return ``value`` with ``place`` applied to its tensors."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return place(leaf)
        return leaf

    return tree_map(move, value)


def stepped(x: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into a layout with stride 2 in the last dimension and storage offset 1."""
    if not x.dim() or x.layout != torch.strided:
        return x
    base = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 1, dtype=x.dtype)
    return base[..., 1::2].copy_(x.detach()).requires_grad_(x.requires_grad)


def turned(x: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into a layout with reversed dimension order and storage offset 3."""
    if not x.dim() or x.layout != torch.strided:
        return x
    base = torch.zeros(x.numel() + 3, dtype=x.dtype)[3:].view(list(reversed(x.shape)))
    return base.permute(*reversed(range(x.dim()))).copy_(x.detach()).requires_grad_(x.requires_grad)


def pointwise(info: Any, dtype: torch.dtype, n: int) -> Call:
    """Call an element-wise operator on rows of n elements."""
    if isinstance(info, UnaryUfuncInfo):
        low, high = info.domain
        return Call("row", info.op, (random(dtype, ROWS, n, low=low, high=high),), {})
    others = [(ROWS, n), (n,), (ROWS, 1)][n % 3]
    a = make_tensor((ROWS, n), dtype=dtype, device="cpu", **info.lhs_make_tensor_kwargs)
    b = make_tensor(others, dtype=dtype, device="cpu", **info.rhs_make_tensor_kwargs)
    return Call("row", info.op, (a, b), {})


def reduction(info: Any, dtype: torch.dtype, n: int) -> Call:
    """Reduce rows, columns, or all elements."""
    x = random(dtype, 5, n)
    return Call("row", info.op, (x,), [{"dim": -1}, {"dim": 0}, {}][n % 3])


def places(n: int, *shape: int) -> torch.Tensor:
    """Make random indices below n."""
    return torch.randint(n, shape)


def recurrent(function: Callable[..., Any], gates: int) -> Callable[[torch.dtype, int], tuple[Any, ...]]:
    """Call a recurrent layer of hidden size n on 4 steps of batch 2."""

    def arguments(t: torch.dtype, n: int) -> tuple[Any, ...]:
        def run(x: torch.Tensor, *rest: torch.Tensor) -> Any:
            first, weights = rest[: gates // 2], rest[gates // 2 :]
            state = first if len(first) > 1 else first[0]
            return function(x, state, weights, True, 1, 0.0, False, False, False)

        sizes = (gates * n, 5), (gates * n, n), (gates * n,), (gates * n,)
        states = [random(t, 1, 2, n, low=-1, high=1) for _ in range(gates // 2)]
        return run, random(t, 4, 2, 5), *states, *(random(t, *size, low=-1, high=1) for size in sizes)

    return arguments


def trained(
    kind: type[torch.optim.Optimizer], **options: Any
) -> Callable[[torch.dtype, int], tuple[Any, ...]]:
    """Take two optimizer steps on three tensors."""

    def arguments(t: torch.dtype, n: int) -> tuple[Any, ...]:
        def train(*tensors: torch.Tensor) -> list[torch.Tensor]:
            values = [x.clone() for x in tensors[:3]]
            optimizer = kind(values, lr=0.1, **options)
            for _ in range(2):
                for value, gradient in zip(values, tensors[3:], strict=True):
                    value.grad = gradient.clone()
                optimizer.step()
            return values

        return train, *(random(t, *shape) for shape in ((n,), (ROWS, n), (2 * n + 1,)) * 2)

    return arguments


# --- any shape; n is a seed ---


def convolution(t: torch.dtype, n: int) -> tuple[Any, ...]:
    """Run a 1- to 3-D convolution or its transpose, with random strides, groups and memory format."""
    pick = Random(n)
    dims, groups = pick.choice((1, 2, 2, 3)), pick.choice((1, 1, 2, 3))
    each, out = pick.choice((1, 2, 5, 16, 33)), groups * pick.choice((1, 3, 8, 17, 40))
    window, size = pick.choice((1, 2, 3)), ((70,), (19, 11), (7, 5, 6))[dims - 1]
    options = {
        "stride": pick.choice((1, 1, 2)),
        "padding": pick.choice((0, 1)),
        "dilation": pick.choice((1, 1, 2)),
        "groups": groups,
    }
    back = pick.random() < 0.3
    names = (
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
        if back
        else ("conv1d", "conv2d", "conv3d")
    )
    x = random(t, pick.choice((1, 2)), groups * each, *size)
    if dims == 2 and pick.random() < 0.5:
        x = x.to(memory_format=torch.channels_last)
    w = random(t, *((groups * each, out // groups) if back else (out, each)), *(window,) * dims)
    return lambda x, w, b: getattr(F, names[dims - 1])(x, w, b, **options), x, w, random(t, out)


def product(t: torch.dtype, n: int) -> tuple[Any, ...]:
    """Multiply matrices of random sizes and layouts, with or without a bias."""
    pick = Random(n)
    rows, depth, columns = (pick.choice((1, 2, 4, 7, 16, 31, 33, 64, 65, 100, 130)) for _ in range(3))
    batch = pick.choice((1, 1, 3))
    a = random(t, batch, depth, rows).mT if pick.random() < 0.5 else random(t, batch, rows, depth)
    b = random(t, batch, columns, depth).mT if pick.random() < 0.5 else random(t, batch, depth, columns)
    if batch == 1 and pick.random() < 0.7:
        return lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), random(t, columns), a[0], b[0]
    return torch.bmm, a, b


def attention(t: torch.dtype, n: int) -> tuple[Any, ...]:
    """Run attention, with or without a bias, a mask or causality."""
    pick = Random(n)
    queries, keys = (pick.choice((1, 5, 16, 63, 64, 65, 100, 130)) for _ in range(2))
    depth, wide = pick.choice(((8, 8), (17, 30), (40, 9)))  # rounded up to 16, three kernels
    bias = [
        None,
        random(t, 1, 1, queries, keys),
        random(torch.bool, 2, 1, 1, keys) | (torch.arange(keys) == 0),
    ][n % 3]
    function = partial(F.scaled_dot_product_attention, is_causal=bias is None and pick.random() < 0.5)
    sizes = (2, 3, queries, depth), (2, 3, keys, depth), (2, 3, keys, wide)
    return function, *(random(t, *size) for size in sizes), bias


def pool(t: torch.dtype, n: int) -> tuple[Any, ...]:
    """Pool or resample an image, in either memory format."""
    pick = Random(n)
    x = random(t, 2, pick.choice((1, 3, 16, 35)), pick.choice((5, 8, 17)), pick.choice((6, 7, 33)))
    if pick.random() < 0.5:
        x = x.to(memory_format=torch.channels_last)
    size, mode = (
        (pick.choice((1, 4, 9, 20)), pick.choice((3, 8, 40))),
        pick.choice(("nearest", "bilinear", "bicubic", "area")),
    )
    window, step, pad = pick.choice((2, 3)), pick.choice((1, 2)), pick.choice((0, 1))
    functions = [
        lambda x: F.max_pool2d(x, window, step, pad),
        lambda x: F.avg_pool2d(x, window, step, pad, count_include_pad=step == 1),
        lambda x: F.adaptive_max_pool2d(x, size),
        lambda x: F.adaptive_avg_pool2d(x, size),
        lambda x: F.interpolate(x, size, mode=mode),
        lambda x: F.pad(x, (pad, 2, 1, pad), ("reflect", "replicate", "circular")[step]),
    ]
    return functions[n % len(functions)], x


# Functions by width, with their arguments. Everything before the tensors depends only on the width.
SHAPED: dict[str, tuple[tuple[torch.dtype, ...], Callable[[torch.dtype, int], tuple[Any, ...]]]] = {
    "softmax": (FLOATS, lambda t, n: (lambda x: F.softmax(x, n % 2), random(t, ROWS, n))),
    "log_softmax": (FLOATS, lambda t, n: (lambda x: F.log_softmax(x, n % 2), random(t, ROWS, n))),
    "cumsum": (ALL, lambda t, n: (lambda x: x.cumsum(n % 2), random(t, ROWS, n))),
    "cumprod": (ALL, lambda t, n: (lambda x: x.cumprod(-1), random(t, ROWS, n, low=1, high=3))),
    "cummax": (ALL[:10], lambda t, n: (lambda x: x.cummax(n % 2), random(t, ROWS, n))),
    "logcumsumexp": (FLOATS, lambda t, n: (lambda x: x.logcumsumexp(-1), random(t, ROWS, n))),
    "logsumexp": (FLOATS, lambda t, n: (lambda x: x.logsumexp(n % 2), random(t, ROWS, n))),
    "sort": (
        ALL[:10],
        lambda t, n: (lambda x: x.sort(-1, descending=n % 2 == 0, stable=True), random(t, ROWS, n)),
    ),
    "topk": (ALL[:9], lambda t, n: (lambda x: x.topk((n + 1) // 2, -1)[0], random(t, ROWS, n))),
    "kthvalue": (ALL[:9], lambda t, n: (lambda x: x.kthvalue((n + 1) // 2, -1)[0], random(t, ROWS, n))),
    "median": (ALL[:9], lambda t, n: (lambda x: x.median(-1)[0], random(t, ROWS, n))),
    "mode": (ALL[:9], lambda t, n: (lambda x: x.mode(-1)[0], random(t, ROWS, n))),
    "unique": (
        ALL[:10],
        lambda t, n: (lambda x: x.unique(return_inverse=True, return_counts=True), random(t, ROWS, n)),
    ),
    "flip": (ALL, lambda t, n: (lambda x: x.flip(-1), random(t, ROWS, n))),
    "roll": (ALL, lambda t, n: (lambda x: x.roll(n // 2, -1), random(t, ROWS, n))),
    "tril": (ALL, lambda t, n: (lambda x: x.tril(n // 2), random(t, ROWS, 9, n))),
    "cat": (
        ALL,
        lambda t, n: (
            lambda x, y, z: torch.cat((x, y, z), -1),
            random(t, ROWS, n),
            random(t, ROWS, 1),
            random(t, ROWS, n + 3),
        ),
    ),
    "stack": (
        ALL,
        lambda t, n: (lambda x, y: torch.stack((x, y), -1), random(t, ROWS, n), random(t, ROWS, n)),
    ),
    "pad": (ALL[:9], lambda t, n: (lambda x: F.pad(x, (1, n % 5)), random(t, ROWS, n))),
    "copy": (
        ALL,
        lambda t, n: (
            lambda x: (x.t().contiguous(), x[:, ::2].clone(), x.float(), x.short(), x.bool()),
            random(t, ROWS, n),
        ),
    ),
    "where": (ALL, lambda t, n: (torch.where, random(torch.bool, ROWS, n), random(t, ROWS, n), random(t, n))),
    "masked": (
        ALL,
        lambda t, n: (
            lambda x, m: (x.masked_fill(m, 1), x.masked_select(m), m.nonzero()),
            random(t, ROWS, n),
            random(torch.bool, ROWS, n),
        ),
    ),
    "layer_norm": (
        FLOATS,
        lambda t, n: (
            lambda x, w, b: F.layer_norm(x, (n,), w, b),
            random(t, ROWS, n),
            random(t, n),
            random(t, n),
        ),
    ),
    "rms_norm": (
        FLOATS,
        lambda t, n: (lambda x, w: F.rms_norm(x, (n,), w), random(t, ROWS, n), random(t, n)),
    ),
    "batch_norm": (
        FLOATS,
        lambda t, n: (
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
            random(t, 4, ROWS, n),
            random(t, ROWS),
            random(t, ROWS),
        ),
    ),
    "group_norm": (
        FLOATS,
        lambda t, n: (
            lambda x, w, b: F.group_norm(x, 2, w, b),
            random(t, 2, 4, n),
            random(t, 4),
            random(t, 4),
        ),
    ),
    "channels_last_norm": (
        FLOATS,
        lambda t, n: (
            lambda x: F.batch_norm(x.to(memory_format=torch.channels_last), None, None, training=True),
            random(t, 2, n, 3, 2),
        ),
    ),
    "norm": (
        FLOATS,
        lambda t, n: (
            lambda x: torch.linalg.vector_norm(x, (2, 1, math.inf, 3.5)[n % 4], -1),
            random(t, ROWS, n),
        ),
    ),
    "var_mean": (FLOATS, lambda t, n: (lambda x: torch.var_mean(x, n % 2), random(t, 4, n))),
    "mm": (ALL[:9], lambda t, n: (torch.mm, random(t, 7, n), random(t, n, 19))),
    "tiles": (
        ALL[:9],
        lambda t, n: (
            (lambda a, b: a @ b.t()) if n % 2 else torch.mm,
            *(
                (random(t, (33, 65, 130)[n % 3], 40), random(t, n, 40))
                if n % 2
                else (random(t, 40, n).t(), random(t, 40, (33, 65, 130)[n % 3]))
            ),
        ),
    ),
    "thin": (FLOATS, lambda t, n: (lambda a, b: a @ b.t(), random(t, 1 + n % 4, 70), random(t, n, 70))),
    "mm_out": (
        ALL[:9],
        lambda t, n: (
            lambda a, b, c: torch.addmm(a, b, c.t()),
            random(t, n),
            random(t, 17, 9),
            random(t, n, 9),
        ),
    ),
    "bmm": (ALL[:9], lambda t, n: (torch.bmm, random(t, 2, n, 5), random(t, 2, 5, n))),
    "mv": (ALL[:9], lambda t, n: (torch.mv, random(t, 5, n), random(t, n))),
    "linear": (FLOATS, lambda t, n: (F.linear, random(t, 5, n), random(t, 6, n), random(t, 6))),
    "conv1d": (
        FLOATS,
        lambda t, n: (
            lambda x, w: F.conv1d(x, w, padding=1, stride=1 + n % 2),
            random(t, 2, 3, n),
            random(t, 4, 3, 3),
        ),
    ),
    "conv2d": (
        FLOATS,
        lambda t, n: (
            lambda x, w, b: F.conv2d(x, w, b, padding=1),
            random(t, 1, n, 5, 4),
            random(t, 3, n, 3, 3),
            random(t, 3),
        ),
    ),
    "depthwise": (
        FLOATS,
        lambda t, n: (
            lambda x, w: F.conv2d(x, w, padding=1, groups=3),
            random(t, 1, 3, 4, n),
            random(t, 3, 1, 3, 3),
        ),
    ),
    "conv_transpose": (
        FLOATS,
        lambda t, n: (
            lambda x, w: F.conv_transpose1d(x, w, stride=2),
            random(t, 2, 3, n),
            random(t, 3, 4, 3),
        ),
    ),
    "max_pool": (FLOATS, lambda t, n: (lambda x: F.max_pool2d(x, 2, 1, 1), random(t, 1, 2, 4, n))),
    "avg_pool": (FLOATS, lambda t, n: (lambda x: F.avg_pool2d(x, 3, 2, 1), random(t, 1, 2, 4, n))),
    "adaptive_pool": (
        FLOATS,
        lambda t, n: (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), random(t, 1, 2, 4, n)),
    ),
    "interpolate": (
        FLOATS,
        lambda t, n: (
            lambda x: F.interpolate(x, scale_factor=1.5, mode=("nearest", "bilinear", "bicubic")[n % 3]),
            random(t, 1, 2, 3, n),
        ),
    ),
    "grid_sample": (
        FLOATS,
        lambda t, n: (
            lambda x, g: F.grid_sample(x, g, ("bilinear", "nearest", "bicubic")[n % 3], align_corners=False),
            random(t, 1, 2, 4, 5),
            random(t, 1, 2, n, 2, low=-1.2, high=1.2),
        ),
    ),
    "attention": (
        FLOATS,
        lambda t, n: (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=n % 2 == 0),
            *(random(t, 1, 2, n, 8) for _ in range(3)),
        ),
    ),
    "any attention": (FLOATS, attention),
    "any convolution": (FLOATS, convolution),
    "any product": (ALL[:9], product),
    "any pool": (FLOATS, pool),
    "attention_heads": (
        FLOATS,
        lambda t, n: (F.scaled_dot_product_attention, *(random(t, 1, 2, 5, n) for _ in range(3))),
    ),
    "embedding": (FLOATS, lambda t, n: (F.embedding, places(6, ROWS, 4), random(t, 6, n))),
    "embedding_bag": (
        FLOATS,
        lambda t, n: (
            lambda i, w: F.embedding_bag(i, w, mode=("sum", "mean", "max")[n % 3]),
            places(6, ROWS, 4),
            random(t, 6, n),
        ),
    ),
    "index_select": (
        ALL,
        lambda t, n: (lambda x, i: x.index_select(n % 2, i), random(t, 5, n), places(min(5, n), n)),
    ),
    "index": (ALL, lambda t, n: (lambda x, i, j: x[i, j], random(t, 5, n), places(5, n), places(n, n))),
    "index_put": (
        ALL,
        lambda t, n: (
            lambda x, i, v: x.index_put((i,), v),
            random(t, n, 5),
            torch.randperm(n),
            random(t, n, 5),
        ),
    ),
    "index_put_sum": (
        ALL[:9],
        lambda t, n: (
            lambda x, i, v: x.index_put((i,), v, accumulate=True),
            random(t, 5, n),
            places(5, 9),
            random(t, 9, n),
        ),
    ),
    "index_add": (
        ALL[:9],
        lambda t, n: (lambda x, i, v: x.index_add(0, i, v), random(t, 5, n), places(5, 9), random(t, 9, n)),
    ),
    "gather": (ALL, lambda t, n: (lambda x, i: x.gather(-1, i), random(t, ROWS, n), places(n, ROWS, n))),
    "scatter_add": (
        ALL[:9],
        lambda t, n: (
            lambda x, i, v: x.scatter_add(-1, i, v),
            random(t, ROWS, n),
            places(n, ROWS, n),
            random(t, ROWS, n),
        ),
    ),
    "scatter_reduce": (
        ALL[:9],
        lambda t, n: (
            lambda x, i, v: x.scatter_reduce(-1, i, v, ("amax", "amin", "prod")[n % 3]),
            random(t, ROWS, n),
            places(n, ROWS, n),
            random(t, ROWS, n),
        ),
    ),
    "cross_entropy": (FLOATS, lambda t, n: (F.cross_entropy, random(t, 5, n), places(n, 5))),
    "losses": (
        FLOATS,
        lambda t, n: (
            lambda x, y: (
                F.mse_loss(x, y),
                F.smooth_l1_loss(x, y, reduction="sum"),
                F.huber_loss(x, y),
                F.binary_cross_entropy_with_logits(x, y),
            ),
            random(t, ROWS, n),
            random(t, ROWS, n),
        ),
    ),
    "histogram": (
        FLOATS[:2],
        lambda t, n: (
            lambda x: (x.histc(7, -4, 4), torch.bucketize(x, x.flatten().sort()[0])),
            random(t, ROWS, n),
        ),
    ),
    "bincount": (ALL[4:9], lambda t, n: (torch.bincount, random(t, n, low=0, high=9))),
    "searchsorted": (
        ALL[:9],
        lambda t, n: (
            lambda x, y: torch.searchsorted(x.sort(-1)[0], y),
            random(t, ROWS, n),
            random(t, ROWS, 5),
        ),
    ),
    "random": (
        FLOATS,
        lambda t, n: (
            lambda x: (
                torch.rand_like(x),
                torch.randn_like(x),
                torch.bernoulli(x.abs() / 8),
                F.dropout(x, 0.3),
                torch.empty_like(x).exponential_(),
            ),
            random(t, ROWS, n),
        ),
    ),
    "random_integers": (
        ALL[4:9],
        lambda t, n: (
            lambda x: (
                torch.randint_like(x, 9),
                torch.empty_like(x).random_(),
                torch.randperm(n, device=x.device),
            ),
            random(t, ROWS, n),
        ),
    ),
    "foreach": (
        FLOATS,
        lambda t, n: (
            lambda *x: (
                *torch._foreach_mul(x, 2),
                *torch._foreach_add(x[:2], x[1:], alpha=3),
                *torch._foreach_norm(x),
                *torch._foreach_sqrt(torch._foreach_abs(x)),
            ),
            *(random(t, n) for _ in range(3)),
        ),
    ),
    "sparse": (
        FLOATS[:2],
        lambda t, n: (
            lambda x, y: torch.sparse.mm(x.to_sparse(), y),
            random(t, 5, n) * (random(t, 5, n) > 1),
            random(t, n, 4),
        ),
    ),
    "lstm": (FLOATS, recurrent(torch.lstm, 4)),
    "gru": (FLOATS, recurrent(torch.gru, 3)),
    "sgd": (FLOATS, trained(torch.optim.SGD, momentum=0.9, fused=True)),
    "adam": (FLOATS, trained(torch.optim.Adam, fused=True)),
    "adamw": (FLOATS, trained(torch.optim.AdamW, amsgrad=True, foreach=True, weight_decay=0.1)),
}


# Functions that also run at the edge widths; their work grows linearly with the width.
LONG = set(
    """
    softmax log_softmax cumsum cumprod cummax logcumsumexp logsumexp sort flip roll cat pad copy where masked
    layer_norm rms_norm batch_norm norm var_mean mm mv linear tiles thin embedding embedding_bag index_select
    cross_entropy losses foreach random
    """.split()
)


def units() -> list[Unit]:
    """List every operator of PyTorch's samples and every function in ``SHAPED``, with each dtype."""
    infos = [
        i for i in op_db if not i.name.startswith(("_refs", "jiterator", "masked.", "signal.", "sparse."))
    ]
    every = [
        Unit(info.full_name, dtype, info)
        for info in infos
        if info.name not in UNWRITTEN
        for dtype in sorted(info.supported_dtypes("cpu") - {torch.complex32}, key=str)
    ]
    return every + [Unit(f"rows of {name}", t, None) for name, (dtypes, _) in SHAPED.items() for t in dtypes]


def with_gradients(value: Any, dtype: torch.dtype) -> Any:
    """Require gradients for the tensors of this dtype."""
    return moved(value, lambda x: x.requires_grad_() if x.dtype == dtype and dtype.is_floating_point else x)


def row(unit: Unit, n: int) -> Call:
    """Make a call with rows of a given width."""
    function, *args = SHAPED[unit.name.removeprefix("rows of ")][1](unit.dtype, n)
    is_trained = getattr(function, "__name__", "") == "train"
    return Call("row", function, tuple(args if is_trained else with_gradients(args, unit.dtype)), {})


def shaped(unit: Unit) -> Iterator[Call]:
    """Make calls for each width, with contiguous tensors and with views."""
    if unit.info is None:
        make = partial(row, unit)
    elif isinstance(unit.info, (UnaryUfuncInfo, BinaryUfuncInfo)):
        make = partial(pointwise, unit.info, unit.dtype)
    elif isinstance(unit.info, ReductionOpInfo):
        make = partial(reduction, unit.info, unit.dtype)
    else:
        return
    widths = [*WIDTHS, *EDGES] if unit.info or unit.name.removeprefix("rows of ") in LONG else WIDTHS
    for n in widths:
        torch.manual_seed(n)
        call = make(n)
        view = [None, stepped, None, turned][n % 4]
        args = moved(call.args, view) if view else call.args
        yield call._replace(name=f"width {n}{f' {view.__name__}' if view else ''}", args=args)


def sampled(unit: Unit) -> Iterator[Call]:
    """Choose a few of PyTorch's samples; use them unchanged and with their tensors as views."""
    info, dtype = unit.info, unit.dtype
    gradient = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    torch.manual_seed(zlib.crc32(unit.name.encode()))
    samples = list(islice(info.sample_inputs("cpu", dtype, requires_grad=gradient), MOST))
    step = max(1, len(samples) // SAMPLES)
    for number, sample in list(enumerate(samples))[::step][:SAMPLES]:
        args = (sample.input, *sample.args)
        if (
            sum(x.numel() for x in tree_leaves((args, sample.kwargs)) if isinstance(x, torch.Tensor))
            > LARGEST
        ):
            continue
        yield Call(f"sample {number}", info.op, args, sample.kwargs)
        view = (stepped, turned)[number // step % 2]
        name = f"sample {number} {view.__name__}"
        yield Call(name, info.op, moved(args, view), moved(sample.kwargs, view))


def calls(unit: Unit) -> Iterator[Call]:
    """Make all calls of a unit, the same in every process."""
    if unit.info is not None:
        yield from sampled(unit)
    yield from shaped(unit)
