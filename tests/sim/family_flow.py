"""Control flow: jmpi, goto and join, if, else, endif, while, break, cont, call and ret.

Sources: intel/intel-graphics-compiler, documentation/visa/instructions/GOTO.md (lanes that a forward goto turns off
run again at the label; a backward goto jumps if any lane is predicated), JMP.md, CALL.md, RET.md; for if, else,
endif, while, break and cont: Intel PRM volume 2a (EU instructions) as Mesa builds them,
src/intel/compiler/brw/brw_eu_emit.c (JIP of if: past else; UIP: endif; JIP of else: endif; UIP of break and cont:
while). In IGA's text the first label is JIP, the second UIP.
"""

from collections.abc import Callable, Iterator

import numpy as np
from lanes import pack
from machine import FILL, Case, Product, Walk
from number import D

LANES = 16
RESULT = 80


def flow(
    name: str,
    lines: str,
    reference: Callable[[list[int], list[int]], list[int]],
    rows: int = 12,
    mask: int = 0xFFFF,
) -> Case:
    """Lanes of r20 and r40 are the data; r80, at first all 0, is compared with the reference of active lanes."""
    random = np.random.default_rng(len(lines))
    a = random.integers(0, 12, (rows, LANES)).astype(np.uint64)
    b = random.integers(0, 12, (rows, LANES)).astype(np.uint64)
    a[0], b[0] = 3, 3  # all lanes alike
    a[1], b[1] = 0, 11
    a[2], b[2] = 11, 0
    text = f"(W) mov ({LANES}|M0) r80.0<1>:d 0:w\n{lines.strip()}"

    def check(found: dict[int, np.ndarray]) -> list[str]:
        wrong = []
        got = found[RESULT][:, : LANES * 4].copy().view("<i4").tolist()
        for row in range(rows):
            want = reference(a[row].astype(int).tolist(), b[row].astype(int).tolist())
            want = [x if mask >> lane & 1 else 0 for lane, x in enumerate(want)]
            if got[row] != want:
                wrong.append(f"{a[row].tolist()}, {b[row].tolist()} -> {got[row]}, expected {want}")
        return wrong

    inputs = {20: pack(D, a, 1, 0, LANES * 4), 40: pack(D, b, 1, 0, LANES * 4)}
    registers = {80: 2}
    label = name if mask == 0xFFFF else f"{name} mask {mask:#x}"
    return Case(label, text, inputs, registers, check, walk=Walk(simd=LANES, mask=mask), rows=rows)


def each(function: Callable[[int, int], int]) -> Callable[[list[int], list[int]], list[int]]:
    """A reference that treats lanes alone."""
    return lambda a, b: [function(x, y) for x, y in zip(a, b, strict=True)]


IF_ELSE = """
cmp (16|M0) (lt)f0.0 null<1>:d r20.0<1;1,0>:d r40.0<1;1,0>:d
(~f0.0) goto (16|M0) ELSE@ ELSE@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 100:w
goto (16|M0) ELSE@ END@
ELSE@:
join (16|M0) END@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 7:w
END@:
join (16|M0) LAST@
LAST@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1000:w
"""

IF_ONLY = """
cmp (16|M0) (eq)f1.0 null<1>:d r20.0<1;1,0>:d r40.0<1;1,0>:d
(~f1.0) goto (16|M0) END@ END@
mov (16|M0) r80.0<1>:d r20.0<1;1,0>:d
END@:
join (16|M0) LAST@
LAST@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1:w
"""

LOOP = """
mov (16|M0) r60.0<1>:d r20.0<1;1,0>:d
LOOP@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d r40.0<1;1,0>:d
add (16|M0) r60.0<1>:d r60.0<1;1,0>:d -1:w
cmp (16|M0) (gt)f0.0 null<1>:d r60.0<1;1,0>:d 0:w
(f0.0) goto.b (16|M0) OUT@ LOOP@
OUT@:
join (16|M0) LAST@
LAST@:
"""

