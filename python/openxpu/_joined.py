"""Linear layers of a few rows in fewer launches: a pass over Inductor's graphs for GPUs.

Where a step of decoding has products with a few rows, four things go along with one (``openxpu::joined_linear``): other
layers of the same activations (query, key and value), a gate (``silu(x @ a.T) * (x @ b.T)``), a residual connection,
and the activations' RMS norm, where they come from a residual connection. Queries, keys and values that are turned by
their positions and put into caches (``_cached.py``) are ``openxpu::cached_linear``.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from openxpu import _cached, _fusion, _grouped, _nodes, _parts
from openxpu._nodes import (
    ALONE,
    SINGLES,
    VIEWS,
    Norm,
    Writer,
    dims_of,
    has_value,
    is_call,
    is_rounding,
    norm_of,
    only_source,
    only_user,
    unconverted,
    under_views,
    value_of,
)

aten, prims = torch.ops.aten, torch.ops.prims
PARTS = 4  # at most
_STORED = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)  # of weights with a scale for each row


def most_rows(dtype: torch.dtype, is_quantised: bool, device: torch.device) -> int:
    """Return up to how many rows GPUs have kernels that join layers (``xpu_gemm_joined``)."""
    if not is_quantised:
        return 1
    by_units = "NVIDIA" in torch.xpu.get_device_properties(device).vendor
    return _fusion.FEW_ROWS if by_units and dtype != torch.float32 else 4


@dataclass(eq=False)
class Product:
    """A linear layer of 2D activations; `k` and `n` of its weight."""

    node: fx.Node
    x: fx.Node
    weight: fx.Node
    scale: fx.Node | None = None
    zero: fx.Node | None = None
    bias: fx.Node | None = None
    group: int = 0

    def kind(self) -> tuple[object, ...]:
        """Layers whose kinds are equal can be joined."""
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


def _product_of(node: fx.Node) -> Product | None:
    """Read a node as a linear layer of a few rows, on a GPU."""
    found = None
    args: Any = node.args
    if is_call(node, aten._weight_int4pack_mm_with_scales_and_zeros.default):
        x, weight, group, scale, zero = args
        found = Product(node, x, weight, scale, zero, group=group)
    elif is_call(node, aten._weight_int8pack_mm.default):
        found = Product(node, args[0], args[1], args[2])
    elif node.meta.get(ALONE):
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
        or not _fusion.counts_launches(result.device.index)
    ):
        return None
    return found


def _bare(node: Any) -> tuple[Any, bool]:
    """Follow conversions that are exact, and transpositions; whether those make one."""
    turns = 0
    while has_value(node):
        if is_call(node, prims.convert_element_type.default) and value_of(node).dtype in SINGLES:
            node = node.args[0]
        elif is_call(node, aten.permute.default) and list(node.args[1]) == [1, 0]:
            node, turns = node.args[0], turns + 1
        else:
            break
    return node, turns % 2 == 1


def _multiplied(node: fx.Node) -> tuple[fx.Node, Any, Any] | None:
    """Read a node as x @ y, which Inductor writes as a sum of products for one row; the result, x and y."""
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
    """A product of rows with a weight of int8 or float8, (n, k), that has a scale for each row of its own."""

    x: fx.Node  # (…, k), and the result (…, n)
    weight: fx.Node
    scale: fx.Node
    result: fx.Node
    added: fx.Node | None = None  # to the result


def _weight_only_of(node: fx.Node) -> WeightOnly | None:
    """Read a node as such a product of a few rows, on a GPU, scaled before it or after, as torchao has them."""
    found = _multiplied(node)
    if getattr(node.target, "__name__", "").startswith(
        "woq_int8"
    ):  # Inductor's own, of which it makes a call
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
    """Follow a scale to the numbers that were converted and reshaped into it."""
    while has_value(scale) and (is_rounding(scale) or is_call(scale, *VIEWS)):
        source = scale.args[0]
        if not has_value(source) or value_of(source).dtype not in SINGLES:
            break
        scale = source
    return scale


def _few_of(w: WeightOnly) -> WeightOnly | None:
    """Return it where it is what GPUs have kernels for."""
    if not all(map(has_value, (w.x, w.weight, w.scale, w.result))):
        return None
    x, weight, scale, result = (value_of(n) for n in (w.x, w.weight, w.scale, w.result))
    if result.device.type != "xpu" or not _fusion.counts_launches(result.device.index):
        return None
    sizes = [*x.shape, *weight.shape, *scale.shape]
    if not all(isinstance(size, int) for size in sizes) or 0 in sizes or weight.dim() != 2 or not x.dim():
        return None
    n, k = weight.shape
    is_fit = x.shape[-1] == k and [*x.shape[:-1], n] == list(result.shape) and scale.numel() == n
    known = weight.dtype in _STORED and scale.dtype in SINGLES and x.dtype == result.dtype in SINGLES
    return w if is_fit and known and x.numel() // k <= most_rows(x.dtype, True, x.device) else None


def _read_as_stored(graph: fx.Graph, order: dict[fx.Node, int]) -> bool:
    """Have weights of int8 and float8 read as they lie."""
    found = [w for w in map(_weight_only_of, graph.nodes) if w]
    for w in found:
        if any(
            order.get(given, -1) >= order[w.result] for given in (w.x, w.weight, w.scale, w.added) if given
        ):
            continue
        writer = Writer(graph)
        with graph.inserting_before(w.result):
            n, k = value_of(w.weight).shape
            x = writer.shaped(w.x, [value_of(w.x).numel() // k, k])
            scale = writer.shaped(w.scale, [n])
            new = writer.alone(x, w.weight, scale, None, None, 0)
            shaped = writer.shaped(new, value_of(w.result).shape)
            if w.added is not None:
                shaped = writer.call(aten.add.Tensor, shaped, w.added)
        w.result.replace_all_uses_with(shaped)
    graph.eliminate_dead_code()
    return bool(found)


def _bias_of(product: Product) -> tuple[fx.Node, fx.Node] | None:
    """Find a number for each column that alone is added to a product: the addition and the bias."""
    node, user = product.node, only_user(product.node)
    while user is not None and is_call(user, *VIEWS) and under_views(user) is not user:
        node, user = user, only_user(user)
    if user is None or not (is_call(user, aten.add.Tensor) and all(map(has_value, user.args))):
        return None
    bias: Any = user.args[1] if user.args[0] is node else user.args[0]
    values = value_of(user), value_of(node), value_of(bias)
    fits = values[0].shape == values[1].shape and values[2].shape == (product.columns,)
    return (user, bias) if fits and len({value.dtype for value in values}) == 1 else None


def _take_biases(graph: fx.Graph) -> bool:
    """Give products what is added to each of their rows."""
    found = False
    for product in [p for p in map(_product_of, graph.nodes) if p and p.bias is None]:
        biased = _bias_of(product)
        if biased is None:
            continue
        addition, bias = biased
        writer = Writer(graph)
        with graph.inserting_before(addition):
            new = writer.alone(product.x, product.weight, product.scale, product.zero, bias, product.group)
            addition.replace_all_uses_with(writer.shaped(new, value_of(addition).shape))
        found = True
    if found:
        graph.eliminate_dead_code()
    return found


def _silu_of(quotient: Any) -> tuple[fx.Node, set[fx.Node]] | None:
    """Return x where a node is silu(x), as Inductor decomposes it, and what it is computed by."""
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
    """Return x where a node is x * factor."""
    if is_call(node, aten.mul.Tensor) and isinstance(node.args[1], float):
        return node.args[0] if abs(node.args[1] - factor) < 1e-6 else None
    return None


def _gelu_of(product: Any) -> tuple[fx.Node, set[fx.Node], str] | None:
    """Return x where a node is gelu(x), as Inductor decomposes it, what it is computed by, and which gelu it is."""
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


def _activated(node: fx.Node) -> tuple[fx.Node, str] | None:
    """Return x and f where a node is f(x) and nobody else reads what lies between."""
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


@dataclass(eq=False)
class Joined:
    """Products that become one, and the nodes that are replaced by it."""

    parts: list[Product]
    results: list[fx.Node]
    halves: bool = False  # of one product, which a gate splits
    gated: str = ""  # by which activation
    residual: fx.Node | None = None
    norm: Norm | None = None
    cached: _cached.Cached | None = None
    products: list[Product] = field(init=False)

    def __post_init__(self) -> None:
        self.products = list(dict.fromkeys(self.parts))


def _is_like(node: fx.Node, product: Product, columns: int) -> bool:
    """Whether a node has a number for each of the product's rows and so many columns, of the product's dtype."""
    value = value_of(node)
    return value.numel() == product.rows * columns and value.dtype == value_of(product.node).dtype


def _gate_of(node: fx.Node, products: dict[fx.Node, Product]) -> Joined | None:
    """Read a node as silu(one product) * another of the same activations, or two halves of one."""
    if not (is_call(node, aten.mul.Tensor) and all(map(has_value, node.args))):
        return None
    for activated, other in (node.args, reversed(node.args)):
        found = _activated(under_views(activated))  # type: ignore[arg-type]
        if found is None or not has_value(found[0]):
            continue
        gate, name = found
        first, second = only_source(gate), only_source(other)  # type: ignore[arg-type]
        if first is None or second is None or first is second:
            continue
        a, b = products.get(first), products.get(second)
        if a and b:
            same = under_views(a.x) is under_views(b.x) and a.kind() == b.kind() and a.columns == b.columns
            if same and a.rows == b.rows and a.bias is None and _is_like(node, a, a.columns):
                return Joined([a, b], [node], gated=name)
            continue
        pair = [n for n in (first, second) if n.target is operator.getitem]
        if len(pair) < 2 or [n.args[1] for n in pair] != [0, 1] or pair[0].args[0] is not pair[1].args[0]:
            continue
        split: Any = pair[0].args[0]
        if not (is_call(split, aten.split.Tensor) and len(split.users) == 2 and has_value(split.args[0])):
            continue
        source = only_source(split.args[0])
        whole = products.get(source) if source is not None else None
        dim = split.args[2] if len(split.args) > 2 else 0
        if whole is None or whole.bias is not None or dim not in (-1, value_of(split.args[0]).dim() - 1):
            continue
        half = split.args[1]
        if half * 2 == whole.columns == value_of(split.args[0]).shape[-1] and _is_like(node, whole, half):
            return Joined([whole, whole], [node], halves=True, gated=name)
    return None


def _residual_of(node: fx.Node, products: dict[fx.Node, Product]) -> Joined | None:
    """Read a node as a product to which something of its size is added."""
    if not (is_call(node, aten.add.Tensor) and all(map(has_value, node.args))):
        return None
    for given, other in (node.args, reversed(node.args)):
        source = only_source(given)  # type: ignore[arg-type]
        product = products.get(source) if source is not None else None
        values = value_of(node), value_of(other)  # type: ignore[arg-type]
        is_like = values[0].shape == values[1].shape and values[0].dtype == values[1].dtype
        if product and is_like and _is_like(node, product, product.columns):
            return Joined([product], [node], residual=other)  # type: ignore[arg-type]
    return None


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Those who read a node, under views or not."""
    for user in node.users:
        if is_call(user, *VIEWS) and under_views(user) is not user:
            yield from _readers(user)
        else:
            yield user


