"""Match a QKV projection with RoPE and KV-cache writes, for ``_fuse_linear.py``.

Tracks which element of a product each element of a value is, and its sign, through views, slices and
concatenations. The match thus doesn't depend on how the graph spells them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from openxpu._fx_nodes import Norm, is_call, norm_of
from openxpu._match_cache_slices import SCATTERS, SlicedInput
from openxpu._match_linear import Product

aten, prims = torch.ops.aten, torch.ops.prims
_RESHAPES = {aten.reshape.default, aten.view.default, aten._unsafe_view.default}
_MOVES = {
    *_RESHAPES,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.permute.default,
    aten.transpose.int,
    aten.slice.Tensor,
    aten.select.int,
    aten.expand.default,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.alias.default,
    aten.clone.default,
    operator.getitem,
}
_CONSTANTS = {
    prims.iota.default,
    aten.add.Tensor,
    aten.add.Scalar,
    aten.sub.Tensor,
    aten.fmod.Scalar,
    aten.remainder.Scalar,
    aten.full.default,
    prims.convert_element_type.default,
    *_MOVES,
}


@dataclass(frozen=True)
class Angles:
    """RoPE angles, the same for all heads; `sign` applies to the first half."""

    cos: fx.Node
    sin: fx.Node
    sign: float


@dataclass(frozen=True)
class ElementOrigins:
    """For each element of a value (or of a list of values): the product element that it is, and its sign."""

    place: Any
    sign: Any
    angles: Angles | None = None
    norm: Norm | None = None  # of each head, before RoPE

    def moved(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ElementOrigins:
        place, sign = (target(given, *args, **kwargs) for given in (self.place, self.sign))
        return replace(self, place=place, sign=sign)


@dataclass(frozen=True)
class Part:
    """Adjacent columns of a product as a value of heads of size `depth`, with as many rows."""

    first: int
    columns: int
    depth: int
    angles: Angles | None
    norm: Norm | None


@dataclass(frozen=True)
class QkvRope:
    """Cache writes, in the order of the operator's arguments."""

    columns: list[tuple[Product, int, int]]  # of queries, keys and values: product, first and end column
    query: fx.Node
    depth: int
    angles: Angles | None
    norms: tuple[fx.Node, fx.Node] | None  # weights of queries' and keys' heads
    head_eps: float
    plus_one: bool  # added to those weights
    position: fx.Node
    dim: int
    caches: list[fx.Node]
    puts: list[fx.Node]
    copies: list[fx.Node]  # that write the changed caches back, except slices
    wholes: list[SlicedInput | None]  # the tensor of which each cache is a slice, if any
    place: fx.Node  # all inputs are available before it

    def inputs(self) -> list[fx.Node]:
        angles = [self.angles.cos, self.angles.sin] if self.angles else []
        caches = [c for c, whole in zip(self.caches, self.wholes, strict=True) if not whole]
        return [self.position, *angles, *(self.norms or ()), *caches]


def _constant(node: Any) -> Any:
    """Evaluate an index tensor that has no inputs; None if it has some."""
    if isinstance(node, (list, tuple)):
        return type(node)(_constant(n) for n in node)
    if not isinstance(node, fx.Node):
        return node
    if node.op != "call_function" or node.target not in _CONSTANTS:
        return None
    args = tuple(_constant(a) for a in node.args)
    if any(a is None for a in args if not isinstance(a, (list, tuple))):
        return None
    kwargs = {k: "cpu" if k == "device" else v for k, v in node.kwargs.items()}
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, fx.Node) else None


def _is_fixed(args: Iterable[Any]) -> bool:
    """Return whether a node's arguments are all constants."""
    return not any(isinstance(a, (fx.Node, torch.SymInt)) for a in torch.utils._pytree.tree_leaves(args))


