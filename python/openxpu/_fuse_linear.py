"""Fuse linear layers with few rows: a pass over Inductor's graphs for GPUs.

For decoding steps. A fused launch (``openxpu::fused_linear``) may include: other layers of the same
activations (query, key and value); a gate (``silu(x @ a.T) * (x @ b.T)``); a residual connection; the RMS
norm of the activations, if they come from a residual connection. A QKV projection with RoPE and KV-cache
writes (``_match_qkv_rope.py``) becomes ``openxpu::qkv_rope_linear``.
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

from openxpu import _fx_nodes, _launches, _match_cache_slices, _match_linear, _match_qkv_rope, _share_kv_heads
from openxpu._fx_nodes import (
    VIEWS,
    Norm,
    Writer,
    has_value,
    is_call,
    norm_of,
    only_source,
    under_views,
    value_of,
)
from openxpu._match_linear import Product

aten, prims = torch.ops.aten, torch.ops.prims
PARTS = 4  # maximum of xpu_gemm_fusion


def _read_as_stored(graph: fx.Graph, order: dict[fx.Node, int]) -> bool:
    """Make products use int8 and float8 weights in their stored layout."""
    found = [w for w in map(_match_linear.weight_only_of, graph.nodes) if w]
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


def _take_biases(graph: fx.Graph) -> bool:
    """Fold biases into products."""
    found = False
    for product in [p for p in map(_match_linear.product_of, graph.nodes) if p and p.bias is None]:
        biased = _match_linear.bias_of(product)
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


@dataclass(eq=False)
class FusedLinear:
    """Products to be fused, and the nodes that they replace."""

    parts: list[Product]
    results: list[fx.Node]
    halves: bool = False  # of one product, split by a gate
    gated: str = ""  # the gate's activation
    residual: fx.Node | None = None
    norm: Norm | None = None
    cached: _match_qkv_rope.QkvRope | None = None
    products: list[Product] = field(init=False)

    def __post_init__(self) -> None:
        self.products = list(dict.fromkeys(self.parts))


def _is_like(node: fx.Node, product: Product, columns: int) -> bool:
    """Return whether a node has the product's rows and dtype, and so many columns."""
    value = value_of(node)
    return value.numel() == product.rows * columns and value.dtype == value_of(product.node).dtype


def _gate_of(node: fx.Node, products: dict[fx.Node, Product]) -> FusedLinear | None:
    """Match silu(one product) * another of the same activations, or the two halves of one."""
    if not (is_call(node, aten.mul.Tensor) and all(map(has_value, node.args))):
        return None
    for activated, other in (node.args, reversed(node.args)):
        found = _match_linear.activated(under_views(activated))  # type: ignore[arg-type]
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
                return FusedLinear([a, b], [node], gated=name)
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
            return FusedLinear([whole, whole], [node], halves=True, gated=name)
    return None


def _residual_of(node: fx.Node, products: dict[fx.Node, Product]) -> FusedLinear | None:
    """Match a product to which a tensor of its size is added."""
    if not (is_call(node, aten.add.Tensor) and all(map(has_value, node.args))):
        return None
    for given, other in (node.args, reversed(node.args)):
        source = only_source(given)  # type: ignore[arg-type]
        product = products.get(source) if source is not None else None
        values = value_of(node), value_of(other)  # type: ignore[arg-type]
        is_like = values[0].shape == values[1].shape and values[0].dtype == values[1].dtype
        if product and is_like and _is_like(node, product, product.columns):
            return FusedLinear([product], [node], residual=other)  # type: ignore[arg-type]
    return None


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Return the users of a node, through views."""
    for user in node.users:
        if is_call(user, *VIEWS) and under_views(user) is not user:
            yield from _readers(user)
        else:
            yield user


def find(graph: fx.Graph, order: dict[fx.Node, int]) -> list[FusedLinear]:
    """Find what can be fused. A slice of a tensor counts as a cache if every write to the tensor is fused."""
    wholes = _match_cache_slices.find(graph)
    while True:
        found = _find(graph, order, wholes)
        places: dict[_match_cache_slices.SlicedInput, dict[fx.Node, int]] = {whole: {} for whole in wholes}
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


def _find(
    graph: fx.Graph, order: dict[fx.Node, int], wholes: list[_match_cache_slices.SlicedInput]
) -> list[FusedLinear]:
    products = {p.node: p for p in map(_match_linear.product_of, graph.nodes) if p}
    left = dict(products)
    found: list[FusedLinear] = []
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
        cached = _match_qkv_rope.find(graph, several, order, wholes) if has_caches else None
        if cached:
            parts = [product for product, _, _ in cached.columns]
            found.append(FusedLinear(parts, [cached.query], cached=cached))
            continue
        for i in range(0, len(several), PARTS):
            some = several[i : i + PARTS]
            found.append(FusedLinear(some, [p.node for p in some]))
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
    # as long as it helps
    return [j for j in found if j.gated or j.cached or j.residual is not None or j.norm or len(j.parts) > 1]


def _scale_at_once(graph: fx.Graph) -> bool:
    """Fold the scales of int8 products into them, saving a launch."""
    found = [
        i
        for i in map(_match_linear.int8_of, graph.nodes)
        if i and _launches.counts_launches(value_of(i.result).device.index)
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


def _place(order: dict[fx.Node, int], joined: FusedLinear) -> fx.Node:
    return joined.cached.place if joined.cached else min(joined.results, key=order.__getitem__)


def _is_there(order: dict[fx.Node, int], joined: FusedLinear) -> bool:
    """Return whether the inputs of a node are available at its position."""
    inputs = [given for product in joined.products for given in product.inputs()]
    inputs += [
        g for g in (joined.residual, joined.norm and joined.norm.x, joined.norm and joined.norm.weight) if g
    ]
    inputs += joined.cached.inputs() if joined.cached else []
    place = order[_place(order, joined)]
    return all(order.get(given, -1) < place for given in inputs)


def _fuse(
    graph: fx.Graph, order: dict[fx.Node, int], instead: dict[fx.Node, fx.Node], joined: FusedLinear
) -> None:
    """Replace several products by one, unless its inputs are unavailable at the first one's position."""

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
            _fuse_cache_writes(writer, joined, joined.cached, x, instead)
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
            torch.ops.openxpu.fused_linear.default,
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