def find(graph: fx.Graph, order: dict[fx.Node, int]) -> list[Joined]:
    """Find what can be joined; parts of a tensor as caches if all that is put into it is."""
    wholes = _parts.find(graph)
    while True:
        found = _find(graph, order, wholes)
        places: dict[_parts.Whole, dict[fx.Node, int]] = {whole: {} for whole in wholes}
        for joined in found:
            cached = joined.cached
            if cached and _is_there(order, joined):
                for put, whole in zip(cached.puts, cached.wholes, strict=True):
                    if whole:
                        places[whole][put] = order[cached.place]
        kept = [whole for whole in wholes if whole.is_kept(places[whole], order)]
        if len(kept) == len(wholes):
            return found
        wholes = kept


def _find(graph: fx.Graph, order: dict[fx.Node, int], wholes: list[_parts.Whole]) -> list[Joined]:
    products = {p.node: p for p in map(_product_of, graph.nodes) if p}
    left = dict(products)
    found: list[Joined] = []
    for read in (_gate_of, _residual_of):
        for node in graph.nodes:
            joined = read(node, left)
            if joined:
                found.append(joined)
                for product in joined.products:
                    del left[product.node]
    shared: dict[tuple[object, ...], list[Product]] = {}
    for product in left.values():
        shared.setdefault((under_views(product.x), product.rows, product.kind()), []).append(product)
    has_caches = any(is_call(node, aten.index_put.default) for node in graph.nodes)
    for several in shared.values():
        cached = _cached.find(graph, several, order, wholes) if has_caches else None
        if cached:
            parts = [product for product, _, _ in cached.columns]
            found.append(Joined(parts, [cached.query], cached=cached))
            continue
        for i in range(0, len(several), PARTS):
            some = several[i : i + PARTS]
            found.append(Joined(some, [p.node for p in some]))
    sums = {joined.results[0] for joined in found if joined.residual is not None}
    joined_by = {product.node for joined in found for product in joined.products}
    for joined in found:
        x = under_views(joined.parts[0].x)
        norm = norm_of(x)
        rounds_early = value_of(x).dtype == torch.float16 and joined.parts[0].scale is not None
        cached = joined.cached
        if cached and cached.norms and norm and norm.plus_one != cached.plus_one:
            continue
        if norm and norm.x in sums and not rounds_early and set(_readers(x)) <= joined_by:
            joined.norm = norm
    # as long as it is worth something
    return [j for j in found if j.gated or j.cached or j.residual is not None or j.norm or len(j.parts) > 1]