def _natural(numbers: ElementOrigins, rows: int, row: int) -> Part | None:
    """Match elements, one token per row, as adjacent columns in order, laid out (rows, heads, depth)."""
    place = numbers.place
    if not isinstance(place, Tensor) or place.dim() < 2 or not place.numel() or place.numel() % rows:
        return None
    flat, first = place.reshape(rows, -1), int(place.flatten()[0])
    columns = flat.size(1)
    order = first + torch.arange(columns) + row * torch.arange(rows)[:, None]
    if not (torch.equal(flat, order) and bool((numbers.sign == 1).all()) and first + columns <= row):
        return None
    return Part(first, columns, place.size(-1), numbers.angles, numbers.norm)


def _rotated(
    one: ElementOrigins, other: ElementOrigins, cos: fx.Node, sin: fx.Node, rows: int, row: int
) -> ElementOrigins | None:
    """Match one * cos + other * sin as RoPE, where `other` is `one` with its halves swapped."""
    part = _natural(one, rows, row)
    if part is None or part.depth % 2 or part.columns % part.depth or other.place.shape != one.place.shape:
        return None
    if one.norm != other.norm:
        return None
    half = part.depth // 2
    if not torch.equal(other.place, one.place.roll(half, -1)):
        return None
    first, second = other.sign[..., :half], other.sign[..., half:]
    if not (bool((second == 1).all()) and bool((first == first.flatten()[0]).all())):
        return None
    for angle in (cos, sin):
        shape, whole = list(_value(angle).shape), list(one.place.shape)
        shape = [1] * (len(whole) - len(shape)) + shape
        if len(shape) > len(whole) or shape[-1] != part.depth or any(size != 1 for size in shape[1:-1]):
            return None
        if shape[0] != 1 and not (shape[0] == rows == whole[0]):
            return None
    return replace(one, angles=Angles(cos, sin, float(first.flatten()[0])))


def _is_tensor(numbers: ElementOrigins) -> bool:
    return isinstance(numbers.place, Tensor)


