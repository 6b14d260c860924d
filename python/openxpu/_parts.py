"""Caches that are parts of a larger tensor, for ``_cached.py``: what a graph writes into an input, part by part.

Where a program changes a part of an input in place, its graph makes a new tensor of the whole, with the part changed,
for each time (``select_scatter``), and copies the last one back. A kernel that writes into the part itself serves for
all of that, if whoever reads a part reads it on the same side of the change as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from openxpu._nodes import is_call

aten = torch.ops.aten
# and the view of the part that each replaces
SCATTERS = {aten.select_scatter.default: aten.select.int, aten.slice_scatter.default: aten.slice.Tensor}
# views, innermost last: what is called with which arguments behind the tensor
Path = tuple[tuple[Any, tuple[Any, ...]], ...]


@dataclass(eq=False)
class Whole:
    """An input, what it becomes by and by, and which part of it each ``index_put`` changes."""

    source: fx.Node
    versions: list[fx.Node]  # the input first
    puts: list[tuple[fx.Node, Path]]  # of which the first makes the second version
    copy: fx.Node  # that puts the last version back

    def path_of(self, put: fx.Node) -> Path:
        return next(path for other, path in self.puts if other is put)

    def is_kept(self, places: dict[fx.Node, int], order: dict[fx.Node, int]) -> bool:
        """Whether who reads a part finds the same there if each put is done at its place (a number of `order`)."""
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
        """What reads a part, but for the changes themselves; and which part."""
        puts = {put for put, _ in self.puts}
        for user in node.users:
            if user.target in SCATTERS.values() and user.args[0] is node:
                yield from self._readers(user, (*path, (user.target, user.args[1:])))
            elif user not in puts and user.target not in SCATTERS and user is not self.copy:
                yield user, path

    def write_in_place(self, graph: fx.Graph) -> None:
        """Once kernels write into the parts: there is one version."""
        graph.erase_node(self.copy)
        for version in self.versions[1:]:
            version.replace_all_uses_with(self.source)


def _are_apart(one: Path, other: Path) -> bool:
    """Whether two parts have nothing in common: other elements are selected of what is the same."""
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
    """Read a node as a version, or that part of it, in which an ``index_put`` changes a part."""
    base, inner, *rest = node.args
    path_of_inner = (*path, (SCATTERS[node.target], tuple(rest)))  # type: ignore[index]
    if node.kwargs or not _is_view(base, version, path) or not isinstance(inner, fx.Node):
        return None
    if is_call(inner, aten.index_put.default):
        return (inner, path_of_inner) if _is_view(inner.args[0], version, path_of_inner) else None
    if not (is_call(inner, *SCATTERS) and len(inner.users) == 1):
        return None
    return _changed(inner, version, path_of_inner)


def find(graph: fx.Graph) -> list[Whole]:
    """Find inputs of which nothing but parts is changed."""
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
            found.append(Whole(source, versions, puts, copy))  # type: ignore[arg-type]
    return found
