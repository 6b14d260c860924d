"""Match linear layers in FX graphs, with unquantized and quantized weights, and what follows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from openxpu import _launches
from openxpu._fx_nodes import (
    SINGLE_LINEAR,
    SINGLES,
    VIEWS,
    dims_of,
    has_value,
    is_call,
    is_rounding,
    only_user,
    unconverted,
    under_views,
    value_of,
)

aten, prims = torch.ops.aten, torch.ops.prims
_STORED = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)  # dtypes of weights with a scale per row


def most_rows(dtype: torch.dtype, is_quantized: bool, device: torch.device) -> int:
    """Return the maximum number of rows for which GPUs have fused kernels (``xpu_gemm_fused``)."""
    if not is_quantized:
        return 1
    by_units = "NVIDIA" in torch.xpu.get_device_properties(device).vendor
    return _launches.FEW_ROWS if by_units and dtype != torch.float32 else 4


@dataclass(eq=False)
class Product:
    """A linear layer of 2D activations; its weight has size `k` by `n`."""

    node: fx.Node
    x: fx.Node
    weight: fx.Node
    scale: fx.Node | None = None
    zero: fx.Node | None = None
    bias: fx.Node | None = None
    group: int = 0

    def kind(self) -> tuple[object, ...]:
        """Return a key; layers with equal keys can be fused."""
        scale = None if self.scale is None else value_of(self.scale).dtype
        return (value_of(self.weight).dtype, self.group, scale, self.bias is None)

    @property
    def rows(self) -> int:
        return int(value_of(self.node).shape[0])

    @property
    def columns(self) -> int:
        return int(value_of(self.node).shape[1])

    def inputs(self) -> Iterator[fx.Node]:
        for given in (self.weight, self.scale, self.zero, self.bias):
            if given is not None:
                yield given


def product_of(node: fx.Node) -> Product | None:
    """Match a linear layer with few rows, on a GPU."""
    found = None
    args: Any = node.args
    if is_call(node, aten._weight_int4pack_mm_with_scales_and_zeros.default):
        x, weight, group, scale, zero = args
        found = Product(node, x, weight, scale, zero, group=group)
    elif is_call(node, aten._weight_int8pack_mm.default):
        found = Product(node, args[0], args[1], args[2])
    elif node.meta.get(SINGLE_LINEAR):
        scale, zero, bias = (given[0] if given else None for given in args[2:5])
        found = Product(node, args[0], args[1][0], scale, zero, bias, args[5])
    elif is_call(node, aten.mm.default, aten.addmm.default):
        x, turned = args[-2:]
        if not (is_call(turned, aten.permute.default) and list(turned.args[1]) == [1, 0]):
            return None
        found = Product(node, x, turned.args[0], bias=args[0] if len(args) == 3 else None)
    if found is None or not all(map(has_value, (node, found.x, *found.inputs()))):
        return None
    result, x_value = value_of(node), value_of(found.x)
    if result.device.type != "xpu":
        return None
    most = most_rows(result.dtype, found.scale is not None, result.device)
    is_few = isinstance(result.shape[0], int) and 1 <= result.shape[0] <= most
    fixed = all(
        isinstance(size, int) for given in (found.x, *found.inputs()) for size in value_of(given).shape
    )
    if not (is_few and fixed and result.dtype in SINGLES) or 0 in result.shape or 0 in x_value.shape:
        return None
    if found.scale is None and value_of(found.weight).dtype != result.dtype:
        return None
    if found.bias is not None and (
        value_of(found.bias).shape != result.shape[1:] or value_of(found.bias).dtype != result.dtype
    ):
        return None
    if (
        x_value.dim() != 2
        or x_value.dtype != result.dtype
        or not _launches.counts_launches(result.device.index)
    ):
        return None
    return found


def _bare(node: Any) -> tuple[Any, bool]:
    """Follow exact conversions and transpositions; also return whether the result is transposed."""
    turns = 0
    while has_value(node):
        if is_call(node, prims.convert_element_type.default) and value_of(node).dtype in SINGLES:
            node = node.args[0]
        elif is_call(node, aten.permute.default) and list(node.args[1]) == [1, 0]:
            node, turns = node.args[0], turns + 1
        else:
            break
    return node, turns % 2 == 1


def multiplied(node: fx.Node) -> tuple[fx.Node, Any, Any] | None:
    """Match x @ y, which Inductor writes as a sum of products for one row; return the result, x and y."""
    args: Any = node.args
    if is_call(node, aten.mm.default, aten.addmm.default):
        return node, *args[-2:]
    if not (is_call(node, aten.sum.dim_IntList) and len(args) == 2 and dims_of(args[1]) == [1]):
        return None
    product = args[0]
    if not (
        is_call(product, aten.mul.Tensor) and all(is_call(a, aten.unsqueeze.default) for a in product.args)
    ):
        return None
    (x, across), (y, along) = (a.args for a in product.args)
    if (across, along) != (2, 0) or not (has_value(x) and value_of(x).dim() == 2):
        return None
    x, result = unconverted(x, torch.float32), node
    user = only_user(node)
    if value_of(x).dtype != value_of(node).dtype and user is not None and is_rounding(user):
        result, y = user, unconverted(y, torch.float32)
    return (result, x, y) if value_of(x).dtype == value_of(result).dtype else None


@dataclass(frozen=True)
class WeightOnly:
    """A product with an int8 or float8 weight (n, k) with one scale per row."""

    x: fx.Node  # (…, k), and the result (…, n)
    weight: fx.Node
    scale: fx.Node
    result: fx.Node
    added: fx.Node | None = None  # to the result


def weight_only_of(node: fx.Node) -> WeightOnly | None:
    """Match such a product with few rows, on a GPU, scaled before or after it, as torchao writes it."""
    found = multiplied(node)
    if getattr(node.target, "__name__", "").startswith(
        "woq_int8"
    ):  # Inductor's own, which it lowers to a call
        given: Any = node.kwargs
        if set(given) != {"x", "weight", "scales"} or list(node.args[0]) != [1, 0]:  # type: ignore[arg-type]
            return None
        return _few_of(WeightOnly(given["x"], given["weight"], _as_stored(given["scales"]), node))
    if found is None or not all(map(has_value, found)):
        return None
    result, x, y = found
    inner, is_turned = _bare(y)
    scale: Any = None
    if is_call(inner, aten.mul.Tensor) and all(map(has_value, inner.args)):
        for given, other in (inner.args, tuple(reversed(inner.args))):
            weight, is_turned_before = _bare(given)
            if value_of(weight).dtype in _STORED:
                n = value_of(result).shape[1]
                expected = [[n, 1]] if is_turned else [[1, n], [n]]
                scale = other if list(value_of(other).shape) in expected else None
                inner, is_turned = weight, is_turned != is_turned_before
                break
    elif node.target is not aten.addmm.default and has_value(inner) and value_of(inner).dtype in _STORED:
        user = only_user(result)
        while user is not None and is_call(user, *VIEWS) and under_views(user) is under_views(result):
            result, user = user, only_user(user)
        if user is None or not (is_call(user, aten.mul.Tensor) and all(map(has_value, user.args))):
            return None
        scale = user.args[1] if user.args[0] is result else user.args[0]
        if (
            value_of(user).shape != value_of(result).shape
            or value_of(scale).shape[-1:] != value_of(result).shape[-1:]
        ):
            return None
        result = user
    added: Any = node.args[0] if node.target is aten.addmm.default else None
    if scale is None or not is_turned:
        return None
    return _few_of(WeightOnly(x, inner, _as_stored(scale), result, added))


def _as_stored(scale: Any) -> Any:
    """Follow a scale to the tensor that was converted and reshaped into it."""
    while has_value(scale) and (is_rounding(scale) or is_call(scale, *VIEWS)):
        source = scale.args[0]
        if not has_value(source) or value_of(source).dtype not in SINGLES:
            break
        scale = source
    return scale


def _few_of(w: WeightOnly) -> WeightOnly | None:
    """Return the match if GPUs have kernels for it."""
    if not all(map(has_value, (w.x, w.weight, w.scale, w.result))):
        return None
    x, weight, scale, result = (value_of(n) for n in (w.x, w.weight, w.scale, w.result))
    if result.device.type != "xpu" or not _launches.counts_launches(result.device.index):
        return None
    sizes = [*x.shape, *weight.shape, *scale.shape]
    if not all(isinstance(size, int) for size in sizes) or 0 in sizes or weight.dim() != 2 or not x.dim():
        return None
    n, k = weight.shape
    is_fit = x.shape[-1] == k and [*x.shape[:-1], n] == list(result.shape) and scale.numel() == n
    known = weight.dtype in _STORED and scale.dtype in SINGLES and x.dtype == result.dtype in SINGLES
    return w if is_fit and known and x.numel() // k <= most_rows(x.dtype, True, x.device) else None


def bias_of(product: Product) -> tuple[fx.Node, fx.Node] | None:
    """Match a per-column bias that is the only use of a product; return the addition and the bias."""
    node, user = product.node, only_user(product.node)
    while user is not None and is_call(user, *VIEWS) and under_views(user) is not user:
        node, user = user, only_user(user)
    if user is None or not (is_call(user, aten.add.Tensor) and all(map(has_value, user.args))):
        return None
    bias: Any = user.args[1] if user.args[0] is node else user.args[0]
    values = value_of(user), value_of(node), value_of(bias)
    fits = values[0].shape == values[1].shape and values[2].shape == (product.columns,)
    return (user, bias) if fits and len({value.dtype for value in values}) == 1 else None


def _silu_of(quotient: Any) -> tuple[fx.Node, set[fx.Node]] | None:
    """Match silu(x) as Inductor decomposes it; return x and the nodes that compute it."""
    if not is_call(quotient, aten.div.Tensor):
        return None
    x, below = quotient.args
    if not (
        is_call(below, aten.add.Tensor) and below.args[1] == 1 and is_call(below.args[0], aten.exp.default)
    ):
        return None
    negative = below.args[0].args[0]
    if not (is_call(negative, aten.neg.default) and negative.args[0] is x):
        return None
    return x, {quotient, below, below.args[0], negative}


def _scaled_by(node: Any, factor: float) -> fx.Node | None:
    """Match x * factor; return x."""
    if is_call(node, aten.mul.Tensor) and isinstance(node.args[1], float):
        return node.args[0] if abs(node.args[1] - factor) < 1e-6 else None
    return None


def _gelu_of(product: Any) -> tuple[fx.Node, set[fx.Node], str] | None:
    """Match gelu(x) as Inductor decomposes it; return x, the nodes that compute it, and the variant."""
    if not is_call(product, aten.mul.Tensor):
        return None
    halved, raised = product.args
    x = _scaled_by(halved, 0.5)
    if x is None or not (is_call(raised, aten.add.Tensor) and raised.args[1] == 1):
        return None
    between = {product, halved, raised, raised.args[0]}
    if is_call(raised.args[0], aten.erf.default):
        inner = raised.args[0].args[0]
        return (x, between | {inner}, "gelu") if _scaled_by(inner, 0.5**0.5) is x else None
    if not is_call(raised.args[0], aten.tanh.default):
        return None
    inner = raised.args[0].args[0]
    total = _scaled_by(inner, (2 / torch.pi) ** 0.5)
    if not (is_call(total, aten.add.Tensor) and total.args[0] is x):  # type: ignore[union-attr]
        return None
    weighed = total.args[1]  # type: ignore[union-attr]
    cube: Any = _scaled_by(weighed, 0.044715)
    if not (is_call(cube, aten.mul.Tensor) and cube.args[1] is x):
        return None
    square = cube.args[0]
    if not (is_call(square, aten.mul.Tensor) and square.args == (x, x)):
        return None
    return x, between | {inner, total, weighed, cube, square}, "gelu_tanh"


def activated(node: fx.Node) -> tuple[fx.Node, str] | None:
    """Match f(x) whose intermediate nodes have no other users; return x and f."""
    inner: Any = unconverted(node, value_of(node).dtype)
    if is_call(inner, aten.relu.default) and len(inner.args[0].users) == 1:
        return inner.args[0], "relu"
    silu = _silu_of(inner)
    found = (*silu, "silu") if silu else _gelu_of(inner)
    if not found:
        return None
    x, between, name = found
    if not set(x.users) <= between or any(not set(n.users) <= between for n in between - {inner}):
        return None
    return unconverted(x, torch.float32), name


@dataclass(frozen=True)
class Int8:
    """An int8 product with a scale per row of both operands, an optional bias, and its result."""

    a: fx.Node
    weight: fx.Node
    row_scale: fx.Node
    column_scale: fx.Node
    bias: fx.Node | None
    result: fx.Node


def _along(node: Any, dim: int, shape: torch.Size) -> bool:
    """Return whether a node varies along this dimension of a 2D result only."""
    if not has_value(node):
        return False
    sizes = list(value_of(node).shape)
    return sizes == ([shape[0], 1] if dim == 0 else [shape[1]]) or (dim == 1 and sizes == [1, shape[1]])


def int8_of(node: fx.Node) -> Int8 | None:
    """Match an int32 product whose users apply the scales, as torchao writes it."""
    if not is_call(node, aten._int_mm.default) or not has_value(node):
        return None
    args: Any = node.args
    a, turned = args
    shape, device = value_of(node).shape, value_of(node).device
    if device.type != "xpu" or not (is_call(turned, aten.permute.default) and list(turned.args[1]) == [1, 0]):
        return None
    # times the row scales, possibly expanded, and rounded
    by_rows = only_user(node)
    if not (by_rows is not None and is_call(by_rows, aten.mul.Tensor) and by_rows.args[0] is node):
        return None
    row_scale: Any = by_rows.args[1]
    row_scale = row_scale.args[0] if is_call(row_scale, aten.expand.default) else row_scale
    last: Any = by_rows
    user = only_user(last)
    if user is not None and is_rounding(user):
        last, user = user, only_user(user)
    # times the column scales, and rounded
    if not (user is not None and is_call(user, aten.mul.Tensor) and user.args[0] is last):
        return None
    column_scale: Any = user.args[1]
    if not (_along(row_scale, 0, shape) and _along(column_scale, 1, shape)):
        return None
    last, user = user, only_user(user)
    if user is not None and is_rounding(user):
        last, user = user, only_user(user)
    bias = None
    if user is not None and is_call(user, aten.add.Tensor) and user.args[0] is last:
        other: Any = user.args[1]
        if _along(other, 1, shape) and value_of(other).dim() == 1:
            bias, last, user = other, user, only_user(user)
            if user is not None and is_rounding(user):
                last = user
            if value_of(bias).dtype != value_of(last).dtype:
                return None
    if not all(value_of(n).dtype in SINGLES for n in (last, row_scale, column_scale)):
        return None
    return Int8(a, turned.args[0], row_scale, column_scale, bias, last)