# ce0: the lanes that are active; IGA prints ce
CHANNELS = """
cmp (16|M0) (lt)f0.0 null<1>:d r20.0<1;1,0>:d r40.0<1;1,0>:d
(~f0.0) goto (16|M0) END@ END@
(W) mov (1|M0) r60.0<1>:ud ce0.0<0;1,0>:ud
mov (16|M0) r80.0<1>:d r60.0<0;1,0>:d
END@:
join (16|M0) LAST@
LAST@:
"""

# leaves the loop in its middle as soon as the sum passes 40
LOOP_WITH_EXIT = """
mov (16|M0) r60.0<1>:d r20.0<1;1,0>:d
LOOP@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d r40.0<1;1,0>:d
cmp (16|M0) (gt)f0.0 null<1>:d r80.0<1;1,0>:d 40:w
(f0.0) goto (16|M0) OUT@ OUT@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1:w
add (16|M0) r60.0<1>:d r60.0<1;1,0>:d -1:w
cmp (16|M0) (gt)f0.0 null<1>:d r60.0<1;1,0>:d 0:w
(f0.0) goto.b (16|M0) OUT@ LOOP@
OUT@:
join (16|M0) LAST@
LAST@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1000:w
"""

# steps of Collatz's sequence from a + 1: a branch within a loop
COLLATZ = """
add (16|M0) r60.0<1>:d r20.0<1;1,0>:d 1:w
LOOP@:
cmp (16|M0) (eq)f0.0 null<1>:d r60.0<1;1,0>:d 1:w
(f0.0) goto (16|M0) OUT@ OUT@
and (16|M0) (eq)f0.0 r62.0<1>:d r60.0<1;1,0>:d 1:w
(f0.0) goto (16|M0) EVEN@ EVEN@
mul (16|M0) r60.0<1>:d r60.0<1;1,0>:d 3:w
add (16|M0) r60.0<1>:d r60.0<1;1,0>:d 1:w
goto (16|M0) EVEN@ NEXT@
EVEN@:
join (16|M0) NEXT@
asr (16|M0) r60.0<1>:d r60.0<1;1,0>:d 1:w
NEXT@:
join (16|M0) OUT@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1:w
goto.b (16|M0) OUT@ LOOP@
OUT@:
join (16|M0) LAST@
LAST@:
"""

STRUCTURED_IF = """
cmp (16|M0) (lt)f0.0 null<1>:d r20.0<1;1,0>:d r40.0<1;1,0>:d
(f0.0) if (16|M0) OTHER@ END@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 100:w
else (16|M0) END@ END@
OTHER@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 7:w
END@:
endif (16|M0) LAST@
LAST@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1000:w
"""

NESTED_IF = """
cmp (16|M0) (lt)f0.0 null<1>:d r20.0<1;1,0>:d r40.0<1;1,0>:d
cmp (16|M0) (gt)f1.0 null<1>:d r20.0<1;1,0>:d 4:w
(f0.0) if (16|M0) END@ END@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1:w
(f1.0) if (16|M0) INNER@ INEND@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 10:w
else (16|M0) INEND@ INEND@
INNER@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 20:w
INEND@:
endif (16|M0) END@
END@:
endif (16|M0) LAST@
LAST@:
"""

WHILE = """
mov (16|M0) r60.0<1>:d r20.0<1;1,0>:d
LOOP@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d r40.0<1;1,0>:d
cmp (16|M0) (gt)f0.0 null<1>:d r80.0<1;1,0>:d 40:w
(f0.0) break (16|M0) END@ END@
add (16|M0) r60.0<1>:d r60.0<1;1,0>:d -1:w
cmp (16|M0) (gt)f0.0 null<1>:d r60.0<1;1,0>:d 0:w
and (16|M0) (ne)f1.0 r62.0<1>:d r60.0<1;1,0>:d 1:w
(f1.0) cont (16|M0) END@ END@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1:w
END@:
(f0.0) while (16|M0) LOOP@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1000:w
"""