class Trace:
    """Tracks the elements of products that share activations, side by side in a row of `row`."""

    def __init__(self, products: list[Product]) -> None:
        self.products, self.rows = products, products[0].rows
        self.row = sum(p.columns for p in products)
        self.known: dict[fx.Node, ElementOrigins] = {}
        self.scaled: dict[fx.Node, tuple[ElementOrigins, fx.Node]] = {}
        self.puts: dict[fx.Node, ElementOrigins] = {}
        self.within_norms: set[fx.Node] = set()
        first = 0
        for product in products:
            place = first + torch.arange(product.columns) + self.row * torch.arange(self.rows)[:, None]
            self.known[product.node] = ElementOrigins(place, torch.ones_like(place))
            first += product.columns

    def follow(self, graph: fx.Graph) -> None:
        for node in graph.nodes:
            if node.op != "call_function" or node in self.known:
                continue
            args: Any = node.args
            if node.target is aten.cat.default:
                self._concat(node, args)
            elif args and isinstance(args[0], fx.Node) and args[0] in self.known:
                self._move(node, args)
            if self._is_normed(node):
                continue
            if node.target is aten.mul.Tensor:
                for given, angle in (args, tuple(reversed(args))):
                    is_angle = isinstance(_value(angle), Tensor) and angle not in self.known
                    if (
                        given in self.known
                        and is_angle
                        and _is_tensor(self.known[given])
                        and _value(angle).dtype == _value(given).dtype == _value(node).dtype
                    ):
                        self.scaled[node] = (self.known[given], angle)
            elif is_call(node, aten.add.Tensor) and all(a in self.scaled for a in args):
                self._rotate(node, args)
            elif node.target is aten.index_put.default and len(args) == 3 and args[2] in self.known:
                self.puts[node] = self.known[args[2]]

    def _is_normed(self, node: fx.Node) -> bool:
        """Match heads with RMS norm, each on its own, with the same weight."""
        norm = norm_of(node) if isinstance(_value(node), Tensor) else None
        numbers = self.known.get(norm.x) if norm else None
        if norm is None or numbers is None or numbers.angles or numbers.norm:
            return False
        part = _natural(numbers, self.rows, self.row)
        if part is None or part.columns % part.depth or _value(node).shape != numbers.place.shape:
            return False
        self.known[node] = replace(numbers, norm=norm)
        self.within_norms |= norm.nodes(node)
        return True

    def _move(self, node: fx.Node, args: Any) -> None:
        numbers = self.known[args[0]]
        if node.target in _MOVES and _is_fixed((args[1:], node.kwargs)):
            kwargs = {} if node.target is aten.clone.default else node.kwargs
            target = aten.reshape.default if node.target in _RESHAPES else node.target
            self.known[node] = numbers.moved(target, args[1:], kwargs)
        elif node.target is aten.neg.default:
            self.known[node] = replace(numbers, sign=-numbers.sign)
        elif node.target is aten.index.Tensor and _is_tensor(numbers):
            indices = [_constant(i) for i in args[1]]
            if all(i is not None or given is None for i, given in zip(indices, args[1], strict=True)):
                self.known[node] = numbers.moved(node.target, (indices,), {})

    def _concat(self, node: fx.Node, args: Any) -> None:
        parts = [self.known[part] for part in args[0] if part in self.known]
        is_whole = len(parts) == len(args[0]) > 0
        if is_whole and all(part.angles is None and part.norm == parts[0].norm for part in parts):
            dim = args[1] if len(args) > 1 else 0
            place, sign = (torch.cat([getattr(p, name) for p in parts], dim) for name in ("place", "sign"))
            self.known[node] = replace(parts[0], place=place, sign=sign)

    def _rotate(self, node: fx.Node, args: Any) -> None:
        for (one, cos), (other, sin) in (
            [self.scaled[a] for a in args],
            [self.scaled[a] for a in reversed(args)],
        ):
            if one.angles is None and other.angles is None:
                found = _rotated(one, other, cos, sin, self.rows, self.row)
                if found and found.place.shape == _value(node).shape:
                    self.known[node] = found

    def part_of(self, first: int, columns: int) -> tuple[Product, int, int] | None:
        """Return the product that has these columns."""
        begin = 0
        for product in self.products:
            if begin <= first and first + columns <= begin + product.columns:
                return product, first - begin, first - begin + columns
            begin += product.columns
        return None


def _position_of(
    put: fx.Node, rows: int, numbers: ElementOrigins, is_part: bool
) -> tuple[fx.Node, int] | None:
    """Return where index_put writes one token per row into a cache, and the dimension (1 or 2 of 4)."""
    base, indices, _ = put.args
    cache = _value(base)
    if not (isinstance(base, fx.Node) and (is_part or base.op == "placeholder") and cache.dim() == 4):
        return None
    dim = len(indices) - 1  # type: ignore[arg-type]
    if dim not in (1, 2) or any(i is not None for i in indices[:dim]):  # type: ignore[union-attr,index]
        return None
    position: Any = indices[dim]  # type: ignore[index]
    at = _value(position)
    if not isinstance(at, Tensor) or at.dtype != torch.int64 or list(at.shape) != [1]:
        return None
    if at.device != cache.device:
        return None
    expected = list(cache.shape)
    expected[dim] = 1
    is_whole = list(numbers.place.shape) == expected and cache.shape[0] == rows and cache.stride(3) == 1
    return (position, dim) if is_whole and cache.dtype == _value(put.args[2]).dtype else None


def _writes_back(put: fx.Node) -> fx.Node | None:
    """Return the copy that writes a changed input back, if the input has no other user."""
    base: Any = put.args[0]
    for user in put.users:
        if user.op == "call_function" and user.target is aten.copy_.default and user.args == (base, put):
            return user if set(base.users) == {put, user} else None
    return None


