"""Unfused grouped-query attention: share key and value heads instead of copying them.

Models repeat each key and value head for the query heads that share it, then multiply head by head. Instead,
the queries of all these heads become rows of one product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from openxpu import _launches
from openxpu._fx_nodes import Writer, has_value, is_call, value_of

aten = torch.ops.aten
_RESHAPES = (aten.reshape.default, aten.view.default, aten._unsafe_view.default)


def _source(node: Any, *targets: Any) -> Any:
    """Return the input of a call of one of these functions, if it is a tensor."""
    return node.args[0] if is_call(node, *targets) and has_value(node.args[0]) else None


def _shape(node: fx.Node) -> list[int]:
    return list(value_of(node).shape)


def _repeated_of(node: Any) -> tuple[fx.Node, bool] | None:
    """Match the right operand of a product, (items * heads, …), as repeated heads of (items, fewer heads, …).

    Returns the unrepeated tensor, and whether its last dimensions are transposed.
    """
    whole = _source(node, *_RESHAPES)
    if whole is None or len(_shape(whole)) != 4 or _shape(whole)[2:] != _shape(node)[1:]:
        return None
    same = _source(whole, aten.expand.default)
    if same is not None and _shape(same) == _shape(whole):
        whole = same
    turned = _source(whole, aten.permute.default)
    is_turned = turned is not None and list(whole.args[1]) == [0, 1, 3, 2]
    heads = turned if is_turned else whole
    copied = _source(heads, *_RESHAPES)
    if copied is None or len(_shape(copied)) != 5:
        return None
    cloned = _source(copied, aten.clone.default)
    expanded = copied if cloned is None else cloned
    single = _source(expanded, aten.expand.default)
    source = _source(single, aten.unsqueeze.default)
    if source is None or single.args[1] != 2 or len(_shape(source)) != 4:
        return None
    items, few, times, *rest = _shape(expanded)
    if _shape(source) != [items, few, *rest] or _shape(heads) != [items, few * times, *rest]:
        return None
    return source, is_turned


def share_heads(graph: fx.Graph) -> bool:
    """Make products read each key and value head once, in place."""
    found = False
    for node in graph.find_nodes(op="call_function", target=aten.bmm.default):
        left, right = node.args
        repeated = _repeated_of(right)
        if repeated is None or not all(map(has_value, (node, left))):
            continue
        source, is_turned = repeated
        sizes = [*_shape(left), *_shape(right), *_shape(source)]
        device = value_of(node).device
        if not all(isinstance(size, int) for size in sizes) or 0 in sizes or device.type != "xpu":
            continue
        if not _launches.counts_launches(device.index):
            continue
        items, few = _shape(source)[:2]
        (heads, rows, inner), columns = _shape(left), _shape(right)[2]
        writer = Writer(graph)
        with graph.inserting_before(node):
            if is_turned:
                source = writer.call(aten.permute.default, source, [0, 1, 3, 2])
            shared = writer.shaped(source, [items * few, inner, columns])
            queries = writer.shaped(left, [items * few, heads // (items * few) * rows, inner])
            result = writer.shaped(writer.call(aten.bmm.default, queries, shared), [heads, rows, columns])
        node.replace_all_uses_with(result)
        found = True
    if found:
        graph.eliminate_dead_code()
    return found