@dataclass(frozen=True)
class Int8:
    """A product of int8 with a scale for each row of both operands, and perhaps a bias: what it is of, and its result."""

    a: fx.Node
    weight: fx.Node
    row_scale: fx.Node
    column_scale: fx.Node
    bias: fx.Node | None
    result: fx.Node


def _along(node: Any, dim: int, shape: torch.Size) -> bool:
    """Whether a node's numbers vary along this of a result's two dimensions alone."""
    if not has_value(node):
        return False
    sizes = list(value_of(node).shape)
    return sizes == ([shape[0], 1] if dim == 0 else [shape[1]]) or (dim == 1 and sizes == [1, shape[1]])


def _int8_of(node: fx.Node) -> Int8 | None:
    """Read a node as the sums of integers, from which its users make scaled numbers, as torchao has them."""
    if not is_call(node, aten._int_mm.default) or not has_value(node):
        return None
    args: Any = node.args
    a, turned = args
    shape, device = value_of(node).shape, value_of(node).device
    if device.type != "xpu" or not (is_call(turned, aten.permute.default) and list(turned.args[1]) == [1, 0]):
        return None
    # times the rows' scales, which may be expanded, and rounded
    by_rows = only_user(node)
    if not (by_rows is not None and is_call(by_rows, aten.mul.Tensor) and by_rows.args[0] is node):
        return None
    row_scale: Any = by_rows.args[1]
    row_scale = row_scale.args[0] if is_call(row_scale, aten.expand.default) else row_scale
    last: Any = by_rows
    user = only_user(last)
    if user is not None and is_rounding(user):
        last, user = user, only_user(user)
    # times the columns', and rounded
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