def find(
    graph: fx.Graph, products: list[Product], order: dict[fx.Node, int], wholes: list[SlicedInput]
) -> QkvRope | None:
    """Match products of the same activations as Q, K and V; caches may be slices of `wholes`."""
    whole_of = {put: whole for whole in wholes for put, _ in whole.puts}
    trace = Trace(products)
    trace.follow(graph)
    if len(trace.puts) != 2:
        return None
    parts = {put: _natural(numbers, trace.rows, trace.row) for put, numbers in trace.puts.items()}
    places = {
        put: _position_of(put, trace.rows, numbers, put in whole_of) for put, numbers in trace.puts.items()
    }
    puts = sorted(trace.puts, key=lambda put: trace.puts[put].angles is None)  # keys have RoPE
    key, value = (parts[put] for put in puts)
    if key is None or value is None or None in places.values() or places[puts[0]] != places[puts[1]]:
        return None
    keys, values = (put.args[0] for put in puts)
    if keys is values or _value(keys).shape != _value(values).shape or value.angles is not None:
        return None
    # queries have RoPE too, and are not written anywhere
    queries = [
        node
        for node, numbers in trace.known.items()
        if node.target is aten.add.Tensor and numbers.angles and not _leads_to(node, puts[0], trace)
    ]
    if len(queries) != 1 or trace.known[queries[0]].angles != key.angles:
        return None
    query = queries[0]
    part = _natural(trace.known[query], trace.rows, trace.row)
    if part is None or not part.depth == key.depth == value.depth:
        return None
    norms = part.norm, key.norm
    if value.norm or (norms[0] is None) != (norms[1] is None):
        return None
    if any(norm and _value(norm.weight).shape != (part.depth,) for norm in norms):
        return None
    if norms[0] and norms[1] and (norms[0].eps, norms[0].plus_one) != (norms[1].eps, norms[1].plus_one):
        return None
    three = [part, key, value]
    if sum(p.columns for p in three) != trace.row:
        return None
    columns = [trace.part_of(p.first, p.columns) for p in three]
    begins = sorted((p.first, p.columns) for p in three)
    if None in columns or any(a[0] + a[1] != b[0] for a, b in zip(begins, begins[1:], strict=False)):
        return None
    copies = [_writes_back(put) for put in puts if put not in whole_of]
    own = {query, *puts}
    after = {n for n in trace.known if trace.known[n].angles == part.angles and _comes_from(n, query)}
    within = {*trace.known, *trace.scaled, *trace.within_norms, *own}
    strays = [u for n in within - own - after for u in n.users if u not in within]
    position, dim = places[puts[0]]
    weights = (norms[0].weight, norms[1].weight) if norms[0] and norms[1] else None
    inputs = [query, position, *(weights or ()), *([part.angles.cos, part.angles.sin] if part.angles else [])]
    place = max(inputs, key=lambda n: order.get(n, -1)).next
    late = all(
        order[u] >= order[place]
        for put in puts
        for u in put.users
        if u not in copies and u.target not in SCATTERS
    )
    if strays or None in copies or not late:
        return None
    return QkvRope(
        columns,  # type: ignore[arg-type]
        query,
        part.depth,
        part.angles,
        weights,
        norms[0].eps if norms[0] else 0.0,
        bool(norms[0] and norms[0].plus_one),
        position,
        dim,
        [keys, values],  # type: ignore[list-item]
        puts,
        copies,  # type: ignore[arg-type]
        [whole_of.get(put) for put in puts],
        place,
    )


def _leads_to(node: fx.Node, put: fx.Node, trace: Trace) -> bool:
    """Return whether a value, through views, is what is written to a cache."""
    return any(user is put or (user in trace.known and _leads_to(user, put, trace)) for user in node.users)


def _comes_from(node: fx.Node, source: fx.Node) -> bool:
    """Return whether a node is a view of another."""
    while node is not source:
        if node.target not in _MOVES:
            return False
        given: Any = node.args[0]
        if not isinstance(given, fx.Node):
            return False
        node = given
    return True
