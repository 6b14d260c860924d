"""Helpers to read and write FX graphs, shared by the fusion passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

aten, prims = torch.ops.aten, torch.ops.prims
SINGLES = (torch.bfloat16, torch.float16, torch.float32)
SINGLE_LINEAR = "openxpu_single_linear"  # marks a fused_linear with one weight
VIEWS = (
    aten.reshape.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
)


def is_call(node: object, *targets: object) -> bool:
    """Return whether a node calls one of these functions; sums with alpha or beta are never matched."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return False
    return node.target in targets and not node.kwargs.keys() & {"alpha", "beta"}


def value_of(node: fx.Node) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


def dims_of(given: Any) -> list[Any]:
    """Return dimensions as a list; [] for None, which means all."""
    return [] if given is None else list(given)


def has_value(node: object) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def under_views(node: fx.Node) -> fx.Node:
    """Follow views that keep rows intact."""
    while is_call(node, *VIEWS) and has_value(node.args[0]):
        source: Any = node.args[0]
        if not value_of(source).dim() or value_of(source).shape[-1] != value_of(node).shape[-1]:
            break
        node = source
    return node


def only_source(node: fx.Node) -> fx.Node | None:
    """Follow such views if intermediate nodes have no other users; else None."""
    while len(node.users) == 1 and is_call(node, *VIEWS):
        source = under_views(node)
        if source is node:
            break
        nearest: Any = node.args[0]
        node = nearest
    return node if len(node.users) == 1 else None


def unconverted(node: Any, dtype: torch.dtype) -> Any:
    """Return the input of a conversion to `dtype`, or the node itself."""
    return (
        node.args[0] if is_call(node, prims.convert_element_type.default) and node.args[1] == dtype else node
    )


def only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def is_rounding(node: fx.Node) -> bool:
    return is_call(node, prims.convert_element_type.default) and value_of(node).dtype in SINGLES


@dataclass(frozen=True)
class Norm:
    """An RMS norm: input, weight, and the epsilon added to the mean square."""

    x: fx.Node
    weight: fx.Node
    eps: float
    plus_one: bool = False  # added to the weight

    def nodes(self, result: fx.Node) -> set[fx.Node]:
        """Return the nodes between x and the norm's result, and the result."""
        found, left = {result}, [result]
        while left:
            more = {
                given for given in left.pop().all_input_nodes if given not in (self.x, self.weight)
            } - found
            found |= more
            left += more
        return found


def _less_one(node: Any) -> tuple[Any, bool]:
    """Return w and True if a node is w + 1 in fp32, else the node and False."""
    if is_call(node, aten.add.Tensor) and node.args[1] == 1:
        weight = unconverted(node.args[0], torch.float32)
        return weight, True
    return unconverted(node, torch.float32), False


def norm_of(node: fx.Node) -> Norm | None:
    """Match an RMS norm along the last dimension, computed in fp32 and rounded before or after the weight."""
    dtype = value_of(node).dtype
    product = unconverted(node, dtype)
    if not is_call(product, aten.mul.Tensor):
        return None
    for scaled, given in (product.args, reversed(product.args)):
        weight, plus_one = _less_one(given)
        if not (has_value(weight) and value_of(weight).dim() == 1 and value_of(weight).dtype == dtype):
            continue
        inner = unconverted(scaled, dtype)
        if not is_call(inner, aten.mul.Tensor):
            continue
        wide, root = inner.args
        if not is_call(root, aten.rsqrt.default):
            continue
        total = root.args[0]
        if not (is_call(total, aten.add.Tensor, aten.add.Scalar) and isinstance(total.args[1], float)):
            continue
        mean, eps = total.args[0], total.args[1]
        if not (is_call(mean, aten.mean.dim) and len(mean.args) == 3 and mean.args[2] is True):
            continue
        square, dims = mean.args[0], dims_of(mean.args[1])
        if not (is_call(square, aten.pow.Tensor_Scalar) and square.args[0] is wide and square.args[1] == 2):
            continue
        x = unconverted(wide, torch.float32)
        if dims not in ([-1], [value_of(wide).dim() - 1]) or value_of(x).dtype != dtype:
            continue
        if value_of(weight).shape != value_of(x).shape[-1:]:
            continue
        return Norm(x, weight, eps, plus_one)
    return None


class Writer:
    """Adds nodes, with their fake values."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph

    def call(self, target: Any, *args: Any) -> fx.Node:
        node = self.graph.call_function(target, args)
        given = fx.map_arg(args, value_of)
        first: Any = next(a for a in torch.utils._pytree.tree_leaves(given) if isinstance(a, torch.Tensor))
        with first.fake_mode:
            node.meta["val"] = target(*given)
        return node

    def shaped(self, node: fx.Node, shape: Sequence[int]) -> fx.Node:
        return (
            node
            if value_of(node).shape == torch.Size(shape)
            else self.call(aten.reshape.default, node, list(shape))
        )

    def alone(
        self,
        x: fx.Node,
        weight: fx.Node,
        scale: fx.Node | None,
        zero: fx.Node | None,
        bias: fx.Node | None,
        group: int,
    ) -> fx.Node:
        """Add a product with one weight, which may be fused with others."""
        given = [[n for n in (node,) if n is not None] for node in (weight, scale, zero, bias)]
        node = self.call(
            torch.ops.openxpu.fused_linear.default, x, *given, group, False, "none", None, 0.0, None
        )
        node.meta[SINGLE_LINEAR] = True
        return node

    def columns(self, node: fx.Node | None, dim: int, begin: int, end: int) -> fx.Node | None:
        return None if node is None else self.call(aten.slice.Tensor, node, dim, begin, end)