def _scale_at_once(graph: fx.Graph) -> bool:
    """Give products of int8 their scales: no launch follows them."""
    found = [
        i
        for i in map(_int8_of, graph.nodes)
        if i and _fusion.counts_launches(value_of(i.result).device.index)
    ]
    for int8 in found:
        given = (
            int8.a,
            int8.weight,
            int8.row_scale,
            int8.column_scale,
            int8.bias,
            value_of(int8.result).dtype,
        )
        with graph.inserting_before(int8.result):
            new = Writer(graph).call(torch.ops.openxpu.int8_linear.default, *given)
        int8.result.replace_all_uses_with(new)
    return bool(found)


def _place(order: dict[fx.Node, int], joined: Joined) -> fx.Node:
    return joined.cached.place if joined.cached else min(joined.results, key=order.__getitem__)


def _is_there(order: dict[fx.Node, int], joined: Joined) -> bool:
    """Whether what it reads is there at its place."""
    inputs = [given for product in joined.products for given in product.inputs()]
    inputs += [
        g for g in (joined.residual, joined.norm and joined.norm.x, joined.norm and joined.norm.weight) if g
    ]
    inputs += joined.cached.inputs() if joined.cached else []
    place = order[_place(order, joined)]
    return all(order.get(given, -1) < place for given in inputs)


