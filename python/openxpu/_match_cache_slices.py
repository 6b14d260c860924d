"""Match caches that are slices of a larger tensor, for ``_match_qkv_rope.py``.

Where a program writes to a slice of an input in place, its graph makes a new version of the whole tensor for
each write (``select_scatter``) and copies the last version back. A kernel that writes to the slice itself
replaces all of that, if every reader of a slice still runs on the same side of the write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from openxpu._fx_nodes import is_call

aten = torch.ops.aten
# operators that write a slice, and the view that selects the slice
SCATTERS = {aten.select_scatter.default: aten.select.int, aten.slice_scatter.default: aten.slice.Tensor}
# views, innermost last: function, and arguments after the tensor
Path = tuple[tuple[Any, tuple[Any, ...]], ...]


@dataclass(eq=False)
class SlicedInput:
    """An input, its versions, and the slice that each ``index_put`` writes."""

    source: fx.Node
    versions: list[fx.Node]  # the input first
    puts: list[tuple[fx.Node, Path]]  # the first creates the second version
    copy: fx.Node  # writes the last version back

    def path_of(self, put: fx.Node) -> Path:
        return next(path for other, path in self.puts if other is put)

    def is_kept(self, places: dict[fx.Node, int], order: dict[fx.Node, int]) -> bool:
        """Return whether readers see the same data if writes run at `places`, indices of `order`."""
        if set(places) != {put for put, _ in self.puts}:
            return False
        for i, version in enumerate(self.versions):
            for reader, path in self._readers(version, ()):
                for j, (put, changed) in enumerate(self.puts):
                    if _are_apart(path, changed):
                        continue
                    if (order[reader] >= places[put]) != (i > j):
                        return False
        return True

    def _readers(self, node: fx.Node, path: Path) -> Iterator[tuple[fx.Node, Path]]:
        """Return the readers of slices, without the writes, and the slice that each reads."""
        puts = {put for put, _ in self.puts}
        for user in node.users:
            if user.target in SCATTERS.values() and user.args[0] is node:
                yield from self._readers(user, (*path, (user.target, user.args[1:])))
            elif user not in puts and user.target not in SCATTERS and user is not self.copy:
                yield user, path

    def write_in_place(self, graph: fx.Graph) -> None:
        """Merge all versions into one, once kernels write to the slices."""
        graph.erase_node(self.copy)
        for version in self.versions[1:]:
            version.replace_all_uses_with(self.source)


def _are_apart(one: Path, other: Path) -> bool:
    """Return whether two slices are disjoint: they select different elements of the same dimension."""
    for (view, args), (other_view, other_args) in zip(one, other, strict=False):
        if (view, args) == (other_view, other_args):
            continue
        is_select = view is other_view is aten.select.int and args[0] == other_args[0]
        return is_select and all(isinstance(a[1], int) and a[1] >= 0 for a in (args, other_args))
    return False


def _is_view(node: Any, version: fx.Node, path: Path) -> bool:
    for view, args in reversed(path):
        if not (is_call(node, view) and node.args[1:] == args):
            return False
        node = node.args[0]
    return node is version


def _changed(node: fx.Node, version: fx.Node, path: Path) -> tuple[fx.Node, Path] | None:
    """Match a version, or a slice of it, in which an ``index_put`` writes a slice."""
    base, inner, *rest = node.args
    path_of_inner = (*path, (SCATTERS[node.target], tuple(rest)))  # type: ignore[index]
    if node.kwargs or not _is_view(base, version, path) or not isinstance(inner, fx.Node):
        return None
    if is_call(inner, aten.index_put.default):
        return (inner, path_of_inner) if _is_view(inner.args[0], version, path_of_inner) else None
    if not (is_call(inner, *SCATTERS) and len(inner.users) == 1):
        return None
    return _changed(inner, version, path_of_inner)


def find(graph: fx.Graph) -> list[SlicedInput]:
    """Return the inputs that are only written slice by slice."""
    found = []
    for copy in graph.find_nodes(op="call_function", target=aten.copy_.default):
        source, last = copy.args[:2]
        versions: list[Any] = [last]
        while is_call(versions[0], *SCATTERS):
            versions.insert(0, versions[0].args[0])
        if len(versions) == 1 or versions[0] is not source or source.op != "placeholder":
            continue
        puts = [_changed(after, before, ()) for before, after in zip(versions, versions[1:], strict=False)]
        if all(puts):
            found.append(SlicedInput(source, versions, puts, copy))  # type: ignore[arg-type]
    return found