def _fuse_cache_writes(
    writer: Writer,
    joined: FusedLinear,
    cached: _match_qkv_rope.QkvRope,
    x: fx.Node,
    instead: dict[fx.Node, fx.Node],
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
        torch.ops.openxpu.qkv_rope_linear.default,
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
    """Turn single-row sums of products back into matrix products, which Inductor decomposes when tuning."""
    for node in graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        multiplied = _match_linear.multiplied(node)
        if multiplied is None or not all(map(has_value, multiplied)):
            continue
        result, x, turned = multiplied
        values = value_of(result), value_of(turned)
        if not (is_call(turned, aten.permute.default) and list(turned.args[1]) == [1, 0]):
            continue
        is_weight = turned.args[0].op in ("placeholder", "get_attr")
        if not is_weight or values[0].dtype != values[1].dtype or values[0].device.type != "xpu":
            continue
        if _launches.counts_launches(values[0].device.index):
            with graph.inserting_before(node):
                result.replace_all_uses_with(Writer(graph).call(aten.mm.default, x, turned))
    graph.eliminate_dead_code()


def _drop_whole_slices(graph: fx.Graph) -> None:
    """Remove slices that select the only position, as in the computation of a step's logits."""
    for node in graph.find_nodes(op="call_function", target=aten.slice.Tensor):
        source: Any = node.args[0]
        if has_value(node) and has_value(source) and value_of(node).shape == value_of(source).shape:
            node.replace_all_uses_with(source, lambda user: user.op != "output")


def _read_inputs_first(graph: fx.Graph) -> None:
    """Move views of inputs to the front, so that scales and weights are available to all products."""
    inputs = graph.find_nodes(op="placeholder")
    changed = {node.args[0] for node in graph.find_nodes(op="call_function", target=aten.copy_.default)}
    early = {node for node in inputs if node not in changed}
    last = inputs[-1] if inputs else None
    is_behind = False  # those between inputs already precede their readers
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


class FuseLinearLayers(CustomGraphModulePass):
    """The pass; registered for xpu by ``enter``."""

    def __call__(self, gm: fx.GraphModule) -> None:
        """Rewrite the graph, which is compiled to Python in this process."""
        from torch._inductor import config
        from torch._inductor.pattern_matcher import stable_topological_sort
        from torch._inductor.virtualized import V

        if config.cpp_wrapper or getattr(config, "fx_wrapper", False) or V.aot_compilation:
            return  # their runners lack the operator
        graph = gm.graph
        _drop_whole_slices(graph)
        scaled = _share_kv_heads.share_heads(graph)
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
            _fuse(graph, order, instead, joined)
        for whole in {w for joined in found if joined.cached for w in joined.cached.wholes if w}:
            whole.write_in_place(graph)
        if any(joined.cached for joined in found):  # whose queries may be available later than before
            stable_topological_sort(graph)
        graph.eliminate_dead_code()
        gm.recompile()

    def uuid(self) -> object:
        """Return a key for graph caches that changes with the source of the pass."""
        texts = [
            Path(str(file)).read_bytes()
            for file in (
                __file__,
                _match_qkv_rope.__file__,
                _share_kv_heads.__file__,
                _fx_nodes.__file__,
                _match_cache_slices.__file__,
                _match_linear.__file__,
            )
        ]
        return hashlib.sha256(b"".join(texts)).digest()