def _join(
    graph: fx.Graph, order: dict[fx.Node, int], instead: dict[fx.Node, fx.Node], joined: Joined
) -> None:
    """Put one product in place of several, unless what they read isn't there at the first one's place."""

    def now(node: fx.Node) -> fx.Node:
        return instead.get(node, node)

    if not _is_there(order, joined):
        return
    first, place = joined.parts[0], _place(order, joined)
    writer = Writer(graph)
    rows, k = value_of(first.x).shape
    with graph.inserting_before(place):
        x = now(joined.norm.x if joined.norm else under_views(now(first.x)))
        x = writer.shaped(x, (rows, k))
        if joined.cached:
            _put_into_caches(writer, joined, joined.cached, x, instead)
            return
        if joined.halves:
            half, across = first.columns // 2, 1 if first.zero is not None else 0
            spans = [(0, half), (half, 2 * half)]
            weight = [writer.columns(first.weight, 0, *span) for span in spans]
            scale = [writer.columns(first.scale, across, *span) for span in spans]
            zero = [writer.columns(first.zero, across, *span) for span in spans]
        else:
            weight, scale, zero = (
                [getattr(p, name) for p in joined.parts] for name in ("weight", "scale", "zero")
            )
        residual = joined.residual
        if residual is not None:
            residual = writer.shaped(now(residual), (rows, first.columns))
        result = writer.call(
            torch.ops.openxpu.joined_linear.default,
            x,
            weight,
            [s for s in scale if s is not None],
            [z for z in zero if z is not None],
            [p.bias for p in joined.parts if p.bias is not None],
            first.group,
            bool(joined.gated),
            joined.gated or "none",
            joined.norm.weight if joined.norm else None,
            joined.norm.eps if joined.norm else 0.0,
            residual,
            *([True] if joined.norm and joined.norm.plus_one else []),
        )
        begin = 0
        for old in joined.results:
            new: fx.Node | None = result
            if len(joined.results) > 1:
                end = begin + int(value_of(old).shape[1])
                new, begin = writer.columns(result, 1, begin, end), end
            assert new is not None
            instead[old] = writer.shaped(new, value_of(old).shape)
            old.replace_all_uses_with(instead[old])


