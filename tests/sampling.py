"""Which of a parametrized test's cases run: all of them, one in N, or enough to see every pair of values together."""

from __future__ import annotations

import heapq
import itertools
import math
import re
import zlib
from collections.abc import Sequence

Case = tuple[str, ...]  # the identifiers of a case's parameters, one per parameter

# Dtypes whose kernels share their code but for a type's name: a fault of one is most likely one of all.
DTYPE_CLASSES = {
    "half": ("float16", "bfloat16", "half", "f16", "bf16"),
    "integer": (
        "int8",
        "int16",
        "int32",
        "uint8",
        "uint16",
        "uint32",
        "i8",
        "i16",
        "i32",
        "u8",
        "u16",
        "u32",
    ),
    "long": ("int64", "uint64", "i64", "u64"),
    "complex": ("complex64", "complex128", "c64", "c128"),
}
CLASS_OF = {name: group for group, names in DTYPE_CLASSES.items() for name in names}
DTYPE_NAME = re.compile(rf"(?<![a-z0-9])({'|'.join(CLASS_OF)})(?![a-z0-9])")


def without_dtypes(case: Case) -> Case:
    """Replace the names of dtypes by those of their classes."""
    return tuple(DTYPE_NAME.sub(lambda found: CLASS_OF[found[1]], identifier) for identifier in case)


def by_name(names: Sequence[str]) -> list[int]:
    """Return the indices in an order that depends on the names alone and puts no value first."""
    return sorted(range(len(names)), key=lambda i: zlib.crc32(names[i].encode()))


def one_in(every: int, names: Sequence[str]) -> list[int]:
    """Choose one in ``every`` cases, at least one."""
    return by_name(names)[: math.ceil(len(names) / every)]


def pairs(case: Case) -> set[tuple[int, str, int, str]]:
    """Return the pairs of values that a case shows together; a lone value is paired with itself."""
    if len(case) == 1:
        return {(0, case[0], 0, case[0])}
    return {(i, case[i], j, case[j]) for i, j in itertools.combinations(range(len(case)), 2)}


def pairwise(cases: Sequence[Case], names: Sequence[str], most: int | None = None) -> list[int]:
    """Choose cases until every pair of values that occurs in some case occurs in a chosen one.

    Most faults depend on one parameter or on two of them together. Dtypes of a class count as one value; which of them
    runs differs from test to test. The choice is greedy: next comes the case that adds
    most pairs, the first by name among equals. Since the gain of a case only falls, a stale maximum is recomputed only
    when it reaches the top of the heap.

    With ``most``, no more than that many cases are chosen once every single value occurs in one of them.
    """
    cases = [without_dtypes(case) for case in cases]
    order, chosen = by_name(names), []
    seen: set[tuple[int, str, int, str]] = set()
    unseen = {value for case in cases for value in enumerate(case)}
    waiting = [(-len(pairs(cases[i])), rank, i) for rank, i in enumerate(order)]
    heapq.heapify(waiting)
    while waiting and (most is None or unseen or len(chosen) < most):
        _, rank, i = heapq.heappop(waiting)
        gain = len(pairs(cases[i]) - seen)
        if waiting and -gain > waiting[0][0]:
            heapq.heappush(waiting, (-gain, rank, i))
        elif gain:
            seen |= pairs(cases[i])
            unseen -= set(enumerate(cases[i]))
            chosen.append(i)
    return chosen