def _loop(a: int, b: int) -> int:
    return b * max(a, 1)


def _loop_with_exit(a: int, b: int) -> int:
    total = 0
    while True:
        total += b
        if total > 40:
            return total + 1000
        total += 1
        a -= 1
        if a <= 0:
            return total + 1000


def _collatz(a: int, _: int) -> int:
    n, steps = a + 1, 0
    while n != 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


def _nested(a: int, b: int) -> int:
    return (1 + (10 if a > 4 else 20)) if a < b else 0


def _while(a: int, b: int) -> int:
    total = 0
    while True:
        total += b
        if total > 40:
            return total + 1000
        a -= 1
        if a & 1 == 0:
            total += 1
        if a <= 0:
            return total + 1000


def divergent() -> Iterator[Case]:
    """Lanes that go different ways."""
    table = {
        "goto if else": (IF_ELSE, lambda a, b: (100 if a < b else 7) + 1000),
        "goto if": (IF_ONLY, lambda a, b: (a if a == b else 0) + 1),
        "goto loop": (LOOP, _loop),
        "goto loop with exit": (LOOP_WITH_EXIT, _loop_with_exit),
        "goto in loop": (COLLATZ, _collatz),
        "if else endif": (STRUCTURED_IF, lambda a, b: (100 if a < b else 7) + 1000),
        "nested if": (NESTED_IF, _nested),
        "while break cont": (WHILE, _while),
    }
    for name, (lines, function) in table.items():
        for mask in (0xFFFF, 0x5A3C, 0x8000):
            yield flow(name, lines, each(function), mask=mask)


JUMP = """
(W) jmpi OVER@
mov (16|M0) r80.0<1>:d 1:w
OVER@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 5:w
"""

# the loop count is lane 0's a
UNIFORM_LOOP = """
(W) mov (1|M0) r60.0<1>:d r20.0<0;1,0>:d
LOOP@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d r40.0<1;1,0>:d
(W) add (1|M0) r60.0<1>:d r60.0<0;1,0>:d -1:w
(W) cmp (1|M0) (gt)f0.0 null<1>:d r60.0<0;1,0>:d 0:w
(W&f0.0) jmpi LOOP@
"""

NOT_TAKEN = """
(W) cmp (1|M0) (gt)f1.0 null<1>:d r20.0<0;1,0>:d 5:w
(W&~f1.0) jmpi OVER@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 3:w
OVER@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 4:w
"""

CALL = """
(W) call (1|M0) r70.0 SUB@
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 4:w
(W) call (1|M0) r70.0 SUB@
(W) jmpi END@
SUB@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d r20.0<1;1,0>:d
(W) ret (1|M0) r70.0
END@:
add (16|M0) r80.0<1>:d r80.0<1;1,0>:d 1000:w
"""


def uniform() -> Iterator[Case]:
    """All lanes go the same way."""
    yield flow("jmpi", JUMP, each(lambda a, b: 5))
    yield flow("jmpi loop", UNIFORM_LOOP, lambda a, b: [y * max(a[0], 1) for y in b])
    yield flow("jmpi predicated", NOT_TAKEN, lambda a, b: [7 if a[0] > 5 else 4] * LANES)
    yield flow("call, ret", CALL, each(lambda a, b: 2 * a + 1004))


def channels() -> Case:
    """ce0 holds the lanes that execute."""

    def reference(a: list[int], b: list[int]) -> list[int]:
        taken = [x < y for x, y in zip(a, b, strict=True)]
        return [sum(on << lane for lane, on in enumerate(taken)) if on else 0 for on in taken]

    return flow("channel enables", CHANNELS, reference)


def cases(product: Product) -> list[Case]:
    return [*divergent(), *uniform(), channels()]


__all__ = ["FILL", "cases"]