def _put_into_caches(
    writer: Writer, joined: Joined, cached: _cached.Cached, x: fx.Node, instead: dict[fx.Node, fx.Node]
) -> None:
    first = joined.parts[0]

    def columns(name: str, dim: int) -> list[fx.Node]:
        given = [
            (getattr(product, name), product.columns, begin, end) for product, begin, end in cached.columns
        ]
        return [
            node if end - begin == whole else writer.columns(node, dim, begin, end)
            for node, whole, begin, end in given
            if node is not None
        ]

    caches = []
    for put, given, whole in zip(cached.puts, cached.caches, cached.wholes, strict=True):
        cache = whole.source if whole else given
        for view, args in whole.path_of(put) if whole else ():
            cache = writer.call(view, cache, *args)
        caches.append(cache)
    across = 1 if first.zero is not None else 0
    angles: list[Any] = [None, None, 1.0]
    if cached.angles:
        depth = cached.depth
        turns = [
            writer.shaped(instead.get(angle, angle), (value_of(angle).numel() // depth, depth))
            for angle in (cached.angles.cos, cached.angles.sin)
        ]
        angles = [*turns, cached.angles.sign]
    result = writer.call(
        torch.ops.openxpu.cached_linear.default,
        x,
        columns("weight", 0),
        columns("scale", across),
        columns("zero", across),
        columns("bias", 0),
        first.group,
        joined.norm.weight if joined.norm else None,
        joined.norm.eps if joined.norm else 0.0,
        cached.depth,
        *angles,
        *(cached.norms or (None, None)),
        cached.head_eps,
        cached.position,
        cached.dim,
        *caches,
        *([True] if cached.plus_one or (joined.norm and joined.norm.plus_one) else []),
    )
    instead[cached.query] = writer.shaped(result, value_of(cached.query).shape)
    cached.query.replace_all_uses_with(instead[cached.query])
    for copy in cached.copies:
        writer.graph.erase_node(copy)
    for put, cache in zip(cached.puts, caches, strict=True):
        put.replace_all_uses_with(cache)


def _restore_products(graph: fx.Graph) -> None:
    """Have products with a weight be products, of which Inductor makes sums for one row where it tunes."""
    for node in graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        multiplied = _multiplied(node)
        if multiplied is None or not all(map(has_value, multiplied)):
            continue
        result, x, turned = multiplied
        values = value_of(result), value_of(turned)
        if not (is_call(turned, aten.permute.default) and list(turned.args[1]) == [1, 0]):
            continue
        is_weight = turned.args[0].op in ("placeholder", "get_attr")
        if not is_weight or values[0].dtype != values[1].dtype or values[0].device.type != "xpu":
            continue
        if _fusion.counts_launches(values[0].device.index):
            with graph.inserting_before(node):
                result.replace_all_uses_with(Writer(graph).call(aten.mm.default, x, turned))
    graph.eliminate_dead_code()


def _drop_whole_slices(graph: fx.Graph) -> None:
    """Have those who read the last place of one read the whole, as a step's logits are computed."""
    for node in graph.find_nodes(op="call_function", target=aten.slice.Tensor):
        source: Any = node.args[0]
        if has_value(node) and has_value(source) and value_of(node).shape == value_of(source).shape:
            node.replace_all_uses_with(source, lambda user: user.op != "output")


def _read_inputs_first(graph: fx.Graph) -> None:
    """Have views of inputs stand before what is computed, so that products find scales and weights there."""
    inputs = graph.find_nodes(op="placeholder")
    changed = {node.args[0] for node in graph.find_nodes(op="call_function", target=aten.copy_.default)}
    early = {node for node in inputs if node not in changed}
    last = inputs[-1] if inputs else None
    is_behind = False  # those between inputs stand before what reads them there
    for node in list(graph.nodes):
        is_behind = is_behind or node is last
        if (
            last is not None
            and is_call(node, *VIEWS, aten.slice.Tensor)
            and set(node.all_input_nodes) <= early
        ):
            early.add(node)
            if is_behind:
                last.append(node)
                last = node


class JoinLayers(CustomGraphModulePass):
    """Registered for xpu by ``enter``."""

    def __call__(self, gm: fx.GraphModule) -> None:
        """Rewrite the graph, which is going to be Python that runs where it is made."""
        from torch._inductor import config
        from torch._inductor.pattern_matcher import stable_topological_sort
        from torch._inductor.virtualized import V

        if config.cpp_wrapper or getattr(config, "fx_wrapper", False) or V.aot_compilation:
            return  # their runners don't know the operator
        graph = gm.graph
        _drop_whole_slices(graph)
        scaled = _grouped.share_heads(graph)
        scaled = _scale_at_once(graph) or scaled
        order = {node: i for i, node in enumerate(graph.nodes)}
        scaled = _read_as_stored(graph, order) or scaled
        _restore_products(graph)
        scaled = _take_biases(graph) or scaled
        _read_inputs_first(graph)
        order = {node: i for i, node in enumerate(graph.nodes) if node.op not in ("placeholder", "get_attr")}
        found = find(graph, order)
        if not (scaled or found):
            return
        instead: dict[fx.Node, fx.Node] = {}
        for joined in sorted(found, key=lambda joined: order[_place(order, joined)]):
            _join(graph, order, instead, joined)
        for whole in {w for joined in found if joined.cached for w in joined.cached.wholes if w}:
            whole.write_in_place(graph)
        if any(joined.cached for joined in found):  # whose queries may be there later than before
            stable_topological_sort(graph)
        graph.eliminate_dead_code()
        gm.recompile()

    def uuid(self) -> object:
        """Change with this file, for caches of graphs."""
        texts = [
            Path(str(file)).read_bytes()
            for file in (__file__, _cached.__file__, _grouped.__file__, _nodes.__file__, _parts.__file__)
        ]
        return hashlib.sha256(b"".join(texts)).digest()
